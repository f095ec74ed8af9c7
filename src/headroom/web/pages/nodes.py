"""The nodes page: each node with its GPUs and the pods that reserve them, and the pods without a node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from headroom.api import marks
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.core import usage
from headroom.core.budgets import unit_of
from headroom.model import times
from headroom.model.facts import Node, Pod
from headroom.model.numbering import ABSENT
from headroom.model.selectors import selects
from headroom.model.world import World
from headroom.web.pages import machines, models, parts, spot_pools
from headroom.web.pages.parts import Model
from headroom.web.scope import Scope
from headroom.web.view import OperatorView

MOST_WAITING: Final = 200
_ENDED: Final = ("Succeeded", "Failed")
_TYPE: Final = "node.kubernetes.io/instance-type"
_ZONE: Final = "topology.kubernetes.io/zone"


def model(view: OperatorView, scope: Scope) -> Model:
    """The page without its frame."""
    world = view.world()
    counting = Counting(world, scope)
    waiting = sorted(_waiting(world, scope), key=lambda pod: (pod.created, pod.key))
    starts = _starts(view, world, scope) if waiting else {}
    page: Model = {
        "waiting": [waits(pod, counting, starts) for pod in waiting[:MOST_WAITING]],
        "waitingCount": len(waiting),
        "mayList": scope.nodes,
        "nodes": {},
    }
    if scope.nodes:
        page |= _by_model(view, world, scope)
        nodes = sorted(world.nodes, key=lambda node: node.name)
        asleep = machines.asleep(world, view.loop.decisions)
        of_clouds = spot_pools.machines_of_nodes(world, view.loop.decisions)
        for node in nodes:
            power = {} if node.ready or node.name not in asleep else {"power": asleep[node.name]}
            page["nodes"][node.name] = _node(world, node, counting) | power | of_clouds.get(node.name, {})
    return page


def _by_model(view: OperatorView, world: World, scope: Scope) -> Model:
    """GPUs by model, and how many of them pending pods need, for pods in visible namespaces."""
    pods = (pod for pod in models.pending(world) if scope.sees(pod.namespace))
    return {"models": models.of(view, world), "needs": models.needs(world, pods)}


def namespaces(world: World) -> set[str]:
    """The namespaces of pods that request GPUs."""
    pods = world.pods
    asking = [number for number, shape in pods.shapes.items() if usage.gpus_in(shape.requests)]
    found = np.unique(pods.column("namespace")[np.isin(pods.column("shape"), asking)])
    return {pods.names[int(number)] for number in found if number != ABSENT}


class Counting:
    """Which budgets count a pod; evaluated once for each combination of namespace and labels."""

    def __init__(self, world: World, scope: Scope) -> None:
        self._world, self._scope = world, scope
        self._scopes: dict[str, list[tuple[str, usage.BudgetScope]]] = {}
        for budget in usage.budgets_of(world):
            covers = usage.scope_of(world, budget)
            for namespace in covers.namespaces if scope.sees(budget.namespace) else ():
                self._scopes.setdefault(namespace, []).append((f"{budget.namespace}/{budget.name}", covers))
        self._known: dict[tuple[object, ...], list[str]] = {}

    def of(self, pod: Pod) -> list[str]:
        """The visible budgets that count a pod."""
        amounts = usage.amounts_of(pod, usage.view_of(self._world))
        key = (pod.namespace, pod.labels, amounts)
        if key not in self._known:
            self._known[key] = [
                name
                for name, covers in self._scopes.get(pod.namespace, ())
                if selects(covers.selector, pod.labels) and usage.counts(amounts, covers.weights)[0]
            ]
        return self._known[key]

    def may_name(self, pod: Pod) -> bool:
        """Whether the viewer may see a pod's name."""
        return self._scope.sees(pod.namespace)


def _node(world: World, node: Node, counting: Counting) -> Model:
    on_it = (pod for uid in world.pods.by_node[node.name] if (pod := world.pods.get(uid)) is not None)
    holding = [(usage.gpus_of(world, pod), pod) for pod in on_it if pod.phase not in _ENDED]
    holding = sorted((each for each in holding if each[0]), key=lambda each: (-each[0], each[1].key))
    offered, held = usage.gpus_on(world, node), sum(gpus for gpus, _ in holding)
    labels = dict(node.labels)
    return parts.known(
        {
            "ready": node.ready,
            "cordoned": node.unschedulable,
            "gpus": parts.decimal(offered),
            "held": parts.decimal(held),
            "free": parts.decimal(max(offered - held, 0)),
            "type": labels.get(_TYPE, ""),
            "model": models.model_of(node) if offered else "",
            "zone": labels.get(_ZONE, ""),
            "pods": [_holds(gpus, pod, counting) for gpus, pod in holding],
        }
    )


def _holds(gpus: int, pod: Pod, counting: Counting) -> Model:
    name = pod.key if counting.may_name(pod) else ""
    state = "Ending" if pod.deleting is not None else pod.phase
    return parts.known({"pod": name, "gpus": parts.decimal(gpus), "budgets": counting.of(pod), "state": state})


def _waiting(world: World, scope: Scope) -> Iterable[Pod]:
    for uid in world.pods.unbound:
        pod = world.pods.get(uid)
        if pod is not None and scope.sees(pod.namespace) and pod.phase not in _ENDED and usage.gpus_of(world, pod):
            yield pod


def _starts(view: OperatorView, world: World, scope: Scope) -> dict[str, str]:
    """Known estimated starts of queued pods and gangs in visible namespaces; with several budgets, the latest."""
    found: dict[str, str] = {}
    for ref, _ in world.of_kind(usage.KIND):
        decision = view.loop.decisions.get(ref) if scope.sees(ref.namespace) else None
        status = decision.status if decision else None
        held = status.held if isinstance(status, GPUWorkloadBudgetStatus) else None
        for each in held.queue if held else ():
            if each.starts_at:
                found[each.unit] = max(found.get(each.unit, ""), each.starts_at)
    return found


def waits(pod: Pod, counting: Counting, starts: Mapping[str, str]) -> Model:
    """A pod without a node: why, and its estimated start."""
    state, budget, why = _why(pod)
    return parts.known(
        {
            "pod": pod.key,
            "gpus": parts.decimal(usage.gpus_in(pod.shape.requests)),
            "since": times.text(pod.created),
            "state": state,
            "budget": budget,
            "why": why,
            "startsAt": starts.get(unit_of(pod), "") if state == "Queued" else "",
        }
    ) | {"budgets": counting.of(pod)}


def _why(pod: Pod) -> tuple[str, str, str]:
    """Why a pod has no node: its state, the budget that queues it, and the reason as a clause."""
    if marks.GATE in pod.gates:
        by = dict(pod.annotations).get(marks.HELD_BY, "")
        return "Queued", by, f"queued by budget {by}" if by else "queued by a budget"
    if pod.gates:
        return "Gated", "", f"gated by {', '.join(pod.gates)}"
    return "Pending", "", pod.unschedulable_message or "kube-scheduler has not tried it yet"
