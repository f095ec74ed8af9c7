"""What happens in cheapest capacity, in words: what is first, which launches fail, which nodes come and go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headroom.model import times

if TYPE_CHECKING:
    from headroom.api.kinds import AnyResource
    from headroom.api.offers_status import LeftoverNodePoolStatus, Rung
    from headroom.cli.face import Line
    from headroom.model.decisions import Decision, Ref


class OffersStory:
    """Remembers the last status of each and tells what is different."""

    def __init__(self) -> None:
        self._known: dict[Ref, LeftoverNodePoolStatus] = {}

    def decided(self, decision: Decision, now: int) -> Iterator[Line]:
        """What turned since the decision before."""
        from headroom.api.offers_status import LeftoverNodePoolStatus

        status, ref = decision.status, decision.resource
        if not isinstance(status, LeftoverNodePoolStatus):
            return
        known = self._known.get(ref, LeftoverNodePoolStatus())
        self._known[ref] = status
        yield from ((now, f"offers: {ref.name} {said}") for said in _turns(known, status))

    def news(self, _ref: Ref, decision: Decision, _resource: AnyResource, now: int) -> Iterable[Line]:
        """The same: how many nodes a rung has only moves in a status."""
        return self.decided(decision, now)


def _turns(known: LeftoverNodePoolStatus, status: LeftoverNodePoolStatus) -> Iterator[str]:
    from headroom.core.offers import offer_text, zone_names

    names = zone_names(known) | zone_names(status)
    before, after = (each.chosen.offer if each.chosen else "" for each in (known, status))
    if after and after != before:
        price = f" at ${status.last_price_usd} an hour" if status.last_price_usd else ""
        instead = f", instead of {offer_text(before, names)}" if before else ""
        yield f"puts {offer_text(after, names)} first{price}{instead}"
    earlier = {each.name: each for each in known.rungs}
    for rung in status.rungs:
        yield from _of_rung(earlier.get(rung.name), rung)


def _of_rung(before: Rung | None, rung: Rung) -> Iterator[str]:
    what = rung.instance_types[0] if rung.instance_types else rung.name
    what += " on demand" if rung.capacity_type == "on-demand" else ""
    was = before.state if before else "Active"
    if rung.state == "Resting" and was != "Resting":
        yield f"does not try {what} before {_clock(rung.until)}: a launch failed"
    if rung.state == "Leaving" and was != "Leaving":
        yield f"adds no more {what}; its {rung.nodes or 0} nodes stay until they are empty"
    nodes, had = rung.nodes or 0, (before.nodes or 0) if before else 0
    if nodes and not had:  # more of the same would be told too often
        yield f"has {nodes} new node{'' if nodes == 1 else 's'}, {what}"


def _clock(text: str) -> str:
    return text[11:16] if times.moment(text) is not None else text
