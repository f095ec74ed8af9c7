"""`headroom check`: are these manifests right? Every wrong field at once, with its line, and no cluster needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headroom.cli import manifests, output

if TYPE_CHECKING:
    from headroom.api.kinds import AnyResource


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Manifests; - is standard input.")],
) -> None:
    """Validate manifests offline, as the API server would.

    Every wrong field is named as FILE:LINE: KIND/NAME: FIELD MESSAGE. Exit code 1 if there is any. Objects that are not of
    Headroom are passed over.

    Example: headroom check team-a.yaml pools/*.yaml
    """
    found: list[str] = []
    resources = 0
    for source, text in manifests.read(files):
        ours = _resources(source, text)
        resources += len(ours)
        found += _complaints(source, text, ours)
    for complaint in found:
        output.line(complaint)
    if found:
        output.say(f"{_counted(len(found), 'problem')} in {_counted(resources, 'resource')}")
        raise typer.Exit(output.PROBLEMS)
    output.line(f"{_counted(resources, 'resource')}, no problems")


def _resources(source: str, text: bytes) -> dict[int, AnyResource]:
    """Headroom's resources among the objects of a text, each under its number there."""
    from headroom.adapters.kube import parse
    from headroom.sim import documents

    found = enumerate(documents.objects(source, text))
    return {number: parse.resource(each.value) for number, each in found if _is_ours(each.value)}


def _is_ours(value: dict[str, Any]) -> bool:
    from headroom.api.kinds import KINDS
    from headroom.api.resources import GROUP

    group = str(value.get("apiVersion", "")).partition("/")[0]
    return group == GROUP or value.get("kind") in KINDS


def _complaints(source: str, text: bytes, ours: dict[int, AnyResource]) -> Iterator[str]:
    from headroom.api.kinds import KINDS
    from headroom.model.world import ref_of

    if not any(resource.problems for resource in ours.values()):
        return
    lines = manifests.Lines(text)
    for number, resource in ours.items():
        placed = [(lines.of(number, problem.field), problem) for problem in resource.problems]
        for line, problem in sorted(placed, key=lambda pair: pair[0]):
            old = problem.field == "apiVersion" and resource.kind in KINDS
            hint = "; `headroom convert` changes it" if old else ""
            what = f"{problem.field} " if problem.field else ""
            yield f"{source}:{line}: {ref_of(resource)}: {what}{problem.message}{hint}"


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}" + ("" if count == 1 else "s")
