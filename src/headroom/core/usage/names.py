"""What an amount is of: a resource, and what else decides how much of it a budget counts.

In a row that is one text. It is the plain name of a resource, or that name, a space and the rest as JSON: other names of the same
devices, what part of a whole GPU one is, and with which pods they are shared.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec
from msgspec import Struct

from headroom.api.policies.cel import IMPLICIT
from headroom.model.facts import Pairs

DRIVERS: Final = {
    "gpu.nvidia.com": "nvidia.com/gpu",
    "gpu.amd.com": "amd.com/gpu",
    "gpu.intel.com": "gpu.intel.com/xe",
    "gaudi.intel.com": "habana.ai/gaudi",
    "tpu.google.com": "google.com/tpu",
    "neuron.aws.com": "aws.amazon.com/neuron",
}
"""Drivers whose devices are the GPUs of a well-known resource; each has a device class of the same name."""
CLASSES: Final = DRIVERS | {"mig.nvidia.com": "nvidia.com/gpu", "vfio.gpu.nvidia.com": "nvidia.com/gpu"}
"""Device classes whose devices are such GPUs, or parts of them."""
OTHER: Final = "*"
"""Stands for all values of a label that no budget tells apart; no label has it."""


class Sharers(Struct, frozen=True, omit_defaults=True):
    """Pods that share a claim and that no budget tells apart."""

    count: int
    labels: Pairs = ()


class CountedResource(Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What an amount is of."""

    name: str = ""
    aliases: tuple[str, ...] = ()
    """Other names by which a budget may count the same devices: their class, their MIG profile, an extended resource."""
    part: int = 0
    """Billionths of a whole GPU that one unit is; 0 for the usual weight of the resource."""
    sharers: tuple[Sharers, ...] = ()
    """All pods that hold it together, this one and those like it first; empty for a pod that shares it with nobody."""
    keys: tuple[str, ...] = ()
    """The labels by which sharers are told apart."""
    is_first: bool = False
    """What is left over when it is divided is this pod's."""

    @property
    def shared_by(self) -> int:
        """How many pods hold it together."""
        return sum(each.count for each in self.sharers) or 1

    @property
    def names(self) -> tuple[str, ...]:
        """Every name by which a budget may count it."""
        return _names(self.name, self.aliases)


@lru_cache(maxsize=4096)
def _names(name: str, aliases: tuple[str, ...]) -> tuple[str, ...]:
    usual = tuple(each for each, resource in CLASSES.items() if resource == name)
    classes = (*usual, *(each for each in aliases if "/" not in each))
    return (name, *aliases, *usual, *(IMPLICIT + each for each in classes))


@lru_cache(maxsize=16384)
def parsed(text: str) -> CountedResource:
    """What a name in a row means."""
    name, _, rest = text.partition(" ")
    if not rest:
        return CountedResource(name=name)
    try:
        return msgspec.structs.replace(msgspec.json.decode(rest, type=CountedResource), name=name)
    except msgspec.DecodeError:
        return CountedResource(name=text)  # of another version, or no name of ours


def text_of(resource: CountedResource) -> str:
    """The name under which a row keeps it."""
    rest = msgspec.json.encode(msgspec.structs.replace(resource, name="")).decode()
    return resource.name if rest == "{}" else f"{resource.name} {rest}"
