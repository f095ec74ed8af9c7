"""The GPU machine types of AWS as it describes them, and which of them are alike enough to be asked about together."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from msgspec import Struct

ARCHITECTURES: Final = {"x86_64": "amd64", "arm64": "arm64"}
MILLION: Final = 1_000_000
MOST_GPUS: Final = 1024
"""In one machine; more is a mistake of whoever says so."""


class MachineType(Struct, frozen=True, kw_only=True):
    """A machine type with GPUs."""

    name: str
    arch: str
    vendor: str
    model: str
    """Of its GPUs, such as A10G."""
    gpus: int
    """Millionths of a GPU."""
    gpu_memory: int = 0
    """Of all its GPUs, in MiB."""
    network_mbps: int = 0
    is_spot: bool = True
    """It is sold as spot."""
    is_on_demand: bool = True

    @property
    def family(self) -> str:
        """The whole word before the dot: `g5` is not `g5g`."""
        return self.name.partition(".")[0]

    @property
    def group(self) -> str:
        """The same for types that can stand in for one another: of one architecture, with GPUs of one model, parts of them apart."""
        part = "/part" if self.gpus % MILLION else ""
        return f"{self.arch}/{self.vendor}/{self.model}{part}"


def machine_type(found: Mapping[str, Any]) -> MachineType | None:
    """The type that a description speaks of; None if it has no GPU, or cannot be read."""
    try:
        return _read(found)
    except (AttributeError, TypeError, ValueError, InvalidOperation, ArithmeticError):
        return None


def _read(found: Mapping[str, Any]) -> MachineType | None:
    gpus: list[Any] = (found.get("GpuInfo") or {}).get("Gpus") or []
    name, uses = found.get("InstanceType"), found.get("SupportedUsageClasses") or ()
    arch = next((ARCHITECTURES[each] for each in _architectures(found) if each in ARCHITECTURES), "")
    millionths = sum(_millionths(each) for each in gpus)
    if not isinstance(name, str) or "." not in name or not arch or not 0 < millionths <= MOST_GPUS * MILLION:
        return None
    memory = (found.get("GpuInfo") or {}).get("TotalGpuMemoryInMiB")
    cards = (found.get("NetworkInfo") or {}).get("NetworkCards") or ()
    gbps = sum(Decimal(str(each.get("BaselineBandwidthInGbps") or 0)) for each in cards)
    return MachineType(
        name=sys.intern(name),
        arch=sys.intern(arch),
        vendor=sys.intern(str(gpus[0].get("Manufacturer") or "").lower()),
        model=sys.intern(str(gpus[0].get("Name") or "")),
        gpus=millionths,
        gpu_memory=int(memory) if memory else sum(_memory(each) for each in gpus),
        network_mbps=int(gbps * 1000),
        is_spot="spot" in uses,
        is_on_demand="on-demand" in uses,
    )


def _architectures(found: Mapping[str, Any]) -> Iterable[str]:
    every = (found.get("ProcessorInfo") or {}).get("SupportedArchitectures") or ()
    return sorted(every, reverse=True)  # i386 beside x86_64 is no other machine


def _millionths(gpu: Mapping[str, Any]) -> int:
    """Of a type with a part of a GPU the count is 0: so many logical ones, each of such a part."""
    if count := int(gpu.get("Count") or 0):
        return count * MILLION
    part = Decimal(str(gpu.get("GpuPartitionSize") or 0))
    return int(part * MILLION) * int(gpu.get("LogicalGpuCount") or 0)


def _memory(gpu: Mapping[str, Any]) -> int:
    size = int((gpu.get("MemoryInfo") or {}).get("SizeInMiB") or 0)
    return size * max(1, int(gpu.get("Count") or 0))


def groups(types: Iterable[MachineType]) -> dict[str, tuple[str, ...]]:
    """The types that are sold as spot, by group."""
    found: dict[str, list[str]] = {}
    for each in types:
        if each.is_spot:
            found.setdefault(each.group, []).append(each.name)
    return {group: tuple(sorted(names)) for group, names in sorted(found.items())}
