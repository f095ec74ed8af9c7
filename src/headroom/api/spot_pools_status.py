"""What Headroom writes of a Spotpool: its slots with their intents and machines, what was bought, and what is put to rest."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from headroom.api.power_status import MOST_SHAPES, Assigned, Breaker, Expected, TrialStatus, Unserved
from headroom.api.resources import ApiType, Status
from headroom.api.schema import extra

SlotState = Literal["Launching", "Cancelling", "Running", "Draining", "Ending"]
SLOT_STATES: Final[tuple[SlotState, ...]] = ("Launching", "Cancelling", "Running", "Draining", "Ending")
SlotCause = Literal[
    "", "Surplus", "Idle", "Reclaimed", "NeverJoined", "Failed", "Deleted", "Paused", "Refused", "Unanswered"
]
Claim = Literal["Slot", "Left", "Orphan"]
"""Why a machine may be ended: a slot means to; it stopped, and its slot is free already; or no Spotpool owns it."""
MOST_ORPHANS: Final = 20
MOST_EXPECTED: Final = 64
MOST_NAMESPACES: Final = 64


class Slot(ApiType, frozen=True, kw_only=True):
    """A machine of the pool, or the intent to launch one."""

    slot: Annotated[int, Meta(ge=0, description="Its number.")]
    state: Annotated[
        SlotState,
        Meta(
            description="Launching: its launch is in progress. Cancelling: it is no longer needed, but may have been launched. Running: its "
            "machine exists. Draining: pods leave it. Ending: it is being ended."
        ),
    ]
    since: Annotated[str, Meta(description="Since when.")] = ""
    token: Annotated[str, Meta(description="The idempotency token: calls with the same token launch one machine.")] = ""
    instance_type: Annotated[str, Meta(description="The machine type.")] = ""
    zone: Annotated[str, Meta(description="The zone.")] = ""
    launched_at: Annotated[str, Meta(description="When the launch was decided.")] = ""
    instance_id: Annotated[str, Meta(description="The cloud's id of the machine, once it is known.")] = ""
    node: Annotated[str, Meta(description="Its node, once there is one.")] = ""
    seen_at: Annotated[str, Meta(description="When its machine was first seen.")] = ""
    joined_at: Annotated[str, Meta(description="When its node was first ready.")] = ""
    idle_since: Annotated[str, Meta(description="Since when no pod needs it; empty while one does.")] = ""
    not_found_since: Annotated[
        str, Meta(description="Since when the cloud does not know its id; empty if it does.")
    ] = ""
    reclaim_at: Annotated[str, Meta(description="When the cloud reclaims it, if it gave notice.")] = ""
    price_per_hour: Annotated[str, Meta(description="Dollars an hour that it costs, if known.")] = ""
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
    zone: Annotated[
        str, Meta(description="The zone; * for the whole region, where the quota of the cloud is full.")
    ] = ""
    failures: Annotated[int, Meta(ge=0, description="How many failures in a row.")] = 0
    until: Annotated[str, Meta(description="It is not tried again before this.")] = ""
    reason: Annotated[str, Meta(description="SoldOut, PriceTooLow or QuotaReached.")] = ""


class MissedRuns(ApiType, frozen=True, kw_only=True):
    """Announced runs of a namespace whose pods never came, though a machine was launched or kept for them."""

    namespace: Annotated[str, Meta(description="The namespace.")]
    at: Annotated[tuple[str, ...], Meta(max_length=32, description="When that showed, in the last day.")] = ()


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
    account: Annotated[str, Meta(description="The cloud account of the slots, where the cloud has accounts.")] = ""
    slots: Annotated[
        tuple[Slot, ...], Meta(description="Machines and launches in progress.", extra=extra(map_key="slot"))
    ] = ()
    purchases: Annotated[
        tuple[Purchases, ...],
        Meta(max_length=64, description="Machines bought in the last hour.", extra=extra(map_key="minute")),
    ] = ()
    sold_out: Annotated[
        tuple[SoldOut, ...], Meta(max_length=300, description="Types and zones that are not tried for now.")
    ] = ()
    breaker: Annotated[Breaker | None, Meta(description="Consecutive machines that never joined, if any.")] = None
    unserved: Annotated[tuple[Unserved, ...], Meta(max_length=10, description="Unserved pods, with the reason.")] = ()
    expected: Annotated[
        tuple[Expected, ...],
        Meta(
            max_length=MOST_EXPECTED,
            description="Announced runs that a machine was launched or kept for, until their pods come.",
            extra=extra(map_key="of"),
        ),
    ] = ()
    missed: Annotated[
        tuple[MissedRuns, ...],
        Meta(
            max_length=MOST_NAMESPACES,
            description="Announced runs whose pods never came, by namespace.",
            extra=extra(map_key="namespace"),
        ),
    ] = ()
    trials: Annotated[
        tuple[TrialStatus, ...],
        Meta(max_length=256, description="Machines launched on trial.", extra=extra(map_key="shape")),
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

    def claim_on(self, instance: str) -> Claim:
        """Why the pool ends a machine."""
        if any(each.instance_id == instance for each in self.slots):
            return "Slot"
        return "Orphan" if any(each.instance_id == instance for each in self.orphans) else "Left"
