"""Release requests on a real control plane: who has the role, and no right to change pods, has the operator release what is queued."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.verdicts import Server
from tests.integration.accounts import Document, Operator, moment
from tests.integration.enforced import (
    RUNS_ON,
    TEAM,
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

NAMESPACE = "asked"
TINY = "0.002"
REQUESTS = f"/apis/headroom.dev/v1alpha1/namespaces/{NAMESPACE}/releaserequests"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with enforced_cluster(tmp_path_factory.mktemp("audit")) as made:
        yield made


@pytest.fixture(scope="module", autouse=True)
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    made = enforcing_operator(cluster.plane, tmp_path_factory.mktemp("enforced"))
    made.start()
    yield made
    made.close()


def of(step: str, **metadata: Any) -> Document:
    return {"labels": {"step": step}, **metadata}


@pytest.fixture(scope="module")
def team(cluster: Cluster, operator: Operator) -> Team:
    """One budget holds new pods, another one has suspended a Job."""
    team = cluster.team(NAMESPACE)
    team.pod("burner", **of("hold"))
    team.job("fit", 2, template(**of("suspend", annotations=RUNS_ON)))
    wait_for(lambda: len(team.names(is_running)) == 3, "all run")
    for step in ("hold", "suspend"):
        spec = {"quota": last_hour(TINY), "enforcement": at_once(step.capitalize())}
        team.budget(step, {"team": "a", "step": step}, **spec)
    wait_for(lambda: team.is_so("Holding", name="hold"), "the hold stands")
    wait_for(lambda: bool(team.get("Job", "fit")["spec"].get("suspend")), "the Job is suspended")
    for name in ("urgent", "waits", "later"):
        team.pod(name, **of("hold"))
    assert team.names(is_gated) == {"urgent", "waits", "later"}
    return team


def of_user(team: Team, user: str) -> tuple[str, ...]:
    return ("--kubeconfig", str(team.plane.kubeconfig(user)))


def requests(team: Team) -> list[Document]:
    found: list[Document] = team.api.items(REQUESTS.lstrip("/"))
    return found


def test_the_role_changes_no_pod_and_no_owner(team: Team) -> None:
    server = Server(team.plane)
    kinds = (("", "pods"), ("batch", "jobs"), ("jobset.x-k8s.io", "jobsets"), ("kueue.x-k8s.io", "workloads"))
    for group, resource in kinds:
        for verb in ("patch", "update", "create", "delete"):
            assert not may(server, "releaser", verb, group, resource), (verb, resource)
    assert may(server, "releaser", "create", "headroom.dev", "releaserequests")
    for verb in ("patch", "update"):
        assert not may(server, "releaser", verb, "headroom.dev", "releaserequests")
    server.close()


def may(admin: Server, user: str, verb: str, group: str, resource: str) -> bool:
    attributes = {"namespace": NAMESPACE, "verb": verb, "group": group, "resource": resource}
    spec = {"user": user, "resourceAttributes": attributes}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    code, answer = admin.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", json.dumps(review))
    assert code == 201, answer
    return bool(answer["status"]["allowed"])


def test_a_releaser_has_a_queued_pod_released(team: Team) -> None:
    said = headroom("release", "pod/urgent", "-n", NAMESPACE, "--reason", "demo", "--wait", *of_user(team, "releaser"))
    assert said.stdout == f"Released 1 of 1 queued pods of Pod {NAMESPACE}/urgent; requested by releaser (demo).\n"
    wait_for(lambda: "urgent" in team.names(is_running), "it runs")
    assert team.names(is_gated) == {"waits", "later"}
    assert team.told("urgent", "Released") == ["Released by request of releaser (demo)."]
    (request,) = requests(team)
    assert request["spec"]["requestedBy"] == "releaser"
    assert (request["status"]["podsReleased"], request["status"]["budgets"]) == (1, [f"{NAMESPACE}/hold"])


def test_a_releaser_has_a_suspended_job_resumed(team: Team) -> None:
    said = headroom("release", f"job/{NAMESPACE}/fit", "--wait", *of_user(team, "releaser"))
    assert said.stdout == f"Resumed Job {NAMESPACE}/fit; requested by releaser.\n"
    job = team.get("Job", "fit")
    assert not job["spec"].get("suspend")
    wait_for(lambda: len(team.names(is_running, "fit-")) == 2, "its pods run")


def test_what_is_not_queued_is_said(team: Team) -> None:
    to = of_user(team, "releaser")
    failed = headroom("release", f"pod/{NAMESPACE}/burner", *to, code=2)
    assert failed.stderr == f"headroom: releasing pod/{NAMESPACE}/burner: no budget queues it\n"
    failed = headroom("release", "gang/none", "-n", NAMESPACE, "--wait", *to, code=2)
    assert "No budget queues PodGroup asked/none: there is nothing to release. (NothingQueued)" in failed.stderr


def test_a_tenant_with_edit_is_refused(team: Team) -> None:
    failed = headroom("release", f"pod/{NAMESPACE}/waits", *of_user(team, "editor"), code=2)
    assert "ask an administrator to bind you to the ClusterRole headroom-releaser" in failed.stderr
    server = Server(team.plane, "editor")
    code, answer = server.send("POST", REQUESTS, json.dumps(a_request("waits")))
    assert (code, answer["reason"]) == (403, "Forbidden")
    for request in requests(team):
        path = f"{REQUESTS}/{request['metadata']['name']}"
        assert server.send("DELETE", path)[0] == 403
        assert server.send("PUT", path, json.dumps(request))[0] == 403
        assert server.send("PUT", f"{path}/status", json.dumps(request))[0] == 403
    server.close()


def test_a_forged_requester_is_refused(team: Team) -> None:
    server = Server(team.plane, "releaser")
    for forged in ("admin", "editor", "system:serviceaccount:headroom-system:headroom"):
        code, answer = server.send("POST", REQUESTS, json.dumps(a_request("waits", requestedBy=forged)))
        assert (code, answer["reason"]) == (403, "Forbidden")
        assert f"spec.requestedBy must be releaser, who creates the request, not {forged}" in answer["message"]
    server.close()
    assert "waits" in team.names(is_gated)


def test_nothing_is_carried_out_while_everything_is_stopped_and_a_deleted_request_is_cancelled(team: Team) -> None:
    admin, to = ("--kubeconfig", str(team.plane.kubeconfig())), of_user(team, "releaser")
    headroom("stop", *admin)
    headroom("release", "pod/waits", "pod/later", "-n", NAMESPACE, *to)
    wait_for(lambda: [each["reason"] for each in pending(team)] == ["Stopped"] * 2, "both say why")
    (cancelled,) = [each for each in requests(team) if each["spec"]["target"]["name"] == "later"]
    team.plane.kubectl("delete", "rr", cancelled["metadata"]["name"], "-n", NAMESPACE, user="releaser")
    headroom("resume", *admin)
    wait_for(lambda: "waits" in team.names(is_running), "the other one is carried out")
    assert "later" in team.names(is_gated)


def test_who_has_lost_the_right_asks_for_nothing_more(team: Team) -> None:
    """What was asked for while it was allowed is carried out; it can be deleted until then."""
    admin, to = ("--kubeconfig", str(team.plane.kubeconfig())), of_user(team, "releaser")
    for name in ("in-time", "too-late"):
        team.pod(name, **of("hold"))
    headroom("stop", *admin)
    headroom("release", "pod/in-time", "-n", NAMESPACE, *to)
    team.plane.kubectl("delete", "clusterrolebinding", "releaser-headroom-releaser")
    server = Server(team.plane, "releaser")
    body = json.dumps(a_request("too-late"))
    wait_for(lambda: server.send("POST", f"{REQUESTS}?dryRun=All", body)[0] == 403, "the right is gone")
    assert server.send("POST", REQUESTS, body)[0] == 403
    server.close()
    headroom("resume", *admin)
    wait_for(lambda: "in-time" in team.names(is_running), "what was asked for in time is carried out")
    assert "too-late" in team.names(is_gated)
    team.plane.grant("releaser", "headroom-releaser")


def would_be_gated(server: Server) -> bool:
    """Whether the API server's policies would queue a new pod now."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks", "labels": TEAM | {"step": "hold"}}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods?dryRun=All"
    code, answer = server.send("POST", path, json.dumps(pod | {"spec": template(1)["spec"]}))
    assert code == 201, answer
    return is_gated(answer)


