"""Why a pod, a Job or a JobSet waits, was stopped or is pending, or who counts it while it runs: a sentence, and details.

The numbers are those of the budgets' statuses, so whoever has no ledger at hand says the same as the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import structs

from headroom.api import durations, marks
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.enforcement import QueuedUnit, Stopped, percent
from headroom.api.quantities import NANO
from headroom.core import usage
from headroom.core.budgets.accounts import BudgetAccount, declared_length, is_frozen
from headroom.core.budgets.ladder import exit_share
from headroom.core.budgets.units import ENDED, Queued, is_alive, is_exempt, is_protected, note, owner_of, unit_of
from headroom.core.budgets.waiting import Matcher, is_held
from headroom.core.budgets.wording import amounts, counted_by, gpus, nano_of, share, spoken, used
from headroom.model import times
from headroom.model.decisions import Ref
from headroom.model.facts import Pod, Workload
from headroom.model.gangs import JOBSET, belongs_to_node
from headroom.model.world import World, ref_of

OWNERS: Final = ("Job", "JobSet", "Workload")
ORDINALS: Final = ("first", "second", "third")
_STOPPED: Final = ("stopped", "Stopping", "Stopped")
_WORDS: Final = {"Evict": ("evicted", "Evicting", "Evicted"), "Suspend": ("suspended", "Suspending", "Suspended")}


class Explained(NamedTuple):
    """Why something is as it is."""

    what: Ref
    state: str
    """In one word."""
    sentence: str
    budget: str = ""
    """The budget that it is about, namespace/name."""
    starts_at: str = ""
    """When it may start, if that is known."""
    details: tuple[str, ...] = ()


class ExplainTarget(NamedTuple):
    """What is asked about, with all that is known of it."""

    world: World
    what: Ref
    pods: tuple[Pod, ...]
    """In view."""
    owners: tuple[Workload, ...]
    """Those that Headroom has suspended."""
    accounts: tuple[BudgetAccount, ...]
    """All budgets, with the statuses that count."""

    @property
    def units(self) -> frozenset[str]:
        """The names under which it starts and stops."""
        return frozenset({str(self.what), *(unit_of(pod) for pod in self.pods), *(each.key for each in self.owners)})

    def __str__(self) -> str:
        return f"{self.what.kind} {self.what.namespace}/{self.what.name}"


def explained(world: World, statuses: Mapping[Ref, GPUWorkloadBudgetStatus], what: Ref) -> Explained | None:
    """Why a pod, Job, JobSet or Workload is as it is; None if Headroom does not know it."""
    asked = _asked(world, statuses, what)
    for answer in (_suspended, _going, _held, _paused, _present, _gone):
        found = answer(asked)
        if found is not None:
            return found._replace(details=(*found.details, *_details(asked)))
    return None


def names(world: World, statuses: Mapping[Ref, GPUWorkloadBudgetStatus], kind: str) -> set[str]:
    """Every pod, Job or such of which something is known, namespace/name."""
    stopped = [each for status in statuses.values() for each in status.stopped]
    keys = [each.unit for each in stopped] + [each.owner for each in stopped] + list(world.workloads)
    if kind == "Pod":
        found = {pod.key for pod in world.pods} | {pod for each in stopped for pod in each.pods}
        found |= {world.usage.pod(number) for number in range(len(world.usage))}
    else:
        found = {f"{pod.namespace}/{name}" for pod in world.pods if (name := _name_of(pod, kind))}
    return found | {key.partition("/")[2] for key in keys if key.startswith(f"{kind}/")}


def _name_of(pod: Pod, kind: str) -> str:
    """The name of the owner of this kind that a pod belongs to."""
    if kind == "JobSet":
        return dict(pod.labels).get(JOBSET, "")
    return pod.owner.name if pod.owner is not None and pod.owner.kind == kind else ""


def _asked(world: World, statuses: Mapping[Ref, GPUWorkloadBudgetStatus], what: Ref) -> ExplainTarget:
    budgets = (
        structs.replace(each, status=statuses.get(ref_of(each), each.status)) for each in usage.budgets_of(world)
    )
    if what.kind == "Pod":
        pods = tuple(pod for pod in world.pods if (pod.namespace, pod.name) == (what.namespace, what.name))
    else:
        pods = tuple(
            pod for pod in world.pods if pod.namespace == what.namespace and _name_of(pod, what.kind) == what.name
        )
    pods = tuple(sorted(pods, key=lambda pod: pod.key))
    accounts = tuple(BudgetAccount(world, each) for each in budgets)
    asked = ExplainTarget(world, what, pods, (), accounts)
    mine = _kueues(asked)
    suspended = (
        each for key, each in sorted(world.workloads.items()) if key in asked.units or key in mine or _is_of(asked, key)
    )
    return asked._replace(owners=tuple(each for each in suspended if each.suspended and each.suspended_by))


def _kueues(asked: ExplainTarget) -> set[str]:
    """Kueue's Workloads for what is asked about, which then wait in its place."""
    queued = Queued(asked.world)
    found = {each.key for pod in asked.pods if (each := queued.of(pod)) is not None}
    return found | {key for key, each in asked.world.workloads.items() if each.owner and each.owner == str(asked.what)}


