"""Karpenter's NodePools, NodeClaims and node classes become facts here: which nodes it could make, and which are on their way."""

from __future__ import annotations

from typing import Any, Final

from headroom.adapters.kube import amounts, raw, values
from headroom.api import durations, marks
from headroom.model import facts
from headroom.model.bandwidth_facts import NodeOverlay
from headroom.model.node_pool_specs import spec_digest, template_digest

GROUP: Final = "karpenter.sh"
NODE_CLASSES: Final = {
    "EC2NodeClass": ("karpenter.k8s.aws", "v1", "ec2nodeclasses"),
    "KWOKNodeClass": ("karpenter.kwok.sh", "v1alpha1", "kwoknodeclasses"),
}
"""The kinds of node classes that are known: group, version and plural."""
MANAGED_BY: Final = "managed-by"
"""The label by which the original marked its one NodePool."""
NODE_POOL: Final = "karpenter.sh/nodepool"
"""The label of NodeClaims that names their NodePool."""
_WHO: Final = (marks.LEFTOVER, MANAGED_BY)
_NOT_TRIED: Final = ("", "Launched", "AwaitingReconciliation")
"""Reasons of a condition Launched that tell of no failure: nothing was tried yet."""
_META: Final = raw.RawObjectMeta()


class _Requirement(raw.RawPart):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class _Resources(raw.RawPart):
    requests: raw.Quantities | None = None


class _NodeSpec(raw.RawPart):
    requirements: list[_Requirement] | None = None
    taints: list[raw.RawTaint] | None = None
    startup_taints: list[raw.RawTaint] | None = None
    resources: _Resources | None = None
    expire_after: str | None = None


class _Template(raw.Object):
    spec: _NodeSpec | None = None


class _PoolSpec(raw.RawPart):
    template: _Template | None = None
    limits: raw.Quantities | None = None
    weight: int | None = None


class _PoolStatus(raw.Conditions):
    resources: raw.Quantities | None = None


class NodePoolWire(raw.Object):
    """A NodePool as it stands on the wire. Its spec is kept whole, for the digest."""

    spec: dict[str, Any] | None = None
    status: _PoolStatus | None = None


class _OverlaySpec(raw.RawPart):
    requirements: list[_Requirement] | None = None
    capacity: raw.Quantities | None = None
    weight: int | None = None


class NodeOverlayWire(raw.Object):
    """A NodeOverlay as it stands on the wire."""

    spec: _OverlaySpec | None = None
    status: raw.Conditions | None = None


class _ClaimStatus(raw.Conditions):
    allocatable: raw.Quantities | None = None
    capacity: raw.Quantities | None = None
    node_name: str | None = None


class NodeClaimWire(raw.Object):
    """A NodeClaim as it stands on the wire."""

    spec: _NodeSpec | None = None
    status: _ClaimStatus | None = None


class _Subnet(raw.RawPart):
    zone: str | None = None


class _ClassStatus(raw.Conditions):
    subnets: list[_Subnet] | None = None


class NodeClassWire(raw.Object):
    """A node class as it stands on the wire."""

    spec: dict[str, Any] | None = None
    status: _ClassStatus | None = None


def node_pool_of(wire: NodePoolWire) -> facts.NodePool:
    """The NodePool as a fact."""
    meta, whole = wire.metadata or _META, wire.spec or {}
    spec = raw.fitted(whole, _PoolSpec)
    template = spec.template or _Template()
    inner, labels = template.spec or _NodeSpec(), (template.metadata or _META).labels
    name, own = meta.name or "", dict(values.pairs(meta.labels))
    is_ours = marks.LEFTOVER in own
    return facts.NodePool(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        labels=values.pairs(labels),
        taints=_taints(inner.taints),
        requirements=_requirements(inner),
        limits=_left(spec.limits, wire.status),
        ready=_condition(wire.status, "Ready") != "False" and meta.deletion_timestamp is None,
        deleting=meta.deletion_timestamp is not None,
        weight=spec.weight or 0,
        marks=tuple((key, own[key]) for key in sorted(_WHO) if key in own),
        used=amounts.given(wire.status.resources if wire.status else None),
        digest=spec_digest(whole) if is_ours else "",
        template=template_digest(whole) if is_ours else "",
    )


