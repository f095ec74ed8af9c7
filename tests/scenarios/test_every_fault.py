"""One fault at every request that the operator makes: each pod is still evicted exactly once, and then there is peace.

The operator is the production one with a plan that really evicts (tests/probe.py). A run without faults tells how many requests of
each kind there are; then each of them in turn is crashed before, crashed after, refused, and deprived of its reply.
"""

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from headroom.adapters.kube.transport import Transport
from headroom.model.pace import Pace
from headroom.model.ports import Clock
from headroom.sim.operators import SimulatedProcess
from headroom.sim.scenario import MakeOperator, Report, Scenario, simulate
from tests.builders import SPECS
from tests.probe import PROBE_PLANS
from tests.scenarios.ladder import AS_EVER, UNHURRIED_BUT_LEASES

PODS = ("victim-a", "victim-b", "victim-c")
FAULTS = ("CrashBefore", "CrashAfter", "LostReply", "Refusal")
MINUTES = 8


def probing(
    transport: Transport, clock: Clock, rng: random.Random, identity: str, *, pace: Pace = UNHURRIED_BUT_LEASES
) -> SimulatedProcess:
    return SimulatedProcess(transport, clock, rng, identity, PROBE_PLANS, pace=pace)


def a_pod(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "lab", "labels": {"probe": "evict"}, "finalizers": ["example.com/stay"]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "image": "train:1"}]},
    }


def play(
    *faults: dict[str, Any],
    operators: int = 1,
    then: Sequence[dict[str, Any]] = (),
    make: MakeOperator = probing,
) -> Report:
    """Three pods that should go and stay visible while they go, the given faults, and what else happens."""
    budget = {
        "apiVersion": "headroom.dev/v1alpha1",
        "kind": "GPUWorkloadBudget",
        "metadata": {"name": "lab", "namespace": "lab"},
        "spec": SPECS["GPUWorkloadBudget"],
    }
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "8"}}}
    spec = {
        "duration": f"{MINUTES}m",
        "seed": 3,
        "operators": operators,
        "restartAfter": "1h" if then else "5s",
        "timeline": [*({"at": "0s", "fault": {"actor": "operator-*"} | fault} for fault in faults), *then],
    }
    scenario = {"apiVersion": "sim.headroom.dev/v1", "kind": "Scenario", "spec": spec}
    pods = [] if then else [a_pod(name) for name in PODS]
    return simulate(Scenario.of([scenario, budget, node, *pods]), make)


def evicted(report: Report) -> Counter[str]:
    """How often the eviction of each pod was granted."""
    writes = [each for each in report.trace.writes if each.path.endswith("/eviction") and each.status == 201]
    return Counter(each.path.split("/")[-2] for each in writes)


def other_writes(report: Report) -> list[Any]:
    """What operators wrote beside their lease."""
    return [each for each in report.trace.writes if each.actor.startswith("operator-") and "/leases" not in each.path]


def check(report: Report) -> None:
    assert report.passed, "\n".join(report.failures)
    assert evicted(report) == dict.fromkeys(PODS, 1)
    end = max(each.at for each in report.trace.writes)
    assert not [each for each in other_writes(report) if each.at > end - 60_000], "still writing at the end"


def cases() -> list[tuple[str, str, int]]:
    """Each fault at each request of the run without faults: status writes, reads just before an effect, evictions, the lease."""
    found = [("patch", "*/status", 2), ("get", "*/pods/*", 3), ("create", "*/eviction", 3), ("*", "*/leases*", 4)]
    return [(verb, path, nth) for verb, path, count in found for nth in range(1, count + 1)]


def test_without_faults_each_pod_is_evicted_once() -> None:
    check(play())


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize(("verb", "path", "nth"), cases())
def test_one_fault_changes_nothing(kind: str, verb: str, path: str, nth: int) -> None:
    report = play({"type": kind, "verb": verb, "path": path, "nth": nth})
    check(report)
    assert (nth > 1) or [word for _, _, word in report.happened] == [kind], "the fault met nothing"


@pytest.mark.parametrize("kind", FAULTS)
def test_one_fault_changes_nothing_with_a_second_replica(kind: str) -> None:
    check(play({"type": kind, "verb": "create", "path": "*/eviction", "nth": 2}, operators=2))


def test_a_late_view_and_a_second_leader_change_nothing() -> None:
    late = {"type": "WatchDelay", "ms": 5000, "until": "4m"}
    second = {"type": "SecondLeader", "until": "3m"}
    check(play(late, second, {"type": "LostReply", "probability": 0.3, "until": "3m"}, operators=2))


@pytest.mark.parametrize("pace", [AS_EVER, UNHURRIED_BUT_LEASES], ids=["as ever", "unhurried"])
def test_a_new_leader_whose_view_is_behind_evicts_nobody_a_second_time(pace: Pace) -> None:
    """The first operator evicts and dies; the second leads before its view shows that the pods are going."""
    behind = {"type": "WatchDelay", "actor": "operator-2", "ms": 35_000, "until": "4m"}
    slow = {"type": "Slow", "actor": "operator-1", "verb": "get", "path": "*/pods/*", "ms": 3_000}
    seen = {"type": "Slow", "actor": "operator-2", "verb": "get", "path": "*/pods/*", "ms": 1}
    pods = [{"at": "60s", "apply": a_pod(name)} for name in PODS]
    then: list[dict[str, Any]] = [*pods, {"at": "80s", "killOperator": "operator-1"}]
    report = play(behind, slow, seen, operators=2, then=then, make=partial(probing, pace=pace))

    check(report)
    asked = [each for each in report.trace.by("operator-1") if each.path.endswith("/eviction")]
    # The first pod starts between the slow look and the eviction, which is for the version that was looked at.
    assert [each.status for each in asked] == [409, 201, 201, 201], "the first operator was meant to evict them all"
    looks = [actor for _, actor, word in report.happened if (actor, word) == ("operator-2", "Slow")]
    assert len(looks) >= len(PODS), "the second operator was meant to take them for pods that should go"
