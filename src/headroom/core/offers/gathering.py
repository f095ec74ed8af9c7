"""What a decision on one LeftoverNodePool needs to know, gathered once: its node class, its NodePools, what they have and what failed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from msgspec import Struct, structs

from headroom.api import marks, quantities
from headroom.api.kinds import AnyResource
from headroom.api.offers import LeftoverNodePoolSpec
from headroom.api.offers_status import LeftoverNodePoolStatus, Rung
from headroom.core.offers.ladder import DesiredRung
from headroom.core.offers.quotes import WHOLE
from headroom.core.offers.rendering import CAPACITY_TYPE, INSTANCE_TYPE, PREFIX, ZONE, is_name_of, is_named_by
from headroom.model import conditions, times
from headroom.model.decisions import Ref
from headroom.model.facts import NodeClaim, NodeClass, NodePool
from headroom.model.node_pool_specs import template_digest
from headroom.model.world import World

KIND: Final = "LeftoverNodePool"
MOST_GPUS: Final = 1000
"""Of all NodePools together, unless the spec says otherwise."""
_ORIGINAL: Final = ("managed-by", "leftover")
"""The label of the NodePool that the original of this capability wrote."""


class RankingProblem(Struct, frozen=True):
    """Why nothing can be decided."""

    reason: str
    message: str


class LiveRung(Struct, frozen=True, kw_only=True):
    """A NodePool of the ladder that exists."""

    pool: NodePool
    claims: tuple[NodeClaim, ...] = ()
    step: DesiredRung
    """What its template says."""
    is_original: bool = False
    """Written by the project that this capability comes from."""

    @property
    def used(self) -> dict[str, int]:
        """What its nodes have."""
        return dict(self.pool.used)

    @property
    def is_empty(self) -> bool:
        """Whether it has no nodes and none is on its way."""
        return not self.claims and not any(amount for _, amount in self.pool.used)


class Scene(Struct, frozen=True, kw_only=True):
    """One LeftoverNodePool and what belongs to it."""

    world: World
    ref: Ref
    resource: AnyResource
    spec: LeftoverNodePoolSpec
    before: LeftoverNodePoolStatus
    remembered: Mapping[str, Rung]
    """Rungs of its status, by name."""
    live: Mapping[str, LiveRung]
    """Its NodePools that exist, by name."""
    strangers: frozenset[str]
    """NodePools with names of rungs that Headroom did not write."""

    @property
    def now(self) -> int:
        """The moment of the decision."""
        return self.world.now

    @property
    def name(self) -> str:
        """Of the LeftoverNodePool."""
        return self.ref.name


def gathered(world: World, ref: Ref, resource: AnyResource, claims: Mapping[str, list[NodeClaim]]) -> Scene:
    """All of it. `claims` are those of every NodePool, by its name."""
    before = _not_ahead(resource.status, world.now)
    remembered = {rung.name: rung for rung in before.rungs}
    live: dict[str, LiveRung] = {}
    strangers: set[str] = set()
    for name, pool in world.node_pools.items():
        if not name.startswith(f"{PREFIX}{ref.name}"):
            continue
        is_original = name == f"{PREFIX}{ref.name}" and _ORIGINAL in pool.marks
        uids = {each.uid for each in (remembered.get(name), world.pool_writes.get(name)) if each is not None}
        if is_original or _is_ours(ref.name, pool, uids):
            found = tuple(sorted(claims.get(name, ()), key=lambda each: each.name))
            live[name] = LiveRung(pool=pool, claims=found, step=_step_of(pool), is_original=is_original)
        else:
            strangers.add(name)
    return Scene(
        world=world,
        ref=ref,
        resource=resource,
        spec=resource.spec,
        before=before,
        remembered=remembered,
        live=live,
        strangers=frozenset(strangers),
    )


def _not_ahead(status: LeftoverNodePoolStatus, now: int) -> LeftoverNodePoolStatus:
    """A status none of whose past moments is later than now: a clock that was turned back must not make anything wait for it. They are
    written down so: what is only read as nearer moves along with the clock, and is waited for no shorter.
    """
    chosen = status.chosen
    if chosen is not None:
        moments = {name: _past(getattr(chosen, name), now) for name in ("since", "challenger_since", "as_of")}
        switches = tuple(sorted(_past(each, now) for each in chosen.switches))
        chosen = structs.replace(chosen, switches=switches, **moments)
    rungs = tuple(structs.replace(each, since=_past(each.since, now)) for each in status.rungs)
    return structs.replace(status, chosen=chosen, rungs=rungs)


def _past(text: str, now: int) -> str:
    moment = times.moment(text)
    return text if moment is None or moment <= now else times.text(now)


def claims_by_pool(world: World) -> dict[str, list[NodeClaim]]:
    """The NodeClaims of each NodePool."""
    found: dict[str, list[NodeClaim]] = {}
    for claim in world.node_claims.values():
        found.setdefault(claim.node_pool, []).append(claim)
    return found


def _is_ours(name: str, pool: NodePool, uids: Collection[str]) -> bool:
    """Whether Headroom wrote it. Anyone may set a label, so either the status or this process knows it by its uid, or its template is the
    one that its name stands for: then only its weight and limits could be anybody else's.
    """
    if (marks.LEFTOVER, name) not in pool.marks:
        return False
    return is_named_by(name, pool.name, pool.template) or (bool(pool.uid) and pool.uid in uids)


def _step_of(pool: NodePool) -> DesiredRung:
    listed = {each.key: each.values for each in pool.requirements if each.operator == "In"}
    return DesiredRung(
        types=tuple(listed.get(INSTANCE_TYPE, ())),
        zones=tuple(listed.get(ZONE, ())),
        zone_ids=(),
        capacity_type=next(iter(listed.get(CAPACITY_TYPE, ())), ""),
    )


# --- node classes ---------------------------------------------------------------------------------------------------------------


class NodeClassChoice(Struct, frozen=True, kw_only=True):
    """The node class that the rungs name."""

    name: str
    zones: tuple[str, ...]
    """In which its subnets are; none if it does not say."""
    copy: dict[str, Any] | None = None
    """The spec of the copy that must be made first, if it is one and is not there yet."""


def node_class_of(scene: Scene) -> NodeClassChoice | RankingProblem:
    """The node class to use, or why there is none."""
    spec = scene.spec
    base = _chosen_class(scene)
    if isinstance(base, RankingProblem):
        return base
    if not base.ready:
        return RankingProblem("NodeClassNotReady", f"{spec.node_class_kind} {base.name} is not ready.")
    if not (spec.subnet_selector_tags or spec.security_group_selector_tags):
        return NodeClassChoice(name=base.name, zones=base.zones)
    wanted = copied(spec, base)
    name = f"{PREFIX}{scene.name}-{template_digest({'template': wanted})[:8]}"
    copy = scene.world.node_classes.get(f"{spec.node_class_kind}/{name}")
    if copy is None:
        return NodeClassChoice(name=name, zones=(), copy=wanted)
    if (marks.LEFTOVER, scene.name) not in copy.labels:
        return RankingProblem(
            "ApplyNodePoolError", f"{spec.node_class_kind} {name} exists but was not created by Headroom."
        )
    return NodeClassChoice(name=name, zones=copy.zones)


def copied(spec: LeftoverNodePoolSpec, base: NodeClass) -> dict[str, Any]:
    """The spec of a node class with the pool's own subnets and security groups."""
    copy = dict(base.spec)
    if spec.subnet_selector_tags:
        copy["subnetSelectorTerms"] = [{"tags": dict(sorted(spec.subnet_selector_tags.items()))}]
    if spec.security_group_selector_tags:
        copy["securityGroupSelectorTerms"] = [{"tags": dict(sorted(spec.security_group_selector_tags.items()))}]
    return copy


