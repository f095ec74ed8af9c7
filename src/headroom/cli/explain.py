"""`headroom explain`: why a resource is as it is, and what is due."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple

import typer

from headroom.cli.options import (
    Context,
    FilesInstead,
    Form,
    From,
    Kubeconfig,
    MoreFiles,
    Now,
    OperatorNamespace,
    Output,
    Recursive,
)
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.api.kinds import AnyResource
    from headroom.cli.explain_pods import ToldOfPod
    from headroom.cli.face import Tells
    from headroom.model.decisions import Decision, Ref
    from headroom.model.world import World
    from headroom.runtime.settings import Settings

MOST_NEAR: Final = 3
ALIKE: Final = 0.5
"""How alike two names are, from 0 to 1, of which one may be a slip for the other."""
MOST_LISTED: Final = 20
_NOT_YET: Final = "No operator has looked at it yet. Headroom would decide this now:"


_What = Annotated[
    str,
    typer.Argument(
        metavar="KIND/[NAMESPACE/]NAME",
        help="A Headroom resource, a pod, job or jobset, or a machine; short names work.",
    ),
]
_Namespace = Annotated[
    str,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAMESPACE",
        help="Its namespace; by default that of the context, or any in files.",
    ),
]
_Anywhere = Annotated[bool, typer.Option("--all-namespaces", "-A", help="Search all namespaces.")]


def explain(
    what: _What,
    paths: MoreFiles = None,
    files: FilesInstead = None,
    recursive: Recursive = False,
    snapshot: From = None,
    now: Now = "",
    namespace: _Namespace = "",
    all_namespaces: _Anywhere = False,
    form: Output = Form.table,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    operator_namespace: OperatorNamespace = None,
) -> None:
    """Explain the state of a resource, a pod or a machine.

    For a resource: the decision, its reason, and the effects due. For a pod: why it is queued, pending or stopped, its estimated
    start, and the machine that wakes for it. For a machine: its state and why. In a cluster the answer comes from the operator's
    last status; with files, or before an operator has looked, Headroom decides anew. The default namespace is that of the
    context, as with kubectl.

    Example: headroom explain gwb/lab/team-a

    Example: headroom explain pod/lab/train-0

    Example: headroom explain pp/basement

    Example: headroom explain pod/lab/next -f docs/examples/budget-used-up.yaml --now 2026-11-15T12:00:00Z
    """
    from headroom.cli import live, worlds

    asked = _in_namespace(_asked(what), "" if all_namespaces else namespace)
    named = [*(files or ()), *(paths or ())]
    if named or snapshot:
        told = _explained(worlds.given(named, snapshot, now, recursive=recursive).world, asked, in_files=True)
        head = worlds.PROVISO
    else:
        settings = live.settings_of(kubeconfig, context, operator_namespace)
        if not all_namespaces:
            asked = _in_namespace(asked, asked[1] or live.namespace_of(settings))

        async def work(kube: Kube) -> Tells:
            return await _in_cluster(kube, settings, asked)

        told = live.with_cluster(settings, work)
        head = _NOT_YET
    _print(told, head if told.is_plan else "", form)


def _print(told: Tells, head: str, form: Form) -> None:
    from headroom.cli import output

    if form.is_data:
        output.as_data(told.wire(), form)
        return
    if head:
        output.line(head)
        output.line()
    told.show()


def _asked(what: str) -> tuple[str, str, str]:
    from headroom.api.kinds import KINDS
    from headroom.cli.capabilities import PARTS
    from headroom.cli.explain_pods import WORDS

    first, *rest = what.split("/")
    ours = {word.lower(): kind.name for kind in KINDS.values() for word in (kind.name, kind.plural, *kind.short_names)}
    words = {**ours, **WORDS, **{word: part.name for part in PARTS.values() for word in part.words}}
    kind = words.get(first.lower())
    if not rest and kind is None:
        raise Misconfigured(f"reading {what!r}: write KIND/[NAMESPACE/]NAME, such as gwb/lab/team-a")
    if kind is None:
        near = offered(first.lower(), {word: word for word in words})
        known = ", ".join(f"{each.name} ({each.short_names[0]})" for each in KINDS.values())
        known += f"; also {', '.join(sorted({*WORDS.values(), *PARTS}))}"
        raise Misconfigured(f"reading {what!r}: there is no kind {first!r}{near}; the kinds are {known}")
    if not 1 <= len(rest) <= 2 or not all(rest):
        raise Misconfigured(f"reading {what!r}: write KIND/[NAMESPACE/]NAME, such as gwb/lab/team-a")
    return kind, rest[0] if len(rest) == 2 else "", rest[-1]


def _in_namespace(asked: tuple[str, str, str], namespace: str) -> tuple[str, str, str]:
    """The same in that namespace, unless it is of a kind that has none."""
    from headroom.api.kinds import KINDS
    from headroom.cli.capabilities import PARTS

    kind, written, name = asked
    if not namespace or kind in PARTS or (kind in KINDS and not KINDS[kind].namespaced):
        return asked
    if written not in ("", namespace):
        raise Misconfigured(
            f"reading {kind}/{written}/{name}: -n {namespace} names another namespace; give one of them"
        )
    return kind, namespace, name


def offered(word: str, words: dict[str, str]) -> str:
    """A question about those of the words that look alike, each shown as its value."""
    import difflib

    def alike(other: str) -> bool:
        # One namespace makes every name in it look alike.
        return difflib.SequenceMatcher(None, word.rpartition("/")[2], other.rpartition("/")[2]).ratio() >= ALIKE

    found = filter(alike, difflib.get_close_matches(word, list(words), n=MOST_NEAR, cutoff=ALIKE))
    near = " or ".join(words[each] for each in found)
    return f" (did you mean {near}?)" if near else ""


def find(world: World, what: tuple[str, str, str], *, in_files: bool) -> Ref:
    """The resource that is meant. Raises `Misconfigured` if there is none, or more than one, and names what is near."""
    kind, namespace, name = what
    refs = [ref for ref, _ in world.of_kind(kind)]
    found = [ref for ref in refs if ref.name == name and (not namespace or ref.namespace == namespace)]
    if len(found) == 1:
        return found[0]
    if found:
        raise Misconfigured(f"looking for {kind}/{name}: several match: {', '.join(map(str, found))}; name one")
    asked = "/".join(part for part in (kind, namespace, name) if part)
    # The names alone are compared: the kind is the same for all, and would make everything look alike.
    names = {f"{ref.namespace}/{ref.name}" if namespace else ref.name: str(ref) for ref in reversed(refs)}
    near = offered(f"{namespace}/{name}" if namespace else name, names)
    where = f"`kubectl get {kind.lower()} -A` lists them all"
    if in_files:
        where = f"the files have {listed([str(each) for each in sorted(world.resources)])}"
    raise Misconfigured(f"looking for {asked}: not found{near}; {where}")


def listed(names: list[str]) -> str:
    """Names one after the other, not too many."""
    more = len(names) - MOST_LISTED
    shown = ", ".join(names[:MOST_LISTED]) or "no resources of Headroom in what was given"
    return f"{shown} and {more} more" if more > 0 else shown


async def _pod_in_cluster(kube: Kube, settings: Settings, asked: tuple[str, str, str]) -> ToldOfPod:
    """A pod or its owner: few rights tell which budget holds it; which machine wakes for it takes sight of the whole cluster."""
    from headroom.cli import explain_pods, nearby, planning

    near = await nearby.read(kube, settings, asked[1], asked[2] if asked[0] == "Pod" else "")
    told = explain_pods.told(near.world, asked, in_files=False, unread=near.unread)
    if not explain_pods.waits_for_a_place(told):
        return told
    seen = await nearby.machines(kube, settings, asked[1])
    if nearby.is_enough(seen):
        told = explain_pods.with_answer(told, planning.capacity_round(seen.world, by_status=True))
    else:
        told = explain_pods.with_written_answer(told, seen.world)
    return told._replace(unread=tuple(dict.fromkeys((*told.unread, *seen.unread))))


async def _in_cluster(kube: Kube, settings: Settings, asked: tuple[str, str, str]) -> Tells:
    from headroom.cli import explain_pods
    from headroom.cli.capabilities import PARTS

    if asked[0] in explain_pods.WORDS.values():
        return await _pod_in_cluster(kube, settings, asked)
    if asked[0] in PARTS:
        return await PARTS[asked[0]].written(kube, settings, asked[2])
    return await _resource_in_cluster(kube, settings, asked)


async def _resource_in_cluster(kube: Kube, settings: Settings, asked: tuple[str, str, str]) -> ExplainedResource:
    """The operator's last status, which takes few rights; where it has not looked yet, what it would decide."""
    from headroom.cli import live, nearby, preflight

    near = await nearby.ours(kube, settings, asked[0], asked[1])
    ref = find(near.world, asked, in_files=False)
    resource = near.world.resources[ref]
    if resource.problems or resource.status.conditions:
        return ExplainedResource(
            ref, resource, near.world.stopped, None if resource.problems else _written(ref, resource), "written"
        )
    await preflight.may_observe(kube, settings)
    async with live.observed(kube, settings) as port:
        # The view is only good until the next await.
        told = _explained(await live.world(port, kube, settings), asked)
    assert isinstance(told, ExplainedResource)
    return told


