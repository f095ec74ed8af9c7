"""Annotations of Pods and Nodes in manifests that say bandwidth and that nobody can read: `headroom check` warns of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headroom.adapters.documents import Documents
    from headroom.api.schema import Problem
    from headroom.core.bandwidth import Malformed
    from headroom.model.bandwidth import BandwidthRules
    from headroom.model.decisions import Ref

FIELD: Final = "metadata.annotations"


def unreadable_rates(found: Documents, rules: BandwidthRules) -> Iterator[tuple[Ref, Problem]]:
    """Each such annotation with what becomes of it."""
    from headroom.api.schema import Problem
    from headroom.core.bandwidth import amounts_of, asked_by, unreadable, unreadable_annotations
    from headroom.model.decisions import Ref

    def says(malformed: Malformed, then: str) -> Problem:
        return Problem(FIELD, f"{unreadable(malformed)}; {then}")

    for pod in found.pods:
        asked = asked_by(pod, rules)
        then = (
            f"the policy headroom-rates refuses such a pod, and without it {amounts_of(asked.rates)} Mbps up/down count"
        )
        for each in asked.malformed:
            yield Ref("Pod", pod.namespace, pod.name), says(each, then)
    for node in found.nodes:
        for each in unreadable_annotations(node):
            yield Ref("Node", "", node.name), says(each, "until then it counts as not said")
