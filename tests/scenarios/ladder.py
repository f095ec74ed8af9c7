"""The world of the ladder's scenarios: budgets, what tenants ask for, and the production operator over it all."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import structs

from headroom.adapters.kube.transport import Transport
from headroom.api.policies import policies
from headroom.model.pace import Pace
from headroom.model.ports import Clock
from headroom.model.usage import Evidence, UsageRow
from headroom.model.world import Caps
from headroom.sim.catalog import bare_definition
from headroom.sim.clock import run_virtual
from headroom.sim.operators import SimulatedProcess, ledger_of
from headroom.sim.scenario import Report, Scenario, Simulation
from tests.scenarios.auditor import Auditor, Life

Document = dict[str, Any]
Act = Callable[[Simulation], None]
CAPS = Caps(cluster=6, namespace=4)
GANG = "scheduling.x-k8s.io/pod-group"
LENGTH = "headroom.dev/expected-duration"
RUNS_FOR = "sim.headroom.dev/runs-for"


# --- documents ------------------------------------------------------------------------------------------------------------------


def a_budget(name: str, hours: str, *steps: str, labels: dict[str, str] | None = None, **more: Any) -> Document:
    """A budget of namespace lab; a step is written `80% AlertOnly`."""
    enforcement = {"steps": [dict(zip(("at", "action"), each.split(), strict=True)) for each in steps]}
    enforcement |= {"gracePeriodSeconds": 30} | more.pop("enforcement", {})
    spec = {
        "selector": {"matchLabels": labels or {"team": name}},
        "quota": {"gpuHours": hours, "windowHours": more.pop("window", 24)},
        "enforcement": enforcement,
    }
    metadata = {"name": name, "namespace": more.pop("namespace", "lab")}
    kind = {"apiVersion": "headroom.dev/v1alpha1", "kind": "GPUWorkloadBudget"}
    return kind | {"metadata": metadata, "spec": spec | more}


def a_template(
    labels: dict[str, str], gpus: int, runs_for: str = "", declared: str = "", stops_in: int = 2
) -> Document:
    """A pod without a name."""
    annotations = {RUNS_FOR: runs_for} if runs_for else {}
    annotations |= {LENGTH: declared} if declared else {}
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "main", "image": "train:1", "resources": resources}
    spec = {"containers": [container], "terminationGracePeriodSeconds": stops_in, "restartPolicy": "Never"}
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


def a_pod(name: str, template: Document, namespace: str = "lab") -> Document:
    """The template as a pod of its own."""
    metadata = template["metadata"] | {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def a_gang(name: str, template: Document, ranks: int, namespace: str = "lab") -> list[Document]:
    """Pods that are worth nothing without one another."""
    labels = template["metadata"]["labels"] | {GANG: name}
    of_gang = template | {"metadata": template["metadata"] | {"labels": labels}}
    return [a_pod(f"{name}-{rank}", of_gang, namespace) for rank in range(ranks)]


def a_job(name: str, template: Document, pods: int = 1, namespace: str = "lab") -> Document:
    """A Job, which is tried again for as long as it takes."""
    spec = {"completions": pods, "parallelism": pods, "backoffLimit": 1000, "template": template}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def a_jobset(name: str, template: Document, pods: int = 2, namespace: str = "lab") -> Document:
    """A JobSet of two parts: a leader, and its workers."""
    parts = [
        {"name": part, "replicas": 1, "template": {"spec": a_job("", template, count)["spec"]}}
        for part, count in (("leader", 1), ("workers", pods - 1))
    ]
    metadata = {"name": name, "namespace": namespace}
    kind = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    return kind | {"metadata": metadata, "spec": {"replicatedJobs": parts}}


def a_service(name: str, template: Document, replicas: int = 1, namespace: str = "lab") -> Document:
    """What a Deployment makes: pods that are made anew as often as they go."""
    template = template | {"spec": template["spec"] | {"restartPolicy": "Always"}}
    spec = {"replicas": replicas, "selector": {"matchLabels": template["metadata"]["labels"]}, "template": template}
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": spec}


def stage(*budgets: Document, nodes: int = 4) -> list[Document]:
    """What is there at the start: two namespaces for GPUs, nodes with room for all, our policies, and the budgets."""
    namespaces = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"gpus": "yes"}}}
        for name in ("lab", "studio")
    ]
    room = {"nvidia.com/gpu": "64", "pods": "250", "cpu": "1000"}
    machines = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}, "status": {"allocatable": room}}
        for number in range(nodes)
    ]
    jobsets = bare_definition("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet", namespaced=True)
    return [*namespaces, *machines, jobsets, *policies(), *budgets]


# --- the operator ---------------------------------------------------------------------------------------------------------------


UNHURRIED = Pace(
    lease_seconds=600,
    renew_seconds=200.0,
    idle_seconds=30.0,
    full_pass_seconds=1800.0,
    turn_ms={"GPUWorkloadBudget": 900_000},
    numbers_seconds=(1800.0, 1800.0),
    record_seconds=20.0,
    watch_seconds=(30_000, 60_000),
    absent_seconds=(600.0, 600.0),
)
"""What the operator does with no need it does seldom; it answers to what happens as fast as ever."""
FOR_WEEKS = structs.replace(UNHURRIED, record_seconds=60.0, silent_seconds=5400.0, oldest_seconds=7200.0)
"""Where no watch goes wrong, so that a week takes less than half a minute."""
AS_EVER = Pace()
UNHURRIED_BUT_LEASES = structs.replace(UNHURRIED, lease_seconds=AS_EVER.lease_seconds, renew_seconds=4.0)
"""Leases run out as soon as ever: for operators that die. Renewed half as often, they still bear one renewal that fails."""


def bookmarked(simulation: Simulation, pace: Pace) -> Simulation:
    """With the first bookmark before a watch is taken to be dead, so that kinds of which there is no news are not listed anew."""
    if pace is not AS_EVER:
        simulation.server.bookmark_seconds = pace.silent_seconds / 3
    return simulation


def an_operator(
    transport: Transport, clock: Clock, rng: random.Random, identity: str, *, pace: Pace = AS_EVER
) -> SimulatedProcess:
    """The production operator with low caps."""
    return SimulatedProcess(transport, clock, rng, identity, caps=CAPS, pace=pace)


def a_leader(
    transport: Transport, clock: Clock, rng: random.Random, identity: str, *, pace: Pace = AS_EVER
) -> SimulatedProcess:
    """The same, and it leads whoever else does."""
    return SimulatedProcess(transport, clock, rng, identity, caps=CAPS, lease=f"lease-of-{identity}", pace=pace)


class Run:
    """A scenario that was played, and its auditor."""

    def __init__(self, simulation: Simulation, auditor: Auditor, report: Report) -> None:
        self.simulation, self.auditor, self.report = simulation, auditor, report

    def objects(self, kind: str) -> list[Document]:
        """What is left of a kind."""
        return self.simulation.server.objects(kind)

    def left(self) -> list[str]:
        """Every effect of ours that is still there."""
        found = [f"hold {each['metadata']['name']}" for each in self.objects("BudgetHold")]
        for kind in ("Pod", "Job", "JobSet", "ReplicaSet"):
            for each in self.objects(kind):
                named = f"{kind} {each['metadata']['name']}"
                notes = each["metadata"].get("annotations") or {}
                gates = [gate["name"] for gate in each["spec"].get("schedulingGates") or []]
                marks = [mark for mark in notes if mark.startswith(("headroom.dev/paused", "headroom.dev/suspended"))]
                found += [f"{named} has {mark}" for mark in [*gates, *marks]]
                if each["spec"].get("suspend"):
                    found.append(f"{named} is suspended")
        return found

    def operators_writes(self, since: int = 0) -> list[Any]:
        """What operators wrote beside their lease, from so many milliseconds after the start on."""
        begin = self.simulation.scenario.start + since
        return [
            each
            for each in self.report.trace.writes
            if each.actor.startswith(("operator-", "second-")) and "/leases" not in each.path and each.at >= begin
        ]


def a_row(cluster: str, life: Life) -> UsageRow:
    """What the ledger has of a pod that ran and is gone."""
    assert life.started is not None
    assert life.ended is not None
    return UsageRow(
        cluster=cluster,
        uid=life.uid,
        start=life.started,
        earliest=life.started,
        seen_until=life.ended,
        ended=life.ended,
        evidence=Evidence.CONTAINER_FINISH,
        namespace=life.namespace,
        pod=life.name,
        created=life.created,
        observed=life.created,
        amounts=(("nvidia.com/gpu", life.gpus * 1_000_000),),
        labels=tuple(sorted(life.labels.items())),
    )


def play(
    documents: list[Document],
    timeline: list[Document],
    *,
    duration: str,
    past: Sequence[Life] = (),
    make_operator: Callable[..., SimulatedProcess] = an_operator,
    pace: Pace = UNHURRIED_BUT_LEASES,
    acts: Sequence[tuple[float, Act]] = (),
    **spec: Any,
) -> Run:
    """Play it all, with an auditor that sees every write.

    `past` is what ran before and is in the ledger; `acts` are what somebody does after so many seconds. What the operator does with no need
    it does seldom, unless another pace is asked for.
    """
    told = {"duration": duration, "seed": 11, "operators": 1, "timeline": timeline} | spec
    scenario = {"apiVersion": "sim.headroom.dev/v1", "kind": "Scenario", "spec": told}

    async def run() -> Run:
        make = partial(make_operator, pace=pace)
        simulation = bookmarked(Simulation(Scenario.of([scenario, *documents]), make), pace)
        auditor = Auditor(simulation.server)
        auditor.lives |= {each.uid: each for each in past}
        cluster = (simulation.server.object("Namespace", "", "kube-system") or {})["metadata"]["uid"]
        await ledger_of(simulation.server.transport("auditor")).write([a_row(cluster, each) for each in past])
        for seconds, act in acts:
            simulation.clock.call_later(seconds, partial(act, simulation))
        report = await simulation.play()
        auditor.end = simulation.clock.now()
        return Run(simulation, auditor, report)

    return run_virtual(run)
