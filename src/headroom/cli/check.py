"""`headroom check`: are these manifests right? Every wrong field at once, with its line, and no cluster needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from headroom.cli import addresses, manifests, output, passing
from headroom.cli.options import Files, Form, MoreFiles, Output, Recursive
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.adapters.documents import Documents
    from headroom.api.kinds import AnyResource
    from headroom.api.schema import Problem
    from headroom.model.bandwidth import BandwidthRules


def check(
    paths: MoreFiles = None,
    files: Files = None,
    recursive: Recursive = False,
    form: Output = Form.table,
) -> None:
    """Validate manifests offline, like the API server.

    Every mistake is printed as FILE:LINE: KIND/NAME: FIELD MESSAGE. Valid but probably unintended settings are warnings, such as
    an Evict step whose pods start again at once. Addresses that the operator would never call are mistakes; for all others, it
    prints the entries needed in --allow-egress and the annotations needed on Secrets. Other objects are skipped, except for
    bandwidth annotations of Pods and Nodes. Exit code 1 if a field is wrong, and 2 if a file could not be read.

    Example: headroom check docs/examples/*.yaml
    """
    from headroom.adapters import documents

    named, rules = [*(paths or ()), *(files or ())], _rules()
    if not named:
        raise Misconfigured("reading manifests: none are given; write `headroom check FILE`, - being standard input")
    found, read = documents.Documents(), []
    unread: list[str] = []
    manifests.refuse_twice(named)
    for path in _files(named, unread, recursive=recursive):
        try:
            [(source, text)] = manifests.read_manifests([path])
            documents.take(found, source, text, any_group=True)
        except Misconfigured as error:
            unread.append(str(error))
        else:
            read.append((source, text))
    for why in unread:
        output.say(f"headroom: {why}")
    judged = Judged(
        wrong=manifests.ordered(
            [*manifests.complaints(found, read), *manifests.remarks(found, read, addresses.refused)], read
        ),
        dubious=_all_dubious(found, read, rules),
        egress=addresses.entries(each for each in found.resources if not each.problems),
        secrets=addresses.secret_uses(each for each in found.resources if not each.problems),
    )
    if form.is_data:
        output.as_data(_wire(found, judged, unread), form)
    else:
        _show(found, read, judged)
    if unread:
        raise typer.Exit(output.COULD_NOT_RUN)
    raise typer.Exit(output.PROBLEMS if judged.wrong else output.OK)


def _files(named: Sequence[Path], unread: list[str], *, recursive: bool) -> Iterator[Path]:
    """The files that are meant; a folder without any, or a pattern that no file has, is noted."""
    for path in named:
        try:
            yield from manifests.files_of([path], recursive=recursive)
        except Misconfigured as error:
            unread.append(str(error))


def _rules() -> BandwidthRules:
    """What the settings say of bandwidth, whose annotations are read from now on."""
    from headroom.adapters.kube import values
    from headroom.cli import live
    from headroom.runtime.bandwidth_settings import rules_of

    rules = rules_of(live.settings_of(None, None))
    values.keep(key.name for key in rules.keys)
    return rules


def _all_dubious(found: Documents, texts: Sequence[manifests.Text], rules: BandwidthRules) -> list[manifests.Complaint]:
    from headroom.cli import live
    from headroom.cli.unreadable_rates import unreadable_rates
    from headroom.cli.untolerated import untolerated
    from headroom.runtime.settings import pool_namespaces

    ours = manifests.remarks(found, texts, lambda each: _dubious(each, found))
    said = [*unreadable_rates(found, rules), *untolerated(found, pool_namespaces(live.settings_of(None, None)))]
    return manifests.ordered([*ours, *manifests.remarks_on(found, texts, said)], texts)


def _dubious(resource: AnyResource, found: Documents) -> list[Problem]:
    from headroom.cli.capabilities import face_of
    from headroom.model.world import ref_of

    advice = face_of(resource.kind).advice
    if advice is None or resource.spec is None:
        return []
    return advice(resource, found.given.get(ref_of(resource), ()), found.resources)


class Judged(NamedTuple):
    """What was found."""

    wrong: Sequence[manifests.Complaint]
    dubious: Sequence[manifests.Complaint]
    egress: list[str]
    """What the operator must be allowed to call for these files to work."""
    secrets: dict[str, list[str]]
    """What their Secrets must say of who uses them."""


def _show(found: Documents, texts: Sequence[manifests.Text], judged: Judged) -> None:
    wrong, dubious, *_ = judged
    passing.say(passed_over(found), "only resources of Headroom are checked")
    # A price book is read by Headroom too, and checked.
    with_ours = {place.source for place in found.ours}
    with_ours |= {place.source for ref, place in found.places.items() if ref.kind == "ConfigMap"}
    for source, _ in texts:
        if source not in with_ours:
            output.say(f"nothing of Headroom in {source}")
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
    if judged.egress:
        output.say(addresses.hint(judged.egress))
    if judged.secrets:
        output.say(addresses.secrets_hint(judged.secrets))


def passed_over(found: Documents) -> dict[str, int]:
    """What is not ours: `plan` reads pods, nodes and node classes, and here they mean nothing either."""
    from headroom.api.offers import NODE_CLASSES

    classes = Counter(f"{NODE_CLASSES[each.kind]}/{each.kind}" for each in found.of("node_classes"))
    read_by_plan = {"v1/Pod": len(found.pods), "v1/Node": len(found.nodes)} | classes
    return found.ignored | {kind: count for kind, count in read_by_plan.items() if count}


def _wire(found: Documents, judged: Judged, unread: Sequence[str]) -> dict[str, Any]:
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
        "problems": listed(judged.wrong),
        "warnings": listed(judged.dubious),
        "allowEgress": judged.egress,
        "usableBy": judged.secrets,
        "passedOver": passed_over(found),
        "unread": list(unread),
    }