def _is_of(asked: ExplainTarget, unit: str) -> bool:
    """Whether a pod that is gone is one of a unit's, as far as its name tells."""
    kind, _, key = unit.partition("/")
    mine = f"{asked.what.namespace}/{asked.what.name}"
    return asked.what.kind == "Pod" and not asked.pods and kind in OWNERS and mine.startswith(f"{key}-")


# --- the sentences ------------------------------------------------------------------------------------------------------------


def _by_name(asked: ExplainTarget, unit: str) -> str:
    return f"{asked} is gone; by its name it belonged to {unit}, which"


def _suspended(asked: ExplainTarget) -> Explained | None:
    if not asked.owners:
        return None
    owner = asked.owners[0]
    by = owner.suspended_by.partition("/")[2]
    subject = f"{owner.kind} {owner.namespace}/{owner.name}"
    of = subject
    if str(asked.what) != owner.key:
        is_gone = asked.what.kind == "Pod" and not asked.pods
        of = _by_name(asked, subject) if is_gone else f"{asked} belongs to {subject}, which"
    is_ = "is set inactive" if owner.kind == "Workload" else "is suspended"
    return _waiting(asked, f"{of} {is_} by", "Suspended", by)


def _held(asked: ExplainTarget) -> Explained | None:
    matcher, queued = Matcher(asked.world, asked.accounts), Queued(asked.world)
    alive = [pod for pod in asked.pods if is_alive(pod)]
    gated = [pod for pod in alive if is_held(matcher, pod)]
    if not gated:
        return None
    first = queued.of(gated[0])
    if first is not None and queued.is_first(gated[0]):
        named = f"Workload {first.namespace}/{first.name}"
        return Explained(asked.what, "Held", f"{asked} is queued by Kueue: {named} is not admitted yet.")
    some = f" ({len(gated)} of its {len(asked.pods)} pods)" if asked.what.kind != "Pod" else ""
    held = (spec.budget for spec in usage.holds_over(asked.world, gated[0]))
    by = note(gated[0], marks.HELD_BY) if marks.GATE in gated[0].gates else next(held, "")
    return _waiting(asked, f"{asked}{some} is queued by", "Held", by)


def _waiting(asked: ExplainTarget, begin: str, state: str, by: str) -> Explained:
    """What is said of something that waits: for which budget, and until when."""
    found = [(account, entry) for account in asked.accounts for entry in _entries(asked, account)]
    if not found:
        return _unlisted(asked, begin, state, by)
    if found[0][1].state == "NeverFits":
        account, entry = max(found, key=lambda pair: _size(asked, *pair))
        return Explained(asked.what, "NeverFits", _never(asked, account, entry), account.key)
    account, entry = max(found, key=lambda pair: (share(pair[0]), pair[0].key == by))
    sentence = f"{begin} budget {account.key}: {used(account)}; {_when(account, entry)}."
    return Explained(asked.what, state, sentence, account.key, entry.starts_at)


