"""Which rows a budget counts, and how much each counts: by namespace, labels, resources and cluster."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from headroom.api.budget_index import MOST_NAMES
from headroom.api.budgets import GPUWorkloadBudgetSpec
from headroom.api.kinds import AnyResource
from headroom.api.quantities import InvalidQuantity, nano
from headroom.api.resources import LabelSelector
from headroom.core.usage.devices import (
    MICRO,
    DeviceView,
    PodDevices,
    ToldApart,
    asked_by,
    requested,
    requested_amounts,
    view_of,
)
from headroom.core.usage.names import DRIVERS, CountedResource, parsed
from headroom.core.usage.observing import NAMESPACE_NAME, OF_NAMESPACE
from headroom.core.usage.prices import MIG, gpus, share_of, weight_of
from headroom.model.devices import WHOLE, DeviceTable
from headroom.model.facts import UNREADABLE, Amounts, Pairs
from headroom.model.gpus import ANY
from headroom.model.ordering import RowTerms
from headroom.model.selectors import keys_of, selects
from headroom.model.usage import UNSEEN, UsageRow, is_unseen
from headroom.model.usage_table import UsageTable
from headroom.model.world import World

KIND: Final = "GPUWorkloadBudget"
Weights = tuple[tuple[str, int | None], ...]
"""Names, which may end in a star, with billionths of a GPU that one unit counts; None for the usual weight."""


class BudgetScope(NamedTuple):
    """What a budget covers, as far as rows of usage can be told by it."""

    clusters: str
    """The one cluster, empty for all."""
    namespaces: frozenset[str]
    """Those that it covers now."""
    selector: LabelSelector
    weights: Weights
    namespace_selector: LabelSelector | None = None
    """Decides for rows that know the labels which their namespace had; for others, what it covers now does."""

    def covers(self, namespace: str, labels: Pairs) -> bool:
        """Whether pods with these labels are among those it is for, now."""
        return namespace in self.namespaces and selects(self.selector, labels)


class Counted(NamedTuple):
    """The groups that a budget counts and what each row of them counts."""

    rates: dict[int, int]
    """Group to millionths of a GPU."""
    unreadable: dict[int, str]
    """Groups with an amount that nobody can read, each with the resource's name."""
    possible: dict[int, int]
    """Group to millionths of a GPU, where nobody saw the labels: it may have been the budget's."""
    prices: dict[int, int]
    """Group to millionths of a dollar an hour that each row of it costs, where that is known."""


def scope_of(world: World, budget: AnyResource) -> BudgetScope:
    """What a valid budget covers."""
    spec: GPUWorkloadBudgetSpec = budget.spec
    return BudgetScope(
        clusters="" if spec.home_cluster else world.cluster,
        namespaces=namespaces_of(world, budget),
        # A frozen struct of plain data; equal selectors are equal values.
        selector=spec.selector,
        weights=weights_of(spec),
        namespace_selector=spec.namespace_selector if budget.namespace == world.own_namespace else None,
    )


def namespaces_of(world: World, budget: AnyResource) -> frozenset[str]:
    """The budget's own namespace; those that its selector matches, for a budget in the operator's namespace."""
    spec: GPUWorkloadBudgetSpec = budget.spec
    if spec.namespace_selector is None or budget.namespace != world.own_namespace:
        return frozenset({budget.namespace})
    return _selected(world, spec.namespace_selector)


def _selected(world: World, chosen: LabelSelector) -> frozenset[str]:
    """The namespaces that a selector matches, remembered while none changes: thousands are compared much faster than judged."""
    memory: dict[Any, Any] = world.usage.memory
    known, found = memory.get("namespaces", ({}, {}))
    if world.namespaces != known:
        known, found = dict(world.namespaces), {}
        memory["namespaces"] = known, found
    key = _frozen(chosen)
    if key not in found:
        found[key] = frozenset(name for name, each in known.items() if selects(chosen, each.labels))
    names: frozenset[str] = found[key]
    return names


