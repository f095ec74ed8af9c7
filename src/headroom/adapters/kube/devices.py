"""Claims to devices, device classes and slices of devices (resource.k8s.io) become facts here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from headroom.adapters.kube import amounts, raw, values
from headroom.model import device_facts as facts
from headroom.model.facts import Amounts

GROUP: Final = "resource.k8s.io"
KINDS: Final = {
    "ResourceClaim": "resourceclaims",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "DeviceClass": "deviceclasses",
    "ResourceSlice": "resourceslices",
}
"""The kinds that are read, with their plurals."""
_META: Final = raw.RawObjectMeta()


class _Cel(raw.RawPart):
    expression: str | None = None


class _Selector(raw.RawPart):
    cel: _Cel | None = None


class _Choice(raw.RawPart):
    name: str | None = None
    device_class_name: str | None = None
    allocation_mode: str | None = None
    count: int | None = None
    admin_access: bool | None = None


class _Request(raw.RawPart):
    name: str | None = None
    exactly: _Choice | None = None
    first_available: list[_Choice] | None = None


class _Requests(raw.RawPart):
    requests: list[_Request] | None = None


class _ClaimSpec(raw.RawPart):
    devices: _Requests | None = None


class _Result(raw.RawPart):
    request: str | None = None
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    admin_access: bool | None = None
    consumed_capacity: raw.Quantities | None = None


class _Results(raw.RawPart):
    results: list[_Result] | None = None


class _Allocation(raw.RawPart):
    devices: _Results | None = None


class _Consumer(raw.RawPart):
    api_group: str | None = None
    resource: str | None = None
    uid: str | None = None


class _ClaimStatus(raw.RawPart):
    allocation: _Allocation | None = None
    reserved_for: list[_Consumer] | None = None


class ClaimWire(raw.Object):
    """A ResourceClaim as it stands on the wire."""

    spec: _ClaimSpec | None = None
    status: _ClaimStatus | None = None


class _TemplateSpec(raw.RawPart):
    spec: _ClaimSpec | None = None


class TemplateWire(raw.Object):
    """A ResourceClaimTemplate as it stands on the wire."""

    spec: _TemplateSpec | None = None


class _ClassSpec(raw.RawPart):
    selectors: list[_Selector] | None = None
    extended_resource_name: str | None = None


class ClassWire(raw.Object):
    """A DeviceClass as it stands on the wire."""

    spec: _ClassSpec | None = None


class _Value(raw.RawPart):
    value: Any = None


class _Attribute(raw.RawPart):
    string: str | None = None


class _Counters(raw.RawPart):
    name: str | None = None
    counter_set: str | None = None
    counters: dict[str, _Value] | None = None


class _Device(raw.RawPart):
    name: str | None = None
    node_name: str | None = None
    attributes: dict[str, _Attribute] | None = None
    capacity: dict[str, _Value] | None = None
    consumes_counters: list[_Counters] | None = None


class _Pool(raw.RawPart):
    name: str | None = None
    generation: int | None = None


class _SliceSpec(raw.RawPart):
    driver: str | None = None
    pool: _Pool | None = None
    node_name: str | None = None
    devices: list[_Device] | None = None
    shared_counters: list[_Counters] | None = None


class SliceWire(raw.Object):
    """A ResourceSlice as it stands on the wire."""

    spec: _SliceSpec | None = None


def claim_of(wire: ClaimWire) -> facts.Claim:
    """The claim as a fact."""
    meta, status = wire.metadata or _META, wire.status or _ClaimStatus()
    namespace, name = meta.namespace or "default", meta.name or ""
    pods = {
        each.uid for each in status.reserved_for or () if each.resource == "pods" and not each.api_group and each.uid
    }
    requests = _requests(wire.spec)
    return facts.Claim(
        uid=meta.uid or f"{namespace}/{name}",
        namespace=namespace,
        name=name,
        resource_version=meta.resource_version or "",
        created=values.moment(meta.creation_timestamp) or 0,
        requests=requests,
        allocated=_allocated(requests, status),
        is_allocated=status.allocation is not None,
        reserved_for=tuple(sorted(pods)),
    )


def template_of(wire: TemplateWire) -> facts.ClaimTemplate:
    """The template as a fact."""
    meta = wire.metadata or _META
    namespace, name = meta.namespace or "default", meta.name or ""
    return facts.ClaimTemplate(
        uid=meta.uid or f"{namespace}/{name}",
        namespace=namespace,
        name=name,
        resource_version=meta.resource_version or "",
        requests=_requests(wire.spec.spec if wire.spec else None),
    )


def class_of(wire: ClassWire) -> facts.DeviceClass:
    """The device class as a fact."""
    meta, spec = wire.metadata or _META, wire.spec or _ClassSpec()
    name = meta.name or ""
    return facts.DeviceClass(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        created=values.moment(meta.creation_timestamp) or 0,
        extended_resource=spec.extended_resource_name or "",
        selectors=tuple(each.cel.expression or "" for each in spec.selectors or () if each.cel),
    )


def slice_of(wire: SliceWire) -> facts.DeviceSlice:
    """The slice as a fact."""
    meta, spec = wire.metadata or _META, wire.spec or _SliceSpec()
    pool, name = spec.pool or _Pool(), meta.name or ""
    return facts.DeviceSlice(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        driver=spec.driver or "",
        pool=pool.name or "",
        generation=pool.generation or 0,
        node=spec.node_name or "",
        devices=tuple(_device(each) for each in spec.devices or ()),
        counters=tuple((each.name or "", _values(each.counters)) for each in spec.shared_counters or ()),
    )


def _requests(spec: _ClaimSpec | None) -> tuple[facts.DeviceRequest, ...]:
    found = []
    for each in (spec.devices.requests if spec and spec.devices else None) or ():
        exactly = each.exactly
        choices = (_choice(exactly),) if exactly else tuple(_choice(one) for one in each.first_available or ())
        is_admin = bool(exactly and exactly.admin_access)
        found.append(facts.DeviceRequest(name=each.name or "", choices=choices, is_admin=is_admin))
    return tuple(found)


def _choice(wire: _Choice) -> facts.DeviceChoice:
    return facts.DeviceChoice(
        name=wire.name or "",
        device_class=wire.device_class_name or "",
        count=1 if wire.count is None else max(0, wire.count),
        takes_all=wire.allocation_mode == "All",
    )


def _allocated(requests: tuple[facts.DeviceRequest, ...], status: _ClaimStatus) -> tuple[facts.AllocatedDevice, ...]:
    """The devices of a claim; those with admin access are not counted. An alternative is called request/alternative."""
    found = status.allocation.devices if status.allocation else None
    classes = {
        f"{each.name}/{choice.name}" if choice.name else each.name: choice.device_class
        for each in requests
        for choice in each.choices
    }
    return tuple(
        facts.AllocatedDevice(
            device_class=classes.get(each.request or "", ""),
            driver=each.driver or "",
            pool=each.pool or "",
            device=each.device or "",
            consumed=amounts.given(each.consumed_capacity),
        )
        for each in (found.results if found else None) or ()
        if not each.admin_access
    )


def _device(wire: _Device) -> facts.Device:
    # A name without a domain belongs to the driver's own.
    told = {name.rpartition("/")[2]: each.string for name, each in (wire.attributes or {}).items()}
    return facts.Device(
        name=wire.name or "",
        node=wire.node_name or "",
        product=values.one(told.get("productName") or ""),
        profile=values.one(told.get("profile") or ""),
        capacity=_values(wire.capacity),
        counters=tuple((each.counter_set or "", _values(each.counters)) for each in wire.consumes_counters or ()),
    )


def _values(found: Mapping[str, _Value] | None) -> Amounts:
    return amounts.given({name.rpartition("/")[2]: each.value for name, each in (found or {}).items()})
