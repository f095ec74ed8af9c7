"""The peers of the power benchmark: the seed does what the original was seen to do, and bounds and measures are what they say."""

from collections.abc import Sequence
from itertools import pairwise

import pytest

from bench.powering import demand, measures, rivals
from bench.powering.demand import Demand
from headroom.model import times
from headroom.model.facts import Machine, Node, Shape
from headroom.model.world import by_ref
from headroom.sim.whatif.cluster import ReplayCluster
from headroom.sim.whatif.work import GPU, Case, RequestedPod, owner_of

BEGIN = 1_800_000_000_000
MICRO = 1_000_000


def a_shape(gpus: int) -> Shape:
    return Shape(requests=((GPU, gpus * MICRO),))


def a_work(name: str, gpus: int, at: float = 60, minutes: float | None = None, *, before: bool = False) -> RequestedPod:
    return RequestedPod(
        name=name,
        namespace="lab",
        owner=owner_of("Job", "lab", name),
        arrives=BEGIN + round(at * times.SECOND),
        length=None if minutes is None else round(minutes * times.MINUTE),
        shape=a_shape(gpus),
        began=BEGIN if before else None,
    )


def a_demand(sizes: dict[str, int], works: Sequence[RequestedPod], on: Sequence[str] = (), minutes: int = 4) -> Demand:
    nodes = [Node(name=name, ready=True, allocatable=((GPU, gpus * MICRO),)) for name, gpus in sizes.items()]
    case = Case(
        title="test",
        begin=BEGIN,
        end=BEGIN + minutes * times.MINUTE,
        works=list(works),
        nodes=nodes,
        machines={name: Machine(name=name, power="On" if name in on else "Off", since=BEGIN) for name in sizes},
        boot_ms=demand.BOOT_MS,
    )
    return Demand("test", False, case, by_ref(demand.pools_of(nodes)))


