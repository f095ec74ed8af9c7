"""What happens to the machines of spot pools, in words: launched, joined, reclaimed, ended, sold out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headroom.cli.face_spot import CAUSES
from headroom.model import times

if TYPE_CHECKING:
    from headroom.api.kinds import AnyResource
    from headroom.api.spot_pools_status import Slot, SpotpoolStatus
    from headroom.cli.face import Line
    from headroom.model.decisions import Decision, Ref


class SpotStory:
    """Remembers the last status of each pool and tells what is different."""

    def __init__(self) -> None:
        self._known: dict[Ref, SpotpoolStatus] = {}

    def decided(self, decision: Decision, now: int) -> Iterator[Line]:
        """The turns of slots since the decision before."""
        from headroom.api.spot_pools_status import SpotpoolStatus

        status, ref = decision.status, decision.resource
        if not isinstance(status, SpotpoolStatus):
            return
        known = self._known.get(ref, SpotpoolStatus())
        self._known[ref] = status
        before = {each.slot: each for each in known.slots}
        for slot in status.slots:
            yield from (
                (now, f"spot: {ref.namespace}/{ref.name} {said}") for said in _turns(before.get(slot.slot), slot)
            )
        resting = {(each.instance_type, each.zone, each.failures) for each in known.sold_out}
        for each in status.sold_out:
            if (each.instance_type, each.zone, each.failures) not in resting:
                until = f", so it is not tried before {_clock(each.until)}" if each.until else ""
                yield now, f"spot: {each.instance_type} is not available in {each.zone or 'the region'}{until}"

    def news(self, _ref: Ref, decision: Decision, _resource: AnyResource, now: int) -> Iterable[Line]:
        """The same: that a machine joined only moves in a status."""
        return self.decided(decision, now)


def _turns(before: Slot | None, slot: Slot) -> Iterator[str]:
    is_new = before is None or before.token != slot.token
    what = slot.instance_id or f"{slot.instance_type} in {slot.zone}"
    if is_new and slot.state == "Launching":
        yield f"launches {slot.instance_type} in {slot.zone}"
    if slot.joined_at and slot.node and (is_new or before is None or not before.joined_at):
        yield f"has a new node, {slot.node}"
    if slot.reclaim_at and (before is None or not before.reclaim_at):
        yield f"gets notice that the cloud reclaims {what} at {_clock(slot.reclaim_at)}"
    # That one is drained first goes without saying, and so does the end of one that the cloud takes back.
    words = {"Ending": "ends", "Cancelling": "cancels"}
    if before is not None and before.state != slot.state and slot.state in words and slot.cause != "Reclaimed":
        yield f"{words[slot.state]} {what}" + (f": {CAUSES[slot.cause]}" if slot.cause else "")


def _clock(text: str) -> str:
    return text[11:16] if times.moment(text) is not None else text
