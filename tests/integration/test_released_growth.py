"""What a request released does not grow: a tenant swaps claims, raises parallelism and makes Jobs anew on a real control plane."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.verdicts import Server
from tests.integration.accounts import Document, Operator
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
from tests.integration.hostile import DEVICES
from tests.integration.hostile_claims import by_claim, devices, wants
from tests.integration.test_cli_live import headroom

NAMESPACE = "grown"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CLAIMS = f"/apis/{DEVICES}/namespaces/{NAMESPACE}/resourceclaims"
REQUESTS = f"apis/headroom.dev/v1alpha1/namespaces/{NAMESPACE}/releaserequests"
NOWHERE = {"cel": {"expression": "device.attributes['gpu.nvidia.com'].none == true"}}


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


@pytest.fixture(scope="module")
def team(cluster: Cluster, operator: Operator) -> Team:
    """A budget that is over quota and queues all that is new."""
    cluster.plane.apply(*devices())
    team = cluster.team(NAMESPACE)
    team.pod("burner")
    wait_for(lambda: team.names(is_running) == {"burner"}, "it runs")
    team.budget(quota=last_hour("0.002"), enforcement=at_once("Hold"))
    wait_for(lambda: team.is_so("Holding"), "the hold stands")
    return team


@pytest.fixture(scope="module")
def tenant(team: Team) -> Iterator[Server]:
    server = Server(team.plane, "editor")
    yield server
    server.close()


def claim(tenant: Server, name: str, count: int, *selectors: Document) -> None:
    """Make a claim, in the place of the one that has this name."""
    tenant.send("DELETE", f"{CLAIMS}/{name}")
    spec = wants(count)
    spec["devices"]["requests"][0]["exactly"]["selectors"] = list(selectors)
    body = {"apiVersion": DEVICES, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": spec}
    code, answer = tenant.send("POST", CLAIMS, json.dumps(body))
    assert code == 201, answer


def pod(tenant: Server, name: str, **spec: Any) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": TEAM}}
    code, answer = tenant.send("POST", PODS, json.dumps(body | {"spec": by_claim(resourceClaimName=name) | spec}))
    assert code == 201, answer


def release(team: Team, target: str) -> None:
    """Have it released by who may, and delete the request once the budget remembers it."""
    config = ("--kubeconfig", str(team.plane.kubeconfig("releaser")))
    headroom("release", target, "-n", NAMESPACE, "--wait", *config)
    (name,) = [each["metadata"]["name"] for each in team.api.items(REQUESTS)]
    wait_for(lambda: f"{NAMESPACE}/{name}" in {each["request"] for each in records(team)}, "it is remembered")
    team.plane.kubectl("delete", "rr", name, "-n", NAMESPACE, user="releaser")


def records(team: Team) -> list[Document]:
    found = team.status().get("released", [])
    return [{"request": ""} | each for each in found]


@pytest.mark.parametrize(("name", "pool"), [("unplaced", "none"), ("placed", "early")])
def test_a_pod_whose_claim_grows_after_a_request_released_it_goes_back(
    team: Team, tenant: Server, name: str, pool: str
) -> None:
    """Where it can be placed, kube-scheduler does so as soon as the larger claim is there."""
    claim(tenant, name, 1, NOWHERE)
    pod(tenant, name, nodeSelector={"pool": pool})
    assert team.names(is_gated) >= {name}
    release(team, f"pod/{name}")
    assert name not in team.names(is_gated) | team.names(is_running)
    claim(tenant, name, 8)
    wait_for(lambda: name in team.evicted(), "it is evicted")


def test_a_job_gets_what_was_judged_whatever_becomes_of_its_pods_and_of_the_request(team: Team, tenant: Server) -> None:
    team.job("fit", 2, template(annotations=RUNS_ON), backoffLimit=100, completions=100)
    wait_for(lambda: len(team.names(is_gated, "fit-")) == 2, "its pods are queued")
    release(team, "job/fit")
    wait_for(lambda: len(team.names(is_running, "fit-")) == 2, "they run")
    jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/fit"
    more = json.dumps({"spec": {"parallelism": 6}})
    team.plane.kubectl("patch", "job", "fit", "-n", NAMESPACE, "--type=merge", "-p", more, user="editor")
    wait_for(lambda: len(team.names(is_gated, "fit-")) == 4, "more parallelism is queued")
    first = team.names(is_running, "fit-")
    gone = min(first)
    tenant.send("DELETE", f"{PODS}/{gone}?gracePeriodSeconds=0")
    wait_for(lambda: len(team.names(is_running, "fit-") - {gone}) == 2, "one is replaced at once")
    assert len(team.audit.bound(NAMESPACE) & all_of(team, "fit-")) == 2
    tenant.send("DELETE", f"{jobs}?propagationPolicy=Background")
    wait_for(lambda: not team.pods("fit-"), "the Job is gone with its pods")
    team.job("fit", 2, template(annotations=RUNS_ON))
    wait_for(lambda: len(team.names(is_gated, "fit-")) == 2, "another one of its name is queued")
    team.pod("after")
    assert not team.names(is_running, "fit-")


def all_of(team: Team, prefix: str) -> set[str]:
    return {each["metadata"]["name"] for each in team.pods(prefix)}
