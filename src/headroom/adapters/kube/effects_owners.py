"""What is done to owners of pods: suspended, and resumed again."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from headroom.adapters.kube import paths, raw, values
from headroom.adapters.kube.budget_check import check_unchanged
from headroom.adapters.kube.changing import ChangeOutcome, Patch, change, labels, meta, notes, read, split
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.effects_pods import SYSTEM
from headroom.adapters.kube.telling import CHORES, ClusterView, Telling
from headroom.api import marks
from headroom.api.budgets import GPUWorkloadBudget, GPUWorkloadBudgetSpec
from headroom.api.kinds import AnyResource
from headroom.api.releases import ReleaseRequest
from headroom.model import actions, times
from headroom.model.errors import Refused
from headroom.model.handlers import carries_out
from headroom.model.ports import Clock
from headroom.model.selectors import may_select
from headroom.model.world import ref_of

_RELEASING = (GPUWorkloadBudget.kind.name, ReleaseRequest.kind.name)


class _Switch(raw.RawPart):
    suspend: bool | None = None
    """Of a Job or JobSet."""
    active: bool | None = None
    """Of a Workload of Kueue."""
    template: raw.PodTemplate | None = None
    """Of a Job."""
    replicated_jobs: list[raw.ReplicatedJob] | None = None
    """Of a JobSet."""
    pod_sets: list[raw.PodSet] | None = None
    """Of a Workload."""

    @property
    def templates(self) -> Iterator[raw.PodTemplate]:
        """Of all pods that it makes."""
        jobs = (each.template.spec for each in self.replicated_jobs or () if each.template)
        every = [
            self.template,
            *(job.template for job in jobs if job),
            *(each.template for each in self.pod_sets or ()),
        ]
        return (each for each in every if each is not None)


class OwnerObject(raw.Object):
    """What is read of an owner before it is suspended or resumed."""

    spec: _Switch | None = None

    def makes(self, job: str) -> bool:
        """Whether a JobSet makes a Job of this name."""
        head, _, index = job.rpartition("-")
        parts = (self.spec.replicated_jobs if self.spec else None) or ()
        counts = (
            1 if each.replicas is None else each.replicas for each in parts if head == f"{meta(self).name}-{each.name}"
        )
        return index.isascii() and index.isdigit() and any(int(index[:10]) < count for count in counts)

    @property
    def is_suspended(self) -> bool:
        """Whether it makes no pods now."""
        return self.spec is not None and (bool(self.spec.suspend) or self.spec.active is False)


class OwnerEffects:
    """Changes owners, and says so on them."""

    def __init__(self, kube: Kube, clock: Clock, view: ClusterView, telling: Telling) -> None:
        self._kube, self._clock, self._view, self._telling = kube, clock, view, telling

    @carries_out(actions.SuspendOwner)
    async def suspend(self, action: actions.SuspendOwner, resource: AnyResource) -> None:
        """It takes its pods away. What somebody else has suspended stays as it is, and is theirs."""
        namespace, _ = split(action.object)
        action = await self._resolved(action) if action.job else action
        doing = f"suspending {action.kind} {action.object}"
        if namespace == SYSTEM:
            raise Refused(f"{doing}: it belongs to the cluster itself")
        if namespace == self._view.world(self._clock.now()).own_namespace:
            raise Refused(f"{doing}: it is in Headroom's own namespace")
        await check_unchanged(self._kube, resource, doing)

        def suspended(owner: OwnerObject) -> Patch | None:
            if owner.is_suspended:
                return None
            if not _may_make_pods_of(resource, owner):
                # Anybody may write an owner into a pod: its own word counts.
                raise Refused(f"{doing}: budget {resource.namespace}/{resource.name} covers none of its pods")
            by, at = str(ref_of(resource)), times.text(self._clock.now())
            return _switched(action.kind, on=False) | _marked("true", by=by, suspended_at=at)

        outcome, owner = await change(self._kube, _path(action), OwnerObject, suspended, uid=action.uid)
        if outcome is ChangeOutcome.GONE:
            # Another one of the same name may be there: whether that one goes is decided anew.
            raise Refused(f"suspending {action.kind} {action.object}: it is gone")
        await self._tell(action, outcome, owner, "Suspended", resource)

    async def _resolved(self, action: actions.SuspendOwner) -> actions.SuspendOwner:
        """The JobSet by its uid, if the Job is one that it makes; else the Job itself.

        Whoever makes a Job names it, and gives its pods any label: those of a JobSet that is not there would never stop.
        """
        namespace, name = split(action.object)
        job = await read(self._kube, paths.owner("Job", namespace, action.job), OwnerObject)
        if job is None or meta(job).uid != action.job_uid:
            raise Refused(f"suspending {action.kind} {action.object}: its Job {action.job} is gone")
        group = f"{paths.OWNERS['JobSet'][0]}/"
        of = next((each for each in meta(job).owner_references or () if each.controller), None)
        if of is not None and (of.kind, of.name) == ("JobSet", name) and (of.api_version or "").startswith(group):
            found = await read(self._kube, paths.owner("JobSet", namespace, name), OwnerObject)
            if found is not None and meta(found).uid == of.uid and found.makes(action.job):
                return structs.replace(action, uid=of.uid or "")
        return structs.replace(action, kind="Job", object=f"{namespace}/{action.job}", uid=action.job_uid)

    @carries_out(actions.ResumeOwner)
    async def resume(self, action: actions.ResumeOwner, resource: AnyResource) -> None:
        """Let it make its pods again, if it was us who suspended it. What a budget releases keeps a mark until chores take it away."""

        def undone(owner: OwnerObject) -> Patch | None:
            by = notes(owner).get(marks.SUSPENDED_BY, "")
            # Whoever of all budgets finds that it fits lets it go, whichever of them had suspended it; or somebody asks for it.
            if by.startswith(f"{GPUWorkloadBudget.kind.name}/") and resource.kind in _RELEASING:
                return let_go(action.kind, owner, times.text(self._clock.now()))
            patch = unmarked(action.kind, owner) if resource.kind == CHORES else None
            if patch is None and owner.is_suspended:
                who = by or "somebody else"
                raise Refused(f"resuming {action.kind} {action.object}: {who} suspended it")
            return patch

        outcome, owner = await change(self._kube, _path(action), OwnerObject, undone, uid=action.uid)
        if owner is not None and marks.SUSPENDED_BY in notes(owner):  # else it went on before, and lost only a mark
            await self._tell(action, outcome, owner, "Resumed", resource)

    async def _tell(
        self,
        action: actions.OnOwner,
        outcome: ChangeOutcome,
        owner: OwnerObject | None,
        reason: str,
        resource: AnyResource,
    ) -> None:
        if outcome is ChangeOutcome.CHANGED and owner is not None:
            group, version, _ = paths.OWNERS[action.kind]
            await self._telling.tell(owner, f"{group}/{version}", action.kind, reason, resource)


def let_go(kind: str, owner: OwnerObject, at: str) -> Patch:
    """The patch that lets an owner make its pods again, and says when: for a while it is neither stopped nor held again.

    It says of which generation that is true: the one that the patch itself makes, since it is sent for this version only.
    """
    generation = (meta(owner).generation or 0) + (1 if owner.is_suspended else 0)
    return _switched(kind, on=True) | _marked(marks.LET_GO, released_at=at, generation=str(generation))


def unmarked(kind: str, owner: OwnerObject) -> Patch | None:
    """The patch that takes our marks from an owner, and lets it make its pods again if it was us who suspended it."""
    if marks.SUSPENDED_BY in notes(owner):
        return _switched(kind, on=True) | _marked(None)
    return _marked(None) if marks.SUSPENDED in labels(owner) else None


def _may_make_pods_of(budget: AnyResource, owner: OwnerObject) -> bool:
    """Whether a budget may cover the pods of an owner. More labels may be added when a pod is made."""
    templates = list(owner.spec.templates) if owner.spec else []
    labels = [values.pairs((each.metadata or raw.RawObjectMeta()).labels) for each in templates]
    selector = budget.spec.selector if isinstance(budget.spec, GPUWorkloadBudgetSpec) else None
    return selector is None or not labels or any(may_select(selector, each) for each in labels)


def _marked(
    label: str | None,
    *,
    by: str | None = None,
    suspended_at: str | None = None,
    released_at: str | None = None,
    generation: str | None = None,
) -> Patch:
    """With these marks of ours, and no others."""
    annotations = {marks.SUSPENDED_BY: by, marks.SUSPENDED_AT: suspended_at}
    annotations |= {marks.RELEASED_AT: released_at, marks.RELEASED_GENERATION: generation}
    return {"metadata": {"labels": {marks.SUSPENDED: label}, "annotations": annotations}}


def _switched(kind: str, *, on: bool) -> Patch:
    return {"spec": {"active": on} if kind == "Workload" else {"suspend": not on}}


def _path(action: actions.OnOwner) -> str:
    if action.kind not in paths.OWNERS:
        can = ", ".join(paths.OWNERS)
        raise Refused(f"{type(action).__name__} {action.kind} {action.object}: only these can be suspended: {can}")
    return paths.owner(action.kind, *split(action.object))
