"""Which schedulers place pods in this cluster, as far as that shows: nothing is opened for pods that nobody will place."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np

from headroom.model.facts import Pod
from headroom.model.world import World

OURS: Final = "default-scheduler"
_KUBES: Final = "kube-scheduler"
"""Its own pods are called so. They do not tell for which names it places pods, and this is none of them."""
_ENDED: Final = ("Succeeded", "Failed")


class Schedulers:
    """Judges each scheduler once."""

    def __init__(self, world: World, known: Collection[str] = ()) -> None:
        """Those that are `known` place pods here, since somebody said so."""
        self._world = world
        self._known = dict.fromkeys({OURS, *known}, True)

    def places(self, name: str) -> bool:
        """Whether a scheduler is at work here: it is named, pods of its are on nodes, or it runs here itself."""
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._has_placed(name) or self._runs(name)
        return known

    def _has_placed(self, name: str) -> bool:
        pods = self._world.pods
        theirs = [number for number, shape in pods.shapes.items() if shape.scheduler == name]
        bound = pods.column("node") != pods.names.number("")
        return bool(np.any(np.isin(pods.column("shape"), theirs) & bound))

    def _runs(self, name: str) -> bool:
        """Where all machines sleep, its last pods may be long gone; then its own pod is all that tells of it."""
        return any(_is_itself(pod, name) for pod in self._world.pods)


def _is_itself(pod: Pod, name: str) -> bool:
    """Whether a pod is a scheduler, by its name: volcano-scheduler-7d4f is volcano, kai-scheduler/scheduler-x is kai-scheduler."""
    if "scheduler" not in pod.name or not pod.node or pod.phase in _ENDED or pod.name.startswith(_KUBES):
        return False
    return pod.name.startswith(f"{name}-") or pod.namespace == name
