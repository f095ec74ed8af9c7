"""One round of enforcement over all budgets that act: what is decided for one, the next one knows.

Budgets overlap, and caps are shared, so they are decided together and in the order of their names.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct, field

from headroom.api import marks
from headroom.api.budget_hold import hold_name
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.enforcement import EnteredStep, QueuedUnit, QueueStatus, RefusedEviction, Released, Victim
from headroom.core import usage
from headroom.core.budgets import holding, ladder, pausing, refusals, releasing, stopping, victims
from headroom.core.budgets.accounts import STOPPING, BudgetAccount
from headroom.core.budgets.allowances import Allowances
from headroom.core.budgets.following import STALE_MS
from headroom.core.budgets.ladder import ActiveStep
from headroom.core.budgets.numbers import decimal
from headroom.core.budgets.records import asked_for, records_of
from headroom.core.budgets.releasing import ReleaseOutcome
from headroom.core.budgets.stopping import Past
from headroom.core.budgets.units import evicts, note, units
from headroom.core.budgets.waiting import Matcher, held_back, waiting
from headroom.model import times
from headroom.model.actions import Action
from headroom.model.facts import Pod
from headroom.model.world import World

SHOWN: Final = 10
"""Of those that wait, the status names so many."""


class Enforced(Struct, kw_only=True):
    """What enforcement comes to for one budget."""

    steps: tuple[ActiveStep, ...] = ()
    entered: tuple[EnteredStep, ...] = ()
    held: QueueStatus | None = None
    released: tuple[Released, ...] = ()
    """What was released lately, and how much of it may still start."""
    victim: Victim | None = None
    past: Past = Past((), ())
    """What was stopped before."""
    refused: tuple[RefusedEviction, ...] = ()
    """Pods whose evictions disruption budgets refuse."""
    actions: list[Action] = field(default_factory=list)
    took: Victim | None = None
    """The unit that was chosen just now."""
    holds: bool = False
    bare: tuple[str, ...] = ()
    """Pods that were made before the hold and that nobody could hold."""
    looping: tuple[str, ...] = ()
    """Units that are not evicted any more, since their owners recreate them."""
    helpless: bool = False
    """A step that stops what runs stands, and nothing is left to stop."""
    last_at: int | None = None
    """When something was last really done."""
    turns: list[int] = field(default_factory=list)
    """Moments at which it must be looked at again."""


class EnforcementRound:
    """All budgets that act, decided together."""

    def __init__(self, world: World, accounts: Sequence[BudgetAccount]) -> None:
        self._world, self._accounts = world, sorted(accounts, key=lambda each: each.key)
        self._matcher = Matcher(world, self._accounts)
        self._taken: list[Victim] = []
        self._steps = {each.key: ladder.standing(each) for each in self._accounts}
        self._paused = pausing.paused(world)
        self.results = {each.key: Enforced(steps=self._steps[each.key]) for each in self._accounts}
        self._can_act = world.ledger.trusted and world.complete and not world.stopped
        """Without a ledger that can be trusted everything stays as it is."""
        asked = asked_for(world)
        for account in self._accounts:
            result = self.results[account.key]
            result.entered = ladder.entered(result.steps)
            result.victim, result.past = account.status.victim, Past(account.status.stopped, account.status.evictions)
            result.held, result.released = account.status.held, tuple(records_of(account, asked))
            result.refused = account.status.refused
            result.turns += ladder.turns(account, result.steps)
        if self._can_act:
            self._decide()

    def _acts(self, account: BudgetAccount, action: str) -> ActiveStep | None:
        return ladder.acts(account, self._steps[account.key], action)

    def _decide(self) -> None:
        outcomes = self._judged()
        for account in self._accounts:
            result = self.results[account.key]
            mine = [each for each in outcomes if any(part.account == account.key for part in each.waiting.demands)]
            result.held = _held(account, mine)
            judged = [each.waiting for each in mine if each.state == "Releasing" and not each.waiting.is_free]
            result.released = self._allowances.remembered(account, judged)
            self._pause(account, result)
            self._hold(account, result, mine)
            for each in mine:
                # One budget has it done; the others see it.
                if each.state == "Releasing" and each.waiting.demands[0].account == account.key:
                    result.actions += releasing.releases(each.waiting)
                elif each.starts_at is not None:
                    result.turns.append(each.starts_at + self._world.now - account.found.as_of)
                if each.waiting.grown_at > self._world.now:
                    result.turns.append(each.waiting.grown_at)
        going = frozenset(uid for victim in _victims(self._world) for uid in victim.uids)
        for account in self._accounts:
            going = self._stop(account, self.results[account.key], going)
        for account in self._accounts:
            self._tell(account, self.results[account.key])

    # Waiting

    def _judged(self) -> list[ReleaseOutcome]:
        suspending = frozenset(
            str(each.ref) for each in self._accounts if any(step.action == "Suspend" for step in self._steps[each.key])
        )
        held = held_back(self._world, self._matcher)
        self._allowances = Allowances(self._world, self._matcher, held)
        queue = waiting(self._world, self._matcher, suspending, held, self._allowances.free)
        mine = [each for each in queue if each.demands]
        return releasing.judged(self._world, self._allowances, self._matcher, mine)

    def _pause(self, account: BudgetAccount, result: Enforced) -> None:
        marked = self._paused.get(str(account.ref), [])
        stands = any(each.action == "Pause" for each in result.steps)
        if not stands:
            result.actions += pausing.pauses(account, stands=False, marked=self._paused)
        elif self._acts(account, "Pause"):
            result.actions += pausing.pauses(account, stands=True, marked=self._paused)
        result.last_at = max([_paused_at(pod) for pod in marked], default=None)

    def _hold(self, account: BudgetAccount, result: Enforced, mine: Sequence[ReleaseOutcome]) -> None:
        if not account.has_step("Hold"):
            result.actions += holding.holds(account, wanted=False)
            return
        is_there = holding.stands(account) and not self._world.hold_problem
        step_stands = any(each.action == "Hold" for each in result.steps)
        waits = any(each.state in ("Waiting", "Reserved") for each in mine)
        # A hold ends below its exit and with nobody waiting: until then the new queue behind the old.
        acts, stands = self._acts(account, "Hold") is not None, holding.stands(account)
        wanted = acts or (stands and (step_stands or waits))
        if account.followed is not None:
            wanted = account.followed.wants_hold(own=acts, stands=stands, waits=waits)
            result.turns.append((account.followed.at or 0) + STALE_MS)
        result.actions += holding.holds(account, wanted=wanted)
        result.holds = wanted and is_there
        if wanted and not self._world.hold_problem:
            kept = [each.waiting for each in mine if each.state != "Releasing" and each.waiting.is_ready]
            queue = [pod for each in kept for pod in each.pods]
            found = holding.sweep(account, self._matcher, is_there=is_there, waits=queue)
            result.actions += found.actions
            result.bare = found.bare
            # What asks for more by now than was judged goes back behind the gate, if it has not started.
            result.actions += [evicts(pod) for pod in self._allowances.overgrown(account) if is_there]
        if result.holds:
            hold = self._world.holds[hold_name(account.key)]
            result.last_at = max(result.last_at or 0, hold.created) or None

    # Stopping

    def _stop(self, account: BudgetAccount, result: Enforced, going: frozenset[str]) -> frozenset[str]:
        now = self._world.now
        result.refused = refusals.kept(account, result.steps, result.victim)
        overdue = refusals.overdue(result.refused, now)
        due = refusals.overdue(result.refused, now, result.past.stopped)
        result.turns += refusals.turns(result.refused)
        going = self._follow(account, result, going)
        result.past = result.past.trimmed(self._world.now, account.window)
        steps = [step for action in STOPPING if (step := self._acts(account, action)) is not None]
        if not steps or result.victim is not None:
            return going
        result.turns += stopping.turns(account, result.past)
        result.looping = self._looping(account, result, going)
        if not self._is_within_caps(account, result):
            return going
        chosen = None
        for step in steps:
            awaited = refusals.awaited(result.refused, now)
            candidates = stopping.needed(account, step, going | awaited, result.past, due)
            if candidates:
                chosen = victims.victim_of(candidates[0], step, self._world.now)
                break
        result.helpless = chosen is None and self._is_over(account, steps, going)
        if chosen is None or not self._is_within_caps(account, result, chosen.unit.split("/")[1]):
            return going
        result.victim = result.took = chosen
        self._taken.append(chosen)
        result.actions += victims.stops(account, chosen, overdue)
        result.turns.append(self._world.now + stopping.GIVE_UP_MS)
        return going | frozenset(chosen.uids)

    def _is_over(self, account: BudgetAccount, steps: Sequence[ActiveStep], going: frozenset[str]) -> bool:
        """Whether a step is reached, something still runs, and there is nothing that could be stopped."""
        running = [each for each in account.running if each.uid not in going]
        return bool(running) and any(
            account.may_stop(step.share) and not stopping.recovers(account, step, going) for step in steps
        )

    def _looping(self, account: BudgetAccount, result: Enforced, going: frozenset[str]) -> tuple[str, ...]:
        if not result.past.evictions or self._acts(account, "Evict") is None:
            return ()
        found = units(self._world, (each.uid for each in account.running if each.uid not in going))
        looping = (
            unit.name
            for uid, unit in found.items()
            if (pod := self._world.pods.get(uid)) is not None and stopping.is_looping(account, pod, result.past)
        )
        return tuple(sorted(set(looping)))

    def _follow(self, account: BudgetAccount, result: Enforced, going: frozenset[str]) -> frozenset[str]:
        """See what became of the one that was being stopped."""
        victim, now = result.victim, self._world.now
        if victim is None:
            return going
        left = victims.alive(account, victim)
        step = self._acts(account, victim.action)
        # While nothing could be done nobody asked it to go.
        since = max(times.moment(victim.at) or 0, self._world.acting_since)
        if not left:
            self._note_end(account, result, victim)
        elif step is None or not account.may_stop(step.share) or not victims.still_goes(account, victim):
            # It is not needed any more, or must not go any more, and nothing was seen to happen to it.
            result.victim = None
            return going - frozenset(pod.uid for pod in left)
        elif now - since >= stopping.GIVE_UP_MS:
            if not victim.by:
                result.past = result.past.with_(victims.record(victim, "Blocked", since))
            result.victim = None
            return going - frozenset(pod.uid for pod in left)
        else:
            result.actions += victims.stops(account, victim, refusals.overdue(result.refused, now))
            result.turns.append(since + stopping.GIVE_UP_MS)
        return going

    def _note_end(self, account: BudgetAccount, result: Enforced, victim: Victim) -> None:
        """The one that was being stopped has gone: one that ended by itself was not stopped."""
        now, since = self._world.now, times.moment(victim.at) or 0
        if victims.was_stopped(account, victim):
            # Caps are about when it went, which may be long after it was chosen.
            result.past = result.past.with_(victims.record(victim, "Stopped", now))
            result.last_at = now
        elif victims.vanished(account, victim):
            # So that caps hold though the operator was restarted; it proves no loop.
            result.past = result.past.with_(victims.record(victim, "Unknown", now))
        elif victim.action == "Suspend" and now - since < victims.OWN_WORD_MS:
            result.turns.append(since + victims.OWN_WORD_MS)
            return
        result.victim = None

    def _is_within_caps(self, account: BudgetAccount, result: Enforced, namespace: str = "") -> bool:
        """Whether one more may be stopped now; if not, it is looked at again when the oldest of the last minute is past."""
        now, caps = self._world.now, self._world.caps
        every = set(_lately(self._world)) | {(each.unit, now) for each in self._taken}
        recent = sorted((at, unit) for unit, at in every if now - at < stopping.CAP_MS)
        own = {(at, unit) for unit, at in _stopped_by(account.status)}
        limits = [
            (caps.cluster, recent),
            (account.spec.enforcement.evictions_per_minute, [each for each in recent if each in own]),
        ]
        if namespace:
            limits.append((caps.namespace, [each for each in recent if each[1].split("/")[1] == namespace]))
        for cap, counted in limits:
            if len(counted) >= cap:
                result.turns.append(counted[len(counted) - cap][0] + stopping.CAP_MS)
                return False
        # Evenly, not all at the beginning of the minute: what the first ones bring may be enough.
        apart = stopping.CAP_MS // account.spec.enforcement.evictions_per_minute
        last = max((at for at, _ in own), default=None)
        if last is not None and now - last < apart:
            result.turns.append(last + apart)
            return False
        return True

    def _tell(self, account: BudgetAccount, result: Enforced) -> None:
        """A budget that is over too and counts what another one stops waits for it as if it were its own."""
        if result.victim is not None or not any(self._acts(account, action) for action in STOPPING):
            return
        uids = {each.uid for each in account.running}
        for other in self._accounts:
            victim = self.results[other.key].victim
            if other is account or victim is None or victim.by or uids.isdisjoint(victim.uids):
                continue
            if any(step.action in STOPPING and account.may_stop(step.share) for step in result.steps):
                result.victim = result.took = Victim(
                    unit=victim.unit,
                    action=victim.action,
                    at=victim.at,
                    uids=victim.uids,
                    pods=victim.pods,
                    owner=victim.owner,
                    by=other.key,
                )
                return


def _victims(world: World) -> Iterator[Victim]:
    for _, budget in world.of_kind(usage.KIND):
        victim = budget.status.victim
        if victim is not None:
            yield victim


def _lately(world: World) -> Iterator[tuple[str, int]]:
    """Every unit that some budget stopped or is stopping, with the moment."""
    for _, budget in world.of_kind(usage.KIND):
        yield from _stopped_by(budget.status)


def _stopped_by(status: GPUWorkloadBudgetStatus) -> Iterator[tuple[str, int]]:
    for each in status.stopped:
        if not each.by:
            yield each.unit, times.moment(each.at) or 0
    if status.victim is not None and not status.victim.by:
        yield status.victim.unit, times.moment(status.victim.at) or 0


def _paused_at(pod: Pod) -> int:
    return times.moment(note(pod, marks.PAUSED_AT)) or 0


def _held(account: BudgetAccount, mine: Sequence[ReleaseOutcome]) -> QueueStatus | None:
    if not mine:
        return None
    queue = []
    for each in mine[:SHOWN]:
        rate = next(part.rate for part in each.waiting.demands if part.account == account.key)
        starts_at = "" if each.starts_at is None or each.starts_at > times.LAST else times.text(each.starts_at)
        queue.append(
            QueuedUnit(
                unit=each.waiting.unit,
                gpus=decimal(rate, usage.MICRO),
                pods=len(each.waiting.pods),
                since=times.text(each.waiting.since),
                starts_at=starts_at,
                state=each.state,
            )
        )
    return QueueStatus(units=len(mine), pods=sum(len(each.waiting.pods) for each in mine), queue=tuple(queue))
