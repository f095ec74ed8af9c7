"""Rooms beside pods that kube-scheduler refuses though they would fit: any supply can ask which are worth keeping, and what to remember."""

from __future__ import annotations

import pytest

from headroom.core.capacity import CapacityRound, Trial, refused_beside, round_of, trials_if_closed
from headroom.model.times import MINUTE
from tests.builders import NOON, a_resource
from tests.core.power_stage import a_view, off, on
from tests.core.test_power_trial_rooms import refused
from tests.core.toy_supply import Market

SINCE = NOON - 2 * MINUTE


def a_round(*trials: Trial) -> CapacityRound:
    """A market with nothing to sell, and a pod that is refused beside a node that would suit it; n2 is of no use to anybody."""
    world = a_view(a_resource("Spotpool", "toy"), nodes=[on("n1", 1), off("n2", 1)], pods=refused(1, SINCE))
    return round_of(world, [Market(stock=0, trials=trials).source])


def shape() -> str:
    [digest] = a_round().verdicts
    return digest


def tried(in_vain: int, **fields: object) -> Trial:
    """Another room was tried for such pods, and was no help."""
    given = {"at": NOON - 20 * MINUTE, "refused_at": NOON - 10 * MINUTE, "until": NOON + MINUTE} | fields
    return Trial(shape=shape(), room="m1", in_vain=in_vain, **given)  # type: ignore[arg-type]  # a test says which


def test_a_room_that_would_hold_refused_pods_is_named_with_whose_they_are() -> None:
    assert list(refused_beside(a_round(), lambda _name, _since: True)) == [("n1", {"team-a"}, SINCE)]


def test_a_supply_says_whether_its_room_may_help_those_who_are_refused_since_a_moment() -> None:
    asked = []

    def may_help(name: str, since: int) -> bool:
        asked.append((name, since))
        return False

    assert list(refused_beside(a_round(), may_help)) == []
    assert asked == [("n1", SINCE)]


@pytest.mark.parametrize(("in_vain", "rooms"), [(0, ["n1"]), (2, ["n1"]), (3, [])])
def test_for_those_who_were_tried_often_enough_nothing_is_kept(in_vain: int, rooms: list[str]) -> None:
    found = a_round(tried(in_vain)) if in_vain else a_round()
    assert [each.room for each in refused_beside(found, lambda _name, _since: True)] == rooms


def test_a_room_that_closes_was_no_help_to_those_who_are_refused_beside_it() -> None:
    [found] = trials_if_closed(a_round(), "n1")
    assert (found.shape, found.room, found.in_vain, found.refused_at) == (shape(), "n1", 1, NOON)
    assert found.until == NOON + 15 * MINUTE
    assert list(trials_if_closed(a_round(), "n2")) == []


@pytest.mark.parametrize("in_vain", [1, 2])
def test_where_one_was_tried_before_only_the_moment_is_new(in_vain: int) -> None:
    [found] = trials_if_closed(a_round(tried(in_vain)), "n1")
    assert (found.room, found.in_vain, found.refused_at, found.until) == ("m1", in_vain, NOON, NOON + MINUTE)


def test_while_a_trial_runs_nothing_is_remembered_of_others() -> None:
    running = tried(0, refused_at=0, until=0, rooms=frozenset({"m1"}))
    assert list(trials_if_closed(a_round(running), "n1")) == []
