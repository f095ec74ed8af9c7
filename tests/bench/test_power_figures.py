"""What the power benchmark tells: shares of the possible saving, the setting that saves as much as the seed, and the size of its fleet."""

from bench import power
from bench.power import ALWAYS, MINUTE, SEED, Compared, Played, ours
from bench.powering import demand, planning
from bench.powering.measures import Came, Followed, Least
from headroom.core.power import PLAN
from headroom.model.actions import WakeMachine
from headroom.model.world import EVERYTHING


def a_turn(policy: str, machine_hours: float, wait: float, starts_a_day: float = 0) -> Played:
    came = Came(
        machine_hours=machine_hours, kwh=1, starts_a_day=starts_a_day, waits=(0.0, 2 * wait), unplaced=0, lost=0
    )
    return Played(policy, came)


def compared(**settings: tuple[float, float]) -> Compared:
    """A demand under every policy; each setting of ours has machine-hours and a mean wait."""
    turns = [
        a_turn(ALWAYS, 1000, 0),
        a_turn(SEED, 800, 10),
        a_turn(MINUTE, 450, 60, 100),
        *(
            a_turn(ours(idle), *settings.get(f"idle_{idle}", (500, 50)), 7)
            for idle in {*power.IDLE_SECONDS, power.DEFAULT}
        ),
    ]
    played = {turn.policy: turn for turn in turns}
    return Compared(demand.philly(0, 1), Least(400, 1), Followed(400, 140), played)


def test_saving_is_told_as_a_share_of_what_is_possible() -> None:
    found = compared()
    assert [round(found.kept(name)) for name in (ALWAYS, SEED, MINUTE)] == [0, 33, 92]
    assert round(found.starts(ours(power.DEFAULT)), 1) == 5.0


def test_waits_are_compared_where_no_less_is_saved() -> None:
    found = compared(idle_3600=(700, 9), idle_86400=(801, 1))
    assert found.frugal() == ours(3600), "the last one waits less, but saves less than the seed"
    told = {row.figure: row for row in power.rows_of(found)}
    [row] = [row for figure, row in told.items() if "no less than the seed" in figure]
    assert (row.value, row.goal, row.is_missed) == (9, 10, False)


def test_a_goal_that_is_missed_says_so() -> None:
    told = power.rows_of(compared(**{f"idle_{power.DEFAULT}": (900, 50)}))
    assert [row.figure for row in told if row.is_missed and row.sense == "min"] == [
        "Philly, made up: possible saving kept"
    ]


def test_every_policy_has_a_line_with_a_cell_for_each_column() -> None:
    found = compared()
    lines = list(power.lines(found))
    assert {len(line) for line in lines} == {len(power.COLUMNS)}
    assert len(lines) == len(found.played) + 3


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
