"""Budgets that act, on a real control plane: what was not started waits, what runs goes by and by, and never more than is needed.

Steps stand for a minute and caps count by the minute, so all teams begin at once, and each test then looks at one of them.
"""

import re
from collections.abc import Iterator

import pytest

from headroom.api.marks import EXPECTED_DURATION, HELD_BECAUSE, HELD_BY, PROTECTED
from tests.control_plane import KubectlFailed
from tests.integration.accounts import HOUR, Operator, moment, next_second, now
from tests.integration.enforced import (
    RUNS_ON,
    STAYS,
    Cluster,
    Team,
    add_node,
    enforced_cluster,
    enforcing_operator,
    fill_ledger,
    is_gated,
    is_running,
    template,
    used,
    wait_for,
)

MINUTE = 60_000
KILLS = 2
"""So often the operator is killed here."""
GANG = "scheduling.x-k8s.io/pod-group"
TINY = "0.002"
"""GPU-hours that one GPU uses up within seconds."""
LEAVES_AFTER = 100_000
"""So long after the ledger was filled, the last of what it has of team `later` leaves the window."""
SLY = '{"spec": {"nodeName": "early", "containers": [{"name": "sly", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}'
BARE = {f"bare-{number:02d}" for number in range(20)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with enforced_cluster(tmp_path_factory.mktemp("audit")) as made:
        yield made


@pytest.fixture(scope="module")
def filled() -> int:
    """When the ledger was filled."""
    return now()


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory, filled: int) -> Iterator[Operator]:
    made = enforcing_operator(cluster.plane, tmp_path_factory.mktemp("enforced"))
    rows = [
        used(cluster.plane, "one", 10, filled - 2 * HOUR, filled),
        used(cluster.plane, "later", 100, filled - 2 * HOUR, filled - HOUR + LEAVES_AFTER),
    ]
    fill_ledger(made, rows)
    made.start()
    yield made
    made.close()


# --- the teams --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def one(cluster: Cluster) -> Team:
    """Ten pods that use what leaves the window, and a little too much of it: one of them must go."""
    team = cluster.team("one")
    for number in range(10):
        team.pod(f"p-{number}")
    wait_for(lambda: len(team.names(is_running)) == 10, "ten pods run")
    team.limit("100", "AlertOnly")
    wait_for(lambda: team.status().get("burnRateGpus") == "10", "all ten are counted")
    level = float(team.settled(since=now())["consumedGpuHours"])
    team.change("team", quota={"gpuHours": f"{level - 0.005:.6f}"}, enforcement={"action": "Evict"})
    team.change("team", enforcement={"gracePeriodSeconds": 0, "recoverWithin": "6m"})
    return team


@pytest.fixture(scope="module")
def blocked(cluster: Cluster) -> Team:
    """Two pods, of which the younger must not be disturbed."""
    team = cluster.team("blocked")
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"must": "stay"}}}
    team.send("PodDisruptionBudget", "stay", budget)
    team.pod("older")
    wait_for(lambda: team.names(is_running) == {"older"}, "the older one runs")
    next_second()
    team.pod("younger", labels={"must": "stay"})
    wait_for(
        lambda: team.get("PodDisruptionBudget", "stay").get("status", {}).get("currentHealthy") == 1,
        "the disruption budget knows the younger one",
    )
    team.limit(TINY, "Evict")
    return team


@pytest.fixture(scope="module")
def refused(blocked: Team) -> None:
    """While the younger one would not go, that is said."""
    words = "evicting pod blocked/younger: its PodDisruptionBudget allows no eviction now"
    wait_for(lambda: blocked.message("Degraded").startswith(words), "it is said what does not work")


@pytest.fixture(scope="module")
def gangs(cluster: Cluster) -> Team:
    """Two gangs of eight, one with a protected rank, and a protected pod of its own."""
    team = cluster.team("gangs")
    protected = {PROTECTED: "true"}
    for number in range(8):
        team.pod(f"free-{number}", labels={GANG: "free"})
        team.pod(f"tied-{number}", labels={GANG: "tied"}, annotations=protected if number == 5 else {})
    team.pod("alone", annotations=protected)
    wait_for(lambda: len(team.names(is_running)) == 17, "all run")
    team.limit(TINY, "Evict")
    return team


