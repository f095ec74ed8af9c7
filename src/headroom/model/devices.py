"""Devices as their drivers describe them: which there are on a node, and what part of a whole device each is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any, Final, NamedTuple

from headroom.model.device_facts import ClaimTemplate, Device, DeviceClass, DeviceSlice
from headroom.model.facts import Amounts

WHOLE: Final = 1_000_000_000
"""A whole device, in billionths."""
MEMORY: Final = "memory"
_PROFILE: Final = re.compile(r"([0-9]{1,2})g\.([0-9]{1,4})gb(?:[.+].*)?", re.ASCII)
_SLICES: Final = 7
"""Compute slices of most GPUs that can be partitioned: A100, H100, H200, B200."""
_FEW_SLICES: Final = 4
_WITH_FEW_SLICES: Final = re.compile(r"\bA30\b|\bRTX[ -]PRO[ -][0-9]000\b", re.ASCII | re.IGNORECASE)
_PROFILES_OF_FEW: Final = frozenset({(1, 6), (2, 12), (4, 24), (1, 24), (2, 48), (4, 96)})
"""Profiles, by slices and gigabytes, that such GPUs have. Of 1g.24gb, which others have too, the larger part is taken."""


def profile_part(profile: str, product: str = "") -> int | None:
    """The compute slices of a MIG profile as a part of its GPU, in billionths; None if it is no profile.

    Without the GPU's model, the profile's own memory tells it as far as it can.
    """
    match = _PROFILE.fullmatch(profile)
    if match is None:
        return None
    slices, memory = int(match[1]), int(match[2])
    is_few = bool(_WITH_FEW_SLICES.search(product)) if product else (slices, memory) in _PROFILES_OF_FEW
    return min(slices * WHOLE // (_FEW_SLICES if is_few else _SLICES), WHOLE)


class _Found(NamedTuple):
    """A device with what there is of the counters that it takes from."""

    device: Device
    counters: dict[str, dict[str, int]]
    node: str


class DeviceTable:
    """Device classes, claim templates and devices. Whoever changes one of the mappings calls `changed`."""

    def __init__(
        self,
        classes: Iterable[DeviceClass] = (),
        templates: Iterable[ClaimTemplate] = (),
        slices: Iterable[DeviceSlice] = (),
    ) -> None:
        self.classes: dict[str, DeviceClass] = {each.name: each for each in classes}
        self.templates: dict[str, ClaimTemplate] = {each.key: each for each in templates}
        self.slices: dict[str, DeviceSlice] = {each.name: each for each in slices}
        self.generation = 0
        self.memory: dict[Any, Any] = {}
        """What readers worked out and need not work out again until something changes."""
        self._pools: dict[tuple[str, str], list[DeviceSlice]] | None = None
        self._devices: dict[tuple[str, str], dict[str, _Found]] = {}

    def changed(self) -> None:
        """Something is new."""
        self.generation += 1
        self._pools = None
        self._devices.clear()
        self.memory.clear()

    @property
    def by_extended_resource(self) -> dict[str, DeviceClass]:
        """The class behind each extended resource. Of several classes kube-scheduler takes the newest, then the first by name."""
        if "extended" not in self.memory:
            every = sorted(self.classes.values(), key=lambda each: (each.created, [-ord(x) for x in each.name]))
            self.memory["extended"] = {each.extended_resource: each for each in every if each.extended_resource}
        found: dict[str, DeviceClass] = self.memory["extended"]
        return found

    @property
    def drivers(self) -> frozenset[str]:
        """Those that have devices."""
        return frozenset(driver for driver, _ in self._by_pool())

    def get(self, driver: str, pool: str, name: str) -> Device | None:
        """A device."""
        found = self._pool(driver, pool).get(name)
        return found.device if found else None

    def part(self, driver: str, pool: str, name: str, consumed: Amounts = ()) -> int:
        """What part of a whole device one is, in billionths, or what is `consumed` of it; a whole one if nobody knows."""
        found = self._pool(driver, pool).get(name)
        if found is None:
            return WHOLE
        part = _part(found, self._largest(driver, pool, found.device.product))
        # How much is taken of what, the claim says: of whichever it takes the largest part of, that is left for nobody else.
        if taken := _shares(consumed, dict(found.device.capacity)):
            part = min(part, int(part * max(taken.values())))
        return part

    def on_nodes(self, driver: str) -> dict[str, int]:
        """Whole devices of a driver by node, in millionths; those that several nodes can use stand under the empty name."""
        key = ("on nodes", driver)
        if key not in self.memory:
            total: dict[str, int] = {}
            for each, pool in self._by_pool():
                for node, amount in self._whole(driver, pool) if each == driver else ():
                    total[node] = total.get(node, 0) + amount
            self.memory[key] = total
        found: dict[str, int] = self.memory[key]
        return found

    def _whole(self, driver: str, pool: str) -> Iterator[tuple[str, int]]:
        """Devices of a pool by node. Partitions of one counter set are one device, and those beside their whole are none."""
        sets = set[tuple[str, str]]()
        for found in self._pool(driver, pool).values():
            if found.device.counters:
                sets |= {(found.node, name) for name, _ in found.device.counters}
                continue
            part = _part(found, self._largest(driver, pool, found.device.product))
            if part == WHOLE or profile_part(found.device.profile) is not None:
                yield found.node, part // 1000
        for node, _ in sets:
            yield node, WHOLE // 1000

    def _largest(self, driver: str, pool: str, product: str) -> int:
        """The most memory that a device of that product has in a pool."""
        if not product:
            return 0
        devices = self._pool(driver, pool).values()
        return max(dict(each.device.capacity).get(MEMORY, 0) for each in devices if each.device.product == product)

    def _by_pool(self) -> dict[tuple[str, str], list[DeviceSlice]]:
        """The slices of each pool, those of its newest generation only."""
        if self._pools is None:
            self._pools = {}
            for each in self.slices.values():
                known = self._pools.setdefault((each.driver, each.pool), [])
                if known and known[0].generation < each.generation:
                    known.clear()
                if not known or known[0].generation == each.generation:
                    known.append(each)
        return self._pools

    def _pool(self, driver: str, pool: str) -> dict[str, _Found]:
        known = self._devices.get((driver, pool))
        if known is None:
            slices = self._by_pool().get((driver, pool), [])
            counters = {name: dict(amounts) for each in slices for name, amounts in each.counters}
            known = self._devices[driver, pool] = {
                device.name: _Found(device, counters, device.node or each.node)
                for each in slices
                for device in each.devices
            }
        return known


def _part(found: _Found, largest: int) -> int:
    """By its profile, by what it takes of counters, or by its memory beside the largest device of the same product."""
    device = found.device
    by_profile = profile_part(device.profile, device.product)
    if by_profile is not None:
        return by_profile
    if device.counters:
        shares = [_share(taken, found.counters.get(name, {})) for name, taken in device.counters]
        known = [each for each in shares if each is not None]
        return int(sum(known, Fraction(0)) * WHOLE) if known else WHOLE
    memory = dict(device.capacity).get(MEMORY, 0)
    return memory * WHOLE // largest if 0 < memory < largest else WHOLE


def _share(taken: Amounts, there: dict[str, int]) -> Fraction | None:
    """What part of something is taken: of its memory, or of that of which the largest part is; None if nothing tells."""
    parts = _shares(taken, there)
    return parts.get(MEMORY, max(parts.values(), default=None))


def _shares(taken: Amounts, there: dict[str, int]) -> dict[str, Fraction]:
    return {name: Fraction(amount, there[name]) for name, amount in taken if there.get(name)}
