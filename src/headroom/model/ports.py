"""The few calls that the loop needs from outside. Real adapters and the simulator both provide them."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from headroom.api.kinds import AnyResource
from headroom.api.resources import Status
from headroom.model.actions import Action
from headroom.model.world import Changes, World


class Clock(Protocol):
    """The time, and waiting. The simulator's runs as fast as it can."""

    def now(self) -> int:
        """Milliseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump, for measuring how long something took."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class Port(Protocol):
    """A cluster as the loop sees it."""

    def world(self, now: int) -> World:
        """The view at this instant; good until the next `await`."""
        ...

    def subscribe(self, plan: str, parts: frozenset[str]) -> None:
        """Keep note of changes for a plan: of resources of the named kinds, and of pods, unbound, nodes or outside."""
        ...

    def take_changes(self, plan: str) -> Changes:
        """What is new since this plan last asked."""
        ...

    async def changed(self) -> None:
        """Returns once something is new that no plan has been told of."""
        ...

    async def write_status(self, resource: AnyResource, status: Status) -> None:
        """Write a resource's status, if the resource is still the one that was decided on."""
        ...

    async def perform(self, action: Action, resource: AnyResource) -> None:
        """Carry out one action that a decision on `resource` asked for; returns only when it is done."""
        ...


class Lease(Struct, frozen=True, kw_only=True):
    """Who leads, as it stands in the cluster."""

    holder: str
    duration_seconds: int
    renewals: str
    """Changes with every renewal; its clock is the writer's, so it is compared, never subtracted."""
    transitions: int
    version: str
    """The resource version; a write on top of another version is refused."""


class LeaseTaken(Exception):
    """Somebody else wrote the lease first."""


class Leases(Protocol):
    """One Lease object."""

    async def read(self) -> Lease | None:
        """The lease, None if there is none yet."""
        ...

    async def write(self, holder: str, duration_seconds: int, before: Lease | None) -> Lease:
        """Take, renew or (with an empty holder) release the lease. Raises `LeaseTaken` if it is no longer `before`."""
        ...
