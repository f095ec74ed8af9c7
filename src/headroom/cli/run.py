"""`headroom run`: the operator itself. Its flags are the fields of `Settings`, one for one."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import msgspec
import typer

from headroom.cli.options import Form
from headroom.model.errors import Misconfigured
from headroom.runtime.settings import PREFIX, Settings


def run(**flags: Any) -> None:
    """Run the operator until SIGTERM or Ctrl-C.

    It uses the cluster of the kubeconfig, or the one it runs in. Every flag is also an environment variable: HEADROOM_LOG_LEVEL for
    --log-level. With --dry-run it reads the cluster, prints what it would do, writes nothing, and ends.

    Example: headroom run --dry-run -o json
    """
    import asyncio

    from headroom.cli import serving
    from headroom.runtime.settings import load

    form, watch = flags.pop("output"), flags.pop("watch")
    settings = load(flags)
    if watch and not settings.dry_run:
        raise Misconfigured("reading the flags: --watch is for a dry run; give --dry-run too, or leave it out")
    if settings.dry_run:
        code = asyncio.run(serving.dry_run(settings, form, watch=watch))
    else:
        code = asyncio.run(serving.serve(settings))
    raise typer.Exit(code)


def _parameters() -> list[inspect.Parameter]:
    """One option for each setting; none is set unless it is given, so that the environment can speak."""
    found = []
    info = msgspec.inspect.type_info(Settings)
    assert isinstance(info, msgspec.inspect.StructType)
    for field in info.fields:
        text = (getattr(field.type, "extra_json_schema", None) or {}).get("description", "")
        kind = type(field.default)
        shown = str(field.default).lower() if kind is bool else field.default
        standard = f" [{shown}]" if shown != "" else ""
        option = typer.Option(
            *_declarations(field.name, kind),
            metavar=None if kind is bool else kind.__name__.upper().replace("STR", "TEXT"),
            help=f"{text} {PREFIX}{field.name.upper()}{standard}",
            show_default=False,
        )
        # Numbers stay the text that they are, so that a wrong one is told in the same words as a wrong variable.
        given = bool if kind is bool else str
        found.append(_parameter(field.name, Annotated[given | None, option], None))
    table = typer.Option("--output", "-o", help="How a dry run prints.", show_default=False)
    watch = typer.Option("--watch", help="With --dry-run: print again whenever the result changes.", show_default=False)
    return [
        *found,
        _parameter("output", Annotated[Form, table], Form.table),
        _parameter("watch", Annotated[bool, watch], False),
    ]


def _declarations(name: str, kind: type) -> tuple[str, ...]:
    flag = name.replace("_", "-")
    return (f"--{flag}/--no-{flag}",) if kind is bool else (f"--{flag}",)


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


# typer reads a command's options from its signature.
run.__signature__ = inspect.Signature(_parameters())  # type: ignore[attr-defined]  # set for typer
run.__annotations__ = {each.name: each.annotation for each in _parameters()}
