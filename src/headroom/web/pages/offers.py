"""The pages of cheapest capacity: all LeftoverNodePools with their first offer; one with its rungs and all offers by price and risk."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headroom.api.kinds import AnyResource
from headroom.api.offers import LeftoverNodePool, LeftoverNodePoolSpec
from headroom.api.offers_status import LeftoverNodePoolStatus, Rung
from headroom.core import offers as capability
from headroom.model import conditions, times
from headroom.model.decisions import Decision, Ref
from headroom.model.usage import DAY
from headroom.model.world import World
from headroom.runtime.journal import MOST_REMEMBERED
from headroom.web.pages import parts
from headroom.web.pages.parts import Model
from headroom.web.scope import Scope
from headroom.web.view import OperatorView

MOST_HISTORY: Final = 100
MOST_OFFERS: Final = 150
"""Offers drawn in the chart, best first; more would not be readable."""
RUNG_STATES: Final = ("Active", "Resting", "Leaving")
_WHOLE: Final = 1_000_000
EXAMPLE: Final = """\
apiVersion: headroom.dev/v1alpha1
kind: LeftoverNodePool
metadata: {name: cheap}
spec:
  region: us-east-1
  families: [g5, g6]          # none: any GPU family
  nodeClassName: gpu          # an EC2NodeClass that exists
  taints: ["nvidia.com/gpu:NoSchedule"]
  limits: {nvidia.com/gpu: "64"}
