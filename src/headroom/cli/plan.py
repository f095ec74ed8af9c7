"""`headroom plan`: one tick on plain manifests, with no cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headroom.cli.options import Files, Form, Now, Output
from headroom.model.errors import Misconfigured


def plan(
    paths: Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="Manifests, as with --file.")] = None,
    files: Files = None,
    now: Now = "",
    form: Output = Form.table,
    cluster_id: Annotated[str, typer.Option(metavar="ID", help="The cluster's id on cloud objects.")] = "default",
) -> None:
    """Decide once on manifests and print what would be done.

    The files hold Headroom's resources, what `kubectl get pods,nodes -A -o yaml` prints, and facts from outside as
    documents of group sim.headroom.dev/v1. They are taken for the complete view; no cluster is needed. Exit code 1 if a resource is invalid.

    Example: headroom plan docs/examples/budget-used-up.yaml --now 2026-11-15T12:00:00Z
    """
    from headroom.cli import planning, worlds

    named = [*(paths or ()), *(files or ())]
    if not named:
        raise Misconfigured("reading manifests: none are given; write `headroom plan FILE`, - being standard input")
    given = worlds.documents_of(named, worlds.moment(now), cluster_id)
    result = planning.planned(given.world, given.problems)
    planning.show(result, form)
    raise typer.Exit(planning.exit_code(result))
