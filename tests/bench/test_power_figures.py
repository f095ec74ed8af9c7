"""What the power benchmarks tell: shares of the possible saving, figures beside a constant rule's, how settings are chosen, and the size of the fleet."""

import gzip
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from bench import power, weeks
from bench.power import ALWAYS, MINUTE, SEED, Compared, Played
from bench.powering import demand, families, measures, planning
from bench.powering.families import Outcome, Setting
from bench.powering.measures import Came, Followed, Least
from bench.powering.offline import Offline
from headroom.core import CAPACITY as PLAN
from headroom.model.actions import WakeMachine
from headroom.model.changes import EVERYTHING

PEER = power.constant_name(Setting(30, 4))
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
        a_turn(PEER, 480, 40, 14),
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


def test_ours_is_told_beside_the_constant_rule() -> None:
    told = {row.figure: (row.value, row.peer_value) for row in power.rows_of(compared())}
    name = "Philly, made up: "
    assert told == {
        f"{name}possible saving kept": (83.33, 86.67),
        f"{name}starts, of those of following demand each minute": (5.0, 10.0),
        f"{name}mean wait": (50.0, 40.0),
        f"{name}pods that wait": (50.0, 50.0),
        f"{name}wait of 999 of 1000": (100.0, 80.0),
    }
    assert {row.peer for row in power.rows_of(compared())} == {"constant: peak of 30m + 4"}


def test_a_goal_that_is_missed_says_so() -> None:
    told = weeks.rows_of([compared()], PEER)
    assert [row.figure.rpartition(": ")[2] for row in told if row.is_missed] == [
        "saving kept",
        "mean wait",
        "999 of 1000",
    ]
    better = weeks.rows_of([compared({power.DEFAULT: (450, 40)})], PEER)
    assert not any(row.is_missed for row in better)


def test_weeks_count_together_as_one_demand() -> None:
    two = [compared(), compared({power.DEFAULT: (600, 10)})]
    kept, starts, wait, waiting, longest = weeks.together(two, power.DEFAULT)
    assert (round(kept, 1), starts, wait, waiting, longest) == (75.0, 5.0, 30.0, 50.0, 100.0)
    lines = list(weeks.lines([compared()] * 5, PEER))
    assert {len(line) for line in lines} == {len(weeks.COLUMNS)}
    assert [line[0] for line in lines] == ["6", "7", "8", "9", "10", "**all**"]


def test_of_rules_that_keep_enough_the_one_with_the_least_wait_is_chosen() -> None:
    rules = [
        Outcome(Setting(10, 8), 89.9, 1, 0.5),
        Outcome(Setting(20, 5), 90.0, 6, 2.004),
        Outcome(Setting(30, 4), 91.0, 5, 2.001),
        Outcome(Setting(40, 1), 95.0, 2, 4.0),
    ]
    best, none = families.chosen(rules), families.chosen(rules, 96)
    assert best is not None
    assert (best.setting, none) == (Setting(30, 4), None), "of equal waits the one with fewer starts"


def test_the_minute_model_of_ours_is_between_what_must_be_on_and_what_stays_on() -> None:
    used = np.array([10] * 30 + [20] * 30 + [10] * 60, np.int64)
    [ours, constant] = [
        families.levels(*bounds, 100)
        for bounds in (families._ours(used, 100, Setting(40, 5, 100)), families._constant(used, Setting(40, 4)))
    ]
    assert ours.tolist() == [11] * 30 + [21] * 69 + [14] * 21, "one is woken ahead, and four of ninety stay"
    assert constant.tolist() == [14] * 30 + [24] * 69 + [14] * 21


def test_every_policy_has_a_line_with_a_cell_for_each_column() -> None:
    found = compared()
    lines = list(power.lines(found))
    assert {len(line) for line in lines} == {len(power.COLUMNS)}
    assert len(lines) == len(found.played) + 4
    hindsight = found._replace(hindsight=Outcome(Setting(15, 2), 90, 5, 1.5))
    assert {len(line) for line in power.lines(hindsight)} == {len(power.COLUMNS)}


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


def test_a_machine_is_there_three_minutes_after_it_is_wanted() -> None:
    """One machine more for three minutes: who wants it three minutes before has it in time, who wants it later has not."""
    used = np.array([10] * 57 + [11] * 3 + [10] * 60, np.int64)
    seen = [families.came_to(used, np.maximum(used, np.roll(used, -ahead)), 20, 21) for ahead in range(4)]
    assert [wait for _, _, wait in seen] == [180, 120, 60, 0]
    assert [starts for _, starts, _ in seen] == [100, 100, 100, 100]
    always = families.came_to(used, np.full(120, 20), 20, 21)
    assert always == (0, 0, 0)
    kept, _, _ = families.came_to(used, np.full(120, 11), 20, 21)
    assert round(kept, 1) == round(100 * 9 * 2 / 21, 1), (
        "nine machines are off for two hours, of 21 hours that could be saved"
    )


def test_pods_that_fill_machines_are_counted_minute_by_minute() -> None:
    found = demand.philly(0, 1)
    recorded = [int(line.split(",")[1]) for line in demand.made_up_minutes(1).splitlines()[1:]]
    assert measures.in_use(found.case).tolist() == recorded[: len(recorded) - 1]


def test_a_cluster_of_helios_is_made_of_its_running_gpus(tmp_path: Path) -> None:
    head = "time,total_gpu_num,running_gpu_num"
    running = (8, 9, 16, 0, 25)
    lines = [f"2020-05-01 00:0{minute}:00,24,{gpus}" for minute, gpus in enumerate(running)]
    file = tmp_path / "node-power" / "helios_earth_vcpDC.csv.gz"
    file.parent.mkdir()
    file.write_bytes(gzip.compress("\n".join([head, *lines]).encode()))
    found = demand.helios("Helios pDC", None, tmp_path)
    assert (found.is_recorded, len(found.case.nodes)) == (True, 3)
    assert measures.in_use(found.case).tolist() == [1, 2, 2, 0]
    assert not demand.helios("Helios pDC", 1).is_recorded
