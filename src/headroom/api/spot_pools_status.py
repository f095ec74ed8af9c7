"""What Headroom writes of a Spotpool: its slots with their intents and machines, what was bought, and what is put to rest."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from headroom.api.power_status import MOST_SHAPES, Assigned, Breaker, Trial, Unserved
from headroom.api.resources import ApiType, Status
from headroom.api.schema import extra

SlotState = Literal["Launching", "Cancelling", "Running", "Draining", "Ending"]
SLOT_STATES: Final[tuple[SlotState, ...]] = ("Launching", "Cancelling", "Running", "Draining", "Ending")
SlotCause = Literal["", "Surplus", "Idle", "Reclaimed", "NeverJoined", "Failed", "Deleted", "Paused", "Refused"]
MOST_ORPHANS: Final = 20


class Slot(ApiType, frozen=True, kw_only=True):
    """A machine of the pool, or the intent to launch one."""

    slot: Annotated[int, Meta(ge=0, description="Its number.")]
    state: Annotated[
        SlotState,
        Meta(
            description="Launching: its launch is under way. Cancelling: it is not needed any more, but may have come about. Running: its "
            "machine exists. Draining: pods leave it. Ending: it is being ended."
        ),
    ]
    since: Annotated[str, Meta(description="Since when.")] = ""
    token: Annotated[str, Meta(description="Of the intent: calls with the same token launch one machine.")] = ""
    instance_type: Annotated[str, Meta(description="The machine type.")] = ""
    zone: Annotated[str, Meta(description="The zone.")] = ""
    launched_at: Annotated[str, Meta(description="The moment of the intent.")] = ""
    instance_id: Annotated[str, Meta(description="The cloud's id of the machine, once it is known.")] = ""
    node: Annotated[str, Meta(description="Its node, once there is one.")] = ""
    seen_at: Annotated[str, Meta(description="When its machine was first seen.")] = ""
    joined_at: Annotated[str, Meta(description="When its node was first ready.")] = ""
    idle_since: Annotated[str, Meta(description="Since when no pod needs it; empty while one does.")] = ""
    not_found_since: Annotated[
        str, Meta(description="Since when the cloud, asked by id, does not know it; empty if it does.")
    ] = ""
    reclaim_at: Annotated[str, Meta(description="When the cloud takes it back, if it said so.")] = ""
    price_per_hour: Annotated[str, Meta(description="What it costs in an hour, in dollars, if that is known.")] = ""
    cause: Annotated[SlotCause, Meta(description="Why it is cancelled, drained or ended, as one word.")] = ""
    assigned: Annotated[
        tuple[Assigned, ...],
        Meta(
            max_length=MOST_SHAPES,
            description="The pods for which it was launched.",
            extra=extra(map_key="shape"),
        ),
    ] = ()


class Purchases(ApiType, frozen=True, kw_only=True):
    """Machines bought in one minute."""

    minute: Annotated[str, Meta(description="When the minute began.")]
    count: Annotated[int, Meta(ge=0, description="How many.")] = 0


class SoldOut(ApiType, frozen=True, kw_only=True):
    """A machine type that could not be had and is put to rest."""

    instance_type: Annotated[str, Meta(description="The machine type.")]
    zone: Annotated[str, Meta(description="The zone; * for the whole region, where a quota is reached.")] = ""
    failures: Annotated[int, Meta(ge=0, description="How often in a row.")] = 0
    until: Annotated[str, Meta(description="Before this it is not tried again.")] = ""
    reason: Annotated[str, Meta(description="SoldOut, PriceTooLow or QuotaReached.")] = ""


class Orphan(ApiType, frozen=True, kw_only=True):
    """A machine of this cluster that no Spotpool owns."""

    instance_id: Annotated[str, Meta(description="The cloud's id of the machine.")]
    since: Annotated[str, Meta(description="When it was first seen.")] = ""


class PoolInstance(ApiType, frozen=True, kw_only=True):
    """One machine of the pool."""

    instance_id: Annotated[str, Meta(description="The cloud's id of the machine.")]
    public_ip: Annotated[str, Meta(description="Its public address; empty while it has none.")] = ""


class SpotpoolStatus(Status, frozen=True, kw_only=True):
    """The machines of the pool."""

    size: Annotated[int | None, Meta(description="Machines that exist now.")] = None
    instances: Annotated[
        tuple[PoolInstance, ...], Meta(description="The machines that exist now.", extra=extra(map_key="instanceId"))
    ] = ()
    slots: Annotated[
        tuple[Slot, ...], Meta(description="Machines and intents to launch one.", extra=extra(map_key="slot"))
    ] = ()
    purchases: Annotated[
        tuple[Purchases, ...],
        Meta(max_length=64, description="Machines bought in the last hour.", extra=extra(map_key="minute")),
    ] = ()
    sold_out: Annotated[
        tuple[SoldOut, ...], Meta(max_length=300, description="Types and zones that are put to rest.")
    ] = ()
    breaker: Annotated[Breaker | None, Meta(description="Machines in a row that never joined, if any.")] = None
    unserved: Annotated[
        tuple[Unserved, ...], Meta(max_length=10, description="Pods that no machine is launched for, and why.")
    ] = ()
    trials: Annotated[
        tuple[Trial, ...], Meta(max_length=256, description="Machines launched on trial.", extra=extra(map_key="shape"))
    ] = ()
    orphans: Annotated[
        tuple[Orphan, ...],
        Meta(
            max_length=MOST_ORPHANS,
            description="Machines of this cluster that no Spotpool owns, the first of them.",
            extra=extra(map_key="instanceId"),
        ),
    ] = ()
    orphan_count: Annotated[int | None, Meta(description="How many there are, if any.")] = None