def weights_of(spec: GPUWorkloadBudgetSpec) -> Weights:
    """The resources that a budget counts; names without a star first, then the longest, so that the first match counts."""
    if not spec.gpu_resources:
        return ((spec.gpu_resource_name, None),)
    found = []
    for each in spec.gpu_resources:
        weight = None if each.weight is None else nano(each.weight)
        found.append((each.name, None if isinstance(weight, InvalidQuantity) else weight))
    return tuple(sorted(found, key=lambda pair: (pair[0].endswith("*"), -len(pair[0]), pair[0])))


@lru_cache(maxsize=65536)
def counts(amounts: Amounts, weights: Weights) -> tuple[int, str]:
    """Millionths of a GPU that amounts count as, and the name of one that nobody can read; what is shared counts as a whole."""
    total, unreadable = 0, ""
    for name, amount in amounts:
        resource = parsed(name)
        weight = _weight(resource, weights)
        if weight is None:
            continue
        if amount >= UNREADABLE:
            unreadable = resource.name
        else:
            total += amount * weight // WHOLE
    return total, unreadable


def charged(scope: BudgetScope, amounts: Amounts) -> tuple[int, str]:
    """The same of a row that a scope covers: what pods share is divided among those of them that the scope covers."""
    if not _is_shared(amounts):
        return counts(amounts, scope.weights)
    total, unreadable = 0, ""
    for pair in amounts:
        rate, why = counts((pair,), scope.weights)
        resource = parsed(pair[0])
        total += share_of(rate, resource, _sharers(resource, scope.selector))
        unreadable = unreadable or why
    return total, unreadable


def asked_rate(asked: PodDevices, weights: Weights) -> int:
    """Millionths of a GPU that a pod asks for: of alternatives the one that counts most, since nobody knows which it will get."""
    chosen = (max((counts(each, weights)[0] for each in choice), default=0) for choice in asked.choices)
    return counts(asked.amounts, weights)[0] + sum(chosen)


def _price(scope: BudgetScope, terms: RowTerms) -> int | None:
    """What a row costs an hour: of what is shared, the part that is charged."""
    if terms.price is None or not _is_shared(terms.amounts):
        return terms.price
    whole = borne = 0
    for pair in terms.amounts:
        amount, resource = gpus((pair,), divided=False), parsed(pair[0])
        whole += amount
        borne += share_of(amount, resource, _sharers(resource, scope.selector))
    return terms.price * borne // whole if whole else terms.price


@lru_cache(maxsize=16384)
def _is_shared(amounts: Amounts) -> bool:
    return any(parsed(name).sharers for name, _ in amounts)


def _sharers(resource: CountedResource, selector: LabelSelector) -> int:
    """How many of the pods that hold something together a selector covers; the first are like the one whose row it is."""
    known = LabelSelector(
        match_labels={key: value for key, value in selector.match_labels.items() if key in resource.keys},
        match_expressions=tuple(each for each in selector.match_expressions if each.key in resource.keys),
    )
    return (
        sum(each.count for place, each in enumerate(resource.sharers) if place == 0 or selects(known, each.labels)) or 1
    )


def _weight(resource: CountedResource, weights: Weights) -> int | None:
    """Billionths of a GPU that one unit counts; None if it is not counted."""
    if resource.name == ANY:
        return WHOLE
    for wanted, weight in weights:
        if not any(_matches(wanted, each) for each in resource.names):
            continue
        if weight is None:
            return weight_of(resource)
        # A weight of whole GPUs counts for parts of them by their size; one of the class or profile is for that very thing.
        is_of_whole = resource.part and _matches(wanted, resource.name) and not resource.name.startswith(MIG)
        return weight * resource.part // WHOLE if is_of_whole else weight
    return None


def _matches(wanted: str, name: str) -> bool:
    return name == wanted or (wanted.endswith("*") and name.startswith(wanted[:-1]))


