"""Kubernetes objects become facts here, and nowhere else.

The rules follow the API server and kube-scheduler: what a pod reserves, when it started and ended, who controls it. Reading never
fails on an object, however odd: what cannot be understood is left out. Amounts are in `amounts`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import Struct

from headroom.adapters.kube import amounts, raw, values
from headroom.api import kinds
from headroom.api.bandwidth_config import EXTENDED
from headroom.api.kinds import AnyResource
from headroom.api.resources import Status
from headroom.api.schema import Problem
from headroom.model import facts

_LONGEST_MESSAGE: Final = 1000
_PHASES_OF_AN_END: Final = ("Succeeded", "Failed")
_BAD: Final = {
    ("Ready", "False"),
    ("ContainersReady", "False"),
    ("PodReadyToStartContainers", "False"),
    ("DisruptionTarget", "True"),
}
"""Conditions as a pod has them that fails."""
_EVICTED: Final = ("DisruptionTarget", "True", "EvictionByEvictionAPI")
"""What the API server writes when it grants an eviction."""
_NO_PLACE: Final = ("Unschedulable", "Schedulable", "Undetermined")
"""Why a scheduler did not place a pod. The last two are Volcano's: the rest of the gang finds no place, or it did not look further."""
_META: Final = raw.RawObjectMeta()


class RawConfigMap(Struct, frozen=True, kw_only=True):
    """A ConfigMap."""

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    data: dict[str, str] = {}


def pod(document: object) -> facts.Pod:
    """The pod in a plain manifest. Without a namespace it is in `default`, without a uid `namespace/name` serves as one."""
    return pod_of(raw.fitted(document, raw.RawPod))


def node(document: object) -> facts.Node:
    """The node in a plain manifest; without a uid its name serves as one."""
    return node_of(raw.fitted(document, raw.RawNode))


# --- pods ---------------------------------------------------------------------------------------------------------------------

_OF_THE_POD: Final = re.compile(r'\bnodes are available: (?!\d)|^persistentvolumeclaim "')
"""kube-scheduler counts the nodes that each cause rules out, as in `3 Insufficient cpu`; one without a number is of the pod itself.
Schedulers built on its plugins may pass on what these say of a claim, with nothing before it."""
_NO_POD_SPEC: Final = raw.PodSpec()
_NO_POD_STATUS: Final = raw.PodStatus()


def pod_of(wire: raw.RawPod) -> facts.Pod:
    """The pod as a fact."""
    meta, spec, status = wire.metadata or _META, wire.spec or _NO_POD_SPEC, wire.status or _NO_POD_STATUS
    namespace, name, phase = meta.namespace or "default", meta.name or "", values.one(status.phase or "Pending")
    ended, ended_by = _end(status, phase) if phase in _PHASES_OF_AN_END else (None, "")
    since, message = _unschedulable(status.conditions)
    started, started_after = _start(status)
    claims, templates = _claims(spec, status)
    return facts.Pod(
        uid=meta.uid or f"{namespace}/{name}",
        namespace=namespace,
        name=name,
        resource_version=meta.resource_version or "",
        labels=values.pairs(meta.labels),
        annotations=values.kept_annotations(meta.annotations),
        shape=shape_of(spec),
        node=spec.node_name or "",
        phase=phase,
        priority=values.priority(spec.priority) if spec.priority else 0,
        owner=_controller(meta.owner_references) if meta.owner_references else None,
        created=values.moment(meta.creation_timestamp) or 0,
        started=started,
        started_after=started_after,
        ended=ended,
        ended_by=ended_by,
        deleting=values.moment(meta.deletion_timestamp),
        evicted=_evicted(status.conditions),
        gates=values.names([gate.name for gate in spec.scheduling_gates]) if spec.scheduling_gates else (),
        deadline=values.length(spec.active_deadline_seconds) if spec.active_deadline_seconds else None,
        grace_seconds=values.grace(spec.termination_grace_period_seconds),
        finalizers=values.ours(meta.finalizers),
        claims=claims,
        claim_templates=templates,
        extended=_extended(status),
        nominated_node=status.nominated_node_name or "",
        nominated_since=since if status.nominated_node_name else None,
        unschedulable_since=since,
        unschedulable_message=message,
        refused_itself=bool(message) and _OF_THE_POD.search(message) is not None,
    )


def shape_of(spec: raw.PodSpec) -> facts.Shape:
    """Where pods may go."""
    places, texts = (
        (bytes(spec.node_selector), bytes(spec.affinity)),
        (bytes(spec.tolerations), bytes(spec.topology_spread_constraints)),
    )
    # Pods of one template share one shape, and most pods are of one of a few templates.
    is_short = sum(map(len, places + texts)) <= values.LONGEST_REMEMBERED
    more = values.one(spec.scheduler_name or "default-scheduler"), bool(spec.host_network)
    return (_few_shapes if is_short else _shape)(amounts.requested(spec), *places, *texts, *more)


