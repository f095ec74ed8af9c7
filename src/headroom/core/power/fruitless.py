"""Fruitless wakes: machines that were woken for pods of a namespace, came, and went to sleep again without any pod.

After the first of them a namespace has a ration: so many an hour, over all pools together. Each wake that was of use takes one back.
"""

from __future__ import annotations

from typing import Final

from headroom.api.power_status import MOST_NAMESPACES, Fruitless
from headroom.core.power.members import Member, Pool, told, when
from headroom.model import times

AN_HOUR: Final = 5
"""Machines that are woken for a namespace in an hour though none was of use."""
REMEMBERED_MS: Final = 24 * times.HOUR
MOST_MOMENTS: Final = 32
"""For each namespace, the latest."""


def observe(pools: list[Pool]) -> None:
    """Take up what is remembered, and say for how many pods of each namespace machines may wake."""
    for pool in pools:
        pool.fruitless = {}
        for each in pool.before.fruitless:
            moments = [moment for text in each.at if (moment := when(text, pool.now)) is not None]
            pool.fruitless[each.namespace] = sorted(at for at in moments if at > pool.now - REMEMBERED_MS)
    for pool in pools:
        for it in pool.members:
            if it.woken_for:
                _look(it, pools)
    every: dict[str, list[int]] = {}
    for pool in pools:
        pool.fruitless = {name: moments for name, moments in pool.fruitless.items() if moments}
        for name, moments in pool.fruitless.items():
            every.setdefault(name, []).extend(moments)
    for pool in pools:
        hour = {name: sorted(at for at in moments if at > pool.now - times.HOUR) for name, moments in every.items()}
        pool.rations = {name: max(0, AN_HOUR - len(moments)) for name, moments in hour.items()}
        ends = [moments[-AN_HOUR] + times.HOUR for moments in hour.values() if len(moments) >= AN_HOUR]
        pool.ration_ends_at = min(ends, default=None)


def _look(it: Member, pools: list[Pool]) -> None:
    """Whether a machine was of use to those it was woken for."""
    if not {it.was, it.state} <= {"Booting", "On"}:
        it.woken_for = ()
    elif it.state == "On" and _was_used(it):
        for name in it.woken_for:
            oldest = min(
                (pool for pool in pools if pool.fruitless.get(name)), key=lambda p: p.fruitless[name][0], default=None
            )
            if oldest is not None:
                del oldest.fruitless[name][0]
        it.woken_for = ()


def _was_used(it: Member) -> bool:
    """Whether a pod keeps it on, or has since it came."""
    ready = it.node.ready_since if it.node is not None else None
    power = it.power.since if it.power is not None else None
    return it.busy or (it.idle_since or 0) > max(it.since, ready or 0, power or 0)


def note(pool: Pool, it: Member) -> None:
    """A machine goes to sleep, be it for nothing or not. That one came without its GPUs is nobody's fault but its own."""
    for name in it.woken_for if not it.failures else ():
        pool.fruitless[name] = [*pool.fruitless.get(name, ()), pool.now][-MOST_MOMENTS:]
    it.woken_for = ()


def status(pool: Pool) -> tuple[Fruitless, ...]:
    """What is remembered."""
    latest = sorted(pool.fruitless.items(), key=lambda each: (-each[1][-1], each[0]))[:MOST_NAMESPACES]
    return tuple(Fruitless(namespace=name, at=tuple(map(told, moments))) for name, moments in sorted(latest))
