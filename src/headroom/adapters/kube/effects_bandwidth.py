"""What is done for bandwidth: an object for each node, what the API server's policies read, and what nodes have of it for kube-scheduler to count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec

from headroom.adapters.kube import amounts, bandwidth_configs, errors, parse, paths, raw
from headroom.adapters.kube.changing import ChangeOutcome, Patch, change, labels, meta, read
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.effects_power import pods_on
from headroom.api import marks
from headroom.api.bandwidth import NODE_UID, Bandwidth
from headroom.api.bandwidth_config import EXTENDED
from headroom.api.kinds import AnyResource
from headroom.api.resources import API_VERSION
from headroom.model import actions
from headroom.model.bandwidth import is_counted
from headroom.model.errors import Refused
from headroom.model.handlers import carries_out


class _Sizes(raw.RawPart):
    capacity: dict[str, Any] | None = None
    allocatable: dict[str, Any] | None = None


class Sized(raw.Object):
    """A node with what it has."""

    status: _Sizes | None = None


def sized(node: Sized, resources: Mapping[str, str]) -> Patch | None:
    """The change of its status by which a node publishes this bandwidth and no other."""
    status, wanted = node.status or _Sizes(), amounts.listed(resources, EXTENDED)
    # The API server may write an amount in another way: 1000 is 1k.
    if all(amounts.listed(each, EXTENDED) == wanted for each in (status.capacity, status.allocatable)):
        return None
    return {"status": dict.fromkeys(("capacity", "allocatable"), dict.fromkeys(EXTENDED) | dict(resources))}


def _is_ours(found: raw.Object) -> bool:
    return marks.BANDWIDTH in labels(found)


class BandwidthEffects:
    """Writes the configuration of the policies, and the extended resources of nodes."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    @carries_out(actions.ApplyBandwidthConfig)
    async def apply_config(self, action: actions.ApplyBandwidthConfig, _resource: AnyResource) -> None:
        """Make it say what was decided."""
        await bandwidth_configs.apply(self._kube, action.spec)

    @carries_out(actions.ApplyBandwidth)
    async def apply(self, action: actions.ApplyBandwidth, _resource: AnyResource) -> None:
        """Make the object, if the node is still the one that was decided on. What people say in one that exists is theirs."""
        node = await read(self._kube, paths.node(action.node), raw.Object)
        if node is None or (action.uid and meta(node).uid != action.uid):
            raise Refused(f"making the Bandwidth of node {action.node}: the node is gone")
        metadata: dict[str, Any] = {"name": action.node}
        if action.uid:
            metadata["annotations"] = {NODE_UID: action.uid}
        spec = {name: value for name, value in msgspec.to_builtins(action.spec).items() if value}
        document = {"apiVersion": API_VERSION, "kind": Bandwidth.kind.name, "metadata": metadata}
        with suppress(errors.AlreadyExists):
            await self._kube.create(paths.collection(Bandwidth.kind.name), document | {"spec": spec})

    @carries_out(actions.DeleteBandwidth)
    async def delete(self, action: actions.DeleteBandwidth, resource: AnyResource) -> None:
        """Delete the object, if its node is really gone."""
        if await read(self._kube, paths.node(action.node), raw.Object) is not None:
            raise Refused(f"deleting the Bandwidth of node {action.node}: the node exists")
        with suppress(errors.NotFound):
            await self._kube.delete(paths.resource(Bandwidth.kind.name, "", action.node), uid=resource.uid)

    @carries_out(actions.ApplyNodeOverlay)
    async def apply_overlay(self, action: actions.ApplyNodeOverlay, _resource: AnyResource) -> None:
        """Make it say what was decided; one of that name that somebody else made is left alone."""
        doing = f"writing NodeOverlay {action.node_overlay}"
        path = paths.node_overlay(action.node_overlay)
        found = await read(self._kube, path, raw.Object)
        if found is not None and not _is_ours(found):
            raise Refused(f"{doing}: Headroom did not create it")
        metadata: dict[str, Any] = {"name": action.node_overlay, "labels": {marks.BANDWIDTH: "true"}}
        if found is not None:
            metadata["uid"] = meta(found).uid or ""
        body = {"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": metadata, "spec": action.spec}
        try:
            await self._kube.apply(path, body)
        except errors.Conflict as conflict:
            if not conflict.causes:
                raise  # it is another one by now: the next look tells
            whose = "; ".join(f"{field}: {why}" for field, why in conflict.causes)
            raise Refused(f"{doing}: other managers own these fields, so nothing was written: {whose}") from None

    @carries_out(actions.DeleteNodeOverlay)
    async def delete_overlay(self, action: actions.DeleteNodeOverlay, _resource: AnyResource) -> None:
        """Delete it, if it is still the one that Headroom made."""
        path = paths.node_overlay(action.node_overlay)
        found = await read(self._kube, path, raw.Object)
        if found is None or meta(found).uid != action.uid or not _is_ours(found):
            return
        with suppress(errors.NotFound):  # this very version: whoever takes our label away has the last word
            await self._kube.delete(path, uid=action.uid, resource_version=meta(found).resource_version or "")

    @carries_out(actions.SetNodeResources)
    async def set_resources(self, action: actions.SetNodeResources, _resource: AnyResource) -> None:
        """Capacity and allocatable together: a kubelet works out what is allocatable from the capacity every few seconds."""
        if strays := sorted(action.resources.keys() - {*EXTENDED}):
            raise Refused(f"publishing {', '.join(strays)} on node {action.node}: they are not Headroom's")
        await self._check_pods(action)
        outcome, _ = await change(
            self._kube,
            paths.node(action.node),
            Sized,
            lambda node: sized(node, action.resources),
            uid=action.uid,
            part="status",
        )
        if outcome is ChangeOutcome.GONE and action.resources:
            raise Refused(f"publishing bandwidth on node {action.node}: it is gone")

    async def _check_pods(self, action: actions.SetNodeResources) -> None:
        """Nothing is taken from pods that were bound since it was decided: kube-scheduler gave it to them by what stands there."""
        node = await read(self._kube, paths.node(action.node), Sized)
        given = dict(amounts.listed(node.status.allocatable, EXTENDED)) if node and node.status else {}
        wanted = dict(amounts.listed(action.resources, EXTENDED))
        lowered = {name: amount for name, amount in given.items() if amount > wanted.get(name, 0)}
        if not lowered:
            return
        bound = Counter[str]()
        for pod in map(parse.pod_of, await pods_on(self._kube, action.node)):
            bound.update(dict(pod.shape.requests) if is_counted(pod) else {})
        for name, amount in lowered.items():
            if min(bound[name], amount) > wanted.get(name, 0):
                raise Refused(f"publishing less {name} on node {action.node}: new pods request it")
