"""Which pods and rows a budget counts: found by namespace and labels, and the same as looking at every one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.api.resources import LabelSelector, SelectorRequirement
from headroom.core.usage import coverage
from headroom.core.usage.coverage import BudgetScope, counted, counts, pods_matching
from headroom.core.usage.observing import OF_NAMESPACE
from headroom.model.facts import Pairs, Pod
from headroom.model.ordering import Group
from headroom.model.selectors import selects
from headroom.model.usage import UNSEEN, UsageRow
from headroom.model.world import World
from tests.builders import a_pod, a_world

GPU = (("nvidia.com/gpu", None),)
KEYS = frozenset({"team", "tier", f"{OF_NAMESPACE}org"})

values = st.sampled_from("abc")
labels: st.SearchStrategy[Pairs] = st.dictionaries(st.sampled_from(["team", "tier", "job-name"]), values).map(
    lambda found: tuple(sorted(found.items()))
)
expressions = st.builds(
    lambda key, operator, given: SelectorRequirement(
        key=key, operator=operator, values=tuple(given) if operator in ("In", "NotIn") else ()
    ),
    st.sampled_from(["team", "tier"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(values, min_size=1, max_size=3),
)
selectors = st.builds(
    lambda match, more: LabelSelector(match_labels=match, match_expressions=tuple(more)),
    st.dictionaries(st.sampled_from(["team", "tier"]), values, max_size=2),
    st.lists(expressions, max_size=2),
)
namespaces = st.sampled_from(["lab", "prod", "busy"])
scopes = st.builds(
    lambda names, selector, of_namespaces: BudgetScope("", frozenset(names), selector, GPU, of_namespaces),
    st.sets(namespaces, max_size=2),
    selectors,
    st.none() | st.builds(lambda org: LabelSelector(match_labels={"org": org}), values),
)


@given(st.lists(st.tuples(namespaces, labels, st.integers(0, 2)), max_size=12), st.lists(scopes, max_size=4), st.data())
def test_pods_are_counted_as_if_every_one_was_looked_at(
    made: list[tuple[str, Pairs, int]], wanted: list[BudgetScope], data: Any
) -> None:
    world, model = a_world(), dict[str, Pod]()
    for number, (namespace, has, gpus) in enumerate(made):
        pod = a_pod(f"p{number % 7}", namespace=namespace, labels=has, gpus=gpus, uid=f"u{number % 7}")
        world.pods.put(pod)
        model[pod.uid] = pod
        if data.draw(st.booleans()):
            world.pods.remove(pod.uid)
            del model[pod.uid]
        for scope in wanted:
            mine = [
                each
                for each in model.values()
                if each.namespace in scope.namespaces and selects(scope.selector, each.labels)
            ]
            asking = [each for each in mine if counts(each.shape.requests, GPU) != (0, "")]
            assert pods_matching(world, scope) == (len(mine), len(asking))


@given(
    st.lists(st.tuples(namespaces, labels | st.just(((UNSEEN, ""),)), st.none() | values), max_size=12),
    st.lists(scopes, max_size=4),
)
def test_groups_are_counted_as_if_every_one_was_looked_at(
    made: list[tuple[str, Pairs, str | None]], wanted: list[BudgetScope]
) -> None:
    world = a_world()
    world.usage.group_by(KEYS)
    for number, (namespace, has, org) in enumerate(made):
        all_labels = tuple(sorted((*has, *(((f"{OF_NAMESPACE}org", org),) if org else ()))))
        world.usage.put(a_row(number, namespace, all_labels))
        for scope in wanted:
            found, groups = counted(world.usage, scope), list(enumerate(world.usage.groups))
            mine = {
                group for group, each in groups if coverage.rate_of(scope, a_row(0, each.terms.namespace, each.labels))
            }
            assert found.rates.keys() == mine
            unseen = {group for group, each in groups if (UNSEEN, "") in each.labels and reaches(scope, each)}
            assert found.possible.keys() == unseen


def reaches(scope: BudgetScope, group: Group) -> bool:
    org = dict(group.labels).get(f"{OF_NAMESPACE}org")
    if scope.namespace_selector is None or org is None:
        return group.terms.namespace in scope.namespaces
    return scope.namespace_selector.match_labels["org"] == org


def a_row(number: int, namespace: str, has: Pairs) -> UsageRow:
    amounts = (("nvidia.com/gpu", 1_000_000),)
    return UsageRow(
        cluster="default",
        uid=f"u{number}",
        start=0,
        earliest=0,
        seen_until=0,
        namespace=namespace,
        labels=has,
        amounts=amounts,
    )


@pytest.mark.parametrize(
    "scope",
    [
        BudgetScope("", frozenset({"lab"}), LabelSelector(match_labels={"team": "a"}), GPU),
        BudgetScope("", frozenset({"busy"}), LabelSelector(match_labels={"team": "a"}), GPU),
        BudgetScope("", frozenset({"lab", "busy"}), LabelSelector(match_labels={"team": "a"}), GPU, LabelSelector()),
        BudgetScope("", frozenset({"lab"}), LabelSelector(), GPU),
    ],
    ids=["another namespace", "another label", "every namespace", "any label"],
)
@pytest.mark.parametrize("keys", [{"team"}, {"team", "job-name"}], ids=["team", "and somebody selects by job"])
def test_a_budget_does_not_look_at_pods_and_rows_of_others(scope: BudgetScope, keys: set[str]) -> None:
    world = busy_world(300, frozenset(keys))
    assert pods_matching(world, scope) == (0, 0)
    assert counted(world.usage, scope).rates == {}
    needed = coverage.needed(scope.selector)
    for postings in (world.pods.census.postings, world.usage.postings):
        assert list(postings.candidates(0, scope.namespaces, needed)) == []


def busy_world(pods: int, keys: frozenset[str]) -> World:
    """Many pods of one team, each with a Job of its own."""
    world = a_world()
    world.usage.group_by(keys)
    world.pods.count_by(keys)
    for number in range(pods):
        has = (("job-name", f"j{number}"), ("team", "busy"))
        world.pods.put(a_pod(f"p{number}", namespace="busy", labels=has, uid=f"u{number}"))
        world.usage.put(a_row(number, "busy", has))
    return world


def test_kinds_of_pods_that_are_gone_are_forgotten() -> None:
    world = busy_world(0, frozenset({"job-name"}))
    for number in range(3000):
        world.pods.put(a_pod("p", namespace="busy", labels=(("job-name", f"j{number}"),), uid="u"))
    assert len(world.pods.census.kinds) == 3000
    world.pods.count_by(frozenset({"job-name"}))
    assert world.pods.census.counts == [1]
