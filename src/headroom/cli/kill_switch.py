"""The cluster-wide stop as it stands in the cluster: a key in the ConfigMap `headroom` of the operator's namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube

NAME: Final = "headroom"
_KEYS: Final = ("stop", "stop-reason", "stopped-at")


async def throw(kube: Kube, namespace: str, reason: str) -> None:
    """Stop all effects."""
    from headroom.adapters.kube import errors, paths
    from headroom.model import times

    data = {"stop": "true", "stop-reason": reason, "stopped-at": times.text(kube.clock.now())}
    try:
        await kube.merge_patch(paths.configmap(namespace, NAME), {"data": data})
    except errors.NotFound:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": namespace},
            "data": data,
        }
        try:
            await kube.create(paths.configmaps(namespace), body)
        except errors.NotFound as error:
            raise Misconfigured(
                f"creating the ConfigMap {namespace}/{NAME}: there is no namespace {namespace}; "
                "give the operator's with --namespace"
            ) from error


async def put_back(kube: Kube, namespace: str) -> bool:
    """Let effects happen again; False if there is no ConfigMap at all."""
    from headroom.adapters.kube import errors, paths

    try:
        await kube.merge_patch(paths.configmap(namespace, NAME), {"data": dict.fromkeys(_KEYS)})
    except errors.NotFound:
        return False
    return True