def _unlisted(asked: ExplainTarget, begin: str, state: str, by: str) -> Explained:
    """What waits, and is in no queue that a status shows."""
    account = next((each for each in asked.accounts if each.key == by), None)
    if account is None:
        why = "which does not exist" if by else "which it does not name"
        return Explained(asked.what, state, f"{begin} budget {by}, {why}; the operator releases it within seconds.", by)
    held = account.status.held
    if is_frozen(asked.world, by):
        later = "nothing is released while that budget is paused"
    elif held is not None and held.units > len(held.queue):
        later = f"{held.units} are queued, and it is not among the first {len(held.queue)}"
    else:
        later = "the operator has not estimated its start yet"
    return Explained(asked.what, state, f"{begin} budget {by}: {used(account)}; {later}.", by)


def _entries(asked: ExplainTarget, account: BudgetAccount) -> list[QueuedUnit]:
    held = account.status.held
    return [each for each in held.queue if each.unit in asked.units] if held else []


def _when(account: BudgetAccount, entry: QueuedUnit) -> str:
    world, held = account.world, account.status.held
    if world.stopped:
        return "nothing is released while all effects are stopped"
    if account.spec.paused:
        return "nothing is released while that budget is paused"
    if entry.state == "Releasing":
        return "it is being released"
    queue = [each.unit for each in held.queue if each.state != "NeverFits"] if held else []
    waits = len(queue) + (held.units - len(held.queue) if held else 0)
    place = queue.index(entry.unit)
    nth = ORDINALS[place] if place < len(ORDINALS) else f"{place + 1}th"
    place_in_queue = f"{nth} of {waits} in the queue" if waits > 1 else "alone in the queue"
    if entry.starts_at:
        return f"estimated start {entry.starts_at}, {place_in_queue}"
    return f"no estimated start, {place_in_queue}: a running pod must end first"


def _size(asked: ExplainTarget, account: BudgetAccount, entry: QueuedUnit) -> int:
    """How much of the quota of GPU-hours a unit alone would use; not a share of any unit, but the larger the more."""
    quota = account.quota.gpu_ms
    return nano_of(entry.gpus) * _length(asked, account)[0] * NANO // quota if quota else 0


def _never(asked: ExplainTarget, account: BudgetAccount, entry: QueuedUnit) -> str:
    length, is_declared = _length(asked, account)
    limits = [f"{quota} {unit}" for _, quota, unit in amounts(account)]
    shorter = "it declares a shorter duration" if is_declared else "it declares a duration"
    return (
        f"{asked} requests {gpus(entry.gpus)} for {spoken(length)}, more than the quota of {' or '.join(limits)} "
        f"of budget {account.key} allows on its own; it never starts unless the quota is raised or {shorter} ({marks.EXPECTED_DURATION})."
    )


def _going(asked: ExplainTarget) -> Explained | None:
    uids = {pod.uid for pod in asked.pods if is_alive(pod)}
    for account in asked.accounts:
        victim = account.status.victim
        if victim is not None and not victim.by and (victim.unit in asked.units or not uids.isdisjoint(victim.uids)):
            done, state, _ = _WORDS.get(victim.action, _STOPPED)
            sentence = f"{asked} is being {done} by budget {account.key} (since {victim.at}): {used(account)}."
            return Explained(asked.what, state, sentence, account.key)
    return None


