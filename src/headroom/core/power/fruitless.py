"""Fruitless wakes: machines that were woken for pods of a namespace, or kept on for them, and went to sleep again without any pod.

A machine that is kept on for pods that are announced and do not come is as fruitless, each time they do not.

After the first of them a namespace has a ration: so many an hour over all pools together, later ever fewer. Each wake that was of use takes one back
that its pool remembers: what a pool remembers depends on no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from headroom.api.kinds import AnyResource
from headroom.api.power_status import MOST_EXPECTED, MOST_NAMESPACES, Expected, Fruitless, PowerPoolStatus
from headroom.core import demand
from headroom.core.capacity import Ration, SupplyOutcome
from headroom.core.demand import Presence
from headroom.core.power.members import PoolMachine, PowerPoolState, moment_of, told, when
from headroom.model import times
from headroom.model.decisions import Ref
from headroom.model.world import World

AN_HOUR: Final = 5
"""Machines that are woken for a namespace in an hour though none was of use,"""
AT_ONCE: Final = 5
"""and idle ones that are then kept on for its refused pods, one less for each time that it was for nothing; before, as many as they need."""
DOUBLES_AFTER: Final = 10
LONGEST_PAUSE_MS: Final = 4 * times.HOUR
KEPT_MS: Final = 10 * times.MINUTE
REMEMBERED_MS: Final = 24 * times.HOUR
MOST_MOMENTS: Final = 32
"""For each namespace, the latest."""


class Memory:
    """What all pools remember."""

    def __init__(self, world: World, pools: Iterable[tuple[Ref, AnyResource]]) -> None:
        now = self._now = world.now
        self._presence = Presence(world)
        listed = list(pools)
        self._known = {ref: _moments(each.status, now) for ref, each in listed if each.status.fruitless}
        self._payers: dict[tuple[str, str], Ref | None] = {}
        """The pool that remembers it if somebody does not come, by who and when: the first of those that expect it, so that it counts once.
        None does if a machine was woken: that counts when it goes to sleep."""
        for ref, each in listed:
            for expected in each.status.expected:
                key = (expected.of, expected.due_at)
                self._payers[key] = None if expected.woken else self._payers.get(key, ref)

    def observe(self, pool: PowerPoolState) -> None:
        """Take up what a pool remembers, and say for how many pods of each namespace its machines may wake."""
        pool.fruitless = dict(self._known.get(pool.ref, {}))
        self._meet(pool)
        for machine in pool.members:
            if machine.woken_for:
                _look(machine, pool)
            if machine.busy or machine.state not in ("On", "Draining"):
                machine.kept_for, machine.kept_since = (), None
        every: dict[str, list[int]] = {}
        for each in (pool.fruitless, *(known for ref, known in self._known.items() if ref != pool.ref)):
            for name, moments in each.items():
                every.setdefault(name, []).extend(moments)
        pool.rations = {name: ration(sorted(moments), self._now) for name, moments in every.items()}
        pool.keeps = {name: max(0, AT_ONCE - len(moments)) for name, moments in every.items()}
        ends = [each.until for each in pool.rations.values() if each.until is not None]
        pool.ration_ends_at = min(ends, default=None)

    def _meet(self, pool: PowerPoolState) -> None:
        """Whether those have come that are expected; who announced them answers for it if they have not in time."""
        pool.expected = {}
        for each in pool.before.expected:
            if each.of.count("/") != 2:
                continue  # nobody is named so
            due_at = moment_of(each.due_at) or 0
            if due_at > pool.now + pool.boot_ms:
                continue  # the clock was turned back: it is announced anew if it is still so
            if self._presence.has_come(each.of, each.uid, due_at):
                continue
            namespace = each.of.split("/")[1]
            if due_at + demand.LATE_MS > pool.now:
                pool.expected[each.of] = each
            elif self._payers[each.of, each.due_at] == pool.ref:
                _add(pool, namespace)


def ration(moments: list[int], now: int) -> Ration:
    """For how many pods of a namespace machines may wake, given when wakes for it were fruitless in the last day.

    Up to five an hour at first; then one after the other, an hour apart, and the more there were the longer: up to four hours, so that
    nobody who has mended the pods waits for longer. A gang counts as five.
    """
    lately = [at for at in moments if at > now - times.HOUR]
    if len(moments) <= AN_HOUR:
        until = lately[0] + times.HOUR if len(lately) >= AN_HOUR else None
        return Ration(AN_HOUR - len(lately), gangs=not lately, until=until)
    pause = min(LONGEST_PAUSE_MS, times.HOUR << (len(moments) - AN_HOUR - 1) // DOUBLES_AFTER)
    until = moments[-1] + pause
    if until > now:
        return Ration(0, gangs=False, until=until)
    return Ration(1, gangs=moments[-1] + AN_HOUR * pause <= now)


def expect(pool: PowerPoolState, outcome: SupplyOutcome) -> None:
    """Remember for whom machines are woken or kept on that are not there yet."""
    announcers, woken = outcome.round.wanted.announcers, {each.name for each in outcome.opened}
    for machine in pool.members if announcers else ():
        uids = outcome.into.get(machine.name, ())
        # What is busy anyway, or is for pods that are there, is no wake or wait of theirs.
        is_kept = machine.state == "On" and not machine.busy and machine.name in outcome.needed
        if machine.name not in woken and not (is_kept and all(uid in announcers for uid in uids)):
            continue
        for by in (announcers[uid] for uid in uids if uid in announcers and announcers[uid].is_own_word):
            one = Expected(of=by.of, uid=by.uid, due_at=told(by.due_at), woken=machine.name in woken)
            known = pool.expected.get(by.of)
            is_new = known is None and len(pool.expected) < MOST_EXPECTED
            if is_new or (one.woken and known is not None and known.due_at == one.due_at):
                pool.expected[by.of] = one


def due_until(pool: PowerPoolState, machine: PoolMachine) -> int | None:
    """Until when a machine stays on for announced pods that should start by now, and for which it was woken; None if it need not.

    Between the moment of a run and its pods, what announces it is being changed, and may not be seen: that is no reason to switch off.
    """
    ends = (
        due_at + demand.LATE_MS
        for each in pool.expected.values()
        if (due_at := moment_of(each.due_at) or 0) <= pool.now and each.of.split("/")[1] in machine.woken_for
    )
    return max(ends, default=None)


def expected_turns(pool: PowerPoolState) -> Iterator[int]:
    """When it shows that somebody has not come."""
    return ((moment_of(each.due_at) or 0) + demand.LATE_MS for each in pool.expected.values())


def _moments(status: PowerPoolStatus, now: int) -> dict[str, list[int]]:
    """When wakes for each namespace were fruitless, in the last day."""
    found = {}
    for each in status.fruitless:
        moments = (moment for text in each.at if (moment := when(text, now)) is not None)
        if late := sorted(at for at in moments if at > now - REMEMBERED_MS):
            found[each.namespace] = late
    return found


def _look(machine: PoolMachine, pool: PowerPoolState) -> None:
    """Whether a machine was of use to those it was woken for."""
    if not {machine.was, machine.state} <= {"Booting", "On"}:
        machine.woken_for = ()
    elif machine.state == "On" and _was_used(machine):
        for name in machine.woken_for:
            left = pool.fruitless.pop(name, [])[1:]
            pool.fruitless |= {name: left} if left else {}
        machine.woken_for = ()


def _was_used(machine: PoolMachine) -> bool:
    """Whether a pod keeps it on, or has since it came."""
    ready = machine.node.ready_since if machine.node is not None else None
    power = machine.power.since if machine.power is not None else None
    return machine.busy or (machine.idle_since or 0) > max(machine.since, ready or 0, power or 0)


def note(pool: PowerPoolState, machine: PoolMachine) -> None:
    """A machine goes to sleep, be it for nothing or not. That one came without its GPUs is nobody's fault but its own."""
    woken = machine.woken_for if not machine.failures else ()
    # One that was kept for a moment only cost nothing.
    kept = machine.kept_for if pool.now - (machine.kept_since or pool.now) >= KEPT_MS else ()
    for name in {*woken, *kept}:
        _add(pool, name)
    machine.woken_for = machine.kept_for = ()


def _add(pool: PowerPoolState, namespace: str) -> None:
    pool.fruitless[namespace] = [*pool.fruitless.get(namespace, ()), pool.now][-MOST_MOMENTS:]


def status(pool: PowerPoolState) -> tuple[Fruitless, ...]:
    """What is remembered."""
    latest = sorted(pool.fruitless.items(), key=lambda each: (-each[1][-1], each[0]))[:MOST_NAMESPACES]
    return tuple(Fruitless(namespace=name, at=tuple(map(told, moments))) for name, moments in sorted(latest))
