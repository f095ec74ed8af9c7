"""A small stage on which decisions are carried out at once: pods come, run and go, and time passes only when a test says so."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import structs

from headroom.api import marks
from headroom.api.budget_hold import hold_name
from headroom.api.kinds import AnyResource
from headroom.core import usage
from headroom.core.budgets import PLAN
from headroom.model import actions
from headroom.model.actions import Action
from headroom.model.changes import EVERYTHING
from headroom.model.decisions import Decision
from headroom.model.facts import EvictionRefusal, Hold, Owner, Pod, Workload, WorkloadPart
from headroom.model.times import text
from headroom.model.usage import Evidence, UsageRow
from headroom.model.world import World, ref_of
from tests.builders import NOON, a_pod, a_resource, a_used_world

TEAM = (("team", "a"),)
GROUPS = {"Job": "batch", "DaemonSet": "apps", "ReplicaSet": "apps", "PyTorchJob": "kubeflow.org"}


def a_budget(
    name: str = "one", *, hours: Any = "100", window: int = 24, enforce: Any = "Evict", **spec: Any
) -> AnyResource:
    """A budget for team a; `enforce` is one action or a list of steps such as 80% AlertOnly."""
    grace = spec.pop("grace", 0)
    given = {"action": enforce} if isinstance(enforce, str) else {"steps": [_step(each) for each in enforce]}
    more = spec.pop("enforcement", {})
    quota = {"gpuHours": hours, "windowHours": window} | spec.pop("quota", {})
    return a_resource(name=name, quota=quota, enforcement=given | {"gracePeriodSeconds": grace} | more, **spec)


def _step(words: str) -> dict[str, str]:
    at, action = words.split()
    return {"at": at, "action": action}


def running(name: str, since: int, *, gpus: int = 1, **fields: Any) -> Pod:
    """A pod of team a that has run for so long at noon."""
    base: dict[str, Any] = {"labels": TEAM, "node": "n", "phase": "Running"}
    return a_pod(name, gpus=gpus, **base | {"started": NOON - since, "created": NOON - since} | fields)


def gated(name: str, *, gpus: int = 1, created: int = NOON - 60_000, **fields: Any) -> Pod:
    """A pod of team a that the API server made wait; if it has an owner, the owner's controller made it."""
    base: dict[str, Any] = {"labels": TEAM, "gates": (marks.GATE,), "annotations": ((marks.HELD_BY, "team-a/one"),)}
    if owner := fields.get("owner"):
        base["annotations"] += ((marks.CONTROLLER_UID, owner.uid),)
    return a_pod(name, gpus=gpus, created=created, **base | fields)


def of_job(name: str, kind: str = "Job") -> Owner:
    """The owner of a pod."""
    return Owner(kind, name, f"uid-{name}", GROUPS.get(kind, ""))


