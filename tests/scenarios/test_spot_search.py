"""Spot pools against somebody who means harm: a part of the search of `make bench NAME=spotpools`, and what it once found.

The search is only worth something if it finds mistakes: so it is tried on plans that make one, and on the seed's loop.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from bench.pools import playing
from bench.pools.processes import REF
from bench.pools.scripts import Script, script
from bench.pools.searching import chunk, play_seed, shortened, told
from headroom.api.marks import CLUSTER_TAG, OWNER_TAG
from headroom.model.actions import RemoveFinalizer
from headroom.model.decisions import Decision
from headroom.model.world import World
from tests.scenarios.spot_findings import FINDINGS

RUNS = 300
FIRST = 10_000_000
"""Seeds that the benchmark does not reach."""
MOST_TRIED = 400


def test_nothing_is_found() -> None:
    found = chunk(FIRST, RUNS, playing.play)
    assert not found.failed, "\n".join(
        f"seed {seed}: {each.what}\n{told(shortened(script(seed)))}" for seed, each in found.failed[:1]
    )


@pytest.mark.parametrize("name", FINDINGS)
def test_what_was_once_found_is_mended(name: str) -> None:
    assert playing.play(FINDINGS[name]) is None


def test_the_seeds_loop_fails_in_every_way() -> None:
    found = chunk(FIRST, RUNS, play_seed)
    assert found.rules.total() > RUNS / 2
    assert {"S1", "S3", "leak"} <= found.rules.keys()


# --- plans with one mistake -----------------------------------------------------------------------------------------------------------


def takes_silence_for_a_no(world: World) -> Decision | None:
    """No answer to a launch means that there is no machine."""
    launches = {
        token: structs.replace(each, outcome="SoldOut") if each.outcome == "Unknown" else each
        for token, each in world.launches.items()
    }
    return playing.ours(structs.replace(world, launches=launches))


def takes_absence_for_an_end(world: World) -> Decision | None:
    """A machine that the cloud does not know now has ended."""
    instances = {
        name: structs.replace(each, state="SHUTDOWN") if each.state == "NOT_FOUND" else each
        for name, each in world.instances.items()
    }
    return playing.ours(structs.replace(world, instances=instances))


def takes_all_for_its_own(world: World) -> Decision | None:
    """Every machine of the cluster is the pool's."""
    uid = world.resources[REF].uid
    instances = {
        name: structs.replace(each, tags=each.tags | {OWNER_TAG: uid}) if each.tags.get(CLUSTER_TAG) else each
        for name, each in world.instances.items()
    }
    return playing.ours(structs.replace(world, instances=instances))


def goes_too_early(world: World) -> Decision | None:
    """A pool that is deleted forgets what it has."""
    decision = playing.ours(world)
    if decision is None or not world.resources[REF].deleting:
        return decision
    status = structs.replace(decision.status, slots=())
    return structs.replace(decision, status=status, actions=(RemoveFinalizer(object=str(REF)),))


def forgets_its_intents(world: World) -> Decision | None:
    """What is not known to exist is launched anew, with a new token."""
    pool = world.resources[REF]
    slots = tuple(slot for slot in pool.status.slots if slot.instance_id)
    forgot = structs.replace(pool, status=structs.replace(pool.status, slots=slots))
    return playing.ours(structs.replace(world, resources={REF: forgot}))


@pytest.mark.parametrize(
    ("mistaken", "rules"),
    [
        (takes_silence_for_a_no, {"S1", "S5"}),
        (takes_absence_for_an_end, {"S1", "S5"}),
        (takes_all_for_its_own, {"S3"}),
        (goes_too_early, {"S5", "S6", "leak"}),
        (forgets_its_intents, {"S1", "S5"}),
    ],
)
def test_a_mistake_is_found(mistaken: Callable[[World], Decision | None], rules: set[str]) -> None:
    for seed in range(FIRST, FIRST + MOST_TRIED):
        finding = playing.play(script(seed), mistaken)
        if finding is not None and finding.rule in rules:
            return
    raise AssertionError(f"{MOST_TRIED} runs, and nothing was found of {rules}")


def test_what_fails_is_shortened_to_what_matters() -> None:
    def play(tried: Script) -> playing.Finding | None:
        return playing.play(tried, takes_silence_for_a_no)

    failing = next(each for each in map(script, range(FIRST, FIRST + MOST_TRIED)) if play(each) is not None)
    short = shortened(failing, play)
    assert len(short.events) < 20 < len(failing.events)
    found, before = play(short), play(failing)
    assert found is not None
    assert before is not None
    assert found.rule == before.rule
    assert "events=[" in told(short)