def node_claim_of(wire: NodeClaimWire) -> facts.NodeClaim:
    """The NodeClaim as a fact."""
    meta, spec, status = wire.metadata or _META, wire.spec or _NodeSpec(), wire.status or _ClaimStatus()
    name = meta.name or ""
    promised = {
        each.key: each.values[0] for each in _requirements(spec) if each.operator == "In" and len(each.values) == 1
    }
    wanted = spec.resources.requests if spec.resources else None
    labels, launched = promised | dict(values.pairs(meta.labels)), _find(status, "Launched")
    failed = launched.status != "True" and launched.reason not in (None, *_NOT_TRIED)
    created, deleting = values.moment(meta.creation_timestamp) or 0, values.moment(meta.deletion_timestamp)
    return facts.NodeClaim(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        created=created,
        labels=tuple(sorted(labels.items())),
        taints=_taints(spec.taints),
        allocatable=amounts.given(status.allocatable or status.capacity or wanted),
        # Its GPUs show only once it is initialized; between the two nobody else would count them.
        registered=_condition(status, "Registered") == "True" and _condition(status, "Initialized") in ("", "True"),
        deleting=deleting,
        node_pool=labels.get(NODE_POOL, ""),
        node=status.node_name or "",
        launched=launched.status == "True",
        failure=launched.reason or "" if failed else "",
        failed_at=values.moment(launched.last_transition_time) if failed else None,
        disrupted=_condition(status, "DisruptionReason") == "True" or _expired(spec, created, deleting),
    )


def node_overlay_of(wire: NodeOverlayWire) -> NodeOverlay:
    """The NodeOverlay as a fact."""
    meta, spec = wire.metadata or _META, wire.spec or _OverlaySpec()
    name = meta.name or ""
    return NodeOverlay(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        requirements=_required(spec.requirements),
        capacity=amounts.given(spec.capacity),
        weight=spec.weight or 0,
        ours=marks.BANDWIDTH in dict(values.pairs(meta.labels)),
        judged=bool(_condition(wire.status, "Ready")),
        ready=_condition(wire.status, "Ready") == "True" and meta.deletion_timestamp is None,
    )


def node_class_of(kind: str, wire: NodeClassWire) -> facts.NodeClass:
    """The node class as a fact."""
    meta, status = wire.metadata or _META, wire.status or _ClassStatus()
    name = meta.name or ""
    return facts.NodeClass(
        kind=kind,
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        labels=values.pairs(meta.labels),
        ready=_condition(status, "Ready") in ("", "True") and meta.deletion_timestamp is None,
        zones=tuple(sorted({each.zone for each in status.subnets or () if each.zone})),
        spec=wire.spec or {},
    )


def _expired(spec: _NodeSpec, created: int, deleting: int | None) -> bool:
    """Karpenter ends it for its age, and marks that nowhere."""
    most = durations.milliseconds(spec.expire_after)
    return deleting is not None and most is not None and created + most <= deleting


def _left(limits: raw.Quantities | None, status: _PoolStatus | None) -> facts.Amounts:
    """What is left of each limit, nothing included, once what is there has its part."""
    most, used = dict(amounts.given(limits)), dict(amounts.given(status.resources if status else None))
    return tuple(sorted((name, max(0, most.get(name, 0) - used.get(name, 0))) for name in limits or ()))


def _requirements(spec: _NodeSpec) -> tuple[facts.Requirement, ...]:
    return _required(spec.requirements)


def _required(given: list[_Requirement] | None) -> tuple[facts.Requirement, ...]:
    return tuple(
        facts.Requirement(key=each.key or "", operator=each.operator or "", values=tuple(each.values or ()))
        for each in given or ()
    )


def _taints(given: list[raw.RawTaint] | None) -> tuple[facts.Taint, ...]:
    return tuple(facts.Taint(each.key or "", each.value or "", each.effect or "") for each in given or ())


def _condition(status: raw.Conditions | None, type_: str) -> str:
    return _find(status, type_).status or ""


def _find(status: raw.Conditions | None, type_: str) -> raw.RawCondition:
    """The condition of a type; an empty one if there is none."""
    found = (each for each in (status.conditions if status else None) or () if each.type == type_)
    return next(found, _NO_CONDITION)


_NO_CONDITION: Final = raw.RawCondition()
