"""No link is given out twice, whatever kube-scheduler, the watch and the extender's own restarts do: histories drawn by seeds."""

import os

import pytest

from tests.tiers import DEEP
from tests.web.racing import Race

SEEDS = [os.environ["HEADROOM_SEED"]] if "HEADROOM_SEED" in os.environ else range(150 if DEEP else 8)
STEPS = 1_000


@pytest.mark.parametrize("seed", SEEDS)
def test_no_link_is_given_out_twice_but_by_who_did_not_ask(seed: object) -> None:
    race = Race(f"race-{seed}")
    race.run(STEPS)
    assert min(race.did[each] for each in ("answered", "refused", "bound", "preempts")) > 0
