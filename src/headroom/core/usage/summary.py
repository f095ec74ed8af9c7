"""Usage of the whole fleet, for metrics and pages: every budget's sums, and what no budget covers."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from headroom.api.kinds import AnyResource
from headroom.core.usage import coverage, devices, observing, prices
from headroom.core.usage.reckoning import BudgetUsage, Reckoning, quota_of
from headroom.core.usage.windows import WindowSpan, overlaps
from headroom.model.facts import Amounts, Node, Pod
from headroom.model.times import HOUR
from headroom.model.world import World

MOST: Final = 2**53
"""Millionths of GPUs beyond which an amount is a slip of the pen, which no machine ever had."""


class Uncovered(NamedTuple):
    """What GPU pods of this cluster used that no budget counts."""

    gpu_ms: int
    """Millionths x milliseconds inside the window."""
    burn: int
    """The burn rate at `World.now`, in millionths of a GPU."""


def gpus_in(amounts: Amounts) -> int:
    """Millionths of a GPU in some amounts, each resource with its usual weight; none where that is beyond all reason."""
    found = prices.gpus(amounts)
    return found if found < MOST else 0


def gpus_on(world: World, node: Node) -> int:
    """Millionths of a GPU that a node has, devices of its drivers included; none where that is beyond all reason."""
    found = prices.gpus_on(node, world.devices)
    return found if found < MOST else 0


def gpus_of(world: World, pod: Pod) -> int:
    """Millionths of a GPU that a pod asks for, devices of its claims included."""
    return gpus_in(observing.amounts_of(pod, devices.view_of(world)))


def reckonings(world: World) -> list[tuple[AnyResource, Reckoning]]:
    """The sums of every valid budget, by name; none while history is missing."""
    budgets = [each for each in coverage.budgets_of(world) if coverage.is_read(world, each)]
    if not world.ledger.loaded:
        return []
    coverage.arrange(world)
    return [(each, _reckoned(world, each)) for each in budgets]


def _reckoned(world: World, budget: AnyResource) -> Reckoning:
    rows = BudgetUsage(world, coverage.scope_of(world, budget), budget.spec.quota.window_hours * HOUR)
    return rows.summarize(quota_of(budget.spec))


def uncovered(world: World, window_hours: int = 24) -> Uncovered:
    """GPU time of pods that no budget counts, each resource with its usual weight."""
    table, budgets = world.usage, coverage.budgets_of(world)
    coverage.arrange(world)
    found = [coverage.counted(table, coverage.scope_of(world, each)) for each in budgets]
    covered = {number for each in found for number in (*each.rates, *each.possible)}
    rates = {
        number: prices.gpus(group.terms.amounts)
        for number, group in enumerate(table.groups)
        if number not in covered and group.terms.cluster == world.cluster
    }
    rows = table.rows_of(number for number, rate in rates.items() if 0 < rate < MOST)
    start, end = table.column("start")[rows], table.column("low_end")[rows]
    group = table.column("group")[rows]
    held = overlaps(start, end, WindowSpan(world.as_of, window_hours * HOUR))
    runs = (start <= world.now) & (end > world.now)
    used = burn = 0
    for number in np.unique(group):
        mask = group == number
        used += int(held[mask].sum()) * rates[int(number)]
        burn += int(np.count_nonzero(mask & runs)) * rates[int(number)]
    return Uncovered(used, burn)
