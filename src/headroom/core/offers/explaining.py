"""Why the first offer is first, what would take its place, and how every offer stands now: for people who ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headroom.api import durations
from headroom.api.kinds import AnyResource
from headroom.api.offers import LeftoverNodePoolSpec
from headroom.api.offers_status import ChosenOffer, LeftoverNodePoolStatus
from headroom.core.offers.gathering import RankingProblem, gathered, node_class_of
from headroom.core.offers.quotes import Market, market_of
from headroom.core.offers.telling import passed_over
from headroom.core.offers.wording import offer_text
from headroom.model import times
from headroom.model.decisions import Ref
from headroom.model.world import World

RULES = {
    "CostAndRisk": "the expected cost of a useful GPU-hour",
    "CheapestAboveScore": "the price of the machine",
}
"""What offers are ranked by, by strategy."""


def market_now(world: World, ref: Ref, resource: AnyResource) -> Market:
    """All offers of the world, judged for a valid pool."""
    node_class = node_class_of(gathered(world, ref, resource, {}))
    return market_of(world, resource.spec, () if isinstance(node_class, RankingProblem) else node_class.zones)


def zone_names(status: LeftoverNodePoolStatus) -> dict[str, str]:
    """Names of zones by their ids, as far as the rungs say."""
    found: dict[str, str] = {}
    for rung in status.rungs:
        if len(rung.zones) == len(rung.zone_ids):
            found |= zip(rung.zone_ids, rung.zones, strict=True)
    return found


def reasons(
    spec: LeftoverNodePoolSpec, status: LeftoverNodePoolStatus, zones: Mapping[str, str] | None = None
) -> Iterator[str]:
    """A sentence each: what is first and why, what may take its place and when, and what was passed over."""
    chosen, names = status.chosen, zones or zone_names(status)
    if chosen is None or not chosen.offer:
        yield "No offer is first now."
    else:
        first = f"has been first since {chosen.since}" if chosen.since else "is first"
        yield f"{offer_text(chosen.offer, names)} {first}; offers are ranked by {RULES[spec.strategy]}."
        yield from _challenge(spec, status, chosen, names)
    if status.passed_over:
        yield f"Passed over: {passed_over(status.passed_over)}."


def _challenge(
    spec: LeftoverNodePoolSpec, status: LeftoverNodePoolStatus, chosen: ChosenOffer, names: Mapping[str, str]
) -> Iterator[str]:
    other = status.runner_up
    if other is None:
        yield "No other offer can be ranked, so nothing can replace it."
        return
    named = offer_text(other.offer, names)
    if other.saving.startswith("-"):
        yield f"The next best, {named}, costs {other.saving[1:]} more."
        return
    yield f"{named} would save {other.saving}; a switch needs {other.saving_needed}."
    yield from _earliest(spec, chosen, other.since, _as_of(status))


def _as_of(status: LeftoverNodePoolStatus) -> int:
    """The latest moment that the status tells of."""
    told = (status.last_sync_time, status.savings.as_of if status.savings else "")
    return max(times.moment(each) or 0 for each in told)


def _earliest(spec: LeftoverNodePoolSpec, chosen: ChosenOffer, since: str, now: int) -> Iterator[str]:
    """When a switch is possible at the earliest, and what holds it back."""
    if spec.max_switches_per_day <= len(chosen.switches):
        most = spec.max_switches_per_day
        often = "once" if most == 1 else f"{most} times"
        yield f"The first offer changed {often} in the last day, as often as spec.maxSwitchesPerDay allows."
    dwell = _after(chosen.since, spec.min_dwell)
    lasting = _after(since, spec.switch_after) if since else 0
    if dwell >= lasting and dwell > now:
        yield f"No switch before {times.text(dwell)}: an offer stays first for at least {spec.min_dwell} (spec.minDwell)."
    elif lasting > now:
        yield f"No switch before {times.text(lasting)}: the saving must last {spec.switch_after} (spec.switchAfter)."


def _after(since: str, length: str) -> int:
    """So long after a moment of the status, which a hand may have written."""
    return min((times.moment(since) or 0) + (durations.milliseconds(length) or 0), times.LAST)