def counted_names(weights: Weights, table: DeviceTable) -> tuple[str, ...]:
    """The names by which containers ask for what is counted: those that a budget says, and those of the same devices."""
    said = [name for name, _ in weights]
    others = {*DRIVERS.values(), *table.by_extended_resource} - {*said}
    more = [name for name in others if not any(_matches(each, name) for each in said) and _counts(name, weights, table)]
    return (*said, *sorted(more))[:MOST_NAMES]


def _counts(name: str, weights: Weights, table: DeviceTable) -> bool:
    return counts(((requested(name, table), MICRO),), weights)[0] > 0


def gpu_names(table: DeviceTable) -> tuple[str, ...]:
    """The extended resources that device classes of GPUs go by."""
    found = (name for name in table.by_extended_resource if gpus(((requested(name, table), MICRO),)))
    return tuple(sorted(found))[:MOST_NAMES]


def counted(table: UsageTable, scope: BudgetScope) -> Counted:
    """The groups that a scope covers. Groups are only ever added, so what was judged once is remembered with the table."""
    memory: dict[Any, Any] = table.memory
    if memory.get("regrouped") != table.regrouped:
        memory.clear()
        memory["regrouped"] = table.regrouped
    key = (scope.clusters, scope.weights, *_selecting(scope))
    found: Counted
    known, found, covered = memory.get(key, (0, Counted({}, {}, {}, {}), scope.namespaces))
    if covered != scope.namespaces:
        known, found = 0, Counted({}, {}, {}, {})
    # The labels that a namespace had decide for rows that know them, whatever it is called.
    named = scope.namespaces if scope.namespace_selector is None else None
    labels = [[*each, (UNSEEN, "")] for each in needed(scope.selector)]
    for number in table.postings.candidates(known, named, labels):
        group = table.groups[number]
        cluster, namespace, amounts, _ = group.terms
        if is_unseen(group.labels):
            if _reaches(scope, cluster, namespace, _parted(group.labels)[1]):
                found.possible[number] = counts(amounts, scope.weights)[0]
        elif _covers(scope, cluster, namespace, group.labels):
            rate, unreadable = charged(scope, amounts)
            if rate:
                found.rates[number] = rate
                if (price := _price(scope, group.terms)) is not None:
                    found.prices[number] = price
            if unreadable:
                found.unreadable[number] = unreadable
    memory[key] = len(table.groups), found, scope.namespaces
    return found


def rate_of(scope: BudgetScope, row: UsageRow) -> int:
    """Millionths of a GPU that a scope counts of one row, outside any table; 0 where it does not cover it."""
    return charged(scope, row.amounts)[0] if _covers(scope, row.cluster, row.namespace, row.labels) else 0


def _covers(scope: BudgetScope, cluster: str, namespace: str, labels: Pairs) -> bool:
    own, theirs = _parted(labels)
    return not is_unseen(own) and selects(scope.selector, own) and _reaches(scope, cluster, namespace, theirs)


def _reaches(scope: BudgetScope, cluster: str, namespace: str, theirs: Pairs) -> bool:
    """Whether a scope covers pods of a namespace, which had these labels."""
    if scope.clusters and cluster != scope.clusters:
        return False
    if scope.namespace_selector is not None and theirs:
        return selects(scope.namespace_selector, theirs)
    return namespace in scope.namespaces


def _parted(labels: Pairs) -> tuple[Pairs, Pairs]:
    """The labels of the pod, and those of its namespace by their own names."""
    theirs = [(key[len(OF_NAMESPACE) :], value) for key, value in labels if key.startswith(OF_NAMESPACE)]
    return tuple(pair for pair in labels if not pair[0].startswith(OF_NAMESPACE)), tuple(theirs)


def needed(selector: LabelSelector) -> list[list[tuple[str, str]]]:
    """Labels without which nothing is selected: of each list, one."""
    one_of = [
        [(each.key, value) for value in dict.fromkeys(each.values)]
        for each in selector.match_expressions
        if each.operator == "In"
    ]
    return [*([pair] for pair in selector.match_labels.items()), *one_of]


