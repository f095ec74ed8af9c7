"""`headroom check`: are these manifests right? Every wrong field at once, with its line, and no cluster needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headroom.cli import manifests, output, passing
from headroom.cli.options import Form, Output
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.sim.documents import Documents


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Manifests; - is standard input.")],
    form: Output = Form.table,
) -> None:
    """Validate manifests offline, as the API server would.

    Every wrong field is named as FILE:LINE: KIND/NAME: FIELD MESSAGE. What is allowed and hardly meant, such as a ladder that evicts
    pods which start again at once, is a warning. Exit code 1 if a field is wrong, and 2 if a file could not be read; the others are
    still checked. Objects that are not of Headroom are passed over.

    Example: headroom check docs/examples/*.yaml
    """
    from headroom.sim import documents

    found, read, unread = documents.Documents(), [], []
    manifests.refuse_twice(files)
    for path in files:
        try:
            [(source, text)] = manifests.read([path])
            documents.take(found, source, text, any_group=True)
        except Misconfigured as error:
            unread.append(str(error))
            output.say(f"headroom: {error}")
        else:
            read.append((source, text))
    wrong, dubious = manifests.complaints(found, read), manifests.warnings(found, read)
    if form.is_data:
        output.as_data(_wire(found, wrong, dubious, unread), form)
    else:
        _show(found, read, wrong, dubious)
    if unread:
        raise typer.Exit(output.COULD_NOT_RUN)
    raise typer.Exit(output.PROBLEMS if wrong else output.OK)


def _show(
    found: Documents,
    texts: Sequence[manifests.Text],
    wrong: Sequence[manifests.Complaint],
    dubious: Sequence[manifests.Complaint],
) -> None:
    passing.say(passed_over(found), "only resources of Headroom are checked")
    # A price book is read by Headroom too, and checked.
    with_ours = {place.source for place in found.ours}
    with_ours |= {place.source for ref, place in found.places.items() if ref.kind == "ConfigMap"}
    for source, _ in texts:
        if source not in with_ours:
            output.line(f"nothing of Headroom in {source}")
    for complaint in wrong:
        output.line(manifests.spoken(complaint), hang=2)
    for complaint in dubious:
        output.line(manifests.spoken(complaint, "warning: "), hang=2)
    among = f" in {output.counted(len(found.ours), 'resource')}" if found.ours else ""
    warned = f" and {output.counted(len(dubious), 'warning')}" if dubious else ""
    if wrong:
        output.say(f"{output.counted(len(wrong), 'problem')}{warned}{among}")
    elif found.ours:
        more = f", {output.counted(len(dubious), 'warning')}" if dubious else ""
        output.line(f"{output.counted(len(found.ours), 'resource')}, no problems{more}")


def passed_over(found: Documents) -> dict[str, int]:
    """What is not ours: `plan` reads pods and nodes, and here they mean nothing either."""
    read_by_plan = {"v1/Pod": len(found.pods), "v1/Node": len(found.nodes)}
    return found.ignored | {kind: count for kind, count in read_by_plan.items() if count}


def _wire(
    found: Documents,
    wrong: Sequence[manifests.Complaint],
    dubious: Sequence[manifests.Complaint],
    unread: Sequence[str],
) -> dict[str, Any]:
    def listed(complaints: Sequence[manifests.Complaint]) -> list[dict[str, Any]]:
        return [
            {
                "file": each.source,
                "line": each.line,
                "resource": each.resource,
                "field": each.field,
                "message": each.message,
            }
            for each in complaints
        ]

    return {
        "resources": len(found.ours),
        "problems": listed(wrong),
        "warnings": listed(dubious),
        "passedOver": passed_over(found),
        "unread": list(unread),
    }
