"""A list-watch against a server that says what a script tells it to say."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import msgspec

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.listwatch import Event, Identity, ListPage
from headroom.adapters.kube.transport import Reply, StreamRefused
from headroom.adapters.kube.watch import Reflector
from headroom.model.errors import Unavailable

Thing = tuple[str, str]
"""Name and version: all that these tests keep of an object."""


class Clock:
    """Sleeping takes no time here, but is written down."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.sleeps: list[float] = []

    def now(self) -> int:
        return int(self.time * 1000)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.time += seconds
        await asyncio.sleep(0)


class Things:
    """A sink that also remembers what was done to it."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        self.calls: list[str] = []
        self.gone: list[tuple[str, str | None, int]] = []
        """Key, last version, and until when it was seen."""

    def key(self, fact: Thing) -> str:
        return fact[0]

    def keys(self) -> Iterable[str]:
        return self.held.keys()

    def identity(self, key: str) -> Identity | None:
        return Identity("", key, f"uid-{key}") if key in self.held else None

    def put(self, fact: Thing, *, listed: bool = False) -> None:
        self.held[fact[0]] = fact[1]
        self.calls.append(f"{'list' if listed else 'put'} {fact[0]}@{fact[1]}")

    def remove(self, key: str, last: Thing | None, seen_until: int) -> None:
        self.held.pop(key, None)
        self.calls.append(f"remove {key}")
        self.gone.append((key, last[1] if last else None, seen_until))

    def listed(self) -> None:
        self.calls.append("listed")


class Decoder:
    def page(self, body: bytes) -> ListPage[Thing]:
        read = msgspec.json.decode(body)
        items = [_thing(item) for item in read["items"]]
        return ListPage(items, read["metadata"]["resourceVersion"], read["metadata"].get("continue", ""))

    def event(self, line: bytes) -> Event[Thing]:
        read = msgspec.json.decode(line)
        about = read["object"]
        if read["type"] == "ERROR":
            return Event("ERROR", status_code=about["code"], message=about["message"])
        metadata = about["metadata"]
        if read["type"] == "BOOKMARK":
            end = "k8s.io/initial-events-end" in metadata.get("annotations", {})
            return Event("BOOKMARK", None, metadata["resourceVersion"], end)
        return Event(read["type"], _thing(about), metadata["resourceVersion"])


def _thing(item: Any) -> Thing:
    return item["metadata"]["name"], item["metadata"]["resourceVersion"]


Step = bytes | BaseException | Callable[[], None]


class Script:
    """A transport: each stream or request takes the next answer; after the last one it is silent for ever."""

    def __init__(self, *answers: Reply | list[Step] | BaseException) -> None:
        self.answers = list(answers)
        self.asked: list[Mapping[str, str]] = []
        self.idles: list[float] = []
        self.before_opening: list[Callable[[], None] | None] = []
        """What happens between each question and its answer."""
        self.still_there: set[str] = set()
        """Objects that are there when they are read by name; all others are gone."""
        self.named: Reply | None = None
        """The answer to whatever is read by name, where it is not the server's."""
        self.by_name: list[str] = []
        """Which objects were read by name."""
        self.discovery: dict[str, Reply] = {}
        """What else is at which address; without it, a load balancer's 404."""
        self.over = asyncio.Event()

    async def _next(self, query: Mapping[str, str]) -> Any:
        self.asked.append(query)
        happens = self.before_opening.pop(0) if self.before_opening else None
        if happens:
            happens()
        if not self.answers:
            self.over.set()
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None, **_: Any) -> Reply:
        assert method == "GET"
        if path == "/apis" or (path.startswith("/apis/") and path.count("/") == 3) or "customresourced" in path:
            return self.discovery.get(path, DEFAULT_BACKEND)
        if query is None:
            return self._named(path.rpartition("/")[2])
        answer = await self._next(query)
        assert isinstance(answer, Reply), f"{query} was a list, the script has a stream"
        return answer

    def _named(self, name: str) -> Reply:
        self.by_name.append(name)
        if self.named is not None:
            return self.named
        if name not in self.still_there:
            return refusal(404, "NotFound", f'pods "{name}" not found')
        labels = {"a": "b"}
        return Reply(200, json.dumps({"metadata": {"name": name, "uid": f"uid-{name}", "labels": labels}}).encode())

    async def stream(
        self, *_: Any, query: Mapping[str, str], idle: float, opened: Callable[[], None] | None = None
    ) -> AsyncIterator[bytes]:
        self.idles.append(idle)
        answer = await self._next(query)
        if isinstance(answer, Reply):
            raise StreamRefused(answer)
        if opened:
            opened()
        for step in answer:
            if isinstance(step, bytes):
                yield step
            elif isinstance(step, BaseException):
                raise step
            else:
                step()

    async def close(self) -> None:
        pass


