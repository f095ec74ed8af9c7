"""The fields of Kubernetes objects that Headroom reads, as they stand on the wire, and how a document becomes them.

Everything may be missing or null, since bookmarks and hand-written manifests leave things out. A value of the wrong type is left
out too, and the rest of its object is kept: one bad object must never stop the watch of all the others.
"""

from __future__ import annotations

import functools
import json
from datetime import date
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, Struct, inspect

from headroom.model.errors import Unavailable

Quantities = dict[str, Any]
"""Any value: the API server writes text, people also write numbers, and nonsense must not pass for nothing."""

Wire = TypeVar("Wire", bound=Struct)

NOTHING: Final = Raw()


class RawPart(Struct, gc=False, kw_only=True, rename="camel"):
    """A piece of an object. Outside the cyclic collector: none of these can form a cycle, and there are very many.

    What most pods share with others (labels, resources, tolerations) stays JSON text, since text is quick to recognise.
    """


class RawOwnerReference(RawPart):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


class RawObjectMeta(RawPart):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Raw = NOTHING
    annotations: dict[str, str] | None = None
    owner_references: list[RawOwnerReference] | None = None
    finalizers: list[str] | None = None


class Requirements(RawPart):
    requests: Quantities | None = None
    limits: Quantities | None = None


class Container(RawPart):
    resources: Raw = NOTHING
    restart_policy: str | None = None


class RawNamed(RawPart):
    name: str | None = None


class RequestMapping(RawPart):
    resource_name: str | None = None


class RawClaim(RawPart):
    name: str | None = None
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None
    request_mappings: list[RequestMapping] | None = None


class PodSpec(RawPart):
    node_name: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: Quantities | None = None
    resources: Requirements | None = None
    node_selector: Raw = NOTHING
    affinity: Raw = NOTHING
    tolerations: Raw = NOTHING
    topology_spread_constraints: Raw = NOTHING
    scheduler_name: str | None = None
    host_network: bool | None = None
    priority: int | None = None
    scheduling_gates: list[RawNamed] | None = None
    resource_claims: list[RawClaim] | None = None
    active_deadline_seconds: int | None = None
    termination_grace_period_seconds: int | None = None


class RawCondition(RawPart):
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None


class RawRunState(RawPart):
    started_at: str | None = None
    finished_at: str | None = None


class ContainerState(RawPart):
    running: RawRunState | None = None
    terminated: RawRunState | None = None


