"""Machines that wake at a packet, and sleep by a call."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from headroom.adapters.power.wake_on_lan import packet
from headroom.model.errors import Refused
from tests.adapters.listening import listening
from tests.adapters.power.stage import a_pool, power
from tests.processes import PATIENCE_SECONDS

MAC = "0a:1b:2c:3d:4e:5F"


def a_machine(port: int, **wake: Any) -> dict[str, Any]:
    how = {"mac": MAC, "address": "127.0.0.1", "port": port} | wake
    return {"name": "w1", "gpuCount": 4, "wakeOnLan": how, "scaleDownEndpoint": f"http://127.0.0.1:{port}/down"}


def test_a_magic_packet_is_six_ones_and_the_address_sixteen_times() -> None:
    found = packet(MAC)
    assert len(found) == 102
    assert found == bytes.fromhex("ff" * 6 + "0a1b2c3d4e5f" * 16)


async def test_the_packet_is_sent_and_that_is_all_that_is_known() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
        card.bind(("127.0.0.1", 0))
        card.setblocking(False)
        port = card.getsockname()[1]
        switches = power(port)
        await switches.wake(a_pool(a_machine(port)), "w1")
        assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(card, 200), PATIENCE_SECONDS) == packet(MAC)
    assert switches.calls["w1"].outcome == "Accepted"


async def test_it_sleeps_by_a_call() -> None:
    async with listening() as server:
        switches = power(server.port)
        await switches.sleep(a_pool(a_machine(server.port)), "w1")
        assert server.requests[0].startswith(b"POST /down ")
        assert switches.calls["w1"].command == "Sleep"


async def test_a_network_that_is_not_listed_gets_no_packet() -> None:
    switches = power(9)
    with pytest.raises(Refused, match=r"waking machine w1: calls to wol://10\.0\.7\.255:9 are not allowed"):
        await switches.wake(a_pool(a_machine(9, address="10.0.7.255")), "w1")
    assert switches.calls["w1"].outcome == "Failed"
