"""What we keep of clouds: their machines, what they offer, and what came of our calls. Moments are whole milliseconds."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Instance(Struct, frozen=True, kw_only=True, rename="camel"):
    """A machine of a cloud; `name` is the cloud's id."""

    name: str
    provider: str = ""
    region: str = ""
    zone: str = ""
    instance_type: str = ""
    state: str = ""
    public_ip: str = ""
    private_ip: str = ""
    tags: dict[str, str] = {}
    launched_at: int | None = None
    node: str = ""
    reclaim_at: int | None = None
    """When the cloud takes it back, if it said so."""
    price_per_hour: int | None = None
    """Millionths of a dollar."""


class Launch(Struct, frozen=True, kw_only=True, rename="camel"):
    """The last call of this process to launch a machine, and what came of it."""

    token: str
    """Of the intent: a repeated call with it launches no second machine."""
    pool: str
    """Spotpool, namespace/name."""
    at: int
    """When it was sent."""
    outcome: Literal["Accepted", "SoldOut", "PriceTooLow", "QuotaReached", "Refused", "Unknown"]
    """Unknown: no answer came, or one that proves nothing, so the machine may exist. Accepted: it has an id. Else surely there is none."""
    instance: str = ""
    """The id of the machine, once it was accepted."""
    message: str = ""


class Listing(Struct, frozen=True, kw_only=True, rename="camel"):
    """When the machines of a Spotpool were last listed in full."""

    pool: str
    """Spotpool, namespace/name."""
    at: int
    """When the request was sent for the first page of the last list that was read to its end; 0 if none was."""
    problem: Literal["", "Credentials", "Forbidden", "Throttled", "Unavailable", "Provider", "Refused"] = ""
    """What keeps us from listing now; empty while all is well."""
    message: str = ""
    notices: bool = False
    """Whether the provider tells beforehand that it takes a machine back."""


class Gateway(Struct, frozen=True, kw_only=True, rename="camel"):
    """The targets that a Spotpool's gateway has."""

    pool: str
    """Spotpool, namespace/name."""
    at: int
    """When they were last read in full; 0 if they never were."""
    ours: tuple[str, ...] = ()
    """Those that carry this pool's mark, host:port, sorted."""
    others: tuple[str, ...] = ()
    """Those of somebody else."""
    ensured: bool = False
    """Its upstream, service and route stand as the pool asks."""
    problem: str = ""
    """Why they cannot be read or written now, as a sentence; empty while all is well."""


class Offer(Struct, frozen=True, kw_only=True, rename="camel"):
    """A machine type that can be had in a zone, at a price."""

    name: str
    provider: str = ""
    region: str = ""
    zone: str = ""
    zone_id: str = ""
    instance_type: str = ""
    arch: str = ""
    vendor: str = ""
    gpus: int = 0
    capacity_type: str = ""
    price_per_hour: int | None = None
    """Millionths of a dollar."""
    at: int | None = None
    score: int | None = None
    available: bool | None = None
    """False while it is sold out; None where the cloud does not say."""
    endpoint: str = ""
    """Of whoever answers behind a webhook, where it is one: their word counts for the pools there, and for nobody else."""
