"""A snapshot as a case: its usage rows are the work, its nodes the machines, its resources the policies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
from msgspec import structs

from headroom.api import durations, marks
from headroom.api.power import PowerPool
from headroom.api.releases import ReleaseRequest
from headroom.core import usage
from headroom.model import times
from headroom.model.facts import Amounts, Owner, Pairs, Pod, Shape
from headroom.model.gangs import SUSPENDABLE
from headroom.model.usage import Ending, PodDetails, UsageRow
from headroom.model.world import FACTS, World
from headroom.sim.whatif import metal
from headroom.sim.whatif.work import Case, Recorded, RequestedPod, cut, named, owner_of

JOB_NAMES: Final = ("batch.kubernetes.io/job-name", "job-name")
"""Labels that a Job sets on its pods: all that a usage row keeps about the owner."""
KEPT: Final = (marks.EXPECTED_DURATION, marks.PROTECTED)
"""Annotations set by users; all others describe effects in the record."""
PLAYED: Final = frozenset(
    {"namespaces", "machines", "calls", "holds", "workloads", "claims"}
    | {"instances", "node_pools", "node_claims", "cron_jobs"}
)
"""Facts that a case has for itself or makes anew, and those of others whom nobody plays: Karpenter, the CronJob controller. All others are as they were."""
ANY_TAINT: Final = '[{"operator":"Exists"}]'
_OF_NAMESPACE: Final = "@"
_ENDED: Final = ("Succeeded", "Failed")


def read(world: World, title: str, days: float | None, team_label: str = "") -> Case:
    """The last days of a snapshot as a case."""
    nodes, asleep = metal.woken((node for node in world.nodes if node.deleting is None), world.resources.values())
    case = Case(
        title=title,
        begin=0,
        end=world.as_of,
        nodes=nodes,
        machines=dict(world.machines) | asleep,
        cluster=world.cluster,
        own_namespace=world.own_namespace,
        namespaces=world.namespaces,
        prices=world.prices,
        facts={name: getattr(world, name) for name in FACTS if name not in PLAYED},
        caps=world.caps,
        bandwidth=world.bandwidth,
        hold_problem=world.hold_problem,
        # A ReleaseRequest is carried out once, so it is not a policy to replay.
        resources={
            ref: each
            for ref, each in world.resources.items()
            if each.spec is not None and not each.deleting and ref.kind != ReleaseRequest.kind.name
        },
        team_label=team_label,
    )
    records = [*_ran(world), *_waits(world)]
    if asleep:
        case.notes.append(
            f"PowerPool machines off at the end of the record: {len(asleep)}. A replay starts with them off, or on without their pool."
        )
    case.notes += list(_counted(world))
    _remark(case, world, records)
    cut(case, records, days)
    case.history += [row for row in world.usage if row.cluster != world.cluster]
    return case


def _counted(world: World) -> Iterator[str]:
    """How the energy of a replay differs from the energy that pools have counted."""
    for ref, each in world.of_kind(PowerPool.kind.name):
        energy = each.status.energy
        if energy is not None:
            yield (
                f"{ref} itself has counted {_kwh(energy.used_kwh)} used and {_kwh(energy.saved_kwh)} saved up to {energy.as_of}, "
                "since the operator began to watch it. The energy above is that of the replay, over the whole record and with pods "
                "on other machines."
            )


def _kwh(amount: str) -> str:
    return f"{float(amount):,.1f} kWh"


def _ran(world: World) -> Iterator[Recorded]:
    """Every pod that ran, from its usage rows."""
    rows: dict[str, list[UsageRow]] = {}
    for row in world.usage:
        if row.cluster == world.cluster:
            rows.setdefault(row.uid, []).append(row)
    for uid, found in sorted(rows.items()):
        found.sort(key=lambda row: row.start)
        pod, last = world.pods.get(uid), found[-1]
        runs_on = pod is not None and pod.phase not in _ENDED and last.closed is None
        end = None if runs_on else last.closed if last.closed is not None else last.seen_until
        start = found[0].start
        arrives = found[0].created if 0 < found[0].created <= start else start
        length = None if end is None else max(0, end - start)
        ran = (world.as_of if end is None else end) - start
        work = _believed(_work(last, pod, arrives, length), ran)
        was_stopped = end is not None and last.ending in (Ending.DELETED, Ending.EVICTED)
        yield Recorded(work=work, start=start, end=end, rows=tuple(found), was_stopped=was_stopped)


def _believed(work: RequestedPod, ran: int) -> RequestedPod:
    """Work without its declared length if it ran longer: nothing stopped it in the record, so nothing may in the replay."""
    declared = durations.milliseconds(dict(work.annotations).get(marks.EXPECTED_DURATION, ""))
    if declared is None or ran <= declared:
        return work
    return structs.replace(
        work, annotations=tuple(pair for pair in work.annotations if pair[0] != marks.EXPECTED_DURATION)
    )


def _work(row: UsageRow, pod: Pod | None, arrives: int, length: int | None) -> RequestedPod:
    labels: Pairs = tuple(pair for pair in row.labels if not pair[0].startswith(_OF_NAMESPACE))
    amounts = named(row.amounts)
    details = PodDetails.of(row)
    if pod is not None:
        work = _of_pod(pod, arrives, length, amounts, row.price)
        return structs.replace(work, instance_type=details.instance_type)
    owner = _owner(row.namespace, row.pod, labels)
    if details.owner_uid:
        kind = details.owner_kind
        owner = Owner(kind, details.owner_name, details.owner_uid, SUSPENDABLE.get(kind, ""))
    told = () if details.declared is None else ((marks.EXPECTED_DURATION, f"{details.declared // times.SECOND}s"),)
    return RequestedPod(
        name=row.pod,
        namespace=row.namespace,
        owner=owner,
        arrives=arrives,
        length=length,
        labels=labels,
        annotations=told,
        shape=shape_of(amounts, details),
        price=row.price,
        instance_type=details.instance_type,
    )


def shape_of(amounts: Amounts, details: PodDetails) -> Shape:
    """The nodes that a pod could run on: those of its node selector, or without one, those like the one that it ran on.

    What it tolerated is not known, but it was let in there.
    """
    if not details.node_selector and not details.instance_type:
        return Shape(requests=amounts)
    selector = details.node_selector or ((usage.INSTANCE_TYPE[0], details.instance_type),)
    return Shape(requests=amounts, node_selector=selector, tolerations=ANY_TAINT)


def _of_pod(pod: Pod, arrives: int, length: int | None, amounts: Amounts, price: int | None) -> RequestedPod:
    shape = pod.shape
    requests = tuple(sorted((dict(amounts) | dict(shape.requests)).items()))
    return RequestedPod(
        name=pod.name,
        namespace=pod.namespace,
        owner=pod.owner or _owner(pod.namespace, pod.name, pod.labels),
        arrives=arrives,
        length=length,
        labels=pod.labels,
        annotations=tuple(pair for pair in pod.annotations if pair[0] in KEPT),
        shape=Shape(
            requests=requests,
            node_selector=shape.node_selector,
            affinity=shape.affinity,
            tolerations=shape.tolerations,
        ),
        priority=pod.priority,
        deadline=pod.deadline,
        grace_seconds=pod.grace_seconds,
        price=price,
    )


def _waits(world: World) -> Iterator[Recorded]:
    """Pods that had not started by the end of the record: they run for their declared length."""
    known = {row.uid for row in world.usage}
    for pod in sorted(world.pods, key=lambda each: each.uid):
        if pod.phase == "Pending" and pod.deleting is None and pod.started is None and pod.uid not in known:
            told = durations.milliseconds(dict(pod.annotations).get(marks.EXPECTED_DURATION, ""))
            both = [each for each in (told, pod.deadline) if each is not None]
            work = _of_pod(pod, pod.created, min(both, default=None), pod.shape.requests, None)
            yield Recorded(work=work, start=None, end=None)


def _owner(namespace: str, pod: str, labels: Pairs) -> Owner:
    """The owner of a pod: the Job in its labels, or a Job of its own."""
    has = dict(labels)
    name = next((has[key] for key in JOB_NAMES if has.get(key)), pod)
    return owner_of("Job", namespace, name)


def _remark(case: Case, world: World, records: list[Recorded]) -> None:
    """Note the limits of this record for the reader."""
    offered = {name for node in case.nodes for name, _ in node.allocatable}
    asked = {name for each in records for name, amount in each.work.shape.requests if amount}
    missing = sorted(asked - offered) if case.nodes else []
    case.boundless = frozenset(missing)
    if missing:
        case.notes.append(f"No node of the snapshot offers {', '.join(missing)}, so its capacity is unlimited here.")
    if not case.nodes:
        case.notes.append("The snapshot has no nodes, so capacity is unlimited.")
    peak, room = _peak(records, case.end), sum(usage.gpus_in(node.allocatable) for node in case.nodes)
    if case.nodes and peak > room:
        case.notes.append(
            f"Pods had up to {peak / 1e6:g} GPUs at once in the record, and its nodes now have {room / 1e6:g}. Machines have left "
            "since, so some pods are pending here that were not."
        )
    broken = sum(1 for each in world.resources.values() if each.spec is None)
    if broken:
        case.notes.append(f"Invalid resources in the snapshot, left out: {broken}.")
    if world.kueue:
        case.notes.append("Kueue runs in this cluster; a replay does not include its queues.")
    suspended = sum(1 for each in world.workloads.values() if each.suspended)
    if suspended:
        case.notes.append(f"Suspended owners without pods at the end of the record, left out: {suspended}.")


def _peak(records: Iterable[Recorded], end: int) -> int:
    """The most GPUs allocated at once, in millionths."""
    begun = [each for each in records if each.start is not None]
    if not begun:
        return 0
    gpus = np.array([usage.gpus_in(each.work.shape.requests) for each in begun], np.int64)
    starts = np.array([each.start for each in begun], np.int64)
    ends = np.array([end if each.end is None else each.end for each in begun], np.int64)
    moments, steps = np.concatenate([ends, starts]), np.concatenate([-gpus, gpus])
    # A pod that ends at the moment another begins has made room for it, so ends come first.
    return int(np.cumsum(steps[np.argsort(moments, kind="stable")]).max())
