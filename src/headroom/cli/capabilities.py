"""What people see of each capability: how its resources are printed, and what is said of those that are hardly meant.

The other half of `Capability` in `core/__init__.py`, which may not know of screens.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from headroom.api.kinds import AnyResource
    from headroom.api.schema import Problem

    Advice = Callable[[AnyResource, Collection[str], Iterable[AnyResource]], list[Problem]]


class Face(NamedTuple):
    """Of one kind. What is not given is done as for any other kind."""

    show: Callable[[AnyResource, Any], None] | None = None
    """Prints a resource with its status."""
    advice: Advice | None = None
    """What is dubious about a valid resource, by the fields that its spec gives itself, and beside others."""


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


FACES: Final = {
    "GPUWorkloadBudget": Face(show=_show_budget, advice=_of_budget),
    "PowerPool": Face(show=_show_pool, advice=_of_pool),
}
_PLAIN: Final = Face()


def face_of(kind: str) -> Face:
    """How people see a kind."""
    return FACES.get(kind, _PLAIN)
