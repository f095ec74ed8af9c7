"""What the API server's policies must know of budgets, and when they are told."""

from __future__ import annotations

from collections.abc import Iterator

from headroom.api import marks
from headroom.api.budget_index import IndexEntry
from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.model.actions import Action, ApplyBudgetIndex
from headroom.model.world import World


def index_of(world: World) -> tuple[IndexEntry, ...]:
    """Every budget with exact accounting; all of them where some namespace lets no GPU pod be without a budget."""
    return (
        *_of_no_budget(world),
        *(_entry(world, each) for each in usage.budgets_of(world) if _is_listed(world, each)),
        *_unreadable(world),
    )


def _unreadable(world: World) -> Iterator[IndexEntry]:
    """What stands there of budgets that cannot be read now: it stays."""
    unread = {
        f"{each.namespace}/{each.name}"
        for _, each in world.of_kind(usage.KIND)
        if each.spec is None and not each.deleting
    }
    return (each for each in world.index or () if each.budget in unread)


def _of_no_budget(world: World) -> tuple[IndexEntry, ...]:
    """What is a GPU although its name does not say so, where no GPU pod may be without a budget."""
    names = usage.gpu_names(world.devices) if _is_required(world) else ()
    return (IndexEntry(budget="", resources=names),) if names else ()


def _is_required(world: World) -> bool:
    return any(key == marks.REQUIRE_BUDGET for each in world.namespaces.values() for key, _ in each.labels)


def _is_listed(world: World, budget: AnyResource) -> bool:
    return not budget.deleting and (budget.spec.accounting == "Exact" or _is_required(world))


def _entry(world: World, budget: AnyResource) -> IndexEntry:
    scope = usage.scope_of(world, budget)
    return IndexEntry(
        budget=f"{budget.namespace}/{budget.name}",
        # A thousand budgets over hundreds of namespaces each would not fit into one object by their names.
        namespaces=tuple(sorted(scope.namespaces)) if scope.namespace_selector is None else (),
        namespace_selector=scope.namespace_selector,
        match_labels=dict(sorted(scope.selector.match_labels.items())),
        match_expressions=scope.selector.match_expressions,
        resources=usage.counted_names(scope.weights, world.devices),
        exact=budget.spec.accounting == "Exact",
    )


def indexes(world: World, budget: AnyResource) -> Iterator[Action]:
    """Have the index written if it does not know a budget as it is."""
    if _is_listed(world, budget) and _entry(world, budget) not in (world.index or ()):
        yield ApplyBudgetIndex(budget=f"{budget.namespace}/{budget.name}")


def left_over(world: World) -> Iterator[Action]:
    """Have the index written if it knows a budget that is not to be in it, or if there is none although one is needed."""
    if world.index is None:
        if _is_required(world) and not usage.budgets_of(world):
            yield ApplyBudgetIndex(budget="")
        return
    if any(each not in world.index for each in _of_no_budget(world)):
        yield ApplyBudgetIndex(budget="")
    listed = {each.budget for each in index_of(world)}
    for entry in world.index:
        if entry.budget not in listed:
            yield ApplyBudgetIndex(budget=entry.budget)
