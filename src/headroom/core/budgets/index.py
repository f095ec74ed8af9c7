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
    is_required = _is_required(world)
    listed = (
        each
        for each in usage.budgets_of(world)
        if not each.deleting and (is_required or each.spec.accounting == "Exact")
    )
    names = usage.gpu_names(world.devices) if is_required else ()
    return (
        # What is a GPU although its name does not say so, where no GPU pod may be without a budget.
        *((IndexEntry(budget="", resources=names),) if names else ()),
        *(_entry(world, each) for each in listed),
        *_unreadable(world),
    )


def _unreadable(world: World) -> Iterator[IndexEntry]:
    """What stands there of budgets that cannot be read now: it stays."""
    unread = {_key(each) for _, each in world.of_kind(usage.KIND) if each.spec is None and not each.deleting}
    return (each for each in world.index or () if each.budget in unread)


def _is_required(world: World) -> bool:
    return any(key == marks.REQUIRE_BUDGET for each in world.namespaces.values() for key, _ in each.labels)


def _entry(world: World, budget: AnyResource) -> IndexEntry:
    scope = usage.scope_of(world, budget)
    return IndexEntry(
        budget=_key(budget),
        # A thousand budgets over hundreds of namespaces each would not fit into one object by their names.
        namespaces=tuple(sorted(scope.namespaces)) if scope.namespace_selector is None else (),
        namespace_selector=scope.namespace_selector,
        match_labels=dict(sorted(scope.selector.match_labels.items())),
        match_expressions=scope.selector.match_expressions,
        resources=usage.counted_names(scope.weights, world.devices),
        exact=budget.spec.accounting == "Exact",
    )


def due(world: World) -> Iterator[Action]:
    """Have the index written if it does not say what it should; a budget that is paused is no reason alone."""
    wanted, known = index_of(world), {each.budget: each for each in world.index or ()}
    paused = {_key(each) for each in usage.budgets_of(world) if each.spec.paused}
    is_missing = world.index is None and _is_required(world)
    new = [each.budget for each in wanted if known.get(each.budget) != each and each.budget not in paused]
    new += sorted(known.keys() - {each.budget for each in wanted})
    if new or is_missing:
        yield ApplyBudgetIndex(budget=new[0] if new else "", budgets=wanted)


def is_known(world: World, budget: AnyResource) -> bool:
    """Whether the policies know what they must of a budget."""
    needed = not budget.deleting and (budget.spec.accounting == "Exact" or _is_required(world))
    return not needed or _entry(world, budget) in (world.index or ())


def _key(budget: AnyResource) -> str:
    return f"{budget.namespace}/{budget.name}"
