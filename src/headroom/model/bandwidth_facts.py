"""What is known of bandwidth beside pods and nodes."""

from __future__ import annotations

from msgspec import Struct

from headroom.api.bandwidth_config import BandwidthConfigSpec
from headroom.model.facts import Amounts, Requirement


class KnownBandwidthConfig(Struct, frozen=True, kw_only=True):
    """A BandwidthConfig: what the API server's policies know of our settings."""

    name: str
    uid: str = ""
    resource_version: str = ""
    spec: BandwidthConfigSpec | None = None
    """What it says; None if that cannot be read."""


class NodeOverlay(Struct, frozen=True, kw_only=True):
    """A Karpenter NodeOverlay: what Karpenter believes of machine types beside what their cloud says."""

    name: str
    uid: str = ""
    resource_version: str = ""
    requirements: tuple[Requirement, ...] = ()
    """Of which machines."""
    capacity: Amounts = ()
    """Resources that they have."""
    weight: int = 0
    """Of those that tell of the same resource, the one with more counts."""
    ours: bool = False
    """Headroom made it."""
    judged: bool = False
    """Karpenter has looked at it. Where its feature gate is off, it never does."""
    ready: bool = False
    """It counts."""
