"""What is new of a machine, as data: `turns` makes sentences of it, once everything is decided."""

from __future__ import annotations

from enum import StrEnum, auto

from msgspec import Struct

from headroom.api.power_status import State


class TransitionReason(StrEnum):
    """Why a machine turned, or did not though it was about to."""

    FOR_PODS = auto()
    """It wakes."""
    ON_TRIAL = auto()
    FOR_FLOOR = auto()
    UNTAKEN = auto()
    """Its power is still off, so its wake is sent again,"""
    GIVEN_UP = auto()
    """or not, since others serve its pods."""
    STARTING = auto()
    """Its node is ready, but what runs on every node is not."""
    POD_CAME = auto()
    """It stays on."""
    PODS_FIT = auto()
    MUST_BE_ON = auto()
    WARM = auto()
    PROTECTED = auto()
    NOT_EMPTIED = auto()
    UNCORDONED = auto()
    CORDONED = auto()
    SLEEP_CALL_FAILED = auto()
    STILL_READY = auto()
    SHORT = auto()
    """It is on."""
    JOINED = auto()
    AFTER_ALL = auto()
    WOKEN_BY_OTHERS = auto()
    BACK_BY_OTHERS = auto()
    WENT_OFF = auto()
    """It is off."""
    NEVER_JOINED = auto()
    OFF_BY_OTHERS = auto()
    DARK = auto()
    """Nobody knows."""
    NOT_READY = auto()
    ON_NOT_READY = auto()
    SHUTTING_DOWN = auto()
    WAKE_CALL_FAILED = auto()
    """It failed."""
    NOT_READY_IN_TIME = auto()
    STILL_ON = auto()
    IDLE = auto()
    """It drains or goes to sleep."""
    PUT_BACK = auto()


class MachineTransition(Struct, frozen=True, kw_only=True):
    """A turn of a machine."""

    machine: str
    state: State
    """What it is doing now."""
    cause: TransitionReason
    at: int | None = None
    """The moment that belongs to it: since when it is idle, or when it was told."""
    count: int = 0
    """How many pods, or seconds."""
    text: str = ""
    """What somebody else said."""
