"""Pods that the extender refused: which of them kube-scheduler is told of again, and when."""

from itertools import pairwise

from headroom.core.bandwidth.holds import PodAsk
from headroom.core.bandwidth.placement import UNSEEN_MS, Placement
from headroom.core.bandwidth.touching import (
    FAR_MS,
    FIRST_MS,
    LOOKED_AT,
    MOST_KEPT,
    SETTLE_MS,
    TOUCHED_AT_ONCE,
    Touching,
)

M = 10**6
CAPACITY = (20_000 * M, 20_000 * M, 1_000 * M, 1_000 * M)


def full(*names: str) -> tuple[Placement, Touching]:
    """Nodes whose cards are full."""
    placement = Placement()
    for name in names:
        placement.set_node(name, CAPACITY)
        placement.bound(PodAsk(f"full-{name}", 1_000 * M, 1_000 * M), name)
    placement.links.freed = False
    return placement, Touching(placement)


def refuse(touching: Touching, uid: str, mbps: int, *names: str, now: int = 0, team: str = "team") -> None:
    ask = PodAsk(uid, mbps * M, mbps * M)
    touching.placement.unbound(ask, now)
    touching.refused(ask, f"{team}/{uid}", names, now)


def due(touching: Touching, now: int = SETTLE_MS) -> list[str]:
    return [each.uid for each in touching.due(now)]


def test_nobody_is_touched_without_room() -> None:
    placement, touching = full("a")
    refuse(touching, "one", 100, "a")
    assert due(touching) == []
    placement.links.freed = True
    assert due(touching) == []


def test_room_touches_the_longest_refused_that_fit_and_no_more() -> None:
    placement, touching = full("a")
    for uid, mbps in (("large", 2_000), ("one", 600), ("two", 600), ("three", 300)):
        refuse(touching, uid, mbps, "a")
    placement.gone("full-a")
    found = touching.due(SETTLE_MS)
    assert [(each.key, each.uid) for each in found] == [("team/one", "one"), ("team/three", "three")]
    assert placement.links.left_of("a") == CAPACITY


def test_room_on_nodes_that_were_not_asked_about_is_tried_now_and_then() -> None:
    placement, touching = full("a", "b")
    refuse(touching, "one", 600, "b", "gone")
    placement.gone("full-a")
    times = []
    for now in range(SETTLE_MS, 100_000, 500):
        if due(touching, now):
            times.append(now)
            refuse(touching, "one", 600, "b", now=now + 100)
    assert [later - earlier for earlier, later in pairwise(times)] == [FAR_MS, 2 * FAR_MS, 4 * FAR_MS]
    placement.gone("full-b")
    assert due(touching, 100_000) == ["one"]


def test_a_larger_capacity_is_room() -> None:
    placement, touching = full("a")
    refuse(touching, "one", 600, "a")
    placement.set_node("a", (CAPACITY[0], CAPACITY[1], 2_000 * M, 2_000 * M))
    assert due(touching) == ["one"]


def test_a_pod_that_stays_away_is_touched_less_and_less() -> None:
    placement, touching = full("a")
    refuse(touching, "one", 600, "a")
    placement.gone("full-a")
    times = [now for now in range(SETTLE_MS, SETTLE_MS + 40_000, 500) if due(touching, now)]
    assert [later - earlier for earlier, later in pairwise(times)] == [FIRST_MS * 2**power for power in range(4)]


def test_a_pod_that_came_back_and_was_refused_again_is_touched_as_soon_as_there_is_room() -> None:
    placement, touching = full("a")
    refuse(touching, "one", 600, "a")
    placement.gone("full-a")
    assert due(touching, 1_000) == ["one"]
    placement.bound(PodAsk("faster", 1_000 * M, 0), "a")
    refuse(touching, "one", 600, "a", now=1_100)
    placement.gone("faster")
    assert due(touching, 1_100 + SETTLE_MS) == ["one"]


def test_a_pod_that_was_placed_or_is_gone_is_touched_no_more() -> None:
    placement, touching = full("a")
    refuse(touching, "one", 600, "a")
    touching.forget("one")
    placement.gone("full-a")
    assert (due(touching), len(touching)) == ([], 0)


def test_many_are_touched_over_several_looks_and_all_have_their_turn() -> None:
    placement, touching = full("a")
    for number in range(LOOKED_AT + 50):
        refuse(touching, f"large-{number}", 2_000, "a")
    for number in range(2 * TOUCHED_AT_ONCE):
        refuse(touching, f"small-{number}", 1, "a")
    placement.gone("full-a")
    found: list[str] = []
    for look in range(5):
        now = due(touching, SETTLE_MS + look)
        assert len(now) <= TOUCHED_AT_ONCE
        found += now
    assert sorted(found) == sorted(f"small-{number}" for number in range(2 * TOUCHED_AT_ONCE))


def test_a_crowd_of_one_namespace_does_not_keep_the_others_waiting() -> None:
    placement, touching = full("a", "b")
    for number in range(2 * LOOKED_AT):
        # They chose a full node, so each is touched for the room on the other one, and in vain.
        refuse(touching, f"crowd-{number}", 1, "a", team="crowd")
    refuse(touching, "one", 100, "b")
    placement.gone("full-b")
    assert "one" in due(touching)


def test_a_crowd_that_fits_nowhere_does_not_use_up_the_looks_of_those_that_fit() -> None:
    """Neither too large for every card, nor too large for what is left of any."""
    placement, touching = full("a", "b")
    for number in range(LOOKED_AT):
        refuse(touching, f"huge-{number}", 2_000, "a", "b")
        refuse(touching, f"large-{number}", 600, "a", "b")
    refuse(touching, "small", 300, "a", "b")
    placement.gone("full-a")
    placement.bound(PodAsk("more", 500 * M, 500 * M), "a")
    assert due(touching) == ["small"]


def test_what_an_earlier_extender_may_have_refused_is_looked_for_on_every_node() -> None:
    placement, touching = full("a", "b")
    one = PodAsk("one", 600 * M, 600 * M)
    placement.unbound(one, 0)
    touching.adopt([("team/one", one)], 0)
    assert due(touching) == []
    placement.gone("full-b")
    assert due(touching) == ["one"]


def test_the_crowd_gives_way_where_no_more_can_be_kept() -> None:
    placement, touching = full("a")
    for number in range(MOST_KEPT + 5):
        refuse(touching, f"crowd-{number}", 2_000, "a", team="crowd")
    refuse(touching, "one", 100, "a")
    placement.gone("full-a")
    assert (due(touching), len(touching)) == (["one"], MOST_KEPT)


def test_a_pod_that_no_watch_shows_is_touched_no_more() -> None:
    placement, touching = full("a")
    touching.refused(PodAsk("never", 2_000 * M, 0), "team/never", ["a"], 0)
    placement.links.freed = True
    assert (due(touching, UNSEEN_MS - 1), len(touching)) == ([], 1)
    placement.links.freed = True
    assert (due(touching, UNSEEN_MS), len(touching)) == ([], 0)
