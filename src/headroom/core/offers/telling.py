"""What people read about a LeftoverNodePool: sentences with numbers, and events when something turned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from headroom.api import marks
from headroom.core.offers.choosing import OfferChoice, best_two, saving
from headroom.core.offers.gathering import NodeClassChoice, RankingProblem, Scene, missing_budget
from headroom.core.offers.quotes import Market
from headroom.core.offers.rungs import RungPlan
from headroom.core.offers.wording import REASONS, money, offer_text, percent
from headroom.model.actions import EmitEvent


class OfferFindings(Struct, frozen=True, kw_only=True):
    """All that was found out about one of them."""

    node_class: NodeClassChoice
    market: Market
    choice: OfferChoice
    places: tuple[RungPlan, ...]
    over_quota: str
    """The budget that is over quota, if its spec names one."""
    taken: set[str]
    """Names of rungs that NodePools have which Headroom did not write."""
    unknown: RankingProblem | None
    """Why nothing can be ranked."""
    unwritten: str
    """Why the last write failed, as a sentence; empty if it did not."""

    def are(self, state: str) -> list[RungPlan]:
        """The rungs in a state."""
        return [each for each in self.places if each.rung.state == state]


def sentence(scene: Scene, found: OfferFindings) -> tuple[str, str]:
    """The reason and the message of the decision, the most important first."""
    if found.unknown:
        return found.unknown.reason, found.unknown.message
    said = list(_sentences(scene, found))
    reason = said[0][0] if said else "Steady"
    return reason, " ".join((_first(found), *(text for _, text in said[:2]), *_runner_up(found)))


def _first(found: OfferFindings) -> str:
    active = found.are("Active")
    nodes = sum(each.rung.nodes or 0 for each in found.places)
    size = f"{_count(len(active), 'rung')}, {_count(nodes, 'node')}"
    quote = found.market.quotes.get(found.choice.tenure.chosen)
    if quote is None:
        best = next((each.step.best for each in active if each.step and each.step.best), None)
        if best is None:
            return f"{size}."
        return f"On demand only: {best.offer.instance_type} at {money(best.price)} an hour; {size}."
    score = f", score {quote.offer.score}" if quote.offer.score is not None else ""
    return (
        f"First: {offer_text(quote.key, found.market.zones)} at {money(quote.price)} an hour, {money(quote.cost)} per "
        f"useful GPU-hour{score}; {size}."
    )


def _sentences(scene: Scene, found: OfferFindings) -> Iterator[tuple[str, str]]:
    yield from _problems(scene, found)
    yield from _changes(scene, found)


def _problems(scene: Scene, found: OfferFindings) -> Iterator[tuple[str, str]]:
    """What somebody should look at."""
    if found.taken:
        names = ", ".join(sorted(found.taken))
        yield "ApplyNodePoolError", f"NodePool {names} exists but was not created by Headroom: delete or rename it."
    if found.unwritten:
        yield "ApplyNodePoolError", f"Last write failed: {found.unwritten}."
    if found.over_quota:
        yield "OverQuota", f"No nodes are added: budget {found.over_quota} is over quota."
    if lacking := missing_budget(scene):
        yield "BudgetNotFound", f"Budget {lacking} does not exist, so it limits nothing (spec.budgetRef)."
    if unknown := _unknown_node_pools(scene, found):
        says = "has Headroom's label, but another template than its name says, and a uid that the status does not know"
        yield "UnknownNodePool", f"NodePool {', '.join(unknown)} {says}: it is left alone."


def _changes(scene: Scene, found: OfferFindings) -> Iterator[tuple[str, str]]:
    """What became of offers and rungs."""
    for each in found.are("Resting"):
        yield "LaunchFailed", f"{each.name} adds no nodes before {each.rung.until}: a launch failed."
    if found.market.below_score:
        least = f"No offer has a placement score of {scene.spec.min_spot_score} (spec.minSpotScore)"
        instead = "on-demand machines are used" if scene.spec.falls_back else "the cheapest was chosen"
        yield "BelowScore", f"{least}, so {instead}."
    if found.choice.switched:
        before = scene.before.chosen.offer if scene.before.chosen else ""
        yield "Switched", f"It replaces {offer_text(before, found.market.zones)}."
    new = [each.name for each in found.places if each.live is None]
    if new:
        yield "Applying", f"{_count(len(new), 'NodePool')} to be written."
    leaving = found.are("Leaving")
    if leaving:
        nodes = sum(each.rung.nodes or 0 for each in leaving)
        yield "Leaving", f"{_count(len(leaving), 'rung')} to be deleted once empty, with {_count(nodes, 'node')} now."


def _unknown_node_pools(scene: Scene, found: OfferFindings) -> list[str]:
    """NodePools with the label of its rungs that nothing proves to be one."""
    pools = scene.world.node_pools
    return sorted(name for name in scene.strangers - found.taken if (marks.LEFTOVER, scene.name) in pools[name].marks)


def _runner_up(found: OfferFindings) -> Iterator[str]:
    pair = best_two(found.choice, found.market)
    if pair is not None and (saved := saving(*pair)) > 0:
        named = offer_text(pair[1].key, found.market.zones)
        yield f"{named} would save {percent(saved)}; {percent(found.choice.needed)} is needed."


def passed_over(counts: Mapping[str, int]) -> str:
    """Why offers were not ranked."""
    return "; ".join(f"{count} {REASONS.get(reason, reason)}" for reason, count in counts.items())


def events(scene: Scene, found: OfferFindings) -> Iterator[EmitEvent]:
    """What is new, as Kubernetes events."""
    market, choice, zones = found.market, found.choice, found.market.zones
    if choice.switched and scene.before.chosen:
        quote = market.quotes[choice.tenure.chosen]
        yield EmitEvent(
            object=str(scene.ref),
            event_type="Normal",
            reason="Switched",
            message=f"{offer_text(quote.key, zones)} at {money(quote.price)} an hour is first now, instead of "
            f"{offer_text(scene.before.chosen.offer, zones)}. Running nodes stay.",
        )
    for each in found.are("Resting"):
        before = scene.remembered.get(each.name)
        if before is None or before.failed_at != each.rung.failed_at:
            yield EmitEvent(
                object=str(scene.ref),
                event_type="Warning",
                reason="LaunchFailed",
                message=f"A launch of NodePool {each.name} failed. Karpenter adds no nodes to it before {each.rung.until}.",
                machine=each.name,
            )


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
