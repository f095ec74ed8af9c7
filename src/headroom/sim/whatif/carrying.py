"""Carries out decisions: each action by its name, as the production effects would; actions without an effect here are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

from msgspec import structs

from headroom.api import marks
from headroom.api.budget_hold import hold_name
from headroom.api.kinds import AnyResource
from headroom.model import actions, times
from headroom.model.actions import Action
from headroom.model.facts import Hold, Pod, Workload, WorkloadPart
from headroom.model.handlers import carries_out, handlers_of
from headroom.model.world import ref_of
from headroom.sim.whatif.cluster import BUDGET, ReplayCluster, note
from headroom.sim.whatif.lives import EVICTED, SUSPENDED

SILENT: Final = (actions.EmitEvent, actions.RemoveFinalizer)
"""Messages and clean-up: they have no effect in a replay."""


class Hands:
    """Carries out the decisions of plans on a cluster."""

    def __init__(self, cluster: ReplayCluster) -> None:
        self._cluster = cluster
        self._do: dict[type[Action], Callable[[Any, AnyResource | None], bool]] = handlers_of(self, *cluster.outside)

    def carry_out(self, due: Iterable[Action], by: AnyResource | None) -> None:
        """Carry out an action; `by` is the resource that decided it, None for chores."""
        for action in due:
            if isinstance(action, SILENT):
                continue
            do = self._do.get(type(action))
            if do is None or do(action, by):
                # An action without a stand-in, such as buying a machine, counts as done.
                who = "" if by is None else f"{by.namespace}/{by.name}"
                self._cluster.log.done[type(action).__name__, who] += 1

    # --- holds ------------------------------------------------------------------------------------------------------------

    @carries_out(actions.ApplyBudgetHold)
    def _hold(self, action: actions.ApplyBudgetHold, _by: AnyResource | None) -> bool:
        cluster, name = self._cluster, hold_name(action.budget)
        spec = structs.replace(action.spec, because=action.because)
        cluster.holds[name] = Hold(name=name, created=cluster.now, spec=spec)
        return self._acted()

    @carries_out(actions.DeleteBudgetHold)
    def _unhold(self, action: actions.DeleteBudgetHold, _by: AnyResource | None) -> bool:
        return self._cluster.holds.pop(hold_name(action.budget), None) is not None and self._acted()

    @carries_out(actions.ApplyBudgetIndex)
    def _write_index(self, action: actions.ApplyBudgetIndex, _by: AnyResource | None) -> bool:
        self._cluster.index = action.budgets
        return True

    # --- pods -------------------------------------------------------------------------------------------------------------

    @carries_out(actions.ReleasePod)
    def _release(self, action: actions.ReleasePod, _by: AnyResource | None) -> bool:
        pod = self._cluster.pods.get(action.uid)
        if pod is None or marks.GATE not in pod.gates:
            return False
        told = {marks.RELEASED_AT: times.text(self._cluster.now), marks.HELD_BY: "", marks.HELD_BECAUSE: ""}
        self._cluster.pods.put(structs.replace(_annotated(pod, told), gates=()))
        self._cluster.living[action.uid].released = self._cluster.now
        self._cluster.lift(action.uid)
        return self._acted()

    @carries_out(actions.PausePod)
    def _pause(self, action: actions.PausePod, by: AnyResource | None) -> bool:
        pod = self._cluster.pods.get(action.uid)
        if pod is None or by is None or note(pod, marks.PAUSED_AT):
            return False
        marked = {marks.PAUSED_AT: times.text(self._cluster.now), marks.PAUSED_BY: str(ref_of(by))}
        return self._cluster.pods.put(_annotated(pod, marked))

    @carries_out(actions.ResumePod)
    def _resume(self, action: actions.ResumePod, by: AnyResource | None) -> bool:
        pod = self._cluster.pods.get(action.uid)
        if pod is None:
            return False
        is_paused = bool(note(pod, marks.PAUSED_BY))
        marked = {marks.PAUSED_AT: "", marks.PAUSED_BY: ""} | ({marks.RELEASED_AT: ""} if by is None else {})
        self._cluster.pods.put(_annotated(pod, marked))
        return is_paused

    @carries_out(actions.EvictPod, actions.DeletePod)
    def _evict(self, action: actions.EvictPod | actions.DeletePod, _by: AnyResource | None) -> bool:
        pod, life = self._cluster.pods.get(action.uid), self._cluster.living.get(action.uid)
        if pod is None or life is None or pod.deleting is not None:
            return False
        self._cluster.stop(action.uid, EVICTED)
        # Its owner creates a new one at once, while the old one is terminating.
        self._cluster.make(life.work)
        return self._acted()

    # --- owners -----------------------------------------------------------------------------------------------------------

    @carries_out(actions.SuspendOwner)
    def _suspend(self, action: actions.SuspendOwner, by: AnyResource | None) -> bool:
        cluster, key = self._cluster, f"{action.kind}/{action.object}"
        works, known = cluster.of_owner.get(key), cluster.workloads.get(key)
        if not works or by is None or (known is not None and known.suspended):
            return False
        namespace, _, name = action.object.partition("/")
        kinds = Counter((work.labels, work.shape.requests, work.deadline) for work in works)
        cluster.workloads[key] = Workload(
            kind=action.kind,
            uid=key,
            namespace=namespace,
            name=name,
            created=min(work.arrives for work in works),
            parts=tuple(
                WorkloadPart(labels=labels, requests=requests, count=count, deadline=deadline)
                for (labels, requests, deadline), count in kinds.items()
            ),
            suspended=True,
            suspended_by=str(ref_of(by)),
        )
        wanted = {id(work) for work in works}
        for uid in [uid for uid, life in cluster.living.items() if id(life.work) in wanted]:
            cluster.stop(uid, SUSPENDED)
        return self._acted()

    @carries_out(actions.ResumeOwner)
    def _let_go(self, action: actions.ResumeOwner, by: AnyResource | None) -> bool:
        cluster, key = self._cluster, f"{action.kind}/{action.object}"
        owner = cluster.workloads.get(key)
        if owner is None:
            return False
        if by is None:
            del cluster.workloads[key]
        else:
            cluster.workloads[key] = structs.replace(owner, suspended=False, suspended_by="", released_at=cluster.now)
        if not owner.suspended:
            return False  # it was running already, and lost only an annotation
        for work in list(cluster.of_owner.get(key, ())):
            cluster.make(work)
        return self._acted()

    def _acted(self) -> bool:
        self._cluster.urgent.add(BUDGET)
        return True


def _annotated(pod: Pod, told: dict[str, str]) -> Pod:
    """The pod with these annotations; an empty value removes one."""
    kept = dict(pod.annotations) | told
    return structs.replace(pod, annotations=tuple(sorted((key, value) for key, value in kept.items() if value)))