def _paused(asked: ExplainTarget) -> Explained | None:
    marked = next((pod for pod in asked.pods if note(pod, marks.PAUSED_BY) and is_alive(pod)), None)
    if marked is None:
        return None
    by, since = note(marked, marks.PAUSED_BY).partition("/")[2], note(marked, marks.PAUSED_AT)
    sentence = f"{asked} has been marked as paused by budget {by} since {since}"
    account = next((each for each in asked.accounts if each.key == by), None)
    steps = [percent(step.at) for step in account.spec.enforcement.ladder if step.action == "Pause"] if account else []
    if account is None or not steps:
        return Explained(asked.what, "Paused", f"{sentence}; the operator removes the mark within seconds.", by)
    sentence += f": {used(account)}; the mark is removed below {exit_share(steps[0])}% of the quota."
    return Explained(asked.what, "Paused", sentence, by)


def _present(asked: ExplainTarget) -> Explained | None:
    """What Headroom keeps from nothing."""
    if not asked.pods:
        return None
    live = [pod for pod in asked.pods if pod.phase not in ENDED]
    begun = [pod for pod in live if pod.started is not None]
    waiting = next((pod for pod in live if pod.started is None), None)
    if waiting is not None and not begun:
        return Explained(asked.what, "Pending", f"{asked} is pending, and no budget queues it: {_pending(waiting)}.")
    who = counted_by([each for each in asked.accounts if _counts(asked, each)])
    if not live:
        last = max((pod.ended or 0 for pod in asked.pods), default=0)
        at = f" at {times.text(last)}" if last else ""
        return Explained(asked.what, "Ended", f"{asked} has ended{at} ({asked.pods[0].phase}); {who}.")
    since = times.text(min(pod.started or 0 for pod in begun))
    some = f" {len(begun)} of its {len(asked.pods)} pods" if asked.what.kind != "Pod" else ""
    return Explained(asked.what, "Running", f"{asked} has been running{some} since {since}; {who}.")


def _pending(pod: Pod) -> str:
    if pod.gates:
        return f"another controller must remove its scheduling gate {', '.join(pod.gates)}"
    if pod.node:
        return f"it is on node {pod.node} and has not started there yet"
    if pod.unschedulable_message:
        return f"{pod.shape.spoken_scheduler} says: {pod.unschedulable_message.rstrip('.')}"
    return f"{pod.shape.spoken_scheduler} has not reported on it yet"


def _gone(asked: ExplainTarget) -> Explained | None:
    """What is not in view: what the statuses remember of it, else what it used."""
    for account, each in _stops(asked):
        if each.outcome == "Stopped" and not each.by:
            done, _, state = _WORDS.get(each.action, _STOPPED)
            of = _by_name(asked, each.unit) if _is_of(asked, each.unit) else str(asked)
            sentence = f"{of} was {done} by budget {account.key} at {each.at}; now {used(account)}."
            return Explained(asked.what, state, sentence, account.key)
    table, key = asked.world.usage, f"{asked.what.namespace}/{asked.what.name}"
    rows = [table.row(number) for number in range(len(table)) if asked.what.kind == "Pod" and table.pod(number) == key]
    if not rows:
        return None
    begin, ends = min(row.start for row in rows), [row.closed or row.gone_by for row in rows]
    end = f" until {times.text(max(each or 0 for each in ends))}" if all(ends) else ""
    says = f"{asked} is gone: it ran from {times.text(begin)}{end}, and no budget has a record of stopping it."
    return Explained(asked.what, "Gone", says)


def _stops(asked: ExplainTarget) -> Iterator[tuple[BudgetAccount, Stopped]]:
    key = f"{asked.what.namespace}/{asked.what.name}"
    for account in asked.accounts:
        for each in account.status.stopped:
            mine = asked.what.kind == "Pod" and key in each.pods
            if mine or each.unit in asked.units or each.owner == str(asked.what) or _is_of(asked, each.unit):
                yield account, each


# --- the details --------------------------------------------------------------------------------------------------------------


