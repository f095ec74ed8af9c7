"""Those who are left, by sort: each supply sees whom it may serve, in the order of their turns, and nobody is lost on the way."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec import structs

from headroom.core.capacity import declined, round_of
from headroom.core.capacity.rounds import CapacityRound, begin
from headroom.core.demand import Unit
from headroom.core.spot_pools import SOURCE
from headroom.model.facts import Pod, Shape
from tests.builders import NOON
from tests.core.power_stage import waiting
from tests.core.spot_stage import GPU, a_spotpool, a_view, status_of

TOLERATES = '[{"key": "headroom.dev/spotpool", "operator": "Exists"}]'


def pending(dice: random.Random, number: int) -> Pod:
    shape = Shape(
        requests=(("cpu", dice.randint(1, 3) * 1_000_000), (dice.choice((GPU, "amd.com/gpu")), 1_000_000)),
        tolerations=TOLERATES,
    )
    fields: dict[str, Any] = {
        "namespace": f"team-{dice.choice('abc')}",
        "shape": shape,
        "priority": dice.choice((0, 0, 5, -20)),
    }
    return waiting(f"pod-{number}", since=NOON - dice.randint(1, 9) * 60_000, **fields)


def a_round(seed: int) -> CapacityRound:
    """Pools of three namespaces, and pods of which each pool may serve some."""
    dice = random.Random(seed)
    template = {"gpuCount": 4, "resources": {"cpu": "8"}}
    pools = [
        structs.replace(
            a_spotpool(str(number), minimum=0, maximum=dice.randint(1, 3), desired="Demand", template=template),
            namespace=f"team-{dice.choice('abc')}",
            uid=str(number),
        )
        for number in range(5)
    ]
    world = a_view(*pools, pods=[pending(dice, number) for number in range(40)], listed=NOON)
    return begin(world, list(SOURCE.supplies(world, ())))


def uids(units: list[Unit]) -> list[str]:
    return sorted(uid for unit in units for part in unit.parts for uid in part.pods)


@pytest.mark.parametrize("seed", range(20))
def test_each_supply_sees_those_that_it_does_not_decline(seed: int) -> None:
    found = a_round(seed)
    for supply in found.supplies:
        mine = found.pending.of(supply)
        assert mine == [unit for unit in found.left if not declined(found, supply, unit)]
        assert mine == sorted(mine, key=lambda unit: unit.queue_position)
        assert found.pending.has(supply) == bool(mine)


@pytest.mark.parametrize("seed", range(20))
def test_who_is_not_served_is_left(seed: int) -> None:
    found, dice = a_round(seed), random.Random(seed)
    for supply in found.supplies:
        before, mine = uids(found.left), found.pending.of(supply)
        rest = [unit.without(1) if unit.count > 1 else unit for unit in mine if dice.random() < 0.5]
        found.pending.serve(supply, rest)
        served = {*uids(mine)} - {*uids(rest)}
        assert uids(found.left) == [uid for uid in before if uid not in served]
        assert found.pending.pods == len(before) - len(served)
        assert found.left == sorted(found.left, key=lambda unit: unit.queue_position)


def test_pods_of_another_namespace_or_of_other_gpus_are_nothing_to_a_pool() -> None:
    found = round_of(a_round(1).world, [SOURCE])
    for supply in found.supplies:
        spaces = {each.pod.partition("/")[0] for each in status_of(found.decisions[supply.ref]).unserved}
        assert spaces <= {supply.ref.namespace}
