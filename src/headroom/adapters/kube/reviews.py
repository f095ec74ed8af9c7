"""Asking the API server who somebody is and what they may do: for the guard of our HTTP server, and for ourselves at start."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Iterable
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


class Reviews:
    """Whether the bearer of a token may read one of our paths: TokenReview, then SubjectAccessReview.

    Verdicts are remembered for a short while, a yes longer than a no, and only so many of them.
    """

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube, self._clock = kube, clock
        self._known: OrderedDict[tuple[bytes, str], tuple[bool, float]] = OrderedDict()
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def may(self, token: str, path: str) -> bool:
        """Whether they may get that path. Raises a `HeadroomError` if the API server cannot be asked."""
        if not token or len(token) > LONGEST_TOKEN:
            return False
        # Never the token itself: a dump of this process should not hold more of them than it must.
        key = (hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest(), path)
        async with self._turn:
            verdict, until = self._known.get(key, (False, 0.0))
            if self._clock.monotonic() < until:
                return verdict
            verdict = await self._ask(token, path)
        seconds = ALLOWED_SECONDS if verdict else DENIED_SECONDS
        self._known[key] = (verdict, self._clock.monotonic() + seconds)
        self._known.move_to_end(key)
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)
        return verdict

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
