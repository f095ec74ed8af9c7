"""What people see of each capability: how its resources are printed, and what is said of those that are hardly meant.

The other half of `Capability` in `core/__init__.py`, which may not know of screens.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from headroom.api.kinds import AnyResource
    from headroom.api.schema import Problem
    from headroom.web.page import Page

    Advice = Callable[[AnyResource, Collection[str], Iterable[AnyResource]], list[Problem]]


class Face(NamedTuple):
    """Of one kind. What is not given is done as for any other kind."""

    show: Callable[[AnyResource, Any], None] | None = None
    """Prints a resource with its status."""
    advice: Advice | None = None
    """What is dubious about a valid resource, by the fields that its spec gives itself, and beside others."""
    pages: Callable[[], tuple[Page, ...]] = tuple
    """Its pages of the dashboard."""


def _show_budget(budget: AnyResource, status: Any) -> None:
    from headroom.cli import explain_budget

    explain_budget.show(budget, status)


def _show_pool(pool: AnyResource, status: Any) -> None:
    from headroom.cli import explain_power

    explain_power.show(pool, status)


def _of_budget(budget: AnyResource, given: Collection[str], _others: Iterable[AnyResource]) -> list[Problem]:
    from headroom.api import advice

    return advice.of_budget(budget, given)


def _of_pool(pool: AnyResource, _given: Collection[str], others: Iterable[AnyResource]) -> list[Problem]:
    from headroom.api import advice
    from headroom.cli import addresses

    return [*advice.of_pool(pool), *advice.between(pool, others), *addresses.dubious(pool)]


def _budget_pages() -> tuple[Page, ...]:
    from headroom.web.page import Page
    from headroom.web.pages.budget import BudgetPage

    path = "budgets/{namespace}/{name}"
    return (Page(path, "budget", lambda: BudgetPage().model, kind="GPUWorkloadBudget", noun="budget"),)


def _pool_pages() -> tuple[Page, ...]:
    from headroom.web.page import Page
    from headroom.web.pages import power

    return (
        Page("power", "power", lambda: power.model, link="Power"),
        Page("power/{name}", "pool", lambda: power.pool, kind="PowerPool", noun="power pool"),
    )


FACES: Final = {
    "GPUWorkloadBudget": Face(show=_show_budget, advice=_of_budget, pages=_budget_pages),
    "PowerPool": Face(show=_show_pool, advice=_of_pool, pages=_pool_pages),
}
_PLAIN: Final = Face()


def face_of(kind: str) -> Face:
    """How people see a kind."""
    return FACES.get(kind, _PLAIN)


def pages() -> tuple[Page, ...]:
    """All pages of the dashboard, in the order of the navigation."""
    from headroom.web.pages import FIRST, LAST

    return (*FIRST, *(page for face in FACES.values() for page in face.pages()), *LAST)
