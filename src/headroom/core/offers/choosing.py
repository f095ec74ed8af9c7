"""Which offer has the first place, and in which order the others follow. What is remembered for that stands in the status."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import Struct

from headroom.api import durations
from headroom.api.offers import LeftoverNodePoolSpec
from headroom.api.offers_status import Challenger, ChosenOffer, LeftoverNodePoolStatus
from headroom.core.offers.quotes import Market, Quote
from headroom.core.offers.ranking import MILLION
from headroom.core.offers.switching import (
    SwitchRules,
    Tenure,
    needed_saving,
    next_tenure,
    recheck_at,
    settled_order,
)
from headroom.core.offers.wording import percent
from headroom.model import times


class OfferChoice(Struct, frozen=True, kw_only=True):
    """The offers in their order."""

    tenure: Tenure
    order: tuple[str, ...]
    """Keys of offers, the one that has the first place first."""
    switched: bool
    """Another offer has the first place now."""
    recheck_at: int | None
    needed: int
    """The saving that a switch needs now, in millionths."""


def rules_of(spec: LeftoverNodePoolSpec) -> SwitchRules:
    """When the first place changes."""
    return SwitchRules(
        threshold=threshold_of(spec),
        after_ms=durations.milliseconds(spec.switch_after) or 0,
        dwell_ms=durations.milliseconds(spec.min_dwell) or 0,
        per_day=spec.max_switches_per_day,
    )


def threshold_of(spec: LeftoverNodePoolSpec) -> int:
    """The saving that a switch needs, in millionths: 5% is 50,000."""
    whole, _, part = spec.switch_threshold.rstrip("%").partition(".")
    return int(whole) * 10_000 + int((part + "00")[:2]) * 100


def chosen(
    spec: LeftoverNodePoolSpec,
    before: LeftoverNodePoolStatus,
    market: Market,
    resting: Collection[str],
    now: int,
) -> OfferChoice:
    """The order of the offers. Those that rest, because their launches fail, have no place in it."""
    rules = rules_of(spec)
    costs = {key: quote.rank for key, quote in market.quotes.items() if key not in resting}
    known = tenure_of(before.chosen)
    tenure = next_tenure(known, costs, now, rules)
    earlier = _earlier(before, market)
    order = settled_order([key for key in earlier if key in costs], costs, rules.threshold)
    first = (tenure.chosen,) if tenure.chosen else ()
    return OfferChoice(
        tenure=tenure,
        order=(*first, *(key for key in order if key != tenure.chosen)),
        switched=bool(known.chosen and tenure.chosen and known.chosen != tenure.chosen),
        recheck_at=recheck_at(tenure, costs, rules, now),
        needed=needed_saving(tenure, now, rules),
    )


def _earlier(before: LeftoverNodePoolStatus, market: Market) -> list[str]:
    """The offers of the rungs that were there, in their order."""
    found: dict[str, None] = {}
    for rung in before.rungs:
        if rung.state != "Active":
            continue
        for kind in rung.instance_types:
            for zone in rung.zone_ids or rung.zones or ("*",):
                key = f"{kind}/{zone}/{rung.capacity_type}"
                if key in market.quotes:
                    found[key] = None
    return list(found)


def tenure_of(status: ChosenOffer | None) -> Tenure:
    """What the status remembers. What cannot be read in it was never there."""
    if status is None:
        return Tenure()
    return Tenure(
        chosen=status.offer,
        since=times.moment(status.since) or 0,
        challenger=status.challenger,
        challenger_since=times.moment(status.challenger_since) or 0,
        missed=status.missed,
        saving=status.saving,
        as_of=times.moment(status.as_of) or 0,
        switches=tuple(at for text in status.switches if (at := times.moment(text)) is not None),
    )


def remembered(tenure: Tenure) -> ChosenOffer:
    """The same, for the status."""
    return ChosenOffer(
        offer=tenure.chosen,
        since=_text(tenure.since),
        challenger=tenure.challenger,
        challenger_since=_text(tenure.challenger_since),
        missed=tenure.missed,
        saving=tenure.saving,
        as_of=_text(tenure.as_of),
        switches=tuple(map(times.text, tenure.switches)),
    )


def _text(moment: int) -> str:
    return times.text(moment) if moment else ""


def best_two(choice: OfferChoice, market: Market) -> tuple[Quote, Quote] | None:
    """The offer that has the first place and the cheapest one beside it; None unless there are two."""
    first = market.quotes.get(choice.tenure.chosen)
    other = next((quote for key, quote in market.quotes.items() if key != choice.tenure.chosen), None)
    return None if first is None or other is None else (first, other)


def runner_up(choice: OfferChoice, market: Market) -> Challenger | None:
    """The cheapest offer beside the one that has the first place, and what it would save."""
    pair = best_two(choice, market)
    if pair is None:
        return None
    first, other = pair
    since = choice.tenure.challenger_since if choice.tenure.challenger == other.key else 0
    return Challenger(
        offer=other.key,
        since=_text(since),
        saving=percent(saving(first, other)),
        saving_needed=percent(choice.needed),
    )


def saving(first: Quote, other: Quote) -> int:
    """What another offer would save, in millionths of what the first one costs."""
    return (first.rank - other.rank) * MILLION // first.rank if first.rank else 0
