"""The breaker: machines that never join are not bought one after the other."""

from __future__ import annotations

from typing import Final

from headroom.api.power_status import Breaker
from headroom.core.spot_pools.places import PoolSlot, SpotPoolState, ahead, told
from headroom.model import times

IN_A_ROW: Final = 3
PAUSE_MS: Final = 30 * times.MINUTE
WHOLE: Final = 1_000_000


def remember(pool: SpotPoolState) -> None:
    """Take up what is remembered."""
    before = pool.before.breaker
    if before is not None:
        pool.never_joined = before.failed
        pool.breaker_until = ahead(before.until, pool.now, PAUSE_MS)


def has_come(pool: SpotPoolState, place: PoolSlot) -> bool:
    """Whether a machine is of use: its node is ready and shows GPUs, or, where it is to be no node, it runs."""
    if not pool.spec.join:
        return place.instance is not None and place.instance.state == "RUNNING"
    if place.node is None or not place.node.ready:
        return False
    template = pool.spec.template
    return template.gpu_count is None or gpus_shown(place, template.gpu_resource_name) > 0


def gpus_shown(place: PoolSlot, resource: str) -> int:
    """Whole GPUs that its node offers."""
    if place.node is None:
        return 0
    return next((amount // WHOLE for name, amount in place.node.allocatable if name == resource), 0)


def failed(pool: SpotPoolState) -> None:
    """One more came to nothing."""
    pool.never_joined += 1
    if pool.never_joined >= IN_A_ROW:
        pool.breaker_until = pool.now + PAUSE_MS


def joined(pool: SpotPoolState) -> None:
    """One came."""
    pool.never_joined, pool.breaker_until = 0, None


def is_open(pool: SpotPoolState) -> bool:
    """Whether nothing is launched now."""
    return pool.breaker_until is not None and pool.breaker_until > pool.now


def at_once(pool: SpotPoolState) -> int | None:
    """How many more may be on their way; None for any number."""
    if pool.never_joined < IN_A_ROW:
        return None
    if is_open(pool):
        return 0
    coming = sum(
        each.state in ("Launching", "Cancelling") or not each.joined
        for each in pool.are("Launching", "Cancelling", "Running")
    )
    return max(0, 1 - coming)


def status(pool: SpotPoolState) -> Breaker | None:
    """What is remembered from now on."""
    if not pool.never_joined:
        return None
    return Breaker(failed=pool.never_joined, until=told(pool.breaker_until))
