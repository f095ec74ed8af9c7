"""What enforcement does and costs: pods evicted where one is enough, the lag until new pods wait, and the cost of deciding.

    make bench NAME=enforcement                       everything (about three minutes)
    make bench NAME=enforcement ARGS="--only plan"    deciding alone; nothing is kept

The live figures are of the operator as a process with the rights of deploy/rbac.yaml, on a real control plane. What is needed of ten
pods is known: usage leaves the window as fast as it comes in, and is a hair above the quota, so that one pod less is enough. Deciding
is CPU time of one full pass, chores included, each time at a later moment and with a new row; the peer is the same fleet under
budgets that only alert.
"""

import argparse
import gc
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from msgspec import structs

from bench import budgets, results
from bench.results import Row
from headroom.api import kinds, marks
from headroom.api.budget_hold import hold_name
from headroom.api.kinds import KINDS, AnyResource
from headroom.api.resources import API_VERSION
from headroom.core.budgets import PLAN, hold_of
from headroom.model import facts
from headroom.model.actions import EvictPod
from headroom.model.changes import EVERYTHING
from headroom.model.tables import PodTable
from headroom.model.usage_table import UsageTable
from headroom.model.world import World, by_ref
from tests.integration.accounts import GPU, HOUR, Operator, moment, now
from tests.integration.enforced import (
    Cluster,
    Team,
    enforced_cluster,
    enforcing_operator,
    fill_ledger,
    is_gated,
    is_running,
    template,
    used,
    wait_for,
)

ORIGINAL = "Go original"
ORIGINAL_EVICTED, ORIGINAL_SECONDS = 10, 0.85
"""Measured with ten pods whose quota is exceeded by a hair, on the same kind of machine: all ten, the fastest of four runs."""
PODS = 10
HAIR = 0.005
"""GPU-hours."""
QUIET_SECONDS = 60
HOLDS = 10
RUNNING, SINGLES, GANGS, GANG, BUDGETS = 10_000, 400, 100, 4, 20
PASSES = 7
OWN, KIND = "headroom-system", "GPUWorkloadBudget"
LADDER = [{"at": "100%", "action": "Hold"}, {"at": "120%", "action": "Evict"}]


def say(text: str) -> None:
    """A line of progress."""
    print(f"enforcement: {text}", file=sys.stderr, flush=True)


# Live


def evicted_by_a_hair(cluster: Cluster) -> int:
    """How many of ten pods go where one is enough."""
    say("ten pods, a hair above the quota")
    team = cluster.team("hair")
    for number in range(PODS):
        team.pod(f"p-{number}")
    wait_for(lambda: len(team.names(is_running)) == PODS, "ten pods run")
    team.limit("100", "AlertOnly")
    wait_for(lambda: team.status().get("burnRateGpus") == str(PODS), "all are counted")
    level = float(team.settled(since=now())["consumedGpuHours"])
    team.change("team", quota={"gpuHours": f"{level - HAIR:.6f}"}, enforcement={"action": "Evict"})
    team.change("team", enforcement={"gracePeriodSeconds": 0, "recoverWithin": "6m"})
    wait_for(lambda: team.evicted() != [] and team.is_so("QuotaExceeded", status="False"), "usage has fallen")
    time.sleep(QUIET_SECONDS)  # for an eviction too many to show itself
    return len(team.evicted())


def seconds_for_ten(cluster: Cluster) -> tuple[int, float]:
    """Where all ten must go, with the usual cap: how many went, and the seconds from the first to the last."""
    say("ten pods, nothing leaves the window")
    team = cluster.team("ten")
    for number in range(PODS):
        team.pod(f"p-{number}")
    wait_for(lambda: len(team.names(is_running)) == PODS, "ten pods run")
    team.limit("0.002", "Evict")
    wait_for(lambda: len(team.evicted()) >= PODS, "all are evicted", 120)
    at = [each.at for each in cluster.audit.requests("ten", "pods/eviction")]
    return len(at), (at[-1] - at[0]) / 1000


