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
from headroom.core.capacity import Outcome, Ration
from headroom.core.demand import Presence
from headroom.core.power.members import Member, Pool, moment_of, told, when
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
        self._payers: dict[tuple[str, str], Ref] = {}
        """The pool that remembers it if somebody does not come, by who and when: the first of those that expect it, so that it counts once."""
        for ref, each in listed:
            for expected in each.status.expected:
                self._payers.setdefault((expected.of, expected.due_at), ref)

    def observe(self, pool: Pool) -> None:
        """Take up what a pool remembers, and say for how many pods of each namespace its machines may wake."""
        pool.fruitless = dict(self._known.get(pool.ref, {}))
        self._meet(pool)
        for it in pool.members:
            if it.woken_for:
                _look(it, pool)
            if it.busy or it.state not in ("On", "Draining"):
                it.kept_for, it.kept_since = (), None
        every: dict[str, list[int]] = {}
        for each in (pool.fruitless, *(known for ref, known in self._known.items() if ref != pool.ref)):
            for name, moments in each.items():
                every.setdefault(name, []).extend(moments)
        pool.rations = {name: ration(sorted(moments), self._now) for name, moments in every.items()}
        pool.keeps = {name: max(0, AT_ONCE - len(moments)) for name, moments in every.items()}
        ends = [each.until for each in pool.rations.values() if each.until is not None]
        pool.ration_ends_at = min(ends, default=None)

    def _meet(self, pool: Pool) -> None:
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
            elif self._payers[each.of, each.due_at] == pool.ref and not _woke_for(pool, namespace):
                _add(pool, namespace)


def _woke_for(pool: Pool, namespace: str) -> bool:
    """Whether a machine was woken for a namespace: that counts when it goes to sleep."""
    return any(namespace in it.woken_for for it in pool.members)


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


def expect(pool: Pool, outcome: Outcome) -> None:
    """Remember for whom machines are woken or kept on that are not there yet."""
    announcers, woken = outcome.round.wanted.announcers, {each.name for each in outcome.opened}
    for it in pool.members if announcers else ():
        uids = outcome.into.get(it.name, ())
        # What is busy anyway, or is for pods that are there, is no wake or wait of theirs.
        is_kept = it.state == "On" and not it.busy and it.name in outcome.needed
        if it.name not in woken and not (is_kept and all(uid in announcers for uid in uids)):
            continue
        for by in (announcers[uid] for uid in uids if uid in announcers):
            if by.is_own_word and by.of not in pool.expected and len(pool.expected) < MOST_EXPECTED:
                pool.expected[by.of] = Expected(of=by.of, uid=by.uid, due_at=told(by.due_at))


def due_until(pool: Pool, it: Member) -> int | None:
    """Until when a machine stays on for announced pods that should start by now, and for which it was woken; None if it need not.

    Between the moment of a run and its pods, what announces it is being changed, and may not be seen: that is no reason to switch off.
    """
    ends = (
        due_at + demand.LATE_MS
        for each in pool.expected.values()
        if (due_at := moment_of(each.due_at) or 0) <= pool.now and each.of.split("/")[1] in it.woken_for
    )
    return max(ends, default=None)


def expected_turns(pool: Pool) -> Iterator[int]:
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


def _look(it: Member, pool: Pool) -> None:
    """Whether a machine was of use to those it was woken for."""
    if not {it.was, it.state} <= {"Booting", "On"}:
        it.woken_for = ()
    elif it.state == "On" and _was_used(it):
        for name in it.woken_for:
            left = pool.fruitless.pop(name, [])[1:]
            pool.fruitless |= {name: left} if left else {}
        it.woken_for = ()


def _was_used(it: Member) -> bool:
    """Whether a pod keeps it on, or has since it came."""
    ready = it.node.ready_since if it.node is not None else None
    power = it.power.since if it.power is not None else None
    return it.busy or (it.idle_since or 0) > max(it.since, ready or 0, power or 0)


def note(pool: Pool, it: Member) -> None:
    """A machine goes to sleep, be it for nothing or not. That one came without its GPUs is nobody's fault but its own."""
    woken = it.woken_for if not it.failures else ()
    # One that was kept for a moment only cost nothing.
    kept = it.kept_for if pool.now - (it.kept_since or pool.now) >= KEPT_MS else ()
    for name in {*woken, *kept}:
        _add(pool, name)
    it.woken_for = it.kept_for = ()


def _add(pool: Pool, namespace: str) -> None:
    pool.fruitless[namespace] = [*pool.fruitless.get(namespace, ()), pool.now][-MOST_MOMENTS:]


def status(pool: Pool) -> tuple[Fruitless, ...]:
    """What is remembered."""
    latest = sorted(pool.fruitless.items(), key=lambda each: (-each[1][-1], each[0]))[:MOST_NAMESPACES]
    return tuple(Fruitless(namespace=name, at=tuple(map(told, moments))) for name, moments in sorted(latest))
