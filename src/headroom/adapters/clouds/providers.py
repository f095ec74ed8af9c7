"""What is asked of a cloud, whichever it is, and what it may answer.

A provider is made for one region with one set of keys, and used for a few calls. It tells of failures in four ways: our keys are
wrong (`BadCredentials`), they do not permit this (`NotPermitted`), it is asked too often (`CloudThrottled`), or anything else (`Refused`,
`Unavailable`). A launch also fails with `NotLaunched`, whose outcome says whether a machine may exist all the same.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self

from msgspec import Struct

from headroom.api.marks import CLUSTER_TAG, OWNER_TAG, SLOT_TAG, TOKEN_TAG
from headroom.model.cloud_facts import Instance, Offer
from headroom.model.errors import HeadroomError, Refused, Unavailable

TAGS: Final = frozenset({CLUSTER_TAG, OWNER_TAG, SLOT_TAG, TOKEN_TAG})
NOT_FOUND: Final = "NOT_FOUND"
"""The state of a machine whose id the cloud does not know. Only we say it."""
SPOT, ON_DEMAND = "spot", "on-demand"
"""The two capacity types."""
LONGEST_USER_DATA: Final = 16 * 1024
CALL_SECONDS: Final = 25.0
"""For one call, with all that happens underneath. A launch has 30 seconds in all."""
MICRO: Final = 1_000_000
DEAREST: Final = 10**6
"""Dollars an hour. What is said to cost more, or nothing, has no price that anybody should count with."""

Outcome = Literal["SoldOut", "PriceTooLow", "QuotaReached", "Refused", "Unknown"]
Trouble = Literal["Credentials", "Forbidden", "Throttled", "Unavailable", "Provider", "Refused"]

_REGION: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9._]{0,99}", re.ASCII)
_ID: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.:]{0,127}", re.ASCII)


class BadCredentials(Refused):
    """The cloud does not know our keys, or our clock is wrong, or there are none that we may use."""


class NotPermitted(Refused):
    """The cloud knows our keys, and they do not permit this."""


class Unusable(Refused):
    """Whatever would speak to this provider is not there."""


class CloudThrottled(Unavailable):
    """The cloud is asked too often."""


class NotLaunched(HeadroomError):
    """A launch did not bring a machine; with Unknown it may have brought one all the same."""

    def __init__(self, outcome: Outcome, why: str, *, before_token: bool = False) -> None:
        super().__init__(why)
        self.outcome = outcome
        self.before_token = before_token
        """The cloud may say this before it looks at the token, so it tells nothing of earlier calls with the same one."""


def trouble_of(problem: HeadroomError) -> Trouble:
    """A failure, as a listing tells it."""
    kinds: tuple[tuple[type[HeadroomError], Trouble], ...] = (
        (BadCredentials, "Credentials"),
        (NotPermitted, "Forbidden"),
        (Unusable, "Provider"),
        (CloudThrottled, "Throttled"),
        (Unavailable, "Unavailable"),
    )
    return next((word for kind, word in kinds if isinstance(problem, kind)), "Refused")


class Keys(Mapping[str, str]):
    """Secret values by name. They show themselves to nobody who prints them."""

    def __init__(self, values: Mapping[str, str], *, ambient: bool = False) -> None:
        self._values = dict(values)
        self.ambient = ambient
        """The process's own credentials are used; there are no values then."""

    def __getitem__(self, name: str) -> str:
        return self._values[name]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Keys({', '.join(sorted(self._values))})"


class LaunchRequest(Struct, frozen=True, kw_only=True, repr_omit_defaults=True):
    """One machine to be launched."""

    token: str
    cluster: str
    owner: str
    """The uid of the Spotpool."""
    slot: int
    name: str
    """For people, in the cloud's console."""
    instance_type: str
    zone: str = ""
    image: str = ""
    vpc: str = ""
    subnet: str = ""
    security_groups: tuple[str, ...] = ()
    spot: bool = True
    max_price: int | None = None
    """Millionths of a dollar an hour."""
    disk_type: str = ""
    disk_gib: int = 0
    public_ip: bool = False
    key_ids: tuple[str, ...] = ()
    user_data: Keys = Keys({})
    """As the value `userData`."""

    @property
    def tags(self) -> dict[str, str]:
        """The marks by which the machine is known as ours."""
        return {
            CLUSTER_TAG: self.cluster,
            OWNER_TAG: self.owner,
            SLOT_TAG: str(self.slot),
            TOKEN_TAG: self.token,
        }


