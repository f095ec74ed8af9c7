"""Whether Karpenter would bring nodes for the same pods: then opening rooms for them as well would be paid for twice."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from headroom.api.marks import LEFTOVER
from headroom.core.demand.constraints import (
    HOSTNAME,
    REPELS,
    Expression,
    PlacementConstraints,
    constraints_of,
    is_met,
    is_tolerated,
    number,
)
from headroom.core.demand.waiting import USUAL_GPUS
from headroom.model.facts import Amounts, NodePool, Shape
from headroom.model.sight import NODE_OVERLAYS, sees
from headroom.model.world import World

_NODE_POOL: Final = "karpenter.sh/nodepool"
_AWS: Final = "karpenter.k8s.aws/"
_GPU_COUNT: Final = f"{_AWS}instance-gpu-count"
_GPU_NAME: Final = f"{_AWS}instance-gpu-name"
_CATEGORY: Final = f"{_AWS}instance-category"
_FAMILY: Final = f"{_AWS}instance-family"
_TYPE: Final = "node.kubernetes.io/instance-type"
_AWS_MACHINE: Final = {
    _FAMILY: re.compile(r"([a-z]+)[0-9]+[a-z0-9-]*", re.ASCII),
    _TYPE: re.compile(r"([a-z]+)[0-9]+[a-z0-9-]*\..+", re.ASCII),
}
_GPU_LETTERS: Final = ("g", "p", "gr")
_ORDERED: Final = ("Gt", "Gte", "Lt", "Lte")
_KNOWN_TO_KARPENTER: Final = ("kubernetes", "k8s", "karpenter")
"""Labels of domains with these words may get any value, unless the pool says which; all others only if it says so."""
_ANY_NODE: Final = ("cpu", "memory", "nodes")
_WHOLE: Final = 1_000_000


def served_by_karpenter(world: World, shape: Shape, gpus: Collection[str] = (), needed: Amounts = ()) -> str:
    """The first NodePool by name from which Karpenter could bring nodes for such pods; empty for none.

    What cannot be judged could: a wait is cheaper than machines that nobody needs. Resources that are `needed` no cloud says of its
    machines, and Karpenter compares every one: only a NodeOverlay that counts makes it bring any.
    """
    wishes = constraints_of(shape)
    if wishes.problem:
        return ""
    named = {*USUAL_GPUS, *gpus}
    asked = {name: amount for name, amount in shape.requests if name in named and amount > 0}
    pools = (pool for _, pool in sorted(world.node_pools.items()))
    serving = (pool.name for pool in pools if _serves(pool, shape, wishes, asked))
    return next((name for name in serving if _believes(world, world.node_pools[name], needed)), "")


def served_words(world: World, name: str) -> str:
    """That a NodePool can serve a pod, as a clause. Of a ladder any NodePool may be the one, so its owner is named."""
    pool = world.node_pools.get(name)
    owner = dict(pool.marks).get(LEFTOVER, "") if pool is not None else ""
    if owner:
        return f"Karpenter can serve it with a NodePool of LeftoverNodePool {owner}"
    return f"Karpenter's NodePool {name} can serve it"


def _believes(world: World, pool: NodePool, needed: Amounts) -> bool:
    """Whether NodeOverlays tell of so much of these resources on a pool's machines."""
    if not needed or not sees(world, NODE_OVERLAYS):
        return True
    offered = [*_offered(pool), Expression(_NODE_POOL, "In", (pool.name,))]
    found: dict[str, int] = {}
    for each in world.node_overlays.values():
        asked = [Expression(one.key, one.operator, one.values) for one in each.requirements]
        if each.ready and _agree(offered, asked):
            found |= {name: max(amount, found.get(name, 0)) for name, amount in each.capacity}
    return all(found.get(name, 0) >= amount for name, amount in needed)


def _serves(pool: NodePool, shape: Shape, wishes: PlacementConstraints, gpus: dict[str, int]) -> bool:
    if not pool.ready or not _within_limits(pool, shape):
        return False
    if any(taint.effect in REPELS and not is_tolerated(wishes.tolerations, taint) for taint in pool.taints):
        return False
    offered = list(_offered(pool))
    return _may_have_gpus(offered, gpus) and any(_agree(offered, each) for each in _asked(wishes))


def _within_limits(pool: NodePool, shape: Shape) -> bool:
    """Whether one node for one such pod is still allowed."""
    asked = dict(shape.requests)
    return all(limit >= max(1, asked.get(name, 0)) for name, limit in pool.limits if name in asked or name in _ANY_NODE)