@pytest.fixture(scope="module")
def retried(cluster: Cluster) -> Team:
    """A Job that makes its pod anew for ever."""
    team = cluster.team("retried")
    team.job("forever", 1, template(annotations=RUNS_ON), backoffLimit=1000)
    team.limit(TINY, "Evict")
    return team


@pytest.fixture(scope="module")
def later(cluster: Cluster) -> Team:
    """Used too much an hour ago; two pods of half an hour wait for that to leave the window."""
    team = cluster.team("later")
    team.limit("0.6", "Hold")
    wait_for(lambda: team.is_so("Holding"), "the hold stands")
    for name in ("first", "second"):
        team.pod(name, annotations={EXPECTED_DURATION: "30m"})
    return team


def starts(later: Team) -> dict[str, int]:
    """When those that wait may start, by the budget's status."""
    queue = later.status().get("held", {}).get("queue", [])
    return {each["unit"]: moment(each["startsAt"]) for each in queue if each.get("startsAt")}


@pytest.fixture(scope="module")
def promised(later: Team) -> int:
    """The start that the first of the two was promised."""
    wait_for(lambda: "Pod/later/first" in starts(later), "the first has a start")
    return starts(later)["Pod/later/first"]


@pytest.fixture(scope="module")
def pending(cluster: Cluster) -> Team:
    """500 pods for which there is no machine."""
    team = cluster.team("pending")
    for number in range(2):
        team.replicas("Deployment", f"deployment-{number}", 50, template(pool="late"))
    team.replicas("ReplicaSet", "replicas", 60, template(pool="late"))
    for number in range(16):
        team.job(f"job-{number:02d}", 20, template(pool="late"))
    for name in sorted(BARE):
        team.pod(name, pool="late")
    return team


@pytest.fixture(scope="module")
def ten(cluster: Cluster, operator: Operator) -> Team:
    """Ten pods that started together, with nothing that leaves the window; they stay when they are evicted.

    The operator is killed in the middle of it.
    """
    team = cluster.team("ten")
    for number in range(10):
        team.pod(f"p-{number}", finalizers=STAYS)
    wait_for(lambda: len(team.names(is_running)) == 10, "ten pods run")
    team.limit(TINY, "Evict", evictionsPerMinute=6)
    wait_for(lambda: len(team.evicted()) >= 3, "three are evicted")
    operator.kill()
    assert len(team.evicted()) < 10
    operator.start()
    return team


@pytest.fixture(scope="module", autouse=True)
def all_at_once(request: pytest.FixtureRequest, operator: Operator) -> None:
    """Every team begins."""
    for each in ("promised", "blocked", "retried", "one", "gangs", "pending", "ten", "refused"):
        request.getfixturevalue(each)


# --- hold -------------------------------------------------------------------------------------------------------------------------


def is_held(pending: Team) -> bool:
    """All that somebody owns waits: pods of ReplicaSets behind the gate, Jobs suspended and without pods."""
    pods = pending.pods()
    jobs = pending.api.items(pending.path("Job"))
    gated = [each for each in pods if is_gated(each)]
    return len(gated) == 160 and len(pods) == 160 + len(BARE) + 1 and all(each["spec"]["suspend"] for each in jobs)


@pytest.fixture(scope="module")
def crowd(pending: Team) -> Team:
    """The 500, held when the quota ran out; then machines came for them."""
    wait_for(lambda: len(pending.pods()) == 500, "all 500 are there")
    assert pending.audit.bound("pending") == set()
    pending.pod("burner")
    pending.limit(TINY, "Hold")
    wait_for(lambda: is_held(pending), "all that can be held is held")
    words = "since queueing them could harm them: pending/bare-00, pending/bare-01, pending/bare-02 and 17 more."
    wait_for(lambda: words in pending.message("Holding"), "it is said who cannot be held")
    add_node(pending.plane, "late")
    return pending


def started(crowd: Team) -> set[str]:
    """The pods that ever had a chance to start."""
    return crowd.audit.bound("pending") - {"burner"}


