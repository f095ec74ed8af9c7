"""Extender mode: where pods may go, what is reserved for them, and why they are refused."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.core.bandwidth.holds import FourRates, PodAsk
from headroom.core.bandwidth.placement import HOLD_MS, UNSEEN_MS, FilterAnswer, Placement
from headroom.core.bandwidth.refusals import NodeRefusal, refusal_sentence

M = 10**6
LOCAL, CARD = 20_000 * M, 1_000 * M
CAPACITY: FourRates = (LOCAL, LOCAL, CARD, CARD)


def nodes(*names: str, capacity: FourRates = CAPACITY, candidates: int = 1) -> Placement:
    made = Placement(candidates)
    for name in names:
        made.set_node(name, capacity)
    made.is_settled = True
    return made


def ask(uid: str, mbps: int = 100, group: str = "", *, siblings: bool = False) -> PodAsk:
    return PodAsk(uid, mbps * M, mbps * M, group, siblings)


def placed(state: Placement, one: PodAsk, names: list[str], now: int = 0) -> str:
    """The one node it is answered, and bound to."""
    (node,) = state.filter(one, names, now).passed
    state.bound(one, node)
    return node


def used(state: Placement) -> dict[str, list[int]]:
    """What every node's links carry, added up anew from all pods that count."""
    found: dict[str, list[int]] = {}
    spread: dict[str, set[str]] = {}
    for each, on, _ in state.asks():
        spread.setdefault(each.group, set()).update(on)
    for each, on, _ in state.asks():
        is_local = each.may_be_local and len(spread[each.group]) == 1
        for name in on:
            four = found.setdefault(name, [0, 0, 0, 0])
            for index, more in enumerate((each.up, each.down, each.up, each.down)):
                four[index] += more if index < 2 or not is_local else 0
    return found


# --- one pod after the other --------------------------------------------------------------------------------------------------------


def test_two_pods_in_a_row_cannot_both_have_the_last_bandwidth() -> None:
    state = nodes("a")
    assert state.filter(ask("one", 600), ["a"], 0).passed == ["a"]
    verdict = state.filter(ask("two", 600), ["a"], 1)
    assert verdict.passed == []
    assert verdict.refused() == {"a": NodeRefusal.NETWORK_DOWN}


def test_a_pod_that_is_asked_about_again_has_one_hold() -> None:
    state = nodes("a", "b")
    state.filter(ask("one", 600), ["a"], 0)
    assert state.filter(ask("one", 600), ["b"], 1).passed == ["b"]
    assert state.holds == 1
    assert state.links.left_of("a") == CAPACITY


def test_a_bind_ends_the_hold_and_keeps_the_bandwidth() -> None:
    state = nodes("a")
    placed(state, ask("one", 600), ["a"])
    assert (state.holds, state.counts.binds) == (0, 1)
    assert state.links.left_of("a")[2] == 400 * M


def test_what_a_pod_asked_for_when_it_was_bound_stays() -> None:
    state = nodes("a")
    placed(state, ask("one", 600), ["a"])
    state.bound(ask("one", 1), "a")
    assert state.links.left_of("a")[2] == 400 * M


def test_a_pod_that_is_bound_elsewhere_than_answered_counts_there_and_is_told_of() -> None:
    state = nodes("a", "b")
    state.filter(ask("one", 600), ["a"], 0)
    state.bound(ask("one", 600), "b")
    assert (state.counts.elsewhere, state.links.left_of("a"), state.links.left_of("b")[2]) == (1, CAPACITY, 400 * M)


def test_a_hold_ends_by_time_and_a_bind_after_it_is_told_of() -> None:
    state = nodes("a")
    state.unbound(ask("one", 600), 0)
    state.filter(ask("one", 600), ["a"], 0)
    state.expire(HOLD_MS - 1)
    assert state.holds == 1
    state.expire(HOLD_MS)
    assert (state.holds, state.counts.expired, state.links.left_of("a")) == (0, 1, CAPACITY)
    state.bound(ask("one", 600), "a")
    assert (state.counts.late, state.links.left_of("a")[2]) == (1, 400 * M)


def test_a_pod_that_kube_scheduler_is_known_to_bind_keeps_its_hold() -> None:
    state = nodes("a")
    state.filter(ask("one", 600), ["a"], 0)
    state.unbound(ask("one", 600), 0, nominated="a")
    state.expire(HOLD_MS)
    assert state.holds == 1
    state.unbound(ask("one", 600), HOLD_MS, nominated="")
    state.expire(2 * HOLD_MS)
    assert state.holds == 0


