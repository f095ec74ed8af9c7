"""Why a node is refused to a pod in extender mode, and what kube-scheduler reads about it."""

from __future__ import annotations

from enum import IntEnum

from headroom.core.bandwidth.holds import PodAsk
from headroom.model.bandwidth import exact_mbps


class NodeRefusal(IntEnum):
    """One cause per node; where several hold, the one that is hardest to mend. The first two are none."""

    PASSED = 0
    NOT_CHOSEN = 1
    NETWORK_UP = 2
    NETWORK_DOWN = 3
    SIBLINGS = 4
    LOCAL_UP = 5
    LOCAL_DOWN = 6
    BOUND = 7
    UNKNOWN = 8


def refusal_sentence(why: NodeRefusal, ask: PodAsk) -> str:
    """For the pod's event, where kube-scheduler puts the number of nodes before it: so it is the same for all of them.

    Empty where the node was not refused.
    """
    up, down = (f"{exact_mbps(each)} Mbps" for each in (ask.up, ask.down))
    return {
        NodeRefusal.NETWORK_UP: f"Insufficient network egress bandwidth (the pod requests {up})",
        NodeRefusal.NETWORK_DOWN: f"Insufficient network ingress bandwidth (the pod requests {down})",
        NodeRefusal.SIBLINGS: "Insufficient network bandwidth for the siblings, which would have to use the network card of their node",
        NodeRefusal.LOCAL_UP: f"Insufficient local egress bandwidth (the pod requests {up})",
        NodeRefusal.LOCAL_DOWN: f"Insufficient local ingress bandwidth (the pod requests {down})",
        NodeRefusal.BOUND: "The pod is already bound to another node",
        NodeRefusal.UNKNOWN: "Node unknown to the bandwidth extender, or gone",
    }.get(why, "")