def test_of_500_pods_pending_when_the_quota_runs_out_none_starts_that_somebody_would_make_anew(crowd: Team) -> None:
    """Those that nobody owns cannot be given a gate any more and would be lost if deleted, so they start, and it is said."""
    wait_for(lambda: crowd.names(is_running) == {*BARE, "burner"}, "the bare ones run")
    assert started(crowd) == BARE
    crowd.replicas("ReplicaSet", "new", 5, template(pool="late"))
    crowd.pod("new-bare", pool="late")
    wait_for(lambda: len(crowd.names(is_gated, "new")) == 6, "new ones wait")
    wait_for(lambda: crowd.status()["held"]["pods"] == 166, "all are counted")
    notes = crowd.get("Pod", "new-bare")["metadata"]["annotations"]
    assert notes[HELD_BY] == "pending/team"
    assert "of 0.002 GPU-hours in the last 1h" in notes[HELD_BECAUSE]
    assert started(crowd) == BARE


@pytest.mark.parametrize(
    "change",
    [
        ("patch", "pod/new-bare", "--type=json", "-p", '[{"op": "remove", "path": "/spec/schedulingGates"}]'),
        ("annotate", "pod/new-bare", f"{PROTECTED}=true"),
        ("label", "pod/new-bare", "team=b", "--overwrite"),
        ("run", "sly", "--image=none", "--labels=team=a", "--overrides", SLY),
    ],
    ids=["gate", "protect", "relabel", "node"],
)
def test_an_editor_finds_no_way_round(crowd: Team, change: tuple[str, ...]) -> None:
    with pytest.raises(KubectlFailed, match=r"budget|releas"):
        crowd.plane.kubectl(*change, "--namespace=pending", user="editor")
    assert is_gated(crowd.get("Pod", "new-bare"))


def test_while_no_operator_lives_held_pods_stay_held_and_others_start_as_ever(crowd: Team, operator: Operator) -> None:
    operator.kill()
    try:
        crowd.plane.kubectl("delete", "pod", "--namespace=pending", "--selector=app=new", user="editor")
        crowd.pod("late-bare", pool="late")
        crowd.pod("other-team", pool="late", labels={"team": "b"})
        wait_for(lambda: "other-team" in crowd.names(is_running), "the pod of another team runs")
        wait_for(lambda: len(crowd.names(is_gated, "new-")) == 6, "those that were deleted are back")
        assert is_gated(crowd.get("Pod", "late-bare"))
        assert started(crowd) == {*BARE, "other-team"}
        assert len(crowd.names(is_gated)) == 167
    finally:
        operator.start()


def test_once_there_is_room_all_start_the_oldest_first_and_the_hold_ends(crowd: Team) -> None:
    for name in ("deployment-0", "deployment-1"):
        crowd.plane.kubectl("delete", "deployment", name, "--namespace=pending", user="editor")
    for number in range(2, 16):
        crowd.plane.kubectl("delete", "job", f"job-{number:02d}", "--namespace=pending", user="editor")
    wait_for(lambda: len(crowd.names(is_gated)) == 67, "those that were given up are gone")
    begun = now()
    created = {each["metadata"]["name"]: each["metadata"]["creationTimestamp"] for each in crowd.pods()}
    waiting = crowd.names(is_gated)
    crowd.raise_quota()

    def is_over() -> bool:
        jobs = crowd.api.items(crowd.path("Job"))
        return waiting <= crowd.names(is_running) and all(each["status"].get("succeeded") == 20 for each in jobs)

    wait_for(is_over, "all have started")
    wait_for(lambda: crowd.holds() == [], "the hold is gone")
    released = [each for each in crowd.audit.requests("pending", "pods", "patch") if each.name in waiting]
    assert [each.name for each in released if each.at < begun] == []
    order = [created[each.name] for each in released]
    assert len(order) == len(waiting)
    assert order == sorted(order)
    crowd.pod("after", pool="late")
    assert not is_gated(crowd.get("Pod", "after"))


# --- release ----------------------------------------------------------------------------------------------------------------------


