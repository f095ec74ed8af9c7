"""Owners of pods that can be suspended become facts here: Jobs, JobSets, and the Workloads of Kueue."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from msgspec import structs

from headroom.adapters.kube import amounts, parse, raw, values
from headroom.api import durations, marks
from headroom.model import facts, times

_ENDED: Final = {"Complete", "Completed", "Failed"}
_STARTED: Final = {"Admitted", "QuotaReserved", "Finished"}
_LET: Final = ("QuotaReserved", "Admitted")
_STOPPED: Final = {"Finished", "Evicted"}
_NO_JOB: Final = raw.JobSpec()


def job_of(wire: raw.Job) -> facts.Workload:
    """A Job."""
    spec = wire.spec or _NO_JOB
    return structs.replace(
        _owner("Job", wire),
        parts=(part_of_job(spec, wire.status.succeeded if wire.status else None),),
        suspended=bool(spec.suspend),
        admitted=_holds_any(wire.status, _ENDED),
    )


def job_set_of(wire: raw.JobSet) -> facts.Workload:
    """A JobSet; its parts are its replicated jobs."""
    spec = wire.spec or raw.JobSetSpec()
    return structs.replace(
        _owner("JobSet", wire),
        parts=tuple(_of_replicas(each) for each in spec.replicated_jobs or ()),
        suspended=bool(spec.suspend),
        admitted=_holds_any(wire.status, _ENDED),
    )


def workload_of(wire: raw.RawWorkload) -> facts.Workload:
    """A Workload of Kueue; its parts are its pod sets."""
    spec = wire.spec or raw.WorkloadSpec()
    return structs.replace(
        _owner("Workload", wire),
        parts=tuple(_of_pod_set(each, wire.status) for each in spec.pod_sets or ()),
        priority=values.priority(spec.priority),
        suspended=spec.active is False,
        admitted=_holds_any(wire.status, _STARTED),
        reserved_at=_reserved_at(wire.status),
        owner=_queued_for(wire),
        owner_uids=values.names(each.uid for each in (wire.metadata or raw.RawObjectMeta()).owner_references or ()),
    )


def _queued_for(wire: raw.Object) -> str:
    meta = wire.metadata or raw.RawObjectMeta()
    owner = next((each for each in meta.owner_references or () if each.controller), None)
    return f"{owner.kind}/{meta.namespace or 'default'}/{owner.name}" if owner is not None else ""


def _owner(kind: str, wire: raw.Object) -> facts.Workload:
    meta = wire.metadata or raw.RawObjectMeta()
    namespace, name = meta.namespace or "default", meta.name or ""
    return facts.Workload(
        kind=kind,
        uid=meta.uid or f"{namespace}/{name}",
        namespace=namespace,
        name=name,
        resource_version=meta.resource_version or "",
        created=values.moment(meta.creation_timestamp) or 0,
        suspended_by=(meta.annotations or {}).get(marks.SUSPENDED_BY, ""),
        released_at=_released_at(meta),
        generation=meta.generation or 0,
        is_as_released=(meta.annotations or {}).get(marks.RELEASED_GENERATION) == str(meta.generation),
    )


def _released_at(meta: raw.RawObjectMeta) -> int | None:
    if (marks.SUSPENDED, marks.LET_GO) not in values.pairs(meta.labels):
        return None
    # A mark that does not say when is as old as can be, so that it does not stay.
    return values.moment((meta.annotations or {}).get(marks.RELEASED_AT)) or 0


def part_of_job(spec: raw.JobSpec, succeeded: int | None = None, replicas: int = 1) -> facts.WorkloadPart:
    """What a Job makes; no more pods than are still to complete."""
    count = _count(spec.parallelism)
    left = None if spec.completions is None else max(0, _count(spec.completions) - (succeeded or 0))
    if spec.completions is not None:
        count = min(count, _count(spec.completions))
    part = _part(spec.template, count * replicas)
    return part if left is None or left >= count else structs.replace(part, left=left)


def _of_replicas(wire: raw.ReplicatedJob) -> facts.WorkloadPart:
    spec = wire.template.spec if wire.template else None
    return part_of_job(spec or _NO_JOB, replicas=_count(wire.replicas))


def _of_pod_set(wire: raw.PodSet, status: raw.WorkloadStatus | None) -> facts.WorkloadPart:
    part = _part(wire.template, _count(wire.count))
    given = status.admission.pod_set_assignments if status and status.admission else None
    flavors = next((each.flavors for each in given or () if each.name == wire.name), None)
    if part.shape is None or not flavors:
        return part
    return structs.replace(part, flavors=values.names(sorted(set(flavors.values()))))


def _reserved_at(status: raw.WorkloadStatus | None) -> int | None:
    """When Kueue last let it go a step further; None if it has not, or is over with it."""
    holds = {each.type: each for each in (status.conditions if status else None) or () if each.status == "True"}
    if holds.keys().isdisjoint(_LET) or not holds.keys().isdisjoint(_STOPPED):
        return None
    moments = [values.moment(holds[type_].last_transition_time) for type_ in _LET if type_ in holds]
    return max((each for each in moments if each is not None), default=None)


def _part(template: raw.PodTemplate | None, count: int) -> facts.WorkloadPart:
    meta = (template.metadata if template else None) or raw.RawObjectMeta()
    spec = (template.spec if template else None) or raw.TemplateSpec()
    limit = values.length(spec.active_deadline_seconds)
    # A declared length becomes the limit of each pod when it is made.
    declared = durations.milliseconds((meta.annotations or {}).get(marks.EXPECTED_DURATION, ""))
    ends = [each for each in (limit, declared) if each is not None]
    overtime = times.overtime(values.grace(spec.termination_grace_period_seconds))
    part = facts.WorkloadPart(
        labels=values.pairs(meta.labels),
        requests=amounts.requested(spec),
        claims=values.names(dict.fromkeys(each.resource_claim_name for each in spec.resource_claims or ())),
        claim_templates=values.names(each.resource_claim_template_name for each in spec.resource_claims or ()),
        count=count,
        deadline=min(ends) + overtime if ends else None,
    )
    if not may_have_gpus(part):
        return part
    return structs.replace(
        part,
        shape=_one(parse.shape_of(spec)),
        annotations=values.kept_annotations(meta.annotations),
        priority_class=values.one(spec.priority_class_name or ""),
        is_gated=bool(spec.scheduling_gates),
    )


def may_have_gpus(part: facts.WorkloadPart) -> bool:
    """Whether pods ask for devices of any kind: which of them are GPUs, pools say."""
    return bool(part.claims or part.claim_templates) or any("/" in name for name, amount in part.requests if amount)


@lru_cache(maxsize=4096)
def _one(shape: facts.Shape) -> facts.Shape:
    """One object for equal shapes. The least used are forgotten, so unique ones cannot pile up."""
    return shape


def _count(given: int | None) -> int:
    return 1 if given is None else max(0, given)


def _holds_any(status: raw.Conditions | None, types: set[str]) -> bool:
    return any(each.status == "True" and each.type in types for each in (status.conditions if status else None) or ())
