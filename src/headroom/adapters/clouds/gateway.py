"""Kong in front of a pool's machines, through its Admin API: the targets of an upstream, and where asked for its service and route.

Everything that we make carries the pool's mark as a tag, and only what carries it is ever changed or removed. Upstreams, services and
routes carry a mark of the pool's namespace too: that one says who may use an upstream, and whoever runs the gateway can set it on others,
so no pool gets the requests of others. Every call goes through the egress guard.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct, structs

from headroom.adapters.clouds.polling import KIND, Tell, key_of
from headroom.adapters.clouds.providers import is_id
from headroom.adapters.clouds.sessions import Sessions, spec_of
from headroom.adapters.egress import Guard, Request, target_of
from headroom.api.kinds import AnyResource
from headroom.api.spot_pools import PoolGateway, SpotpoolSpec
from headroom.model.changes import Topic
from headroom.model.cloud_facts import Gateway
from headroom.model.errors import HeadroomError, Refused, Unavailable
from headroom.model.ports import Clock
from headroom.model.world import World

EVERY_SECONDS: Final = 40.0
FIRST_SECONDS: Final = 2.0
"""Over so long the first reads are spread."""
CALL_SECONDS: Final = 5.0
READ_SECONDS: Final = 60.0
"""For all pages of targets."""
PAGE: Final = 100
MOST_PAGES: Final = 100
AT_ONCE: Final = 8
HEADER: Final = "kong-admin-token"

Wire = TypeVar("Wire", bound=Struct)


class _Target(Struct):
    id: str
    target: str
    tags: list[str] | None = None


class _Targets(Struct):
    data: list[_Target]
    offset: str | None = None


class _Service(Struct):
    host: str | None = None
    path: str | None = None
    tags: list[str] | None = None


class _Route(Struct):
    paths: list[str] | None = None
    hosts: list[str] | None = None
    tags: list[str] | None = None


class _Routes(Struct):
    data: list[_Route]
    offset: str | None = None


class Marks(NamedTuple):
    """The tags of what is ours."""

    pool: str
    namespace: str

    def are_on(self, tags: list[str] | None) -> bool:
        """Whether one of them is there."""
        return not {self.pool, self.namespace}.isdisjoint(tags or ())


class _Kong:
    """The Admin API, for one pool."""

    def __init__(self, guard: Guard, gateway: PoolGateway, marks: Marks, token: str) -> None:
        self._guard, self.gateway, self.marks, self._token = guard, gateway, marks, token
        target = target_of(gateway.admin_url)
        if target.query:
            raise Refused("spec.gateway.adminUrl must have no query: paths are added to it")
        self._base, self._host = gateway.admin_url.rstrip("/"), target.host
        self._upstream = f"/upstreams/{gateway.upstream}"

    async def targets(self) -> list[_Target]:
        """All of them; none if there is no upstream yet."""
        found: dict[str, _Target] = {}
        offset = ""
        for _ in range(MOST_PAGES):
            asked = urlencode({"size": PAGE} | ({"offset": offset} if offset else {}))
            page = await self._get(f"{self._upstream}/targets?{asked}", _Targets)
            for each in page.data if page else ():
                if each.id in found or not is_id(each.id):  # it becomes a part of a path
                    raise Unavailable(f"{self._host} answered with a target twice, or without an id")
                found[each.id] = each
            offset = (page and page.offset) or ""
            if not offset:
                return list(found.values())
        raise Unavailable(f"{self._host} answered with too many targets")

    async def is_ensured(self) -> bool:
        """Whether upstream, service and route stand as the pool asks.

        Raises `Refused` if the upstream is somebody else's, or the others are and differ.
        """
        if not await self._upstream_stands():
            return False
        if not self.gateway.route:
            return True
        return await self._service_stands() and await self._route_stands()

    async def ensure(self) -> None:
        """Make what is missing, and change what is ours and differs."""
        tags = list(self.marks)
        if not await self._upstream_stands():
            await self._send("PUT", self._upstream, {"tags": tags})
        if self.gateway.route:
            name = self.gateway.upstream
            if not await self._service_stands():
                body: dict[str, Any] = {
                    "host": name,
                    "protocol": "http",
                    "path": self.gateway.path,
                    "tags": tags,
                }
                await self._send("PUT", f"/services/{name}", body)
            if not await self._route_stands():
                await self._check_free(self.gateway.route)
                body = {"paths": [self.gateway.route], "service": {"name": name}, "tags": tags}
                await self._send("PUT", f"/routes/{name}", body)

    async def _upstream_stands(self) -> bool:
        found = await self._get(self._upstream, _Service)
        if found is not None and not self.marks.are_on(found.tags):
            raise Refused(
                f"the gateway has an upstream {self.gateway.upstream} of another owner; if this namespace may use it, the administrator of "
                f"the gateway adds the tag {self.marks.namespace} to it"
            )
        return found is not None

    async def _check_free(self, route: str) -> None:
        """Raise `Refused` if requests for a path go to somebody else now: the longest path of all routes wins."""
        offset = ""
        for _ in range(MOST_PAGES):
            asked = urlencode({"size": PAGE} | ({"offset": offset} if offset else {}))
            page = await self._get(f"/routes?{asked}", _Routes)
            for each in page.data if page else ():
                theirs = [path for path in each.paths or () if path != "/" and route.startswith(path)]
                if theirs and not each.hosts and not self.marks.are_on(each.tags):
                    raise Refused(f"spec.gateway.route is inside {theirs[0]}, a route of another owner")
            offset = (page and page.offset) or ""
            if not offset:
                return
        raise Unavailable(f"{self._host} answered with too many routes")

    async def _service_stands(self) -> bool:
        found = await self._get(f"/services/{self.gateway.upstream}", _Service)
        if found is None:
            return False
        stands = (found.host, found.path or "/") == (self.gateway.upstream, self.gateway.path)
        return self._checked(stands, found.tags, "service")

    async def _route_stands(self) -> bool:
        found = await self._get(f"/routes/{self.gateway.upstream}", _Route)
        return found is not None and self._checked(found.paths == [self.gateway.route], found.tags, "route")

    def _checked(self, stands: bool, tags: list[str] | None, what: str) -> bool:
        if not stands and not self.marks.are_on(tags):
            raise Refused(f"the gateway has a {what} {self.gateway.upstream} of another owner")
        return stands

    async def add(self, target: str) -> None:
        """Add a target with our mark."""
        await self._send("POST", f"{self._upstream}/targets", {"target": target, "tags": [self.marks.pool]})

    async def remove(self, found: _Target) -> None:
        """Remove a target; that it is ours was looked at before."""
        await self._send("DELETE", f"{self._upstream}/targets/{found.id}", None)

    async def _get(self, path: str, kind: type[Wire]) -> Wire | None:
        """What stands there; None if the gateway says that nothing does."""
        answer = await self._guard.call(
            Request(url=self._base + path, headers={"accept": "application/json", **self._secret}), CALL_SECONDS
        )
        if answer.status == 404:
            return None
        self._check(answer.status)
        try:
            if answer.whole:
                return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            pass
        raise Unavailable(f"{self._host} answered with something that is not Kong's API")

    async def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> None:
        sent = b"" if body is None else msgspec.json.encode(body)
        headers = {"accept": "application/json", **({"content-type": "application/json"} if sent else {})}
        request = Request(url=self._base + path, method=method, headers=headers | self._secret, body=sent)
        answer = await self._guard.call(request, CALL_SECONDS)
        if (method, answer.status) not in (("DELETE", 404), ("POST", 409)):  # it is as it should be
            self._check(answer.status)

    @property
    def _secret(self) -> dict[str, str]:
        return {HEADER: self._token} if self._token else {}

    def _check(self, status: int) -> None:
        if not 200 <= status < 300:
            kind = Unavailable if status == 429 or status >= 500 else Refused
            raise kind(f"{self._host} answered {status}")


class Gateways:
    """Keeps what is known of the gateways of all pools."""

    def __init__(
        self, guard: Guard, sessions: Sessions, clock: Clock, rng: random.Random, tell: Tell, cluster: Callable[[], str]
    ) -> None:
        self._guard, self._sessions, self._clock, self._rng, self._tell = guard, sessions, clock, rng, tell
        self._cluster = cluster
        self.known: dict[str, Gateway] = {}
        self._read_at: dict[str, float] = {}
        self._reading: dict[str, asyncio.Task[None]] = {}
        self._free = asyncio.Semaphore(AT_ONCE)

    def step(self, world: World) -> None:
        """Read those whose turn it is."""
        pools = {
            key_of(pool): pool
            for _, pool in world.of_kind(KIND)
            if isinstance(pool.spec, SpotpoolSpec) and pool.spec.gateway is not None
        }
        for gone in [key for key in (*self.known, *self._read_at) if key not in pools]:
            self._read_at.pop(gone, None)
            if self.known.pop(gone, None) is not None:
                self._tell(Topic.INSTANCES, gone)
        now = self._clock.monotonic()
        for key, pool in pools.items():
            read_at = self._read_at.setdefault(key, now - EVERY_SECONDS + self._rng.uniform(0, FIRST_SECONDS))
            if read_at + EVERY_SECONDS <= now and key not in self._reading:
                self._reading[key] = asyncio.create_task(self._read(pool), name=f"gateway of {key}")

    async def _read(self, pool: AnyResource) -> None:
        key = key_of(pool)
        try:
            async with self._free, asyncio.timeout(READ_SECONDS):
                at = self._clock.now()
                kong = await self._kong(pool)
                ensured, found = await kong.is_ensured(), await kong.targets()
            self._note(key, _fact(key, at, kong.marks, found, ensured))
        except (HeadroomError, TimeoutError) as problem:
            why = str(problem) if isinstance(problem, HeadroomError) else f"not finished within {READ_SECONDS:g}s"
            before = self.known.get(key) or Gateway(pool=key, at=0)
            self._note(key, structs.replace(before, problem=f"reading the gateway: {why}"))
        finally:
            self._read_at[key] = self._clock.monotonic()
            self._reading.pop(key, None)

    async def add(self, pool: AnyResource, target: str) -> None:
        """Add a target, after upstream, service and route; one that is there already, whosever, is left as it is."""
        try:
            kong = await self._kong(pool)
            await kong.ensure()
            if target not in {each.target for each in await kong.targets()}:
                await kong.add(target)
            await self._again(pool, kong, ensured=True)
        except HeadroomError as problem:
            raise _named(f"adding target {target} of Spotpool {key_of(pool)}", problem) from None

    async def remove(self, pool: AnyResource, target: str) -> None:
        """Remove a target that has our mark. Raises `Refused` if it has not."""
        try:
            kong = await self._kong(pool)
            found = [each for each in await kong.targets() if each.target == target]
            ours = [each for each in found if kong.marks.pool in (each.tags or ())]
            if found and not ours:
                raise Refused("it belongs to another owner")
            for each in ours:
                await kong.remove(each)
            before = self.known.get(key_of(pool))
            await self._again(pool, kong, ensured=before is not None and before.ensured)
        except HeadroomError as problem:
            raise _named(f"removing target {target} of Spotpool {key_of(pool)}", problem) from None

    async def _again(self, pool: AnyResource, kong: _Kong, *, ensured: bool) -> None:
        """The targets that stand there now, so that nobody asks for the same once more."""
        at, key = self._clock.now(), key_of(pool)
        self._note(key, _fact(key, at, kong.marks, await kong.targets(), ensured))

    async def _kong(self, pool: AnyResource) -> _Kong:
        gateway = spec_of(pool).gateway
        if gateway is None:
            raise Refused("the pool has no gateway")
        ref = gateway.token_secret_ref
        field = "spec.gateway.tokenSecretRef"
        token = await self._sessions.value(pool, ref, gateway.admin_url, field) if ref else ""
        marks = Marks(f"headroom-{pool.uid}", f"headroom.{self._cluster()}.{pool.namespace}")
        return _Kong(self._guard, gateway, marks, token)

    def _note(self, key: str, found: Gateway) -> None:
        before = self.known.get(key)
        self.known[key] = found
        if before is None or structs.replace(before, at=found.at) != found:
            self._tell(Topic.INSTANCES, key)

    async def stop(self) -> None:
        """Ask nobody any more, and forget what was known."""
        tasks = list(self._reading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.known.clear()
        self._read_at.clear()


def _fact(key: str, at: int, marks: Marks, found: list[_Target], ensured: bool) -> Gateway:
    ours = sorted({each.target for each in found if marks.pool in (each.tags or ())})
    others = sorted({each.target for each in found} - {*ours})
    return Gateway(pool=key, at=at, ours=tuple(ours), others=tuple(others), ensured=ensured)


def _named(doing: str, problem: HeadroomError) -> HeadroomError:
    return (Unavailable if isinstance(problem, Unavailable) else Refused)(f"{doing}: {problem}")