def _shape(  # noqa: PLR0913, PLR0917  what a shape is made of, each by its place: so a cache is quickest
    requests: facts.Amounts,
    selector: bytes,
    affinity: bytes,
    tolerations: bytes,
    spread: bytes,
    scheduler: str,
    on_host: bool,
) -> facts.Shape:
    return facts.Shape(
        requests=requests,
        node_selector=values.pairs(selector),
        affinity=_text(affinity),
        tolerations=_tolerations(tolerations),
        scheduler=scheduler,
        host_network=on_host,
        spread=_spread(spread),
    )


_few_shapes: Final = lru_cache(maxsize=512)(_shape)


def _spread(json: bytes) -> str:
    """The constraints that forbid; the others only prefer."""
    if json in values.NULL:
        return ""
    try:
        given = msgspec.json.decode(json, type=list[dict[str, Any]])
    except msgspec.DecodeError:
        return ""
    kept = [each for each in given if each.get("whenUnsatisfiable") != "ScheduleAnyway"]
    return msgspec.json.encode(kept).decode() if kept else ""


def _text(json: bytes) -> str:
    return "" if json in values.NULL else json.decode("utf-8", "replace")


def _tolerations(json: bytes) -> str:
    # Most pods of a fleet have one of a few lists; only short ones are remembered, so the memory stays small.
    return _few_tolerations(json) if len(json) <= values.LONGEST_REMEMBERED else _own_tolerations(json)


def _own_tolerations(json: bytes) -> str:
    """The list without the two that admission puts on every pod."""
    try:
        given = msgspec.json.decode(json, type=list[dict[str, Any]]) if json not in values.NULL else []
    except msgspec.DecodeError:
        return ""
    kept = [each for each in given if each not in _ON_EVERY_POD]
    return msgspec.json.encode(kept).decode() if kept else ""


_few_tolerations: Final = lru_cache(maxsize=256)(_own_tolerations)
_ON_EVERY_POD: Final = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for what in ("not-ready", "unreachable")
]


def _start(status: raw.PodStatus) -> tuple[int | None, int | None]:
    """The earliest start of any container, and after which moment it began if earlier starts cannot be seen any more.

    Not status.startTime: that is when the kubelet first saw the pod. A status shows the last two runs of a container at most, but
    before the first init container has run nothing else runs: where its first start is seen, no other matters.
    """
    if not (status.container_statuses or status.init_container_statuses or status.phase == "Failed"):
        return None, None
    first, hidden = None, False
    main, init = status.container_statuses or [], status.init_container_statuses or []
    for each in init[:1]:
        first, hidden = _first_run(each)
    if first is None or hidden:
        runs = [_first_run(each) for each in main + init]
        first = min((start for start, _ in runs if start is not None), default=None)
        hidden = any(unseen for _, unseen in runs)
    # Of a pod that failed and shows no container at all, nobody knows whether one ran.
    is_mute = status.phase == "Failed" and not main and not init
    return first, values.moment(status.start_time) if is_mute or (hidden and first is not None) else None


def _first_run(container: raw.ContainerStatus) -> tuple[int | None, bool]:
    """When the earliest run that is shown began, and whether there were earlier ones."""
    starts = []
    for state in (container.state, container.last_state):
        run = (state.running or state.terminated) if state is not None else None
        if run is not None and (start := values.moment(run.started_at)) is not None:
            starts.append(start)
    restarts = container.restart_count or 0
    return min(starts, default=None), 0 < restarts >= len(starts)


def _end(status: raw.PodStatus, phase: str) -> tuple[int | None, str]:
    """When a pod that is over ended, and how we know.

    A failed pod may have no finish to show: its node is lost and a container is `running` for ever, or none ever started. Then the
    moment at which a condition last turned bad is the one at which the failure was known.
    """
    finishes, running = [], False
    for each in _statuses(status):
        running = running or bool(each.state and each.state.running)
        for state in (each.state, each.last_state):
            if state and state.terminated and (finish := values.moment(state.terminated.finished_at)) is not None:
                finishes.append(finish)
                break
    if phase == "Failed" and (running or not finishes):
        turns = [
            values.moment(each.last_transition_time)
            for each in status.conditions or ()
            if (each.type, each.status) in _BAD
        ]
        known = max((each for each in turns if each is not None), default=None)
        return (known, "FailureKnown") if known is not None else (None, "")
    return (max(finishes), "ContainerFinish") if finishes else (None, "")


def _statuses(status: raw.PodStatus) -> list[raw.ContainerStatus]:
    main, init = status.container_statuses or [], status.init_container_statuses
    return main + init if init else main


def _unschedulable(conditions: list[raw.RawCondition] | None) -> tuple[int | None, str]:
    for each in conditions or ():
        if each.type == "PodScheduled" and each.status == "False" and each.reason in _NO_PLACE:
            said = " ".join((each.message or "")[:_LONGEST_MESSAGE].split())
            return values.moment(each.last_transition_time), values.one(said)
    return None, ""


def _evicted(conditions: list[raw.RawCondition] | None) -> int | None:
    for each in conditions or ():
        if (each.type, each.status, each.reason) == _EVICTED:
            return values.moment(each.last_transition_time)
    return None


