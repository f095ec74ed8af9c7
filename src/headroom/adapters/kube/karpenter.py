"""Karpenter's NodePools and NodeClaims become facts here: which nodes it could make, and which are on their way."""

from __future__ import annotations

from typing import Final

from headroom.adapters.kube import amounts, raw, values
from headroom.model import facts

GROUP: Final = "karpenter.sh"
_META: Final = raw.ObjectMeta()


class _Requirement(raw.Part):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class _Resources(raw.Part):
    requests: raw.Quantities | None = None


class _NodeSpec(raw.Part):
    requirements: list[_Requirement] | None = None
    taints: list[raw.Taint] | None = None
    startup_taints: list[raw.Taint] | None = None
    resources: _Resources | None = None


class _Template(raw.Object):
    spec: _NodeSpec | None = None


class _PoolSpec(raw.Part):
    template: _Template | None = None
    limits: raw.Quantities | None = None


class _PoolStatus(raw.Conditions):
    resources: raw.Quantities | None = None


class NodePoolWire(raw.Object):
    """A NodePool as it stands on the wire."""

    spec: _PoolSpec | None = None
    status: _PoolStatus | None = None


class _ClaimStatus(raw.Conditions):
    allocatable: raw.Quantities | None = None
    capacity: raw.Quantities | None = None


class NodeClaimWire(raw.Object):
    """A NodeClaim as it stands on the wire."""

    spec: _NodeSpec | None = None
    status: _ClaimStatus | None = None


def node_pool_of(wire: NodePoolWire) -> facts.NodePool:
    """The NodePool as a fact."""
    meta, spec = wire.metadata or _META, wire.spec or _PoolSpec()
    template = spec.template or _Template()
    inner, labels = template.spec or _NodeSpec(), (template.metadata or _META).labels
    name = meta.name or ""
    return facts.NodePool(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        labels=values.pairs(labels),
        taints=_taints(inner.taints),
        requirements=_requirements(inner),
        limits=_left(spec.limits, wire.status),
        ready=_condition(wire.status, "Ready") != "False" and meta.deletion_timestamp is None,
    )


def node_claim_of(wire: NodeClaimWire) -> facts.NodeClaim:
    """The NodeClaim as a fact."""
    meta, spec, status = wire.metadata or _META, wire.spec or _NodeSpec(), wire.status or _ClaimStatus()
    name = meta.name or ""
    promised = {
        each.key: each.values[0] for each in _requirements(spec) if each.operator == "In" and len(each.values) == 1
    }
    wanted = spec.resources.requests if spec.resources else None
    return facts.NodeClaim(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        created=values.moment(meta.creation_timestamp) or 0,
        labels=tuple(sorted((promised | dict(values.pairs(meta.labels))).items())),
        taints=_taints(spec.taints),
        allocatable=amounts.given(status.allocatable or status.capacity or wanted),
        # Its GPUs show only once it is initialized; between the two nobody else would count them.
        registered=_condition(status, "Registered") == "True" and _condition(status, "Initialized") in ("", "True"),
        deleting=values.moment(meta.deletion_timestamp),
    )


def _left(limits: raw.Quantities | None, status: _PoolStatus | None) -> facts.Amounts:
    """What is left of each limit, nothing included, once what is there has its part."""
    most, used = dict(amounts.given(limits)), dict(amounts.given(status.resources if status else None))
    return tuple(sorted((name, max(0, most.get(name, 0) - used.get(name, 0))) for name in limits or ()))


def _requirements(spec: _NodeSpec) -> tuple[facts.Requirement, ...]:
    return tuple(
        facts.Requirement(key=each.key or "", operator=each.operator or "", values=tuple(each.values or ()))
        for each in spec.requirements or ()
    )


def _taints(given: list[raw.Taint] | None) -> tuple[facts.Taint, ...]:
    return tuple(facts.Taint(each.key or "", each.value or "", each.effect or "") for each in given or ())


def _condition(status: raw.Conditions | None, type_: str) -> str:
    found = (each for each in (status.conditions if status else None) or () if each.type == type_)
    return next((each.status or "" for each in found), "")