def _written(ref: Ref, resource: AnyResource) -> Decision:
    """The verdict that stands in a resource's status."""
    from headroom.model import conditions
    from headroom.model.decisions import Decision

    known = resource.status.conditions
    ready, exceeded, waits = (conditions.find(known, name) for name in ("Ready", "QuotaExceeded", "Holding"))
    first = exceeded or ready or known[0]
    idle = resource.spec.paused or (ready is not None and ready.reason == "Stopped")
    message = f"{first.message} {waits.message if waits is not None and waits.status == 'True' else ''}".strip()
    reason = ready.reason if ready is not None and idle else first.reason
    return Decision(resource=ref, status=resource.status, reason=reason, message=message)


class ExplainedResource(NamedTuple):
    """What there is to say of one resource."""

    ref: Ref
    resource: AnyResource
    stopped: bool
    decision: Decision | None
    source: Literal["decided", "written"] = "decided"

    @property
    def is_plan(self) -> bool:
        """Whether it is what would be done, and not an operator's last status."""
        return self.source == "decided" and self.decision is not None

    def wire(self) -> dict[str, Any]:
        """The form for machines."""
        return {
            "resource": {"kind": self.ref.kind, "namespace": self.ref.namespace, "name": self.ref.name},
            "problems": [{"field": each.field, "message": each.message} for each in self.resource.problems],
            "stopped": self.stopped,
            "source": self.source,
            "decision": self.decision.wire() if self.decision else None,
        }

    def show(self) -> None:
        """Print the form for people."""
        from headroom.cli import output
        from headroom.cli.capabilities import face_of

        output.line(str(self.ref))
        if self.decision is None:
            for problem in self.resource.problems:
                output.line(f"Problem: {problem.field} {problem.message}")
            output.line("Headroom does not act on an invalid resource. Correct it and apply it again.")
            return
        output.line(f"{self.decision.reason}: {self.decision.message}")
        if self.stopped:
            output.line("All effects are stopped cluster-wide, so nothing below is carried out; see `headroom resume`.")
        if self.resource.spec.paused:
            output.line("It is paused, so nothing below is carried out; set spec.paused to false to resume.")
        for words in self.decision.warnings():
            output.line(words)
        output.line()
        if show := face_of(self.ref.kind).show:
            show(self.resource, self.decision.status)
        else:
            _show_status(self.decision)
        if self.source == "decided":
            _show_due(self.decision)
        else:
            output.line()
            output.line("From the operator's last status; `headroom run --dry-run` shows the effects due.")


