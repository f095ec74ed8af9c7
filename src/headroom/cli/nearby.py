"""The part of a cluster that tells of one pod, read once and with no more rights than the pod's owner has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from headroom.model.errors import Refused

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.model.world import World
    from headroom.runtime.settings import Settings
    from headroom.sim.documents import Documents

_SUSPENDED: Final = {"labelSelector": "headroom.dev/suspended"}


class Near(NamedTuple):
    """What could be read."""

    world: World
    unread: tuple[str, ...]
    """What could not be, for lack of rights."""


async def read(kube: Kube, settings: Settings, namespace: str) -> Near:
    """The pods of a namespace, or of all if it is empty, and whatever may hold them. Raises if the pods may not be read."""
    from msgspec import structs

    from headroom.adapters.kube import paths
    from headroom.cli import live
    from headroom.core.usage import table_of
    from headroom.sim.documents import Documents

    found, unread = Documents(), []
    if not await _may_take(kube, found, paths.pods(namespace)):
        where = f"of namespace {namespace}" if namespace else "of all namespaces; name one, as in pod/lab/train-0"
        raise Refused(f"reading pods: we may not list those {where}")
    for path, narrower in (
        (paths.collection("GPUWorkloadBudget"), paths.collection("GPUWorkloadBudget", namespace)),
        (paths.namespaces(), paths.namespace(namespace)),
    ):
        if not await _may_take(kube, found, path):
            unread.append(paths.spoken(path))
            if namespace and not await _may_take(kube, found, narrower):
                unread[-1] = paths.spoken(narrower)
    for kind in paths.OWNERS:
        path = paths.owner(kind, namespace)
        if not await _may_take(kube, found, path, None if kind == "Workload" else _SUSPENDED):
            unread.append(paths.spoken(path))
    now = kube.clock.now()
    world = found.world(now, settings.cluster_id or "default")
    rows = await live.rows(settings, now) if settings.ledger_url else []
    stopped = await _is_stopped(kube, settings)
    world = structs.replace(world, own_namespace=settings.namespace, stopped=stopped)
    return Near(structs.replace(world, usage=table_of(world, rows)), tuple(unread))


async def _take(kube: Kube, found: Documents, path: str, query: Mapping[str, str] | None = None) -> None:
    from headroom.sim import documents

    async for body in kube.pages(path, query=query):
        documents.take(found, path, body)


async def _may_take(kube: Kube, found: Documents, path: str, query: Mapping[str, str] | None = None) -> bool:
    """Read what is at an address; False if we may not. Nothing there is nothing to tell."""
    from headroom.adapters.kube import errors

    try:
        await _take(kube, found, path, query)
    except errors.NotFound:
        return True
    except errors.Forbidden:
        return False
    return True


async def _is_stopped(kube: Kube, settings: Settings) -> bool:
    """Whether the kill switch is thrown, as far as we may know."""
    from headroom.adapters.kube import errors, parse, paths, raw
    from headroom.adapters.kube.sinks import is_stopped
    from headroom.cli import kill_switch

    try:
        body = await kube.get(paths.configmap(settings.namespace, kill_switch.NAME))
    except (errors.NotFound, errors.Forbidden):
        return False
    return is_stopped(parse.settings_of(raw.fitted(raw.plain(body), raw.ConfigMap)).data)
