"""CronJobs become facts here, and what templates of pods only name: PriorityClasses, and the ResourceFlavors of Kueue."""

from __future__ import annotations

from typing import Final

from msgspec import Raw

from headroom.adapters.kube import parse, raw, values, workloads
from headroom.model import batch_facts, facts

LONGEST_SCHEDULE: Final = 256
MOST_ACTIVE: Final = 1_000
"""Jobs of one CronJob that are kept; the newest are at the end."""
_QUEUE: Final = "kueue.x-k8s.io/queue-name"
_OURS: Final = ("", "kubernetes.io/job-controller")
_META: Final = raw.RawObjectMeta()


class _Template(raw.Object):
    spec: raw.JobSpec | None = None


class _CronSpec(raw.RawPart):
    schedule: str | None = None
    time_zone: str | None = None
    suspend: bool | None = None
    concurrency_policy: str | None = None
    starting_deadline_seconds: int | None = None
    job_template: _Template | None = None


class _Reference(raw.RawPart):
    name: str | None = None
    uid: str | None = None


class _CronStatus(raw.RawPart):
    active: list[_Reference] | None = None
    last_schedule_time: str | None = None


class CronJobWire(raw.Object):
    """A CronJob as it stands on the wire."""

    spec: _CronSpec | None = None
    status: _CronStatus | None = None


class PriorityClassWire(raw.Object):
    """A PriorityClass as it stands on the wire."""

    value: int | None = None
    global_default: bool | None = None


class _FlavorSpec(raw.RawPart):
    node_labels: Raw = raw.NOTHING
    tolerations: Raw = raw.NOTHING


class FlavorWire(raw.Object):
    """A ResourceFlavor as it stands on the wire."""

    spec: _FlavorSpec | None = None


def cron_job_of(wire: CronJobWire) -> batch_facts.CronJob:
    """The CronJob as a fact."""
    meta, spec, status = wire.metadata or _META, wire.spec or _CronSpec(), wire.status or _CronStatus()
    template = spec.job_template or _Template()
    job = template.spec or raw.JobSpec()
    namespace, name, schedule = meta.namespace or "default", meta.name or "", spec.schedule or ""
    active = [(each.name, each.uid) for each in status.active or () if each.name and each.uid]
    deadline = spec.starting_deadline_seconds
    return batch_facts.CronJob(
        uid=meta.uid or f"{namespace}/{name}",
        namespace=namespace,
        name=name,
        resource_version=meta.resource_version or "",
        created=values.moment(meta.creation_timestamp) or 0,
        schedule=values.one(schedule) if len(schedule) <= LONGEST_SCHEDULE else "",
        time_zone=values.one(spec.time_zone or ""),
        suspended=bool(spec.suspend or job.suspend)
        or (job.managed_by or "") not in _OURS
        or meta.deletion_timestamp is not None,
        deadline=None if deadline is None else max(0, min(deadline, 2**31)) * 1000,
        is_alone=spec.concurrency_policy in ("Forbid", "Replace"),
        ran_at=values.moment(status.last_schedule_time),
        active=tuple(active[-MOST_ACTIVE:]),
        queue=dict(values.pairs((template.metadata or _META).labels)).get(_QUEUE, ""),
        part=workloads.part_of_job(job),
    )


def has_gpus(fact: batch_facts.CronJob) -> bool:
    """Whether its pods may ask for GPUs: of others nothing is kept."""
    return workloads.may_have_gpus(fact.part)


def priority_class_of(wire: PriorityClassWire) -> batch_facts.PriorityClass:
    """The PriorityClass as a fact."""
    meta = wire.metadata or _META
    name = meta.name or ""
    return batch_facts.PriorityClass(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        value=values.priority(wire.value),
        is_default=bool(wire.global_default),
    )


def flavor_of(wire: FlavorWire) -> batch_facts.Flavor:
    """The ResourceFlavor as a fact."""
    meta, spec = wire.metadata or _META, wire.spec or _FlavorSpec()
    name = meta.name or ""
    tolerations: facts.Shape = parse.shape_of(raw.PodSpec(tolerations=spec.tolerations))
    return batch_facts.Flavor(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        labels=values.pairs(spec.node_labels),
        tolerations=tolerations.tolerations,
    )
