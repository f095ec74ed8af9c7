"""`headroom check`: are these manifests right? Every wrong field at once, with its line, and no cluster needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headroom.cli import manifests, output, passing
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.sim.documents import Documents


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Manifests; - is standard input.")],
) -> None:
    """Validate manifests offline, as the API server would.

    Every wrong field is named as FILE:LINE: KIND/NAME: FIELD MESSAGE. Exit code 1 if there is any, and 2 if a file could not
    be read; the others are still checked. Objects that are not of Headroom are passed over.

    Example: headroom check team-a.yaml pools/*.yaml
    """
    from headroom.sim import documents

    found, read = documents.Documents(), []
    manifests.refuse_twice(files)
    for path in files:
        try:
            [(source, text)] = manifests.read([path])
            documents.take(found, source, text, any_group=True)
        except Misconfigured as error:
            output.say(f"headroom: {error}")
        else:
            read.append((source, text))
    _say_passed_over(found, read)
    wrong = [_spoken(each) for each in manifests.complaints(found, read)]
    for complaint in wrong:
        output.line(complaint)
    if wrong:
        among = f" in {_counted(len(found.ours), 'resource')}" if found.ours else ""
        output.say(f"{_counted(len(wrong), 'problem')}{among}")
    elif found.ours:
        output.line(f"{_counted(len(found.ours), 'resource')}, no problems")
    if len(read) < len(files):
        raise typer.Exit(output.COULD_NOT_RUN)
    raise typer.Exit(output.PROBLEMS if wrong else output.OK)


def _say_passed_over(found: Documents, texts: Sequence[manifests.Text]) -> None:
    read_by_plan = {"v1/Pod": len(found.pods), "v1/Node": len(found.nodes)}
    passing.say(found.ignored | {kind: count for kind, count in read_by_plan.items() if count})
    with_ours = {place.source for place in found.ours}
    for source, _ in texts:
        if source not in with_ours:
            output.line(f"nothing of Headroom in {source}")


def _spoken(complaint: manifests.Complaint) -> str:
    named = "/".join(part for part in complaint.resource.values() if part)
    words = [f"{complaint.source}:{complaint.line}:", f"{named}:" if named else "", complaint.field, complaint.message]
    return " ".join(word for word in words if word)


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}" + ("" if count == 1 else "s")
