"""`headroom release`, and what `headroom stop` does to holds: on a simulated cluster, and for what was written wrongly."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.adapters.kube import paths
from headroom.adapters.kube.client import Kube
from headroom.cli import kill_switch
from headroom.cli.release import Target, _refuse_others, _target, release_one
from headroom.model import actions
from headroom.model.errors import Misconfigured, Refused
from headroom.sim import faults as wrong
from headroom.sim.rights import Right
from tests.adapters import owners
from tests.adapters.doing import do, told
from tests.adapters.simulated import Cluster, virtual
from tests.cli.conftest import Headroom

GATE = {"name": "headroom.dev/budget"}
THEIRS = {"name": "example.com/theirs"}
POD = Target("Pod", "team-a", "train-0")


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("pod/lab/x", Target("Pod", "lab", "x")),
        ("lab/x", Target("Pod", "lab", "x")),
        ("Pods/lab/x", Target("Pod", "lab", "x")),
        ("job/lab/x", Target("Job", "lab", "x")),
        ("jobset/lab/x", Target("JobSet", "lab", "x")),
        ("workload/lab/x", Target("Workload", "lab", "x")),
    ],
)
def test_what_may_be_named(text: str, target: Target) -> None:
    assert _target(text) == target


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("x", "reading 'x': must be written NAMESPACE/NAME or KIND/NAMESPACE/NAME"),
        ("pod//x", "reading 'pod//x': must be written NAMESPACE/NAME or KIND/NAMESPACE/NAME"),
        ("a/b/c/d", "reading 'a/b/c/d': must be written NAMESPACE/NAME or KIND/NAMESPACE/NAME"),
        ("jobst/lab/x", "reading 'jobst/lab/x': 'jobst' can be no pod, job, jobset or workload (did you mean jobset"),
    ],
)
def test_what_is_written_wrongly_is_one_sentence_before_anything_is_done(
    headroom: Headroom, text: str, says: str
) -> None:
    done = headroom("release", "lab/first", text, "--kubeconfig", "none")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"headroom: {says}")
    assert done.err.count("\n") == 1


@virtual
async def test_the_gate_of_a_pod_is_lifted_and_no_other() -> None:
    cluster = Cluster()
    cluster.pod(spec={"schedulingGates": [THEIRS, GATE]})
    said = await release_one(cluster.kube, POD)
    assert said == "Released pod/team-a/train-0; it still waits for example.com/theirs."
    stored = cluster.stored("Pod", "team-a", "train-0")
    assert stored["spec"]["schedulingGates"] == [THEIRS]
    assert stored["metadata"]["annotations"] == {"headroom.dev/released-at": "2026-11-15T12:00:00Z"}
    with pytest.raises(Refused, match=r"it is not held by Headroom; it waits for example\.com/theirs"):
        await release_one(cluster.kube, POD)


@virtual
async def test_a_pod_that_is_not_held_or_not_there() -> None:
    cluster = Cluster()
    cluster.pod()
    with pytest.raises(Refused, match=r"^releasing pod/team-a/train-0: it is not held by Headroom$"):
        await release_one(cluster.kube, POD)
    with pytest.raises(Misconfigured) as caught:
        await release_one(cluster.kube, Target("Pod", "team-a", "train0"))
    assert str(caught.value) == (
        "releasing pod/team-a/train0: there is none (did you mean pod/team-a/train-0?); "
        "`kubectl get pods -n team-a` lists them"
    )
    with pytest.raises(Misconfigured, match=r"^releasing job/team-z/x: there is none; `kubectl get jobs -n team-z`"):
        await release_one(cluster.kube, Target("Job", "team-z", "x"))
    with pytest.raises(Misconfigured, match=r"^releasing jobset/team-a/x: there is none; "):
        await release_one(cluster.kube, Target("JobSet", "team-a", "x"))


@pytest.mark.parametrize("kind", ["Job", "JobSet", "Workload"])
@virtual
async def test_what_headroom_suspended_goes_on(kind: str) -> None:
    cluster = Cluster()
    for each in owners.definitions():
        cluster.server.put(each)
    cluster.server.put(owners.owner(kind))
    target = Target(kind, "team-a", "train")
    with pytest.raises(Refused, match="Headroom has not suspended it"):
        await release_one(cluster.kube, target)
    await do(cluster, actions.SuspendOwner(kind=kind, object="team-a/train"))
    assert await release_one(cluster.kube, target) == f"Resumed {kind.lower()}/team-a/train."
    stored = cluster.stored(kind, "team-a", "train")
    assert not stored["spec"].get("suspend")
    assert stored["spec"].get("active") is not False
    marks = {"released-at": "2026-11-15T12:00:00Z", "released-generation": str(stored["metadata"]["generation"])}
    assert stored["metadata"]["annotations"] == {f"headroom.dev/{key}": value for key, value in marks.items()}
    assert stored["metadata"]["labels"]["headroom.dev/suspended"] == "released"
    with pytest.raises(Refused, match="Headroom has not suspended it"):
        await release_one(cluster.kube, target)
    assert [each[2] for each in told(cluster)] == ["Suspended"]


def user(cluster: Cluster, *rights: Right) -> Kube:
    return Kube(cluster.server.transport("tenant", rights=rights), cluster.clock)


@virtual
async def test_it_takes_the_right_to_release() -> None:
    cluster = Cluster()
    pods = Right(verbs=("*",), resources=("pods",))
    with pytest.raises(Refused) as caught:
        await _refuse_others(user(cluster, pods))
    assert str(caught.value) == (
        "releasing pods: you may not release budgetholds.headroom.dev; "
        "have an administrator bind you to the ClusterRole headroom-releaser"
    )


@virtual
async def test_who_may_release_and_not_change_pods_is_told_what_is_missing() -> None:
    cluster = Cluster()
    cluster.pod(spec={"schedulingGates": [GATE]})
    releaser = user(
        cluster,
        Right(verbs=("release",), resources=("budgetholds",)),
        Right(verbs=("get",), resources=("pods",)),
    )
    await _refuse_others(releaser)
    with pytest.raises(
        Refused, match=r'cannot patch resource "pods".*; have an administrator bind you to the ClusterRole'
    ):
        await release_one(releaser, POD)


# --- stop ------------------------------------------------------------------------------------------------------------------------


def hold(name: str) -> dict[str, Any]:
    spec = {"budget": f"team-a/{name}"}
    return {"apiVersion": "headroom.dev/v1alpha1", "kind": "BudgetHold", "metadata": {"name": name}, "spec": spec}


@virtual
async def test_a_stop_drops_every_hold_and_those_that_were_just_being_written() -> None:
    cluster = Cluster()
    for name in ("a", "b"):
        cluster.server.put(hold(name))
    cluster.clock.call_later(0.5, lambda: cluster.server.put(hold("late")))
    assert await kill_switch.drop_holds(cluster.kube) == 3
    assert cluster.server.objects("BudgetHold") == []
    assert await kill_switch.drop_holds(cluster.kube) == 0


@virtual
async def test_a_stop_needs_no_kinds() -> None:
    cluster = Cluster()
    cluster.transport._faults.add(wrong.Refusal(status=404, path=paths.budget_hold()))
    assert await kill_switch.drop_holds(cluster.kube) == 0
