"""`headroom release`, and what `headroom stop` does to holds: on a simulated cluster, and for what was written wrongly."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.adapters.kube import paths
from headroom.adapters.kube.client import Kube
from headroom.api.policies import policies
from headroom.cli import kill_switch
from headroom.cli.release import Asking, NamedTarget, _refuse_others, _target, release_one
from headroom.model.errors import Misconfigured, Refused, Unavailable
from headroom.sim import faults as wrong
from headroom.sim.rights import Right
from tests.adapters import owners
from tests.adapters.simulated import Cluster, virtual
from tests.cli.conftest import Headroom

GATE = {"name": "headroom.dev/budget"}
THEIRS = {"name": "example.com/theirs"}
POD = NamedTarget("Pod", "team-a", "train-0")
MAKES = Right(verbs=("create",), resources=("releaserequests",))
RELEASES = Right(verbs=("release",), resources=("budgetholds",))


@pytest.mark.parametrize(
    ("text", "namespace", "target"),
    [
        ("pod/lab/x", "", NamedTarget("Pod", "lab", "x")),
        ("lab/x", "", NamedTarget("Pod", "lab", "x")),
        ("Pods/lab/x", "", NamedTarget("Pod", "lab", "x")),
        ("job/lab/x", "", NamedTarget("Job", "lab", "x")),
        ("jobset/lab/x", "", NamedTarget("JobSet", "lab", "x")),
        ("workload/lab/x", "", NamedTarget("Workload", "lab", "x")),
        ("RayCluster/lab/x", "", NamedTarget("RayCluster", "lab", "x")),
        ("x", "", NamedTarget("Pod", "", "x")),
        ("job/x", "", NamedTarget("Job", "", "x")),
        ("pod/x", "lab", NamedTarget("Pod", "lab", "x")),
        ("x", "lab", NamedTarget("Pod", "lab", "x")),
        ("JOB/x", "lab", NamedTarget("Job", "lab", "x")),
        ("gang/x", "lab", NamedTarget("PodGroup", "lab", "x")),
        ("PodGroup/x", "lab", NamedTarget("PodGroup", "lab", "x")),
    ],
)
def test_what_may_be_named(text: str, namespace: str, target: NamedTarget) -> None:
    assert _target(text, namespace) == target


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("pod//x", "reading 'pod//x': must be written NAME, KIND/NAME or KIND/NAMESPACE/NAME"),
        ("a/b/c/d", "reading 'a/b/c/d': must be written NAME, KIND/NAME or KIND/NAMESPACE/NAME"),
        (
            "jobst/lab/x",
            "reading 'jobst/lab/x': no kind 'jobst' can be released; write pod, job, jobset, workload or gang (did you mean jobset",
        ),
    ],
)
def test_what_is_written_wrongly_is_one_sentence_before_anything_is_done(
    headroom: Headroom, text: str, says: str
) -> None:
    done = headroom("release", "lab/first", text, "--kubeconfig", "none")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"headroom: {says}")
    assert done.err.count("\n") == 1


def test_beside_a_namespace_there_is_no_second_one(headroom: Headroom) -> None:
    done = headroom("release", "pod/lab/x", "-n", "lab", "--kubeconfig", "none")
    assert done.err == "headroom: reading 'pod/lab/x': must be written KIND/NAME beside --namespace\n"


def asked(cluster: Cluster) -> list[dict[str, Any]]:
    return [each["spec"] for each in cluster.server.objects("ReleaseRequest")]


@virtual
async def test_a_request_names_exactly_this_pod() -> None:
    cluster = Cluster()
    for each in policies():
        cluster.server.put(each)
    uid = cluster.pod(spec={"schedulingGates": [THEIRS, GATE]})["metadata"]["uid"]
    said = await release_one(cluster.kube, POD, Asking("team-a/one", "a deadline"))
    (request,) = cluster.server.objects("ReleaseRequest")
    assert said == f"Asked for pod/team-a/train-0: releaserequest team-a/{request['metadata']['name']}."
    assert request["metadata"]["name"].startswith("pod-train-0-")
    target = {"kind": "Pod", "name": "train-0", "uid": uid}
    assert request["spec"] | {"paused": False} == {
        "paused": False,
        "target": target,
        "budget": "team-a/one",
        "reason": "a deadline",
        "requestedBy": "headroom",
    }
    assert cluster.stored("Pod", "team-a", "train-0")["spec"]["schedulingGates"] == [THEIRS, GATE]


@virtual
async def test_a_pod_that_is_not_queued_or_not_there() -> None:
    cluster = Cluster()
    cluster.pod()
    with pytest.raises(Refused, match=r"^releasing pod/team-a/train-0: no budget queues it$"):
        await release_one(cluster.kube, POD, Asking())
    with pytest.raises(Misconfigured) as caught:
        await release_one(cluster.kube, NamedTarget("Pod", "team-a", "train0"), Asking())
    assert str(caught.value) == (
        "releasing pod/team-a/train0: not found (did you mean pod/team-a/train-0?); "
        "`kubectl get pods -n team-a` lists them"
    )
    with pytest.raises(Misconfigured, match=r"^releasing job/team-z/x: not found; `kubectl get jobs -n team-z`"):
        await release_one(cluster.kube, NamedTarget("Job", "team-z", "x"), Asking())
    with pytest.raises(Misconfigured, match=r"^releasing jobset/team-a/x: not found; "):
        await release_one(cluster.kube, NamedTarget("JobSet", "team-a", "x"), Asking())
    assert asked(cluster) == []


@pytest.mark.parametrize(("kind", "has_uid"), [("Job", True), ("JobSet", False), ("Workload", True)])
@virtual
async def test_an_owner_is_named_by_its_uid_where_pods_tell_of_it(kind: str, *, has_uid: bool) -> None:
    cluster = Cluster()
    for each in owners.definitions():
        cluster.server.put(each)
    cluster.server.put(owners.owner(kind))
    await release_one(cluster.kube, NamedTarget(kind, "team-a", "train"), Asking())
    (spec,) = asked(cluster)
    uid = cluster.stored(kind, "team-a", "train")["metadata"]["uid"]
    assert spec["target"].get("uid", "") == (uid if has_uid else "")
    assert spec["target"]["generation"] == cluster.stored(kind, "team-a", "train")["metadata"]["generation"]


def answered(cluster: Cluster, **status: str) -> None:
    """What the operator writes, a second later."""

    def write() -> None:
        for each in cluster.server.objects("ReleaseRequest"):
            cluster.server.put(each | {"status": status})

    cluster.clock.call_later(1, write)


@virtual
async def test_wait_says_what_the_operator_says() -> None:
    cluster = Cluster()
    cluster.pod(spec={"schedulingGates": [GATE]})
    answered(cluster, phase="Done", message="Released 1 of 1 queued pods.")
    assert await release_one(cluster.kube, POD, Asking(wait=True)) == "Released 1 of 1 queued pods."
    answered(cluster, phase="Refused", reason="QueuedByOthers", message="Another queues it.")
    with pytest.raises(Refused, match=r"^releasing pod/team-a/train-0: Another queues it\. \(QueuedByOthers\)$"):
        await release_one(cluster.kube, POD, Asking(wait=True))
    answered(cluster, phase="Pending", reason="Stopped", message="All effects are stopped.")
    with pytest.raises(Unavailable, match=r"not done within 60 s, releaserequest team-a/.* stands: All effects are"):
        await release_one(cluster.kube, POD, Asking(wait=True))


def user(cluster: Cluster, *rights: Right) -> Kube:
    return Kube(cluster.server.transport("tenant", rights=rights), cluster.clock)


@pytest.mark.parametrize(
    ("rights", "budget", "missing"),
    [
        ((MAKES,), "", "release budgetholds.headroom.dev"),
        ((RELEASES,), "", "create releaserequests.headroom.dev in namespace team-a"),
        ((), "", "release budgetholds.headroom.dev or create releaserequests.headroom.dev in namespace team-a"),
        (
            (MAKES, Right(verbs=("release",), resources=("budgetholds",), names=("lab.b",))),
            "lab/a",
            "release budgetholds.headroom.dev lab.a",
        ),
    ],
)
@virtual
async def test_it_takes_both_rights(rights: tuple[Right, ...], budget: str, missing: str) -> None:
    cluster = Cluster()
    with pytest.raises(Refused) as caught:
        await _refuse_others(user(cluster, *rights), [POD], budget)
    assert str(caught.value) == (
        f"releasing: you may not {missing}; ask an administrator to bind you to the ClusterRole headroom-releaser"
    )


@virtual
async def test_it_takes_no_right_to_change_pods() -> None:
    cluster = Cluster()
    cluster.pod(spec={"schedulingGates": [GATE]})
    releaser = user(cluster, MAKES, RELEASES, Right(verbs=("get",), resources=("pods",)))
    await _refuse_others(releaser, [POD])
    await release_one(releaser, POD, Asking())
    one = Right(verbs=("release",), resources=("budgetholds",), names=("lab.a",))
    await _refuse_others(user(cluster, MAKES, one), [POD], "lab/a")


@virtual
async def test_a_cluster_without_the_kind_is_told_what_to_install() -> None:
    cluster = Cluster()
    cluster.pod(spec={"schedulingGates": [GATE]})
    cluster.transport._faults.add(wrong.Refusal(status=404, path=paths.collection("ReleaseRequest", "team-a")))
    with pytest.raises(Misconfigured, match=r"the cluster lacks releaserequests\.headroom\.dev.*headroom crds"):
        await release_one(cluster.kube, POD, Asking())


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
