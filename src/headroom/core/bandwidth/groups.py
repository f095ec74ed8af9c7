"""Who belongs together, and whether all of a group is on one node, so that what it sends need not leave it."""

from __future__ import annotations

from headroom.api.bandwidth import SIBLINGS, TRAFFIC
from headroom.model.bandwidth import BandwidthRules, group_of
from headroom.model.facts import Pairs, Pod
from headroom.model.tables import PodTable


def says_siblings(annotations: Pairs, rules: BandwidthRules) -> bool:
    """Whether a pod talks only to its siblings on the same node, by its annotations or because all pods do."""
    return rules.siblings or is_marked(annotations)


def is_marked(annotations: Pairs) -> bool:
    """Whether a pod itself says that it talks only to its siblings on the same node."""
    return any(key == TRAFFIC and value == SIBLINGS for key, value in annotations)


def is_together(pods: PodTable, pod: Pod) -> bool:
    """Whether all bound pods of its group are on one node.

    One that is left there alone does not come to use the card by that: nobody has made room for it there. A sibling that starts elsewhere
    makes it. A pod without a controller has no siblings, so it is never link-local, whatever it says.
    """
    return pod.owner is not None and pods.by_group[group_of(pod)].keys() <= {pod.node}
