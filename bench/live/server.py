"""Quick requests to the API server under test, and watches that miss nothing."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import Any, Self

import aiohttp

from tests.control_plane import ControlPlane

AT_ONCE = 24
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"

Document = dict[str, Any]


class Server:
    """One session with all rights."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane

    async def __aenter__(self) -> Self:
        context = ssl.create_default_context(cafile=self._plane.ca_file)
        self._session = aiohttp.ClientSession(
            self._plane.url,
            # Watches hold their connections for good, so the number of all must not be the number of requests at once.
            connector=aiohttp.TCPConnector(ssl=context, limit=0),
            headers={"Authorization": f"Bearer {self._plane.admin_token}"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(self, method: str, path: str, body: Document | None = None, content: str = "") -> Document:
        """One request; anything but success is raised with the server's words."""
        data = None if body is None else json.dumps(body)
        headers = {"Content-Type": content or "application/json"}
        async with self._session.request(method, path, data=data, headers=headers) as reply:
            if reply.status >= 300:
                raise RuntimeError(f"{method} {path}: {reply.status} {await reply.text()}")
            found: Document = await reply.json()
            return found

    async def each(self, work: Callable[[int], Any], numbers: Iterable[int]) -> None:
        """Do something for every number, many at once."""
        left = iter(numbers)

        async def worker() -> None:
            for number in left:
                await work(number)

        await asyncio.gather(*(worker() for _ in range(AT_ONCE)))

    async def lines(self, path: str) -> AsyncIterator[bytes]:
        """What a watch says, line by line, unread."""
        async with self._session.get(path) as reply:
            if reply.status >= 300:
                raise RuntimeError(f"{path}: {reply.status} {await reply.text()}")
            async for line in _lines(reply.content):
                yield line

    async def events(self, path: str) -> AsyncIterator[tuple[str, Document]]:
        """Every object of a collection as it is (`LISTED`), then every change, without a gap and without an end."""
        page = await self.ask("GET", path)
        for item in page.get("items") or []:
            yield "LISTED", item
        version = page["metadata"]["resourceVersion"]
        while True:
            query = f"{path}?watch=true&allowWatchBookmarks=true&resourceVersion={version}"
            async with self._session.get(query) as reply:
                async for line in _lines(reply.content):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"watching {path}: {event['object']}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        yield event["type"], event["object"]


async def _lines(stream: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in stream.iter_any():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line


async def cancelled(*tasks: asyncio.Task[Any]) -> None:
    """End tasks that would go on for ever; what went wrong in one is raised."""
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):  # it was told to end
            await task
