"""The operator as a process: what runs beside its loop does not end without a word."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.config import ClientConfig
from headroom.cli import output, price_book
from headroom.cli.serving import Process
from headroom.core import PLANS
from headroom.model.errors import Misconfigured
from headroom.runtime.logs import Silent
from headroom.runtime.settings import Settings
from headroom.runtime.surroundings import Runtime
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock
from tests.builders import NOON
from tests.processes import PATIENCE_SECONDS

CONFIG = ClientConfig(source="the simulator", server="https://simulated")


class Noting(Silent):
    """A log that keeps the errors."""

    def __init__(self) -> None:
        self.errors: list[tuple[str, dict[str, Any]]] = []
        self.said = asyncio.Event()

    def error(self, event: str, **facts: Any) -> None:
        self.errors.append((event, facts))
        self.said.set()


async def test_a_task_beside_the_loop_that_ends_by_a_mistake_is_logged_and_the_operator_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def follow(*_: object) -> None:
        raise TypeError("a bug of ours")

    monkeypatch.setattr(price_book, "follow", follow)
    settings = Settings(
        identity="me",
        elect_leader=False,
        metrics_address="",
        health_address="",
        state_dir=str(tmp_path),
    )
    clock, log = SimClock(NOON), Noting()
    kube = Kube(ApiServer(clock, random.Random(1)).transport("operator"), clock)
    process = Process(settings, Runtime(clock=clock, log=log), kube, CONFIG, PLANS)
    running = asyncio.create_task(process.run())
    await asyncio.wait_for(log.said.wait(), PATIENCE_SECONDS)
    [(_, facts)] = log.errors
    assert facts["error"] == "TypeError('a bug of ours')"
    assert "follow" in facts["task"]
    assert not running.done()
    process._ends.set()
    assert await asyncio.wait_for(running, 120) == output.OK
    assert len(log.errors) == 1, "what is ended with the operator is no mistake"


async def test_a_list_of_addresses_that_cannot_be_read_is_a_mistake_of_today() -> None:
    settings = Settings(identity="me", elect_leader=False, allow_egress="https://fine.example,power_api")
    clock = SimClock(NOON)
    kube = Kube(ApiServer(clock, random.Random(1)).transport("operator"), clock)
    with pytest.raises(Misconfigured, match=r"--allow-egress \(HEADROOM_ALLOW_EGRESS\): 'power_api'"):
        Process(settings, Runtime(clock=clock), kube, CONFIG, PLANS)