def _controller(references: list[raw.RawOwnerReference]) -> facts.Owner | None:
    for each in references:
        if each.controller:
            return values.owner(each.kind or "", each.name or "", each.uid or "", each.api_version or "")
    return None


def _claims(spec: raw.PodSpec, status: raw.PodStatus) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The pod's claims, and the templates from which it has none yet. A claim made from one is known by the pod's status only."""
    if not spec.resource_claims:
        return (), ()
    made = {each.name: each.resource_claim_name for each in status.resource_claim_statuses or ()}
    names = dict.fromkeys(each.resource_claim_name or made.get(each.name) for each in spec.resource_claims)
    templates = [each.resource_claim_template_name for each in spec.resource_claims if each.name not in made]
    return values.names(names), values.names(templates)


def _extended(status: raw.PodStatus) -> facts.ExtendedClaim | None:
    """The claim that kube-scheduler made for extended resources, and for which of them."""
    found = status.extended_resource_claim_status
    if found is None:
        return None
    resources = sorted({each.resource_name or "" for each in found.request_mappings or ()})
    return facts.ExtendedClaim(found.resource_claim_name or "", values.names(resources))


# --- nodes, settings and our own kinds ------------------------------------------------------------------------------------------

_NO_NODE_SPEC: Final = raw.NodeSpec()
_NO_NODE_STATUS: Final = raw.NodeStatus()
ADDRESSES: Final = ("InternalIP", "ExternalIP")
"""The types of a node's addresses that are kept: by these a machine of a cloud is known."""


def node_of(wire: raw.RawNode) -> facts.Node:
    """The node as a fact."""
    meta, spec, status = wire.metadata or _META, wire.spec or _NO_NODE_SPEC, wire.status or _NO_NODE_STATUS
    name = meta.name or ""
    ready = next((each for each in status.conditions or () if each.type == "Ready"), None)
    is_ready, turned = (ready.status == "True", values.moment(ready.last_transition_time)) if ready else (False, None)
    return facts.Node(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        labels=values.pairs(meta.labels),
        annotations=values.kept_annotations(meta.annotations),
        taints=tuple(facts.Taint(t.key or "", t.value or "", t.effect or "") for t in spec.taints or ()),
        unschedulable=bool(spec.unschedulable),
        ready=is_ready,
        ready_since=turned if is_ready else None,
        unready_since=None if is_ready else turned,
        created=values.moment(meta.creation_timestamp) or 0,
        deleting=values.moment(meta.deletion_timestamp),
        provider_id=spec.provider_id or "",
        addresses=tuple(each.address for each in status.addresses or () if each.address and each.type in ADDRESSES),
        allocatable=amounts.offered(status),
        published=amounts.listed(status.allocatable, EXTENDED),
        published_capacity=amounts.listed(status.capacity, EXTENDED),
    )


def namespace_of(wire: raw.Object) -> facts.Namespace:
    """The namespace as a fact."""
    meta = wire.metadata or _META
    name = meta.name or ""
    return facts.Namespace(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        labels=values.pairs(meta.labels),
    )


def settings_of(wire: raw.ConfigMap) -> RawConfigMap:
    """The ConfigMap as data."""
    meta = wire.metadata or _META
    namespace, name = meta.namespace or "default", meta.name or ""
    return RawConfigMap(
        namespace=namespace,
        name=name,
        uid=meta.uid or f"{namespace}/{name}",
        resource_version=meta.resource_version or "",
        data=wire.data or {},
    )


def resource(document: object) -> AnyResource:
    """One of our resources. With problems it has no spec: nothing is decided on a resource that was understood by half."""
    members = document if isinstance(document, dict) else {}
    kind = str(members.get("kind"))
    known = kinds.KINDS.get(kind)
    meta = raw.fitted(members, raw.Object).metadata or _META
    namespace = (meta.namespace or "default") if known is None or known.namespaced else ""
    name = meta.name or ""
    spec, problems = _spec(kind, document)
    return AnyResource(
        kind=kind,
        namespace=namespace,
        name=name,
        uid=meta.uid or (f"{namespace}/{name}" if namespace else name),
        generation=meta.generation or 1,
        resource_version=meta.resource_version or "",
        created=values.moment(meta.creation_timestamp) or 0,
        deleting=bool(meta.deletion_timestamp),
        finalizers=tuple(meta.finalizers or ()),
        annotations=dict(values.kept_annotations(meta.annotations)),
        spec=spec,
        status=kinds.status_of(kind, members.get("status")) if known else Status(),
        problems=problems,
    )


def _spec(kind: str, document: Any) -> tuple[Any, tuple[Problem, ...]]:
    if isinstance(document, dict):
        # A status is ours: one that another version wrote does not make the spec wrong.
        document = {name: each for name, each in document.items() if name != "status"}
    problems = tuple(kinds.problems(document))
    if problems:
        return None, problems
    try:
        # The API server drops a null where there is a default; manifests that never met one must mean the same.
        return kinds.spec_of(kind, document["spec"]), ()
    except msgspec.ValidationError as error:
        return None, (Problem("spec", str(error)),)
