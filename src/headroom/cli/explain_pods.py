"""What `headroom explain` says of a pod, a Job, a JobSet or a Workload of Kueue: why it waits or was stopped, and until when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headroom.cli import output
from headroom.cli.capabilities import FACES
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.api.budgets import GPUWorkloadBudgetStatus
    from headroom.core.budgets import Explained
    from headroom.core.capacity import CapacityRound, PodAnswer
    from headroom.model.decisions import Ref
    from headroom.model.world import World

WORDS: Final[Mapping[str, str]] = {
    "pod": "Pod",
    "pods": "Pod",
    "po": "Pod",
    "job": "Job",
    "jobs": "Job",
    "jobset": "JobSet",
    "jobsets": "JobSet",
    "workload": "Workload",
    "workloads": "Workload",
    "wl": "Workload",
}
"""The kinds that are not ours and can be asked about, by the words that kubectl knows them by."""
_PLACES: Final = {
    "Pod": "`kubectl get pods -A` lists them all",
    "Job": "Headroom knows only Jobs that have pods or that it has suspended; `kubectl get jobs -A` lists all",
    "JobSet": "Headroom knows only JobSets that have pods or that it has suspended; `kubectl get jobsets -A` lists all",
    "Workload": "Headroom knows only Workloads that it has set inactive; `kubectl get workloads -A` lists all",
}


class ToldOfPod(NamedTuple):
    """What there is to say."""

    found: Explained
    unread: tuple[str, ...] = ()
    """What was not checked for lack of permission."""
    answer: PodAnswer | None = None
    """What is done for a pending pod."""

    @property
    def is_plan(self) -> bool:
        """The first line says why it waits, and what is due is called so."""
        return False

    def wire(self) -> dict[str, Any]:
        """The form for machines."""
        what = self.found.what
        return {
            "object": {"kind": what.kind, "namespace": what.namespace, "name": what.name},
            "state": self.found.state,
            "sentence": self.found.sentence,
            "budget": self.found.budget,
            "startsAt": self.found.starts_at,
            "details": list(self.found.details),
            "unread": list(self.unread),
        } | ({"power": {"state": self.answer.state, "machine": self.answer.machine}} if self.answer else {})

    def show(self) -> None:
        """Print the form for people."""
        output.line(self.found.sentence)
        for each in self.found.details:
            output.line(f"- {each}", hang=2)
        if self.unread:
            output.line(f"- not checked for lack of permission: {', '.join(self.unread)}", hang=2)


def told(world: World, asked: tuple[str, str, str], *, in_files: bool, unread: tuple[str, ...] = ()) -> ToldOfPod:
    """What there is to say of a pod or its owner. Raises `Misconfigured` if it is not known, or not which one is meant."""
    from headroom.cli import planning
    from headroom.core.budgets import explained
    from headroom.core.usage import KIND
    from headroom.model.decisions import Ref

    known = _known(world, in_files=in_files)
    statuses = {ref: each for ref, each in known.items() if ref.kind == KIND}
    kind, namespace, name = asked
    found = explained(world, statuses, Ref(kind, namespace, name)) if namespace else None
    if found is None:
        found = explained(world, statuses, _sought(world, statuses, asked))
    if found is None:
        raise Misconfigured(f"looking for {kind}/{namespace}/{name}: Headroom does not know it")
    found = found._replace(details=(*found.details, *_notes(world, found.what, known)))
    if not in_files:
        return ToldOfPod(found, unread)
    here = with_answer(ToldOfPod(found, unread), planning.capacity_round(world))
    return here._replace(found=here.found._replace(details=(*here.found.details, *_due(world, found.what))))


def waits_for_a_place(told_of: ToldOfPod) -> bool:
    """Whether it is a pending pod that no budget queues, so that a machine may help it."""
    return told_of.found.what.kind == "Pod" and told_of.found.state == "Pending"


def with_answer(told_of: ToldOfPod, round_: CapacityRound) -> ToldOfPod:
    """With what is done for a pending pod, by a round over a world that is complete."""
    found, what, world = told_of.found, told_of.found.what, round_.world
    waiting = (pod for uid in sorted(world.pods.unbound) if (pod := world.pods.get(uid)) is not None)
    pod = next((each for each in waiting if (each.namespace, each.name) == (what.namespace, what.name)), None)
    # Of a queued pod there is something to say only once a machine is kept or wakes for it.
    is_announced = pod is not None and pod.uid in round_.announced
    if pod is None or not (waits_for_a_place(told_of) or is_announced):
        return told_of
    asked = [face.answers(round_, pod) for face in FACES.values() if face.answers is not None]
    answers = [each for each in asked if each is not None and (each.machine or not is_announced)]
    if not answers:
        return told_of
    # Whoever has a machine for it speaks, else the first.
    answer = max(answers, key=lambda each: bool(each.machine))
    others = () if answer.machine else tuple(each.sentence for each in answers if each is not answer)
    details = (*found.details, *answer.details, *others)
    said = found._replace(sentence=f"{found.sentence} {answer.sentence}", details=details)
    return told_of._replace(found=said, answer=answer)


def with_written_answer(told_of: ToldOfPod, world: World) -> ToldOfPod:
    """The same for who may not see all that decides: only what statuses say of this very pod."""
    key = f"{told_of.found.what.namespace}/{told_of.found.what.name}"
    asked = (face.answers_written(world, key) for face in FACES.values() if face.answers_written is not None)
    said = next(filter(None, asked), "")
    return told_of._replace(found=told_of.found._replace(sentence=f"{told_of.found.sentence} {said}".rstrip()))


def _due(world: World, what: Ref) -> Iterator[str]:
    """What this very tick would do to it, or to its owner."""
    from headroom.cli import planning
    from headroom.model.actions import OnOwner, OnPod

    owners = {
        pod.owner.name for pod in world.pods if pod.owner and (pod.namespace, pod.name) == (what.namespace, what.name)
    }
    names = {f"{what.namespace}/{name}" for name in {what.name} | (owners if what.kind == "Pod" else set())}
    for decision in planning.with_chores(world):
        for action in decision.actions:
            on_it = (
                isinstance(action, OnPod) and what.kind == "Pod" and action.pod == f"{what.namespace}/{what.name}"
            ) or (isinstance(action, OnOwner) and action.object in names)
            if on_it:
                yield f"due now: {type(action).__name__}, by {decision.resource}"


def _notes(world: World, what: Ref, known: Mapping[Ref, Any]) -> Iterator[str]:
    """What capabilities say of a pod, wherever it is."""
    if what.kind != "Pod":
        return
    for pod in world.pods:
        if (pod.namespace, pod.name) == (what.namespace, what.name):
            for face in FACES.values():
                yield from face.notes(world, pod, known) if face.notes is not None else ()


def _known(world: World, *, in_files: bool) -> dict[Ref, Any]:
    """What stands of each resource: files are decided on; in a cluster the operator has done so, and it has the ledger."""
    from headroom.cli import planning

    known = {ref: each.status for ref, each in world.resources.items()}
    return known | ({each.resource: each.status for each in planning.decisions(world)} if in_files else {})


def _sought(world: World, statuses: Mapping[Ref, GPUWorkloadBudgetStatus], asked: tuple[str, str, str]) -> Ref:
    from headroom.cli.explain import listed, offered
    from headroom.core.budgets import names
    from headroom.model.decisions import Ref

    kind, namespace, name = asked
    keys = sorted(names(world, statuses, kind))
    found = [key for key in keys if key == f"{namespace}/{name}" or (not namespace and key.partition("/")[2] == name)]
    if len(found) == 1:
        return Ref(kind, *found[0].split("/", 1))
    if found:
        raise Misconfigured(f"looking for {kind}/{name}: several match: {listed(found)}; name one")
    shown = {key if namespace else key.partition("/")[2]: f"{kind}/{key}" for key in reversed(keys)}
    near = offered(f"{namespace}/{name}" if namespace else name, shown)
    what = "/".join(part for part in asked if part)
    raise Misconfigured(f"looking for {what}: not found{near}; {_PLACES[kind]}")
