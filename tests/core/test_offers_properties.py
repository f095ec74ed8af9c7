"""Laws of the ladder, whatever prices, launches and people do: no running node is harmed, and nothing flaps or grows without bound."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from headroom.model.actions import Action, ApplyNodePool, DeleteNodePool
from tests.core.offer_stage import GPU, ZONE_IDS, Stage, a_leftover, amount_of, an_offer, on_demand

KINDS = ("g5.xlarge", "g5.2xlarge", "g5g.xlarge", "g6.xlarge", "g6f.xlarge", "p4d.24xlarge")
GPUS = {"p4d.24xlarge": 8, "g6f.xlarge": 0.125}
ARCHES = {"g5g.xlarge": "arm64"}
prices = st.one_of(st.none(), st.sampled_from((0, 0.3, 0.31, 0.5, 0.9, 4.0, 1e6)))
offers = st.builds(
    lambda kind, zone, dollars, score: an_offer(
        kind, zone, dollars, GPUS.get(kind, 1), score=score, arch=ARCHES.get(kind, "amd64")
    ),
    st.sampled_from(KINDS),
    st.sampled_from(sorted(ZONE_IDS)),
    prices,
    st.one_of(st.none(), st.integers(1, 10)),
)
specs = st.fixed_dictionaries(
    {},
    optional={
        "strategy": st.sampled_from(("CostAndRisk", "CheapestAboveScore")),
        "maxInstanceTypes": st.integers(1, 4),
        "maxZones": st.integers(1, 3),
        "families": st.sampled_from(([], ["g5"], ["g5", "g6f"])),
        "weights": st.sampled_from(({"min": 1, "max": 100}, {"min": 7, "max": 9}, {"min": 1, "max": 2})),
        "limits": st.just({GPU: 16}),
        "onDemandFallback": st.booleans(),
        "labels": st.sampled_from(({}, {"a": "b"})),
        "switchThreshold": st.sampled_from(("0%", "5%", "50%")),
    },
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("price"), offers),
        st.tuples(st.just("gone"), st.integers(0, 20)),
        st.tuples(st.just("launch"), st.integers(0, 20)),
        st.tuples(st.just("end"), st.integers(0, 20)),
        st.tuples(st.just("fail"), st.integers(0, 20)),
        st.tuples(st.just("spec"), specs),
        st.tuples(st.just("wait"), st.sampled_from((0.1, 7, 45, 300))),
        st.tuples(st.just("back"), st.sampled_from((-1, -90, -5000))),
        st.tuples(st.sampled_from(("forget", "dark", "restart")), st.none()),
    ),
    max_size=25,
)


def step(stage: Stage, what: str, value: Any, number: int) -> None:
    """One thing that happens."""
    ref = next(iter(stage.resources))
    match what:
        case "price":
            stage.offers[value.name] = structs.replace(value, at=stage.now)
        case "gone" if stage.offers:
            del stage.offers[sorted(stage.offers)[value % len(stage.offers)]]
        case "dark":  # no price is known
            stage.offers = {}
        case "spec":
            stage.resources[ref] = structs.replace(a_leftover(**value), status=stage.resources[ref].status)
        case "forget":  # the object is deleted and made anew, its NodePools are retained
            stage.resources[ref] = structs.replace(stage.resources[ref], status=type(stage.resources[ref].status)())
        case "restart":
            stage.writes.clear()
        case "wait" | "back":  # or the clock is turned back
            stage.now += int(value * 60_000)
            stage.offers = {name: structs.replace(each, at=stage.now) for name, each in stage.offers.items()}
        case _:
            karpenter(stage, what, value, number)


def karpenter(stage: Stage, what: str, value: int, number: int) -> None:
    """One thing that Karpenter does."""
    pools, claims = sorted(stage.pools), sorted(stage.claims)
    match what:
        case "launch" if pools:
            name = pools[value % len(pools)]
            if _room(stage, name) >= 1:
                stage.launch(name, f"node-{number}")
        case "end" if claims:
            stage.end(claims[value % len(claims)])
        case "fail" if pools:
            stage.fail(pools[value % len(pools)])


def _room(stage: Stage, name: str) -> int:
    """GPUs that Karpenter may still add."""
    used = dict(stage.pools[name].used).get(GPU, 0)
    return (amount_of(stage.specs[name]["limits"][GPU]) - used) // 1_000_000


def check(stage: Stage, before: dict[str, str], done: list[Action]) -> None:
    """What must be true after every decision."""
    spec = next(iter(stage.resources.values())).spec
    for action in done:
        if isinstance(action, DeleteNodePool):
            assert not action.with_nodes
        if isinstance(action, ApplyNodePool):
            assert GPU in action.spec["limits"]
    for name, template in before.items():
        if name in stage.pools:
            assert stage.pools[name].template == template, "the template of a rung that exists is never rewritten"
    for claim in stage.claims.values():
        assert claim.node_pool in stage.pools, "no NodePool goes before its nodes"
    active = stage.rungs()
    weights = [stage.pools[each.name].weight for each in active]
    assert len(weights) == len(set(weights))
    assert weights == sorted(weights, reverse=True)
    assert all(spec.weights.min <= each <= spec.weights.max for each in weights)
    spot = [each for each in active if each.capacity_type == "spot"]
    assert len({kind for each in spot for kind in each.instance_types}) <= spec.max_instance_types
    assert len({zone for each in spot for zone in each.zones}) <= spec.max_zones
    if stage.status().conditions[0].reason == "Reconciled":
        check_types(stage, spec)


def check_types(stage: Stage, spec: Any) -> None:
    """What must be true of machine types once something was ranked."""
    for each in stage.rungs():
        kinds = set(each.instance_types)
        assert "g5g.xlarge" not in kinds
        assert "g6f.xlarge" not in kinds or "g6f" in spec.families
        assert not spec.families or {kind.partition(".")[0] for kind in kinds} <= set(spec.families)
    for each in (*stage.rungs("Leaving"), *stage.rungs("Resting")):
        if each.name in stage.pools:
            assert _room(stage, each.name) <= 0, "what leaves or rests gets no new nodes"


@settings(max_examples=150, deadline=None)
@given(st.lists(offers, max_size=8), specs, steps)
def test_no_running_node_is_harmed(first: list[Any], spec: dict[str, Any], happens: list[Any]) -> None:
    stage = Stage(a_leftover(**spec), offers=(*first, on_demand("g5.xlarge", 2.0)))
    for number, (what, value) in enumerate((("wait", 0.1), *happens)):
        step(stage, what, value, number)
        templates = {name: pool.template for name, pool in stage.pools.items()}
        done = len(stage.performed)
        stage.decide()
        check(stage, templates, stage.performed[done:])
        # Once nothing happens, nothing is written any more, although limits follow what other rungs have.
        stage.settle(3)
        done = len(stage.performed)
        stage.decide()
        assert stage.performed[done:] == []


@settings(max_examples=100, deadline=None)
@given(st.lists(offers, max_size=12), specs, st.randoms(use_true_random=False))
def test_the_order_in_which_offers_are_told_says_nothing(every: list[Any], spec: dict[str, Any], chance: Any) -> None:
    kept = list({each.name: each for each in every}.values())
    one = Stage(a_leftover(**spec), offers=kept)
    chance.shuffle(kept)
    other = Stage(a_leftover(**spec), offers=kept)
    assert one.decide() == other.decide()