def _offered(pool: NodePool) -> Iterator[Expression]:
    yield from (Expression(key, "In", (value,)) for key, value in pool.labels)
    yield from (Expression(each.key, each.operator, each.values) for each in pool.requirements)


def _asked(wishes: PlacementConstraints) -> Iterator[list[Expression]]:
    """What a pod asks for, once for each of its alternatives."""
    selector = [Expression(key, "In", (value,)) for key, value in wishes.selector]
    if wishes.terms is None:
        yield selector
    for term in wishes.terms or ():
        # Who asks for a node by its name asks for one that is there; who asks for nothing gets nothing.
        if term.match_expressions and not term.match_fields:
            yield [*selector, *term.match_expressions]


# --- labels ---------------------------------------------------------------------------------------------------------------------


def _agree(offered: list[Expression], asked: list[Expression]) -> bool:
    """Whether a node of the pool can have labels that a pod asks for."""
    return all(_can_be(key, offered, asked) for key in {each.key for each in asked})


def _can_be(key: str, offered: list[Expression], asked: list[Expression]) -> bool:
    theirs = [each for each in offered if each.key == key]
    wanted = [each for each in asked if each.key == key]
    if key == HOSTNAME:
        return False  # no name of a node to come is known
    if not theirs and not any(word in key.partition("/")[0] for word in _KNOWN_TO_KARPENTER):
        return all(is_met(each, None) for each in wanted)
    return _has_common_value([*theirs, *wanted])


def _has_common_value(every: Iterable[Expression]) -> bool:
    """Whether some value, or none at all, meets all conditions."""
    every = list(every)
    if all(_meets(each, None) for each in every):
        return True
    listed = next((each.values or () for each in every if each.operator == "In"), None)
    if listed is not None:
        return any(all(_meets(each, value) for each in every) for value in listed)
    if any(each.operator == "DoesNotExist" for each in every):
        return False
    # No list, so any value will do that lies between the bounds; of so many, some are not excluded.
    ordered = [each for each in every if each.operator in _ORDERED]
    bounds = {value for each in ordered for text in each.values or () if (value := number(text)) is not None}
    tries = {bound + step for bound in bounds for step in (-1, 0, 1)} or {0}
    return any(all(_meets(each, str(value)) for each in ordered) for value in tries)


def _meets(each: Expression, value: str | None) -> bool:
    """As Kubernetes judges, with the two operators that only Karpenter has."""
    if each.operator in ("Gte", "Lte"):
        strict = Expression(each.key, each.operator[:2], each.values)
        return value is not None and (value in (each.values or ()) or is_met(strict, value))
    return is_met(each, value)


# --- GPUs -----------------------------------------------------------------------------------------------------------------------


def _may_have_gpus(offered: list[Expression], gpus: dict[str, int]) -> bool:
    """Whether the pool's machines could have that many GPUs; what is not known of AWS's machines could be anything."""
    fewest = -(-max(gpus.values(), default=1) // _WHOLE)
    by_key: dict[str, list[Expression]] = {}
    for each in offered:
        by_key.setdefault(each.key, []).append(each)
    enough = Expression(_GPU_COUNT, "Gt", (str(fewest - 1),))
    if _GPU_COUNT in by_key and not _has_common_value([*by_key[_GPU_COUNT], enough]):
        return False
    if _GPU_NAME in by_key and not _has_common_value([*by_key[_GPU_NAME], Expression(_GPU_NAME, "Exists")]):
        return False
    if _CATEGORY in by_key and not _has_gpu_category(by_key[_CATEGORY]):
        return False
    return all(
        any(_could_have_gpus(key, value) for value in each.values or ())
        for key in _AWS_MACHINE
        for each in by_key.get(key, ())
        if each.operator == "In"
    )


def _has_gpu_category(every: list[Expression]) -> bool:
    # Whoever shuts out g and p wants no GPUs, and just did not think of gr.
    letters = _GPU_LETTERS if any(each.operator == "In" for each in every) else _GPU_LETTERS[:2]
    return any(all(_meets(each, letter) for each in every) for letter in letters)


def _could_have_gpus(key: str, machine: str) -> bool:
    """Whether a family or type of machine, such as p5 or g6.xlarge, could have GPUs; names that are not AWS's could."""
    match = _AWS_MACHINE[key].fullmatch(machine)
    return match is None or match[1] in _GPU_LETTERS
