"""The simulator's cloud keeps the promise of every provider, so that what is tried on it is tried on a cloud."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.adapters.clouds import test_providers
from tests.cloud_sides import CloudSide
from tests.cloud_simulated import OnSimulator

NOT_SIGNED = "test_a_clock_that_is_off"
"""Nothing of it is signed with a time."""


@pytest.fixture
async def side() -> AsyncIterator[CloudSide]:
    async with OnSimulator() as made:
        yield made
        assert made.untouched, "machines of others are as they were"


PROMISES = {name: each for name, each in vars(test_providers).items() if name.startswith("test_")}
globals().update({name: each for name, each in PROMISES.items() if name != NOT_SIGNED})


def test_the_promises_are_all_there() -> None:
    assert len(PROMISES) >= 10
    assert NOT_SIGNED in PROMISES