"""
"""A first manifest for viewers without a LeftoverNodePool."""


def model(view: OperatorView, scope: Scope) -> Model:
    """The page of all LeftoverNodePools, without its frame. They are cluster-scoped, so viewing them needs access to everything."""
    if not scope.everything:
        return {"maySee": False, "pools": {}}
    world = view.world()
    found = world.of_kind(LeftoverNodePool.kind.name)
    page: Model = {"maySee": True, "pools": {}}
    for ref, resource in found:
        page["pools"][ref.name] = pool_row(world, resource, view.loop.decisions.get(ref))
    return page if found else page | {"example": EXAMPLE}


def pool(view: OperatorView, scope: Scope, name: str) -> Model | None:
    """The page of one LeftoverNodePool without its frame; None if it does not exist or the viewer may not see it."""
    world, ref = view.world(), Ref(LeftoverNodePool.kind.name, "", name)
    resource = world.resources.get(ref)
    if resource is None or not scope.everything:
        return None
    decision = view.loop.decisions.get(ref)
    status = status_of(resource, decision)
    entries = view.journal.newest(world.now - 7 * DAY, MOST_REMEMBERED, lambda each: each.resource == str(ref))
    page: Model = {
        "pool": pool_row(world, resource, decision) | _details(world, resource, status),
        "rungs": {each.name: _rung(each) for each in status.rungs},
        "history": parts.entries(entries[:MOST_HISTORY]),
    }
    return page if resource.spec is None else page | _market(world, ref, resource, status)


def status_of(resource: AnyResource, decision: Decision | None) -> LeftoverNodePoolStatus:
    """The last decided status, else the one in the cluster."""
    status = decision.status if decision else resource.status
    assert isinstance(status, LeftoverNodePoolStatus)
    return status


def pool_row(world: World, resource: AnyResource, decision: Decision | None) -> Model:
    """One LeftoverNodePool in a few numbers and words."""
    row: Model = {"name": resource.name}
    if resource.spec is None:
        said = "; ".join(f"{each.field} {each.message}" for each in resource.problems)
        return row | {"state": "Invalid", "tone": "bad", "reason": "InvalidSpec", "message": said}
    status, spec = status_of(resource, decision), resource.spec
    states = [each.state for each in status.rungs]
    state, tone = _state(world, resource, status)
    top = first_rung(status)
    return row | parts.known(
        {
            "state": state,
            "tone": tone,
            "region": spec.region,
            "capacityType": spec.capacity_type,
            "first": first_text(status),
            "pricePerHour": status.last_price_usd,
            "costPerGpuHour": top.cost_per_gpu_hour if top else "",
            "score": status.last_score,
            "rungs": {each: states.count(each) for each in RUNG_STATES if each in states},
            "nodes": sum(each.nodes or 0 for each in status.rungs) if status.rungs else None,
            "savedUsd": status.savings.usd if status.savings else "",
            "savedUsdPerHour": status.savings.usd_per_hour if status.savings else "",
            "switches": status.switches,
            "offers": status.offers,
            "reason": decision.reason if decision else "Waiting",
            "message": decision.message if decision else "No decision has been made yet.",
        }
    )


def first_rung(status: LeftoverNodePoolStatus) -> Rung | None:
    """The rung that Karpenter tries first."""
    return next((each for each in status.rungs if each.state == "Active"), None)


def first_text(status: LeftoverNodePoolStatus) -> str:
    """The offer in first place: `g5.xlarge in us-east-1a`."""
    if status.chosen is None or not status.chosen.offer:
        top = first_rung(status)
        return f"{top.instance_types[0]} on demand" if top and top.instance_types else ""
    return capability.offer_text(status.chosen.offer, capability.zone_names(status))


def _state(world: World, resource: AnyResource, status: LeftoverNodePoolStatus) -> tuple[str, str]:
    """One word for the state of a LeftoverNodePool, and its tone. The words only summarize the status."""
    if resource.deleting:
        return "Deleting", "idle"
    if resource.spec.paused:
        return "Paused", "idle"
    ready = conditions.find(status.conditions, "Ready")
    if ready is None:
        return "Waiting", "idle"
    if ready.status == "False":
        return "NotReady", "bad"
    feed, states = world.offer_feeds.get(resource.name), {each.state for each in status.rungs}
    if any(each.cause == "OverQuota" for each in status.rungs):
        return "OverQuota", "warn"
    if "Resting" in states:
        return "LaunchFailed", "warn"
    if feed is not None and feed.problem:
        return "FeedFailing", "warn"
    if status.below_score:
        return "BelowScore", "warn"
    return ("Changing", "good") if "Leaving" in states else ("Steady", "good")


def _rung(rung: Rung) -> Model:
    """One NodePool of the ladder."""
    return parts.known(
        {
            "state": rung.state,
            "cause": rung.cause,
            "since": rung.since,
            "until": rung.until if rung.state == "Resting" else "",
            "failures": rung.failures or None,
            "types": list(rung.instance_types),
            "zones": list(rung.zones),
            "capacityType": rung.capacity_type,
            "weight": rung.weight,
            "pricePerHour": rung.price_per_hour,
            "costPerGpuHour": rung.cost_per_gpu_hour,
            "interruptionsPerHour": rung.interruptions_per_hour,
            "failedLaunches": rung.failed_launches,
            "score": rung.score,
            "nodes": rung.nodes,
        }
    )


def _market(world: World, ref: Ref, resource: AnyResource, status: LeftoverNodePoolStatus) -> Model:
    """All ranked offers, best first, and the offers passed over."""
    market = capability.market_now(world, ref, resource)
    every = [*market.quotes.values(), *market.fallback]
    names = capability.zone_names(status) | {
        each.offer.zone_id: each.offer.zone for each in every if each.offer.zone_id and each.offer.zone
    }
    chosen = status.chosen.offer if status.chosen else ""
    kept = [each for number, each in enumerate(every) if number < MOST_OFFERS or each.key == chosen]
    return {
        "why": list(capability.reasons(resource.spec, status, names)),
        "offers": {each.key: _offer(each, number, status, chosen, market) for number, each in enumerate(kept)},
        "offersInAll": len(every),
        "passedOver": [
            {"reason": reason, "words": capability.passed_over({reason: count})}
            for reason, count in market.passed_over.items()
        ],
    }


def _offer(
    quote: capability.Quote, number: int, status: LeftoverNodePoolStatus, chosen: str, market: capability.Market
) -> Model:
    offer = quote.offer
    on_demand = market.on_demand.get(offer.instance_type) if offer.capacity_type == "spot" else None
    other = status.runner_up.offer if status.runner_up else ""
    return parts.known(
        {
            "place": number + 1,
            "type": offer.instance_type,
            "zone": capability.zone_of(quote),
            "capacityType": offer.capacity_type or "spot",
            "gpus": parts.decimal(offer.gpus),
            "pricePerHour": parts.decimal(quote.price),
            "pricePerGpuHour": parts.decimal(quote.price * _WHOLE // offer.gpus),
            "costPerGpuHour": parts.decimal(quote.cost),
            "interruptionsPerHour": parts.decimal(quote.risk.interruptions),
            "failedLaunches": parts.decimal(quote.risk.failed),
            "score": offer.score,
            "onDemandPerHour": parts.decimal(on_demand) if on_demand else "",
            "rung": next((each.name for each in status.rungs if _has(each, quote)), ""),
            "rungState": next((each.state for each in status.rungs if _has(each, quote)), ""),
            "first": True if quote.key == chosen else None,
            "runnerUp": True if quote.key == other else None,
        }
    )


def _has(rung: Rung, quote: capability.Quote) -> bool:
    """Whether a rung includes an offer."""
    return (
        quote.offer.instance_type in rung.instance_types
        and (not rung.zones or capability.zone_of(quote) in rung.zones)
        and (quote.offer.capacity_type or "spot") == rung.capacity_type
    )


def _details(world: World, resource: AnyResource, status: LeftoverNodePoolStatus) -> Model:
    feed = world.offer_feeds.get(resource.name)
    found: Model = {
        "conditions": [
            {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
            | {"since": each.last_transition_time}
            for each in status.conditions
        ],
        "problems": [f"{each.field} {each.message}" for each in resource.problems],
        "nodeClass": status.node_class,
        "scoreAt": status.last_score_time,
        "switchedAt": list(status.chosen.switches) if status.chosen else [],
        "chosenSince": status.chosen.since if status.chosen else "",
        "savedSince": status.savings.since if status.savings else "",
        "syncedAt": status.last_sync_time,
        "feedAt": times.text(feed.at) if feed and feed.at else "",
        "feedProblem": feed.message or feed.problem if feed and feed.problem else "",
    }
    if status.runner_up is not None:
        found |= {"saving": status.runner_up.saving, "savingNeeded": status.runner_up.saving_needed}
    if isinstance(resource.spec, LeftoverNodePoolSpec):
        found["settings"] = dict(_settings(resource.spec))
    return parts.known(found)


def _settings(spec: LeftoverNodePoolSpec) -> Iterator[tuple[str, object]]:
    yield "families", list(spec.families)
    yield "strategy", spec.strategy
    yield "architecture", spec.architecture
    yield "minGPUs", spec.min_gpus
    yield "maxInstanceTypes", spec.max_instance_types
    yield "maxZones", spec.max_zones
    yield "switchThreshold", spec.switch_threshold
    yield "switchAfter", spec.switch_after
    yield "minDwell", spec.min_dwell
    yield "maxSwitchesPerDay", spec.max_switches_per_day
    yield "weights", [spec.weights.min, spec.weights.max]
    yield "limits", {name: str(amount) for name, amount in sorted(spec.limits.items())}
    yield "fallback", spec.falls_back
    yield "rollout", spec.rollout
    yield "consolidation", spec.consolidation_policy
    yield "expireAfter", spec.expire_after
    yield "deletionPolicy", spec.deletion_policy
    if spec.budget_ref is not None:
        yield "budget", {"namespace": spec.budget_ref.namespace, "name": spec.budget_ref.name}
