"""`headroom plan`: one tick on plain manifests, with no cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from headroom.cli.options import AllNamespaces, Files, Form, MoreFiles, Namespace, Now, Output, Recursive
from headroom.model.errors import Misconfigured


def plan(
    paths: MoreFiles = None,
    files: Files = None,
    recursive: Recursive = False,
    now: Now = "",
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    form: Output = Form.table,
    exit_code: Annotated[
        bool,
        typer.Option("--exit-code", help="Exit with 0 if nothing is due, 2 if something is, 1 for any failure."),
    ] = False,
    cluster_id: Annotated[str, typer.Option(metavar="ID", help="The cluster's id on cloud objects.")] = "default",
) -> None:
    """Print what Headroom would do with manifests, without a cluster.

    The files have Headroom's resources, the output of `kubectl get pods,nodes -A -o yaml`, and facts from outside the cluster as
    documents of group sim.headroom.dev/v1. They count as the complete view. Each effect is a line with + (starts), ~ (changes)
    or - (ends), with its reason beneath. Exit code 1 if a resource is invalid.

    Example: headroom plan docs/examples/budget-used-up.yaml --now 2026-11-15T12:00:00Z

    Example: kubectl get pods,nodes,gwb,sp,pp -A -o yaml | headroom plan - --exit-code
    """
    from headroom.cli import planning, worlds

    named = [*(paths or ()), *(files or ())]
    if not named:
        raise Misconfigured("reading manifests: none are given; write `headroom plan FILE`, - being standard input")
    given = worlds.documents_of(named, worlds.moment(now), cluster_id, recursive=recursive)
    result = planning.planned(given.world, given.problems, "" if all_namespaces else namespace)
    planning.show(result, form)
    raise typer.Exit(planning.due_code(result) if exit_code else planning.exit_code(result))
