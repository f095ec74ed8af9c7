"""Whether a pod of a shape fits into a room, and if not, why."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from headroom.core import usage
from headroom.core.demand.constraints import constraints_of, refusal
from headroom.core.demand.units import Room
from headroom.model.facts import Shape

WHOLE: Final = 1_000_000
PODS: Final = "pods"
ORDINARY: Final = ("cpu", "ephemeral-storage", "memory", PODS)
"""What every machine has. Of one that is partly known they are no limit unless they are named; all else is not there."""
_WHERE_NAMED: Final = "(resources of the machine, or of the template)"
_BYTES: Final = ("memory", "ephemeral-storage", "hugepages-")
_SIZES: Final = (("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))


def why_not(shape: Shape, room: Room) -> str:
    """Why a pod of this shape does not fit into this room, as a clause; empty if it does."""
    wishes = constraints_of(shape)
    return wishes.problem or refusal(wishes, room) or shortage(shape, room)


def shortage(shape: Shape, room: Room) -> str:
    """What the room has too little of, as a clause; empty if there is enough of everything. Devices are named first."""
    free = dict(room.free)
    for name, amount in sorted(shape.requests, key=lambda each: ("/" not in each[0], each[0])):
        if name not in free and room.partly_known:
            if amount and name not in ORDINARY:
                return f"it needs {told(name, amount)} {name} and none is configured there {_WHERE_NAMED}"
            continue
        there = free.get(name, 0)
        if amount > there:
            return f"it needs {told(name, amount)} {name} and {_told_there(name, there)} there"
    return "the node has no pod slots left" if free.get(PODS, WHOLE) < WHOLE else ""


@lru_cache(maxsize=1024)
def is_gpu(name: str) -> bool:
    """Whether a resource is a GPU or the like."""
    return usage.gpus_in(((name, WHOLE),)) > 0


def told(name: str, amount: int) -> str:
    """An amount as people write it: 8, 0.5, 64Gi. What is not whole is shown with three digits behind the point."""
    whole, unit = WHOLE, ""
    if name.startswith(_BYTES):
        unit, size = next(((unit, size) for unit, size in _SIZES if amount >= size * WHOLE), ("", 1))
        whole *= size
    thousandths = amount * 1000 // whole
    digits = f"{thousandths // 1000}.{thousandths % 1000:03d}".rstrip("0").rstrip(".")
    return f"{digits}{unit}"


def _told_there(name: str, amount: int) -> str:
    if amount <= 0:
        return "none is"
    return f"{told(name, amount)} {'is' if amount == WHOLE else 'are'}"
