"""Cheapest capacity from end to end: prices move, machines sell out, operators die, and no running node is harmed."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.model.node_pool_specs import template_digest
from tests.karpenter_stage import a_gpu_pod, a_node_pool, an_offer
from tests.scenarios.offers_stage import LIMIT, OFFERS, Document, OffersRun, a_pool, play
from tests.scenarios.power_stage import at, leading

DEARER = an_offer("g5.xlarge", "us-east-1a", "0.8")
CHEAP_AGAIN = an_offer("g5.xlarge", "us-east-1a", "0.2")
SOLD_OUT = an_offer("g6.xlarge", "us-east-1b", "0.5", sold_out=True)
GONE = an_offer("g6.xlarge", "us-east-1b", "0.5", available=False)


STEPS = (
    at("2m", a_gpu_pod("one")),
    at("30m", DEARER),
    at("60m", a_gpu_pod("two")),
    at("70m", SOLD_OUT),
    at("72m", a_gpu_pod("three")),
    at("90m", GONE),
    {"at": "120m", "delete": "Pod/lab/two"},
    at("150m", CHEAP_AGAIN),
)


def story(*faults: Document, **more: Any) -> OffersRun:
    """Two pods come; the other type becomes the cheapest; it sells out and is gone for long; a pod ends."""
    timeline = [{"at": "0s", "fault": {"actor": "operator-*"} | fault} for fault in faults]
    return play([*OFFERS, a_pool()], [*timeline, *STEPS], duration="165m", **more)


def check(run: OffersRun) -> None:
    """What must be true in the end, whatever went wrong on the way."""
    assert run.problems() == []
    assert run.phases() == {"one": "Running", "three": "Running"}
    assert run.launched() == ["g5.xlarge", "g6.xlarge", "g5.xlarge"]
    assert run.ready() == ("True", "Reconciled")
    assert run.rungs("Active")[0] == "g5.xlarge"


def test_weights_follow_prices_and_running_nodes_stay() -> None:
    run = story()
    check(run)
    assert [machine.kind for _, _, machine in run.auditor.karpenter.sold_out] == ["g6.xlarge"]
    status = run.status()
    assert status["switches"] == 4, "dearer, resting, back, gone"
    assert len(run.auditor.deleted) == 1, "the rung whose offer was gone, once it was empty"
    assert [each.why for each in run.auditor.karpenter.ended] == ["Empty"]


@pytest.mark.parametrize(
    "faults",
    [
        [{"type": "LostReply", "probability": 0.2, "path": "*/nodepools*"}],
        [{"type": "WatchDelay", "ms": 20_000, "path": "*/nodepools"}],
        [{"type": "WatchDelay", "ms": 20_000, "path": "*/nodeclaims"}],
        [{"type": "StaleView", "from": "55m", "until": "75m"}],
        [{"type": "Refusal", "status": 500, "probability": 0.3, "path": "*/nodepools*"}],
        [{"type": "DroppedStream", "probability": 0.1}, {"type": "Duplicate", "probability": 0.3}],
        [{"type": "Refusal", "status": 500, "verb": "offers", "from": "20m", "until": "35m"}],
    ],
    ids=["lost", "pools late", "claims late", "stale", "refused", "broken", "feed fails"],
)
def test_a_bad_view_or_lost_replies_harm_nobody(faults: list[Document]) -> None:
    check(story(*faults))


@pytest.mark.parametrize("moment", ["2s", "121s", "36m", "72m", "131m"])
def test_an_operator_that_dies_is_followed_by_one_that_goes_on(moment: str) -> None:
    dies = {"at": moment, "killOperator": "operator-1"}
    check(play([*OFFERS, a_pool()], [*STEPS, dies], duration="165m"))


@pytest.mark.parametrize("late", [0, 20_000])
def test_two_leaders_agree(late: int) -> None:
    """Both lead at once, each by a lease of its own; one may see everything later than the other."""
    delay = [{"type": "WatchDelay", "actor": "operator-2", "ms": late}] if late else []
    check(story(*delay, operators=2, make_operator=leading))


def test_of_pools_that_overlap_one_writes_and_a_stranger_with_our_name_is_left_alone() -> None:
    """The later by name writes nothing; a NodePool that only has the name of a rung is left alone."""
    first = play([*OFFERS, a_pool()], duration="5m")
    name = first.status()["rungs"][0]["name"]
    stranger = a_node_pool(name, ["g5.xlarge"], weight=3)
    run = play([*OFFERS, stranger, a_pool(), a_pool("other")], duration="30m")
    assert run.ready("other") == ("False", "WeightsOverlap")
    assert run.ready() == ("False", "ApplyNodePoolError")
    kept = run.simulation.server.object("NodePool", "", name)
    assert kept is not None
    assert (kept["spec"]["weight"], template_digest(kept["spec"])) == (3, template_digest(stranger["spec"]))


def test_a_burst_of_pods_goes_beyond_the_limits_by_a_machine_of_each_lower_rung_at_most() -> None:
    """Karpenter fills all NodePools at once, before anybody could lower the limits of the others."""
    burst = [at("5m", a_gpu_pod(f"train-{each}")) for each in range(20)]
    run = play([*OFFERS, a_pool()], [*burst, at("15m", a_gpu_pod("late"))], duration="20m")
    assert len(run.simulation.server.objects("NodePool")) == 3
    assert LIMIT <= len(run.launched()) <= LIMIT + 1


def test_prices_that_stop_leave_the_ladder_as_it_stands() -> None:
    fault = {"at": "10m", "fault": {"type": "Outage", "actor": "operator-*", "verb": "offers"}}
    run = play([*OFFERS, a_pool()], [fault, at("90m", a_gpu_pod("late"))], duration="100m")
    assert run.problems() == []
    assert run.ready() == ("False", "SpotPriceError")
    assert run.phases() == {"late": "Running"}
    assert run.rungs("Active") == ["g5.xlarge", "g6.xlarge", "g5.xlarge"]


def test_a_pause_and_the_stop_switch_end_all_writes() -> None:
    paused = play([*OFFERS, a_pool(paused=True)], duration="20m")
    assert paused.simulation.server.objects("NodePool") == []
    stop = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "headroom", "namespace": "headroom-system"},
        "data": {"stop": "true"},
    }
    timeline = [at("10m", stop), at("20m", an_offer("g6.xlarge", "us-east-1a", "0.1"))]
    run = play([*OFFERS, a_pool()], timeline, duration="60m")
    assert len(run.simulation.server.objects("NodePool")) == 3, "as before"


def test_a_pool_that_is_deleted_leaves_its_node_pools() -> None:
    step = {"at": "20m", "delete": "LeftoverNodePool/cheap"}
    kept = play([*OFFERS, a_pool()], [at("2m", a_gpu_pod("one")), step], duration="30m")
    assert kept.problems() == []
    assert len(kept.simulation.server.objects("NodePool")) == 3
    assert kept.phases() == {"one": "Running"}


def test_a_pool_that_is_deleted_takes_its_node_pools_along_if_asked_to() -> None:
    step = {"at": "20m", "delete": "LeftoverNodePool/cheap"}
    gone = play([*OFFERS, a_pool(deletionPolicy="Delete")], [step], duration="30m")
    assert gone.simulation.server.objects("NodePool") == []
    assert gone.simulation.server.object("LeftoverNodePool", "", "cheap") is None
