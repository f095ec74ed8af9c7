"""Owners of pods that can be suspended become facts here: Jobs, JobSets, and the Workloads of Kueue."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from headroom.adapters.kube import amounts, raw, values
from headroom.api import durations, marks
from headroom.model import facts, times

_ENDED: Final = {"Complete", "Completed", "Failed"}
_STARTED: Final = {"Admitted", "QuotaReserved", "Finished"}
_NO_JOB: Final = raw.JobSpec()


def job_of(wire: raw.Job) -> facts.Workload:
    """A Job."""
    spec = wire.spec or _NO_JOB
    return structs.replace(
        _owner("Job", wire),
        parts=(_of_job(spec),),
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


def workload_of(wire: raw.Workload) -> facts.Workload:
    """A Workload of Kueue; its parts are its pod sets."""
    spec = wire.spec or raw.WorkloadSpec()
    return structs.replace(
        _owner("Workload", wire),
        parts=tuple(_part(each.template, _count(each.count)) for each in spec.pod_sets or ()),
        priority=values.priority(spec.priority),
        suspended=spec.active is False,
        admitted=_holds_any(wire.status, _STARTED),
        owner=_queued_for(wire),
        owner_uids=values.names(each.uid for each in (wire.metadata or raw.ObjectMeta()).owner_references or ()),
    )


def _queued_for(wire: raw.Object) -> str:
    meta = wire.metadata or raw.ObjectMeta()
    owner = next((each for each in meta.owner_references or () if each.controller), None)
    return f"{owner.kind}/{meta.namespace or 'default'}/{owner.name}" if owner is not None else ""


def _owner(kind: str, wire: raw.Object) -> facts.Workload:
    meta = wire.metadata or raw.ObjectMeta()
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


def _released_at(meta: raw.ObjectMeta) -> int | None:
    if (marks.SUSPENDED, marks.LET_GO) not in values.pairs(meta.labels):
        return None
    # A mark that does not say when is as old as can be, so that it does not stay.
    return values.moment((meta.annotations or {}).get(marks.RELEASED_AT)) or 0


def _of_job(spec: raw.JobSpec, replicas: int = 1) -> facts.Part:
    count = _count(spec.parallelism)
    if spec.completions is not None:
        count = min(count, _count(spec.completions))  # no more pods than are still to complete
    return _part(spec.template, count * replicas)


def _of_replicas(wire: raw.ReplicatedJob) -> facts.Part:
    spec = wire.template.spec if wire.template else None
    return _of_job(spec or _NO_JOB, _count(wire.replicas))


def _part(template: raw.PodTemplate | None, count: int) -> facts.Part:
    meta = (template.metadata if template else None) or raw.ObjectMeta()
    spec = (template.spec if template else None) or raw.PodSpec()
    limit = values.length(spec.active_deadline_seconds)
    # A declared length becomes the limit of each pod when it is made.
    declared = durations.milliseconds((meta.annotations or {}).get(marks.EXPECTED_DURATION, ""))
    ends = [each for each in (limit, declared) if each is not None]
    overtime = times.overtime(values.grace(spec.termination_grace_period_seconds))
    return facts.Part(
        labels=values.pairs(meta.labels),
        requests=amounts.requested(spec),
        claims=values.names(dict.fromkeys(each.resource_claim_name for each in spec.resource_claims or ())),
        claim_templates=values.names(each.resource_claim_template_name for each in spec.resource_claims or ()),
        count=count,
        deadline=min(ends) + overtime if ends else None,
    )


def _count(given: int | None) -> int:
    return 1 if given is None else max(0, given)


def _holds_any(status: raw.Conditions | None, types: set[str]) -> bool:
    return any(each.status == "True" and each.type in types for each in (status.conditions if status else None) or ())