def _show_status(decision: Decision) -> None:
    """The conditions and the rest of a status, a line each."""
    from headroom.cli import output
    from headroom.model.decisions import status_wire

    rows = [(each.type, each.status, each.last_transition_time, each.message) for each in decision.status.conditions]
    output.as_table(("CONDITION", "STATUS", "SINCE", "MESSAGE"), rows)
    for name, value in status_wire(decision.status).items():
        if name not in ("conditions", "observedGeneration"):
            output.line(f"{name}: {_plain(value)}")


def _show_due(decision: Decision) -> None:
    """The actions, those that only tell of others left out: people read what they say above."""
    from headroom.cli import output

    rows = []
    for action in decision.wire()["actions"]:
        kind, target, *rest = _spoken(action)
        if kind != "EmitEvent":
            rows.append((kind, target, ", ".join(rest)))
    output.line()
    if rows:
        output.line("Due now")
        output.as_table(("ACTION", "ON", ""), rows, indent=2)
    else:
        output.line("Nothing is due now.")
    output.line(f"Headroom checks it again within {-(-decision.look_again_ms // 1000)} s.")


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={_nested(each)}" for name, each in value.items())
    return "; ".join(map(_plain, value)) if isinstance(value, list | tuple) else str(value)


def _nested(value: Any) -> str:
    return f"[{_plain(value)}]" if isinstance(value, dict | list | tuple) else str(value)


def _spoken(action: dict[str, Any]) -> tuple[str, ...]:
    """An action's type, what it is done to, and the rest as name and value."""
    from headroom.model.actions import BY_NAME

    fields = [(name, each) for name, each in action.items() if name != "type"] or [("", "")]
    first, *others = sorted(fields, key=lambda field: field[0] != "machine")  # which one, before of which pool
    known = BY_NAME.get(str(action["type"]))
    # Its reason stands above, and a spec that is written is no line to read.
    left = {"uid", "resourceVersion", *(known.moving if known else ())}
    plain = [(name, each) for name, each in others if name not in left and not isinstance(each, dict | list | tuple)]
    more = [f"{name} {each}" for name, each in plain if each not in ("", None)]
    return str(action["type"]), str(first[1]), *more


def _explained(world: World, asked: tuple[str, str, str], *, in_files: bool = False) -> Tells:
    from headroom.cli import explain_pods, planning
    from headroom.cli.capabilities import PARTS

    if asked[0] in explain_pods.WORDS.values():
        return explain_pods.told(world, asked, in_files=True)
    if asked[0] in PARTS:
        return PARTS[asked[0]].decided(world, asked[2])
    ref = find(world, asked, in_files=in_files)
    decision = next((each for each in planning.decisions(world) if each.resource == ref), None)
    return ExplainedResource(ref, world.resources[ref], world.stopped, decision)