class ContainerStatus(RawPart):
    restart_count: int | None = None
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodStatus(RawPart):
    phase: str | None = None
    start_time: str | None = None
    conditions: list[RawCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    nominated_node_name: str | None = None
    resource_claim_statuses: list[RawClaim] | None = None
    extended_resource_claim_status: RawClaim | None = None


class Object(RawPart):
    """What every object has. In a list the server leaves out what all its objects have in common: their kind."""

    api_version: str | None = None
    kind: str | None = None
    metadata: RawObjectMeta | None = None


class RawPod(Object):
    spec: PodSpec | None = None
    status: PodStatus | None = None


class RawTaint(RawPart):
    key: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSpec(RawPart):
    taints: list[RawTaint] | None = None
    unschedulable: bool | None = None
    provider_id: str | None = msgspec.field(default=None, name="providerID")


class NodeAddress(RawPart):
    type: str | None = None
    address: str | None = None


class NodeStatus(RawPart):
    addresses: list[NodeAddress] | None = None
    capacity: Quantities | None = None
    allocatable: Quantities | None = None
    conditions: list[RawCondition] | None = None


class RawNode(Object):
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class ConfigMap(Object):
    data: dict[str, str] | None = None


class TemplateSpec(PodSpec):
    """Pods have the priority itself; only admission reads its class."""

    priority_class_name: str | None = None


class PodTemplate(Object):
    """What new pods will be like."""

    spec: TemplateSpec | None = None


class JobSpec(RawPart):
    suspend: bool | None = None
    parallelism: int | None = None
    completions: int | None = None
    managed_by: str | None = None
    template: PodTemplate | None = None


class Conditions(RawPart):
    conditions: list[RawCondition] | None = None


class JobStatus(Conditions):
    succeeded: int | None = None


class Job(Object):
    spec: JobSpec | None = None
    status: JobStatus | None = None


class ReplicatedJob(RawPart):
    name: str | None = None
    replicas: int | None = None
    template: Job | None = None


class JobSetSpec(RawPart):
    suspend: bool | None = None
    replicated_jobs: list[ReplicatedJob] | None = None


class JobSet(Object):
    spec: JobSetSpec | None = None
    status: Conditions | None = None


class PodSet(RawPart):
    name: str | None = None
    count: int | None = None
    template: PodTemplate | None = None


class WorkloadSpec(RawPart):
    active: bool | None = None
    priority: int | None = None
    pod_sets: list[PodSet] | None = None


class PodSetAssignment(RawPart):
    name: str | None = None
    flavors: dict[str, str] | None = None


class Admission(RawPart):
    pod_set_assignments: list[PodSetAssignment] | None = None


class WorkloadStatus(Conditions):
    admission: Admission | None = None


class RawWorkload(Object):
    """Kueue's."""

    spec: WorkloadSpec | None = None
    status: WorkloadStatus | None = None


class Failure(RawPart):
    """A Status object: why a request or a watch failed."""

    code: int | None = None
    message: str | None = None
    reason: str | None = None


class ListMeta(RawPart):
    resource_version: str | None = None
    next: str | None = msgspec.field(default=None, name="continue")


# --- documents --------------------------------------------------------------------------------------------------------------


def read(body: bytes, kind: type[Wire]) -> Wire:
    """One object from JSON. Raises `Unavailable` if it is no JSON at all: then the connection was cut or is not an API server."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return fitted(plain(body), kind)


def strings(body: bytes) -> dict[str, str]:
    """The texts in a JSON mapping; anything else in it is left out."""
    try:
        return msgspec.json.decode(body, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        found = plain(body)
        return {key: each for key, each in found.items() if isinstance(each, str)} if isinstance(found, dict) else {}


def plain(body: bytes) -> Any:
    """The JSON value in `body`. Raises `Unavailable` if there is none."""
    try:
        if b"\\ud" in body.lower():  # half a pair of escapes is no character: nobody could keep it or show it
            body = json.dumps(json.loads(body), ensure_ascii=False).encode("utf-8", "replace")
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Unavailable("reading what the API server sent: it is not JSON") from error


def fitted(document: object, kind: type[Wire]) -> Wire:
    """The parts of a plain document, such as a manifest from YAML, that have the right type; what has not is left out."""
    try:
        return msgspec.convert(_fit(document, _type_info(kind)), kind, strict=False)
    except (_Unfit, msgspec.ValidationError, RecursionError):
        return kind()


_type_info = functools.cache(inspect.type_info)  # milliseconds each time otherwise


class _Unfit(Exception):
    """A value has another type than its field."""


def _fit(value: object, wanted: inspect.Type) -> Any:
    match wanted:
        case inspect.UnionType(types=types):
            return _fit_one_of(value, types)
        case inspect.StructType(fields=fields):
            members = _checked(value, dict)
            return _those_that_fit({f.encode_name: (members.get(f.encode_name), f.type) for f in fields})
        case inspect.DictType(value_type=inner):
            return _those_that_fit({str(key): (each, inner) for key, each in _checked(value, dict).items()})
        case inspect.ListType(item_type=inner):
            items = dict(enumerate(_checked(value, list)))
            return list(_those_that_fit({index: (each, inner) for index, each in items.items()}).values())
        case inspect.RawType():
            return _raw(value)
        case inspect.AnyType():
            return value
    return _fit_plain(value, wanted)


_PLAIN: Final[dict[type[inspect.Type], type]] = {
    inspect.StrType: str,
    inspect.IntType: int,
    inspect.FloatType: float,
    inspect.BoolType: bool,
    inspect.NoneType: type(None),
}


def _fit_plain(value: object, wanted: inspect.Type) -> Any:
    if isinstance(value, date) and isinstance(wanted, inspect.StrType):
        return value.isoformat()  # YAML reads an unquoted moment as one
    try:
        return msgspec.convert(value, _PLAIN[type(wanted)], strict=False)
    except (msgspec.ValidationError, ValueError, OverflowError) as error:
        raise _Unfit from error


def _fit_one_of(value: object, types: tuple[inspect.Type, ...]) -> Any:
    # A text such as "null" or "1" is text where text may stand: the exact type goes first.
    exact = [each for each in types if type(value) is _PLAIN.get(type(each))]
    for each in (*exact, *(other for other in types if not isinstance(other, inspect.NoneType))):
        try:
            return _fit(value, each)
        except _Unfit:
            continue
    raise _Unfit


def _those_that_fit(members: dict[Any, tuple[object, inspect.Type]]) -> dict[Any, Any]:
    out = {}
    for key, (value, wanted) in members.items():
        try:
            fit = None if value is None else _fit(value, wanted)
        except _Unfit:
            continue
        if fit is not None:
            out[key] = fit
    return out


def _checked(value: object, kind: type) -> Any:
    if not isinstance(value, kind):
        raise _Unfit
    return value


def _raw(value: object) -> Raw:
    try:
        return Raw(json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str))
    except (TypeError, ValueError) as error:
        raise _Unfit from error