def added(name: str, version: int) -> bytes:
    return _event("ADDED", name, version)


def deleted(name: str, version: int) -> bytes:
    return _event("DELETED", name, version)


def _event(kind: str, name: str, version: int) -> bytes:
    metadata = {"name": name, "resourceVersion": str(version)}
    return json.dumps({"type": kind, "object": {"metadata": metadata}}).encode()


def bookmark(version: int, *, end: bool = False) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    about = {"metadata": metadata, "spec": {"containers": None}}
    return json.dumps({"type": "BOOKMARK", "object": about}).encode()


def error(code: int, message: str = "too old resource version") -> bytes:
    return json.dumps({"type": "ERROR", "object": {"kind": "Status", "code": code, "message": message}}).encode()


def page(version: int, *names: str, cont: str = "") -> Reply:
    items = [{"metadata": {"name": name, "resourceVersion": str(version)}} for name in names]
    return Reply(
        200, json.dumps({"metadata": {"resourceVersion": str(version), "continue": cont}, "items": items}).encode()
    )


DEFAULT_BACKEND = Reply(404, b"default backend - 404")


def groups(**served: str) -> dict[str, Reply]:
    """What an API server says that has these groups, each with a version and, after a slash, a plural."""
    every = {"batch": "v1/jobs"} | {name.replace("_", "."): text for name, text in served.items()}
    listed = [{"name": name, "versions": [{"version": text.partition("/")[0]}]} for name, text in every.items()]
    found = {"/apis": Reply(200, json.dumps({"kind": "APIGroupList", "groups": listed}).encode())}
    for name, text in every.items():
        version, _, plural = text.partition("/")
        about = {"kind": "APIResourceList", "groupVersion": f"{name}/{version}", "resources": [{"name": plural}]}
        found[f"/apis/{name}/{version}"] = Reply(200, json.dumps(about).encode())
    return found


def refusal(code: int, reason: str, message: str = "no", **details: Any) -> Reply:
    status = {"kind": "Status", "code": code, "reason": reason, "message": message, "details": details}
    return Reply(code, json.dumps(status).encode())


class Played:
    def __init__(self, *answers: Reply | list[Step] | BaseException, path: str = "/api/v1/pods", **more: Any) -> None:
        self.clock, self.sink, self.script = Clock(), Things(), Script(*answers)
        kube = Kube(self.script, self.clock)
        self.reflector = Reflector(
            kube,
            path,
            Decoder(),
            self.sink,
            clock=self.clock,
            rng=random.Random(1),
            query={"labelSelector": "a=b"},
            **more,
        )

    def wait(self, seconds: float) -> Callable[[], None]:
        """A step that takes so long."""

        def later() -> None:
            self.clock.time += seconds

        return later

    async def __call__(self) -> Played:
        task = asyncio.create_task(self.reflector.run())
        over = asyncio.create_task(self.script.over.wait())
        await asyncio.wait([task, over], timeout=60, return_when=asyncio.FIRST_COMPLETED)
        over.cancel()
        if task.done():
            task.result()
        assert self.script.over.is_set(), f"stuck before {self.script.answers}"
        task.cancel()
        return self

    @property
    def passed(self) -> float:
        """Seconds waited."""
        return sum(self.clock.sleeps)


async def play(*answers: Reply | list[Step] | BaseException) -> Played:
    return await Played(*answers)()


BROKEN = Unavailable("watching pods: the connection broke")
SILENCE = Unavailable("watching pods: nothing received for 90s")
