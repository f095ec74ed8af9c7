"""GPUs by model: allocated, free and unavailable ones, and the models that pending pods could use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from headroom.api.power_status import State
from headroom.core import usage
from headroom.model.facts import Node, Pod, Shape, Taint
from headroom.model.numbering import ABSENT
from headroom.model.segments import Bools
from headroom.model.tables import PHASES, PodTable
from headroom.model.world import World
from headroom.web.pages import machines, parts
from headroom.web.pages.parts import Model
from headroom.web.view import OperatorView

ENDED: Final = ("Succeeded", "Failed")
PRODUCTS: Final = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "gpu.intel.com/product",
    "cloud.google.com/gke-accelerator",
    "karpenter.k8s.aws/instance-gpu-name",
    "node.kubernetes.io/instance-type",
)
"""Node labels that name the GPU model; the first one present counts."""
UNNAMED: Final = "not named"
HOST: Final = "kubernetes.io/hostname"
COUNTED: Final = ("allocated", "free", "asleep", "booting", "cordoned", "unreachable")
MOST_NEEDS: Final = 20
MOST_LOOKED_AT: Final = 2000
"""Most pending pods whose needs are computed."""


class Fleet(NamedTuple):
    """GPUs in millionths."""

    by_model: dict[str, Counter[str]]
    """For each model, the number of GPUs in each state of `COUNTED`, which add up to all, and `largest`: the most free ones on one node."""
    allocated: int
    free: int
    all: int


class NodeGpus(NamedTuple):
    """The GPUs of one node."""

    node: str
    all: int
    model: str
    state: str
    """What becomes of GPUs that no pod has."""


def nodes_with_gpus(world: World, asleep: Mapping[str, State]) -> list[NodeGpus]:
    """Every node; nodes change more rarely than pods."""
    return [
        NodeGpus(each.name, usage.gpus_on(world, each), model_of(each), _state(each, asleep)) for each in world.nodes
    ]


def fleet(world: World, nodes: Iterable[NodeGpus]) -> Fleet:
    """The GPUs of all nodes, each counted once."""
    taken = allocated(world)
    found: dict[str, Counter[str]] = {}
    for node, all_, model, state in nodes:
        held = taken.get(node, 0)
        if all_ or held:
            counts = found.get(model) or found.setdefault(model, Counter())
            counts["allocated"] += held
            counts[state] += max(all_ - held, 0)
            counts["all"] += all_
            counts["nodes"] += 1
            if state == "free":
                counts["largest"] = max(counts["largest"], all_ - held)
    return Fleet(found, *(sum(each[name] for each in found.values()) for name in ("allocated", "free", "all")))


def of(view: OperatorView, world: World) -> Model:
    """The GPUs of each model in numbers, for viewers who may list nodes."""
    return rows(fleet(world, nodes_with_gpus(world, machines.asleep(world, view.loop.decisions))))


def model_of(node: Node) -> str:
    """The node's GPU model, from its labels."""
    labels = dict(node.labels)
    return next((labels[each] for each in PRODUCTS if labels.get(each)), UNNAMED)


def _state(node: Node, asleep: Mapping[str, State]) -> str:
    """The state of the unallocated GPUs of a node."""
    if node.ready:
        return "cordoned" if node.unschedulable else "free"
    known = asleep.get(node.name)
    return "unreachable" if known is None else "booting" if known == "Booting" else "asleep"


def allocated(world: World) -> dict[str, int]:
    """Allocated GPUs on each node in millionths, those of resource claims included."""
    pods = world.pods
    bound = _live(pods) & (pods.column("node") != pods.names.number(""))
    pairs, counts = np.unique(
        np.stack([pods.column("node")[bound], pods.column("shape")[bound]]), axis=1, return_counts=True
    )
    found = Counter[str]()
    for node, shape, count in zip(pairs[0].tolist(), pairs[1].tolist(), counts.tolist(), strict=True):
        if gpus := usage.gpus_in(pods.shapes[shape].requests):
            found[pods.names[node]] += gpus * count
    for uid in {uid for claim in world.claims.values() for uid in claim.reserved_for}:
        pod = pods.get(uid)
        if pod is not None and pod.node and pod.phase not in ENDED:
            found[pod.node] += usage.gpus_of(world, pod) - usage.gpus_in(pod.shape.requests)
    return found