def test_pods_start_when_the_forecast_said_and_not_before(later: Team, promised: int, filled: int) -> None:
    """What 100 GPUs used leaves the window; below 0.6 GPU-hours there is room for the half hour of one pod, and of no second."""
    due = filled + LEAVES_AFTER - round(0.6 * HOUR / 100)
    assert abs(promised - due) <= 1
    wait_for(lambda: later.names(is_running) == {"first"}, "the first runs")
    [release] = later.audit.requests("later", "pods", "patch")
    assert (release.name, release.at >= promised) == ("first", True)
    assert is_gated(later.get("Pod", "second"))
    wait_for(lambda: starts(later).get("Pod/later/second", 0) > release.at + HOUR / 2, "the second waits for the first")
    for name in ("first", "second"):
        assert later.get("Pod", name)["spec"]["activeDeadlineSeconds"] == 1800


# --- evict ------------------------------------------------------------------------------------------------------------------------


def test_ten_that_nothing_less_can_help_all_go_once_and_never_too_many_in_a_minute(ten: Team) -> None:
    """Though the operator was killed in the middle."""
    wait_for(lambda: len(ten.evicted()) >= 10, "all are evicted")
    stopped = [(f"Pod/ten/p-{number}", "Stopped") for number in range(10)]
    wait_for(
        lambda: sorted((each["unit"], each["outcome"]) for each in ten.status()["stopped"]) == stopped, "all are told"
    )
    assert sorted(ten.evicted()) == [f"p-{number}" for number in range(10)]
    at = [each.at for each in ten.audit.requests("ten", "pods/eviction")]
    shown = ten.plane.kubectl("describe", "pod", "p-0", "--namespace=ten")
    assert "Evicted " in shown
    assert re.search(r"GPUWorkloadBudget ten/team: Over quota: 0\.\d+ of 0.002 GPU-hours in the last 1h", shown)
    assert "Evicting Pod/ten/p-0." in ten.plane.kubectl("describe", "gwb", "team", "--namespace=ten")
    # They are counted from when they were chosen, and it takes a moment from there to the API server.
    assert all(later - early > MINUTE - 5000 for early, later in zip(at, at[6:], strict=False))


def test_of_ten_where_one_is_enough_one_goes_and_usage_falls(one: Team) -> None:
    wait_for(lambda: one.is_so("QuotaExceeded", status="False"), "usage has fallen below the quota")
    [gone] = one.audit.requests("one", "pods/eviction")
    wait_for(lambda: now() > gone.at + MINUTE, "a minute has passed")
    assert one.evicted() == [gone.name]
    assert len(one.names(is_running)) == 9


def test_a_gang_goes_as_one_but_for_a_protected_pod(gangs: Team) -> None:
    """A mark that somebody put on one pod shields that pod alone."""
    wait_for(lambda: gangs.is_so("EnforcementBlocked", "NothingToStop"), "all went that may go")
    tied = [f"tied-{number}" for number in range(8) if number != 5]
    assert sorted(gangs.evicted()) == [*(f"free-{number}" for number in range(8)), *tied]
    assert sorted(each["unit"] for each in gangs.status()["stopped"]) == ["PodGroup/gangs/free", "PodGroup/gangs/tied"]
    assert gangs.names(is_running) == {"alone", "tied-5"}


def test_a_job_that_is_retried_for_ever_is_evicted_three_times(retried: Team) -> None:
    wait_for(lambda: retried.is_so("EnforcementBlocked", "EvictionLoop"), "it is given up")
    assert "Job/retried/forever" in retried.message("EnforcementBlocked")
    assert {each["owner"]: each["count"] for each in retried.status()["evictions"]} == {"Job/retried/forever": 3}
    # The operator is killed twice meanwhile: of one that goes while nobody looks, nobody can say whether it was evicted.
    assert len(set(retried.evicted())) == len(retried.evicted()) <= 3 + KILLS
    wait_for(lambda: len(retried.names(is_running)) == 1, "it runs on")


def test_what_must_not_be_disturbed_is_not_deleted_and_the_next_one_goes(blocked: Team) -> None:
    wait_for(lambda: blocked.names(is_running) == {"younger"}, "the next one was taken")
    assert blocked.evicted() == ["older"]
    assert blocked.is_so("EnforcementBlocked", "EvictionBlocked")
    assert "Pod/blocked/younger" in blocked.message("EnforcementBlocked")
