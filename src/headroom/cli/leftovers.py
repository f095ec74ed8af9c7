"""What Headroom leaves in a cluster, and how each thing is taken back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headroom.cli import kill_switch, progress

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.runtime.settings import Settings

POLICY_GROUP: Final = "admissionregistration.k8s.io"
AT_ONCE: Final = 8


class Leftover(NamedTuple):
    """One thing to remove: an object, or our marks on an object of others."""

    what: str
    path: str
    undo: str = "delete"
    """How: delete, finalizers, pod, node, or the kind of an owner that goes on."""
    namespace: str = ""
    name: str = ""


async def rules(kube: Kube) -> AsyncIterator[Leftover]:
    """The policies, and what they read. They go first, or the API server would hold new pods that nobody releases."""
    from headroom.adapters.kube import decode, paths
    from headroom.api.policies import policy_names

    policies = [
        Leftover(f"{plural}.{POLICY_GROUP} {name}", paths.of(POLICY_GROUP, "v1", plural, name=name))
        for plural, name in policy_names()
    ]
    async for policy in _present(kube, policies):
        yield policy
    async for hold in _listed(kube, paths.budget_hold(), decode.holds()):
        yield Leftover(f"BudgetHold {hold.name}", paths.budget_hold(hold.name))


async def marks(kube: Kube) -> AsyncIterator[Leftover]:
    """What stands on objects of others, and on our resources."""
    async for pod in _pods(kube):
        yield pod
    async for owner in _owners(kube):
        yield owner
    async for node in _nodes(kube):
        yield node
    async for resource in _resources(kube):
        yield resource


async def _pods(kube: Kube) -> AsyncIterator[Leftover]:
    from headroom.adapters.kube import decode, paths, taking_back

    async for pod in _listed(kube, paths.pods(), decode.pods()):
        if found := taking_back.left_on(pod):
            what = f"our {' and '.join(found)} from pod {pod.key}"
            yield Leftover(what, paths.pod(pod.namespace, pod.name), "pod", pod.namespace, pod.name)


async def _owners(kube: Kube) -> AsyncIterator[Leftover]:
    from headroom.adapters.kube import sources
    from headroom.api.marks import SUSPENDED

    for each in sources.of_field("workloads"):
        async for owner in _listed(kube, each.path(), each.decoder(), {"labelSelector": SUSPENDED}):
            marked = "suspension of" if owner.suspended_by else "mark on"
            what = f"our {marked} {each.kind} {owner.namespace}/{owner.name}"
            yield Leftover(what, each.path(owner.namespace, owner.name), each.kind, owner.namespace, owner.name)


async def _nodes(kube: Kube) -> AsyncIterator[Leftover]:
    from headroom.adapters.kube import decode, paths, taking_back

    async for node in _listed(kube, paths.nodes(), decode.nodes()):
        if found := taking_back.left_on_node(node):
            what = f"our {' and '.join(found)} node {node.name}"
            yield Leftover(what, paths.node(node.name), "node", name=node.name)


async def _resources(kube: Kube) -> AsyncIterator[Leftover]:
    from headroom.adapters.kube import decode, paths, sources
    from headroom.adapters.kube.values import OURS
    from headroom.api.bandwidth import NODE_UID
    from headroom.api.kinds import KINDS

    async for overlay in _listed(kube, paths.node_overlay(), sources.of("NodeOverlay").decoder()):
        if overlay.ours:
            yield Leftover(f"NodeOverlay {overlay.name}", paths.node_overlay(overlay.name))
    for kind in KINDS:
        async for each in _listed(kube, paths.collection(kind), decode.resources(kind)):
            if any(name.startswith(OURS) for name in each.finalizers):
                path = paths.resource(kind, each.namespace, each.name)
                named = "/".join(part for part in (kind, each.namespace, each.name) if part)
                yield Leftover(f"our finalizer from {named}", path, "finalizers")
            if NODE_UID in each.annotations:  # the operator made it
                yield Leftover(f"{kind} {each.name}", paths.resource(kind, each.namespace, each.name))


async def rest(kube: Kube, settings: Settings, *, crds: bool) -> AsyncIterator[Leftover]:
    """The operator's own objects, and with `crds` its kinds."""
    from headroom.adapters.kube import bandwidth_configs, paths
    from headroom.api.bandwidth_config import CONFIG_NAME, BandwidthConfig
    from headroom.api.budget_index import INDEX_NAME
    from headroom.api.kinds import DEFINITIONS
    from headroom.api.resources import GROUP
    from headroom.cli import leftovers_bandwidth

    lease = paths.lease(settings.operator_namespace, settings.lease_name)
    single = [
        Leftover(f"BudgetIndex {INDEX_NAME}", paths.budget_index(INDEX_NAME)),
        Leftover(f"{BandwidthConfig.kind.name} {CONFIG_NAME}", bandwidth_configs.path(CONFIG_NAME)),
        Leftover(f"Lease {settings.operator_namespace}/{settings.lease_name}", lease),
        *(Leftover(what, path) for what, path in leftovers_bandwidth.of_extender(settings)),
    ]
    if crds:
        group, plural = "apiextensions.k8s.io", "customresourcedefinitions"
        names = [f"{kind.plural}.{GROUP}" for kind in DEFINITIONS.values()]
        single += [
            Leftover(f"kind {name} and all its resources", paths.of(group, "v1", plural, name=name)) for name in names
        ]
    # The kill switch is in it, so it goes last: until then it holds back an operator that nobody thought of.
    switch = paths.configmap(settings.operator_namespace, kill_switch.NAME)
    single.append(Leftover(f"ConfigMap {settings.operator_namespace}/{kill_switch.NAME}", switch))
    async for thing in _present(kube, single):
        yield thing


async def _present(kube: Kube, things: list[Leftover]) -> AsyncIterator[Leftover]:
    """Those of them that are there."""
    from headroom.adapters.kube import errors

    for thing in things:
        try:
            await kube.get(thing.path)
        except errors.NotFound:
            continue
        yield thing


async def _listed(kube: Kube, path: str, decoder: Any, query: dict[str, str] | None = None) -> AsyncIterator[Any]:
    """Every object of a kind; none if the kind is not there."""
    from headroom.adapters.kube import errors

    try:
        async for body in kube.pages(path, query=query):
            for fact in decoder.page(body).items:
                yield fact
    except errors.NotFound:
        return


async def remove_in_order(kube: Kube, things: Sequence[Leftover]) -> None:
    """One after another."""
    for each in things:
        await _remove(kube, each)


async def remove_many(kube: Kube, things: Sequence[Leftover]) -> None:
    """In any order, a few at a time, with word of how far it is."""
    turn, done = asyncio.Semaphore(AT_ONCE), 0
    with progress.shown("removing", "things", len(things)) as told:

        async def one(thing: Leftover) -> None:
            nonlocal done
            async with turn:
                await _remove(kube, thing)
            done += 1
            told(done)

        await asyncio.gather(*map(one, things))


async def _remove(kube: Kube, thing: Leftover) -> None:
    from headroom.adapters.kube import changing, errors, taking_back

    try:
        if thing.undo == "pod":
            await taking_back.from_pod(kube, thing.namespace, thing.name)
        elif thing.undo == "node":
            await taking_back.from_node(kube, thing.name)
        elif thing.undo == "finalizers":
            await changing.remove_finalizers(kube, thing.path)
        elif thing.undo == "delete":
            await kube.delete(thing.path)
        else:
            await taking_back.from_owner(kube, thing.undo, thing.namespace, thing.name)
    except errors.NotFound:
        return  # somebody else was quicker
