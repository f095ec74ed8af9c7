"""An auditor who knows the truth: every pod there ever was, every write, and what they come to by a reckoning of its own.

It looks at the simulated API server itself and shares no code with what it judges.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headroom.model.times import duration, moment
from headroom.sim.apiserver import ApiServer
from headroom.sim.apistore import Change, Record

HOUR = 3_600_000
FOREVER = 2**60
MARK = "headroom.dev/"
GANGS = ("scheduling.x-k8s.io/pod-group",)
JOBSET = "jobset.sigs.k8s.io/jobset-name"


@dataclass
class Life:
    """One pod, from its creation to its end."""

    uid: str
    namespace: str
    name: str
    labels: dict[str, str]
    gpus: int
    unit: str
    owner: str
    length: int | None
    """As declared."""
    protected: bool
    created: int
    gated: bool
    released: int | None = None
    started: int | None = None
    ended: int | None = None
    going: int | None = None
    """When it was told to go."""
    gone: int | None = None

    def is_over(self, at: int) -> bool:
        """Whether it has ended by then."""
        return any(each is not None and each <= at for each in (self.ended, self.gone))

    def waits(self, at: int) -> bool:
        """Whether it is behind our gate then."""
        left = min(each if each is not None else FOREVER for each in (self.released, self.going, self.gone))
        return self.gated and self.created <= at < left


@dataclass
class Ledger:
    """A budget as the auditor reads it."""

    name: str
    namespaces: set[str]
    labels: dict[str, str]
    quota: int
    window: int
    steps: list[tuple[int, str]]
    grace: int
    horizon: int
    cap: int
    in_dollars: bool = False
    """It has a quota in dollars too, or only that; the auditor reckons GPU-hours."""

    def counts(self, life: Life) -> bool:
        """Whether a pod is one of this budget's."""
        return life.namespace in self.namespaces and self.labels.items() <= life.labels.items()

    def share_of(self, action: str) -> int | None:
        """Where the ladder has this action."""
        return next((share for share, each in self.steps if each == action), None)

    @property
    def limit(self) -> int:
        """What may be reached by what is let start."""
        return self.quota * min([100, *(share for share, each in self.steps if each in ("Suspend", "Evict"))]) // 100


@dataclass
class Stop:
    """Something that ran, or was about to, was stopped by the operator."""

    at: int
    unit: str
    budget: str
    action: str
    lives: list[Life] = field(default_factory=list)

    def ran(self, longer_than: int = 0) -> bool:
        """Whether anything of it had started, and so long ago."""
        return any(each.started is not None and each.started <= self.at - longer_than for each in self.lives)


