"""Carries out decisions: the status first, then the actions, within one budget of writes.

Nothing is written that already stands there, nothing is repeated that was just done, and nothing begins without the right to act.
When writes are scarce, enforcement goes first, then judgements, then numbers, which are written at a readable pace anyway.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from typing import Any, Final, Protocol

from msgspec import Struct, structs

from headroom.api.kinds import AnyResource
from headroom.api.resources import Status
from headroom.model import conditions
from headroom.model.actions import Action, EmitEvent
from headroom.model.decisions import Decision, Ref, status_wire
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.model.ports import Clock, Port
from headroom.runtime.surroundings import Surroundings

NUMBERS_EVERY_SECONDS: Final = 10.0
REPEAT_AFTER_SECONDS: Final = 30.0
"""How long a thing that was done is left to take effect before the same may be done again."""
FIRST_BACKOFF_SECONDS: Final = 1.0
REFUSED_BACKOFF_SECONDS: Final = 10.0
LONGEST_BACKOFF_SECONDS: Final = 300.0
EFFECT_SECONDS: Final = 4.0
"""Less than the leader's margin: an effect that began under our lease ends under it."""
AT_ONCE: Final = 8


class Gate(Protocol):
    """The right to act."""

    def may_act(self) -> bool:
        """Whether an effect may begin now."""
        ...


class Urgency(IntEnum):
    """What is written first when not everything can be."""

    ENFORCEMENT = 0
    JUDGEMENT = 1
    NUMBERS = 2


class Work(Struct, frozen=True, kw_only=True):
    """What one decision asks for, as far as it has not been done."""

    ref: Ref
    resource: AnyResource
    status: Status | None
    actions: tuple[Action, ...]
    urgency: Urgency


class Attempts(Struct):
    """How often something failed, and before when it is not tried again."""

    failures: int = 0
    not_before: float = 0.0
    why: str = ""


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
    if any(not isinstance(action, EmitEvent) for action in actions):
        return Urgency.ENFORCEMENT
    if actions or _judgements(before) != _judgements(after):
        return Urgency.JUDGEMENT
    return Urgency.NUMBERS


def _judgements(status: Status) -> Any:
    return status.observed_generation, [(each.type, each.status, each.reason) for each in status.conditions]