def _selecting(scope: BudgetScope) -> tuple[Any, ...]:
    """What is judged under one name. Selected namespaces come and go; what was judged for those of before is of no use any more."""
    named = scope.namespaces if scope.namespace_selector is None else None
    return named, _frozen(scope.selector), _frozen(scope.namespace_selector)


def _frozen(selector: LabelSelector | None) -> tuple[Any, ...]:
    if selector is None:
        return ()
    return tuple(sorted(selector.match_labels.items())), selector.match_expressions


def budgets_of(world: World) -> list[AnyResource]:
    """All budgets that could be read, by name."""
    return [each for _, each in world.of_kind(KIND) if each.spec is not None]


def label_keys(budgets: Iterable[AnyResource]) -> frozenset[str]:
    """The label keys that valid budgets select by: of pods, and of their namespaces under the names that rows have for these."""
    keys = set[str]()
    for each in budgets:
        keys |= keys_of(each.spec.selector)
        if each.spec.namespace_selector is not None:
            theirs = {NAMESPACE_NAME, *keys_of(each.spec.namespace_selector)}
            keys |= {OF_NAMESPACE + key for key in theirs}
    return frozenset(keys)


def is_read(world: World, budget: AnyResource) -> bool:
    """Whether rows have the labels that a valid budget selects by. Else the ledger is yet to be read for them."""
    return world.ledger.keys is None or label_keys([budget]) <= world.ledger.keys


def arrange(world: World, beside: Iterable[AnyResource] = ()) -> None:
    """Let the tables tell labels apart by all keys that some budget looks at, and those `beside` what the world has."""
    keys = label_keys([*budgets_of(world), *beside])
    world.usage.group_by(keys)
    world.pods.count_by(frozenset(key for key in keys if not key.startswith(OF_NAMESPACE)))


def told_apart(world: World) -> ToldApart:
    """The labels of pods that budgets look at, each with the values that they name."""
    found: dict[str, set[str]] = {}
    for each in budgets_of(world):
        selector = each.spec.selector
        for key, value in selector.match_labels.items():
            found.setdefault(key, set()).add(value)
        for one in selector.match_expressions:
            found.setdefault(one.key, set()).update(one.values)
    return {key: frozenset(values) for key, values in found.items()}


class Matching(NamedTuple):
    """Pods in view that a scope covers."""

    pods: int
    requesting: int
    """Those that ask for a resource it counts."""


def pods_matching(world: World, scope: BudgetScope) -> Matching:
    """How many pods there are in a scope. Kinds of pods are only ever added, so what was judged once is remembered with them."""
    pods, census = world.pods, world.pods.count_by(keys_of(scope.selector))
    key = _selecting(scope)
    known, kinds, covered = census.memory.get(key, (0, [], scope.namespaces))
    if covered != scope.namespaces:
        known, kinds = 0, []
    for number in census.postings.candidates(known, scope.namespaces, needed(scope.selector)):
        kind = census.kinds[number]
        if scope.covers(kind.namespace, kind.labels):
            kinds.append(number)
    census.memory[key] = len(census.kinds), kinds, scope.namespaces
    found = [(census.counts[number], census.kinds[number].shape) for number in kinds if census.counts[number]]
    view = view_of(world)
    asking = (n for n, shape in found if _asks(pods.shapes[shape].requests, scope, view.devices))
    return Matching(sum(n for n, _ in found), sum(asking) + _claiming(scope, view))


def _asks(requests: Amounts, scope: BudgetScope, table: DeviceTable) -> bool:
    return counts(requested_amounts(requests, table), scope.weights) != (0, "")


def _claiming(scope: BudgetScope, view: DeviceView) -> int:
    """Pods that ask for something it counts through claims only."""
    uids = (uid for namespace in sorted(scope.namespaces) for uid in view.pods.claiming[namespace])
    found = (pod for uid in uids if (pod := view.pods.get(uid)) is not None)
    return sum(
        selects(scope.selector, pod.labels)
        and not _asks(pod.shape.requests, scope, view.devices)
        and asked_rate(asked_by(pod, view), scope.weights) > 0
        for pod in found
    )