class Listener(rivals.Seed):
    """The seed, with a note of every call."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__(sizes)
        self.calls: list[str] = []

    def look(self, cluster: ReplayCluster, switches: rivals.Switchboard) -> None:
        super().look(cluster, switches)
        up, down = self.wishes(cluster.pods)
        self.calls += [f"{name}/up" for name in up] + ([f"{down}/down"] if down else [])


def heard(sizes: dict[str, int], works: Sequence[RequestedPod], on: Sequence[str] = ()) -> dict[str, int]:
    """The calls of 180 seconds, as the original was watched: every 10 seconds, the first after 10."""
    found = a_demand(sizes, works, on)
    found.case.end = BEGIN + 180 * times.SECOND + 1
    seed = Listener(sizes)
    rivals.play(found.case, found.pools, seed)
    return {call: seed.calls.count(call) for call in sorted(set(seed.calls))}


TWO = {"w1": 4, "w2": 8}


@pytest.mark.parametrize(
    ("sizes", "works", "on", "calls"),
    [
        pytest.param(TWO, [a_work("p", 2, at=0)], (), {"w1/up": 18}, id="a machine that takes three minutes to boot"),
        pytest.param(TWO, [], ("w1", "w2"), {"w2/down": 18}, id="both idle"),
        pytest.param(TWO, [a_work("p", 16, at=0)], (), {"w1/up": 18, "w2/up": 18}, id="a pod for no machine"),
        pytest.param(
            {"n1": 4, "n2": 4, "n3": 4},
            [a_work("a", 2, before=True), a_work("b", 3, before=True), a_work("p", 3, at=0)],
            ("n1", "n2"),
            {"n3/down": 18},
            id="room only in fragments",
        ),
    ],
)
def test_the_seed_calls_as_the_original_was_seen_to(
    sizes: dict[str, int], works: list[RequestedPod], on: Sequence[str], calls: dict[str, int]
) -> None:
    assert heard(sizes, works, on) == calls


def test_after_the_pod_runs_the_seed_calls_the_other_machine_for_ever() -> None:
    found = a_demand(TWO, [a_work("p", 2, at=0)], minutes=6)
    seed = Listener(TWO)
    log, switches = rivals.play(found.case, found.pools, seed)
    assert [life.node for life in log.lives] == ["w1"]
    # Called at 10 s, ready at 190, running at 192: from the cycle at 200 s on there is nothing to wake for.
    assert (seed.calls.count("w1/up"), seed.calls.count("w2/down")) == (19, 16)
    assert (switches.calls, switches.wasted) == (35, 34)


class Script:
    """Switches by the clock: seconds to a machine and whether it shall be on."""

    every = times.SECOND

    def __init__(self, *steps: tuple[int, str, bool]) -> None:
        self._steps = list(steps)

    def look(self, cluster: ReplayCluster, switches: rivals.Switchboard) -> None:
        for at, name, is_on in self._steps:
            if cluster.now == BEGIN + at * times.SECOND:
                (switches.on if is_on else switches.off)(name)


def test_a_machine_that_is_switched_off_takes_its_pods_along() -> None:
    found = a_demand({"w1": 8}, [a_work("p", 8, at=10, minutes=30)], ["w1"], minutes=60)
    log, _ = rivals.play(found.case, found.pools, Script((60, "w1", False), (120, "w1", True)))
    first, second = log.lives
    assert (first.end, second.end) == (rivals.LOST, "Finished")
    assert second.bound == BEGIN + 120 * times.SECOND + demand.BOOT_MS
    came = measures.came(found, log)
    assert (came.lost, came.unplaced, came.starts_a_day) == (1, 0, 24)
    assert came.waits == (240,), "from 60 s to 300 s, all tries together"


def test_a_machine_that_is_woken_while_it_shuts_down_is_on_once() -> None:
    found = a_demand({"w1": 8}, [], ["w1"], minutes=60)
    log, _ = rivals.play(found.case, found.pools, Script((60, "w1", False), (70, "w1", True)))
    first, second = log.shifts
    assert first.end == second.begin == BEGIN + 60 * times.SECOND + found.case.shutdown_ms
    assert measures.came(found, log).machine_hours == 1


def test_a_boot_that_was_broken_off_makes_no_node_ready() -> None:
    found = a_demand({"w1": 8}, [a_work("p", 8, at=0)], minutes=10)
    log, _ = rivals.play(found.case, found.pools, Script((10, "w1", True), (20, "w1", False)))
    assert [life.bound for life in log.lives] == [None]


def test_each_minute_wakes_what_the_scheduler_would_use_and_no_more() -> None:
    works = [a_work("a", 4, at=60), a_work("b", 4, at=60), a_work("c", 8, at=60), a_work("late", 8, at=150)]
    found = a_demand({"w1": 4, "w2": 8, "w3": 8, "w4": 8, "w5": 8}, works, minutes=8)
    log, switches = rivals.play(found.case, found.pools, rivals.EachMinute())
    assert {life.work.name: life.node for life in log.lives} == {"a": "w1", "b": "w2", "c": "w3", "late": "w4"}
    assert switches.calls == 4, "what is on its way counts"


def test_each_minute_switches_off_what_is_empty() -> None:
    found = a_demand({"w1": 8, "w2": 8}, [a_work("p", 8, at=0, minutes=5)], ["w1", "w2"], minutes=10)
    log, _ = rivals.play(found.case, found.pools, rivals.EachMinute())
    ends = {shift.machine: shift.end for shift in log.shifts}
    down = found.case.shutdown_ms
    assert ends == {"w2": BEGIN + times.MINUTE + down, "w1": BEGIN + 6 * times.MINUTE + down}


# --- bounds and measures ------------------------------------------------------------------------------------------------------


def test_philly_becomes_pods_that_fill_machines_and_the_bound_is_exact() -> None:
    found = demand.philly(0, 1)
    used = [int(line.split(",")[1]) for line in demand.made_up_minutes(1).splitlines()[1:]]
    assert not found.is_recorded
    on = [name for name, machine in found.case.machines.items() if machine.power == "On"]
    assert len(on) == used[0]
    # The record's last minute only says where it ends.
    assert measures.least(found).machine_hours == pytest.approx(sum(used[:-1]) / 60)
    rises = sum(max(0, after - before) for before, after in pairwise(used[:-1]))
    all_on = found._replace(case=demand.all_on(found.case))
    log, _ = rivals.play(all_on.case, all_on.pools, rivals.AlwaysOn())
    assert measures.followed(all_on, log).starts_a_day == pytest.approx(rises / found.days)
    came = measures.came(all_on, log)
    assert (came.wait(100), came.starts_a_day) == (0, 0)
    assert came.machine_hours == pytest.approx(demand.MACHINES * 24 * found.days)


def test_the_bound_takes_the_largest_machines_and_what_is_scarcest() -> None:
    works = [a_work("a", 6, at=0, minutes=30), a_work("b", 6, at=0, minutes=60)]
    found = a_demand({"w1": 2, "w2": 8, "w3": 8}, works, minutes=60)
    bound = measures.least(found)
    # Twelve GPUs need both large ones for half an hour, six need one.
    assert bound.machine_hours == pytest.approx(1.5)
    assert bound.kwh == pytest.approx((12 * 0.5 + 6 * 0.5) * demand.BUSY_WATTS / 8 / 1000)


def test_openb_has_whole_gpus_only_and_its_machines_are_in_pools() -> None:
    found = demand.openb(2)
    asked = {amount for work in found.case.works for name, amount in work.shape.requests if name == GPU}
    assert asked <= {1 * MICRO, 2 * MICRO, 4 * MICRO, 8 * MICRO}
    machines = [machine for pool in found.pools.values() for machine in pool.spec.machines]
    assert len(machines) == len(found.case.nodes) == 1213
    assert [machine.gpu_count for machine in machines] == sorted(machine.gpu_count for machine in machines)


def test_a_constant_rule_keeps_the_peak_of_its_window_and_some_spares() -> None:
    works = [a_work("a", 8, at=60, minutes=10), a_work("b", 8, at=60, minutes=4)]
    demand_ = a_demand(dict.fromkeys(("m1", "m2", "m3", "m4"), 8), works, minutes=40)
    log, switches = rivals.play(demand_.case, demand_.pools, rivals.Constant(window=6, spares=1))
    minutes = {
        shift.machine: tuple(round((at - BEGIN) / times.MINUTE) for at in (shift.begin, shift.end or demand_.case.end))
        for shift in log.shifts
    }
    # Both are there from minute 4 on; b ends at 8 and a at 14, and each counts for six minutes more.
    assert minutes == {"m1": (1, 40), "m2": (1, 20), "m3": (1, 14)}
    assert measures.came(demand_, log).waits == (180.0, 180.0)
    assert switches.wasted == 0
