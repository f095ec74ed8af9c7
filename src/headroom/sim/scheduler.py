"""A scheduler that places pods on the first node by name with room: requests, labels, taints, and nothing else."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from headroom.core import demand
from headroom.model import facts
from headroom.sim import seen as as_fact
from headroom.sim.answers import Body, ErrorAnswer
from headroom.sim.apiserver import ApiServer
from headroom.sim.apistore import Record
from headroom.sim.catalog import POD
from headroom.sim.rights import Actor

_OURS: Final = "default-scheduler"


class Scheduler:
    """Knows every node, what is placed on it, and which pods wait."""

    def __init__(self, server: ApiServer, actor: Actor) -> None:
        self._server, self._actor = server, actor
        self._nodes: dict[str, facts.Node] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._placed: dict[str, tuple[str, facts.Amounts]] = {}
        """Pod uid to its node and requests."""
        self._waiting: dict[str, tuple[str, str]] = {}
        self._again = False
        """Room may have come up since the waiting pods were last tried."""

    def node(self, name: str, record: Record | None) -> None:
        """Take note of a node, or that it is gone."""
        if record is None:
            self._nodes.pop(name, None)
            return
        before, now = self._nodes.get(name), as_fact.node(record)
        self._nodes[name] = now
        self._again = self._again or before != now

    def pod(self, seen: Record, record: Record | None) -> None:
        """Take note of a pod, or that it is gone."""
        self._release(seen.uid)
        if record is None or record.uid != seen.uid:
            self._waiting.pop(seen.uid, None)
            if record is None:
                return
        pod = as_fact.pod(record)
        if pod.node and pod.phase not in ("Succeeded", "Failed"):
            used = self._used.setdefault(pod.node, {})
            amounts = (*pod.shape.requests, ("pods", 10**6))
            self._placed[record.uid] = (pod.node, amounts)
            for name, amount in amounts:
                used[name] = used.get(name, 0) + amount
        waits = not pod.node and pod.phase == "Pending" and not pod.gates and pod.deleting is None
        if waits and pod.shape.scheduler == _OURS:
            if record.uid not in self._waiting:
                self._again = True
            self._waiting[record.uid] = record.key
        else:
            self._waiting.pop(record.uid, None)

    def _release(self, uid: str) -> None:
        place = self._placed.pop(uid, None)
        if place is None:
            return
        used = self._used[place[0]]
        for name, amount in place[1]:
            used[name] -= amount
        self._again = True

    def run(self) -> None:
        """Place every waiting pod that fits somewhere."""
        if not self._again:
            return
        self._again = False
        for uid, key in list(self._waiting.items()):
            record = self._server.store.get(POD, *key)
            if record is not None and record.uid == uid and not (record.body.get("spec") or {}).get("nodeName"):
                self._place(record)

    def _place(self, record: Record) -> None:
        pod = as_fact.pod(record)
        reasons: dict[str, int] = {}
        for name in sorted(self._nodes):
            why = self._refuses(self._nodes[name], pod)
            if not why:
                self._bind(record, name, pod)
                return
            reasons[why] = reasons.get(why, 0) + 1
        listed = ", ".join(f"{count} {why}" for why, count in sorted(reasons.items()))
        message = (
            f"0/{len(self._nodes)} nodes are available: {listed}." if listed else "no nodes available to schedule pods"
        )
        self._say_unschedulable(record, message)

    def _bind(self, record: Record, node: str, pod: facts.Pod) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": record.key[1], "uid": record.uid},
            "target": target,
        }
        try:
            self._server.do("POST", POD.url(*record.key, "binding"), body, actor=self._actor)
        except ErrorAnswer:
            return
        # The change comes back as an event, but the next pod of this round must already see the room as taken.
        self._waiting.pop(record.uid, None)
        amounts = (*pod.shape.requests, ("pods", 10**6))
        used = self._used.setdefault(node, {})
        self._placed[record.uid] = (node, amounts)
        for name, amount in amounts:
            used[name] = used.get(name, 0) + amount

    def _refuses(self, node: facts.Node, pod: facts.Pod) -> str:
        if node.unschedulable:
            return "node(s) were unschedulable"
        if not node.ready:
            return "node(s) were not ready"
        wishes = demand.constraints_of(pod.shape)
        if wishes.problem or demand.unmatched(wishes, node.labels, node.name):
            return "node(s) didn't match Pod's node affinity/selector"
        if taint := demand.untolerated(wishes, node.taints):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
        free, used = dict(node.allocatable), self._used.get(node.name, {})
        for name, amount in pod.shape.requests:
            if amount > free.get(name, 0) - used.get(name, 0):
                return f"Insufficient {name}"
        if "pods" in free and used.get("pods", 0) + 10**6 > free["pods"]:
            return "Too many pods"
        return ""

    def _say_unschedulable(self, record: Record, message: str) -> None:
        status = record.body.get("status") or {}
        conditions = status.get("conditions") or []
        before: Body = next((each for each in conditions if each.get("type") == "PodScheduled"), {})
        if before.get("reason") == "Unschedulable" and before.get("message") == message:
            return
        since = (
            before.get("lastTransitionTime") if before.get("reason") == "Unschedulable" else self._server.writer.now()
        )
        verdict: Body = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        verdict |= {"lastProbeTime": None, "lastTransitionTime": since}
        others = [each for each in conditions if each.get("type") != "PodScheduled"]
        patch = {"metadata": {"uid": record.uid}, "status": {"conditions": [*others, verdict]}}
        with suppress(ErrorAnswer):  # it is tried again with the next change
            self._server.do("PATCH", POD.url(*record.key, "status"), patch, actor=self._actor)
