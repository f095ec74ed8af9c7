"""Which kinds the simulated API server has, what is special about each, and which of them a path means."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from headroom.adapters.kube.sources import SOURCES
from headroom.adapters.outside import FIELDS
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from headroom.sim.answers import Body, ErrorAnswer, PlainNotFound, unserved
from headroom.sim.selecting import NAMES

POD_FIELDS: Final = (
    *NAMES,
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
)
EVENT_FIELDS: Final = (
    *NAMES,
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "reason",
    "reportingComponent",
    "type",
)


class ResourceType(Struct, frozen=True, kw_only=True):
    """One kind as the server treats it."""

    group: str = ""
    version: str = "v1"
    plural: str
    kind: str
    namespaced: bool = True
    custom: bool = False
    status: bool = False
    """It has a /status of its own, so that status and the rest are written apart."""
    generation: bool = False
    """metadata.generation grows with every change of the spec."""
    unconditional: bool = True
    """PUT works without a resourceVersion."""
    upsert: bool = False
    """PUT may create."""
    returns_deleted: bool = False
    """DELETE answers with the object, not with a Status."""
    owned: bool = True
    """managedFields are kept; left out for what is written all the time and never applied."""
    fields: tuple[str, ...] = NAMES
    subresources: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """What stands in apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """Where the group and version are served."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def url(self, namespace: str, name: str = "", subresource: str = "") -> str:
        """The path of a collection, an object or a subresource."""
        parts = [self.path, f"namespaces/{namespace}" if namespace else "", self.plural, name, subresource]
        return "/".join(part for part in parts if part)


class PathTarget(Struct, frozen=True):
    """What a path means."""

    type: ResourceType
    namespace: str
    name: str
    subresource: str


def _type(plural: str, kind: str, **more: Any) -> ResourceType:
    return ResourceType(plural=plural, kind=kind, **more)


def _workload(plural: str, kind: str, group: str) -> ResourceType:
    return _type(plural, kind, group=group, status=True, generation=True)


POD: Final = _type(
    "pods",
    "Pod",
    status=True,
    generation=True,
    returns_deleted=True,
    fields=POD_FIELDS,
    subresources=("eviction", "binding", "resize"),
)
NODE: Final = _type("nodes", "Node", namespaced=False, status=True, fields=(*NAMES, "spec.unschedulable"))
NAMESPACE: Final = _type(
    "namespaces", "Namespace", namespaced=False, returns_deleted=True, fields=("metadata.name", "status.phase")
)
JOB: Final = _workload("jobs", "Job", "batch")
PDB: Final = _type(
    "poddisruptionbudgets", "PodDisruptionBudget", group="policy", status=True, generation=True, unconditional=False
)
DEFINITION: Final = _type(
    "customresourcedefinitions",
    "CustomResourceDefinition",
    group="apiextensions.k8s.io",
    namespaced=False,
    status=True,
    generation=True,
    unconditional=False,
)
LEASE: Final = _type("leases", "Lease", group="coordination.k8s.io", unconditional=False, upsert=True, owned=False)
EVENT: Final = _type("events", "Event", upsert=True, owned=False, fields=EVENT_FIELDS)

_ADMISSION: Final = "admissionregistration.k8s.io"
BUILT_IN: Final = (
    POD,
    NODE,
    NAMESPACE,
    EVENT,
    _type("configmaps", "ConfigMap"),
    _type("secrets", "Secret", fields=(*NAMES, "type")),
    _type("services", "Service", status=True, returns_deleted=True),
    _type("serviceaccounts", "ServiceAccount", returns_deleted=True),
    _type("persistentvolumeclaims", "PersistentVolumeClaim", status=True),
    JOB,
    _workload("cronjobs", "CronJob", "batch"),
    _workload("deployments", "Deployment", "apps"),
    _workload("replicasets", "ReplicaSet", "apps"),
    _workload("statefulsets", "StatefulSet", "apps"),
    _workload("daemonsets", "DaemonSet", "apps"),
    PDB,
    LEASE,
    DEFINITION,
    _type("priorityclasses", "PriorityClass", group="scheduling.k8s.io", namespaced=False, generation=True),
    _type("resourceclaims", "ResourceClaim", group="resource.k8s.io", status=True),
    _type("resourceclaimtemplates", "ResourceClaimTemplate", group="resource.k8s.io"),
    _type("deviceclasses", "DeviceClass", group="resource.k8s.io", namespaced=False, generation=True),
    _type("resourceslices", "ResourceSlice", group="resource.k8s.io", namespaced=False, generation=True),
    _type(
        "validatingadmissionpolicies", "ValidatingAdmissionPolicy", group=_ADMISSION, namespaced=False, generation=True
    ),
    _type(
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        group=_ADMISSION,
        namespaced=False,
        generation=True,
    ),
    _type("mutatingadmissionpolicies", "MutatingAdmissionPolicy", group=_ADMISSION, namespaced=False, generation=True),
    _type(
        "mutatingadmissionpolicybindings",
        "MutatingAdmissionPolicyBinding",
        group=_ADMISSION,
        namespaced=False,
        generation=True,
    ),
    _type("tokenreviews", "TokenReview", group="authentication.k8s.io", namespaced=False),
    _type("subjectaccessreviews", "SubjectAccessReview", group="authorization.k8s.io", namespaced=False),
    _type("selfsubjectaccessreviews", "SelfSubjectAccessReview", group="authorization.k8s.io", namespaced=False),
)
REVIEWS: Final = ("tokenreviews", "subjectaccessreviews", "selfsubjectaccessreviews")


def bare_definition(group: str, version: str, plural: str, kind: str, *, namespaced: bool = False) -> Body:
    """A CustomResourceDefinition without a schema: for kinds of others that only need to be kept."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


