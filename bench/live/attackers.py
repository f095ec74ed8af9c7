"""Clients that mean no good, as a process of their own: `python -m bench.live.attackers KIND PORT COUNT`.

They say on standard output, once a second, how many connections they have made so far.
"""

import asyncio
import contextlib
import ssl
import sys

HALF = b"GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: b\r\n"
AGAIN_SECONDS = 0.5
FROM = ("127.0.0.2", 0)
"""A neighbour: not the address that probes come from."""


class Attack:
    """All of one kind against one port of the loopback."""

    def __init__(self, port: int) -> None:
        self._port, self.made = port, 0
        self._anyone = ssl.create_default_context()
        self._anyone.check_hostname, self._anyone.verify_mode = False, ssl.CERT_NONE

    async def slow(self) -> None:
        """Hold half a request, and come again whenever it is closed."""
        while True:
            with contextlib.suppress(OSError):  # turned away, which is what is measured
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port, local_addr=FROM)
                self.made += 1
                writer.write(HALF)
                with contextlib.suppress(OSError):  # closed in time
                    await reader.read()
                writer.transport.abort()
            await asyncio.sleep(AGAIN_SECONDS)

    async def hasty(self) -> None:
        """Shake hands, ask, and go, as fast as it can be done."""
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):  # turned away at any point
                reader, writer = await asyncio.open_connection(
                    "127.0.0.1", self._port, ssl=self._anyone, local_addr=FROM
                )
                self.made += 1
                writer.write(HALF + b"\r\n")
                await reader.readuntil(b"\r\n")
                writer.transport.abort()

    async def run(self, kind: str, count: int) -> None:
        """Until we are ended."""
        async with asyncio.TaskGroup() as clients:
            for _ in range(count):
                clients.create_task(self.slow() if kind == "slow" else self.hasty())
            while True:
                await asyncio.sleep(1)
                print(self.made, flush=True)


if __name__ == "__main__":
    asyncio.run(Attack(int(sys.argv[2])).run(sys.argv[1], int(sys.argv[3])))
