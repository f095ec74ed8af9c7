"""The verbs of the Kubernetes API on top of a transport: bodies are plain dicts, failures are `ApiError`s.

Reads are tried again a few times. Writes never are: whether one was done is unknown when no reply came, and only
the caller knows if it may be repeated.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.server_time import ServerTime
from headroom.adapters.kube.transport import (
    APPLY_PATCH,
    JSON,
    JSON_PATCH,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    Reply,
    StreamRefused,
    Transport,
)
from headroom.model.errors import Unavailable
from headroom.model.ports import Clock

Object = Mapping[str, Any]

REQUEST_SECONDS: Final = 30.0
PAGE: Final = 500
_READ_PAUSES: Final = (0.25, 1.0)
"""The longest waits between the tries of a read; a server's own hint is heeded up to `_LONGEST_HINT`."""
_LONGEST_HINT: Final = 5.0


class _ListMeta(msgspec.Struct):
    continue_: str = msgspec.field(name="continue", default="")


class _ListHead(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


class _ObjectMeta(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _ObjectHead(msgspec.Struct):
    metadata: _ObjectMeta


_LIST_HEAD: Final = msgspec.json.Decoder(_ListHead)
_OBJECT_HEAD: Final = msgspec.json.Decoder(_ObjectHead)


class Kube:
    """An API server, asked and told. Jitter needs an `rng`; without one, waits have their full length."""

    def __init__(self, transport: Transport, clock: Clock, rng: random.Random | None = None) -> None:
        self.clock: Final = clock
        self.server_time = ServerTime()
        self._transport = transport
        self._rng = rng

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    # Reading

    async def get(
        self, path: str, *, query: Mapping[str, str] | None = None, timeout: float = REQUEST_SECONDS
    ) -> bytes:
        """What is at an address."""
        for pause in _READ_PAUSES:
            try:
                return await self._ask("GET", path, query=query, timeout=timeout)
            except Unavailable as problem:
                hint = problem.retry_after if isinstance(problem, errors.ApiError) else None
                if isinstance(problem, errors.Gone) or (hint or 0) > _LONGEST_HINT:
                    raise
                jitter = self._rng.random() if self._rng else 1.0
                await self.clock.sleep(max(hint or 0.0, pause * jitter))
        return await self._ask("GET", path, query=query, timeout=timeout)

    async def page(
        self, path: str, *, query: Mapping[str, str] | None = None, limit: int = PAGE, cont: str = ""
    ) -> bytes:
        """One page of a list, the first or the one that `cont` continues with. Raises `Gone` if that has expired."""
        more = {"continue": cont} if cont else {}
        return await self.get(path, query={**(query or {}), "limit": str(limit), **more})

    async def pages(
        self, path: str, *, query: Mapping[str, str] | None = None, limit: int = PAGE
    ) -> AsyncIterator[bytes]:
        """All pages of one consistent list. Raises `Gone` if it took so long that its version expired."""
        cont = ""
        while True:
            body = await self.page(path, query=query, limit=limit, cont=cont)
            yield body
            cont = _LIST_HEAD.decode(body).metadata.continue_
            if not cont:
                return

    async def watch(
        self, path: str, *, query: Mapping[str, str], idle: float, opened: Callable[[], None] | None = None
    ) -> AsyncGenerator[bytes]:
        """The lines of a watch. Raises an `ApiError` if it is refused, `Unavailable` if it breaks or falls silent."""
        lines = self._transport.stream(path, query={**query, "watch": "true"}, idle=idle, opened=opened)
        try:
            async for line in lines:
                yield line
        except StreamRefused as refusal:
            raise errors.from_reply(refusal.reply, f"watching {paths.spoken(path)}") from refusal
        finally:
            close = getattr(lines, "aclose", None)
            if close is not None:
                await close()

    # Writing

    async def create(self, path: str, body: Object, *, timeout: float = REQUEST_SECONDS) -> bytes:
        """A new object in a collection. Raises `AlreadyExists` if the name is taken."""
        return await self._ask("POST", path, body=body, timeout=timeout)

    async def apply(self, path: str, body: Object, *, owner: str = "headroom", force: bool = False) -> bytes:
        """Server-side apply: our fields are set, fields of ours that are left out are removed, all others stay.

        Raises `Conflict`, whose causes name the fields, if others own some of them and it is not forced.
        """
        query = {"fieldManager": owner, "force": "true" if force else "false"}
        return await self._ask("PATCH", path, query=query, body=body, content_type=APPLY_PATCH)

    async def merge_patch(self, path: str, body: Object) -> bytes:
        """Sets the given fields; None removes one, a list is replaced as a whole."""
        return await self._ask("PATCH", path, body=body, content_type=MERGE_PATCH)

    async def strategic_patch(self, path: str, body: Object) -> bytes:
        """Like a merge patch, but lists have directives of their own; for Kubernetes' own kinds only."""
        return await self._ask("PATCH", path, body=body, content_type=STRATEGIC_PATCH)

    async def json_patch(self, path: str, operations: Sequence[Object]) -> bytes:
        """Does all operations or none; an operation "test" that fails is answered with `Invalid`."""
        return await self._ask("PATCH", path, body=operations, content_type=JSON_PATCH)

    async def patch_status(self, path: str, status: Object, *, uid: str, resource_version: str = "") -> bytes:
        """Sets fields of a status, at an address that ends with /status.

        Raises `Conflict` if the object is another one of the same name, or no longer in the version given. Give the
        version that the status was made for: without it the object is read first, to learn whose status this is.
        """
        if not path.endswith("/status"):
            raise ValueError(f"{path} is not the address of a status")
        for tries_left in (0,) if resource_version else (2, 1, 0):
            metadata = {"uid": uid, "resourceVersion": resource_version or await self._version_of(path, uid)}
            try:
                return await self.merge_patch(path, {"metadata": metadata, "status": status})
            except errors.Conflict:
                if not tries_left:
                    raise
        raise AssertionError("the last try returns or raises")

    async def _version_of(self, path: str, uid: str) -> str:
        """The version of the object whose status is at an address. Raises `Conflict` if its uid is another one."""
        # The server ignores a uid that is sent with the status of a custom resource, but it heeds a version.
        found = _OBJECT_HEAD.decode(await self.get(path.removesuffix("/status"))).metadata
        if found.uid != uid:
            message = f"{paths.doing('PATCH', path)}: it is now another object, with uid {found.uid} instead of {uid}"
            raise errors.Conflict(409, "Conflict", message)
        return found.resource_version

    async def replace(self, path: str, body: Object, *, timeout: float = REQUEST_SECONDS) -> bytes:
        """Writes a whole object. Raises `Conflict` if its metadata.resourceVersion is no longer the newest."""
        return await self._ask("PUT", path, body=body, timeout=timeout)

    async def delete(
        self,
        path: str,
        *,
        uid: str = "",
        resource_version: str = "",
        grace_seconds: int | None = None,
        propagation: str = "",
    ) -> bytes:
        """Deletes an object, if it still has this uid and version where given; else raises `Conflict`."""
        options = _delete_options(uid, resource_version, grace_seconds)
        if propagation:
            options["propagationPolicy"] = propagation
        return await self._ask("DELETE", path, body={"apiVersion": "v1", "kind": "DeleteOptions", **options})

    async def evict(
        self, namespace: str, name: str, *, uid: str, resource_version: str = "", grace_seconds: int | None = None
    ) -> bytes:
        """Evicts exactly this pod, in this version if one is given; without one, a wrong uid is refused only after 10 s.

        Raises `DisruptionBlocked` if a disruption budget says not now, `EvictionImpossible` if it can never be,
        `Conflict` if the pod is another one or has changed, and `NotFound` if it is gone.
        """
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": _delete_options(uid, resource_version, grace_seconds),
        }
        doing = f"evicting pods {namespace}/{name}"
        try:
            return await self._ask("POST", paths.eviction(namespace, name), body=body, doing=doing)
        except errors.ApiError as problem:
            raise errors.eviction_error(problem) from None

    async def _ask(
        self, method: str, path: str, *, body: Object | Sequence[Object] | None = None, doing: str = "", **more: Any
    ) -> bytes:
        """The body of a success; anything else raises."""
        content = b"" if body is None else msgspec.json.encode(body)
        reply: Reply = await self._transport.request(method, path, body=content, **{"content_type": JSON, **more})
        if 200 <= reply.status < 300:
            self.server_time.heard(reply.headers, self.clock.monotonic())
            return reply.body
        raise errors.from_reply(reply, doing or paths.doing(method, path))


def _delete_options(uid: str, resource_version: str, grace_seconds: int | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    preconditions = {"uid": uid, "resourceVersion": resource_version}
    if wanted := {name: value for name, value in preconditions.items() if value}:
        options["preconditions"] = wanted
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    return options
