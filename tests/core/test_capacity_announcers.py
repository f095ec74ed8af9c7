"""Pods that CronJobs will make: their machines are kept, or opened in time, and who announces in vain answers for it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api.budget_hold import BudgetHoldSpec
from headroom.api.kinds import AnyResource
from headroom.core import CAPACITY, power
from headroom.core.demand.announcing import LATE_MS, MOST_OF_NAMESPACE, Presence, job_of
from headroom.model import actions, conditions
from headroom.model.batch_facts import CronJob, Flavor, PriorityClass
from headroom.model.changes import Topic
from headroom.model.devices import DeviceTable
from headroom.model.facts import Hold, Node, NodePool, Owner, Shape, Workload, WorkloadPart
from headroom.model.times import HOUR, MINUTE, SECOND, text
from headroom.model.world import World
from tests.builders import NOON, a_pod
from tests.core.power_stage import (
    Stage,
    a_pool,
    a_round,
    a_view,
    decided,
    finished,
    off,
    on,
    running,
    status,
    told,
    waiting,
    wakes,
)
from tests.core.stage import a_budget
from tests.core.test_power_claims import GPU_CLASS
from tests.core.test_power_claims import template as claims

BOOT: dict[str, Any] = {"bootTimeoutSeconds": 300}
NIGHTLY = "CronJob/team-a/nightly"


def a_part(gpus: int = 8, count: int = 1, **fields: Any) -> WorkloadPart:
    shape = fields.pop("shape", Shape(requests=(("nvidia.com/gpu", gpus * 1_000_000),)))
    return WorkloadPart(**{"requests": shape.requests, "shape": shape, "count": count} | fields)


def cron(minutes: int = 4, name: str = "nightly", part: WorkloadPart | None = None, **fields: Any) -> CronJob:
    """A CronJob that runs every hour, so many minutes after noon."""
    base: dict[str, Any] = {"schedule": f"{minutes} * * * *", "created": NOON - 24 * HOUR, "namespace": "team-a"}
    return CronJob(uid=f"uid-{name}", name=name, part=part or a_part(), **base | fields)


def given(*each: Any) -> dict[str, Any]:
    """CronJobs, Workloads and others as a World has them."""
    crons, owners = ([it for it in each if isinstance(it, kind)] for kind in (CronJob, Workload))
    classes, flavors = ([it for it in each if isinstance(it, kind)] for kind in (PriorityClass, Flavor))
    return {
        "cron_jobs": {it.key: it for it in crons},
        "workloads": {it.key: it for it in owners},
        "priority_classes": {it.name: it for it in classes},
        "flavors": {it.name: it for it in flavors},
    }


def a_fleet(
    pool: AnyResource, *facts: Any, budgets: tuple[AnyResource, ...] = (), nodes: list[Node] | None = None, **more: Any
) -> World:
    nodes = [off(each.name, int(each.gpu_count)) for each in pool.spec.machines] if nodes is None else nodes
    return a_view(pool, *budgets, nodes=nodes, **given(*facts) | more)


def woken(pool: AnyResource, *facts: Any, **more: Any) -> list[str]:
    return wakes(decided(a_fleet(pool, *facts, **more))["one"])


def over_quota(budget: AnyResource) -> AnyResource:
    verdict = conditions.judged(budget, "QuotaExceeded", True, "QuotaReached", "Used up.", NOON)
    return structs.replace(budget, status=structs.replace(budget.status, conditions=(verdict,)))


ONE = a_pool(machines={"w1": 8}, **BOOT)


# --- CronJobs -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("minutes", "names"), [(1, ["w1"]), (4, ["w1"]), (5, ["w1"]), (6, []), (50, [])])
def test_a_machine_wakes_for_a_cron_job_that_is_due_within_the_boot_time(minutes: int, names: list[str]) -> None:
    assert woken(ONE, cron(minutes)) == names


def test_the_pool_looks_again_when_the_machine_of_a_cron_job_is_due() -> None:
    assert decided(a_fleet(ONE, cron(7)))["one"].next_turn_ms == 2 * MINUTE
    daily = cron(schedule="0 3 * * *")
    assert (decided(a_fleet(ONE, daily))["one"].next_turn_ms or 0) in range(1, 2 * HOUR)


def test_the_time_zone_counts() -> None:
    assert woken(ONE, cron(schedule="4 13 * * *", time_zone="Europe/Berlin")) == ["w1"]
    assert woken(ONE, cron(schedule="4 12 * * *", time_zone="Europe/Berlin")) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"suspended": True},
        {"is_alone": True, "active": (("nightly-1", "uid-1"),), "ran_at": NOON - HOUR},
        {"schedule": "4 * * *"},
        {"schedule": "TZ=UTC 4 * * * *"},
        {"schedule": "4 * 31 2 *"},
        {"time_zone": "Mars/Olympus"},
        {"time_zone": "../../etc/passwd"},
        {"part": a_part(count=0)},
        {"part": a_part(left=0)},
        {"part": a_part(is_gated=True)},
        {"part": a_part(gpus=0)},
        {"part": a_part(gpus=10_000)},
        {"part": a_part(priority_class="not-there")},
        {"part": WorkloadPart(requests=(("nvidia.com/gpu", 8_000_000),))},
        {"part": a_part(shape=Shape(requests=(("nvidia.com/gpu", 8_000_000),), scheduler="nobody"))},
    ],
)
def test_nothing_wakes_for_a_cron_job_that_makes_no_pods_that_fit(fields: dict[str, Any]) -> None:
    assert woken(ONE, cron(**fields)) == []


def test_what_kueue_queues_is_announced_by_kueue() -> None:
    assert woken(ONE, cron(queue="team"), kueue=True) == []
    assert woken(ONE, cron(queue="team"), kueue=False) == ["w1"]


def test_intervals_are_counted_from_the_last_run() -> None:
    assert woken(ONE, cron(schedule="@every 1h", ran_at=NOON - 58 * MINUTE)) == ["w1"]
    assert woken(ONE, cron(schedule="@every 1h", ran_at=NOON - 30 * MINUTE)) == []
    assert woken(ONE, cron(schedule="@every 1s", created=NOON - HOUR)) == ["w1"]


def test_a_run_that_is_late_counts_for_two_minutes_and_no_longer_than_its_deadline() -> None:
    assert woken(ONE, cron(0), now=NOON + MINUTE) == ["w1"]
    assert woken(ONE, cron(0), now=NOON + 3 * MINUTE) == []
    assert woken(ONE, cron(0, deadline=30 * SECOND), now=NOON + MINUTE) == []


def test_a_run_that_has_begun_is_announced_until_its_pods_are_there() -> None:
    begun = cron(0, part=a_part(gpus=4, count=2), ran_at=NOON, active=((job_of("nightly", NOON), "uid-job"),))
    pods = [waiting(f"p{number}", 4, owner=Owner("Job", job_of("nightly", NOON), "uid-job")) for number in range(2)]
    now = NOON + 10 * SECOND
    assert woken(ONE, begun, now=now) == ["w1"]
    assert a_round(a_fleet(ONE, begun, now=now, pods=pods[:1])).wanted.announced[0].count == 1
    assert a_round(a_fleet(ONE, begun, now=now, pods=pods)).wanted.announced == ()
    over = structs.replace(begun, active=())
    assert a_round(a_fleet(ONE, over, now=now)).wanted.announced == ()


@pytest.mark.parametrize("count", [1_000, 2**31])
def test_no_namespace_announces_more_than_so_many_pods(count: int) -> None:
    many = [cron(name=f"c{number}", part=a_part(1, count), schedule="* * * * *") for number in range(20)]
    other = cron(part=a_part(1, 3), namespace="team-b")
    found = a_round(a_fleet(ONE, *many, other)).wanted.announced
    by_space: dict[str, int] = {}
    for unit in found:
        for part in unit.parts:
            for name in part.names:
                space = name.partition("/")[0]
                by_space[space] = by_space.get(space, 0) + 1
    assert by_space == {"team-a": MOST_OF_NAMESPACE, "team-b": 3}
    assert len(found) < 10  # equal pods are served together


def test_pending_pods_come_before_announced_ones() -> None:
    world = a_fleet(ONE, cron(1, part=a_part(priority_class="high")), PriorityClass(name="high", value=1000))
    both = a_fleet(ONE, cron(1), pods=[waiting("q", 8)])
    assert (
        "WakingMachine",
        "w1 (8 GPUs) wakes for 1 announced pod (CronJob/team-a/nightly) that needs 8 GPUs.",
    ) in told(decided(world)["one"])
    assert ("WakingMachine", "w1 (8 GPUs) wakes for 1 pod that needs 8 GPUs.") in told(decided(both)["one"])
    assert status(decided(both)["one"]).unserved == ()


@pytest.mark.parametrize(
    ("classes", "floor", "names"),
    [
        ([], 0, ["w1"]),
        ([], 1, []),
        ([PriorityClass(name="all", value=5, is_default=True)], 1, ["w1"]),
        ([PriorityClass(name="low", value=-5)], -10, ["w1"]),
        ([PriorityClass(name="low", value=-5)], 0, ["w1"]),
    ],
)
def test_the_priority_floor_counts(classes: list[PriorityClass], floor: int, names: list[str]) -> None:
    pool = a_pool(machines={"w1": 8}, priorityFloor=floor, **BOOT)
    assert woken(pool, cron(), *classes) == names
    named = cron(part=a_part(priority_class="low"))
    low = [each for each in classes if each.name == "low"]
    assert woken(pool, named, *low) == (["w1"] if low and floor == -10 else [])


def test_a_budget_over_quota_announces_nothing_unless_the_pool_wakes_for_it() -> None:
    budget = over_quota(a_budget(hours="10"))
    part = a_part(labels=(("team", "a"),))
    assert woken(ONE, cron(part=part), budgets=(budget,)) == []
    idle = a_fleet(ONE, cron(part=part), budgets=(budget,), nodes=[on("w1")])
    assert a_round(idle).into == {}
    assert "announced" not in decided(idle)["one"].message
    willing = a_pool(machines={"w1": 8}, wakeForExhaustedBudgets=True, **BOOT)
    assert woken(willing, cron(part=part), budgets=(budget,)) == ["w1"]


@pytest.mark.parametrize("over", [False, True])
def test_an_idle_machine_is_kept_for_a_cron_job_but_not_for_a_budget_over_quota(over: bool) -> None:
    budgets = (over_quota(a_budget(hours="10")),) if over else ()
    pool = a_pool(machines={"w1": 8}, idleSeconds=60, minOnSeconds=0, **BOOT)
    stage = Stage(pool, *budgets, nodes=[on("w1")], **given(cron(4, part=a_part(labels=(("team", "a"),)))))
    stage.pass_time(3 * MINUTE, every=5 * SECOND)
    assert [words for _, words in stage.commands()] == (["sleep w1"] if over else [])


def test_it_is_said_for_whom_a_machine_is_kept() -> None:
    world = a_fleet(ONE, cron(), nodes=[on("w1")])
    assert power.holding(a_round(world), "w1") == (
        f"kept on for 1 announced pod (CronJob/team-a/nightly), until {text(NOON + HOUR)} at most",
    )
    assert "1 announced pod (CronJob/team-a/nightly) fits on w1" in decided(world)["one"].message


def test_each_pool_looks_as_far_ahead_as_its_own_boot_takes() -> None:
    """And none keeps what it would not open: else it would be drained and kept in turns."""
    slow = a_pool("slow", machines={"s1": 8}, order=2, bootTimeoutSeconds=1200)
    quick = a_pool("quick", machines={"q1": 8}, idleSeconds=60, minOnSeconds=0, bootTimeoutSeconds=60)
    stage = Stage(slow, quick, nodes=[on("q1"), off("s1")], **given(cron(15)))
    stage.pass_time(5 * MINUTE, every=5 * SECOND)
    assert [words for _, words in stage.commands()] == ["wake s1", "sleep q1"]
    assert sum(isinstance(each, actions.CordonNode) for _, each in stage.done) == 1


def test_devices_that_templates_claim_are_announced_where_a_pool_names_their_class() -> None:
    pool = a_pool(machines={"w1": 8}, deviceClasses=[GPU_CLASS], **BOOT)
    part = WorkloadPart(claim_templates=("gpus",), shape=Shape())
    devices = DeviceTable([], [claims(4)], [])
    assert woken(pool, cron(part=part), devices=devices) == ["w1"]
    assert woken(ONE, cron(part=part), devices=devices) == []


def test_what_a_hold_will_queue_is_not_announced() -> None:
    spec = BudgetHoldSpec(budget="team-a/one", namespaces=("team-a",), resources=("nvidia.com/gpu",))
    holds = {"one": Hold(name="one", spec=spec)}
    assert woken(ONE, cron(), holds=holds) == []
    assert woken(ONE, cron(namespace="team-b"), holds=holds) == ["w1"]


def test_who_is_not_seen_announces_nothing() -> None:
    assert woken(ONE, cron(), unseen={"cronjobs.batch": "forbidden"}) == []


def test_karpenters_share_is_left_to_it() -> None:
    node_pools = {"cloud": NodePool(name="cloud")}
    assert woken(ONE, cron(), node_pools=node_pools) == []
    assert woken(a_pool(machines={"w1": 8}, shareWithKarpenter=True, **BOOT), cron(), node_pools=node_pools) == ["w1"]


def test_the_plan_is_asked_again_when_something_is_announced() -> None:
    assert {Topic.BATCH, Topic.WORKLOADS} <= CAPACITY.wakes_on


# --- what becomes of it ---------------------------------------------------------------------------------------------------------


class Cluster(Stage):
    """A stage on which a CronJob makes its pods, or does not."""

    def __init__(self, pool: AnyResource, job: CronJob, *, comes: bool, nodes: list[Node]) -> None:
        super().__init__(pool, nodes=nodes, **given(job))
        self.comes, self.job, self.runs_for = comes, job, MINUTE

    def tick(self, ms: int) -> None:
        for _ in range(ms // (5 * SECOND)):
            if self.comes and self.now % HOUR == 10 * MINUTE:
                name = job_of(self.job.name, self.now)
                self.job = structs.replace(self.job, ran_at=self.now, active=((name, f"uid-{name}"),))
                pod = a_pod(name, gpus=8, owner=Owner("Job", name, f"uid-{name}"), created=self.now)
                self.pods[pod.uid] = pod
            for uid, pod in list(self.pods.items()):
                if pod.phase == "Running" and self.now - (pod.started or 0) >= self.runs_for:
                    self.end(uid)
                    self.job = structs.replace(self.job, active=())
            self.more = given(self.job)
            self.pass_time(5 * SECOND, every=5 * SECOND)


def test_the_machine_is_on_when_the_pods_of_a_cron_job_come() -> None:
    pool = a_pool(machines={"w1": 8, "w2": 8}, idleSeconds=60, minOnSeconds=0, **BOOT)
    cluster = Cluster(pool, cron(10), comes=True, nodes=[off("w1"), off("w2")])
    cluster.tick(10 * MINUTE)
    assert (cluster.state("w1"), cluster.commands()) == ("On", [(300, "wake w1")])
    cluster.tick(5 * SECOND)
    assert [pod.node for pod in cluster.pods.values()] == ["w1"]
    cluster.tick(9 * MINUTE)
    assert [words for _, words in cluster.commands()] == ["wake w1", "sleep w1"]
    assert cluster.pools[next(iter(cluster.pools))].status.fruitless == ()


def test_a_machine_stays_on_while_its_run_is_due_though_who_announced_it_is_not_seen() -> None:
    pool = a_pool(machines={"w1": 8}, idleSeconds=5, minOnSeconds=0, **BOOT)
    cluster = Cluster(pool, cron(10), comes=False, nodes=[off("w1")])
    cluster.tick(10 * MINUTE)
    assert cluster.state("w1") == "On"
    cluster.more = {}
    cluster.pass_time(MINUTE, every=5 * SECOND)
    assert [words for _, words in cluster.commands()] == ["wake w1"]
    cluster.pass_time(3 * MINUTE, every=5 * SECOND)
    assert [words for _, words in cluster.commands()] == ["wake w1", "sleep w1"]


def test_a_machine_stays_on_for_the_pods_of_its_run_before_their_scheduler_has_looked_at_them() -> None:
    pool = a_pool(machines={"w1": 8}, idleSeconds=5, minOnSeconds=0, **BOOT)
    cluster = Cluster(pool, cron(10), comes=False, nodes=[off("w1")])
    cluster.tick(10 * MINUTE)
    owner = Owner("Job", job_of("nightly", NOON + 10 * MINUTE), "uid-job")
    cluster.pods["uid-p"] = a_pod("p", gpus=8, owner=owner, created=NOON + 10 * MINUTE)
    cluster.more = given(cron(10, ran_at=NOON + 10 * MINUTE))
    for _ in range(12):
        cluster.now += 5 * SECOND
        cluster.look()
    assert cluster.state("w1") == "On"
    cluster.pods["uid-p"] = running("p", "w1", 8, owner=owner, created=NOON + 10 * MINUTE)
    cluster.pass_time(10 * SECOND, every=5 * SECOND)
    state = next(iter(cluster.pools.values())).status
    assert (state.fruitless, state.expected) == ((), ())


def test_a_cron_job_that_never_makes_pods_is_not_believed_for_long() -> None:
    pool = a_pool(machines={"w1": 8}, idleSeconds=60, minOnSeconds=0, togglesPerHour=60, minOffSeconds=0, **BOOT)
    cluster = Cluster(pool, cron(schedule="* * * * *"), comes=False, nodes=[on("w1")])
    for _ in range(30):
        cluster.tick(MINUTE)
    state = next(iter(cluster.pools.values())).status
    assert [each.namespace for each in state.fruitless] == ["team-a"]
    assert len(state.fruitless[0].at) >= 5
    assert [words for _, words in cluster.commands()] == ["sleep w1"]
    named = {each.type: each.reason for each in state.conditions if each.status == "True"}
    assert named["FruitlessWakes"] == "NamespacesBarred"


def test_who_withdraws_what_was_announced_answers_for_it_too() -> None:
    pool = a_pool(machines={"w1": 8}, idleSeconds=60, minOnSeconds=0, **BOOT)
    stage = Stage(pool, nodes=[on("w1")], **given(cron(4)))
    stage.pass_time(MINUTE, every=5 * SECOND)
    assert [each.of for each in next(iter(stage.pools.values())).status.expected] == [NIGHTLY]
    stage.more = given()
    stage.pass_time(7 * MINUTE, every=5 * SECOND)
    state = next(iter(stage.pools.values())).status
    assert [each.namespace for each in state.fruitless] == ["team-a"]
    assert state.expected == ()


def test_pods_that_came_elsewhere_came() -> None:
    pool = a_pool(machines={"w1": 8}, **BOOT)
    job = job_of("nightly", NOON + 4 * MINUTE)
    stage = Stage(pool, nodes=[on("w1"), on("other")], **given(cron(4)))
    stage.pods["uid-full"] = running("full", "other", 8)
    stage.pass_time(4 * MINUTE, every=5 * SECOND)
    assert next(iter(stage.pools.values())).status.expected
    stage.end("uid-full", gone=True)
    stage.pods["uid-p"] = running("p", "other", 8, owner=Owner("Job", job, "uid-job"), created=NOON + 4 * MINUTE)
    # It is over in a moment.
    stage.more = given(cron(4, ran_at=NOON + 4 * MINUTE))
    stage.pass_time(5 * SECOND, every=5 * SECOND)
    stage.end("uid-p", gone=True)
    stage.pass_time(LATE_MS, every=5 * SECOND)
    state = next(iter(stage.pools.values())).status
    assert (state.fruitless, state.expected) == ((), ())


@pytest.mark.parametrize(
    "fields", [{"gpus": 0}, {"gates": ("example.com/never",)}, {"created": NOON - HOUR}, {"namespace": "b"}]
)
def test_who_only_looks_like_the_pods_that_were_announced_is_none_of_them(fields: dict[str, Any]) -> None:
    job = job_of("nightly", NOON + MINUTE)
    owner = Owner("Job", job, "uid-job")
    given: dict[str, Any] = {"gpus": 8, "owner": owner, "created": NOON + MINUTE, "node": "other"}
    forged = a_pod("p", **given | fields)
    real = a_pod("p", gpus=8, owner=owner, created=NOON + MINUTE, node="other")
    come = [Presence(a_view(pods=[pod])).has_come(NIGHTLY, "", NOON + MINUTE) for pod in (forged, real)]
    assert come == [False, True]


def test_an_ended_pod_of_a_run_is_no_missing_pod() -> None:
    job = job_of("nightly", NOON)
    over = [finished("p", "w1", NOON + 5 * SECOND, 8, owner=Owner("Job", job, "uid-job"))]
    world = a_fleet(ONE, cron(0, ran_at=NOON, active=((job, "uid-job"),)), now=NOON + 10 * SECOND, pods=over)
    assert a_round(world).wanted.announced == ()
