"""`headroom replay`: what would be decided on a saved world."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headroom.cli.options import Form, Output


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `headroom snapshot` wrote; - is standard input.")],
    form: Output = Form.table,
) -> None:
    """Decide once on a saved world and print what would be done. No cluster is needed.

    Example: headroom replay world.json -o json
    """
    import msgspec

    from headroom.cli import manifests, planning
    from headroom.model.errors import Misconfigured
    from headroom.model.world import load

    [(source, text)] = manifests.read([file])
    try:
        world = load(text)
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise Misconfigured(
            f"reading {source}: it is no snapshot ({error}); make one with `headroom snapshot`"
        ) from error
    result = planning.planned(world)
    planning.show(result, form)
    raise typer.Exit(planning.exit_code(result))