def _chosen_class(scene: Scene) -> NodeClass | RankingProblem:
    spec, kind = scene.spec, scene.spec.node_class_kind
    if spec.node_class_name is not None:
        found = scene.world.node_classes.get(f"{kind}/{spec.node_class_name}")
        return found or RankingProblem("NodeClassNotFound", f"There is no {kind} {spec.node_class_name}.")
    wanted = set(spec.node_class_selector.items())
    several = sorted(
        each.name
        for each in scene.world.node_classes.values()
        if each.kind == kind and wanted <= set(each.labels) and not _made_for(each)
    )
    if len(several) == 1:
        return scene.world.node_classes[f"{kind}/{several[0]}"]
    text = ", ".join(f"{key}={value}" for key, value in sorted(wanted))
    if not several:
        return RankingProblem("NodeClassNotFound", f"No {kind} has the labels {text} (spec.nodeClassSelector).")
    return RankingProblem(
        "NodeClassNotFound",
        f"Several {kind}s have the labels {text}: {', '.join(several)}. Name one in spec.nodeClassName.",
    )


def copies_of(scene: Scene) -> list[NodeClass]:
    """The node classes that Headroom made for it."""
    return [each for each in scene.world.node_classes.values() if _made_for(each) == scene.name]


def _made_for(node_class: NodeClass) -> str:
    """The LeftoverNodePool that a node class was made for; empty if Headroom did not make it. A label alone is soon copied."""
    owner = next((value for key, value in node_class.labels if key == marks.LEFTOVER), "")
    return owner if is_name_of(owner, node_class.name) else ""


