"""ResourceClaims become facts here: which devices were allocated, and which pods share them."""

from __future__ import annotations

from typing import Final

from headroom.adapters.kube import raw
from headroom.model import facts

FOR_EXTENDED_RESOURCE: Final = "resource.kubernetes.io/extended-resource-claim"
"""The annotation of a claim that kube-scheduler made for a request of an extended resource."""
_ONE: Final = 10**6
"""Millionths of a device."""


def claim_of(wire: raw.ResourceClaim) -> facts.Claim:
    """The claim as a fact."""
    meta, status = wire.metadata or raw.ObjectMeta(), wire.status or raw.ClaimStatus()
    namespace, name = meta.namespace or "default", meta.name or ""
    pods = {
        each.uid for each in status.reserved_for or () if each.resource == "pods" and not each.api_group and each.uid
    }
    return facts.Claim(
        uid=meta.uid or f"{namespace}/{name}",
        namespace=namespace,
        name=name,
        resource_version=meta.resource_version or "",
        devices=_allocated(wire.spec, status),
        reserved_for=tuple(sorted(pods)),
        for_extended_resource=(meta.annotations or {}).get(FOR_EXTENDED_RESOURCE) == "true",
    )


def _allocated(spec: raw.ClaimSpec | None, status: raw.ClaimStatus) -> facts.Amounts:
    """Devices of a claim by device class, or by driver where the class is not known; those with admin access are not counted."""
    found = status.allocation.devices if status.allocation else None
    if found is None or not found.results:
        return ()
    classes = _classes(spec.devices if spec else None)
    total: dict[str, int] = {}
    for each in found.results:
        if not each.admin_access:
            name = classes.get(each.request or "") or each.driver or ""
            total[name] = total.get(name, 0) + _ONE
    return tuple(sorted(total.items()))


def _classes(devices: raw.DeviceRequests | None) -> dict[str, str | None]:
    """The device class of each request; an alternative is called request/alternative."""
    classes: dict[str, str | None] = {}
    for each in (devices.requests if devices else None) or ():
        if each.exactly:
            classes[each.name or ""] = each.exactly.device_class_name
        for one in each.first_available or ():
            classes[f"{each.name}/{one.name}"] = one.device_class_name
    return classes