def test_what_an_earlier_process_answered_for_counts_where_kube_scheduler_says_so() -> None:
    state = nodes("a")
    state.is_settled = False
    state.unbound(ask("one", 600), 0, nominated="a")
    assert state.links.left_of("a")[2] == 400 * M


def test_nobody_takes_the_bandwidth_for_which_pods_are_being_evicted() -> None:
    """They take their time to end, and the preemptor is asked about only then."""
    state = nodes("a", "b")
    state.bound(ask("other", 600), "b")
    state.unbound(ask("one", 600), 0, nominated="a")
    state.unbound(ask("two", 600), 0, nominated="b")
    assert state.filter(ask("three", 600), ["a", "b"], 0).passed == []
    assert state.links.oversubscribed() == []
    state.expire(HOLD_MS)
    assert state.filter(ask("one", 600), ["a"], HOLD_MS).passed == ["a"]


def test_a_pod_that_nobody_else_has_seen_holds_for_a_moment_only() -> None:
    state = nodes("a")
    state.filter(ask("one", 600), ["a"], 0)
    state.filter(ask("two", 400), ["a"], 0)
    state.unbound(ask("two", 400), 1)
    state.expire(UNSEEN_MS)
    assert (state.nodes_of("one"), state.nodes_of("two")) == ((), ("a",))


def test_a_pod_that_ends_gives_its_bandwidth_back() -> None:
    state = nodes("a")
    placed(state, ask("one", 600), ["a"])
    state.filter(ask("two", 400), ["a"], 0)
    state.links.freed = False
    state.gone("one")
    state.gone("two")
    assert (state.links.left_of("a"), state.links.freed) == (CAPACITY, True)


def test_a_bind_without_a_question_counts_and_is_told_of() -> None:
    state = nodes("a")
    state.bound(ask("one", 1500), "a")
    assert (state.counts.unasked, state.links.oversubscribed()) == (1, ["a"])
    assert state.filter(ask("two", 1), ["a"], 0).passed == []


def test_a_pod_that_asks_for_nothing_may_go_anywhere() -> None:
    state = nodes("a")
    state.bound(ask("one", 1500), "a")
    assert state.filter(ask("two", 0), ["a", "gone"], 0).passed == ["a", "gone"]
    assert state.holds == 0


def test_a_pod_that_is_bound_is_sent_nowhere_else() -> None:
    state = nodes("a", "b")
    placed(state, ask("one"), ["a"])
    assert state.filter(ask("one"), ["a", "b"], 1).refused() == {"b": NodeRefusal.BOUND}
    assert state.filter(ask("one"), ["b"], 1).passed == []


def test_nodes_that_are_gone_or_were_never_there_are_refused() -> None:
    state = nodes("a", "b")
    state.remove_node("b")
    verdict = state.filter(ask("one", 1), ["b", "never"], 0)
    assert verdict.refused() == {"b": NodeRefusal.UNKNOWN, "never": NodeRefusal.UNKNOWN}


def test_a_node_that_comes_back_still_carries_its_pods() -> None:
    state = nodes("a")
    placed(state, ask("one", 600), ["a"])
    state.remove_node("a")
    state.set_node("a", CAPACITY)
    assert state.links.left_of("a")[2] == 400 * M


def test_absurd_amounts_are_added_exactly() -> None:
    state = nodes("a")
    for number in range(20_000):
        state.bound(ask(f"pod-{number}", 10**9), "a")
    assert state.links.left_of("a")[0] == LOCAL - 20_000 * 10**15
    assert state.filter(ask("one", 1), ["a"], 0).passed == []
    for number in range(20_000):
        state.gone(f"pod-{number}")
    assert state.links.left_of("a") == CAPACITY


# --- siblings -----------------------------------------------------------------------------------------------------------------------


def test_siblings_go_where_the_card_is_full() -> None:
    state = nodes("a", "b")
    placed(state, ask("loud", 200), ["a"])
    # The first has no siblings there yet: it goes only where it could talk to them over the card.
    assert state.filter(ask("s0", 900, "g", siblings=True), ["a"], 0).refused() == {"a": NodeRefusal.NETWORK_DOWN}
    assert placed(state, ask("s0", 800, "g", siblings=True), ["a"]) == "a"
    placed(state, ask("louder", 800), ["a"])
    assert placed(state, ask("s1", 900, "g", siblings=True), ["a", "b"]) == "a"
    assert state.links.left_of("a") == (LOCAL - 2700 * M, LOCAL - 2700 * M, 0, 0)
    state.gone("s0")
    assert state.links.oversubscribed() == []  # left alone, it does not come to use the card


