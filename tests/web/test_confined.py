"""A process that serves strangers takes no more than it needs, whatever they do."""

import socket
import subprocess
import sys

import pytest

from headroom.web import doors, health
from headroom.web.listening import Servers

SERVES = """
import asyncio, gc, resource, sys, weakref
from asyncio.sslproto import SSLProtocol
from headroom.web import confined

class Ring:
    def __init__(self):
        self.me = self

async def serve(end, listening):
    await asyncio.sleep(0)  # it sweeps once at the beginning
    gc.disable()  # what is swept is swept by us
    ring = weakref.ref(Ring())
    kept = [[] for _ in range(2 * confined.FEW_OBJECTS)]
    async with asyncio.timeout(120):
        while ring() is not None:
            await asyncio.sleep(0.01)  # nothing tells when it was swept
    limits = [resource.getrlimit(each)[0] for each in (resource.RLIMIT_NOFILE, resource.RLIMIT_DATA, resource.RLIMIT_CORE)]
    print(*limits, SSLProtocol.max_size)

confined.run(serve, sys.argv[1:], connections=10)
"""


def test_descriptors_memory_and_buffers_are_limited_and_what_is_closed_is_swept() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-c", SERVES, str(theirs.fileno())]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=60, check=False, pass_fds=[theirs.fileno()]
        )
    assert done.stdout.split() == ["138", str(2**30), "0", str(32 * 1024)], done.stderr


async def test_health_is_served_within_limits_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    async def served(_self: Servers, _app: object, _listening: object, **given: object) -> None:
        seen.append(given)

    monkeypatch.setattr(Servers, "serve", served)
    ours, theirs = socket.socketpair()
    ours.close()
    await health.serve(theirs, [])
    assert seen == [{"limits": doors.HEALTH}]
