"""What budgets did is undone, on a real control plane: once there is room, once the budget is gone, and by `headroom uninstall`.

Three teams have the same done to them at once, since steps stand for a minute: pods are paused, a Job and a JobSet suspended, new pods
held, and a Workload of Kueue set inactive. A fourth one is being evicted when everything is stopped.
"""

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from headroom.api import marks
from headroom.api.policies import USAGE_FINALIZER, policies
from tests.integration import enforced
from tests.integration.accounts import Document, Operator
from tests.integration.enforced import (
    HOLDS,
    RUNS_ON,
    STAYS,
    Cluster,
    Team,
    at_once,
    enforced_cluster,
    enforcing_operator,
    is_gated,
    is_running,
    last_hour,
    template,
    wait_for,
)
from tests.integration.test_cli_live import headroom

TINY = "0.002"
QUEUE_GATE = "kueue.x-k8s.io/admission"
JOBSET = "jobset.sigs.k8s.io/jobset-name"
STEPS = ("pause", "suspend", "hold")
SOON = {"releaseHorizon": "5s"}
"""So long an owner that was let go is remembered as such."""
KEPT = {"waits": [USAGE_FINALIZER], "kueues": [USAGE_FINALIZER]}
"""What pods keep for as long as they live and an exact budget counts them: what lets their end be written down."""


