"""`headroom explain`: why a resource is as it is, and what is due."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from headroom.cli.options import Context, Form, Kubeconfig, Namespace, Now, Output
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.api.kinds import AnyResource
    from headroom.cli.explain_pods import ToldOfPod
    from headroom.model.decisions import Decision, Ref
    from headroom.model.world import World

MOST_NEAR: Final = 3
MOST_LISTED: Final = 20


def explain(
    what: Annotated[
        str,
        typer.Argument(
            metavar="KIND/[NAMESPACE/]NAME", help="A resource of ours, or a pod, job or jobset; short names do."
        ),
    ],
    files: Annotated[
        list[Path] | None, typer.Option("--file", "-f", metavar="FILE", help="Look into manifests, not a cluster.")
    ] = None,
    now: Now = "",
    form: Output = Form.table,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Say of one resource what was decided, why, and what is due; of a pod, why it waits or was stopped, and until when.

    Of a pod, a cluster is asked what the operator has written down last; with files, it is decided anew.

    Example: headroom explain gwb/lab/team-a

    Example: headroom explain pod/lab/train-0
    """
    from headroom.cli import explain_pods, live, nearby, output
    from headroom.cli.plan import documents_of, moment

    asked = _asked(what)
    if files:
        told = _explained(documents_of(files).world(moment(now)), asked, in_files=True)
    else:
        settings = live.settings_of(kubeconfig, context, namespace)

        async def work(kube: Kube) -> Told | ToldOfPod:
            if asked[0] in explain_pods.WORDS.values():
                near = await nearby.read(kube, settings, asked[1])
                return explain_pods.told(near.world, asked, in_files=False, unread=near.unread)
            async with live.observed(kube, settings) as port:
                # The view is only good until the next await.
                return _explained(await live.world(port, kube, settings), asked)

        told = live.with_cluster(settings, work)
    if form is Form.json:
        output.as_json(told.wire())
    else:
        for line in told.lines():
            output.line(line)


def _asked(what: str) -> tuple[str, str, str]:
    from headroom.api.kinds import KINDS
    from headroom.cli.explain_pods import WORDS

    first, *rest = what.split("/")
    ours = {word.lower(): kind.name for kind in KINDS.values() for word in (kind.name, kind.plural, *kind.short_names)}
    words = {**ours, **WORDS}
    kind = words.get(first.lower())
    if not rest and kind is None:
        raise Misconfigured(f"reading {what!r}: write KIND/[NAMESPACE/]NAME, such as gwb/lab/team-a")
    if kind is None:
        near = offered(first.lower(), {word: word for word in words})
        known = ", ".join(f"{each.name} ({each.short_names[0]})" for each in KINDS.values())
        known += f"; also {', '.join(sorted(set(WORDS.values())))}"
        raise Misconfigured(f"reading {what!r}: there is no kind {first!r}{near}; the kinds are {known}")
    if not 1 <= len(rest) <= 2 or not all(rest):
        raise Misconfigured(f"reading {what!r}: write KIND/[NAMESPACE/]NAME, such as gwb/lab/team-a")
    return kind, rest[0] if len(rest) == 2 else "", rest[-1]


def offered(word: str, words: dict[str, str]) -> str:
    """A question about those of the words that look alike, each shown as its value."""
    import difflib

    found = difflib.get_close_matches(word, list(words), n=MOST_NEAR, cutoff=0.5)
    return f" (did you mean {' or '.join(words[each] for each in found)}?)" if found else ""


def _find(world: World, what: tuple[str, str, str], *, in_files: bool) -> Ref:
    kind, namespace, name = what
    refs = [ref for ref, _ in world.of_kind(kind)]
    found = [ref for ref in refs if ref.name == name and (not namespace or ref.namespace == namespace)]
    if len(found) == 1:
        return found[0]
    if found:
        raise Misconfigured(f"looking for {kind}/{name}: there are {', '.join(map(str, found))}; say which")
    asked = "/".join(part for part in (kind, namespace, name) if part)
    # The names alone are compared: the kind is the same for all, and would make everything look alike.
    names = {f"{ref.namespace}/{ref.name}" if namespace else ref.name: str(ref) for ref in reversed(refs)}
    near = offered(f"{namespace}/{name}" if namespace else name, names)
    where = f"`kubectl get {kind.lower()} -A` lists them all"
    if in_files:
        where = f"there are {listed([str(each) for each in sorted(world.resources)])}"
    raise Misconfigured(f"looking for {asked}: there is none{near}; {where}")


def listed(names: list[str]) -> str:
    """Names one after the other, not too many."""
    more = len(names) - MOST_LISTED
    shown = ", ".join(names[:MOST_LISTED]) or "no resources of Headroom in what was given"
    return f"{shown} and {more} more" if more > 0 else shown


class Told(NamedTuple):
    """What there is to say of one resource."""

    ref: Ref
    resource: AnyResource
    stopped: bool
    decision: Decision | None

    def wire(self) -> dict[str, Any]:
        """The form for machines."""
        return {
            "resource": {"kind": self.ref.kind, "namespace": self.ref.namespace, "name": self.ref.name},
            "problems": [{"field": each.field, "message": each.message} for each in self.resource.problems],
            "stopped": self.stopped,
            "decision": self.decision.wire() if self.decision else None,
        }

    def lines(self) -> Iterator[str]:
        """The form for people."""
        from headroom.model.decisions import status_wire

        yield str(self.ref)
        for problem in self.resource.problems:
            yield f"problem: {problem.field} {problem.message}"
        if self.decision is None:
            yield "No decision is made on a resource with problems; correct it and apply it again."
            return
        yield f"reason: {self.decision.reason}"
        yield f"message: {self.decision.message}"
        if self.stopped:
            yield "stopped: all effects are stopped cluster-wide, so nothing below is carried out"
        if self.resource.spec.paused:
            yield "paused: this resource is paused, so nothing below is carried out"
        for each in self.decision.status.conditions:
            yield f"condition: {each.type} {each.status} {each.reason} since {each.last_transition_time}: {each.message}"
        for name, value in status_wire(self.decision.status).items():
            if name not in ("conditions", "observedGeneration"):
                yield f"status: {name} {_plain(value)}"
        for action in self.decision.wire()["actions"] or [{"type": "none"}]:
            yield f"action due: {' '.join(_spoken(action))}"
        yield f"looks again after: {-(-self.decision.look_again_ms // 1000)} s at the latest"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={_nested(each)}" for name, each in value.items())
    return "; ".join(map(_plain, value)) if isinstance(value, list | tuple) else str(value)


def _nested(value: Any) -> str:
    return f"[{_plain(value)}]" if isinstance(value, dict | list | tuple) else str(value)


def _spoken(action: dict[str, Any]) -> Iterator[str]:
    for name, value in action.items():
        yield str(value) if name == "type" else f"{name}={value}"


def _explained(world: World, asked: tuple[str, str, str], *, in_files: bool = False) -> Told | ToldOfPod:
    from headroom.cli import explain_pods, planning

    if asked[0] in explain_pods.WORDS.values():
        return explain_pods.told(world, asked, in_files=True)
    ref = _find(world, asked, in_files=in_files)
    decision = next((each for each in planning.decisions(world) if each.resource == ref), None)
    return Told(ref, world.resources[ref], world.stopped, decision)
