"""The optimum that the power benchmark computes from all that will come, on small demands where it can be told by hand or by trying all."""

import random
from itertools import pairwise, product

import pytest

from bench.powering import demand, measures, offline, rivals
from bench.powering.demand import BOOT_MS, BUSY_WATTS, IDLE_WATTS, Demand
from bench.powering.offline import Offline
from headroom.model import times
from tests.bench.test_power_rivals import a_demand, a_work

MINUTE, HOUR = 60, 3600


def planned(found: Demand) -> Offline:
    all_on = found._replace(case=demand.all_on(found.case))
    log, _ = rivals.play(all_on.case, all_on.pools, rivals.AlwaysOn())
    return offline.offline(found, log)


def minutes_on(plan: Offline) -> float:
    return plan.machine_hours * 60


def test_a_long_rest_is_slept_through_and_a_short_one_is_not() -> None:
    works = [
        a_work("first", 8, at=0, minutes=10),
        a_work("soon", 8, at=13 * MINUTE, minutes=10),
        a_work("late", 8, at=43 * MINUTE, minutes=10),
    ]
    found = a_demand({"w1": 8, "w2": 8}, works, ["w1"], minutes=60)
    plan, down = planned(found), found.case.shutdown_ms / times.MINUTE
    assert minutes_on(plan) == pytest.approx(30 + 3 + (3 + down) + down)
    assert plan.starts_a_day == pytest.approx(24), "one in an hour"
    idle = 3 + (3 + down) + down
    assert plan.kwh == pytest.approx((30 * BUSY_WATTS + idle * IDLE_WATTS) / 60 / 1000)
    assert plan.is_optimum


def test_who_was_freed_last_is_used_first() -> None:
    """Of two machines in use one is enough after the first quarter: the other sleeps, and nobody starts a third."""
    works = [a_work("long", 8, at=0, minutes=15), a_work("short", 8, at=0, minutes=30)]
    works += [a_work(f"next-{number}", 8, at=(30 + 10 * number) * MINUTE, minutes=10) for number in range(3)]
    found = a_demand({"w1": 8, "w2": 8, "w3": 8}, works, ["w1", "w2"], minutes=60)
    plan, down = planned(found), found.case.shutdown_ms / times.MINUTE
    assert minutes_on(plan) == pytest.approx(60 + 15 + down)
    assert plan.starts_a_day == 0


def test_where_pods_share_machines_it_is_a_plan_and_no_optimum() -> None:
    works = [a_work("half", 4, at=0, minutes=10), a_work("other", 4, at=5 * MINUTE, minutes=10)]
    found = a_demand({"w1": 8, "w2": 8}, works, ["w1"], minutes=60)
    plan, down = planned(found), found.case.shutdown_ms / times.MINUTE
    assert not plan.is_optimum
    # Pods pull their image before they begin, and hold their place meanwhile.
    assert minutes_on(plan) == pytest.approx(15 + down, abs=0.1)
    assert measures.least(found).machine_hours <= plan.machine_hours


@pytest.mark.parametrize("seed", range(6))
def test_nobody_who_tries_everything_finds_better(seed: int) -> None:
    """Every number of machines that could be there in each step of five minutes is tried."""
    rng = random.Random(seed)
    used = [rng.randint(1, 3) for _ in range(8)]
    works, step = [], 5 * MINUTE
    for level in range(1, 4):
        works += [
            a_work(f"p{level}-{at}", 8, at=at * step, minutes=5) for at, count in enumerate(used) if count >= level
        ]
    found = a_demand({f"w{number}": 8 for number in range(3)}, works, [f"w{number}" for number in range(used[0])], 40)
    down = found.case.shutdown_ms / times.MINUTE
    switch = BOOT_MS / times.MINUTE + down

    def cost(there: tuple[int, ...]) -> float:
        starts = sum(max(0, after - before) for before, after in pairwise(there))
        # What goes off before the end shuts down within the time that is left.
        stops = starts + there[0] - there[-1]
        return 5 * sum(there) + (switch - down) * starts + down * stops

    fine = (there for there in product(range(4), repeat=8) if all(map(int.__ge__, there, used)) and there[0] == used[0])
    assert minutes_on(planned(found)) == pytest.approx(min(map(cost, fine)))
