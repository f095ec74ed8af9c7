"""The processes beside the operator: they serve, come back when they are killed, and are gone when it is."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from headroom.cli.fronts import Fronts
from headroom.model.errors import Misconfigured
from headroom.runtime.logs import Silent
from headroom.runtime.settings import Settings
from headroom.web.addresses import bound
from tests.processes import free_ports
from tests.web.showing import Made
from tests.web.test_live import a_world

SECRET = "postgresql://user:a-password@db/ledger"


def children() -> dict[int, str]:
    """The fronts that this process has started and that are still there, with their command lines."""
    while True:
        try:
            found = {pid: line for task in Path("/proc/self/task").iterdir() for pid, line in started_by(task)}
            break
        except FileNotFoundError:
            continue  # a thread or a process ended between two looks: its children are another thread's now
    return {
        pid: line
        for pid, line in found.items()
        if any(each in line for each in ("headroom.web.health", "headroom.cli.front"))
    }


def started_by(task: Path) -> Iterator[tuple[int, str]]:
    for pid in (task / "children").read_text().split():
        yield int(pid), Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def proc(pid: int, what: str) -> str:
    return Path(f"/proc/{pid}/{what}").read_text()


class Here:
    def __init__(self, made: Made, running: Fronts, dashboard: int, health: int, client: aiohttp.ClientSession) -> None:
        self.made, self.running, self._client = made, running, client
        self.dashboard, self.health = f"http://127.0.0.1:{dashboard}", f"http://127.0.0.1:{health}"

    async def get(self, url: str) -> tuple[int, str]:
        """The answer, however long the process takes to start."""
        while True:
            try:
                async with self._client.get(url) as reply:
                    return reply.status, await reply.text()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


@asynccontextmanager
async def fronts() -> AsyncIterator[Here]:
    dashboard, health = free_ports(2)
    addresses = {"metrics_address": f"127.0.0.1:{dashboard}", "health_address": f"127.0.0.1:{health}"}
    made = Made(a_world(1))
    running = Fronts(Settings(metrics_plain=True, ledger_url=SECRET, **addresses), made.showing(), Silent())  # type: ignore[arg-type]  # a log
    running.start()
    try:
        async with asyncio.timeout(120), aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(60)) as client:
            yield Here(made, running, dashboard, health, client)
    finally:
        await running.close()
    assert not children()
    for each in (dashboard, health):
        for free in bound(f"127.0.0.1:{each}", "x"):
            free.close()


async def test_plain_pages_need_no_certificate_to_be_found_by() -> None:
    async with fronts() as here:
        await here.get(f"{here.dashboard}/api/overview")
        assert set(here.running.published().values()) == {""}


async def test_they_serve_and_come_back_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADROOM_LEDGER_URL", SECRET)
    async with fronts() as here:
        assert await here.get(f"{here.health}/healthz") == (200, "ok\n")
        status, page = await here.get(f"{here.dashboard}/api/overview")
        assert (status, '"consumedGpuHours":"1"' in page) == (200, True)
        assert (await here.get(f"{here.dashboard}/api/decisions?q=one"))[0] == 200
        assert "headroom_" in (await here.get(f"{here.dashboard}/metrics"))[1]
        known = children()
        assert len(known) == 2
        for pid, line in known.items():
            assert any(f"Max open files            {most}" in proc(pid, "limits") for most in (256, 640))
            assert "Max data size             1073741824" in proc(pid, "limits")
            assert SECRET not in line + proc(pid, "environ")
            os.kill(pid, signal.SIGKILL)
        while children().keys() & known.keys():  # noqa: ASYNC110  nothing tells a test when
            await asyncio.sleep(0.01)
        assert await here.get(f"{here.health}/readyz") == (200, "ok\n")
        assert (await here.get(f"{here.dashboard}/api/nodes"))[0] == 200


@pytest.mark.parametrize("setting", ["metrics_address", "health_address"])
async def test_an_address_that_is_taken_is_told_at_once(setting: str) -> None:
    [taken] = bound("127.0.0.1:0", "x")
    others: dict[str, Any] = {"metrics_address": "", "health_address": "", "metrics_plain": True}
    others[setting] = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(Misconfigured, match=f"another process listens there already; set {setting}"):
        Fronts(Settings(**others), Made(a_world(1)).showing(), Silent()).start()
    taken.close()


async def test_a_certificate_that_cannot_be_read_is_told_at_once(tmp_path: Path) -> None:
    settings = Settings(metrics_address="127.0.0.1:0", health_address="", metrics_certificate=str(tmp_path / "none"))
    with pytest.raises(Misconfigured, match=r"^reading the certificate"):
        Fronts(settings, Made(a_world(1)).showing(), Silent()).start()
