"""The cluster around the API server, in the smallest honest form: a scheduler, kubelets, and the controllers of nodes and owners.

What a pod does is said by annotations: `sim.headroom.dev/runs-for: 10m` lets it succeed after that time, `fails-after` lets it fail,
`stops-in` says how long it takes to end when it is deleted (its whole grace period otherwise). Its activeDeadlineSeconds end it too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from headroom.model import times
from headroom.sim import seen as as_fact
from headroom.sim.answers import Body, ErrorAnswer
from headroom.sim.apiserver import ApiServer
from headroom.sim.apistore import Change, Record
from headroom.sim.builtin import NOT_READY, UNSCHEDULABLE
from headroom.sim.catalog import NODE, POD, ResourceType
from headroom.sim.cron_jobs import CronJobs
from headroom.sim.jobs import Jobs
from headroom.sim.owners import JobSets, ReplicaSets
from headroom.sim.rights import Actor
from headroom.sim.scheduler import Scheduler

ANNOTATION: Final = "sim.headroom.dev/"
ORPHANED_SECONDS: Final = 40.0
"""How long the pods of a node that is gone are still shown."""
SILENT_SECONDS: Final = 40.0
"""After so long without a heartbeat a node counts as lost."""
GIVEN_UP_SECONDS: Final = 300.0
"""And so long after that its pods are told to go, so that their owners make others."""
_LIFECYCLE: Final = (NOT_READY, UNSCHEDULABLE)
"""Taints that follow from what a node is."""


class PodLifecycle:
    """Everything that moves pods. It reacts to changes at once and works in a fixed order."""

    def __init__(self, server: ApiServer, *, pull_seconds: float = 2.0) -> None:
        self._server, self._clock, self._pull = server, server.clock, pull_seconds
        admin = server.users["admin"]
        self._kubelet = Actor(name="kubelet", user=admin)
        self._scheduler = Scheduler(server, Actor(name="kube-scheduler", user=admin))
        self._jobs = Jobs(server, Actor(name="job-controller", user=admin))
        self._cron_jobs = CronJobs(server, Actor(name="cronjob-controller", user=admin))
        self._owners: dict[str, Callable[[Record], None]] = {
            "CronJob": self._cron_jobs.sync,
            "Job": self._jobs.sync,
            "JobSet": JobSets(server, Actor(name="jobset-controller", user=admin)).sync,
            "ReplicaSet": ReplicaSets(server, Actor(name="replicaset-controller", user=admin)).sync,
        }
        """Who makes objects of its own, by kind."""
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}
        """By pod uid and what is due."""
        self._changed: dict[tuple[str, str, str], Record] = {}
        self._unsubscribe: Callable[[], None] | None = None
        self._working = False
        self._alive: frozenset[str] = frozenset()
        """Nodes that were ready when last seen."""
        self.dark: set[str] = set()
        """Machines that are off: no kubelet, no heartbeat, and nothing runs."""

    def start(self) -> None:
        """Begin, with all that is there already."""
        self._unsubscribe = self._server.store.subscribe(self._notice)
        for type_ in self._server.catalog:
            for record in self._server.store.all(type_) if self._matters(type_) else ():
                self._remember(record)

    def stop(self) -> None:
        """Move nothing more."""
        if self._unsubscribe:
            self._unsubscribe()
            self._unsubscribe = None
        for timer in self._timers.values():
            timer.cancel()
        self._jobs.stop()
        self._cron_jobs.stop()
        self._timers.clear()
        self._changed.clear()

    # --- noticing ---------------------------------------------------------------------------------------------------------

    def _matters(self, type_: ResourceType) -> bool:
        return type_ in (NODE, POD) or type_.kind in self._owners

    def _notice(self, change: Change) -> None:
        record: Any = change.after or change.before
        if self._matters(change.type):
            self._remember(record)

    def _remember(self, record: Record) -> None:
        self._changed[(record.type.plural, *record.key)] = record
        if not self._working:
            self._working = True
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        while self._changed and self._unsubscribe:
            changed, self._changed = self._changed, {}
            for (plural, namespace, name), seen in changed.items():
                record = self._server.store.get(seen.type, namespace, name)
                if plural == "nodes":
                    self._node(name, record)
                elif plural == "pods":
                    self._pod(seen, record)
                elif record is not None:
                    self._owners[record.type.kind](record)
                self._tell_owners(seen)
            self._scheduler.run()
        self._working = False

    def _write(self, method: str, path: str, document: Body | None = None) -> None:
        with suppress(ErrorAnswer):  # somebody else was faster; what they did comes back as a change
            self._server.do(method, path, document, actor=self._kubelet)

    def _tell_owners(self, seen: Record) -> None:
        """Whoever made an object that changed looks at it."""
        for reference in seen.body["metadata"].get("ownerReferences") or []:
            kind = str(reference.get("kind"))
            type_ = self._server.catalog.of_kind(kind) if kind in self._owners else None
            owner = type_ and self._server.store.get(type_, seen.key[0], str(reference.get("name")))
            if owner:
                self._owners[kind](owner)

    # --- nodes ------------------------------------------------------------------------------------------------------------

    def _node(self, name: str, record: Record | None) -> None:
        self._scheduler.node(name, record)
        if record is None:
            self._clock.call_later(ORPHANED_SECONDS, partial(self._drop_pods, name))
            return
        conditions = (record.body.get("status") or {}).get("conditions") or []
        ready = next((each for each in conditions if each.get("type") == "Ready"), None)
        if ready is None and _annotation(record.body, "ready") != "false":
            ready = self._judge(record.body, alive=name not in self.dark)
        alive = ready is not None and ready.get("status") == "True"
        if alive and name not in self._alive:
            self._revive(name)
        self._alive = self._alive | {name} if alive else self._alive - {name}
        spec = record.body.get("spec") or {}
        taints = spec.get("taints") or []
        due = {NOT_READY: not alive, UNSCHEDULABLE: bool(spec.get("unschedulable"))}
        if {each.get("key") for each in taints} & {*_LIFECYCLE} != {key for key, is_due in due.items() if is_due}:
            rest = [each for each in taints if each.get("key") not in _LIFECYCLE]
            wanted = [*rest, *({"key": key, "effect": "NoSchedule"} for key, is_due in due.items() if is_due)]
            self._write("PATCH", NODE.url("", name), {"spec": {"taints": wanted or None}})

    def _judge(self, node: Body, *, alive: bool) -> Body:
        """Say whether a node is ready: its kubelet does that, and the node controller where the kubelet says nothing."""
        others = [each for each in (node.get("status") or {}).get("conditions") or [] if each.get("type") != "Ready"]
        verdict = ("True", "KubeletReady", "kubelet is posting ready status")
        if not alive:
            verdict = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
        ready = dict(zip(("status", "reason", "message"), verdict, strict=True)) | {"type": "Ready"}
        ready |= {"lastHeartbeatTime": self._now(), "lastTransitionTime": self._now()}
        path = NODE.url("", node["metadata"]["name"], "status")
        self._write("PATCH", path, {"status": {"conditions": [*others, ready]}})
        return ready

    def darken(self, name: str, *, at_once: bool = False) -> None:
        """A machine goes off, and its kubelet with it; that is noticed when no heartbeat comes, unless it has long been so."""
        self.dark.add(name)
        for pod in self._pods_on(name):
            self._forget(pod.uid)
        if not at_once:
            self._clock.call_later(SILENT_SECONDS, partial(self._miss, name))

    def light(self, name: str) -> None:
        """A machine is on, and its kubelet speaks: what ran there is dead, what was bound there starts."""
        if name in self.dark:
            self.dark.discard(name)
            for pod in self._pods_on(name):
                if (pod.body.get("status") or {}).get("phase") == "Running":
                    self._end(pod.uid, pod.key, "Failed", 137, "Error")
        node = self._server.store.get(NODE, "", name)
        if node is not None and not as_fact.node(node).ready:
            self._judge(node.body, alive=True)

    def _miss(self, name: str) -> None:
        node = self._server.store.get(NODE, "", name)
        if name in self.dark and node is not None and as_fact.node(node).ready:
            self._judge(node.body, alive=False)
            self._clock.call_later(GIVEN_UP_SECONDS, partial(self._give_up, name))

    def _give_up(self, name: str) -> None:
        """Tell the pods of a node to go that was not heard of for long; its kubelet cannot, so they stay as they are."""
        if name not in self.dark:
            return
        for pod in self._pods_on(name):
            fact = as_fact.pod(pod)
            is_over = fact.phase in ("Succeeded", "Failed") or fact.deleting is not None
            if not is_over and not (fact.owner and fact.owner.kind == "DaemonSet"):
                self._write("DELETE", POD.url(*pod.key), {"preconditions": {"uid": pod.uid}})

    def _revive(self, node: str) -> None:
        """Pods that waited for this node's kubelet start now."""
        for pod in self._pods_on(node):
            self._remember(pod)

    def _pods_on(self, node: str) -> list[Record]:
        pods = self._server.store.all(POD)
        return [each for each in pods if (each.body.get("spec") or {}).get("nodeName") == node]

    def _drop_pods(self, node: str) -> None:
        if self._server.store.get(NODE, "", node) is not None:
            return
        for pod in self._pods_on(node):
            self._end(pod.uid, pod.key, "Failed", 137, "PodGC")
            self._write("DELETE", POD.url(*pod.key), {"gracePeriodSeconds": 0, "preconditions": {"uid": pod.uid}})

    # --- pods -------------------------------------------------------------------------------------------------------------

    def _pod(self, seen: Record, record: Record | None) -> None:
        self._scheduler.pod(seen, record)
        if record is None or record.uid != seen.uid:
            self._forget(seen.uid)
        node = "" if record is None else (record.body.get("spec") or {}).get("nodeName") or ""
        if record is None or not node or node in self.dark:
            return
        phase = (record.body.get("status") or {}).get("phase")
        if record.body["metadata"].get("deletionTimestamp"):
            self._later(record, "stop", self._stopping_seconds(record.body), self._stopped)
        elif phase == "Pending":
            self._later(record, "start", self._pull, self._started)
        elif phase == "Running":
            self._plan_end(record)

    def _later(self, record: Record, what: str, seconds: float, do: Callable[[str, tuple[str, str]], None]) -> None:
        if (record.uid, what) not in self._timers:
            due = partial(do, record.uid, record.key)
            self._timers[record.uid, what] = self._clock.call_later(seconds, due)

    def _forget(self, uid: str) -> None:
        for what in ("start", "end", "stop"):
            timer = self._timers.pop((uid, what), None)
            if timer:
                timer.cancel()

    def _stopping_seconds(self, pod: Body) -> float:
        grace = float(pod["metadata"].get("deletionGracePeriodSeconds", 30))
        asked = times.duration(_annotation(pod, "stops-in"))
        return grace if asked is None else min(grace, asked / times.SECOND)

    def _plan_end(self, record: Record) -> None:
        pod = as_fact.pod(record)
        ends = (
            (times.duration(_annotation(record.body, "runs-for")), "Succeeded", 0),
            (times.duration(_annotation(record.body, "fails-after")), "Failed", 1),
            (pod.deadline, "Failed", 137),
        )
        known = [(length, phase, code) for length, phase, code in ends if length is not None]
        if known:
            length, phase, code = min(known, key=lambda each: each[0])
            begun = pod.started if pod.started is not None else self._clock.now()
            left = (begun + length - self._clock.now()) / times.SECOND
            self._later(record, "end", left, partial(self._ended, phase=phase, code=code))

    def _started(self, uid: str, key: tuple[str, str]) -> None:
        record = self._server.store.get(POD, *key)
        self._timers.pop((uid, "start"), None)
        if record is None or record.uid != uid or not self._runs_on_live_node(record):
            return
        now = self._now()
        states = [
            {"name": each["name"], "image": each.get("image", ""), "imageID": "", "ready": True, "started": True}
            | {"restartCount": 0, "state": {"running": {"startedAt": now}}}
            for each in record.body["spec"]["containers"]
        ]
        conditions = self._conditions(
            record.body, ("Initialized", "True"), ("ContainersReady", "True"), ("Ready", "True")
        )
        status = {"phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": states}
        self._write("PATCH", POD.url(*key, "status"), {"metadata": {"uid": uid}, "status": status})

    def _runs_on_live_node(self, record: Record) -> bool:
        name = record.body["spec"].get("nodeName", "")
        node = self._server.store.get(NODE, "", name)
        return node is not None and as_fact.node(node).ready

    def _ended(self, uid: str, key: tuple[str, str], *, phase: str, code: int) -> None:
        self._timers.pop((uid, "end"), None)
        self._end(uid, key, phase, code, "Completed" if code == 0 else "Error")

    def _end(self, uid: str, key: tuple[str, str], phase: str, code: int, reason: str) -> None:
        record = self._server.store.get(POD, *key)
        if record is None or record.uid != uid:
            return
        before = record.body.get("status") or {}
        if before.get("phase") in ("Succeeded", "Failed"):
            return
        states = [_terminated(each, code, reason, self._now()) for each in before.get("containerStatuses") or []]
        conditions = self._conditions(record.body, ("ContainersReady", "False"), ("Ready", "False"))
        status = {"phase": phase, "conditions": conditions, "containerStatuses": states}
        self._write("PATCH", POD.url(*key, "status"), {"metadata": {"uid": uid}, "status": status})

    def _stopped(self, uid: str, key: tuple[str, str]) -> None:
        self._end(uid, key, "Failed", 143, "Error")
        self._timers.pop((uid, "stop"), None)
        self._write("DELETE", POD.url(*key), {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})

    def _conditions(self, pod: Body, *verdicts: tuple[str, str]) -> list[Body]:
        before = {each["type"]: each for each in (pod.get("status") or {}).get("conditions") or []}
        for type_, status in verdicts:
            if before.get(type_, {}).get("status") != status:
                before[type_] = {
                    "type": type_,
                    "status": status,
                    "lastProbeTime": None,
                    "lastTransitionTime": self._now(),
                }
        return list(before.values())

    def _now(self) -> str:
        now = self._clock.now()
        return times.text(now - now % times.SECOND)


def _annotation(body: Body, word: str) -> str:
    return str((body["metadata"].get("annotations") or {}).get(ANNOTATION + word, ""))


def _terminated(state: Body, code: int, reason: str, now: str) -> Body:
    running = (state.get("state") or {}).get("running") or {}
    ended = {"exitCode": code, "reason": reason, "startedAt": running.get("startedAt", now), "finishedAt": now}
    return state | {"ready": False, "started": False, "state": {"terminated": ended}}