def hold_lags(cluster: Cluster) -> list[float]:
    """Seconds from the moment at which a quota is used up, by the pod's own start, until a new pod would wait."""
    say(f"{HOLDS} quotas run out")
    teams = [cluster.team(f"hold-{number}") for number in range(HOLDS)]
    for number, team in enumerate(teams):
        team.pod("burner")
        team.limit(f"{0.003 + 0.0004 * number:.4f}", "Hold")
    wait_for(lambda: all(team.names(is_running) for team in teams), "all run")
    due = [_started(team) + round((0.003 + 0.0004 * number) * HOUR) for number, team in enumerate(teams)]
    lags: dict[int, float] = {}
    while len(lags) < len(teams):
        for number, team in enumerate(teams):
            if number not in lags and now() >= due[number] and _would_wait(team):
                lags[number] = (now() - due[number]) / 1000
        time.sleep(0.01)
    return sorted(lags.values())


def _started(team: Team) -> int:
    [container] = team.get("Pod", "burner")["status"]["containerStatuses"]
    return moment(container["state"]["running"]["startedAt"])


def _would_wait(team: Team) -> bool:
    made = template() | {"apiVersion": "v1", "kind": "Pod"}
    made["metadata"] = made["metadata"] | {"name": "probe"}
    return is_gated(team.api.send("POST", f"{team.path('Pod')}?dryRun=All", made))


def live() -> list[Row]:
    """All figures of a real control plane."""
    with tempfile.TemporaryDirectory() as folder, enforced_cluster(Path(folder)) as cluster:
        operator: Operator = enforcing_operator(cluster.plane, Path(folder))
        began = now()
        fill_ledger(operator, [used(cluster.plane, "hair", PODS, began - 2 * HOUR, began)])
        operator.start()
        try:
            hair = evicted_by_a_hair(cluster)
            went, seconds = seconds_for_ten(cluster)
            lags = hold_lags(cluster)
        finally:
            operator.stop()
    peer: dict[str, Any] = {"peer": ORIGINAL}
    exceeded = "a hair above the quota, one pod of ten is enough: evicted"
    return [
        Row(figure=exceeded, value=hair, unit="pods", goal=1, **peer, peer_value=ORIGINAL_EVICTED),
        Row(figure="nothing leaves the window, all of ten must go: evicted", value=went, unit="pods", goal=PODS),
        Row(figure="from the first to the last of them", value=seconds, unit="s", **peer, peer_value=ORIGINAL_SECONDS),
        Row(figure="quota used up until new pods wait, median", value=round(statistics.median(lags), 2), unit="s"),
        Row(figure="quota used up until new pods wait, worst", value=round(lags[-1], 2), unit="s", goal=10),
    ]


# Deciding


def a_budget(number: int, quota: str, enforcement: dict[str, Any]) -> AnyResource:
    """One of several budgets that all cover all namespaces: every fifth counts all pods, the others one tier each."""
    tier = ({}, {"tier": "gold"}, {"tier": "silver"}, {"tier": "bronze"}, {"tier": "iron"})[number % 5]
    spec = {
        "selector": {"matchLabels": {"app": "train", **tier}},
        "namespaceSelector": {"matchLabels": {"fleet": "yes"}},
        "quota": {"gpuHours": quota, "windowHours": budgets.WINDOW_HOURS},
        "enforcement": {"gracePeriodSeconds": 0, **enforcement},
    }
    name = f"budget-{number:03d}"
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name, "namespace": OWN}, "spec": spec}
    assert not kinds.problems(document)
    return AnyResource(
        kind=KIND,
        namespace=OWN,
        name=name,
        uid=name,
        generation=1,
        spec=kinds.spec_of(KIND, spec),
        status=KINDS[KIND].status(),
    )


def a_waiting_pod(number: int) -> facts.Pod:
    """One behind the gate: the first ones alone, the others in gangs."""
    gang = max(0, number - SINGLES) // GANG
    tier = ("gold", "silver", "bronze", "iron")[(number if number < SINGLES else gang) % 4]
    group = () if number < SINGLES else (("scheduling.x-k8s.io/pod-group", f"gang-{gang}"),)
    since = budgets.NOW - 3_600_000 + number * 1000
    return facts.Pod(
        uid=f"waiting-{number}",
        namespace=f"team-{(number if number < SINGLES else gang) % budgets.NAMESPACES:02d}",
        name=f"waiting-{number:05d}",
        labels=(("app", "train"), *group, ("tier", tier)),
        annotations=((marks.HELD_BY, f"{OWN}/budget-000"),),
        shape=facts.Shape(requests=((GPU, 1_000_000),)),
        gates=(marks.GATE,),
        phase="Pending",
        created=since,
    )


