"""Carries out decisions: the status first, then the actions, within one budget of writes.

Nothing is written that already stands there, nothing is repeated that was just done, and nothing begins without the right to act.
When writes are scarce, enforcement goes first, then judgements, then numbers, which are written at a readable pace anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterator
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, Protocol

from msgspec import Struct, structs

from headroom.api.kinds import KINDS, AnyResource
from headroom.api.resources import Pacing, Status
from headroom.model import conditions
from headroom.model.action_names import occurrence_of
from headroom.model.actions import Action, EmitEvent, Urgency
from headroom.model.decisions import Decision, Ref, status_wire
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.model.ports import Clock, Port
from headroom.runtime.attempts import (
    LONGEST_BACKOFF_SECONDS,
    LONGEST_OUTAGE_SECONDS,
    REPEAT_AFTER_SECONDS,
    STATUS,
    Attempts,
)
from headroom.runtime.surroundings import Runtime

NUMBERS_SECONDS_EACH: Final = 1.5
"""What moves with the clock alone is written at a pace that people can read, and the slower the more resources there are."""
FACTS_EVERY_SECONDS: Final = 0.4
"""What something that happened has changed is written soon, but a burst of it once."""
FIRST_BACKOFF_SECONDS: Final = 1.0
REFUSED_BACKOFF_SECONDS: Final = 10.0
EVENT_RETRIES_SECONDS: Final = (1.0, 4.0, 15.0)
STATUS_SECONDS: Final = Action.timeout_seconds
SLOW_AT_ONCE: Final = 4
"""Of those below: resources of paced kinds, which wait for a budget of their own. The other places stay free for all others."""
AT_ONCE: Final = 8
"""Resources that are written to side by side, beside those that wait for a cloud or a switch."""


class Gate(Protocol):
    """The right to act."""

    def may_act(self) -> bool:
        """Whether an effect may begin now."""
        ...


class PendingWork(Struct, frozen=True, kw_only=True, dict=True):
    """What one decision asks for, as far as it has not been done."""

    ref: Ref
    resource: AnyResource
    status: Status | None
    actions: tuple[Action, ...]
    urgency: Urgency

    @cached_property
    def order(self) -> tuple[bool, Urgency, str, str, str]:
        """What is written first."""
        return pacing_of(self.ref) is not None, self.urgency, self.ref.kind, self.ref.namespace, self.ref.name


def pacing_of(ref: Ref) -> Pacing | None:
    """How slowly a kind is written that comes after all others; None for those others."""
    kind = KINDS.get(ref.kind)
    return kind.pacing if kind is not None else None


class WriteBudget:
    """So many writes a second, with a burst; waiting writes are let through in the order they asked."""

    def __init__(self, clock: Clock, per_second: float, burst: int) -> None:
        self._clock, self._per_second, self._burst = clock, per_second, burst
        self._left = float(burst)
        self._at = clock.monotonic()

    async def spend(self) -> None:
        """Take one write, waiting until there is one."""
        now = self._clock.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._per_second) - 1
        self._at = now
        if self._left < 0:
            await self._clock.sleep(-self._left / self._per_second)


def urgency_of(before: Status, after: Status, actions: tuple[Action, ...]) -> Urgency:
    """How soon a decision should be carried out."""
    due = min((action.urgency for action in actions), default=Urgency.NUMBERS)
    if due <= Urgency.JUDGEMENT or _judgements(before) != _judgements(after):
        return min(due, Urgency.JUDGEMENT)
    return Urgency.FACTS if _facts(before) != _facts(after) else Urgency.NUMBERS


def _judgements(status: Status) -> Any:
    return status.observed_generation, [(each.type, each.status, each.reason) for each in status.conditions]


def _facts(status: Status) -> list[Any]:
    left = {"conditions", *status.moving}
    return [getattr(status, name) for name in status.__struct_fields__ if name not in left]


def batches(actions: tuple[Action, ...]) -> Iterator[list[Action]]:
    """The actions in their order; those that may be done side by side in groups, all others one by one."""
    for _, group in groupby(actions, type):
        every = list(group)
        size = every[0].at_once
        yield from (every[place : place + size] for place in range(0, len(every), size))


class Writer:
    """Carries out the newest decision on each resource, a few resources at a time."""

    def __init__(
        self,
        port: Port,
        gate: Gate,
        budget: WriteBudget,
        around: Runtime,
        *,
        repeat: float = REPEAT_AFTER_SECONDS,
    ) -> None:
        """What was done is not done again for `repeat` seconds."""
        self.halted = False
        """No action begins while this is set: the kill switch is thrown, or the view is not complete."""
        self._port, self._gate, self._budget = port, gate, budget
        self._clock, self._metrics, self._log = around.clock, around.metrics, around.log
        self._numbers_seconds = around.pace.numbers_seconds
        self._attempts = Attempts(around.clock, around.rng, repeat)
        self._waiting: dict[Ref, PendingWork] = {}
        self._busy: dict[Ref, asyncio.Task[None]] = {}
        self._outside: set[Ref] = set()
        """Those of them that wait for somebody outside. A tenant may name whoever answers there, and how slowly: they hold no place."""
        self._writing: set[Ref] = set()
        """Those of them whose status is on its way."""
        self._wanted: dict[Ref, frozenset[bytes]] = {}
        """What the newest decision on each resource asks for; whatever is not in it any more is not begun."""
        self._quiet: set[Ref] = set()
        """Those for which nothing but the status is written now."""
        self._written_at: dict[Ref, float] = {}
        self._paced: set[Ref] = set()
        """Those of paced kinds among them: they do not slow the others down."""
        self._later: dict[Ref, float] = {}
        """When to ask again about a resource of which something could not be written yet."""
        self._slowly: dict[float, WriteBudget] = {}
        """The budgets of paced kinds, by how much they may write in a second."""
        self._news = asyncio.Event()
        self._stopping = False

    def submit(self, decision: Decision, resource: AnyResource, *, effects: bool) -> None:
        """Carry out a decision as soon as may be, in place of an earlier one that still waits.

        Without `effects` only its status is written.
        """
        ref = decision.resource
        keys = {occurrence_of(action): action for action in decision.actions} if effects else {}
        self._wanted[ref] = wanted = frozenset(keys)
        (self._quiet.discard if effects else self._quiet.add)(ref)
        if not self._gate.may_act():
            return
        self._attempts.keep_only(ref, wanted)
        actions = tuple(action for key, action in keys.items() if self._attempts.is_due(ref, key))
        # What is no resource has no status that could tell of a failure.
        status = self._with_failures(ref, resource, decision.status) if resource.uid else decision.status
        urgency = urgency_of(resource.status, status, actions)
        self._later.pop(ref, None)
        pace = urgency if not actions and urgency >= Urgency.FACTS else None
        differs = self._differs(ref, resource.status, status, pace)
        if differs and not self._attempts.is_due(ref, STATUS):
            differs, actions = False, ()  # an action rests on what the status remembers of it, which must stand first
        if not differs and not actions:
            self._waiting.pop(ref, None)
            return
        self._waiting[ref] = PendingWork(
            ref=ref, resource=resource, status=status if differs else None, actions=actions, urgency=urgency
        )
        self._news.set()

    def forget(self, ref: Ref) -> None:
        """The resource is gone, and so is all we remember of it."""
        for memory in (self._waiting, self._wanted, self._written_at, self._later):
            memory.pop(ref, None)
        self._quiet.discard(ref)
        self._paced.discard(ref)
        self._attempts.forget(ref)

    def knows(self, ref: Ref) -> bool:
        """Whether something was asked for here."""
        return ref in self._wanted

    def is_writing(self, kinds: Collection[str]) -> bool:
        """Whether a status of one of these kinds is on its way."""
        return any(ref.kind in kinds for ref in self._writing)

    def take_retries(self) -> set[Ref]:
        """The resources that should be decided anew because something about them failed and may be tried again."""
        now = self._clock.monotonic()
        due = {ref for ref, at in self._later.items() if at <= now}
        for ref in due:
            del self._later[ref]
        return due | self._attempts.take_due()

    def forgive(self) -> None:
        """Try at once what failed: more of the cluster is seen than before."""
        self._attempts.forgive()

    def next_retry(self) -> float:
        """When something that was put off for a moment is due."""
        return min(self._later.values(), default=float("inf"))

    async def run(self) -> None:
        """Work until stopped."""
        while not self._stopping:
            await self._news.wait()
            self._news.clear()
            while self._next() and not self._stopping:
                await self._budget.spend()
                # Waiting for the budget takes time: what is most urgent now may have come meanwhile.
                if (work := self._next()) and not self._stopping:
                    del self._waiting[work.ref]
                    self._busy[work.ref] = asyncio.create_task(self._carry_out(work))

    def _next(self) -> PendingWork | None:
        """What to begin next, most urgent first, one thing at a time for each resource."""
        free = [work for ref, work in self._waiting.items() if ref not in self._busy]
        if not free or len(self._busy) - len(self._outside) >= AT_ONCE:
            return None
        if sum(pacing_of(ref) is not None for ref in self._busy) >= SLOW_AT_ONCE:
            free = [work for work in free if pacing_of(work.ref) is None]
        return min(free, key=attrgetter("order"), default=None)

    async def stop(self) -> None:
        """Begin nothing more, and let what has begun come to its end."""
        self._stopping = True
        self._news.set()
        if self._busy:
            await asyncio.wait(self._busy.values())

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self._waiting and not self._busy

    async def _carry_out(self, work: PendingWork) -> None:
        try:
            await self._wait_for_turn(work)
            paid = [True]  # the first write of this work; each further one spends for itself
            if work.status is not None:
                if not await self._write_status(work, work.status):
                    return
                paid.clear()
            for batch in batches(work.actions):
                if batch[0].timeout_seconds > Action.timeout_seconds:
                    self._outside.add(work.ref)
                    self._news.set()
                else:
                    self._outside.discard(work.ref)
                await asyncio.gather(*(self._do(work, action, paid) for action in batch))
        finally:
            self._busy.pop(work.ref, None)
            self._outside.discard(work.ref)
            self._news.set()

    async def _wait_for_turn(self, work: PendingWork) -> None:
        if (pacing := pacing_of(work.ref)) is not None:
            per_second = pacing.per_second
            budget = self._slowly.setdefault(per_second, WriteBudget(self._clock, per_second, 1))
            await budget.spend()

    async def _do(self, work: PendingWork, action: Action, paid: list[bool]) -> None:
        if not self._may_begin(work.ref, action):
            return
        if paid:
            paid.clear()
        else:
            await self._wait_for_turn(work)
            await self._budget.spend()
        if self._may_begin(work.ref, action):
            await self._act(work, action)

    def _may_begin(self, ref: Ref, action: Action) -> bool:
        """Asked before each action, since much may have been decided since the one before."""
        if self._stopping or self.halted or not self._gate.may_act():
            return False
        if isinstance(action, EmitEvent):
            return True  # it tells of a turn, and the status shows the turn by now
        if action.once:
            return ref in self._wanted and ref not in self._quiet
        return occurrence_of(action) in self._wanted.get(ref, ())

    async def _write_status(self, work: PendingWork, status: Status) -> bool:
        if not self._gate.may_act() or self._stopping:
            return False
        self._writing.add(work.ref)
        try:
            outcome = await self._attempt(work.ref, None, self._port.write_status(work.resource, status))
        finally:
            self._writing.discard(work.ref)
        self._metrics.status_writes.labels(work.urgency.name.lower(), outcome).inc()
        if outcome == "done":
            self._written_at[work.ref] = now = self._clock.monotonic()
            if pacing_of(work.ref) is not None:
                self._paced.add(work.ref)
            if self._waiting.pop(work.ref, None) is not None:
                # It was decided on what stood there before this write, and would be refused: ask anew.
                self._later[work.ref] = now
            elif status.moving:
                self._later.setdefault(work.ref, now + self._pace())
        return outcome == "done"

    async def _act(self, work: PendingWork, action: Action) -> None:
        outcome = await self._attempt(work.ref, action, self._port.perform(action, work.resource))
        for pause in EVENT_RETRIES_SECONDS if isinstance(action, EmitEvent) else ():
            if outcome != "unavailable":
                break
            # Any other action is wanted again by the next decision; the turn that an event tells of is over by then.
            await self._clock.sleep(pause)
            if not self._may_begin(work.ref, action):
                break
            outcome = await self._attempt(work.ref, action, self._port.perform(action, work.resource))
        self._metrics.actions.labels(type(action).__name__, outcome).inc()
        if outcome == "done":
            self._log.info("effect done", effect=type(action).__name__, resource=str(work.ref))

    async def _attempt(self, ref: Ref, action: Action | None, effect: Awaitable[None]) -> str:
        """Wait for one effect and remember how it went."""
        what, key = (type(action).__name__, occurrence_of(action)) if action else ("status", STATUS)
        limit = action.timeout_seconds if action else STATUS_SECONDS
        try:
            async with asyncio.timeout(limit):
                await effect
        except (HeadroomError, TimeoutError) as error:
            why = str(error) or f"no answer within {limit:g}s"
            first = REFUSED_BACKOFF_SECONDS if isinstance(error, Refused) else FIRST_BACKOFF_SECONDS
            # A status harms nobody, and says what else is wrong.
            passes = action is None or not isinstance(error, Refused)
            longest = LONGEST_OUTAGE_SECONDS if passes else LONGEST_BACKOFF_SECONDS
            self._attempts.failed(ref, key, min(first, longest), why, longest)
            self._log.warning("effect failed", effect=what, resource=str(ref), why=why)
            return "unavailable" if isinstance(error, (Unavailable, TimeoutError)) else "refused"
        except Exception as error:  # noqa: BLE001 - a bug in one effect must not stop the others
            self._attempts.failed(ref, key, REFUSED_BACKOFF_SECONDS, f"{type(error).__name__}: {error}")
            self._log.exception("effect raised: this is a bug", effect=what, resource=str(ref))
            return "bug"
        self._attempts.succeeded(ref, key, action.repeat_seconds if action else None)
        return "done"

    def _differs(self, ref: Ref, before: Status, after: Status, pace: Urgency | None) -> bool:
        """Whether a status is to be written now. To take two apart costs more than to decide, so it is done last."""
        if after == before or (pace is not None and not self._is_time(ref, pace)):
            return False
        waiting = self._waiting.get(ref)
        return (waiting is not None and waiting.status is not None) or status_wire(after) != status_wire(before)

    def _is_time(self, ref: Ref, urgency: Urgency) -> bool:
        last, now = self._written_at.get(ref), self._clock.monotonic()
        pacing = pacing_of(ref)
        pace = self._pace() if urgency is Urgency.NUMBERS else FACTS_EVERY_SECONDS
        pace = pace if pacing is None else pacing.each_seconds
        if last is None or now - last >= pace:
            return True
        self._later[ref] = last + pace
        return False

    def _pace(self) -> float:
        least, most = self._numbers_seconds
        return min(max(least, NUMBERS_SECONDS_EACH * (len(self._written_at) - len(self._paced))), most)

    def _with_failures(self, ref: Ref, resource: AnyResource, status: Status) -> Status:
        """The status with a condition for what could not be done, so that the owner sees it where they look."""
        kept = tuple(each for each in status.conditions if each.reason != "ActionFailed")
        why = self._attempts.failures(ref)
        if not why:
            return structs.replace(status, conditions=kept) if len(kept) != len(status.conditions) else status
        condition = conditions.judged(resource, "Degraded", True, "ActionFailed", why, self._clock.now())
        return structs.replace(status, conditions=(*(each for each in kept if each.type != "Degraded"), condition))