def _details(asked: ExplainTarget) -> Iterator[str]:
    pods = asked.pods
    for unit in sorted(asked.units - {str(asked.what)}):
        yield f"gang: {unit}"
    for account in asked.accounts:
        if _counts(asked, account) or _entries(asked, account):
            steps = ", ".join(f"{step.action} at {step.at}" for step in account.spec.enforcement.ladder)
            yield f"budget {account.key}: {used(account)}; {steps}"
            yield from _place(asked, account)
    if pods and note(
        pods[0], marks.HELD_BECAUSE
    ):  # its numbers are of when the hold began, perhaps hours before the pod
        yield f"queued by budget {note(pods[0], marks.HELD_BY)} when it was created"
    if pods and (at := note(pods[0], marks.RELEASED_AT)):
        yield f"released at {at}"
    others = sorted({gate for pod in pods for gate in pod.gates if gate != marks.GATE})
    if others:
        yield f"scheduling gates of other controllers: {', '.join(others)}"
    for account, each in _stops(asked):
        by = f" with budget {each.by}" if each.by else ""
        done, _, _ = _WORDS.get(each.action, _STOPPED)
        yield f"{each.unit} {done} by budget {account.key}{by} at {each.at}: {each.outcome}"
    for owner in sorted({name for pod in pods if (name := owner_of(pod))} - asked.units):
        yield f"recreated by {owner}"
    yield from _standing(asked)
    if asked.world.stopped:
        yield "all effects are stopped cluster-wide; `headroom resume` resumes them"


def _standing(asked: ExplainTarget) -> Iterator[str]:
    """How budgets see the pods that are there, whatever became of them."""
    alive = [pod for pod in asked.pods if is_alive(pod)]
    if alive and all(pod.started is None for pod in alive) and not any(_counts(asked, each) for each in asked.accounts):
        yield "no budget counts it"  # of those that run, the sentence says so
    matcher = Matcher(asked.world, ())
    if any(pod.started is None and not matcher.is_known(pod) for pod in alive):
        yield "its claims, their templates or their device classes cannot be read, so its request is unknown; it stays queued until they can be"
    if any(is_protected(asked.world, pod) for pod in alive):
        yield f"protected: Headroom never stops it, {_protection(asked.world, alive)}"
    for word in sorted({note(pod, marks.EXPECTED_DURATION) for pod in alive} - {""}):
        if durations.milliseconds(word) is None:
            yield f"its {marks.EXPECTED_DURATION}, {word!r}, is not a duration and is ignored; write {durations.HINT}"


def _protection(world: World, pods: list[Pod]) -> str:
    pod = next(pod for pod in pods if is_protected(world, pod))
    if is_exempt(world, pod.namespace):
        return f"like all pods of namespace {pod.namespace}"
    if belongs_to_node(pod):
        return (
            f"like all pods of a {pod.owner.kind} without devices"
            if pod.owner is not None
            else "since it is a static pod"
        )
    return f"because of its annotation {marks.PROTECTED}"


def _place(asked: ExplainTarget, account: BudgetAccount) -> Iterator[str]:
    for entry in _entries(asked, account):
        length, is_declared = _length(asked, account)
        told = "declared" if is_declared else "releaseHorizon, since it declares no duration"
        yield f"queued since {entry.since}; requests {gpus(entry.gpus)} for {spoken(length)} ({told}): {entry.state}"
        if entry.state == "Reserved" and entry.starts_at:
            yield f"its start at {entry.starts_at} is reserved: younger pods pass it only if they do not delay it"


def _counts(asked: ExplainTarget, account: BudgetAccount) -> bool:
    matcher = Matcher(asked.world, [account])
    parts = [(each.namespace, part) for each in asked.owners for part in each.parts]
    return any(account.rate(pod) for pod in asked.pods) or any(matcher.of_part(*each) for each in parts)


def _length(asked: ExplainTarget, account: BudgetAccount) -> tuple[int, bool]:
    """How long it is taken to run, and whether all of it says so itself."""
    lengths = [declared_length(asked.world, pod) for pod in asked.pods]
    lengths += [part.deadline for each in asked.owners for part in each.parts]
    known = [account.horizon if each is None else each for each in lengths]
    return max(known, default=account.horizon), bool(lengths) and None not in lengths
