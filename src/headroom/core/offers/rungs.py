"""What becomes of the rungs: which are active, which rest after a failed launch, which leave; and what is written to their NodePools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, structs

from headroom.api.offers_status import MOST_RUNGS, Rung, RungCause, RungState
from headroom.core.offers.gathering import LiveRung, NodeClassChoice, Scene, failures_of, totals
from headroom.core.offers.ladder import DesiredRung
from headroom.core.offers.quotes import ON_DEMAND, WHOLE, Quote
from headroom.core.offers.rendering import frozen_limits, limit_texts, name_of, spec_of, template_of
from headroom.core.offers.wording import dollars, share
from headroom.model import times
from headroom.model.actions import Action, ApplyNodePool, DeleteNodePool
from headroom.model.node_pool_specs import spec_digest

REST_MS: Final = 5 * times.MINUTE
STUCK_REST_MS: Final = 7 * times.MINUTE
"""Karpenter gives up a claim that it cannot launch after five minutes. Its pods would come back to the same rung, were it active again."""
LONGEST_REST_MS: Final = times.HOUR
FORGET_MS: Final = 6 * times.HOUR
"""A failure so long ago says nothing of the next launch."""
BELOW: Final = 4
EACH: Final = 16
"""The rungs below the first may add this part of what is left, all together and each."""
LINGER_MS: Final = 10 * times.MINUTE
"""An empty rung that leaves is kept for so long: an offer that is missing for a moment brings it back."""


class RungPlan(Struct, kw_only=True):
    """One rung: what is remembered of it, what exists, and what it should be."""

    name: str
    rung: Rung
    live: LiveRung | None = None
    step: DesiredRung | None = None
    template: dict[str, Any] = {}
    """Empty where it stays as it is."""


def failing(scene: Scene) -> dict[str, Rung]:
    """What is remembered of every rung that exists. One whose last launch failed rests for a while."""
    found: dict[str, Rung] = {}
    for name, live in scene.live.items():
        rung = _failed(scene, live, scene.remembered.get(name) or Rung(name=name, state="Active"))
        until = times.moment(rung.until)
        if until is not None and until > scene.now:
            # A clock that was turned back must not make a rung rest longer than the longest rest.
            until = min(until, scene.now + LONGEST_REST_MS)
            rung = structs.replace(rung, state="Resting", cause="LaunchFailed", until=times.text(until))
        elif rung.state == "Resting":
            rung = structs.replace(rung, state="Active", cause="", since=times.text(scene.now), until="")
        found[name] = rung
    return found


def _failed(scene: Scene, live: LiveRung, rung: Rung) -> Rung:
    """What is remembered of a rung's failures, with those that are new."""
    every, counted = sorted(at for at, _ in failures_of(scene, live.pool.name)), times.moment(rung.failed_at) or 0
    if counted > scene.now and counted not in every:
        counted = 0  # a clock was turned back; Karpenter's own may be a little ahead
    news = [at for at in every if counted < at]
    if news:
        # Many claims fail together, though not in the same moment; that is one failure of the rung.
        together = rung.failures > 0 and (times.moment(rung.until) or 0) > scene.now
        failures = rung.failures + (0 if together else 1)
        stuck = any(claim.failure and not claim.launched for claim in live.claims)
        rest = max(min(REST_MS << min(failures - 1, 8), LONGEST_REST_MS), STUCK_REST_MS if stuck else 0)
        at = min(news[-1], scene.now)
        return structs.replace(
            rung, failures=failures, failed_at=times.text(news[-1]), until=times.text(at + rest), since=times.text(at)
        )
    launched = any(claim.launched and claim.created > counted for claim in live.claims)
    if rung.failures and (launched or counted + FORGET_MS <= scene.now):
        return structs.replace(rung, failures=0, until="")
    return rung


