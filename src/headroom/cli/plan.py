"""`headroom plan`: one tick on plain manifests, with no cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headroom.cli.options import Files, Form, Now, Output
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.sim.documents import Documents


def plan(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="Manifests, as with --file.")] = None,
    files: Files = None,
    now: Now = "",
    form: Output = Form.table,
    cluster_id: Annotated[str, typer.Option(metavar="ID", help="The cluster's id on cloud objects.")] = "default",
) -> None:
    """Decide once on manifests and print what would be done. No cluster is needed.

    The files hold Headroom's resources, what `kubectl get pods,nodes -A -o yaml` prints, and facts from outside as
    documents of group sim.headroom.dev/v1. They are taken for the complete view. Exit code 1 if a resource is invalid.

    Example: headroom plan -f team-a.yaml -f pods.yaml --now 2026-01-31T12:00:00Z -o json
    """
    from headroom.cli import manifests, passing, planning
    from headroom.sim import documents

    given = [*(paths or ()), *(files or ())]
    if not given:
        raise Misconfigured("reading manifests: none are given; write `headroom plan FILE`, - being standard input")
    texts = manifests.read(given)
    found = documents.read(texts)
    passing.say(found.ignored)
    complaints = manifests.complaints(found, texts)
    problems = [(each.resource, each.field, each.message) for each in complaints]
    result = planning.planned(found.world(moment(now), cluster_id), problems)
    planning.show(result, form)
    raise typer.Exit(planning.exit_code(result))


def documents_of(files: list[Path]) -> Documents:
    """What stands in some files."""
    from headroom.cli import manifests
    from headroom.sim import documents

    return documents.read(manifests.read(files))


def moment(text: str) -> int:
    """The moment in milliseconds; now if the text is empty."""
    from headroom.model import times
    from headroom.runtime.clock import RealClock

    if not text:
        return RealClock().now()
    found = times.moment(text)
    if found is None:
        raise Misconfigured(f"reading --now: {text!r} is no moment; write it like 2026-01-31T12:00:00Z")
    return found