class Writer:
    """Carries out the newest decision on each resource, a few resources at a time."""

    def __init__(self, port: Port, gate: Gate, budget: WriteBudget, around: Surroundings) -> None:
        self._port, self._gate, self._budget = port, gate, budget
        self._clock, self._rng, self._metrics, self._log = around.clock, around.rng, around.metrics, around.log
        self._waiting: dict[Ref, Work] = {}
        self._busy: dict[Ref, asyncio.Task[None]] = {}
        self._attempts: dict[Ref, dict[Action | None, Attempts]] = {}
        """What was tried for each resource; None stands for its status."""
        self._numbers_at: dict[Ref, float] = {}
        self._retries: set[tuple[Ref, float]] = set()
        self._silenced: set[Ref] = set()
        """Resources whose effects were switched off; it ends even those of a decision that is being carried out."""
        self._news = asyncio.Event()
        self._stopping = False

    def submit(self, decision: Decision, resource: AnyResource, *, effects: bool) -> None:
        """Carry out a decision as soon as may be, in place of an earlier one that still waits.

        Without `effects` only its status is written.
        """
        ref = decision.resource
        (self._silenced.discard if effects else self._silenced.add)(ref)
        if not self._gate.may_act():
            return
        self._drop_unwanted(ref, decision.actions)
        actions = tuple(each for each in decision.actions if effects and self._is_due(ref, each))
        status = self._with_refusals(ref, resource, decision.status)
        differs = status_wire(status) != status_wire(resource.status)
        urgency = urgency_of(resource.status, status, actions)
        if differs and not actions and urgency is Urgency.NUMBERS and not self._may_write_numbers(ref):
            differs = False
        if not self._is_due(ref, None):
            differs = False
        if not differs and not actions:
            self._waiting.pop(ref, None)
            return
        self._waiting[ref] = Work(
            ref=ref, resource=resource, status=status if differs else None, actions=actions, urgency=urgency
        )
        self._news.set()

    def forget(self, ref: Ref) -> None:
        """The resource is gone, and so is all we remember of it."""
        self._waiting.pop(ref, None)
        self._numbers_at.pop(ref, None)
        self._retries = {(each, at) for each, at in self._retries if each != ref}
        self._attempts.pop(ref, None)
        self._silenced.discard(ref)

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

    def _next(self) -> Work | None:
        """What to begin next, most urgent first, one thing at a time for each resource."""
        free = [work for ref, work in self._waiting.items() if ref not in self._busy]
        if not free or len(self._busy) >= AT_ONCE:
            return None
        return min(free, key=lambda work: (work.urgency, work.ref))

    async def stop(self) -> None:
        """Begin nothing more, and let what has begun come to its end."""
        self._stopping = True
        self._news.set()
        if self._busy:
            await asyncio.wait(self._busy.values())

    def take_retries(self) -> set[Ref]:
        """The resources that should be decided anew because something about them failed and may be tried again."""
        now = self._clock.monotonic()
        due = {(ref, at) for ref, at in self._retries if at <= now}
        self._retries -= due
        return {ref for ref, _ in due}

    @property
    def idle(self) -> bool:
        """Nothing waits and nothing runs."""
        return not self._waiting and not self._busy

    async def _carry_out(self, work: Work) -> None:
        try:
            if work.status is None or await self._write_status(work, work.status):
                for number, action in enumerate(work.actions):
                    if number or work.status is not None:
                        await self._budget.spend()  # the first write of this work is paid for already
                    await self._act(work, action)
        finally:
            self._busy.pop(work.ref, None)
            self._news.set()

    async def _write_status(self, work: Work, status: Status) -> bool:
        if not self._gate.may_act():
            return False
        outcome = await self._attempt(work.ref, None, self._port.write_status(work.resource, status))
        self._metrics.status_writes.labels(work.urgency.name.lower(), outcome).inc()
        if outcome == "done":
            self._numbers_at[work.ref] = self._clock.monotonic()
        return outcome == "done"

    async def _act(self, work: Work, action: Action) -> None:
        if not self._gate.may_act() or self._stopping or work.ref in self._silenced:
            return
        outcome = await self._attempt(work.ref, action, self._port.perform(action, work.resource))
        self._metrics.actions.labels(type(action).__name__, outcome).inc()

    async def _attempt(self, ref: Ref, action: Action | None, effect: Any) -> str:
        """Wait for one effect and remember how it went."""
        what = type(action).__name__ if action else "status"
        try:
            async with asyncio.timeout(EFFECT_SECONDS):
                await effect
        except (HeadroomError, TimeoutError) as error:
            why = str(error) or f"no answer within {EFFECT_SECONDS:g} s"
            first = REFUSED_BACKOFF_SECONDS if isinstance(error, Refused) else FIRST_BACKOFF_SECONDS
            self._failed(ref, action, first, why)
            self._log.warning("effect failed", effect=what, resource=str(ref), why=why)
            return "unavailable" if isinstance(error, (Unavailable, TimeoutError)) else "refused"
        except Exception as error:  # noqa: BLE001 - a bug in one effect must not stop the others
            self._failed(ref, action, REFUSED_BACKOFF_SECONDS, f"{type(error).__name__}: {error}")
            self._log.exception("effect raised: this is a bug", effect=what, resource=str(ref))
            return "bug"
        self._succeeded(ref, action)
        return "done"

    def _succeeded(self, ref: Ref, action: Action | None) -> None:
        tried = self._attempts.setdefault(ref, {})
        before = tried.pop(action, None)
        if action is None:
            return
        now = self._clock.monotonic()
        tried[action] = Attempts(not_before=now + REPEAT_AFTER_SECONDS)
        if before is not None and before.failures:
            self._retries.add((ref, now))  # so that the condition about the failure goes
        self._log.info("effect done", effect=type(action).__name__, resource=str(ref))

    def _failed(self, ref: Ref, action: Action | None, first: float, why: str) -> None:
        before = self._attempts.setdefault(ref, {}).setdefault(action, Attempts())
        pause = min(LONGEST_BACKOFF_SECONDS, first * 2**before.failures) * self._rng.uniform(1.0, 1.5)
        before.failures = min(before.failures + 1, 16)
        before.not_before = self._clock.monotonic() + pause
        before.why = why
        # Decided anew at once, so that the owner sees what failed, and again when it may be tried again.
        self._retries |= {(ref, self._clock.monotonic()), (ref, before.not_before)}

    def _is_due(self, ref: Ref, action: Action | None) -> bool:
        known = self._attempts.get(ref, {}).get(action)
        return known is None or known.not_before <= self._clock.monotonic()

    def _drop_unwanted(self, ref: Ref, wanted: tuple[Action, ...]) -> None:
        """Forget failures of actions that nobody wants any more, and successes that are long past."""
        now, tried = self._clock.monotonic(), self._attempts.get(ref, {})
        for action in [each for each in tried if each is not None and each not in wanted]:
            if tried[action].failures or tried[action].not_before <= now:
                del tried[action]

    def _may_write_numbers(self, ref: Ref) -> bool:
        last = self._numbers_at.get(ref)
        return last is None or self._clock.monotonic() - last >= NUMBERS_EVERY_SECONDS

    def _with_refusals(self, ref: Ref, resource: AnyResource, status: Status) -> Status:
        """The status with a condition for what could not be done, so that the owner sees it where they look."""
        kept = tuple(each for each in status.conditions if each.reason != "ActionFailed")
        failed = [known.why for action, known in self._attempts.get(ref, {}).items() if action and known.failures]
        if not failed:
            return structs.replace(status, conditions=kept) if len(kept) != len(status.conditions) else status
        why = "; ".join(sorted(set(failed)))
        condition = conditions.judged(resource, "Degraded", True, "ActionFailed", why, self._clock.now())
        return structs.replace(status, conditions=(*(each for each in kept if each.type != "Degraded"), condition))
