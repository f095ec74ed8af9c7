"""The decisions on LeftoverNodePools: rank what is offered, keep a ladder of NodePools, change it rarely and harm no running node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import structs

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.api.offers import NODE_CLASSES
from headroom.core.offers import choosing, gathering, rungs, telling
from headroom.core.offers.gathering import KIND, NodeClassChoice, RankingProblem, Scene
from headroom.core.offers.ladder import DesiredRung, ladder
from headroom.core.offers.quotes import ON_DEMAND, Market, by_region, market_of
from headroom.core.offers.rendering import PREFIX, name_of, template_of
from headroom.core.offers.savings import savings
from headroom.core.offers.telling import OfferFindings
from headroom.core.offers.wording import seeds_price
from headroom.model import sight, times
from headroom.model.actions import (
    Action,
    AddFinalizer,
    ApplyNodeClass,
    ApplyNodePool,
    DeleteNodeClass,
    DeleteNodePool,
    RemoveFinalizer,
)
from headroom.model.changes import Changes, Topic
from headroom.model.cloud_facts import Offer
from headroom.model.decisions import Decision, Ref
from headroom.model.facts import NodeClaim
from headroom.model.plans import Plan, judgement
from headroom.model.world import World

NODE_POOLS: Final = ("nodepools.karpenter.sh", "nodeclaims.karpenter.sh")
SOONEST_MS: Final = times.SECOND
FEED_REASONS: Final = {
    "Credentials": "AWSClientError",
    "Types": "ListTypesError",
    "Prices": "SpotPriceError",
    "Scores": "ScorerError",
}
_TOPICS: Final = frozenset({Topic.OFFERS, Topic.PRICES, Topic.SIGHT, Topic.SETTINGS})


def decide(world: World, changes: Changes) -> Iterator[Decision]:
    """One decision for each resource that may need a new one."""
    claims, offers = gathering.claims_by_pool(world), by_region(world.offers)
    for ref, resource in _affected(world, changes):
        yield decided(world, ref, resource, claims, offers)


def _affected(world: World, changes: Changes) -> Iterator[tuple[Ref, AnyResource]]:
    every = world.of_kind(KIND)
    if changes.everything or not _TOPICS.isdisjoint(changes.facts) or changes.resources:
        # Which weights one of them had before, and so whom it was in the way of, its spec does not tell.
        yield from every
        return
    names = changes.facts.get(Topic.KARPENTER)
    for ref, resource in every:
        if names is not None and (not names or any(_concerns(name, ref.name) for name in names)):
            yield ref, resource


def _concerns(name: str, pool: str) -> bool:
    """Whether news of a NodePool, NodeClaim or node class may matter to a pool. Claims have the name of their NodePool before their own."""
    return "/" in name or name.startswith(f"{PREFIX}{pool}")


def decided(
    world: World,
    ref: Ref,
    resource: AnyResource,
    claims: dict[str, list[NodeClaim]],
    offers: dict[str, dict[str, Offer]],
) -> Decision:
    """The decision on one of them. `offers` are those of the world, by region."""
    if resource.problems:
        listed = "; ".join(f"{each.field} {each.message}" for each in resource.problems)
        return judgement(world, ref, resource, (False, "InvalidSpec", listed))
    scene = gathering.gathered(world, ref, resource, claims)
    blind = _blind(scene)
    if blind is not None:
        return _unchanged(scene, blind)
    if resource.deleting:
        return _deleted(scene)
    rival = gathering.rivals(world, ref, resource.spec)
    if rival:
        weights = resource.spec.weights
        return _unchanged(
            scene,
            RankingProblem(
                "WeightsOverlap",
                f"The weights {weights.min} to {weights.max} overlap those of LeftoverNodePool {rival}: give each its own range "
                "in spec.weights.",
            ),
        )
    node_class = gathering.node_class_of(scene)
    if isinstance(node_class, RankingProblem):
        return _unchanged(scene, node_class)
    near = offers.get(resource.spec.region, {}) | offers.get("", {})
    market = market_of(structs.replace(world, offers=near), resource.spec, node_class.zones)
    return _ranked(scene, node_class, market, _unknown(scene, market))


def _blind(scene: Scene) -> RankingProblem | None:
    world = scene.world
    if not world.complete:
        reason, why = sight.incomplete(world)
        return RankingProblem(reason, f"{why}, so the NodePools do not change.")
    kind = scene.spec.node_class_kind
    needed = (*NODE_POOLS, f"{kind.lower()}es.{NODE_CLASSES[kind]}")
    missing = [each for each in needed if each in world.unseen]
    if missing:
        return RankingProblem(
            "KarpenterUnseen", f"{sight.listed(missing)} cannot be read, so the NodePools do not change."
        )
    return None


def _unknown(scene: Scene, market: Market) -> RankingProblem | None:
    """Why there is nothing to rank."""
    if market.quotes or market.fallback:
        return None
    feed = scene.world.offer_feeds.get(scene.name)
    stay = " The NodePools do not change." if scene.live else ""
    if feed is not None and feed.problem in FEED_REASONS:
        return RankingProblem(FEED_REASONS[feed.problem], f"{feed.message}{stay}")
    if feed is None and not scene.world.instances_given:
        return RankingProblem("NoQuotes", f"The offers of {scene.spec.region} are being read.{stay}")
    passed = telling.passed_over(market.passed_over)
    says = f"None of the offers in {scene.spec.region} can be ranked" + (
        f": {passed}." if passed else ": the region has none."
    )
    return RankingProblem("NoQuotes", f"{says}{stay}")


def _unchanged(scene: Scene, problem: RankingProblem) -> Decision:
    """Everything stays as it is, and why."""
    decision = judgement(scene.world, scene.ref, scene.resource, (False, problem.reason, problem.message))
    halted = _halted(scene)
    return structs.replace(
        decision,
        reason=halted or decision.reason,
        actions=decision.actions if scene.world.complete and not halted else (),
        look_again_ms=scene.spec.requeue_minutes * times.MINUTE,
    )


def _halted(scene: Scene) -> str:
    return "Stopped" if scene.world.stopped else "Paused" if scene.spec.paused else ""


# --- the ladder -------------------------------------------------------------------------------------------------------------------


def _ranked(scene: Scene, node_class: NodeClassChoice, market: Market, unknown: RankingProblem | None) -> Decision:
    """The ladder by what is offered, or, where nothing can be ranked, as it stands."""
    failed = rungs.failing(scene)
    resting = {name for name, rung in failed.items() if rung.state == "Resting"}
    resting |= {name for name, live in scene.live.items() if live.pool.deleting}
    kept = {name: live.step for name, live in scene.live.items() if _fits(scene, node_class, name, live.step)}
    sleeping = [kept[name] for name in sorted(resting & kept.keys())]
    asleep = {key for step in sleeping for key, quote in market.quotes.items() if step.has(quote)}
    choice = choosing.chosen(scene.spec, scene.before, market, asleep, scene.now)
    standing = [kept[name] for name in sorted(kept) if name not in resting]
    near = choosing.threshold_of(scene.spec)
    if unknown:
        steps = [kept[rung.name] for rung in scene.before.rungs if rung.name in kept and rung.state == "Active"]
        if len(steps) > (weights := scene.spec.weights.count):
            steps = [*steps[: weights - 1], steps[-1]]  # there are fewer weights by now; the last may be on demand
    else:
        steps = ladder(scene.spec, market, choice.order, standing, near=near)
    taken = {name for each in steps if (name := _name(scene, node_class, each)) in scene.strangers}
    steps = [each for each in steps if _name(scene, node_class, each) not in resting | taken]
    places = rungs.placed(scene, node_class, steps, failed)
    over = gathering.over_quota(scene)
    due: list[Action] = [*_first_of_all(scene, node_class)]
    for _, action in rungs.written(scene, places, bool(over)):
        due += [action] if action is not None else []
    due += _unused_classes(scene, node_class)
    found = OfferFindings(
        node_class=node_class,
        market=market,
        choice=choice,
        places=tuple(places),
        over_quota=over,
        taken=taken,
        unknown=unknown,
        unwritten=_unwritten(scene, due),
    )
    return _told(scene, found, due)


def _unwritten(scene: Scene, due: Sequence[Action]) -> str:
    """Why something that is due could not be written last time, as a sentence; empty if all went well."""
    problems = scene.world.write_problems
    return next((problems[name].message for each in due if (name := _object_of(each)) in problems), "")


def _object_of(action: Action) -> str:
    """What an action writes or deletes, as Kind/name."""
    match action:
        case ApplyNodePool(node_pool=name) | DeleteNodePool(node_pool=name):
            return f"NodePool/{name}"
        case ApplyNodeClass(kind=kind, node_class=name) | DeleteNodeClass(kind=kind, node_class=name):
            return f"{kind}/{name}"
    return ""


def _name(scene: Scene, node_class: NodeClassChoice, step: DesiredRung) -> str:
    return name_of(scene.name, template_of(scene.spec, node_class.name, step))


def _fits(scene: Scene, node_class: NodeClassChoice, name: str, step: DesiredRung) -> bool:
    """Whether a NodePool is what the spec would make of its machine types and zones today."""
    spec = scene.spec
    is_asked = step.capacity_type == spec.capacity_type or (spec.falls_back and step.capacity_type == ON_DEMAND)
    families = {kind.partition(".")[0] for kind in step.types}
    is_meant = bool(step.types) and is_asked and (not spec.families or families <= set(spec.families))
    return is_meant and _name(scene, node_class, step) == name


def _first_of_all(scene: Scene, node_class: NodeClassChoice) -> Iterator[Action]:
    """What must stand before the first NodePool."""
    if scene.spec.deletion_policy == "Delete" and marks.LEFTOVER_FINALIZER not in scene.resource.finalizers:
        yield AddFinalizer(object=str(scene.ref))
    if scene.spec.deletion_policy == "Retain" and marks.LEFTOVER_FINALIZER in scene.resource.finalizers:
        yield RemoveFinalizer(object=str(scene.ref))
    if node_class.copy is not None:
        yield ApplyNodeClass(kind=scene.spec.node_class_kind, node_class=node_class.name, spec=node_class.copy)


def _unused_classes(scene: Scene, node_class: NodeClassChoice) -> Iterator[Action]:
    """Copies of node classes that no rung names any more."""
    if scene.live and any(rung.state == "Leaving" for rung in scene.before.rungs):
        return  # one of those may still name it
    for each in gathering.copies_of(scene):
        if each.name != node_class.name:
            yield DeleteNodeClass(kind=each.kind, node_class=each.name, uid=each.uid)


def _told(scene: Scene, found: OfferFindings, due: list[Action]) -> Decision:
    market, choice, places = found.market, found.choice, found.places
    halted = _halted(scene)
    reason, message = telling.sentence(scene, found)
    message += {"Stopped": " All effects are stopped cluster-wide.", "Paused": " The pool is paused."}.get(halted, "")
    verdict = (True, halted or "Reconciled", message)
    if found.taken or found.unwritten:
        verdict = (False, "ApplyNodePoolError", message)
    elif found.unknown:
        verdict = (False, found.unknown.reason, message)
    ready = judgement(scene.world, scene.ref, scene.resource, verdict)
    first = market.quotes.get(choice.tenure.chosen)
    if first is None:
        first = next((each.step.best for each in places if each.step and each.step.best), None)
    active = [each.step for each in places if each.step and each.rung.state == "Active"]
    score_at = first.offer.scored_at or first.offer.at if first and first.offer.score is not None else None
    status = structs.replace(
        scene.before,
        observed_generation=scene.resource.generation,
        conditions=ready.status.conditions,
        selected_instance_types=tuple(dict.fromkeys(kind for step in active for kind in step.types)),
        selected_zones=tuple(dict.fromkeys(zone for step in active for zone in step.zones)),
        last_price_usd=seeds_price(first.price) if first else "",
        last_score=first.offer.score if first else None,
        last_score_time=times.text(score_at) if score_at else "",
        last_sync_time=times.text(_read_at(scene, market)),
        below_score=True if market.below_score else None,
        node_class=found.node_class.name,
        rungs=tuple(each.rung for each in places) if not halted else scene.before.rungs,
        chosen=choosing.remembered(choice.tenure),
        runner_up=choosing.runner_up(choice, market),
        switches=(scene.before.switches or 0) + (1 if choice.switched else 0),
        savings=savings(scene, market),
        offers=len(market.quotes) + len(market.fallback),
        passed_over=dict(market.passed_over),
    )
    if halted or found.unknown:
        # Nothing is chosen, so nothing may be remembered as chosen.
        status = structs.replace(status, chosen=scene.before.chosen, switches=scene.before.switches)
    if found.unknown:
        kept_fields = ("last_price_usd", "last_score", "last_score_time", "last_sync_time", "runner_up", "savings")
        status = structs.replace(status, **{name: getattr(scene.before, name) for name in kept_fields})
    return Decision(
        resource=scene.ref,
        status=status,
        reason=halted or reason,
        message=message,
        actions=() if halted else (*due, *ready.actions, *telling.events(scene, found)),
        look_again_ms=_look_again(scene, choice, places),
    )


def _read_at(scene: Scene, market: Market) -> int:
    """When prices were last read."""
    feed = scene.world.offer_feeds.get(scene.name)
    if feed is not None and feed.at:
        return feed.at
    return max((each.offer.at or scene.now for each in market.quotes.values()), default=scene.now)


def _look_again(scene: Scene, choice: choosing.OfferChoice, places: Sequence[rungs.RungPlan]) -> int:
    turns = [choice.recheck_at, *(times.moment(each.rung.until) for each in places)]
    turns += [(times.moment(each.rung.since) or 0) + rungs.LINGER_MS for each in places if each.rung.state == "Leaving"]
    ahead = [each - scene.now for each in turns if each is not None and each > scene.now]
    return max(SOONEST_MS, min([scene.spec.requeue_minutes * times.MINUTE, *ahead]))


# --- the end ----------------------------------------------------------------------------------------------------------------------


def _deleted(scene: Scene) -> Decision:
    """The object is being deleted: its NodePools go with it, or stay as they are."""
    due: list[Action] = []
    ours = [live for live in scene.live.values() if not live.is_original]
    copies = gathering.copies_of(scene)
    if scene.spec.deletion_policy == "Delete":
        due += [
            DeleteNodePool(node_pool=live.pool.name, uid=live.pool.uid, with_nodes=True)
            for live in ours
            if not live.pool.deleting
        ]
        if not ours:
            due += [DeleteNodeClass(kind=each.kind, node_class=each.name, uid=each.uid) for each in copies]
        done = not ours and not copies
        says = f"Being deleted: {len(ours)} NodePools left to delete; Karpenter drains their nodes."
    else:
        done, says = True, f"Being deleted: {len(ours)} NodePools are kept (deletionPolicy Retain)."
    if done and marks.LEFTOVER_FINALIZER in scene.resource.finalizers:
        due.append(RemoveFinalizer(object=str(scene.ref)))
    decision = judgement(scene.world, scene.ref, scene.resource, (True, "Deleting", says))
    return structs.replace(
        decision, actions=() if _halted(scene) else (*due, *decision.actions), look_again_ms=10 * times.SECOND
    )


PLAN = Plan(
    name="offers",
    kinds=(KIND,),
    reads=("GPUWorkloadBudget",),
    wakes_on=frozenset({Topic.OFFERS, Topic.KARPENTER, Topic.PRICES, Topic.SIGHT}),
    at_most_every_ms=1000,
    decide=decide,
)
