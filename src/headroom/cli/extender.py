"""`headroom extender`: the process that kube-scheduler asks about bandwidth, and the configuration that makes it ask."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

import msgspec
import typer

from headroom.cli.options import Context, Kubeconfig, OperatorNamespace
from headroom.runtime.extender_settings import PREFIX, ExtenderSettings


def extender(**flags: Any) -> None:
    """Answer kube-scheduler where bandwidth pods may go, until SIGTERM or Ctrl-C.

    It reserves bandwidth on the nodes that it answers, keeps siblings together and refuses nodes whose links are full. It has its own
    watches of nodes, pods and Bandwidths, so it does not need the operator; its bandwidth settings are those of `headroom run`
    (HEADROOM_BANDWIDTH_...).

    Example: headroom extender --scheduler-config
    """
    import asyncio

    from headroom.cli import extender_process, live, scheduler_config

    settings = live.settings_of(flags.pop("kubeconfig"), flags.pop("context"), flags.pop("operator_namespace"))
    prints, profile, url = (flags.pop(name) for name in ("scheduler_config", "scheduler_name", "url"))
    given = ExtenderSettings(**flags)
    if prints:
        scheduler_config.show(settings, given, profile, url)
        return
    raise typer.Exit(asyncio.run(extender_process.serve(settings, given)))


def _parameters() -> list[inspect.Parameter]:
    """Which cluster, one option for each setting, and what is printed instead."""
    found = [
        _parameter(name, annotation, None)
        for name, annotation in (
            ("kubeconfig", Kubeconfig),
            ("context", Context),
            ("operator_namespace", OperatorNamespace),
        )
    ]
    info = msgspec.inspect.type_info(ExtenderSettings)
    assert isinstance(info, msgspec.inspect.StructType)
    for field in info.fields:
        typed = field.type.type if isinstance(field.type, msgspec.inspect.Metadata) else field.type
        least, most = (typed.ge, typed.le) if isinstance(typed, msgspec.inspect.IntType) else (None, None)
        option = typer.Option(
            envvar=PREFIX + field.name.upper(),
            metavar={str: "TEXT", int: "INT"}.get(type(field.default)),
            help=(getattr(field.type, "extra_json_schema", None) or {}).get("description", ""),
            min=least,
            max=most,
            show_default=field.default not in ("", False),
        )
        found.append(_parameter(field.name, Annotated[type(field.default), option], field.default))
    prints = typer.Option(
        "--scheduler-config", help="Print a KubeSchedulerConfiguration that asks the extender, and end."
    )
    profile = typer.Option(metavar="NAME", help="With --scheduler-config: the name of the profile.")
    url = typer.Option(metavar="URL", help="With --scheduler-config: where kube-scheduler reaches the extender.")
    return [
        *found,
        _parameter("scheduler_config", Annotated[bool, prints], False),
        _parameter("scheduler_name", Annotated[str, profile], "default-scheduler"),
        _parameter("url", Annotated[str, url], ""),
    ]


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


# typer reads a command's options from its signature.
extender.__signature__ = inspect.Signature(_parameters())  # type: ignore[attr-defined]  # set for typer
extender.__annotations__ = {each.name: each.annotation for each in _parameters()}
