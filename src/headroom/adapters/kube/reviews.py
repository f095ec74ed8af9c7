"""Asking the API server who somebody is and what they may do: for the guard of our HTTP server, and for ourselves at start."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from msgspec import Struct

from headroom.adapters.kube import paths
from headroom.adapters.kube.client import Kube
from headroom.model.errors import Unavailable
from headroom.model.ports import Clock

ALLOWED_SECONDS: Final = 60.0
DENIED_SECONDS: Final = 10.0
MOST_REMEMBERED: Final = 1024
AT_ONCE: Final = 4
MOST_WAITING: Final = 32
"""Callers that may wait for their turn; more are sent away at once."""
LONGEST_TOKEN: Final = 16_384

_AUTHENTICATION: Final = "authentication.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"


class Need(Struct, frozen=True):
    """A right that is needed."""

    verb: str
    resource: str
    """As in a role: `pods`, `pods/eviction`."""
    group: str = ""
    namespace: str = ""
    name: str = ""
    """Of the one object that it is needed for; empty for all."""

    @property
    def target(self) -> str:
        """What the verb is needed for, as people write it: `leases.coordination.k8s.io in namespace x`."""
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        what += f" {self.name}" if self.name else ""
        return what + (f" in namespace {self.namespace}" if self.namespace else "")

    def __str__(self) -> str:
        return f"{self.verb} {self.target}"


class _User(Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] | None = None
    extra: dict[str, list[str]] | None = None


class _Verdict(Struct):
    authenticated: bool = False
    user: _User | None = None
    allowed: bool = False
    denied: bool = False


class _Review(Struct):
    status: _Verdict = msgspec.field(default_factory=_Verdict)


_REVIEW: Final = msgspec.json.Decoder(_Review)
_Key = tuple[bytes, str]
"""The hash of a token, and a path."""


class _Queue:
    """So many at once, so many that wait, and nobody else."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._inside = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        if self._inside >= AT_ONCE + MOST_WAITING:
            raise Unavailable("asking who somebody is: too many others wait for an answer; try again later")
        self._inside += 1
        try:
            async with self._turn:
                yield
        finally:
            self._inside -= 1


class Reviews:
    """Whether the bearer of a token may read one of our paths: TokenReview, then SubjectAccessReview.

    Verdicts are remembered for a short while, a yes longer than a no, and only so many of each. Whoever was let in before has a
    queue of their own, so that strangers with made-up tokens can neither make us forget them nor stand in their way.
    """

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube, self._clock = kube, clock
        self._until: dict[bool, OrderedDict[_Key, float]] = {True: OrderedDict(), False: OrderedDict()}
        """Until when a verdict holds. A yes stays here after that: its bearer is no stranger."""
        self._queues = {True: _Queue(), False: _Queue()}

    async def may(self, token: str, path: str) -> bool:
        """Whether they may get that path. Raises a `HeadroomError` if the API server cannot be asked."""
        if not token or len(token) > LONGEST_TOKEN:
            return False
        # Never the token itself: a dump of this process should not hold more of them than it must.
        key = (hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest(), path)
        verdict = self._remembered(key)
        if verdict is None:
            async with self._queues[key in self._until[True]].turn():
                # Whoever was before us in the queue may have asked the same.
                verdict = self._remembered(key)
                if verdict is None:
                    verdict = await self._ask(token, path)
                    self._remember(key, verdict)
        return verdict

    def _remembered(self, key: _Key) -> bool | None:
        now = self._clock.monotonic()
        return next((verdict for verdict, until in self._until.items() if now < until.get(key, now)), None)

    def _remember(self, key: _Key, verdict: bool) -> None:
        self._until[not verdict].pop(key, None)
        known = self._until[verdict]
        known[key] = self._clock.monotonic() + (ALLOWED_SECONDS if verdict else DENIED_SECONDS)
        known.move_to_end(key)
        while len(known) > MOST_REMEMBERED:
            known.popitem(last=False)

    async def _ask(self, token: str, path: str) -> bool:
        known = await _review(self._kube, _AUTHENTICATION, "TokenReview", {"token": token})
        if not known.authenticated or known.user is None:
            return False
        who = {
            "user": known.user.username,
            "uid": known.user.uid,
            "groups": known.user.groups or [],
            "extra": known.user.extra or {},
        }
        asked = who | {"nonResourceAttributes": {"path": path, "verb": "get"}}
        verdict = await _review(self._kube, _AUTHORIZATION, "SubjectAccessReview", asked)
        return verdict.allowed and not verdict.denied


async def lacking(kube: Kube, needs: Iterable[Need]) -> list[Need]:
    """Those of the rights that we ourselves do not have."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def have(need: Need) -> bool:
        resource, _, part = need.resource.partition("/")
        attributes = {"verb": need.verb, "group": need.group, "resource": resource, "subresource": part}
        attributes |= {"namespace": need.namespace, "name": need.name}
        async with turn:
            verdict = await _review(kube, _AUTHORIZATION, "SelfSubjectAccessReview", {"resourceAttributes": attributes})
        return verdict.allowed and not verdict.denied

    wanted = list(needs)
    answers = await asyncio.gather(*(have(need) for need in wanted))
    return [need for need, yes in zip(wanted, answers, strict=True) if not yes]


async def _review(kube: Kube, group: str, kind: str, spec: dict[str, Any]) -> _Verdict:
    body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
    reply = await kube.create(paths.of(group, "v1", f"{kind.lower()}s"), body)
    try:
        return _REVIEW.decode(reply).status
    except msgspec.DecodeError as error:
        raise Unavailable(f"creating a {kind}: the answer is none that an API server gives") from error