def placed(
    scene: Scene, node_class: NodeClassChoice, steps: Sequence[DesiredRung], failed: Mapping[str, Rung]
) -> list[RungPlan]:
    """Every rung there should be or is, the active ones first and in their order."""
    places: list[RungPlan] = []
    for step in steps:
        template = template_of(scene.spec, node_class.name, step)
        name = name_of(scene.name, template)
        remembered = failed.get(name) or Rung(name=name, state="Active")
        rung = _turned(scene, remembered, "Active", "")
        places.append(RungPlan(name=name, rung=rung, live=scene.live.get(name), step=step, template=template))
    active = {each.name for each in places}
    for name, live in sorted(scene.live.items()):
        if name not in active:
            places.append(_beside(scene, node_class, live, failed[name]))
    return places[:MOST_RUNGS]  # a status holds no more; those beyond come once others are gone


def _beside(scene: Scene, node_class: NodeClassChoice, live: LiveRung, rung: Rung) -> RungPlan:
    """A rung that adds no nodes now."""
    name = live.pool.name
    template = template_of(scene.spec, node_class.name, live.step)
    if name != name_of(scene.name, template):
        cause: RungCause = "Superseded" if live.is_original else "TemplateChanged"
        replaced = template if scene.spec.rollout == "Replace" and not live.is_original else {}
        return RungPlan(
            name=name, rung=_turned(scene, rung, "Leaving", cause), live=live, step=live.step, template=replaced
        )
    if rung.state == "Resting":
        return RungPlan(name=name, rung=rung, live=live, step=live.step, template=template)
    return RungPlan(
        name=name, rung=_turned(scene, rung, "Leaving", "NotRanked"), live=live, step=live.step, template=template
    )


def _turned(scene: Scene, rung: Rung, state: RungState, cause: RungCause) -> Rung:
    since = rung.since if rung.state == state and rung.since else times.text(scene.now)
    return structs.replace(rung, state=state, cause=cause, since=since)


def weighed(scene: Scene, places: Sequence[RungPlan]) -> dict[str, int]:
    """The weight of each rung, all different: the first is the heaviest, on-demand machines come last."""
    least, most = scene.spec.weights.min, scene.spec.weights.max
    active = [each for each in places if each.rung.state == "Active"]
    found: dict[str, int] = {}
    weight = most
    for each in active:
        is_last = scene.spec.falls_back and each.step is not None and each.step.capacity_type == ON_DEMAND
        found[each.name] = least if is_last else weight
        weight -= 0 if is_last else 1
    free = (each for each in range(least, most + 1) if each not in found.values())
    # What adds no nodes may have any weight that is left.
    kept = {each.name: each.live.pool.weight for each in places if each.name not in found and each.live is not None}
    for name, before in sorted(kept.items()):
        is_free = least <= before <= most and before not in found.values()
        found[name] = before if is_free else next((each for each in free if each not in found.values()), least)
    return found


def limited(scene: Scene, places: Sequence[RungPlan], frozen: bool) -> dict[str, dict[str, int]]:
    """The limits of each rung, in millionths, so that all together stay within the limits of the spec."""
    gpu = scene.spec.gpu_resource
    used = {each.name: each.live.used if each.live else {} for each in places}
    shares = _shares(scene, places, used) if gpu in scene.spec.limits else {}
    found: dict[str, dict[str, int]] = {}
    for each in places:
        if frozen or each.rung.state != "Active":
            found[each.name] = frozen_limits(gpu, used[each.name])
            continue
        found[each.name] = {
            name: max(
                used[each.name].get(name, 0),
                total - sum(amounts.get(name, 0) for other, amounts in used.items() if other != each.name),
            )
            for name, total in totals(scene.spec).items()
        }
        if each.name in shares:
            found[each.name][gpu] = used[each.name].get(gpu, 0) + shares[each.name]
    return found


