"""The way from a client to the simulated API server: a `Transport` on which anything can be made to go wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from email.utils import formatdate
from typing import TYPE_CHECKING

from headroom.adapters.kube.transport import JSON, Reply, StreamRefused
from headroom.model.errors import Unavailable
from headroom.sim import false_lists
from headroom.sim import faults as wrong
from headroom.sim.answers import ErrorAnswer
from headroom.sim.faults import Crash, Fault, Faults
from headroom.sim.rights import Actor
from headroom.sim.watches import Watch, WatchLine

if TYPE_CHECKING:
    from headroom.sim.apiserver import ApiServer


class _Stream:
    """An open watch of a client."""

    def __init__(self, watch: Watch, path: str) -> None:
        self.watch, self.path = watch, path
        self.cut = False
        self.muted = False
        self.version = 0
        """The version of the last line that was delivered."""


class SimTransport:
    """A connection of one actor: an `adapters.kube.transport.Transport`."""

    def __init__(self, server: ApiServer, actor: Actor, faults: Faults | None = None) -> None:
        self.server, self.actor = server, actor
        self.on_crash: Callable[[], None] | None = None
        self._clock = server.clock
        self._faults = faults or Faults(server.clock, server.clock.start_ms)
        self._faults.on_add.append(self._strike)
        self._streams: list[_Stream] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes = b"",
        content_type: str = JSON,
        timeout: float = 30.0,
    ) -> Reply:
        """One request, one reply. Raises `Unavailable` when no reply came; then the effect is unknown."""
        await self._travel()
        query = query or {}
        what = f"{method} {path}"
        due = self._faults.on_request(self.actor.name, self.server.verb(method, path, query), path)
        slow = sum(each.ms for each in due if isinstance(each, wrong.Slow)) / 1000
        if any(isinstance(each, wrong.Hang) for each in due):
            await self._clock.sleep(timeout)
            raise Unavailable(f"{what}: no answer within {timeout:g}s")
        if slow:
            await self._clock.sleep(min(slow, timeout))
        self._check_alive()
        if (refused := self._before(due, what)) is not None:
            return refused
        if any(isinstance(each, wrong.EndlessList) for each in due):
            query = {name: value for name, value in query.items() if name != "continue"}
        reply = self.server.handle(self.actor, method, path, query, body, content_type)
        reply = false_lists.falsified(reply, due)
        self._after(due, what)
        if slow > timeout:
            raise Unavailable(f"{what}: no reply within {timeout:g}s")
        date = formatdate(self._clock.now() // 1000, usegmt=True)
        return Reply(reply.status, reply.body, {**reply.headers, "date": date})

    async def call(self, verb: str, path: str, effect: Callable[[list[Fault]], None], timeout: float) -> int | None:
        """A call to something beside the cluster, with the faults of a request: its status, None where no answer came.

        Raises `Unavailable` when nobody was reached; then nothing came of it.
        """
        await self._travel()
        due = self._faults.on_request(self.actor.name, verb, path)
        if (refused := self._before(due, f"{verb} {path}")) is not None:
            return refused.status
        effect(due)
        # It is the answer that takes time: whoever gives up waiting for it does not undo anything.
        slow = sum(each.ms for each in due if isinstance(each, wrong.Slow)) / 1000
        if slow:
            await self._clock.sleep(min(slow, timeout))
        self._check_alive()
        try:
            self._after(due, f"{verb} {path}")
        except Unavailable:
            return None
        return None if slow > timeout else 200

    async def stream(
        self, path: str, *, query: Mapping[str, str], idle: float, opened: Callable[[], None] | None = None
    ) -> AsyncIterator[bytes]:
        """The lines of a watch, as the port promises them."""
        await self._travel()
        due = self._faults.on_request(self.actor.name, "watch", path)
        if (false := next((one for one in due if isinstance(one, wrong.FALSE_ANSWERS)), None)) is not None:
            async for each in self._false_stream(false, path, query, opened):
                yield each
            return
        if (refused := self._before(due, f"WATCH {path}")) is not None:
            raise StreamRefused(refused)
        self._after(due, f"WATCH {path}")
        try:
            watch = self.server.watch(self.actor, path, query)
        except ErrorAnswer as failure:
            raise StreamRefused(failure.reply()) from None
        stream = _Stream(watch, path)
        self._streams.append(stream)
        if opened:
            opened()
        try:
            while True:
                line = await self._line(stream, idle)
                if line is None:
                    return
                for each in await self._disturbed(stream, line):
                    yield each
        finally:
            watch.close()
            self._streams.remove(stream)

    async def close(self) -> None:
        """Close all streams."""
        for each in list(self._streams):
            each.cut = True
            each.watch.close()
        if self._strike in self._faults.on_add:
            self._faults.on_add.remove(self._strike)

    def kill(self) -> None:
        """The actor is dead: whatever it still tries raises `Crash`."""
        self.actor.alive = False
        for each in list(self._streams):
            each.watch.close()

    # --- requests ---------------------------------------------------------------------------------------------------------

    async def _travel(self) -> None:
        self._check_alive()
        if self.actor.latency_ms:
            await self._clock.sleep(self.actor.latency_ms / 1000)
        else:
            await asyncio.sleep(0)
        self._check_alive()

    def _check_alive(self) -> None:
        if not self.actor.alive:
            raise Crash(f"{self.actor.name} is dead")

    def _die(self, why: str) -> Crash:
        self.kill()
        if self.on_crash:
            self.on_crash()
        return Crash(f"{self.actor.name} died {why}")

    def _before(self, due: list[Fault], what: str) -> Reply | None:
        for each in due:
            match each:
                case wrong.CrashBefore():
                    raise self._die(f"before {what}")
                case wrong.Outage():
                    raise Unavailable(f"{what}: the server cannot be reached")
                case wrong.Expire():
                    self.server.compact()
                case wrong.Garbage():
                    return Reply(200, false_lists.PAGE, {"content-type": "text/html"})
                case wrong.Refusal():
                    details = {"retryAfterSeconds": each.retry_after} if each.retry_after is not None else None
                    return ErrorAnswer(each.status, each.reason or _reason(each.status), each.message, details).reply()
        return None

    def _after(self, due: list[Fault], what: str) -> None:
        for each in due:
            if isinstance(each, wrong.CrashAfter):
                raise self._die(f"after {what}")
            if isinstance(each, wrong.LostReply):
                raise Unavailable(f"{what}: the reply was lost")

    async def _false_stream(
        self, fault: Fault, path: str, query: Mapping[str, str], opened: Callable[[], None] | None
    ) -> AsyncIterator[bytes]:
        """A stream that is not the server's: one with nothing in it stays silent until the fault is over."""
        if isinstance(fault, wrong.Hang):
            await asyncio.Event().wait()
        if isinstance(fault, wrong.Garbage):
            yield false_lists.PAGE
            return
        if isinstance(fault, wrong.EndlessList):
            status = 400 if "sendInitialEvents" in query else 410
            raise StreamRefused(ErrorAnswer(status, _reason(status) or "BadRequest", "no streams here", None).reply())
        try:
            self.server.watch(self.actor, path, query).close()  # of what is not served there is no list at all
        except ErrorAnswer as failure:
            raise StreamRefused(failure.reply()) from None
        if opened:
            opened()
        if "sendInitialEvents" in query:
            yield false_lists.nothing(self.server.store.version)
        end = self._faults.window(fault)[1]
        await self._clock.sleep(3600 if end is None else (end - self._clock.now()) / 1000)
        raise Unavailable(f"watching {path}: the connection broke")

    # --- streams ----------------------------------------------------------------------------------------------------------

    async def _line(self, stream: _Stream, idle: float) -> WatchLine | None:
        limit = self._clock.monotonic() + idle
        while True:
            try:
                line = await stream.watch.line(limit - self._clock.monotonic())
            except TimeoutError:
                raise Unavailable(f"watching {stream.path}: nothing was received for {idle:g}s") from None
            self._check_alive()
            if stream.cut:
                raise Unavailable(f"watching {stream.path}: the connection broke")
            if not stream.muted:
                return line
            if line is None:  # the server ended it, but that was not heard either
                await self._clock.sleep(max(0.0, limit - self._clock.monotonic()))
                raise Unavailable(f"watching {stream.path}: nothing was received for {idle:g}s")

    async def _disturbed(self, stream: _Stream, line: WatchLine) -> list[bytes]:
        """What arrives of a line, and when."""
        out = [line.data]
        for each in self._faults.on_event(self.actor.name, stream.path):
            match each:
                case wrong.DroppedStream():
                    raise Unavailable(f"watching {stream.path}: the connection broke")
                case wrong.BlackHole():
                    stream.muted = True
                    out = []
                case wrong.Duplicate():
                    out = out * 2
                case wrong.WatchDelay():
                    await self._clock.sleep((line.at + each.ms - self._clock.now()) / 1000)
                case wrong.StaleView():
                    out = await self._stale(stream, each, out)
        self._check_alive()
        if stream.cut:
            raise Unavailable(f"watching {stream.path}: the connection broke")
        stream.version = max(stream.version, line.version)
        return out

    async def _stale(self, stream: _Stream, fault: Fault, out: list[bytes]) -> list[bytes]:
        end = self._faults.window(fault)[1]
        if end is None:
            raise Unavailable(f"watching {stream.path}: a stale view needs an end")
        await self._clock.sleep((end - self._clock.now()) / 1000)
        return out

    def _strike(self, fault: Fault) -> None:
        """A fault of the clock alone meets the streams that are open when its time comes."""
        chance = fault.nth is not None or fault.probability is not None
        if chance or not isinstance(fault, (wrong.DroppedStream, wrong.BlackHole, wrong.Outage)):
            return
        delay = (self._faults.window(fault)[0] - self._clock.now()) / 1000
        if delay > 0:
            self._clock.call_later(delay, lambda: self._hit(fault))
        else:
            self._hit(fault)

    def _hit(self, fault: Fault) -> None:
        for each in list(self._streams):
            if not self._faults.meets(fault, self.actor.name, "watch", each.path):
                continue
            if isinstance(fault, wrong.BlackHole):
                each.muted = True
            else:
                each.cut = True
            each.watch.nudge() if each.muted else each.watch.close()


def _reason(status: int) -> str:
    return {
        401: "Unauthorized",
        403: "Forbidden",
        404: "NotFound",
        409: "Conflict",
        410: "Expired",
        422: "Invalid",
        429: "TooManyRequests",
        500: "InternalError",
        503: "ServiceUnavailable",
        504: "Timeout",
    }.get(status, "")