def starting(world: World) -> int:
    """Millionths of GPUs that are allocated to pods of which no container has started: their time does not count yet."""
    pods = world.pods
    bound = _live(pods) & (pods.column("node") != pods.names.number(""))
    waits = np.flatnonzero(bound & (pods.column("started") == ABSENT)).tolist()
    return sum(usage.gpus_of(world, pods.at(row)) for row in waits)


def _live(pods: PodTable) -> Bools:
    return ~np.isin(pods.column("phase"), [ABSENT, *(PHASES.index(each) for each in ENDED)])


def rows(found: Fleet) -> Model:
    """The GPUs of each model in numbers."""
    return {
        model: {name: parts.decimal(counts[name]) for name in COUNTED if counts[name] or name in COUNTED[:3]}
        | {"gpus": parts.decimal(counts["all"]), "nodes": counts["nodes"], "largest": parts.decimal(counts["largest"])}
        for model, counts in sorted(found.by_model.items())
    }


# --- what pending pods would take ----------------------------------------------------------------------------------------


def pending(world: World) -> Iterable[Pod]:
    """The pods with GPUs that have neither a gate nor a node."""
    for uid in world.pods.unbound:
        pod = world.pods.get(uid)
        if pod is not None and not pod.gates and pod.phase not in ENDED and usage.gpus_of(world, pod):
            yield pod


def needs(world: World, pods: Iterable[Pod], sorts: Sorts | None = None) -> list[Model]:
    """Which models, and how many GPUs on one node, pending pods need; most pods first."""
    found: Counter[tuple[tuple[str, ...], int]] = Counter()
    for number, pod in enumerate(pods):
        if number >= MOST_LOOKED_AT:
            break
        sorts = sorts or Sorts(world)
        found[sorts.fitting(pod.shape), usage.gpus_of(world, pod)] += 1
    return [
        {"pods": count, "gpus": parts.decimal(gpus), "models": list(models)}
        for (models, gpus), count in sorted(found.items(), key=lambda each: (-each[1], each[0]))[:MOST_NEEDS]
    ]


class Sorts:
    """Nodes grouped so that no pod shape distinguishes them, except shapes that name a node."""

    def __init__(self, world: World) -> None:
        self._nodes = [node for node in world.nodes if usage.gpus_on(world, node)]
        by_labels = {
            (tuple(pair for pair in node.labels if pair[0] != HOST), node.taints): node for node in self._nodes
        }
        self._sorts = list(by_labels.values())
        self._known: dict[Shape, tuple[str, ...]] = {}

    def fitting(self, shape: Shape) -> tuple[str, ...]:
        """The models that a pod may use, by its node constraints; empty if no node matches."""
        if shape not in self._known:
            from headroom.core.demand import constraints_of, unmatched, untolerated  # noqa: PLC0415  once a pod is pending

            asked = constraints_of(shape)
            by_name = HOST in shape.affinity or "metadata.name" in shape.affinity or HOST in dict(shape.node_selector)
            nodes = self._nodes if by_name else self._sorts
            fits = {
                model_of(node)
                for node in nodes
                if not unmatched(asked, node.labels, node.name) and not untolerated(asked, _lasting(node))
            }
            self._known[shape] = () if asked.problem else tuple(sorted(fits))
        return self._known[shape]


def _lasting(node: Node) -> list[Taint]:
    """The taints that somebody set, without those that the cluster sets while a node is not ready."""
    return [each for each in node.taints if not each.key.startswith("node.kubernetes.io/")]
