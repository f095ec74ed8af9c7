"""Where the watches of claims and devices put what they hear."""

from __future__ import annotations

from functools import partial

from headroom.adapters.kube.changes import Subscriptions
from headroom.adapters.kube.sinks import FactSink, PodSink, tell_of
from headroom.model.changes import Topic
from headroom.model.device_facts import Claim, ClaimTemplate, DeviceClass, DeviceSlice
from headroom.model.devices import DeviceTable


def claims(changes: Subscriptions, pods: PodSink, facts: dict[str, Claim]) -> FactSink[Claim]:
    """Keeps the claims; a change concerns the pods that share them."""

    def changed(key: str, before: Claim | None, after: Claim | None) -> None:
        changes.fact(Topic.CLAIMS, key)
        sharing = {uid for each in (before, after) if each is not None for uid in each.reserved_for}
        for uid in sorted(sharing):
            pods.again(uid)

    return FactSink(lambda fact: fact.key, changed, facts=facts)


def claim_templates(changes: Subscriptions, table: DeviceTable) -> FactSink[ClaimTemplate]:
    """Keeps the templates of claims."""
    return FactSink(lambda fact: fact.key, partial(tell_of, changes, Topic.CLAIMS), facts=table.templates)


def device_classes(changes: Subscriptions, table: DeviceTable) -> FactSink[DeviceClass]:
    """Keeps the device classes; a change concerns all pods, since each may ask for devices by an extended resource."""

    def changed(key: str, _before: DeviceClass | None, _after: DeviceClass | None) -> None:
        table.changed()
        changes.fact(Topic.DEVICES)
        changes.fact(Topic.DEVICE_CLASSES, key)

    return FactSink(lambda fact: fact.name, changed, facts=table.classes)


def device_slices(changes: Subscriptions, table: DeviceTable) -> FactSink[DeviceSlice]:
    """Keeps the slices of devices; a change concerns the pods that have some."""

    def changed(key: str, _before: DeviceSlice | None, _after: DeviceSlice | None) -> None:
        table.changed()
        changes.fact(Topic.DEVICES, key)

    return FactSink(lambda fact: fact.name, changed, facts=table.slices)
