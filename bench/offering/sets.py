"""The sets of offers that rules are compared on, as a recorded history of AWS has them: five to choose and report on, and others nobody chose on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from msgspec import structs

from headroom.api import kinds
from headroom.api.offers import LeftoverNodePoolSpec
from headroom.model import times
from headroom.sim.backtest.history import MICRO, PriceChanges, TracedMachineType, machine_types, prices
from headroom.sim.backtest.rules import AlwaysCheapest, Paid, play
from headroom.sim.backtest.timeline import Catalogue, Timeline, catalogue, timeline

HISTORY: Final = "aws-spot-history"
THREE: Final = ("us-east-1", "us-east-2", "us-west-2")
_FIRST: Final = times.moment("2022-12-02") or 0
TURN: Final = times.moment("2025-01-01") or 0
"""Settings are chosen on what was before, and reported on what came from then on."""
LONGER: Final = times.moment("2024-01-01") or 0
"""A second report begins here: the calmest sets have too few switches in the later span alone to tell a rule from a lucky one."""


class Offered(NamedTuple):
    """Machine families in some regions, all sizes or those with so many GPUs."""

    name: str
    families: tuple[str, ...]
    regions: tuple[str, ...]
    gpus: int = 0

    @property
    def spec(self) -> LeftoverNodePoolSpec:
        """The pool that asks for it."""
        given = {"region": self.regions[0], "families": list(self.families), "nodeClassName": "gpu"}
        found = kinds.spec_of("LeftoverNodePool", given)
        assert isinstance(found, LeftoverNodePoolSpec)
        return found

    def known(self, types: Mapping[str, TracedMachineType]) -> Catalogue:
        """What the pool takes of the machine types."""
        sized = {name: each for name, each in types.items() if self.gpus in (0, each.gpus // MICRO)}
        return catalogue(sized, self.spec, self.regions)


FIVE: Final = (
    Offered("g4dn and g5, us-east-1", ("g4dn", "g5"), THREE[:1]),
    Offered("g4dn, g5 and g6, three regions", ("g4dn", "g5", "g6"), THREE),
    Offered("4-GPU machines, us-east-1", ("g4dn", "g5", "g6"), THREE[:1], gpus=4),
    Offered("A100 (p4d, p4de), three regions", ("p4d", "p4de"), THREE),
    Offered("H100 (p5), three regions", ("p5",), THREE),
)
OTHERS: Final = (
    Offered("L40S (g6e), three regions", ("g6e",), THREE),
    Offered("L4 (g6, gr6), us-west-2", ("g6", "gr6"), ("us-west-2",)),
    Offered("V100 (p3, p3dn), three regions", ("p3", "p3dn"), THREE),
    Offered("8-GPU machines, us-east-2", ("g4dn", "g5", "g6", "g6e"), ("us-east-2",), gpus=8),
)
"""Nobody looked at these while the form or the settings were chosen."""


def read(folder: Path, sets: Sequence[Offered]) -> dict[str, Timeline]:
    """The market of each set over all of the history, as the production code judges it."""
    files = folder / HISTORY
    types, _ = machine_types(files / "aws_gpu_types.csv")
    known = {each.name: each.known(types) for each in sets}
    every = prices(
        next(files.glob("train_*.csv.gz")), lambda kind, zone: any(each.has(kind, zone) for each in known.values())
    )
    return {each.name: timeline(each.spec, known[each.name], _of(known[each.name], every), None) for each in sets}


def _of(known: Catalogue, every: PriceChanges) -> PriceChanges:
    """The prices of one set."""
    taken = np.array([known.has(*key) for key in every.keys])
    rows = taken[every.what]
    numbers = np.cumsum(taken) - 1
    return structs.replace(
        every,
        keys=tuple(key for key, is_taken in zip(every.keys, taken, strict=True) if is_taken),
        at=every.at[rows],
        what=numbers[every.what[rows]],
        price=every.price[rows],
    )


def early(line: Timeline) -> Timeline:
    """What settings are chosen on."""
    return line.part(_FIRST, TURN)


def late(line: Timeline) -> Timeline:
    """What is reported."""
    return line.part(max(TURN, int(line.at[0])), int(line.at[-1]))


def longer(line: Timeline) -> Timeline:
    """What is reported besides; a part of it was used for the choice."""
    return line.part(max(LONGER, int(line.at[0])), int(line.at[-1]))


def cheapest(lines: Mapping[str, Timeline]) -> dict[str, Paid]:
    """What always taking the cheapest offer comes to."""
    return {name: play(line, AlwaysCheapest(line)) for name, line in lines.items()}