class Stage:
    """A world and what has been done to it."""

    def __init__(self, *budgets: AnyResource, pods: Iterable[Pod] = (), now: int = NOON, **more: Any) -> None:
        self.now, self.more = now, more
        self.budgets = {ref_of(each): each for each in budgets}
        self.pods = {pod.uid: pod for pod in pods}
        self.rows: dict[Any, UsageRow] = {}
        self.holds: dict[str, Hold] = dict(more.pop("holds", {}))
        self.workloads: dict[str, Workload] = dict(more.pop("workloads", {}))
        self.evicted: dict[str, int] = {}
        self.refusing: dict[str, tuple[str, ...]] = {}
        """Uids of pods that cannot be evicted, each with the disruption budgets that refuse."""
        self.refused: dict[str, EvictionRefusal] = {}
        self.seen_going: list[str] = []
        self.done: list[tuple[int, Action]] = []
        self.decisions: dict[str, Decision] = {}

    def world(self) -> World:
        """The world as it is."""
        given: dict[str, Any] = self.more | {"pods": self.pods.values(), "now": self.now}
        world = a_used_world(*self.budgets.values(), holds=self.holds, workloads=self.workloads, **given)
        world = structs.replace(world, usage=usage.table_of(world, list(self.rows.values())))
        self.rows |= {row.key: row for row in world.usage}
        world.pods.evicted.update(self.evicted)
        world.pods.refused.update(self.refused)
        world.pods.seen_going.update(dict.fromkeys(self.seen_going))
        return world

    def look(self) -> list[Action]:
        """Decide once and carry out what is due; statuses are kept."""
        world, due = self.world(), []
        for decision in PLAN.decide(world, EVERYTHING):
            budget = self.budgets[decision.resource]
            self.budgets[decision.resource] = structs.replace(budget, status=decision.status)
            self.decisions[decision.resource.name] = decision
            due += [(action, budget) for action in decision.actions]
        chores = list(PLAN.chores(world))
        for action, by in due:
            self._do(action, by)
        for action in chores:
            self._do(action, None)
        return [action for action, _ in due if not isinstance(action, actions.EmitEvent)] + chores

    def pass_time(self, ms: int, *, every: int = 0) -> list[Action]:
        """Let time pass, looking again at every step of so many milliseconds; all that was done."""
        found: list[Action] = []
        until = self.now + ms
        while self.now < until:
            self.now = min(until, self.now + (every or ms))
            self._end_those_due()
            found += self.look()
        return found

    def _end_those_due(self) -> None:
        for uid, pod in list(self.pods.items()):
            length = pod.deadline
            if (
                pod.phase == "Running"
                and pod.started is not None
                and length is not None
                and pod.started + length <= self.now
            ):
                end = pod.started + length
                self.pods[uid] = structs.replace(pod, phase="Succeeded", ended=end, ended_by="ContainerFinish")

    def _do(self, action: Action, by: AnyResource | None) -> None:
        if isinstance(action, actions.OnPod) and action.uid not in self.pods:
            return  # it went with something else that was just done
        self.done.append((self.now, action))
        match action:
            case actions.EvictPod() | actions.DeletePod():
                self._evict(action)
            case actions.PausePod(uid=uid):
                marked = {marks.PAUSED_AT: text(self.now), marks.PAUSED_BY: str(ref_of(by)) if by else ""}
                self._annotate(uid, marked)
            case actions.ResumePod(uid=uid):
                self._annotate(uid, {marks.PAUSED_AT: "", marks.PAUSED_BY: ""})
            case actions.ReleasePod(uid=uid):
                pod = self.pods[uid]
                self._annotate(uid, {marks.RELEASED_AT: text(self.now)})
                gates = tuple(each for each in pod.gates if each != marks.GATE)
                begun: dict[str, Any] = {} if gates else {"started": self.now, "phase": "Running", "node": "n"}
                self.pods[uid] = structs.replace(self.pods[uid], gates=gates, **begun)
            case actions.ApplyBudgetHold(budget=key):
                spec = structs.replace(action.spec, because=action.because)
                self.holds[hold_name(key)] = Hold(name=hold_name(key), created=self.now, spec=spec)
            case actions.DeleteBudgetHold(budget=key):
                del self.holds[hold_name(key)]
            case actions.SuspendOwner(kind=kind, object=name) if by is not None:
                self._suspend(kind, name, str(ref_of(by)))
            case actions.ResumeOwner(kind=kind, object=name):
                del self.workloads[f"{kind}/{name}"]

    def _evict(self, action: actions.EvictPod | actions.DeletePod) -> None:
        if isinstance(action, actions.EvictPod) and action.uid in self.refusing:
            self.refused[action.uid] = EvictionRefusal(self.now, self.refusing[action.uid])
            return
        self.world()  # what it used is kept before it goes
        self.evicted[action.uid] = self.now
        self._end(action.uid)

    def _end(self, uid: str) -> None:
        del self.pods[uid]
        for row in [row for row in self.rows.values() if row.uid == uid and row.closed is None]:
            self.rows[row.key] = structs.replace(row, ended=self.now, evidence=Evidence.DELETION_SEEN)

    def _annotate(self, uid: str, marked: dict[str, str]) -> None:
        pod = self.pods[uid]
        kept = dict(pod.annotations) | marked
        self.pods[uid] = structs.replace(pod, annotations=tuple(sorted((k, v) for k, v in kept.items() if v)))

    def _suspend(self, kind: str, name: str, by: str) -> None:
        mine = [
            pod
            for pod in self.pods.values()
            if pod.owner and pod.owner.kind == kind and pod.owner.name == name.split("/")[1]
        ]
        parts = tuple(
            WorkloadPart(labels=pod.labels, requests=pod.shape.requests, deadline=pod.deadline) for pod in mine
        )
        self.world()
        for pod in mine:
            self._end(pod.uid)
        namespace, _, short = name.partition("/")
        self.workloads[f"{kind}/{name}"] = Workload(
            kind=kind, uid=f"uid-{short}", namespace=namespace, name=short, parts=parts, suspended=True, suspended_by=by
        )

    def status(self, name: str = "one") -> Any:
        """The status of a budget."""
        return next(each.status for each in self.budgets.values() if each.name == name)


def brief(due: Iterable[Action]) -> list[str]:
    """Actions by what they do and to whom, without what they carry."""
    return [f"{type(each).__name__} {getattr(each, each.target)}" for each in due]
