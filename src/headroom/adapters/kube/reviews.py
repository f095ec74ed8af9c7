"""Asking the API server who somebody is and what they may do: for the guard of our HTTP server, and for ourselves at start."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from headroom.adapters.kube import paths
from headroom.adapters.kube.client import Kube
from headroom.model.errors import Unavailable
from headroom.model.ports import Clock

ALLOWED_SECONDS: Final = 60.0
DENIED_SECONDS: Final = 10.0
STALE_SECONDS: Final = 60.0
"""For so much longer the last answer holds while the API server cannot be asked: it restarts faster than that."""
ASK_SECONDS: Final = 10.0
MANY: Final = 50
"""Of more rights at once, a no to all holds as long as a yes: it is the namespaces of a large cluster that are asked about."""
MOST_REMEMBERED: Final = 1024
FORGET_SECONDS: Final = 300.0
"""Who has not come for so long is forgotten."""
AT_ONCE: Final = 4
MOST_WAITING: Final = 32
"""Callers that may wait for their turn; more are sent away at once."""
RIGHTS_AT_ONCE: Final = 8
"""Rights of one caller that are asked about at once, while it is their turn."""
LONGEST_TOKEN: Final = 16_384

_AUTHENTICATION: Final = "authentication.k8s.io"
_AUTHORIZATION: Final = "authorization.k8s.io"


class RequiredRight(Struct, frozen=True):
    """A right that is needed."""

    verb: str
    resource: str
    """As in a role: `pods`, `pods/eviction`; or a path that is of no kind, such as `/metrics`."""
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

    def asked(self) -> dict[str, dict[str, str]]:
        """The question as a part of an access review."""
        if self.resource.startswith("/"):
            return {"nonResourceAttributes": {"path": self.resource, "verb": self.verb}}
        resource, _, part = self.resource.partition("/")
        attributes = {"verb": self.verb, "group": self.group, "resource": resource, "subresource": part}
        return {"resourceAttributes": attributes | {"namespace": self.namespace, "name": self.name}}


class Who(Struct, frozen=True):
    """Somebody whom the API server knows, and by what."""

    key: bytes
    """A hash of what they showed: all that we keep of a credential."""
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, list[str]] = {}


def key_of(credential: bytes) -> bytes:
    """The hash of a credential. A dump of this process should not hold more secrets than it must."""
    return hashlib.sha256(credential).digest()


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


class _Queue:
    """So many at once, so many that wait, and nobody else."""

    def __init__(self) -> None:
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._inside = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        if self._inside >= AT_ONCE + MOST_WAITING:
            raise Unavailable("authenticating a caller: too many requests are in progress; try again later")
        self._inside += 1
        try:
            async with self._turn:
                yield
        finally:
            self._inside -= 1


class _Batch(Struct, frozen=True):
    """Rights that were asked about together. Nearly all answers are a no, so only the yeses are kept for each caller."""

    needs: frozenset[RequiredRight]
    yes: frozenset[RequiredRight]
    until: float
    """When they are asked about again."""


@lru_cache(maxsize=64)
def _shared(needs: frozenset[RequiredRight]) -> frozenset[RequiredRight]:
    """The same object for equal rights: everybody is asked about the same namespaces, and there may be thousands."""
    return needs


class _Caller:
    """All that was learned about whoever shows one credential."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Held while somebody asks, so that the same is not asked twice at the same time."""
        self.who: Who | None = None
        self.who_until = float("-inf")
        self.batches: list[_Batch] = []
        """The last one first: where two know of the same right, it counts."""
        self.quiet_until = float("-inf")
        """Until then the API server is not bothered again, since it could not be asked a moment ago."""
        self.seen_at = float("-inf")

    def answered(
        self, wanted: frozenset[RequiredRight], now: float
    ) -> tuple[frozenset[RequiredRight], frozenset[RequiredRight]]:
        """Of these rights, those that they have, and those about which nothing is known that holds."""
        yes: frozenset[RequiredRight] = frozenset()
        left = wanted
        for batch in self.batches:
            if now < batch.until:
                yes |= left & batch.yes
                left -= batch.needs
        return yes, left

    def learn(
        self,
        wanted: frozenset[RequiredRight],
        asked: frozenset[RequiredRight],
        granted: frozenset[RequiredRight],
        now: float,
    ) -> None:
        """Take in the answers to those of the wanted rights that were asked about.

        They join the others, to be asked about together from now on: else every new namespace would have a time of its own.
        """
        others, unknown = self.answered(wanted - asked, now)
        wanted, yes = wanted - unknown, others | granted
        # Of many questions at once, as about all namespaces, most are a no for ever: one yes makes the whole answer a good one.
        until = now + (ALLOWED_SECONDS if yes or len(wanted) > MANY else DENIED_SECONDS)
        joined = [each.until for each in self.batches if now < each.until and each.needs & (wanted - asked)]
        kept = [each for each in self.batches if now < each.until + STALE_SECONDS and not each.needs <= wanted]
        self.batches = [_Batch(_shared(wanted), yes, min([until, *joined])), *kept]

    @property
    def let_in(self) -> bool:
        """Whether they had any right when we asked last."""
        return any(batch.yes for batch in self.batches)


