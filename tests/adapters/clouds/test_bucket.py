"""However many ask at once, a cloud is asked no more often than the bucket allows, and in turn."""

from __future__ import annotations

import asyncio

from headroom.adapters.clouds.bucket import TokenBucket
from headroom.sim.clock import SimClock, run_virtual
from tests.builders import NOON


def test_a_burst_goes_at_once_and_the_rest_at_its_pace() -> None:
    async def asked() -> tuple[list[int], list[float]]:
        clock = SimClock(NOON)
        bucket, order, at = TokenBucket(clock, 2.0, 5), list[int](), list[float]()

        async def one(number: int) -> None:
            await bucket.take()
            order.append(number)
            at.append(round((clock.now() - NOON) / 1000, 1))

        await asyncio.gather(*map(one, range(12)))
        await clock.sleep(100.0)
        await asyncio.gather(*map(one, range(12, 18)))
        return order, at

    order, at = run_virtual(asked)
    assert order == list(range(18))
    assert at[:5] == [0.0] * 5
    assert at[5:12] == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]
    assert at[12:17] == [103.5] * 5, "what was not used is no larger than a burst"
    assert at[17] == 104.0
