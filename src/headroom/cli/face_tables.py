"""What the faces of all kinds print the same way: sections of a resource, and rows of `headroom status`, the worst first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headroom.cli import output
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.api.kinds import AnyResource
    from headroom.model.decisions import Decision

Item = TypeVar("Item")

MOST_POOLS: Final = 10
MOST_ON_A_SCREEN: Final = 40
_URGENCY: Final = ("bad", "warn", "good", "idle")
"""What needs a look comes first."""


def section(title: str, columns: tuple[str, ...], rows: Sequence[Sequence[object]], *, texts: int = 0) -> None:
    """One table of a resource under its title; nothing where there are no rows."""
    if rows:
        output.line()
        if title:
            output.line(title)
        output.as_table(columns, rows, texts=texts, indent=2)


def cut(items: Sequence[Item], is_plain: Callable[[Item], bool]) -> Sequence[Item]:
    """As many as a screen takes, those that are not plain first."""
    if not output.is_terminal() or len(items) <= MOST_ON_A_SCREEN:
        return items
    return sorted(items, key=is_plain)[:MOST_ON_A_SCREEN]


def left_out(count: int) -> None:
    """Says how many were not shown."""
    if count:
        output.line(f"and {count} more; -o json has them all", indent=2)


def as_written(row: dict[str, Any], resource: AnyResource, decision: Decision | None) -> dict[str, Any]:
    """A row of which nothing was decided here says what its written condition `Ready` does."""
    from headroom.model import conditions

    ready = conditions.find(resource.status.conditions, "Ready")
    if decision is not None or ready is None or resource.problems:
        return row
    return row | {"reason": ready.reason, "message": ready.message}


def name_of(row: dict[str, Any]) -> str:
    """A row's resource as people name it."""
    return "/".join(filter(None, (row.get("namespace", ""), row["name"])))


def overview(
    rows: Sequence[dict[str, Any]],
    columns: tuple[str, ...],
    cells: Callable[[dict[str, Any]], tuple[object, ...]],
    everything: bool,
) -> None:
    """The resources of a kind: those that need a look first, and not more than a screen takes unless all are asked for.

    `columns` are the name's and those of `cells`; how each stands, and why, follows.
    """
    if not rows:
        return
    ordered = sorted(rows, key=lambda each: (_URGENCY.index(each["tone"]), name_of(each)))
    most = len(ordered) if everything or not output.is_terminal() else MOST_POOLS
    output.line()
    output.as_table(
        (*columns, "STATE", "WHY"),
        [
            (name_of(each), *cells(each), output.Toned(each["state"], each["tone"]), each["message"])
            for each in ordered[:most]
        ],
    )
    if len(ordered) > most:
        output.line(f"and {output.counted(len(ordered) - most, 'pool')} more; --all lists them")


def only_known(known: dict[str, Item], name: str, noun: str, kind: str) -> Item:
    """What is known by that name. Raises `Misconfigured` with the names that are near, or all of them."""
    from headroom.cli.explain import listed, offered

    if name in known:
        return known[name]
    near = offered(name, {each: each for each in known})
    others = f"; known are {listed(sorted(known))}" if known and not near else ""
    raise Misconfigured(f"looking for {noun} {name}: no {kind} has it{near}{others}")


def said_of(resource: AnyResource, decision: Decision | None) -> str:
    """What was decided on a resource, or else is written there."""
    from headroom.model import conditions

    if decision is not None:
        return decision.message
    ready = conditions.find(resource.status.conditions, "Ready")
    return ready.message if ready else "No decision has been made yet."


def unserved_rows(unserved: Iterable[Any]) -> list[tuple[object, ...]]:
    """Pods that nobody serves, as rows of a table."""
    return [(each.pod, each.pods, each.reason, each.message) for each in unserved]
