"""`headroom status`: the whole fleet on one screen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from headroom.cli import output, progress
from headroom.cli.capabilities import FACES
from headroom.cli.options import (
    AllNamespaces,
    Context,
    FilesInstead,
    Form,
    From,
    Kubeconfig,
    MoreFiles,
    Namespace,
    Now,
    OperatorNamespace,
    Output,
    Recursive,
)
from headroom.cli.worlds import PROVISO
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.cli.worlds import Given
    from headroom.model.world import World
    from headroom.runtime.settings import Settings

MOST_OTHERS: Final = 10
"""Rows of a screen; what is fullest or not ready comes first."""
_OF_LIST: Final = {
    "pods": ("held", "starting", "free", "running", "waiting", "heldPods"),
    "nodes": ("gpus", "free", "nodes", "nodesReady", "nodesAsleep"),
}
"""What is known of the fleet by each list."""


def status(
    paths: MoreFiles = None,
    files: FilesInstead = None,
    recursive: Recursive = False,
    snapshot: From = None,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    everything: Annotated[
        bool, typer.Option("--all", help="List every budget and pool, however many there are.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Refresh until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="How often, with --watch.")] = 5.0,
    now: Now = "",
    form: Output = Form.table,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    operator_namespace: OperatorNamespace = None,
) -> None:
    """Show the whole fleet on one screen.

    It shows the leader, allocated, free, pending and queued GPUs, all budgets, and the machines that are on, in all namespaces or
    the one given with -n. In a cluster the numbers are from the operator's last status, limited to what you may see. With files
    or a snapshot, Headroom decides anew, and the exit code is 1 if they contain mistakes.

    Example: headroom status

    Example: headroom status -f docs/examples/budget-used-up.yaml --now 2026-11-15T12:00:00Z
    """
    from headroom.cli import live, watching, worlds

    only = "" if all_namespaces else namespace
    named = [*(files or ()), *(paths or ())]
    if named or snapshot:
        if watch:
            raise Misconfigured("reading the flags: --watch is for a cluster; leave it out with --file and --from")
        given = worlds.given(named, snapshot, now, recursive=recursive)
        _show(decided(given, only), form, everything)
        raise typer.Exit(_judged(given, in_files=bool(named)))
    settings = live.settings_of(kubeconfig, context, operator_namespace)
    show = partial(_show, form=form, everything=everything)

    async def work(kube: Kube) -> None:
        found, _ = await written(kube, settings, only)
        if watch:
            watched = watching.Watched(partial(_again, kube, settings, only), show, kube.clock, every)
            await watching.watch(found, watched, is_data=form.is_data)
        show(found)

    live.with_cluster(settings, work)


async def _again(kube: Kube, settings: Settings, only: str) -> dict[str, Any]:
    return (await written(kube, settings, only, progress.silent))[0]


def decided(given: Given, only: str) -> dict[str, Any]:
    """What is decided on a world that was given."""
    from headroom.cli import fleet, planning

    world = given.world
    found = fleet.glance(world, {each.resource: each for each in planning.decisions(world)}, only)
    switch = {"seen": True, "stopped": world.stopped}
    return found | {"killSwitch": switch, "problems": planning.wire(given.problems), "unread": []}


def _judged(given: Given, *, in_files: bool) -> int:
    """The exit code; what is wrong with what was given is counted, and the first of it told."""
    from headroom.cli import planning

    if not given.problems:
        return output.OK
    output.say(planning.problem_line(*given.problems[0]))
    remedy = "`headroom check` names each, with its line" if in_files else "`headroom replay` names each"
    output.say(f"{output.counted(len(given.problems), 'problem')} in what was given: {remedy}")
    return output.PROBLEMS


async def written(
    kube: Kube, settings: Settings, only: str, told: progress.Progress | None = None
) -> tuple[dict[str, Any], World]:
    """What stands in a cluster, and the world that was read; of what may not be seen, nothing is said."""
    from headroom.cli import fleet, nearby

    with progress.shown("reading the cluster", "objects") if told is None else nullcontext(told) as tells:
        near = await nearby.fleet(kube, settings, only, tells)
    found = fleet.glance(near.world, None, only)
    for unseen, names in _OF_LIST.items():
        if any(each.partition(" ")[0] == unseen for each in near.unread):
            found["fleet"] = {name: each for name, each in found["fleet"].items() if name not in names}
    if near.unread:
        found.pop("uncovered", None)  # what one may not see may cover it
    switch = {name: each for name, each in near.switch._asdict().items() if each != ""}
    told_of = {"operator": await fleet.operator(kube, settings), "killSwitch": switch, "unread": list(near.unread)}
    return found | told_of, near.world


# --- showing ----------------------------------------------------------------------------------------------------------------


def _show(found: dict[str, Any], form: Form, everything: bool) -> None:
    if form.is_data:
        output.as_data(found, form)
        return
    if "operator" not in found:
        output.line(PROVISO)
        output.line()
    output.as_fields(head(found))
    for face in FACES.values():
        if face.table is not None:
            face.table(found, everything)
    _show_others(found["others"])


def head(found: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """The lines above the tables, each with its name."""
    yield "As of", found["at"]
    if "operator" in found:
        yield "Operator", _operator(found["operator"])
    switch = found["killSwitch"]
    if not switch["seen"]:
        yield "Stopped", "unknown: you may not see it"
    elif switch["stopped"]:
        since = f" since {switch['since']}" if "since" in switch else ""
        why = f" ({switch['reason']})" if "reason" in switch else ""
        yield "Stopped", output.Toned(f"yes{since}{why}; undo it with `headroom resume`", "bad")
    if not found.get("otherNamespaces"):  # of a namespace that is not there zeros would only look like an answer
        yield from _fleet(found["fleet"])
    if "uncovered" in found:
        hours, burn = found["uncovered"]["gpuHours"], found["uncovered"]["burnRateGpus"]
        if (hours, burn) != ("0.000", "0"):
            some = f"{output.hours(hours)} GPU-hours in the last 24h, {output.counted(burn, 'GPU')} now: no budget counts them"
            yield "Uncovered", some
        elif found["budgets"]:
            yield "Uncovered", "nothing: budgets count every GPU-hour of the last 24h"
    if found["unread"]:
        yield "Not seen", f"{', '.join(found['unread'])}: you may not list them"


def _fleet(fleet: dict[str, Any]) -> Iterator[tuple[str, object]]:
    if fleet.get("nodes"):
        asleep = fleet.get("nodesAsleep", 0)
        down = fleet["nodes"] - fleet["nodesReady"] - asleep
        ready = (f", {asleep} asleep" if asleep else "") + (f", {down} not ready" if down else "")
        held = (
            f"{fleet['held']} of {fleet['gpus']} allocated, {fleet['free']} free"
            if "held" in fleet
            else f"{fleet['gpus']}"
        )
        yield "GPUs", f"{held}, on {output.counted(fleet['nodes'], 'node')}{ready}"
    elif "held" in fleet:
        yield "GPUs", f"{fleet['held']} allocated"
    if "running" in fleet:
        waits = max(0, fleet["waiting"] - fleet["heldPods"])
        yield "Pods", f"{fleet['running']} running, {waits} pending, {fleet['heldPods']} queued by budgets"


def _operator(told: dict[str, Any]) -> object:
    if not told["seen"]:
        return "unknown: you may not see its lease"
    if "holder" not in told:
        return output.Toned("none leads: Headroom counts nothing and does nothing", "bad")
    ago = f"{output.spoken(told['ageMs'])} ago"
    if told["leads"]:
        return f"{told['holder']} leads, lease renewed {ago}"
    return output.Toned(f"none leads: {told['holder']} last renewed its lease {ago}", "bad")


def _show_others(others: list[dict[str, Any]]) -> None:
    """The other kinds: how many there are, and those that are not well."""
    if not others:
        return
    counts = Counter(each["kind"] for each in others)
    ready = Counter(each["kind"] for each in others if each["ready"] == "True")
    output.line()
    output.line("; ".join(f"{kind}: {ready[kind]} of {count} ready" for kind, count in sorted(counts.items())))
    unwell = [each for each in others if each["ready"] != "True"]
    rows = [
        (
            "/".join(filter(None, (each["kind"], each.get("namespace", ""), each["name"]))),
            each["reason"],
            each["message"],
        )
        for each in unwell[:MOST_OTHERS]
    ]
    if rows:
        output.as_table(("NOT READY", "REASON", "MESSAGE"), rows)
    if len(unwell) > MOST_OTHERS:
        output.line(f"and {len(unwell) - MOST_OTHERS} more; -o json has them all")
