"""What the extender counts a pod as: the same as the accounting does."""

from __future__ import annotations

from headroom.core.bandwidth.groups import says_siblings
from headroom.core.bandwidth.holds import PodAsk
from headroom.core.bandwidth.rates import asked_by
from headroom.model.bandwidth import BandwidthRules, Rates, group_of
from headroom.model.facts import Pod


def ask_of(pod: Pod, rules: BandwidthRules) -> PodAsk:
    """What a pod asks for. One in the network of its node is not told apart there, so nothing is reserved for it."""
    rates = Rates() if pod.shape.host_network else asked_by(pod, rules).rates
    group = group_of(pod) if pod.owner is not None else ""
    return PodAsk(pod.uid, rates.up, rates.down, group, says_siblings(pod.annotations, rules))
