"""What is kept of devices and of claims to them (DRA, resource.k8s.io)."""

from __future__ import annotations

from msgspec import Struct

from headroom.model.facts import Amounts


class DeviceChoice(Struct, frozen=True, gc=False, kw_only=True):
    """Devices that a request may be given."""

    name: str = ""
    """Of an alternative (firstAvailable); empty where there is no other."""
    device_class: str = ""
    count: int = 1
    takes_all: bool = False
    """All devices of a node that match, however many there are."""


class DeviceRequest(Struct, frozen=True, gc=False, kw_only=True):
    """One request of a claim: devices of one choice."""

    name: str = ""
    choices: tuple[DeviceChoice, ...] = ()
    """In the order of preference."""
    is_admin: bool = False
    """For administrators, who look at devices that others have: nobody is charged for them."""


class AllocatedDevice(Struct, frozen=True, gc=False, kw_only=True):
    """A device that a claim has."""

    device_class: str = ""
    """By which it was asked for; empty if that is not known."""
    driver: str = ""
    pool: str = ""
    device: str = ""
    consumed: Amounts = ()
    """What it takes of the capacity of a device that several claims may have; empty for all of it."""


class Claim(Struct, frozen=True, gc=False, kw_only=True):
    """A ResourceClaim."""

    uid: str
    namespace: str
    name: str
    resource_version: str = ""
    created: int = 0
    requests: tuple[DeviceRequest, ...] = ()
    allocated: tuple[AllocatedDevice, ...] = ()
    """The devices that it has; those with admin access are nobody's and not among them."""
    is_allocated: bool = False
    reserved_for: tuple[str, ...] = ()
    """Uids of the pods that share it, sorted."""

    @property
    def key(self) -> str:
        """How pods name it."""
        return f"{self.namespace}/{self.name}"


class ClaimTemplate(Struct, frozen=True, gc=False, kw_only=True):
    """A ResourceClaimTemplate: each pod that names it gets a claim of its own."""

    uid: str
    namespace: str
    name: str
    resource_version: str = ""
    requests: tuple[DeviceRequest, ...] = ()

    @property
    def key(self) -> str:
        """How pods name it."""
        return f"{self.namespace}/{self.name}"


class DeviceClass(Struct, frozen=True, gc=False, kw_only=True):
    """A DeviceClass, which only administrators write."""

    name: str
    uid: str = ""
    resource_version: str = ""
    created: int = 0
    extended_resource: str = ""
    """The name under which containers may ask for its devices; empty if they ask for the class itself only."""
    selectors: tuple[str, ...] = ()
    """CEL that all of its devices fulfil."""


class Device(Struct, frozen=True, gc=False, kw_only=True):
    """A device as its driver describes it."""

    name: str
    node: str = ""
    product: str = ""
    profile: str = ""
    """Of a MIG partition, such as 1g.10gb."""
    capacity: Amounts = ()
    counters: tuple[tuple[str, Amounts], ...] = ()
    """What a partition takes of the counter sets of its slice."""


class DeviceSlice(Struct, frozen=True, gc=False, kw_only=True):
    """A ResourceSlice: devices of a pool."""

    name: str
    uid: str = ""
    resource_version: str = ""
    driver: str = ""
    pool: str = ""
    generation: int = 0
    """Of the pool; slices of an older one count no more."""
    node: str = ""
    """The one from which its devices can be used; empty for several."""
    devices: tuple[Device, ...] = ()
    counters: tuple[tuple[str, Amounts], ...] = ()
    """What there is of each counter set that partitions share."""