def kind_of(plural: str, kind: str, group: str, version: str) -> Document:
    """The definition of a kind with whatever fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [served]}
    metadata = {"name": f"{plural}.{group}"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    kinds = (
        kind_of("jobsets", "JobSet", "jobset.x-k8s.io", "v1alpha2"),
        kind_of("workloads", "Workload", "kueue.x-k8s.io", "v1beta1"),
    )
    with enforced_cluster(tmp_path_factory.mktemp("audit"), *kinds) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    made = enforcing_operator(cluster.plane, tmp_path_factory.mktemp("enforced"))
    made.start()
    yield made
    made.close()


# --- the teams --------------------------------------------------------------------------------------------------------------------


def of_step(step: str, **metadata: Any) -> Document:
    """A pod that only the budget of that step counts."""
    labels = {"step": step} | metadata.pop("labels", {})
    return {"labels": labels, **metadata}


def begun(team: Team) -> Team:
    """Everything runs, and the quotas are used up in a moment."""
    for number in range(3):
        team.pod(f"pause-{number}", **of_step("pause"))
    team.job("train", 2, template(**of_step("suspend", annotations=RUNS_ON)))
    ranks = {"parallelism": 1, "completions": 1, "template": template(**of_step("suspend"))}
    made = team.send(
        "JobSet", "set", {"replicatedJobs": [{"name": "ranks", "replicas": 1, "template": {"spec": ranks}}]}
    )
    owner = {name: made[name] for name in ("apiVersion", "kind")} | {"name": "set", "uid": made["metadata"]["uid"]}
    rank = template(**of_step("suspend", labels={JOBSET: "set"}, annotations=RUNS_ON))
    rank["spec"]["restartPolicy"] = "Never"
    job = {"parallelism": 1, "completions": 1, "template": rank}
    team.send("Job", "set-ranks-0", job, ownerReferences=[owner | {"controller": True}])
    team.pod("burner", **of_step("hold"))
    made = template(**of_step("hold"))
    team.send("Workload", "queued", {"active": True, "podSets": [{"name": "main", "count": 1, "template": made}]})
    wait_for(lambda: len(team.names(is_running)) == 7, "all run")
    for step in STEPS:
        spec = {"quota": last_hour(TINY), "enforcement": at_once(step.capitalize(), **SOON)}
        team.budget(step, {"team": "a", "step": step}, accounting="Exact" if step == "hold" else "BestEffort", **spec)
    return team


def held(team: Team) -> Team:
    """New pods are queued."""
    wait_for(lambda: team.is_so("Holding", name="hold"), "the hold stands")
    team.pod("waits", **of_step("hold"))
    made = template(**of_step("hold"))["spec"] | {"schedulingGates": [{"name": QUEUE_GATE}]}
    team.send("Pod", "kueues", made, **template(**of_step("hold"))["metadata"])
    return team


def is_suspended(team: Team, kind: str, name: str) -> bool:
    """Whether it is, and by whom."""
    found = team.get(kind, name)
    by = found["metadata"].get("annotations", {}).get(marks.SUSPENDED_BY, "")
    return bool(by) and (
        found["spec"]["active"] is False if kind == "Workload" else found["spec"].get("suspend", False)
    )


def is_done(team: Team) -> bool:
    """Everything was done to it."""
    paused = team.names(lambda pod: marks.PAUSED_BY in pod["metadata"].get("annotations", {}))
    return (
        paused == {"pause-0", "pause-1", "pause-2"}
        and is_suspended(team, "Job", "train")
        and is_suspended(team, "JobSet", "set")
        and is_suspended(team, "Workload", "queued")
        and team.names(is_running, "train") == set()
    )


def play_jobsets(team: Team) -> None:
    """What its controller does once a JobSet is suspended."""
    wait_for(lambda: is_suspended(team, "JobSet", "set"), "the JobSet is suspended")
    team.plane.kubectl("delete", "job", "set-ranks-0", f"--namespace={team.namespace}")


@pytest.fixture(scope="module", autouse=True)
def teams(cluster: Cluster, operator: Operator) -> dict[str, Team]:
    """Every team begins, and everything is done to it."""
    found = {name: begun(cluster.team(name)) for name in ("raised", "deleted", "left")}
    for team in found.values():
        held(team)
        play_jobsets(team)
    for team in found.values():
        wait_for(partial(is_done, team), f"all is done to {team.namespace}")
        assert is_gated(team.get("Pod", "waits"))
    return found


def remains(team: Team) -> dict[str, list[str]]:
    """Everything of ours on objects of a team, by their names; owners that are still suspended too."""
    kinds = ("Pod", "Job", "JobSet", "Workload")
    found = {
        each["metadata"]["name"]: enforced.marks(each) for kind in kinds for each in team.api.items(team.path(kind))
    }
    for kind, name in (("Job", "train"), ("JobSet", "set"), ("Workload", "queued")):
        spec = team.get(kind, name)["spec"]
        if spec.get("suspend") or spec.get("active") is False:
            found[name] = [*found[name], "suspended"]
    return {name: each for name, each in found.items() if each}


# --- while it is done -------------------------------------------------------------------------------------------------------------


def test_pods_under_kueue_wait_like_all_others(teams: dict[str, Team]) -> None:
    for team in teams.values():
        gates = [each["name"] for each in team.get("Pod", "kueues")["spec"]["schedulingGates"]]
        assert gates == [QUEUE_GATE, marks.GATE]


def test_pods_owners_and_budgets_say_why_with_numbers(teams: dict[str, Team]) -> None:
    left = teams["left"]
    for kind, name, reason, step in (
        ("pod", "pause-1", "Paused", "pause"),
        ("job", "train", "Suspended", "suspend"),
        ("workload.kueue.x-k8s.io", "queued", "Suspended", "hold"),
    ):
        shown = left.plane.kubectl("describe", kind, name, "--namespace=left")
        assert f"{reason} " in shown
        assert f"GPUWorkloadBudget left/{step}: Over quota: 0.00" in shown
        assert "of 0.002 GPU-hours in the last 1h" in shown
    shown = left.plane.kubectl("describe", "gwb", "suspend", "--namespace=left")
    assert "Suspending Job/left/train." in shown
    assert "of 0.002 GPU-hours in the last 1h" in shown


def told(team: Team, what: str) -> str:
    """What `headroom explain` says of it."""
    return headroom("explain", what, "--kubeconfig", team.plane.kubeconfig()).stdout


def test_explain_names_the_budget_and_the_numbers(teams: dict[str, Team]) -> None:
    left = teams["left"]
    for what, step in (("pod/left/waits", "hold"), ("pod/left/pause-0", "pause"), ("job/left/train", "suspend")):
        said = told(left, what)
        assert f"left/{step}" in said
        assert "of 0.002 GPU-hours" in said


def test_stop_ends_every_effect_and_resume_lets_them_go_on(cluster: Cluster, teams: dict[str, Team]) -> None:
    """Holds go, since nobody would release pods; those that wait already go on waiting."""
    team = cluster.team("stopped")
    names = {f"p-{number}" for number in range(40)}
    for name in names:
        team.pod(name, finalizers=STAYS)
    wait_for(lambda: team.names(is_running) == names, "forty pods run")
    team.limit(TINY, "Evict", evictionsPerMinute=600, **SOON)
    wait_for(lambda: len(team.evicted()) >= 2, "two are evicted")
    headroom("stop", "--kubeconfig", team.plane.kubeconfig())
    gone = team.evicted()
    assert len(gone) < 40
    assert team.api.items(HOLDS) == []
    wait_for(lambda: team.is_so("Ready", "Stopped"), "the budget says so")
    left = teams["left"]
    left.pod("lucky", **of_step("hold"))
    wait_for(lambda: "lucky" in left.names(is_running), "new pods start")
    assert is_gated(left.get("Pod", "waits"))
    assert team.evicted() == gone

    headroom("resume", "--kubeconfig", team.plane.kubeconfig())
    wait_for(lambda: len(team.evicted()) > len(gone), "it goes on")
    team.raise_quota()
    assert len(set(team.evicted())) == len(team.evicted())
    wait_for(lambda: left.holds() == ["left/hold"], "new pods wait again")


def test_release_lets_one_pod_start_for_those_who_may(teams: dict[str, Team]) -> None:
    left = teams["left"]
    left.pod("urgent", **of_step("hold"))
    assert is_gated(left.get("Pod", "urgent"))
    refused = headroom("release", "pod/left/urgent", "--kubeconfig", left.plane.kubeconfig("editor"), code=2)
    assert "headroom-releaser" in refused.stderr
    assert is_gated(left.get("Pod", "urgent"))
    headroom("release", "pod/left/urgent", "--kubeconfig", left.plane.kubeconfig("releaser"))
    wait_for(lambda: "urgent" in left.names(is_running), "it runs")
    assert is_gated(left.get("Pod", "waits"))


# --- undone -----------------------------------------------------------------------------------------------------------------------


def state(team: Team) -> tuple[set[str], dict[str, list[str]], list[str]]:
    """What runs, what is left of ours on the team's objects, and whether new pods wait."""
    if team.get("Workload", "queued")["spec"]["active"]:
        admitted = {"status": {"conditions": [{"type": "Admitted", "status": "True"}]}}  # as Kueue does in its own time
        team.api.send("PATCH", team.path("Workload", "queued"), admitted, "merge")
    return {name.partition("-")[0] for name in team.names(is_running)}, remains(team), team.holds()