# --- limits and budgets -----------------------------------------------------------------------------------------------------------


def totals(spec: LeftoverNodePoolSpec) -> dict[str, int]:
    """What all rungs together may have, in millionths."""
    found = {spec.gpu_resource: MOST_GPUS * WHOLE}
    for name, text in spec.limits.items():
        amount = quantities.nano(text)
        if isinstance(amount, int):
            found[name] = max(0, amount) // 1000
    return found


def over_quota(scene: Scene) -> str:
    """The budget that the spec names, if it is over quota; empty otherwise."""
    budget = _budget(scene)
    is_over = budget is not None and conditions.holds(budget.status.conditions, "QuotaExceeded")
    return _named(scene) if is_over else ""


def missing_budget(scene: Scene) -> str:
    """The budget that the spec names, if there is none; empty otherwise."""
    return _named(scene) if _budget(scene) is None else ""


def _named(scene: Scene) -> str:
    named = scene.spec.budget_ref
    return f"{named.namespace}/{named.name}" if named is not None else ""


def _budget(scene: Scene) -> AnyResource | None:
    named = scene.spec.budget_ref
    return scene.world.resources.get(Ref("GPUWorkloadBudget", named.namespace, named.name)) if named else None


def rivals(world: World, ref: Ref, spec: LeftoverNodePoolSpec) -> str:
    """The first by name of those before it whose weights overlap with its own; empty if there is none."""
    for other, resource in world.of_kind(KIND):
        if other.name >= ref.name:
            return ""
        if not resource.problems and not resource.deleting and overlap(resource.spec, spec):
            return other.name
    return ""


def overlap(one: LeftoverNodePoolSpec, other: LeftoverNodePoolSpec) -> bool:
    """Whether two may use the same weights."""
    return one.weights.min <= other.weights.max and other.weights.min <= one.weights.max


def failures_of(scene: Scene, name: str) -> Iterable[tuple[int, str]]:
    """When launches of a NodePool failed, and how."""
    for failure in scene.world.launch_failures.values():
        if failure.node_pool == name:
            yield failure.at, failure.reason
    for claim in scene.live[name].claims if name in scene.live else ():
        if claim.failure and not claim.launched:
            yield claim.failed_at or claim.created, claim.failure
