"""Removes the finalizers of pods whose end is recorded: one small request for each, since they are many."""

from __future__ import annotations

from typing import Final

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.client import Kube
from headroom.model.facts import Pod

UNPROCESSABLE: Final = 422


async def remove_from_pod(kube: Kube, pod: Pod) -> None:
    """Our finalizers go from exactly this pod, all others stay; it may be gone, and another one may have its name."""
    metadata = {"uid": pod.uid, "$deleteFromPrimitiveList/finalizers": list(pod.finalizers)}
    try:
        await kube.strategic_patch(paths.pod(pod.namespace, pod.name), {"metadata": metadata})
    except errors.NotFound:
        return
    except errors.Conflict as problem:
        # A uid cannot be changed: another pod has the name by now, and the patch did not touch it.
        if problem.status != UNPROCESSABLE:
            raise
