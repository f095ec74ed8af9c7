"""`headroom replay`: what would be decided on a saved world."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headroom.cli.options import AllNamespaces, Form, Namespace, Output


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A snapshot from `headroom snapshot`; - is stdin.")],
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    form: Output = Form.table,
) -> None:
    """Decide once on a snapshot and print the effects due.

    No cluster is needed.

    Example: headroom replay world.json -o json
    """
    from headroom.cli import planning, worlds

    result = planning.planned(worlds.saved(file), namespace="" if all_namespaces else namespace)
    planning.show(result, form)
    raise typer.Exit(planning.exit_code(result))