class Auditor:
    """Takes note of everything; `auditing.problems` judges it afterwards."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self.lives: dict[str, Life] = {}
        self.holds: dict[str, list[list[int]]] = {}
        """By budget: from when to when it let no new pods start."""
        self.victims: list[tuple[int, str, dict[str, Any]]] = []
        """When, whose, and what the status said."""
        self.unpriced: dict[tuple[str, str, str], float] = {}
        """By budget, unit and moment of such a choice: which part of the GPU time had no price then, as the status said."""
        self.stopped: dict[tuple[str, str, str], tuple[int, dict[str, Any]]] = {}
        """By budget, unit and moment: what its status says was stopped, and since when it says so."""
        self.counted: list[tuple[int, str, str, int]] = []
        """When, whose, and how many evictions of which owner the status counts."""
        self.exceeded: dict[str, list[list[int]]] = {}
        """By budget: from when to when its status said that the quota is reached."""
        self.suspended: list[Stop] = []
        self.resting: dict[str, list[list[int]]] = {}
        """By owner: from when to when it was suspended."""
        self.made: dict[str, int] = {}
        """When each owner was made."""
        self.paused: set[str] = set()
        self.end = 0
        server.store.subscribe(self._notice)

    # --- taking note ------------------------------------------------------------------------------------------------------------

    def _notice(self, change: Change) -> None:
        kind = change.type.kind
        if kind == "Pod":
            self._pod(change)
        elif kind in ("Job", "JobSet"):
            self._owner(change)
        elif kind == "BudgetHold":
            self._hold(change)
        elif kind == "GPUWorkloadBudget" and change.after is not None:
            self._budget(change.at, change.after)

    def _pod(self, change: Change) -> None:
        record = change.after or change.before
        assert record is not None
        body = record.body
        life = self.lives.get(record.uid)
        if life is None:
            life = self.lives[record.uid] = _life(body, change.at)
        metadata, notes = body["metadata"], body["metadata"].get("annotations") or {}
        states = [each["state"] for each in (body.get("status") or {}).get("containerStatuses") or []]
        runs = [state.get("running") or state.get("terminated") for state in states]
        if life.started is None:
            life.started = next((moment(run["startedAt"]) for run in runs if run), None)
        if life.ended is None and body["status"]["phase"] in ("Succeeded", "Failed"):
            finished = [moment(state["terminated"]["finishedAt"]) for state in states if "terminated" in state]
            life.ended = finished[0] if finished else change.at
        if life.going is None and metadata.get("deletionTimestamp"):
            life.going = change.at
        if life.gated and life.released is None and not _has_gate(body):
            life.released = change.at
        if MARK + "paused-at" in notes:
            self.paused.add(record.uid)
        if change.after is None:
            life.gone = change.at

    def _owner(self, change: Change) -> None:
        if change.after is None:
            return
        namespace, name = change.after.key
        unit = f"{change.type.kind}/{namespace}/{name}"
        self.made.setdefault(unit, change.at)
        before = change.before is not None and _is_suspended(change.before.body)
        after = _is_suspended(change.after.body)
        by = (change.after.body["metadata"].get("annotations") or {}).get(MARK + "suspended-by", "")
        if not before and after and by:
            lives = [each for each in self.lives.values() if each.unit == unit and not each.is_over(change.at)]
            kept = [each for each in lives if each.going is None]
            self.suspended.append(Stop(change.at, unit, by.partition("/")[2], "Suspend", kept))
            self.resting.setdefault(unit, []).append([change.at, FOREVER])
        elif before and not after and unit in self.resting:
            self.resting[unit][-1][1] = change.at

    def _hold(self, change: Change) -> None:
        record = change.after or change.before
        assert record is not None
        spans = self.holds.setdefault(record.body["spec"]["budget"], [])
        if change.before is None:
            spans.append([change.at, FOREVER])
        elif change.after is None:
            spans[-1][1] = change.at

    def _budget(self, at: int, record: Record) -> None:
        status, name = record.body.get("status") or {}, "/".join(record.key)
        victim, spans = status.get("victim"), self.exceeded.setdefault(name, [])
        verdicts = {each["type"]: each["status"] for each in status.get("conditions") or []}
        stands = bool(spans) and spans[-1][1] == FOREVER
        if verdicts.get("QuotaExceeded") == "True" and not stands:
            spans.append([at, FOREVER])
        elif verdicts.get("QuotaExceeded") != "True" and stands:
            spans[-1][1] = at
        if (
            victim
            and not victim.get("by")
            and not any(
                (each[1], each[2]["unit"], each[2]["at"]) == (name, victim["unit"], victim["at"])
                for each in self.victims
            )
        ):
            self.victims.append((at, name, victim))
            hours = [float(status.get(each) or 0) for each in ("unpricedGpuHours", "consumedGpuHours")]
            self.unpriced[name, victim["unit"], victim["at"]] = hours[0] / hours[1] if hours[1] else 0.0
        for each in status.get("stopped") or []:
            self.stopped.setdefault((name, each["unit"], each["at"]), (at, each))
        self.counted += [(at, name, each["owner"], each["count"]) for each in status.get("evictions") or []]

    # --- what was done ----------------------------------------------------------------------------------------------------------

    def evictions(self) -> Iterator[tuple[int, Life | None]]:
        """Every eviction that was granted, with the pod that was there then and not yet going."""
        by_name: dict[tuple[str, str], list[Life]] = {}
        for life in self.lives.values():
            by_name.setdefault((life.namespace, life.name), []).append(life)
        for each in self._server.trace.writes:
            path = each.path.partition("?")[0].split("/")
            if path[-1] == "eviction" and each.status == 201:
                found = [life for life in by_name[path[-4], path[-2]] if life.going == each.at]
                yield each.at, found[0] if found else None

    def stops(self) -> list[Stop]:
        """All that was stopped, by unit and in the order in which it was: evictions of one unit at one time are one."""
        found: dict[tuple[str, str], Stop] = {}
        for at, life in self.evictions():
            if life is None:
                continue
            mine = [each for each in self.victims if each[0] <= at and life.uid in each[2].get("uids", ())]
            budget, since = (mine[-1][1], mine[-1][2]["at"]) if mine else ("", str(at))
            stop = found.setdefault((life.unit, since), Stop(at, life.unit, budget, "Evict"))
            stop.lives.append(life)
        return sorted([*found.values(), *self.suspended], key=lambda each: each.at)

    # --- what is true -----------------------------------------------------------------------------------------------------------

    def runs(self, budget: Ledger, at: int) -> Iterator[tuple[int, int, int]]:
        """Everything that the budget counts and that was there by then, as begin, end and GPUs; what runs has no end yet."""
        for life in self.lives.values():
            if life.started is not None and life.started <= at and budget.counts(life):
                over = min(each if each is not None else FOREVER for each in (life.ended, life.gone))
                expected = FOREVER if life.length is None else max(at, life.started + life.length)
                if life.going is not None and life.going <= at:
                    expected = at  # it has only some seconds left
                yield life.started, over if over <= at else expected, life.gpus

    def used(self, budget: Ledger, at: int) -> int:
        """GPU-milliseconds in the window that ends then."""
        return _used(list(self.runs(budget, at)), at, budget.window)

    def fits(self, budgets: list[Ledger], lives: list[Life], at: int, spare: float = 0.0) -> bool:
        """Whether pods that start now keep within these budgets for as long as the shortest is taken to run, with so much to spare."""
        for budget in budgets:
            mine = [each for each in lives if budget.counts(each)]
            length = min((each.length or budget.horizon for each in mine), default=0)
            runs = list(self.runs(budget, at))
            beginning = [*mine, *(each for each in self._about_to_start(budget, at) if each not in mine)]
            runs += [(at, at + (each.length or FOREVER), each.gpus) for each in beginning]
            turns = {at, at + length, *(turn for begin, end, _ in runs for turn in (end, begin + budget.window))}
            moments = [each for each in turns if at <= each <= at + length]
            if any(_used(runs, each, budget.window) >= budget.limit * (1 - spare) for each in moments):
                return False
        return True

    def _about_to_start(self, budget: Ledger, at: int) -> Iterator[Life]:
        for life in self.lives.values():
            is_there = life.created <= at and not life.is_over(at) and (life.going is None or life.going > at)
            has_begun = life.started is not None and life.started <= at
            if is_there and not has_begun and not life.waits(at) and budget.counts(life):
                yield life


def _used(runs: list[tuple[int, int, int]], at: int, window: int) -> int:
    return sum(gpus * max(0, min(end, at) - max(begin, at - window)) for begin, end, gpus in runs)


def _life(body: dict[str, Any], at: int) -> Life:
    metadata = body["metadata"]
    labels, notes = metadata.get("labels") or {}, metadata.get("annotations") or {}
    owner = next((each for each in metadata.get("ownerReferences") or [] if each.get("controller")), None)
    namespace, name = metadata["namespace"], metadata["name"]
    of_owner = f"{owner['kind']}/{namespace}/{owner['name']}" if owner else ""
    unit = f"Pod/{namespace}/{name}"
    if labels.get(JOBSET):
        unit = f"JobSet/{namespace}/{labels[JOBSET]}"
    elif any(labels.get(each) for each in GANGS):
        unit = f"PodGroup/{namespace}/{next(labels[each] for each in GANGS if labels.get(each))}"
    elif of_owner.startswith("Job/"):
        unit = of_owner
    limits = body["spec"]["containers"][0]["resources"].get("limits") or {}
    return Life(
        uid=metadata["uid"],
        namespace=namespace,
        name=name,
        labels=labels,
        gpus=int(limits.get("nvidia.com/gpu", 0)),
        unit=unit,
        owner=of_owner,
        length=duration(notes.get(MARK + "expected-duration", "")),
        protected=MARK + "protected" in notes,
        created=at,
        gated=_has_gate(body),
    )


def _has_gate(body: dict[str, Any]) -> bool:
    return any(each["name"] == MARK + "budget" for each in body["spec"].get("schedulingGates") or [])


def _is_suspended(body: dict[str, Any]) -> bool:
    return bool(body["spec"].get("suspend"))
