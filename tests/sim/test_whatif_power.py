"""What-if with machines that sleep: a pool over recorded machines is played, measured, and goes as the full simulator does."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.adapters import documents
from headroom.api.bandwidth import MARKER
from headroom.api.bandwidth_config import Mode
from headroom.api.kinds import AnyResource
from headroom.api.power_status import Energy
from headroom.model import actions
from headroom.model.bandwidth import BandwidthRules
from headroom.model.facts import Machine, Owner, Pod, Shape, Taint, Usage
from headroom.model.snapshots import load, save
from headroom.model.times import HOUR, MINUTE, SECOND, moment
from headroom.model.usage import UsageRow
from headroom.model.world import by_ref
from headroom.sim.whatif import beside, recorded, traces
from headroom.sim.whatif.carrying import Hands
from headroom.sim.whatif.cluster import ReplayCluster
from headroom.sim.whatif.comparing import Comparison
from headroom.sim.whatif.lives import ReplayLog
from headroom.sim.whatif.outcome import outcome
from headroom.sim.whatif.page import Assets, page
from headroom.sim.whatif.replay import OUTSIDE, replay
from headroom.sim.whatif.report import report
from headroom.sim.whatif.work import Case, RequestedPod, owner_of
from tests.builders import NOON, a_node, a_resource, a_used_world
from tests.core.stage import a_budget
from tests.scenarios import power_stage as full
from tests.scenarios.ladder import UNHURRIED
from tests.sim.test_whatif import a_case, a_work

GPU = "nvidia.com/gpu"
WATTS = {"idleWatts": 1000, "busyWatts": 5000}


def a_machine(name: str, gpus: int = 8, **more: Any) -> dict[str, Any]:
    ends = {"scaleUpEndpoint": f"http://power/{name}/on", "scaleDownEndpoint": f"http://power/{name}/off"}
    return {"name": name, "gpuCount": gpus} | ends | more


def a_pool(*machines: dict[str, Any], name: str = "metal", **policy: Any) -> AnyResource:
    """A pool whose machines sleep after ten minutes."""
    given = {"idleSeconds": 600, "minOffSeconds": 0} | policy
    return a_resource("PowerPool", name, machines=list(machines), template=WATTS, policy=given)


def workers(count: int) -> list[dict[str, Any]]:
    return [a_machine(f"worker-{number}") for number in range(count)]


def played(case: Case, *pools: AnyResource) -> tuple[Any, ReplayLog]:
    resources = by_ref(pools)
    log = replay(case, resources, every=1000)
    return outcome(case, resources, log), log


# --- played -----------------------------------------------------------------------------------------------------------------------


def test_a_machine_that_is_off_wakes_for_work_and_sleeps_when_it_is_done() -> None:
    case = a_case(a_work(at=60, hours=2, gpus=8), nodes=1, machines={"worker-0": Machine(name="worker-0", power="Off")})
    found, log = played(case, a_pool(*workers(1)))
    assert (found.wakes, found.sleeps, found.total.finished) == (1, 1, 1)
    [life], [shift] = log.lives, log.shifts
    assert life.node == "worker-0"
    assert life.bound is not None
    # The plan is asked within a second, and the machine takes 90 s to boot.
    assert 90 * SECOND <= life.bound - life.work.arrives <= 95 * SECOND
    assert shift.end is not None
    assert life.ended is not None
    # Ten minutes idle, ten seconds for the cordon to settle, and the time that shutting down takes.
    assert 630 * SECOND <= shift.end - life.ended <= 660 * SECOND
    on = (shift.end - shift.begin) / HOUR
    assert found.machine_hours == pytest.approx(on)
    assert found.energy_kwh == pytest.approx(5 * 2 + 1 * (on - 2))
    assert found.saved_kwh == pytest.approx(24 - on)


@pytest.mark.parametrize(("mode", "wakes"), [("Extender", 1), ("Off", 0)])
def test_a_machine_wakes_for_a_pod_that_asks_for_bandwidth_if_it_is_known_what_its_mark_means(
    mode: Mode, wakes: int
) -> None:
    marked = Shape(requests=((MARKER, 10**6), (GPU, 8 * 10**6)))
    asleep = {"worker-0": Machine(name="worker-0", power="Off")}
    world = structs.replace(a_used_world(now=NOON), bandwidth=BandwidthRules(mode=mode))
    rules = recorded.read(load(save(world)), "test", days=None).bandwidth
    more: dict[str, Any] = {"machines": asleep, "boundless": frozenset({MARKER}), "bandwidth": rules}
    found, _ = played(a_case(a_work(shape=marked), nodes=1, hours=4, **more), a_pool(*workers(1)))
    assert (found.wakes, found.total.finished) == (wakes, wakes)


def test_that_nodes_have_bandwidths_costs_nothing() -> None:
    case = a_case(*(a_work(f"j{minute}", at=minute) for minute in range(20)), nodes=2)
    log = replay(case, by_ref([a_resource("Bandwidth", "worker-0")]), every=1000)
    assert log.passes == replay(case, {}, every=1000).passes


def used_before(end: int) -> UsageRow:
    """Eleven GPU-hours that were used in the eleven hours before a moment."""
    begin = end - 11 * HOUR
    return UsageRow(
        cluster="default",
        uid="before",
        namespace="team-a",
        created=begin,
        start=begin,
        earliest=begin,
        seen_until=end,
        ended=end,
        amounts=((GPU, 10**6),),
        labels=(("team", "a"),),
    )


@pytest.mark.parametrize(("hours", "wakes"), [("10", 0), ("100", 1)])
def test_no_machine_wakes_for_a_budget_that_is_found_over_quota_in_the_same_moment(hours: str, wakes: int) -> None:
    """Nobody has looked at the budget before: its status says nothing of its quota, and nothing is written until all plans were asked."""
    asleep = {"worker-0": Machine(name="worker-0", power="Off")}
    case = a_case(a_work(hours=1, gpus=8), nodes=1, hours=2, machines=asleep, history=[used_before(NOON - HOUR)])
    found, _ = played(case, a_pool(*workers(1)), a_budget(hours=hours))
    assert found.wakes == wakes


def test_a_machine_wakes_as_soon_as_a_budget_is_back_under_quota() -> None:
    """Nothing else happens then: only that the earlier plan says something else has the later one asked."""
    asleep = {"worker-0": Machine(name="worker-0", power="Off")}
    # All eleven hours lie in the window of a day; the first of them has left it after three hours.
    case = a_case(a_work(hours=1, gpus=8), nodes=1, hours=20, machines=asleep, history=[used_before(NOON - 11 * HOUR)])
    found, log = played(case, a_pool(*workers(1)), a_budget(hours="10"))
    assert found.wakes == 1
    [shift] = log.shifts
    assert shift.begin - NOON == pytest.approx(3 * HOUR, abs=MINUTE)


def test_machines_without_a_node_become_one_and_those_without_a_pool_are_always_on() -> None:
    case = a_case(a_work(hours=1, gpus=8), a_work("next", hours=1, gpus=4), nodes=1)
    found, log = played(case, a_pool(a_machine("extra", labels={"zone": "b"})))
    assert {life.node for life in log.lives} == {"worker-0", "extra"}
    assert (found.wakes, found.sleeps) == (1, 1)
    [shift] = log.shifts
    assert shift.end is not None
    assert found.machine_hours == pytest.approx(24 + (shift.end - shift.begin) / HOUR)


def test_pods_go_only_to_machines_that_are_on_and_not_about_to_sleep() -> None:
    works = [a_work(f"job-{number}", at=number * 47, hours=0.3, gpus=5) for number in range(25)]
    found, log = played(a_case(*works, nodes=3), a_pool(*workers(3)))
    assert found.total.never_started == 0
    assert found.sleeps > 5
    on = {name: [(s.begin, s.end or NOON + 24 * HOUR) for s in log.shifts if s.machine == name] for name in _names(3)}
    for life in log.lives:
        assert life.bound is not None
        end = NOON + 24 * HOUR if life.ended is None else life.ended
        assert any(begin <= life.bound and end <= over for begin, over in on[life.node]), "it ran on a dark machine"


def _names(count: int) -> list[str]:
    return [f"worker-{number}" for number in range(count)]


def test_before_and_after_a_pool_show_what_it_saves_and_what_it_costs() -> None:
    works = [a_work(f"job-{number}", at=number * 180, hours=1, gpus=8) for number in range(8)]
    case = a_case(*works, nodes=4)
    before, _ = played(case)
    after, _ = played(case, a_pool(*workers(4)))
    assert before.machine_hours == pytest.approx(4 * 24)
    assert before.energy_kwh is None
    assert after.machine_hours < 20
    assert after.saved_kwh > 75
    assert (before.total.waits.longest, after.total.finished) == (0, 8)
    assert 90 <= after.total.waits.longest < 100
    found = Comparison(case=case, changes=[], every=1000, before=before, after=after)
    sections = report(found).sections
    assert sections[0].rows[0][:2] == ("Better", "machine-hours powered on")
    rows = {row[1]: row[2:] for row in sections[0].rows}
    assert rows["machine-hours powered on"][0] == "96.0"
    assert rows["machines woken"][0] == "0"
    assert rows["energy used by machines of known wattage"][0] == "unknown"
    assert rows["energy saved by sleeping"][1].endswith(" kWh")
    assert "Machines on" in page(found, Assets("void 0;", ""))
    without = Comparison(case=case, changes=[], every=1000, before=before, after=before)
    assert "machines woken" not in report(without).sections[0].folded


def test_a_floor_and_office_hours_keep_machines_on() -> None:
    case = a_case(a_work(hours=0.1), nodes=4)
    floor, _ = played(case, a_pool(*workers(4), minOn=3))
    assert floor.sleeps == 1
    office = [{"begin": "12:00", "end": "18:00"}]
    kept, log = played(case, a_pool(*workers(4), keepOn=office))
    assert kept.sleeps == 4
    assert min(shift.end or 0 for shift in log.shifts) >= NOON + 6 * HOUR


def test_without_nodes_there_is_always_room_and_nothing_is_woken() -> None:
    case = structs.replace(a_case(a_work()), nodes=[])
    found, _ = played(case, a_pool(a_machine("extra")))
    assert (found.wakes, found.total.finished, found.machine_hours) == (0, 1, 0)


def test_what_the_power_of_a_machine_is_at_the_begin_may_stand_beside_the_policies() -> None:
    text = "apiVersion: sim.headroom.dev/v1\nkind: Machine\nmetadata: {name: worker-0}\nspec: {power: Off}\n"
    found = documents.read([("machines.yaml", text.encode())])
    case = beside.put_over(a_case(nodes=2), found)
    assert case.machines["worker-0"].power == "Off"
    assert beside.passed_over(found) == {}
    _, log = played(case, a_pool(*workers(2)))
    assert [shift.machine for shift in log.shifts] == ["worker-1"]


def test_what_slept_in_a_record_is_on_without_its_pool() -> None:
    cordoned = (("headroom.dev/cordoned-by", "PowerPool/metal"),)
    taint = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
    asleep = a_node("worker-1", ready=False, unready_since=NOON - HOUR, annotations=cordoned, unschedulable=True)
    rows = [Usage(name="r", namespace="team-a", pod="p", start=NOON - 5 * HOUR, end=NOON - 4 * HOUR, gpus=8 * 10**6)]
    nodes = [a_node("worker-0"), structs.replace(asleep, taints=(taint,)), a_node("broken", ready=False)]
    world = a_used_world(a_pool(*workers(2)), usage=rows, nodes=nodes, now=NOON)
    case = recorded.read(load(save(world)), "test", days=None)
    assert "PowerPool machines off at the end of the record: 1." in " ".join(case.notes)
    assert not [note for note in case.notes if "kWh" in note], "it has counted nothing"
    before, log = played(case, *case.resources.values())
    assert [shift.machine for shift in log.shifts] == ["worker-0"]
    after, _ = played(case)
    assert after.machine_hours == pytest.approx(2 * 5), "the one that is broken stays so"
    assert before.machine_hours < 2


# --- hands ------------------------------------------------------------------------------------------------------------------------


class Bench:
    """A cluster whose events are done by hand."""

    def __init__(self, *works: RequestedPod) -> None:
        self.case = a_case(*works, nodes=1)
        self.pool = a_pool(*workers(1))
        self.events: list[Any] = []
        self.cluster = ReplayCluster(
            self.case, by_ref([self.pool]), lambda at, do: self.events.append((at, do)), OUTSIDE
        )
        self.hands = Hands(self.cluster)

    @property
    def outcome(self) -> str:
        """What came of the last call."""
        return str(self.cluster.world().calls["worker-0"].outcome)

    @property
    def power(self) -> str:
        return self.cluster.machines["worker-0"].power

    def do(self, *due: actions.Action) -> None:
        self.hands.carry_out(due, self.pool)

    def wait(self, ms: int) -> None:
        until = self.cluster.now + ms
        while due := sorted((each for each in self.events if each[0] <= until), key=lambda each: int(each[0])):
            self.events.remove(due[0])
            self.cluster.now = due[0][0]
            due[0][1]()
        self.cluster.now = until


NODE, MACHINE = {"node": "worker-0"}, {"pool": "metal", "machine": "worker-0"}


def test_no_machine_is_switched_off_under_a_pod_or_without_a_cordon() -> None:
    bench = Bench(a_work(gpus=1))
    bench.do(actions.SleepMachine(**MACHINE))
    assert bench.outcome == "Failed"
    bench.cluster.arrive(bench.case.works[0])
    bench.cluster.place()
    bench.do(actions.CordonNode(**NODE), actions.SleepMachine(**MACHINE))
    assert bench.outcome == "Failed"
    bench.wait(2 * HOUR)
    assert bench.power == "On"
    bench.do(actions.SleepMachine(**MACHINE))
    assert bench.outcome == "Accepted"
    bench.wait(MINUTE)
    assert bench.power == "Off"
    node = bench.cluster.node("worker-0")
    assert node is not None
    assert (node.ready, node.unschedulable) == (False, True)
    assert bench.cluster.log.done["SleepMachine", "/metal"] == 1


def test_a_machine_that_is_sent_to_sleep_while_it_boots_stays_dark() -> None:
    bench = Bench()
    bench.do(actions.CordonNode(**NODE), actions.SleepMachine(**MACHINE))
    bench.wait(MINUTE)
    bench.do(actions.WakeMachine(**MACHINE), actions.WakeMachine(**MACHINE))
    bench.wait(30 * SECOND)
    bench.do(actions.SleepMachine(**MACHINE))
    bench.wait(10 * MINUTE)
    node = bench.cluster.node("worker-0")
    assert node is not None
    assert not node.ready
    assert [bool(shift.end) for shift in bench.cluster.log.shifts] == [True, True]
    assert bench.cluster.log.done["WakeMachine", "/metal"] == 1, "the second one found it on"


def test_only_what_a_pool_cordoned_is_let_in_again_and_pods_with_gpus_are_never_drained() -> None:
    web = Owner("ReplicaSet", "web", "u")
    bench = Bench(a_work("web", hours=None, gpus=0, owner=web, shape=Shape()), a_work("train", gpus=1))
    for work in bench.case.works:
        bench.cluster.arrive(work)
    bench.cluster.place()
    bench.wait(5 * SECOND)
    bench.do(actions.DrainNode(**NODE), actions.UncordonNode(**NODE))
    assert bench.cluster.log.done.total() == 0
    bench.do(actions.CordonNode(**NODE), actions.DrainNode(**NODE))
    assert bench.cluster.log.done["DrainNode", "/metal"] == 0
    bench.wait(2 * HOUR)
    bench.do(actions.DrainNode(**NODE))
    bench.wait(MINUTE)
    [web_again] = [pod for pod in bench.cluster.pods if isinstance(pod, Pod)]
    assert (web_again.node, web_again.unschedulable_since is not None) == ("", False)
    bench.do(actions.UncordonNode(**NODE))
    bench.cluster.place()
    assert bench.cluster.pods.by_node["worker-0"]


# --- a trace ------------------------------------------------------------------------------------------------------------------------


def test_a_pool_over_all_machines_of_a_trace() -> None:
    heads = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
    )
    rows = [f"p{n},4000,1024,{1 + n % 8},1000,,LS,Running,{n * 900},{n * 900 + 1800},{n * 900}" for n in range(90)]
    nodes = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n-{n},96000,786432,8,A10\n" for n in range(6))
    pods = ("openb_pods.csv", "\n".join([heads, *rows]).encode())
    case = traces.read(pods, ("nodes.csv", nodes.encode()), None, traces.Naming())
    before, _ = played(case)
    after, log = played(case, a_pool(*(a_machine(f"n-{n}") for n in range(6))))
    assert after.total.gpu_hours == pytest.approx(before.total.gpu_hours, rel=0.01)
    assert after.total.never_started == 0
    assert after.machine_hours < 0.6 * before.machine_hours
    assert after.evictions == 0
    assert len(log.shifts) == 6 + after.wakes


# --- against the full simulator -----------------------------------------------------------------------------------------------------

BEGIN = moment("2026-01-01T00:00:00Z") or 0
JOBS = [(f"job-{number}", 1 + number * 23, (8, 4, 2)[number % 3], 12 + 17 * (number % 4)) for number in range(20)]
"""Name, minute of arrival, GPUs, minutes."""


def test_a_replay_switches_as_the_full_simulator_does() -> None:
    pool = full.a_pool(gpus=[4, 8, 8], idleSeconds=600, asked=True)
    timeline = [full.at(f"{at}m", full.a_job(name, gpus, f"{minutes}m")) for name, at, gpus, minutes in JOBS]
    base = [pool, *full.machines(pool, "On"), *full.nodes(pool)]
    run = full.play(base, timeline, duration="10h", pace=UNHURRIED)
    assert run.problems() == []

    case = Case(title="test", begin=BEGIN, end=BEGIN + 10 * HOUR)
    case.nodes = [
        structs.replace(a_node(each["name"], gpus=each["gpuCount"]), labels=(("metal", "yes"),))
        for each in pool["spec"]["machines"]
    ]
    for name, at, gpus, minutes in JOBS:
        shape = Shape(requests=((GPU, gpus * 10**6),), node_selector=(("metal", "yes"),))
        owner = owner_of("Job", "lab", name)
        arrives, length = BEGIN + at * MINUTE, minutes * MINUTE
        case.works.append(
            RequestedPod(name=name, namespace="lab", owner=owner, arrives=arrives, length=length, shape=shape)
        )
    found = documents.read([("pool", full.as_text(pool))])
    assert not found.problems
    log = replay(case, by_ref(found.resources), every=1000)

    quick = _spans(case, [(shift.machine, shift.begin, shift.end) for shift in log.shifts])
    real = _spans(case, _shifts(run))
    assert {name: len(spans) for name, spans in quick.items()} == {name: len(spans) for name, spans in real.items()}
    for name, spans in real.items():
        for (begin, end), (quick_begin, quick_end) in zip(spans, quick[name], strict=True):
            assert abs(begin - quick_begin) <= 15 * SECOND
            # The full simulator waits for a missing heartbeat, and looks every half a minute.
            assert abs(end - quick_end) <= 60 * SECOND
    hours = [sum(end - begin for spans in each.values() for begin, end in spans) / HOUR for each in (quick, real)]
    assert hours[0] == pytest.approx(hours[1], rel=0.01)


def _shifts(run: full.PowerRun) -> list[tuple[str, int, int | None]]:
    """From the command to wake to the end of shutting down, as the machines themselves had it."""
    found: list[tuple[str, int, int | None]] = []
    open_ = dict.fromkeys(run.states(), run.start)
    for told in run.told:
        if told.command == "Wake":
            open_[told.machine] = told.at
        else:
            found.append((told.machine, open_.pop(told.machine), told.at + 20 * SECOND))
    return found + [(name, begin, None) for name, begin in open_.items()]


def _spans(case: Case, shifts: list[tuple[str, int, int | None]]) -> dict[str, list[tuple[int, int]]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for name, begin, end in sorted(shifts):
        found.setdefault(name, []).append((begin, case.end if end is None else end))
    return found


def test_what_a_pool_has_counted_is_told_beside_the_energy_of_the_replay() -> None:
    """Both are called energy, and differ: one is what happened while the pool was watched, the other what a replay makes of the record."""
    pool = a_pool(*workers(1))
    energy = Energy(used_kwh="23.8", saved_kwh="4", as_of="2026-11-15T12:00:00Z")
    pool = structs.replace(pool, status=structs.replace(pool.status, energy=energy))
    case = recorded.read(load(save(a_used_world(pool, nodes=[a_node("worker-0")], now=NOON))), "test", days=None)
    [note] = [each for each in case.notes if "kWh" in each]
    assert "PowerPool/" in note
    assert "23.8 kWh used and 4.0 kWh saved up to 2026-11-15T12:00:00Z" in note