def test_a_sibling_elsewhere_is_refused_while_the_card_of_the_others_is_full() -> None:
    state = nodes("a", "b")
    for uid in ("s0", "s1"):
        placed(state, ask(uid, 400, "g", siblings=True), ["a"])
    placed(state, ask("loud", 900), ["a"])
    assert state.filter(ask("s2", 50, "g", siblings=True), ["b"], 0).refused() == {"b": NodeRefusal.SIBLINGS}
    # One that says nothing of siblings would make them talk over the card too.
    assert state.filter(ask("s3", 50, "g"), ["b"], 0).refused() == {"b": NodeRefusal.SIBLINGS}
    state.gone("loud")
    assert state.filter(ask("s2", 50, "g", siblings=True), ["b"], 0).passed == ["b"]
    assert state.links.left_of("a")[2] == 200 * M


def test_siblings_that_come_together_again_give_the_card_back() -> None:
    state = nodes("a", "b")
    for uid, node in (("s0", "a"), ("s1", "a"), ("s2", "b")):
        placed(state, ask(uid, 300, "g", siblings=True), [node])
    assert state.links.left_of("a")[2] == 400 * M
    state.gone("s2")
    assert state.links.left_of("a")[2] == CARD


def test_a_pod_of_another_group_is_no_sibling() -> None:
    state = nodes("a")
    placed(state, ask("s0", 300, "team-a/web", siblings=True), ["a"])
    placed(state, ask("loud", 800), ["a"])
    assert state.filter(ask("s1", 300, "team-b/web", siblings=True), ["a"], 0).refused() == {
        "a": NodeRefusal.NETWORK_DOWN
    }
    assert placed(state, ask("s2", 300, "team-a/web", siblings=True), ["a"]) == "a"


def test_pods_of_a_group_land_together_while_a_node_holds_them() -> None:
    state = nodes("a", "b", "c")
    names = ["c", "a", "b"]
    found = Counter(placed(state, ask(f"pod-{number}", 200, "set"), names) for number in range(10))
    assert sorted(found.values()) == [5, 5]


# --- choosing -----------------------------------------------------------------------------------------------------------------------


def test_the_freest_node_is_chosen_and_of_equal_ones_the_first_by_name() -> None:
    state = nodes("a", "b", "c")
    placed(state, ask("one", 100), ["a"])
    verdict = state.filter(ask("two"), ["c", "b", "a"], 0)
    assert verdict.passed == ["b"]
    assert verdict.refused() == {"a": NodeRefusal.NOT_CHOSEN, "c": NodeRefusal.NOT_CHOSEN}