class Reviews:
    """Who shows a token, by TokenReview, and which rights somebody has, by SubjectAccessReview.

    Answers are remembered for a short while, a yes longer than a no, and for only so many callers. Whoever was let in before has a
    queue of their own, so that strangers with made-up tokens can neither make us forget them nor stand in their way.
    """

    def __init__(self, kube: Kube, clock: Clock) -> None:
        self._kube, self._clock = kube, clock
        self._callers: dict[bool, OrderedDict[bytes, _Caller]] = {True: OrderedDict(), False: OrderedDict()}
        """By the hash of their credential: those who were let in, and strangers."""
        self._queues = {True: _Queue(), False: _Queue()}

    async def who(self, token: str) -> Who | None:
        """Whose token this is; None: nobody's. Raises a `HeadroomError` if the API server cannot be asked."""
        if not token or len(token) > LONGEST_TOKEN:
            return None
        key = key_of(token.encode("utf-8", "surrogateescape"))
        caller = self._caller(key)
        if self._lenient(caller) >= caller.who_until:
            async with caller.lock:
                if self._lenient(caller) >= caller.who_until:
                    await self._identify(caller, key, token)
        return caller.who

    async def allowed(self, who: Who, needs: Iterable[RequiredRight]) -> frozenset[RequiredRight]:
        """Those of the rights that they have. Raises a `HeadroomError` if the API server cannot be asked."""
        wanted = frozenset(needs)
        caller = self._caller(who.key)
        yes, unanswered = caller.answered(wanted, self._lenient(caller))
        if unanswered:
            async with caller.lock:
                yes, unanswered = caller.answered(wanted, self._lenient(caller))
                # While some are asked about, others may run out.
                while unanswered:
                    await self._judge(caller, who, wanted, unanswered)
                    yes, unanswered = caller.answered(wanted, self._lenient(caller))
        return yes

    async def _identify(self, caller: _Caller, key: bytes, token: str) -> None:
        try:
            async with self._queues[caller.let_in].turn():
                known = await _review(self._kube, _AUTHENTICATION, "TokenReview", {"token": token})
        except Unavailable:
            caller.quiet_until = self._now() + DENIED_SECONDS
            if caller.who is None or self._lenient(caller) >= caller.who_until:
                raise
            return
        caller.quiet_until = self._now()
        caller.who = _who(known, key)
        caller.who_until = self._now() + (ALLOWED_SECONDS if caller.who else DENIED_SECONDS)
        if caller.who is None:
            caller.batches.clear()
        self._place(key, caller)

    async def _judge(
        self, caller: _Caller, who: Who, wanted: frozenset[RequiredRight], asked: frozenset[RequiredRight]
    ) -> None:
        user = {"user": who.name, "uid": who.uid, "groups": list(who.groups), "extra": who.extra}

        async def may(need: RequiredRight) -> bool:
            return await _allows(self._kube, "SubjectAccessReview", user | need.asked())

        needs = list(asked)
        try:
            async with self._queues[caller.let_in].turn():
                answers = await _each(needs, may, RIGHTS_AT_ONCE)
        except Unavailable:
            caller.quiet_until = self._now() + DENIED_SECONDS
            if caller.answered(asked, self._lenient(caller))[1]:
                raise
            return
        caller.quiet_until = self._now()
        granted = frozenset(need for need, yes in zip(needs, answers, strict=True) if yes)
        caller.learn(wanted, asked, granted, self._now())
        self._place(who.key, caller)

    def _caller(self, key: bytes) -> _Caller:
        found = self._callers[True].get(key) or self._callers[False].get(key) or _Caller()
        self._place(key, found)
        return found

    def _place(self, key: bytes, caller: _Caller) -> None:
        """Among those who were let in, or among the strangers; of each, those who came last are remembered."""
        caller.seen_at = self._now()
        self._callers[not caller.let_in].pop(key, None)
        self._callers[caller.let_in][key] = caller
        self._callers[caller.let_in].move_to_end(key)
        for known in self._callers.values():
            while known and (len(known) > MOST_REMEMBERED or self._is_long_gone(next(iter(known.values())))):
                known.popitem(last=False)

    def _is_long_gone(self, caller: _Caller) -> bool:
        return self._now() - caller.seen_at > FORGET_SECONDS

    def _now(self) -> float:
        return self._clock.monotonic()

    def _lenient(self, caller: _Caller) -> float:
        """The time by which answers run out: behind the clock while the API server cannot be asked."""
        now = self._now()
        return now - STALE_SECONDS if now < caller.quiet_until else now


async def lacking(kube: Kube, needs: Iterable[RequiredRight]) -> list[RequiredRight]:
    """Those of the rights that we ourselves do not have."""

    async def have(need: RequiredRight) -> bool:
        return await _allows(kube, "SelfSubjectAccessReview", need.asked())

    wanted = list(needs)
    answers = await _each(wanted, have, AT_ONCE)
    return [need for need, yes in zip(wanted, answers, strict=True) if not yes]


async def _each(
    needs: list[RequiredRight], ask: Callable[[RequiredRight], Awaitable[bool]], at_once: int
) -> list[bool]:
    """The answers in order; once one cannot be had, none is waited for any more."""
    turn = asyncio.Semaphore(at_once)

    async def answer(need: RequiredRight) -> bool:
        async with turn:
            return await ask(need)

    tasks = [asyncio.create_task(answer(need)) for need in needs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _who(known: _Verdict, key: bytes) -> Who | None:
    user = known.user
    if not known.authenticated or user is None:
        return None
    return Who(key, user.username, user.uid, tuple(user.groups or ()), user.extra or {})


async def _allows(kube: Kube, kind: str, spec: dict[str, Any]) -> bool:
    verdict = await _review(kube, _AUTHORIZATION, kind, spec)
    return verdict.allowed and not verdict.denied


async def _review(kube: Kube, group: str, kind: str, spec: dict[str, Any]) -> _Verdict:
    body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
    reply = await kube.create(paths.of(group, "v1", f"{kind.lower()}s"), body, timeout=ASK_SECONDS)
    try:
        return _REVIEW.decode(reply).status
    except msgspec.DecodeError as error:
        raise Unavailable(f"creating a {kind}: the answer is not an API server's") from error