def _shares(scene: Scene, places: Sequence[RungPlan], used: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """How many GPUs each active rung may add, of those that the spec has left.

    Karpenter fills several NodePools at once when many pods come together, so what is left is not given to each of them: most of it goes
    to the first that has room for a machine, a little to those below. Each of these may always add one machine that fits, or pods that no
    other rung can serve would wait for ever; so it is by no more than these that a burst of pods goes too far.
    """
    gpu = scene.spec.gpu_resource
    left = max(0, totals(scene.spec)[gpu] - sum(each.get(gpu, 0) for each in used.values()))
    sizes = {each.name: _size(each) for each in places if each.rung.state == "Active"}
    found = dict.fromkeys(sizes, 0)
    fitting = [name for name, size in sizes.items() if size <= left]
    if not fitting:
        return found
    first, *others = fitting
    below = min(left // BELOW, left - sizes[first])
    found[first] = left
    for name in others:
        share = max(sizes[name], left // EACH // sizes[name] * sizes[name])
        found[name] = share if share <= below else sizes[name]
        if found[name] <= below:
            below -= found[name]
            found[first] -= found[name]
    return found


def _size(place: RungPlan) -> int:
    """GPUs of one of its machines, in millionths; one where nobody knows."""
    best = place.step.best if place.step else None
    return max(best.offer.gpus, 1) if best else WHOLE


def written(scene: Scene, places: Sequence[RungPlan], frozen: bool) -> Iterator[tuple[RungPlan, Action | None]]:
    """Each rung as it is remembered from now on, and what is due for it."""
    weights, limits = weighed(scene, places), limited(scene, places, frozen)
    for each in places:
        each.rung = _told(each, weights[each.name])
        if frozen and each.rung.state == "Active":
            each.rung = structs.replace(each.rung, cause="OverQuota")
        yield each, _due(scene, each, weights[each.name], limits[each.name])


def _told(place: RungPlan, weight: int) -> Rung:
    step = place.step
    rung = structs.replace(
        place.rung,
        weight=weight,
        nodes=len(place.live.claims) if place.live else 0,
        uid=place.live.pool.uid if place.live else "",
        instance_types=step.types if step else (),
        zones=step.zones if step else (),
        zone_ids=step.zone_ids if step else (),
        capacity_type=step.capacity_type if step else "",
    )
    best = step.best if step else None
    return structs.replace(rung, **_priced(best)) if best else rung


def _priced(best: Quote) -> dict[str, Any]:
    return {
        "price_per_hour": dollars(best.price),
        "cost_per_gpu_hour": dollars(best.cost),
        "interruptions_per_hour": share(best.risk.interruptions),
        "failed_launches": share(best.risk.failed),
        "score": best.offer.score,
    }


def _due(scene: Scene, place: RungPlan, weight: int, limits: Mapping[str, int]) -> Action | None:
    """What is due for the NodePool of a rung: it is written if it does not stand there as it should, and deleted once it left."""
    live, rung = place.live, place.rung
    if live is None:
        return ApplyNodePool(node_pool=place.name, spec=spec_of(scene.spec, place.template, weight, limits))
    if live.pool.deleting:
        return None
    if rung.state == "Leaving" and live.is_empty and (times.moment(rung.since) or 0) + LINGER_MS <= scene.now:
        return DeleteNodePool(node_pool=place.name, uid=live.pool.uid)
    if not place.template:
        return _only_limits(place, live, limits)
    wanted = spec_of(scene.spec, place.template, weight, limits)
    if live.pool.digest == spec_digest(wanted) or _is_written(scene, live, spec_digest(wanted)):
        return None
    return ApplyNodePool(node_pool=place.name, spec=wanted, uid=live.pool.uid, over=live.pool.digest)


def _is_written(scene: Scene, live: LiveRung, digest: str) -> bool:
    """Whether it stands there as the API server made it of just that: another version of Karpenter may not know every field."""
    known = scene.world.pool_writes.get(live.pool.name)
    return known is not None and (known.uid, known.asked, known.made) == (live.pool.uid, digest, live.pool.digest)


def _only_limits(place: RungPlan, live: LiveRung, limits: Mapping[str, int]) -> Action | None:
    """A rung whose template is not ours any more gets limits, and nothing else changes in it."""
    left = dict(live.pool.limits)
    if all(left.get(name) == 0 for name in limits):
        return None
    return ApplyNodePool(
        node_pool=place.name, spec={"limits": limit_texts(limits)}, uid=live.pool.uid, only=("limits",)
    )