class Case:
    """10,000 pods that run, 500 gangs and single pods that wait, and 20 budgets that overlap."""

    def __init__(self) -> None:
        self.table, self.pods, self._rows = UsageTable(), PodTable(), RUNNING
        for number in range(RUNNING):
            row = budgets.a_row(number, RUNNING)
            self.table.put(row)
            self.pods.put(budgets.a_pod(row))
            self.table.set_alive(row.uid, alive=True)
        for number in range(SINGLES + GANGS * GANG):
            self.pods.put(a_waiting_pod(number))
        names = [f"team-{number:02d}" for number in range(budgets.NAMESPACES)]
        labels = (("fleet", "yes"),)
        self.namespaces = {name: facts.Namespace(name=name, labels=labels) for name in (*names, OWN)}
        self.resources = by_ref(())
        self.holds: dict[str, facts.Hold] = {}
        self.chores, self.evictions = 0, 0
        """What the last pass asked for."""

    def world(self, at: int) -> World:
        """The world at a moment, with one row more than before."""
        self.table.put(budgets.a_row(self._rows, live=0))
        self._rows += 1
        return World(
            now=at,
            own_namespace=OWN,
            resources=self.resources,
            pods=self.pods,
            usage=self.table,
            namespaces=self.namespaces,
            holds=self.holds,
        )

    def under(self, enforcement: dict[str, Any], quotas: dict[str, str]) -> None:
        """Put all pods under budgets that have done what they do for a while; no victim is being stopped."""
        made = [a_budget(each, quotas.get(f"budget-{each:03d}", "100000000"), enforcement) for each in range(BUDGETS)]
        self.resources, self.holds = by_ref(made), {}
        world = self.world(budgets.NOW)
        PLAN.prepare(world)
        told = {each.resource: each.status for each in PLAN.decide(world, EVERYTHING)}
        for ref, status in told.items():
            budget = structs.replace(self.resources[ref], status=structs.replace(status, victim=None))
            self.resources.put(ref, budget)
            if "steps" in enforcement:
                name = hold_name(f"{OWN}/{budget.name}")
                self.holds[name] = facts.Hold(name=name, created=budgets.NOW, spec=hold_of(world, budget))

    def passes(self) -> list[float]:
        """CPU milliseconds of full passes."""
        found = []
        for number in range(PASSES):
            world = self.world(budgets.NOW + 250 * (number + 1))
            began = time.process_time()
            PLAN.prepare(world)
            decisions = list(PLAN.decide(world, EVERYTHING))
            self.chores = len(list(PLAN.chores(world)))
            found.append((time.process_time() - began) * 1000)
            self.evictions = sum(isinstance(action, EvictPod) for each in decisions for action in each.actions)
        return sorted(found)


def plan() -> list[Row]:
    """What deciding costs, beside budgets that only alert."""
    say(f"{RUNNING:,} pods that run, {SINGLES + GANGS} units that wait, {BUDGETS} budgets")
    case = Case()
    case.under({"action": "AlertOnly"}, {})
    used_up = {ref.name: float(each.status.consumed_gpu_hours) for ref, each in case.resources.items()}
    gc.collect()
    gc.freeze()
    alert = statistics.median(case.passes())
    # Every second one is beyond its last step and has to choose who goes, the others only hold.
    quotas = {name: f"{total / (1.25 if int(name[-3:]) % 2 else 1.05):.6f}" for name, total in used_up.items()}
    case.under({"steps": LADDER}, quotas)
    assert len(case.holds) == BUDGETS
    enforced = case.passes()
    assert case.evictions, "somebody must go"
    ratio = statistics.median(enforced) / alert
    what = f"{RUNNING:,} pods, {SINGLES + GANGS} units waiting, {BUDGETS} budgets"
    return [
        Row(
            figure=f"{what} that hold and evict: CPU of a full pass",
            value=round(statistics.median(enforced), 1),
            unit="ms",
        ),
        Row(figure="the same, slowest of seven", value=round(enforced[-1], 1), unit="ms"),
        Row(
            figure="times the CPU of the same budgets that only alert",
            value=round(ratio, 2),
            unit="x",
            peer="AlertOnly (ms)",
            peer_value=round(alert, 1),
        ),
    ]


def main(arguments: list[str]) -> int:
    """Measure, and write the results if it was everything."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", choices=("plan", "live"))
    only = parser.parse_args(arguments).only
    rows = [*(live() if only != "plan" else ()), *(plan() if only != "live" else ())]
    if only:
        for row in rows:
            say(f"{row.figure}: {row.value:g} {row.unit}")
        return 0
    return 1 if results.write("enforcement", rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