class ReclaimNotice(Struct, frozen=True):
    """The cloud will take a machine back."""

    instance: str
    at: int


class QuoteRequest(Struct, frozen=True, kw_only=True):
    """Of which machines the price and the stock are asked for."""

    types: tuple[str, ...]
    zones: tuple[str, ...] = ()
    """None: all of the region."""
    spot: bool = True
    now: int = 0


class Provider(Protocol):
    """A cloud's region, with keys. Every call raises only `model.errors`, and has a deadline of its own."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def identity(self) -> str:
        """The account that the keys are of, as the cloud names it; empty where it does not."""
        ...

    async def machines(self, cluster: str) -> list[Instance]:
        """Every machine with the cluster's tag, read to the end of the last page. A part is no list: then it raises."""
        ...

    async def describe(self, ids: Sequence[str]) -> dict[str, Instance]:
        """Machines by id, whatever their tags; one that the cloud does not know is in state NOT_FOUND."""
        ...

    async def launch(self, request: LaunchRequest) -> Instance:
        """Launch a machine, or learn which one the token has launched. Raises `NotLaunched`, nothing else."""
        ...

    async def terminate(self, ids: Sequence[str]) -> None:
        """End machines. One that the cloud does not know any more is no failure."""
        ...

    async def offers(self, question: QuoteRequest) -> list[Offer]:
        """What can be had, at which price."""
        ...

    async def notices(self) -> list[ReclaimNotice] | None:
        """Which machines it will take back, as far as that is new; None where it does not tell."""
        ...


# --- what all of them need ------------------------------------------------------------------------------------------------------


def checked_region(region: str) -> str:
    """The region, which becomes a part of a host's name. Raises `Refused` for anything that could become more than that."""
    if not _REGION.fullmatch(region):
        raise Refused("spec.region is not a region: it may have only lower-case letters, digits and '-'")
    return region


def code_in(text: object) -> str:
    """An error's code as the cloud gives it; whatever does not look like one is not repeated."""
    return text if isinstance(text, str) and _CODE.fullmatch(text) else "an error without a code"


def is_id(text: object) -> bool:
    """Whether it can be the id of a machine."""
    return isinstance(text, str) and _ID.fullmatch(text) is not None


def millionths(price: object) -> int | None:
    """Millionths of a dollar; None for what is no price, or one that nobody should count with."""
    if isinstance(price, bool) or not isinstance(price, str | int | float | Decimal):
        return None
    try:
        found = Decimal(str(price))
    except InvalidOperation:
        return None
    if not found.is_finite() or not 0 < found <= DEAREST:
        return None
    return int(found * MICRO) or None


def dollars(price: int) -> str:
    """A price as clouds read it."""
    return format(Decimal(price) / MICRO, "f")


def own_tags(tags: Iterable[tuple[object, object]]) -> dict[str, str]:
    """Our own among a machine's tags. The others are nobody's business here. Texts that are alike are kept once."""
    return {
        sys.intern(key): sys.intern(value)
        for key, value in tags
        if isinstance(key, str) and isinstance(value, str) and key in TAGS and len(value) <= 256
    }


def unknown_ids(ids: Iterable[str], found: Mapping[str, Instance], provider: str, region: str) -> dict[str, Instance]:
    """Those that were asked for and not found."""
    return {
        each: Instance(name=each, provider=provider, region=region, state=NOT_FOUND)
        for each in ids
        if each not in found
    }


def batches(ids: Sequence[str], size: int) -> list[Sequence[str]]:
    """In parts that one call takes."""
    return [ids[begin : begin + size] for begin in range(0, len(ids), size)]
