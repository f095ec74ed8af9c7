"""What is done to nodes: cordoned, tainted, and given back."""

from __future__ import annotations

from typing import Any, Final

from headroom.adapters.kube import paths, raw
from headroom.adapters.kube.changing import ChangeOutcome, Patch, annotated, change, notes
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.values import OURS
from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.model import actions, facts
from headroom.model.errors import Refused
from headroom.model.handlers import carries_out
from headroom.model.world import ref_of

UNCORDONED: Final[Patch] = annotated({marks.CORDONED_BY: None}) | {"spec": {"unschedulable": None}}
"""For a node that carries our mark."""


class _TaintList(raw.RawPart):
    # As they are, since the list is written back as a whole and nothing of it may be lost.
    taints: list[dict[str, Any]] | None = None


class Tainted(raw.Object):
    """A node with all that its taints say."""

    spec: _TaintList | None = None

    @property
    def taints(self) -> list[dict[str, Any]]:
        return (self.spec.taints if self.spec else None) or []


class NodeEffects:
    """Changes nodes."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    @carries_out(actions.CordonNode)
    async def cordon(self, action: actions.CordonNode, resource: AnyResource) -> None:
        """Let no new pod onto it."""

        def cordoned(node: raw.RawNode) -> Patch | None:
            if node.spec and node.spec.unschedulable:
                return None  # ours already, or somebody else's, which is not ours to undo later
            return annotated({marks.CORDONED_BY: str(ref_of(resource))}) | {"spec": {"unschedulable": True}}

        outcome, _ = await change(self._kube, paths.node(action.node), raw.RawNode, cordoned, uid=action.uid)
        if outcome is ChangeOutcome.GONE:
            raise Refused(f"cordoning node {action.node}: it is gone")

    @carries_out(actions.UncordonNode)
    async def uncordon(self, action: actions.UncordonNode, resource: AnyResource) -> None:
        """Let pods onto it again, if it was us who kept them away."""

        def uncordoned(node: raw.RawNode) -> Patch | None:
            by, cordoned = notes(node).get(marks.CORDONED_BY), bool(node.spec and node.spec.unschedulable)
            ours = by == (action.by or str(ref_of(resource)))
            if cordoned and not ours:
                raise Refused(f"uncordoning node {action.node}: {by or 'somebody else'} cordoned it")
            return UNCORDONED if ours else None

        await change(self._kube, paths.node(action.node), raw.RawNode, uncordoned, uid=action.uid)

    @carries_out(actions.TaintNode)
    async def taint(self, action: actions.TaintNode, _resource: AnyResource) -> None:
        """Set a taint; one of ours with another value is replaced."""
        taint = _taint_of(action.taint)

        def tainted(node: Tainted) -> Patch | None:
            if any(_same_taint(each, taint) for each in node.taints):
                return None
            others = [
                each for each in node.taints if (each.get("key"), each.get("effect")) != (taint.key, taint.effect)
            ]
            if len(others) < len(node.taints) and not taint.key.startswith(OURS):
                raise Refused(f"tainting node {action.node} with {action.taint}: it has that taint with another value")
            value = {"value": taint.value} if taint.value else {}
            return {"spec": {"taints": [*others, {"key": taint.key, "effect": taint.effect, **value}]}}

        outcome, _ = await change(self._kube, paths.node(action.node), Tainted, tainted, uid=action.uid)
        if outcome is ChangeOutcome.GONE:
            raise Refused(f"tainting node {action.node}: it is gone")

    @carries_out(actions.UntaintNode)
    async def untaint(self, action: actions.UntaintNode, _resource: AnyResource) -> None:
        """Remove exactly this taint."""
        taint = _taint_of(action.taint)

        def untainted(node: Tainted) -> Patch | None:
            kept = [each for each in node.taints if not _same_taint(each, taint)]
            return {"spec": {"taints": kept or None}} if len(kept) < len(node.taints) else None

        await change(self._kube, paths.node(action.node), Tainted, untainted, uid=action.uid)


def _taint_of(text: str) -> facts.Taint:
    """`key=value:Effect` or `key:Effect`."""
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if not key or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise Refused(f"taint {text}: must be written key=value:Effect, with a known effect")
    return facts.Taint(key, value, effect)


def _same_taint(found: dict[str, Any], taint: facts.Taint) -> bool:
    return (found.get("key"), found.get("value") or "", found.get("effect")) == (taint.key, taint.value, taint.effect)
