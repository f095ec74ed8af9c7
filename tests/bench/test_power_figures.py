"""What the power benchmark tells: shares of the possible saving, the setting that saves as much as the seed, and the size of its fleet."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from bench import power
from bench.power import ALWAYS, MINUTE, SEED, Compared, Played
from bench.powering import demand, foresight, measures, planning
from bench.powering.measures import Came, Followed, Least
from bench.powering.offline import Offline
from headroom.core import CAPACITY as PLAN
from headroom.model.actions import WakeMachine
from headroom.model.changes import EVERYTHING

BOUND = Offline(is_optimum=False, machine_hours=420, kwh=1, starts_a_day=9)


def a_turn(policy: str, machine_hours: float, wait: float, starts_a_day: float = 0) -> Played:
    came = Came(
        machine_hours=machine_hours, kwh=1, starts_a_day=starts_a_day, waits=(0.0, 2 * wait), unplaced=0, lost=0
    )
    return Played(policy, came)


def compared(settings: Mapping[str, tuple[float, float]] = MappingProxyType({}), plan: Offline = BOUND) -> Compared:
    """A demand under every policy; each setting of ours has machine-hours and a mean wait."""
    turns = [
        a_turn(ALWAYS, 1000, 0),
        a_turn(SEED, 800, 10),
        a_turn(MINUTE, 450, 60, 100),
        *(a_turn(name, *settings.get(name, (500, 50)), 7) for name in power.OURS),
    ]
    played = {turn.policy: turn for turn in turns}
    return Compared(demand.philly(0, 1), Least(400, 1), plan, Followed(400, 140), played)


def test_saving_is_told_as_a_share_of_what_is_possible() -> None:
    found = compared()
    assert [round(found.kept(name)) for name in (ALWAYS, SEED, MINUTE)] == [0, 33, 92]
    assert round(found.starts(power.DEFAULT), 1) == 5.0


def test_what_is_possible_is_what_the_optimum_saves_where_there_is_one() -> None:
    found = compared(plan=Offline(True, 500, 1, 30))
    assert [round(found.kept(name)) for name in (ALWAYS, SEED, MINUTE)] == [0, 40, 110]
    assert [round(found.of_bound(found.played[name].came.machine_hours)) for name in (ALWAYS, SEED)] == [0, 33]
    told = {line[0]: line[1:5] for line in power.lines(found)}
    assert told[power.OPTIMUM] == ("500", "100.0 %", "83.3 %", "30.0")
    assert told[power.LEAST] == ("400", "", "100.0 %", ""), "nobody can do better than the optimum"


def test_a_goal_that_is_missed_says_so() -> None:
    told = power.rows_of(compared({power.DEFAULT: (900, 50)}))
    assert [row.figure for row in told if row.is_missed and row.sense == "min"] == [
        "Philly, made up: possible saving kept"
    ]


def test_every_policy_has_a_line_with_a_cell_for_each_column() -> None:
    found = compared()
    lines = list(power.lines(found))
    assert {len(line) for line in lines} == {len(power.COLUMNS)}
    assert len(lines) == len(found.played) + 4


def test_the_fleet_that_is_decided_on_is_as_large_as_it_is_said_to_be() -> None:
    fleet = planning.Fleet()
    fleet.remember()
    fleet.wait(planning.PENDING)
    waiting = fleet.waiting()
    assert sum(len(each.spec.machines) for each in fleet.resources.values()) == 5000
    assert (len(waiting), len({pod.shape for pod in waiting})) == (10_000, 200)
    decisions = list(PLAN.decide(fleet.world(planning.NOW), EVERYTHING))
    woken = {action.machine for each in decisions for action in each.actions if isinstance(action, WakeMachine)}
    assert woken
    assert not woken & {spot.name for spot in fleet.spots if spot.power == "On"}


def test_who_knows_the_future_needs_no_more_than_that() -> None:
    """One machine more for ten minutes, once an hour: who sees it three minutes ahead has it in time, who sees less has not."""
    used = np.array([10] * 57 + [11] * 3 + [10] * 60, np.int64)
    seen = [foresight.came_to(used, np.maximum(used, np.roll(used, -ahead)), 20, 21) for ahead in range(4)]
    assert [wait for _, _, wait in seen] == [180, 120, 60, 0]
    assert [starts for _, starts, _ in seen] == [100, 100, 100, 100]
    always = foresight.came_to(used, np.full(120, 20), 20, 21)
    assert always == (0, 0, 0)
    kept, _, _ = foresight.came_to(used, np.full(120, 11), 20, 21)
    assert round(kept, 1) == round(100 * 9 * 2 / 21, 1), (
        "nine machines are off for two hours, of 21 hours that could be saved"
    )


def test_pods_that_fill_machines_are_counted_minute_by_minute() -> None:
    found = demand.philly(0, 1)
    recorded = [int(line.split(",")[1]) for line in demand.made_up_minutes(1).splitlines()[1:]]
    assert measures.in_use(found.case).tolist() == recorded[: len(recorded) - 1]