def test_a_job_is_released_without_the_pods_that_only_claim_to_be_its_own(team: Team) -> None:
    """The controller of Jobs takes the owner from some of them and deletes the youngest; one of a group of nobody's stays as it is."""
    server = Server(team.plane, "editor")
    wait_for(lambda: would_be_gated(server), "the hold is back after the resume")
    team.job("gang", 2, template(**of("hold", annotations=RUNS_ON)))
    wait_for(lambda: len(team.names(is_gated, "gang-")) == 2, "its pods are queued")
    job = team.get("Job", "gang")
    made = max(moment(each["metadata"]["creationTimestamp"]) for each in team.pods("gang-"))
    wait_for(lambda: time.time() * 1000 > made + 1000, "pods that are made now are younger")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "gang", "uid": job["metadata"]["uid"], "controller": True}
    labels = job["spec"]["template"]["metadata"]["labels"]
    claims = {
        "claims-uid": (TEAM | {"step": "hold"}, owner),
        "claims-all": (labels, owner),
        "adopted": (labels, None),
        "claims-kind": (TEAM | {"step": "hold"}, owner | {"apiVersion": "example.com/v1"}),
    }
    for name, (worn, claimed) in claims.items():
        spec = template(8)["spec"]
        references = {"ownerReferences": [claimed]} if claimed else {}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": worn} | references}
        code, answer = server.send("POST", f"/api/v1/namespaces/{NAMESPACE}/pods", json.dumps(pod | {"spec": spec}))
        assert code == 201, answer
    server.close()
    said = headroom("release", "job/gang", "-n", NAMESPACE, "--wait", *of_user(team, "releaser"))
    assert said.stdout == f"Released 2 of 2 queued pods of Job {NAMESPACE}/gang; requested by releaser.\n"
    wait_for(lambda: len(team.names(is_running, "gang-")) == 2, "its own pods run")
    assert not team.audit.bound(NAMESPACE) & claims.keys()
    assert "claims-kind" in team.names(is_gated)


def pending(team: Team) -> list[Document]:
    found = (each.get("status", {}) for each in requests(team))
    return [each for each in found if each.get("phase") == "Pending"]


def a_request(pod: str, **spec: Any) -> Document:
    return {
        "apiVersion": "headroom.dev/v1alpha1",
        "kind": "ReleaseRequest",
        "metadata": {"generateName": "r-", "namespace": NAMESPACE},
        "spec": {"target": {"kind": "Pod", "name": pod}} | spec,
    }
