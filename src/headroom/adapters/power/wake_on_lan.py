"""Machines that wake at a magic packet. Nobody answers one, so that it was sent is all that can be known."""

from __future__ import annotations

from headroom.adapters.power.orders import Means
from headroom.api.switches import WakeOnLan


async def wake(means: Means, how: WakeOnLan) -> None:
    """Send the packet."""
    await means.guard.send(how.address, how.port, packet(how.mac))


def packet(mac: str) -> bytes:
    """Six bytes of ones, and sixteen times the card's address."""
    return b"\xff" * 6 + bytes.fromhex(mac.replace(":", "")) * 16
