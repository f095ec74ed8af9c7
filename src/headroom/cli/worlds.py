"""Worlds without a cluster: from manifests, or from what `headroom snapshot` saved."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.cli.planning import Problems
    from headroom.model.world import World


PROVISO: Final = "Dry run: nothing was changed."
"""Stands above what is decided on a world that was given."""


class Given(NamedTuple):
    """A world that somebody gave us, and what is wrong with it."""

    world: World
    problems: Problems


def given(files: list[Path] | None, snapshot: Path | None, now: str, *, recursive: bool = False) -> Given:
    """The world of some manifests, or of a snapshot. Raises `Misconfigured` if both are given, or neither can be read."""
    from headroom.cli import planning

    if files and snapshot is not None:
        raise Misconfigured("reading the flags: --file and --from cannot be combined; give one of them")
    if snapshot is None:
        return documents_of(files or [], moment(now), recursive=recursive)
    if now:
        raise Misconfigured("reading the flags: a snapshot has its own time; omit --now")
    world = saved(snapshot)
    return Given(world, planning.problems_of(world))


def saved(file: Path) -> World:
    """The world in a snapshot."""
    import msgspec

    from headroom.cli import manifests
    from headroom.model.snapshots import load

    [(source, text)] = manifests.read([file])
    try:
        return load(text)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise Misconfigured(
            f"reading {source}: it is not a snapshot ({error}); make one with `headroom snapshot`"
        ) from error


def documents_of(files: list[Path], now: int, cluster: str = "default", *, recursive: bool = False) -> Given:
    """What stands in some files; what means nothing here is said."""
    from msgspec import structs

    from headroom.adapters import documents
    from headroom.adapters.kube import values
    from headroom.cli import live, manifests, passing
    from headroom.runtime.bandwidth_settings import rules_of

    bandwidth = rules_of(live.settings_of(None, None))
    values.keep(key.name for key in bandwidth.keys)
    texts = manifests.read_manifests(files, recursive=recursive)
    found = documents.read(texts)
    passing.say(found.ignored)
    complaints = manifests.complaints(found, texts)
    world = structs.replace(found.world(now, cluster), bandwidth=bandwidth)
    _warn_of_schedules(world)
    return Given(world, [(each.resource, each.field, each.message) for each in complaints])


def _warn_of_schedules(world: World) -> None:
    """Name CronJobs that never run; in a cluster the API server refuses most of them."""
    if not world.cron_jobs:
        return
    from headroom.cli import output
    from headroom.core import demand

    for key, each in sorted(world.cron_jobs.items()):
        wrong = demand.problem_of(each.schedule, each.time_zone)
        if wrong is not None:
            output.say(f"{key}: {wrong[0]} {wrong[1]}; no machine is woken ahead of its runs")


def moment(text: str) -> int:
    """The moment in milliseconds; now if the text is empty."""
    from headroom.model import times
    from headroom.runtime.clock import RealClock

    if not text:
        return RealClock().now()
    found = times.moment(text)
    if found is None:
        raise Misconfigured(f"reading --now: {text!r} is not a time; write it like 2026-01-31T12:00:00Z")
    return found