def assert_undone(team: Team, kept: dict[str, list[str]]) -> None:
    """Nothing else of ours is left, new pods start, and everything runs again."""
    undone: tuple[set[str], dict[str, list[str]], list[str]] = ({"pause", "train", "burner", "waits"}, kept, [])
    with contextlib.suppress(TimeoutError):  # what is not so is shown by the comparison
        wait_for(lambda: state(team) == undone, "all is undone")
    assert state(team) == undone


def test_once_the_budgets_are_gone_everything_is_undone(teams: dict[str, Team]) -> None:
    team = teams["deleted"]
    for step in STEPS:
        team.drop(step)
    assert_undone(team, {})
    team.delete("kueues")
    wait_for(lambda: "kueues" not in team.there(), "nobody keeps a pod that no budget counts")


def test_once_there_is_room_everything_is_undone(teams: dict[str, Team]) -> None:
    team = teams["raised"]
    for step in STEPS:
        team.raise_quota(step)
    assert_undone(team, KEPT)
    for reason, name, step in (
        ("Resumed", "pause-1", "pause"),
        ("Released", "waits", "hold"),
        ("Resumed", "train", "suspend"),
    ):
        begin = f"GPUWorkloadBudget raised/{step}: Within quota: 0.0"
        said = [each for each in team.told(name, reason) if each.startswith(begin)]
        assert ["of 100000 GPU-hours in the last 1h" in each for each in said] == [True]


def test_uninstall_leaves_nothing_behind(cluster: Cluster, teams: dict[str, Team], operator: Operator) -> None:
    team = teams["left"]
    operator.stop()
    assert remains(team)
    headroom("uninstall", "--yes", "--kubeconfig", cluster.plane.kubeconfig())
    for each in teams.values():
        assert remains(each) == {}
    assert cluster.api.items(HOLDS) == []
    kinds = ",".join({each["kind"] for each in policies()})
    assert "headroom" not in cluster.plane.kubectl("get", kinds, "-o", "name")
    team.pod("after", **of_step("hold"))
    wait_for(
        lambda: {"waits", "after", "train"} <= {name.partition("-")[0] for name in team.names(is_running)}, "all run"
    )
