"""Takes from objects of others whatever Headroom left on them, for when it goes for good."""

from __future__ import annotations

from typing import Final

from headroom.adapters.kube import paths, raw
from headroom.adapters.kube.changing import Patch, change, meta, notes
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.effects_bandwidth import Sized, sized
from headroom.adapters.kube.effects_nodes import UNCORDONED, Tainted
from headroom.adapters.kube.effects_owners import OwnerObject, unmarked
from headroom.adapters.kube.effects_pods import TOUCHED_AT
from headroom.adapters.kube.values import OURS
from headroom.api import marks
from headroom.model import facts

NOTES: Final = (
    marks.HELD_BY,
    marks.HELD_BECAUSE,
    marks.CONTROLLER_UID,
    marks.RELEASED_AT,
    marks.PAUSED_AT,
    marks.PAUSED_BY,
    TOUCHED_AT,
)
"""The annotations that Headroom or its policies write onto pods. Others of that prefix are the users' own, and stay."""


def left_on(pod: facts.Pod) -> list[str]:
    """What Headroom left on a pod, in words."""
    found = {
        "gate": marks.GATE in pod.gates,
        "annotations": any(name in NOTES for name, _ in pod.annotations),
        "finalizer": bool(pod.finalizers),
    }
    return [what for what, is_there in found.items() if is_there]


async def from_pod(kube: Kube, namespace: str, name: str) -> None:
    """Our gate, annotations and finalizers go, in one write; all others stay."""
    await change(kube, paths.pod(namespace, name), raw.RawPod, _without_ours)


def _without_ours(pod: raw.RawPod) -> Patch | None:
    gates = (pod.spec.scheduling_gates if pod.spec else None) or []
    finalizers = meta(pod).finalizers or []
    kept_gates = [{"name": each.name} for each in gates if each.name != marks.GATE]
    kept_finalizers = [each for each in finalizers if not each.startswith(OURS)]
    metadata: Patch = {}
    if ours := [each for each in NOTES if each in notes(pod)]:
        metadata["annotations"] = dict.fromkeys(ours)
    if len(kept_finalizers) < len(finalizers):
        metadata["finalizers"] = kept_finalizers
    spec = {"schedulingGates": kept_gates or None} if len(kept_gates) < len(gates) else {}
    return {"metadata": metadata, "spec": spec} if metadata or spec else None


async def from_owner(kube: Kube, kind: str, namespace: str, name: str) -> None:
    """What Headroom suspended goes on, and what it released loses the mark of it."""
    await change(kube, paths.owner(kind, namespace, name), OwnerObject, lambda owner: unmarked(kind, owner))


def left_on_node(node: facts.Node) -> list[str]:
    """What Headroom left on a node, in words."""
    found = {
        "cordon of": any(name == marks.CORDONED_BY for name, _ in node.annotations),
        "taint of": any(taint.key == marks.BANDWIDTH_UNAVAILABLE for taint in node.taints),
        "bandwidth published on": bool(node.published or node.published_capacity),
    }
    return [what for what, is_there in found.items() if is_there]


async def from_node(kube: Kube, name: str) -> None:
    """Our cordon, taint and extended resources go. A cordon that somebody set without our mark is theirs."""

    def uncordoned(node: raw.RawNode) -> Patch | None:
        return UNCORDONED if marks.CORDONED_BY in notes(node) else None

    def untainted(node: Tainted) -> Patch | None:
        kept = [each for each in node.taints if each.get("key") != marks.BANDWIDTH_UNAVAILABLE]
        return {"spec": {"taints": kept or None}} if len(kept) < len(node.taints) else None

    path = paths.node(name)
    await change(kube, path, raw.RawNode, uncordoned)
    await change(kube, path, Sized, lambda node: sized(node, {}), part="status")
    await change(kube, path, Tainted, untainted)
