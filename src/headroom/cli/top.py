"""`headroom top`: the fleet on a whole terminal, live: budgets, the queue, machines, and what was decided last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer
from msgspec import Struct, structs

from headroom.cli.options import (
    AllNamespaces,
    Context,
    FilesInstead,
    From,
    Kubeconfig,
    Namespace,
    Now,
    OperatorNamespace,
    Recursive,
)

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.cli.keys import TerminalKeys
    from headroom.cli.worlds import Given
    from headroom.model.world import World
    from headroom.runtime.settings import Settings

ENDS: Final = ("q", "Q")
"""Keys that end it, as Ctrl-C does."""
MOST_EVENTS: Final = 100


class Seen(NamedTuple):
    """What is shown at one moment."""

    found: dict[str, Any]
    """What `headroom status` found."""
    queue: list[tuple[str, ...]]
    decisions: list[tuple[str, ...]]
    problem: str = ""
    """Why there is nothing newer."""


def top(
    every: Annotated[
        float, typer.Option(min=0.5, metavar="SECONDS", help="Seconds between two reads of the cluster.")
    ] = 5.0,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    files: FilesInstead = None,
    recursive: Recursive = False,
    snapshot: From = None,
    now: Now = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    operator_namespace: OperatorNamespace = None,
) -> None:
    """Show the fleet live on the whole terminal.

    It shows budgets, the queue with estimated starts, machines, and the latest decisions, and uses your own permissions. `r`
    refreshes, `q` quits. With files or a snapshot it shows one moment, and the decisions that Headroom would make.

    Example: headroom top

    Example: headroom top --from world.json
    """
    from headroom.cli import keys, live, worlds

    only = "" if all_namespaces else namespace
    with keys.of_terminal() as pressed:
        if files or snapshot is not None:
            _show_still(worlds.given(files, snapshot, now, recursive=recursive), only, pressed)
            return
        settings = live.settings_of(kubeconfig, context, operator_namespace)
        live.with_cluster(settings, lambda kube: _follow(kube, settings, only, every, pressed))


def _show_still(given: Given, only: str, pressed: TerminalKeys) -> None:
    from headroom.cli import screen, status

    seen = Seen(status.decided(given, only), _queue(given.world, only, decide=True), _due(given.world, only))
    with screen.shown() as show:
        show(seen)
        while pressed.wait() not in ENDS:
            show(seen)


async def _follow(kube: Kube, settings: Settings, only: str, every: float, pressed: TerminalKeys) -> None:
    from headroom.cli import screen

    with screen.shown() as show:
        seen = await _read(kube, settings, only)
        while True:
            show(seen)
            if await pressed.within(every) in ENDS:
                return
            seen = await _newer(kube, settings, only, seen)


async def _newer(kube: Kube, settings: Settings, only: str, before: Seen) -> Seen:
    """What is seen now; what was seen before, with the reason, while nothing can be read."""
    from headroom.model.errors import HeadroomError

    try:
        return await _read(kube, settings, only)
    except HeadroomError as error:
        return before._replace(problem=str(error))


async def _read(kube: Kube, settings: Settings, only: str) -> Seen:
    from headroom.cli import progress, status

    found, world = await status.written(kube, settings, only, progress.silent)
    return Seen(found, _queue(world, only), await _events(kube, only))


def _queue(world: World, only: str, *, decide: bool = False) -> list[tuple[str, ...]]:
    """Who is queued, by estimated start: what, by which budget, its GPUs, since when, until when."""
    from headroom.cli import planning
    from headroom.core.usage import KIND

    statuses = {ref: each.status for ref, each in world.of_kind(KIND)}
    if decide:
        statuses |= {each.resource: each.status for each in planning.decisions(world) if each.resource.kind == KIND}
    rows = [
        (each.starts_at or "~", each.unit, f"{ref.namespace}/{ref.name}", str(each.gpus), each.since)
        for ref, status in sorted(statuses.items())
        if only in ("", ref.namespace) and status.held is not None
        for each in status.held.queue
    ]
    return [
        (unit, budget, gpus, since, "unknown" if at == "~" else at) for at, unit, budget, gpus, since in sorted(rows)
    ]


def _due(world: World, only: str) -> list[tuple[str, ...]]:
    """What would be done with a world that was given."""
    from headroom.cli import plan_text, planning

    result = planning.planned(world, namespace=only)
    return [
        (result["now"], plan_text.EFFECTS[due["type"]].sign, plan_text.spoken(due, each), plan_text.named(each))
        for each in planning.shown_of(result)
        for due in plan_text.effects(each)
    ]


class _About(Struct, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""


class _Source(Struct, frozen=True):
    component: str = ""


class _Event(Struct, frozen=True, rename="camel"):
    involved_object: _About = _About()
    source: _Source = _Source()
    type: str = ""
    reason: str = ""
    message: str = ""
    last_timestamp: str | None = ""


class _Events(Struct, frozen=True):
    items: list[_Event] = []


async def _events(kube: Kube, only: str) -> list[tuple[str, ...]]:
    """The operator's events, the latest first; none where they may not be seen."""
    import msgspec

    from headroom.adapters.kube import errors, paths

    found: list[_Event] = []
    try:
        async for body in kube.pages(paths.events(only), query={"fieldSelector": "reportingComponent=headroom"}):
            found += [
                each for each in msgspec.json.decode(body, type=_Events).items if each.source.component == "headroom"
            ]
    except errors.Forbidden:
        return []
    found.sort(key=lambda each: each.last_timestamp or "", reverse=True)
    return [
        (
            each.last_timestamp or "",
            "!" if each.type == "Warning" else "",
            f"{each.reason}: {each.message}",
            "/".join(part for part in structs.astuple(each.involved_object) if part),
        )
        for each in found[:MOST_EVENTS]
    ]
