"""The one loop: observe, ask every plan that has something to decide, hand the decisions to the writer.

Plans are asked when what they depend on changed, at most as often as they say; bursts are gathered. Every minute each plan is
asked about everything, and a decision that differs from what the small passes led to is counted as a bug. A plan that raises is
asked resource by resource, so that only the one that makes it raise goes without a decision; one that decides all together is not,
since it leaves out by itself what makes it raise.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from time import perf_counter, time
from typing import Final

from msgspec import Struct, field, structs

from headroom.api.kinds import AnyResource
from headroom.api.resources import Status
from headroom.core.ticks import Heard, Tick, ask_in_order
from headroom.model.actions import Action
from headroom.model.changes import EVERYTHING, URGENT, Changes
from headroom.model.decisions import Decision, Ref, split_finalizers, substance
from headroom.model.plans import INTERNAL_ERROR, Plan, raised
from headroom.model.ports import Port
from headroom.model.world import World
from headroom.runtime.sight import SightLog
from headroom.runtime.surroundings import Runtime
from headroom.runtime.writes import Gate, Writer

GATHER_SECONDS: Final = 0.05
"""A burst of events is one reason to tick, not many."""
IDLE_PLAN_SECONDS: Final = 1.0
"""A plan that has nothing to decide on is asked no more often."""
BLIND_SECONDS: Final = 60.0


class PlanState(Struct):
    """Where one plan stands."""

    plan: Plan
    full_pass_seconds: float
    pending: Changes = field(default_factory=lambda: Changes(everything=True))
    asked_at: float = -1e9
    full_at: float = -1e9
    look_at: dict[Ref, float] = field(default_factory=dict)
    absent: set[Ref] = field(default_factory=set)
    """Objects that do not exist yet and that it decided on, such as those that it has made."""

    def has_news(self) -> bool:
        """Whether it has not been asked about everything that is new."""
        return bool(self.pending)

    @property
    def _has_haste(self) -> bool:
        """Whether it decides on anything: of most kinds there is not one resource, and then all that is left to do is to tidy up."""
        return bool(self.look_at or self.pending.resources or self.pending.everything)

    def hear(self, refs: Collection[Ref]) -> None:
        """An earlier plan says something else of these now."""
        self.pending.resources |= set(refs)

    def due_at(self) -> float:
        """When it should be asked next."""
        ready = self.asked_at + (self.plan.at_most_every_ms / 1000 if self._has_haste else IDLE_PLAN_SECONDS)
        if self.pending:
            return ready
        soonest = min(self.look_at.values(), default=float("inf"))
        return max(ready, min(soonest, self.full_at + self.full_pass_seconds))


class Bell:
    """Tells whoever waits that there is news."""

    def __init__(self) -> None:
        self.rings = 0
        self.rung_at = 0.0
        """Seconds since 1970 of real time, whatever time is decided for."""
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """There is news."""
        self.rings += 1
        self.rung_at = time()
        self._rung.set()
        self._rung = asyncio.Event()

    async def wait(self, heard: int, seconds: float) -> None:
        """Until it rang more often than was heard, or so much real time has passed."""
        if self.rings == heard:
            with suppress(TimeoutError):  # silence is an answer too
                await asyncio.wait_for(self._rung.wait(), seconds)


class Loop:
    """Runs the plans over one port."""

    def __init__(
        self,
        port: Port,
        plans: Iterable[Plan],
        writers: tuple[Writer, Writer],
        gate: Gate,
        around: Runtime,
    ) -> None:
        """The second writer is for finalizers alone, so that many of them never hold up anything else."""
        self.noted: Callable[[Decision, int], None] = lambda _decision, _now: None
        """Told of every decision that differs from the one before, while this process may act."""
        self.decisions: dict[Ref, Decision] = {}
        """The newest decision on every resource."""
        self.ticks = 0
        self.bell = Bell()
        """Rung after every tick in which something was decided."""
        self._port, self._gate = port, gate
        self._writer, self._finalizing = writers
        self._clock, self._metrics, self._log = around.clock, around.metrics, around.log
        self._pace = around.pace
        self._heard = Heard()
        self._states = [PlanState(plan, around.pace.full_pass_seconds) for plan in plans]
        self._bugs: dict[str, str] = {}
        self._sight = SightLog(around.clock, around.log)
        self._stopping = False
        self._was_acting = False
        self._saw_at = self._looked_at = around.clock.monotonic()

    async def run(self) -> None:
        """Tick whenever there is something to decide, until stopped."""
        while not self._stopping:
            due = self.tick()
            await self._wait(due)

    def stop(self) -> None:
        """End after the tick that is under way."""
        self._stopping = True

    async def _wait(self, due: float) -> None:
        """Until a plan is due, or it is time to look around. A tick costs as much as many events, so none is made for news that must wait."""
        latest = self._clock.monotonic() + self._pace.idle_seconds
        while not self._stopping:
            pause = min(due, latest) - self._clock.monotonic()
            if pause > GATHER_SECONDS:
                await self._news_within(pause)
            await self._clock.sleep(GATHER_SECONDS)
            due = self._hear()
            if min(due, latest) <= self._clock.monotonic():
                return

    async def _news_within(self, seconds: float) -> None:
        knowing = [state.plan.name for state in self._states if state.pending and not self._is_unsettled(state)]
        news = asyncio.ensure_future(self._port.changed(besides=knowing))
        rest = asyncio.ensure_future(self._clock.sleep(seconds))
        await asyncio.wait((news, rest), return_when=asyncio.FIRST_COMPLETED)
        news.cancel()
        rest.cancel()

    def _hear(self) -> float:
        """Take in what is new. Returns when somebody should be asked: at once if it may be that nothing is to be done any more."""
        found = [(state, self._port.take_changes(state.plan.name)) for state in self._states]
        for state, changes in found:
            state.pending.add(changes)
        is_urgent = any(not URGENT.isdisjoint(changes.facts) for _, changes in found)
        return self._clock.monotonic() if is_urgent else self._soonest()

    def _soonest(self) -> float:
        """When the next plan that may be asked is due."""
        soonest = min((state.due_at() for state in self._states if not self._is_unsettled(state)), default=float("inf"))
        return min(soonest, self._writer.next_retry())

    def tick(self) -> float:
        """Ask every plan that is due. Returns when the next one will be."""
        self.ticks += 1
        self._looked_at = self._clock.monotonic()
        world = self._port.world(self._clock.now())
        self._writer.halted = self._finalizing.halted = world.stopped or not world.complete
        acting = self._gate.may_act() and world.complete
        if world.complete:
            self._saw_at = self._clock.monotonic()
        sight_turned = self._sight.look(world)
        if sight_turned:
            self._writer.forgive()
            self._finalizing.forgive()
        # Who may act again, or sees more, carries out what stands, not only what changes from now on.
        is_anew = (acting and not self._was_acting) or sight_turned
        self._was_acting = acting
        retries = self._writer.take_retries() | self._finalizing.take_retries()
        for state in self._states:
            state.pending.add(self._port.take_changes(state.plan.name))
            state.pending.resources |= {ref for ref in retries if ref.kind in state.plan.kinds}
            state.pending.everything = state.pending.everything or is_anew
        if self._ask_in_order(world):
            self.bell.ring()
        self._measure(world)
        return self._soonest()

    def _ask_in_order(self, world: World) -> bool:
        """Ask the plans that are due; whether any was asked."""
        tick = Tick(world, [state.plan for state in self._states], self.decisions)
        return ask_in_order(
            self._states,
            lambda state: state.due_at() <= self._clock.monotonic(),
            lambda state: None if self._is_unsettled(state) else self._ask(state, tick),
        )

    def _is_unsettled(self, state: PlanState) -> bool:
        """Whether a status is on its way that a plan which decides all its resources together rests on; its end is news."""
        return state.plan.decides_together and self._writer.is_writing(state.plan.kinds)

    def _ask(self, state: PlanState, tick: Tick) -> set[Ref]:
        """Ask a plan; the resources of which it says something else now."""
        now = self._clock.monotonic()
        changes, state.pending, state.asked_at = state.pending, Changes(), now
        changes.resources |= {ref for ref, at in state.look_at.items() if at <= now}
        turned = self._take_in(state, tick, self._pass(state.plan, tick, changes), is_full=changes.everything)
        self._do_chores(state.plan, tick)
        if changes.everything:
            state.full_at = now
        elif now - state.full_at >= state.full_pass_seconds:
            state.full_at = now
            turned |= self._compare(state, tick)
        return turned

    def _look_again_ms(self, decision: Decision) -> int:
        longest, turn = self._pace.turn_ms.get(decision.resource.kind, 0), decision.next_turn_ms
        return decision.look_again_ms if turn is None else max(decision.look_again_ms, min(turn, longest))

    def _pass(self, plan: Plan, tick: Tick, changes: Changes) -> list[Decision]:
        """Ask one plan; one that raises is asked again for each resource alone."""
        scope = "everything" if changes.everything else "changes"
        began = perf_counter()
        try:
            found = tick.ask(plan, changes)
            self._note_left_out(plan, found)
            return found
        except Exception as error:  # noqa: BLE001 - a bug in one plan must not stop the others
            self._bug(plan, error)
            world = tick.seen_by(plan)
            concerned = [each for kind in plan.kinds for each in world.of_kind(kind)]
            if not changes.everything and not (changes.pods or changes.nodes or changes.unbound or changes.facts):
                concerned = [(ref, each) for ref, each in concerned if ref in changes.resources]
            if plan.decides_together:
                found = [raised(world, ref, resource, error) for ref, resource in concerned]
            else:
                alone = [self._alone(plan, world, ref, resource) for ref, resource in concerned]
                found = [decision for decision in alone if decision is not None]
            tick.learn(found)
            return found
        finally:
            self._metrics.plan_passes.labels(plan.name, scope).inc()
            self._metrics.plan_seconds.labels(plan.name).observe(perf_counter() - began)

    def _alone(self, plan: Plan, world: World, ref: Ref, resource: AnyResource) -> Decision | None:
        try:
            found = plan.decide(world, Changes(resources={ref}))
            return next((each for each in found if each.resource == ref), None)
        except Exception as error:  # noqa: BLE001 - only this resource goes without a decision
            return raised(world, ref, resource, error)

    def _bug(self, plan: Plan, error: Exception) -> None:
        """Count it, and log it when it is a new one."""
        self._metrics.plan_errors.labels(plan.name).inc()
        if self._bugs.get(plan.name) != repr(error):
            self._bugs[plan.name] = repr(error)
            self._log.exception("plan raised: this is a bug", plan=plan.name)

    def _note_left_out(self, plan: Plan, decisions: list[Decision]) -> None:
        """Count what a plan that decides all together has left out, and log it when it is new."""
        left_out = [each for each in decisions if plan.decides_together and each.reason == INTERNAL_ERROR]
        if not left_out:
            return
        self._metrics.plan_errors.labels(plan.name).inc()
        told = "; ".join(f"{each.resource}: {each.message}" for each in left_out)
        if self._bugs.get(plan.name) != told:
            self._bugs[plan.name] = told
            self._log.error("left out, since deciding raised: this is a bug", plan=plan.name, resources=told)

    def _take_in(self, state: PlanState, tick: Tick, decisions: list[Decision], *, is_full: bool) -> set[Ref]:
        """Hand over what was decided; the resources of which something else is said now."""
        world, turned = tick.world, set[Ref]()
        # With nothing due on an object that does not exist there is nothing to remember of it.
        due = {each.resource for each in decisions if each.actions}
        known = due if is_full else due | (state.absent - {each.resource for each in decisions})
        state.absent = {ref for ref in known if ref not in world.resources}
        for decision in decisions:
            ref, resource = decision.resource, world.resources.get(decision.resource)
            if resource is None and ref not in state.absent:
                continue
            if self._heard.is_news(state.plan, decision, world.now):
                turned.add(ref)
            # Counted from the moment that was looked at: deciding takes time, and a turn that is due must not wait for it.
            state.look_at[ref] = self._looked_at + self._look_again_ms(decision) / 1000
            try:
                self._hand_over(decision, resource, world)
            except Exception as error:  # noqa: BLE001 - one bad decision must not stop the others
                self._bug(state.plan, error)
        for ref in [ref for ref in state.look_at if ref not in world.resources and ref not in state.absent]:
            del state.look_at[ref]
            self.decisions.pop(ref, None)
            self._heard.forget(ref)
            self._writer.forget(ref)
            self._finalizing.forget(ref)
            turned.add(ref)
        return turned

    def _hand_over(self, decision: Decision, resource: AnyResource | None, world: World) -> None:
        self._note(decision, world.now)
        if resource is None:
            if world.complete:
                self._do(decision.resource, decision.actions, self._writer, effects=not world.stopped)
            return
        paused = resource.spec is not None and resource.spec.paused
        if world.complete or self._is_long_blind():
            effects = world.complete and not world.stopped and not paused
            of_finalizers, others = split_finalizers(decision.actions)
            self._writer.submit(structs.replace(decision, actions=others), resource, effects=effects)
            if of_finalizers or self._finalizing.knows(decision.resource):
                self._do(decision.resource, of_finalizers, self._finalizing, effects=effects)

    def _is_long_blind(self) -> bool:
        """Whether the view has been incomplete for so long that the statuses should say so; a moment is no news."""
        return self._clock.monotonic() - self._saw_at > BLIND_SECONDS

    def _do_chores(self, plan: Plan, tick: Tick) -> None:
        """What is due although no resource asks for it."""
        world = tick.world
        if not world.complete:
            return
        try:
            due = tick.chores(plan)
        except Exception as error:  # noqa: BLE001 - a bug in one plan must not stop the others
            self._bug(plan, error)
            return
        of_finalizers, others = split_finalizers(due)
        self._do(Ref("Chores", "", plan.name), others, self._writer, effects=not world.stopped)
        self._do(Ref("Chores", "", plan.name), of_finalizers, self._finalizing, effects=not world.stopped)

    def _do(self, ref: Ref, due: tuple[Action, ...], writer: Writer, *, effects: bool) -> None:
        """Have actions carried out that no status speaks of."""
        nobody = AnyResource(kind=ref.kind, namespace=ref.namespace, name=ref.name, spec=None, status=Status())
        decision = Decision(resource=ref, status=Status(), reason="", message="", actions=due)
        writer.submit(decision, nobody, effects=effects)

    def _note(self, decision: Decision, now: int) -> None:
        """Keep the decision, and log it if it is a new one."""
        before = self.decisions.get(decision.resource)
        self.decisions[decision.resource] = decision
        if decision.routine and (before is None or before.routine):
            return
        if before is None or is_news(before, decision):
            if self._gate.may_act():
                self.noted(decision, now)
            self._log.info(
                "decision",
                resource=str(decision.resource),
                reason=decision.reason,
                message=decision.message,
                actions=[type(action).__name__ for action in decision.actions],
            )

    def _compare(self, state: PlanState, tick: Tick) -> set[Ref]:
        """Hold what the small passes led to against a full one, which sees the same of earlier plans."""
        plan = state.plan
        full = {each.resource: each for each in self._pass(plan, tick, EVERYTHING)}
        known = {ref: each for ref, each in self.decisions.items() if ref.kind in plan.kinds}
        for ref in differences(known, full):
            self._metrics.plan_differences.labels(plan.name).inc()
            self._log.error("a full pass decides differently: this is a bug", plan=plan.name, resource=str(ref))
        return self._take_in(state, tick, list(full.values()), is_full=True)

    def _measure(self, world: World) -> None:
        metrics = self._metrics
        metrics.leading.set(self._gate.may_act())
        metrics.stopped.set(world.stopped)
        metrics.complete.set(world.complete)
        metrics.pods.set(len(world.pods))
        metrics.nodes.set(len(world.nodes))


def is_news(before: Decision, after: Decision) -> bool:
    """Whether a decision says something that the one before did not: that something is due no more goes without saying."""
    (old, had), (new, has) = substance(before), substance(after)
    return new != old or not set(has) <= set(had)


def differences(known: Mapping[Ref, Decision], full: Mapping[Ref, Decision]) -> list[Ref]:
    """The resources that a full pass judges differently."""
    return sorted(
        ref
        for ref in known.keys() | full.keys()
        if ref not in known or ref not in full or substance(known[ref]) != substance(full[ref])
    )
