"""What Headroom writes of a PowerPool: its machines' states, what it waits for, and the energy they took and saved."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from headroom.api.resources import ApiType, Status
from headroom.api.schema import extra

State = Literal["Off", "Booting", "On", "Draining", "Sleeping", "Unknown", "Failed"]
STATES: Final[tuple[State, ...]] = ("Off", "Booting", "On", "Draining", "Sleeping", "Unknown", "Failed")


Cause = Literal["", "Cordoning", "Kept", "NeverJoined", "StillOn"]
MOST_SHAPES: Final = 64
MOST_NAMESPACES: Final = 64
MOST_EXPECTED: Final = 64
MOST_PEAKS: Final = 64


class Assigned(ApiType, frozen=True, kw_only=True):
    """Pods for which a machine was woken or kept on."""

    shape: Annotated[str, Meta(description="A digest of what the pods have in common.")]
    pods: Annotated[int, Meta(ge=1, description="How many.")] = 1


class MachineStatus(ApiType, frozen=True, kw_only=True):
    """What one machine is doing, and what must be remembered of it."""

    name: Annotated[str, Meta(description="The machine's name.")]
    state: Annotated[State, Meta(description="What the machine is doing.")] = "Unknown"
    since: Annotated[str, Meta(description="Since when.")] = ""
    reason: Annotated[str, Meta(max_length=1024, description="Why, where the state alone does not say it.")] = ""
    cause: Annotated[Cause, Meta(description="The reason, as one word.")] = ""
    idle_since: Annotated[str, Meta(description="Since when no pod keeps it on; empty while one does.")] = ""
    busy: Annotated[bool | None, Meta(description="True while a pod keeps it on.")] = None
    woken_at: Annotated[str, Meta(description="When its last wake command was sent.")] = ""
    tried_for: Annotated[
        tuple[str, ...],
        Meta(max_length=MOST_SHAPES, description="Digests of the pods for which it then woke on trial."),
    ] = ()
    woken_for: Annotated[
        tuple[str, ...],
        Meta(max_length=MOST_NAMESPACES, description="Namespaces of the pods it woke for, until one was bound to it."),
    ] = ()
    kept_for: Annotated[
        tuple[str, ...],
        Meta(
            max_length=MOST_NAMESPACES,
            description="Namespaces of unschedulable pods for which it stayed on although idle, until one was bound to it.",
        ),
    ] = ()
    kept_since: Annotated[str, Meta(description="Since when; empty if it did not.")] = ""
    resent_at: Annotated[
        str,
        Meta(
            description="When the wake command was last repeated because its power was still off; empty if it was not."
        ),
    ] = ""
    slept_at: Annotated[str, Meta(description="When its last sleep command was sent.")] = ""
    drained_at: Annotated[str, Meta(description="When it last began to drain.")] = ""
    failures: Annotated[int, Meta(description="How many commands in a row failed.")] = 0
    retry_after: Annotated[str, Meta(description="No command is sent before this.")] = ""
    toggles: Annotated[tuple[str, ...], Meta(max_length=240, description="When it was switched in the last hour.")] = ()
    assigned: Annotated[
        tuple[Assigned, ...],
        Meta(
            max_length=MOST_SHAPES,
            description="The pods for which it boots or stays on.",
            extra=extra(map_key="shape"),
        ),
    ] = ()


class Energy(ApiType, frozen=True, kw_only=True):
    """Energy by the watts that the machines are said to draw."""

    used_kwh: Annotated[str, Meta(description="Energy that the machines used, in kWh.")] = "0"
    saved_kwh: Annotated[str, Meta(description="Energy that sleeping machines would have used idle, in kWh.")] = "0"
    as_of: Annotated[str, Meta(description="Up to when it is counted.")] = ""


class Unserved(ApiType, frozen=True, kw_only=True):
    """Pods that this pool cannot serve."""

    pod: Annotated[str, Meta(description="One of them, namespace/name.")]
    pods: Annotated[int, Meta(description="How many there are.")] = 1
    reason: Annotated[str, Meta(max_length=128, description="Why, as one word.")] = ""
    message: Annotated[str, Meta(max_length=2048, description="Why, as a sentence.")] = ""


class TrialStatus(ApiType, frozen=True, kw_only=True):
    """One machine that was woken for pods whose needs Headroom does not understand wholly."""

    shape: Annotated[str, Meta(description="A digest of what the pods have in common.")]
    machine: Annotated[str, Meta(description="The machine.")]
    at: Annotated[str, Meta(description="When it was woken.")]
    in_vain: Annotated[
        int,
        Meta(ge=0, description="How many trials did not help such pods; the pause grows with each."),
    ] = 0
    refused_at: Annotated[str, Meta(description="When such pods were last seen unschedulable beside a machine.")] = ""
    until: Annotated[str, Meta(description="No other machine is tried for them before this.")] = ""
    placed: Annotated[
        bool | None, Meta(description="Other such pods were placed since: this concerns only those that were not.")
    ] = None


class Breaker(ApiType, frozen=True, kw_only=True):
    """Boots in a row that brought no node."""

    failed: Annotated[int, Meta(ge=0, description="How many.")] = 0
    until: Annotated[str, Meta(description="No machine wakes before this; then one at a time until one joins.")] = ""


class Fruitless(ApiType, frozen=True, kw_only=True):
    """Machines that were woken for pods of a namespace and went to sleep again without any pod."""

    namespace: Annotated[str, Meta(description="The namespace.")]
    at: Annotated[tuple[str, ...], Meta(max_length=32, description="When they went, in the last day.")] = ()


class Expected(ApiType, frozen=True, kw_only=True):
    """Pods that are not there yet, and for which a machine was woken or kept on."""

    of: Annotated[str, Meta(description="The owner that announced them, Kind/namespace/name.")]
    uid: Annotated[str, Meta(description="Its uid.")] = ""
    due_at: Annotated[str, Meta(description="When they were to start.")]
    woken: Annotated[bool, Meta(description="Whether a machine woke for them, and did not just stay on.")] = False


class Peak(ApiType, frozen=True, kw_only=True):
    """More machines in use than now."""

    machines: Annotated[int, Meta(ge=1, description="How many were in use.")]
    until: Annotated[str, Meta(description="Until when.")]


class PowerPoolStatus(Status, frozen=True, kw_only=True):
    """The machines' states."""

    machines: Annotated[
        tuple[MachineStatus, ...], Meta(description="What each machine is doing.", extra=extra(map_key="name"))
    ] = ()
    on: Annotated[int | None, Meta(description="Machines that are on.")] = None
    off: Annotated[int | None, Meta(description="Machines that are off.")] = None
    changing: Annotated[int | None, Meta(description="Machines that boot, drain or go to sleep.")] = None
    failed: Annotated[int | None, Meta(description="Machines that failed.")] = None
    energy: Annotated[Energy | None, Meta(description="Energy used and saved, where watts are configured.")] = None
    unserved: Annotated[tuple[Unserved, ...], Meta(max_length=10, description="Unserved pods, with the reason.")] = ()
    trials: Annotated[
        tuple[TrialStatus, ...],
        Meta(max_length=256, description="Machines woken on trial.", extra=extra(map_key="shape")),
    ] = ()
    in_use: Annotated[int | None, Meta(description="Machines that pods keep on.")] = None
    peaks: Annotated[
        tuple[Peak, ...],
        Meta(max_length=MOST_PEAKS, description="Recent peaks of machines in use; as many stay on."),
    ] = ()
    breaker: Annotated[Breaker | None, Meta(description="Consecutive boots without a ready node, if any.")] = None
    fruitless: Annotated[
        tuple[Fruitless, ...],
        Meta(
            max_length=MOST_NAMESPACES,
            description="Wakes for pods that never ran, by namespace; they are limited.",
            extra=extra(map_key="namespace"),
        ),
    ] = ()
    expected: Annotated[
        tuple[Expected, ...],
        Meta(
            max_length=MOST_EXPECTED,
            description="Announced pods for which a machine woke or stayed on, until they exist.",
            extra=extra(map_key="of"),
        ),
    ] = ()
    moving: ClassVar[frozenset[str]] = frozenset({"energy"})
