"""The world of the power scenarios: pools of machines, pods that ask for them, and the production operator over it all."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from headroom.model.pace import Pace
from headroom.sim.clock import run_virtual
from headroom.sim.operators import SimulatedProcess, production
from headroom.sim.power import SwitchCommand
from headroom.sim.scenario import Report, Scenario, Simulation
from tests.scenarios.ladder import UNHURRIED_BUT_LEASES, bookmarked
from tests.scenarios.power_auditor import PowerAuditor

Document = dict[str, Any]
Act = Callable[[Simulation], None]
SECOND, MINUTE, HOUR = 1000, 60_000, 3_600_000
GPU = "nvidia.com/gpu"
LABEL = {"metal": "yes"}
"""What nodes of pools have, and pods ask for."""


# --- documents ------------------------------------------------------------------------------------------------------------------


def a_pool(name: str = "metal", gpus: Sequence[int] = (8,), *, asked: bool = False, **policy: Any) -> Document:
    """A pool of machines `NAME-1`, `NAME-2`..., one for each number of GPUs; `asked` ones tell whether they are on."""
    words = ("scaleUp", "scaleDown", "status") if asked else ("scaleUp", "scaleDown")
    machines = [
        {"name": f"{name}-{number}", "gpuCount": count}
        | {f"{word}Endpoint": f"http://power/{name}-{number}/{word}" for word in words}
        for number, count in enumerate(gpus, start=1)
    ]
    template = {"labels": LABEL, "idleWatts": 500, "busyWatts": 3000}
    given = {"idleSeconds": 300, "bootTimeoutSeconds": 300, "minOffSeconds": 0} | policy
    spec = {"machines": machines, "template": template, "policy": given}
    return {"apiVersion": "headroom.dev/v1alpha1", "kind": "PowerPool", "metadata": {"name": name}, "spec": spec}


def machines(pool: Document, power: str) -> list[Document]:
    """What is true of a pool's machines at the start."""
    kind = {"apiVersion": "sim.headroom.dev/v1", "kind": "Machine"}
    return [kind | {"metadata": {"name": each["name"]}, "spec": {"power": power}} for each in pool["spec"]["machines"]]


def a_node(name: str, gpus: int = 8, **labels: str) -> Document:
    """A node that is there; with label `metal` it is one that pods ask for."""
    room = {GPU: str(gpus), "pods": "110", "cpu": "64"}
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"capacity": room, "allocatable": room}}


def nodes(pool: Document) -> list[Document]:
    """The nodes of a pool's machines."""
    return [a_node(each["name"], each["gpuCount"], **LABEL) for each in pool["spec"]["machines"]]


def a_template(gpus: int, runs_for: str = "", **more: Any) -> Document:
    """A pod without a name, for machines of pools."""
    annotations = {"sim.headroom.dev/runs-for": runs_for} if runs_for else {}
    container = {"name": "main", "image": "train:1", "resources": {"limits": {GPU: str(gpus)} if gpus else {}}}
    spec = {"containers": [container], "terminationGracePeriodSeconds": 2, "restartPolicy": "Never"}
    return {"metadata": {"annotations": annotations}, "spec": spec | {"nodeSelector": LABEL} | more}