def test_more_candidates_are_all_held() -> None:
    state = nodes("a", "b", "c", candidates=2)
    assert state.filter(ask("one", 600), ["a", "b", "c"], 0).passed == ["a", "b"]
    assert [state.links.left_of(name)[2] // M for name in "abc"] == [400, 400, 1000]
    state.bound(ask("one", 600), "b")
    assert [state.links.left_of(name)[2] // M for name in "abc"] == [1000, 400, 1000]


def test_whoever_talks_to_siblings_only_is_answered_one_node() -> None:
    state = nodes("a", "b", "c", candidates=3)
    assert state.filter(ask("s0", 600, "g", siblings=True), ["a", "b"], 0).passed == ["a"]
    assert state.filter(ask("s1", 300, "g"), ["a", "b"], 0).passed == ["a"]


def test_scores_are_seven_parts_locality_and_three_parts_free_bandwidth() -> None:
    state = nodes("a", "b", "c", candidates=3)
    state.bound(ask("s0", 400, "g"), "a")
    state.bound(ask("loud", 700), "b")
    assert state.score(ask("s1", 100, "g"), ["a", "b", "c"]) == [9, 1, 3]
    assert state.score(ask("s1", 100, "g"), []) == []


def test_what_is_held_for_a_pod_does_not_lower_its_own_score() -> None:
    state = nodes("a", "b", candidates=2)
    state.filter(ask("one", 600), ["a"], 0)
    assert state.score(ask("one", 600), ["a", "b"]) == [3, 3]
    assert state.links.left_of("a")[2] == 400 * M


# --- preemption -------------------------------------------------------------------------------------------------------------------------


def test_nobody_is_evicted_on_a_node_whose_links_would_still_be_full() -> None:
    """kube-scheduler evicts for what it counts itself, and would go on to the next node once the extender refuses this one."""
    state = nodes("full", "free", "freed")
    state.bound(ask("stays", 600), "full")
    state.bound(ask("victim", 600), "freed")
    victims = {"full": ["other"], "free": ["other"], "freed": ["victim"], "gone": ["other"]}
    before = {name: state.links.left_of(name) for name in victims}
    state.links.freed = False
    assert state.fits_without(ask("one", 600), victims) == ["free", "freed"]
    assert state.fits_without(ask("huge", 2_000), victims) == []
    assert state.fits_without(ask("larger", 1_100), {"freed": ["victim", "victim"]}) == []
    assert {name: state.links.left_of(name) for name in victims} == before
    assert not state.links.freed


def test_a_node_without_victims_is_none_to_evict_on() -> None:
    """kube-scheduler takes an answer without a victim for a mistake."""
    assert nodes("a").fits_without(ask("one"), {"a": []}) == []


def test_the_preemptor_itself_keeps_no_room_from_itself() -> None:
    state = nodes("a")
    state.filter(ask("one", 600), ["a"], 0)
    assert state.fits_without(ask("one", 600), {"a": ["other"]}) == ["a"]
    assert state.fits_without(ask("one", 1_500), {"a": ["one", "one"]}) == []
    assert state.holds == 1, "whoever asks this gives nothing free"
    state.bound(ask("one", 600), "a")
    assert state.fits_without(ask("one", 600), {"a": ["other"]}) == []


def test_nobody_is_evicted_where_siblings_elsewhere_would_come_to_talk_over_a_full_card() -> None:
    state = nodes("home", "away")
    state.bound(ask("sibling", 600, "group", siblings=True), "home")
    state.bound(ask("other", 600), "home")
    one = ask("one", 100, "group", siblings=True)
    assert state.fits_without(one, {"away": ["x"]}) == []
    assert state.fits_without(one, {"home": ["sibling"]}) == ["home"]


@pytest.mark.parametrize("why", list(NodeRefusal))
def test_every_cause_has_a_sentence(why: NodeRefusal) -> None:
    said = refusal_sentence(why, ask("one"))
    assert bool(said) == (why not in (NodeRefusal.PASSED, NodeRefusal.NOT_CHOSEN)), "only what is refused is told"


def test_a_refusal_names_what_the_pod_asks_for() -> None:
    assert "requests 100 Mbps" in refusal_sentence(NodeRefusal.NETWORK_UP, ask("one", 100))
    assert "requests 0.0015 Mbps" in refusal_sentence(NodeRefusal.LOCAL_UP, PodAsk("one", 1500, 0))


# --- whatever happens ---------------------------------------------------------------------------------------------------------------

ROOMY: FourRates = (2000 * M, 2000 * M, CARD, CARD)
NAMES = [f"n{number}" for number in range(3)]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("filter", "bind", "filter", "bind", "gone", "later", "unbound")),
        st.integers(0, 11),
        st.lists(st.sampled_from([*NAMES, "gone"]), unique=True, max_size=4),
        st.sampled_from((0, 1, 20_000)),
    ),
    max_size=60,
)


def drawn(number: int) -> PodAsk:
    """Mostly siblings of two groups, of which two together are more than a card takes."""
    group = "" if number % 4 == 3 else "gh"[number // 6]
    return PodAsk(f"p{number}", (number % 4) * 150 * M, 600 * M, group, siblings_only=bool(group) and number % 3 != 0)


def is_a_partition(verdict: FilterAnswer, names: list[str]) -> bool:
    refused = verdict.refused()
    return sorted([*verdict.passed, *refused]) == sorted(names) and not set(verdict.passed) & set(refused)


@given(steps=STEPS, candidates=st.integers(1, 3))
@settings(max_examples=300, deadline=None)
def test_no_link_is_given_twice_whatever_happens(steps: list[tuple[str, int, list[str], int]], candidates: int) -> None:
    state, now = nodes(*NAMES, capacity=ROOMY, candidates=candidates), 0
    for what, number, names, passes in steps:
        now += passes
        one = drawn(number)
        if what == "filter":
            assert is_a_partition(state.filter(one, names, now), names)
            assert not state.links.oversubscribed()
        elif what == "bind" and state.nodes_of(one.uid):
            state.bound(one, state.nodes_of(one.uid)[-1])
        elif what == "gone":
            state.gone(one.uid)
        elif what == "unbound" and one.uid not in bound_pods(state):
            state.unbound(one, now)
        else:
            state.expire(now)
        found = used(state)
        for name in NAMES:
            left = [size - taken for size, taken in zip(ROOMY, found.get(name, (0, 0, 0, 0)), strict=True)]
            assert list(state.links.left_of(name)) == left


def bound_pods(state: Placement) -> set[str]:
    return {each.uid for each, _, is_bound in state.asks() if is_bound}