SIM_GROUP: Final = "sim.headroom.dev"


def definitions() -> list[Body]:
    """The definitions that every simulated cluster has: our kinds, Karpenter's, and the facts of scenarios."""
    ours = [crd(kind) for kind in DEFINITIONS.values()]
    others = [
        bare_definition(each.group, each.version, each.plural, each.kind, namespaced=each.namespaced)
        for each in SOURCES
        if each.played
    ]
    facts = [bare_definition(SIM_GROUP, "v1", plural, kind) for kind, plural in {**FIELDS, "Usage": "usages"}.items()]
    return ours + others + facts


def defined(definition: Body) -> list[ResourceType]:
    """The resource types that a CustomResourceDefinition brings, one for each served version."""
    spec = definition["spec"]
    names = spec["names"]
    return [
        ResourceType(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            namespaced=spec.get("scope") == "Namespaced",
            custom=True,
            status="status" in (version.get("subresources") or {}),
            generation=True,
            unconditional=False,
            short_names=tuple(names.get("shortNames") or ()),
        )
        for version in spec.get("versions") or []
        if version.get("served")
    ]


class Catalog:
    """All resource types that are served now."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, str, str], ResourceType] = {}
        for each in BUILT_IN:
            self.add(each)

    def add(self, type_: ResourceType) -> None:
        """Serve it."""
        self._types[type_.group, type_.version, type_.plural] = type_

    def remove(self, type_: ResourceType) -> None:
        """Serve it no more."""
        self._types.pop((type_.group, type_.version, type_.plural), None)

    def __iter__(self) -> Any:
        return iter(self._types.values())

    def find(self, api_version: str, kind: str) -> ResourceType | None:
        """The type of a document."""
        return next((each for each in self if each.kind == kind and each.api_version == api_version), None)

    def of_kind(self, kind: str) -> ResourceType | None:
        """The first type with that kind; for people who leave the group out."""
        return next((each for each in self if kind in (each.kind, each.plural, *each.short_names)), None)

    def groups(self) -> dict[str, list[str]]:
        """Every group except the core with its versions."""
        found: dict[str, list[str]] = {}
        for each in self:
            if each.group and each.version not in found.setdefault(each.group, []):
                found[each.group].append(each.version)
        return found

    def target(self, path: str) -> PathTarget:
        """What a path below /api or /apis means. Raises the server's own 404 for what is not served."""
        parts = path.strip("/").split("/")
        if parts[0] == "api" and len(parts) > 2:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[0] == "apis" and len(parts) > 3:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise PlainNotFound
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] != "status":
            namespace, rest = rest[1], rest[2:]
        type_ = self._types.get((group, version, rest[0]))
        if type_ is None or len(rest) > 3 or (namespace and not type_.namespaced):
            raise self._missing(group, version)
        name, subresource = (*rest[1:], "", "")[:2]
        served = type_.subresources + (("status",) if type_.status else ())
        if subresource and subresource not in served:
            raise unserved()
        return PathTarget(type_, namespace, name, subresource)

    def _missing(self, group: str, version: str) -> ErrorAnswer:
        """Groups of the server itself answer with a Status; those of definitions and unknown ones with plain text."""
        built_in = any(each.group == group and each.version == version and not each.custom for each in self)
        return unserved() if built_in else PlainNotFound()
