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
    account: str = ""
    """The cloud's account whose machines were listed; empty where the cloud does not tell."""
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
    """Those of others."""
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
    """Millionths of a GPU: a type may have a part of one."""
    gpu_memory: int = 0
    """Of all its GPUs, in MiB."""
    network_mbps: int = 0
    """What its network cards carry in the long run."""
    capacity_type: str = ""
    price_per_hour: int | None = None
    """Millionths of a dollar."""
    at: int | None = None
    score: int | None = None
    """How likely launches succeed, from 1 to 10; None where that is not known."""
    scored_at: int | None = None
    available: bool | None = None
    """False while it is sold out; None where the cloud does not say."""
    endpoint: str = ""
    """Of whoever answers behind a webhook, where it is one: their word counts for the pools there, and for nobody else."""


class OfferFeed(Struct, frozen=True, kw_only=True, rename="camel"):
    """How well the offers for a LeftoverNodePool are known."""

    pool: str
    """LeftoverNodePool, by name."""
    at: int = 0
    """When all prices were last read to the end; 0 if they never were."""
    problem: Literal["", "Credentials", "Types", "Prices", "Scores"] = ""
    """What cannot be read now; empty while all is well."""
    message: str = ""


class Experience(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of machines of one offer in the last week, in all clusters that share the ledger."""

    offer: str
    """As instance type, zone and capacity type: `g5.xlarge/us-east-1a/spot`."""
    launches: int = 0
    """Tried, the failed ones included."""
    failures: int = 0
    interruptions: int = 0
    machine_ms: int = 0
    """How long machines of it ran, all together."""


class LaunchFailure(Struct, frozen=True, kw_only=True, rename="camel"):
    """A machine that Karpenter could not launch. Its NodeClaim may be gone already."""

    claim: str
    node_pool: str
    at: int
    reason: str = ""
    """As Karpenter gives it, one word."""


class PoolWrite(Struct, frozen=True, kw_only=True, rename="camel"):
    """The last write of this process to a NodePool that succeeded, as digests of specs."""

    node_pool: str
    uid: str
    at: int
    asked: str
    made: str
    """What the API server made of it: another version of Karpenter may not know every field."""


class WriteProblem(Struct, frozen=True, kw_only=True, rename="camel"):
    """A write of this process to one of Karpenter's objects that failed, and has not succeeded since."""

    object: str
    """As Kind/name."""
    action: str
    """The name of the action, such as ApplyNodePool."""
    at: int
    message: str