def a_pod(name: str, gpus: int = 1, runs_for: str = "", **more: Any) -> Document:
    """A pod that nobody makes anew."""
    template = a_template(gpus, runs_for, **more)
    metadata = template["metadata"] | {"name": name, "namespace": "lab"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def a_job(name: str, gpus: int, runs_for: str, pods: int = 1, **more: Any) -> Document:
    """A Job that goes on until it is done."""
    template = a_template(gpus, runs_for, **more)
    spec = {"completions": pods, "parallelism": pods, "backoffLimit": 1000, "template": template}
    metadata = {"name": name, "namespace": "lab"}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def as_text(*documents: Document) -> bytes:
    """Documents as a file has them."""
    return "\n---\n".join(json.dumps(each) for each in documents).encode()


def at(moment: str, document: Document) -> Document:
    """A step of a timeline: an object comes or changes."""
    return {"at": moment, "apply": document}


# --- playing --------------------------------------------------------------------------------------------------------------------


class PowerRun:
    """A scenario that was played, and its auditor."""

    def __init__(self, simulation: Simulation, auditor: PowerAuditor, report: Report) -> None:
        self.simulation, self.auditor, self.report = simulation, auditor, report

    @property
    def told(self) -> list[SwitchCommand]:
        """Every command, in order."""
        return self.simulation.machines.told

    def commands(self) -> list[tuple[str, str]]:
        """The same, as command and machine."""
        return [(each.command, each.machine) for each in self.told]

    def when(self, command: str, machine: str) -> int:
        """When a machine was first told so, in milliseconds after the start."""
        return next(each.at for each in self.told if (each.command, each.machine) == (command, machine)) - self.start

    @property
    def start(self) -> int:
        return self.simulation.scenario.start

    def status(self, pool: str = "metal") -> Document:
        """What stands in a pool's status at the end."""
        found: Document = (self.simulation.server.object("PowerPool", "", pool) or {}).get("status") or {}
        return found

    def states(self, pool: str = "metal") -> dict[str, str]:
        """What it says of each machine."""
        return {each["name"]: each["state"] for each in self.status(pool).get("machines") or []}

    def machine(self, name: str, pool: str = "metal") -> Document:
        """What it says of one."""
        return next(each for each in self.status(pool)["machines"] if each["name"] == name)

    def condition(self, type_: str, pool: str = "metal") -> tuple[str, str, str]:
        """Status, reason and message of a condition; nothing where there is none."""
        found = (each for each in self.status(pool).get("conditions") or [] if each["type"] == type_)
        return next(((each["status"], each["reason"], each["message"]) for each in found), ("", "", ""))

    def phases(self) -> dict[str, str]:
        """Every pod and how it is."""
        return {
            each["metadata"]["name"]: each["status"]["phase"] for each in self.simulation.server.objects("Pod", "lab")
        }

    def cordoned(self) -> list[str]:
        """Nodes that are ready and let nobody in."""
        found = self.simulation.server.objects("Node")
        return [each["metadata"]["name"] for each in found if each["spec"].get("unschedulable") and is_ready(each)]

    def problems(self) -> list[str]:
        """What was wrong in it."""
        return [*self.report.failures, *self.auditor.problems()]


def is_ready(node: Document) -> bool:
    """Whether a node says so."""
    conditions = (node.get("status") or {}).get("conditions") or []
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def leading(*given: Any, pace: Pace) -> SimulatedProcess:
    """An operator that leads whoever else does."""
    return SimulatedProcess(*given, lease=f"lease-of-{given[3]}", pace=pace)


def play(
    documents: Sequence[Document],
    timeline: Sequence[Document] = (),
    *,
    duration: str,
    make_operator: Callable[..., SimulatedProcess] = production,
    acts: Sequence[tuple[float, Act]] = (),
    patience: int = 30_000,
    pace: Pace = UNHURRIED_BUT_LEASES,
    **spec: Any,
) -> PowerRun:
    """Play it all, with an auditor that sees every command and every write; `acts` are what somebody does after so many seconds.

    What the operator does with no need it does seldom, unless another pace is asked for.
    """
    told = {"duration": duration, "seed": 5, "timeline": list(timeline)} | spec
    scenario = {"apiVersion": "sim.headroom.dev/v1", "kind": "Scenario", "spec": told}

    async def run() -> PowerRun:
        make = partial(make_operator, pace=pace)
        simulation = bookmarked(Simulation(Scenario.of([scenario, *documents]), make), pace)
        auditor = PowerAuditor(simulation, patience)
        for seconds, act in acts:
            simulation.clock.call_later(seconds, partial(act, simulation))
        report = await simulation.play()
        auditor.close()
        return PowerRun(simulation, auditor, report)

    return run_virtual(run)
