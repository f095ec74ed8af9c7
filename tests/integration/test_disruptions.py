"""PodDisruptionBudgets that a tenant makes once a step stands, on a real control plane: the status names them, and what may not be done."""

import json
from collections.abc import Iterator

import pytest

from tests.api.verdicts import Server
from tests.integration.accounts import Operator
from tests.integration.enforced import (
    Cluster,
    Team,
    enforced_cluster,
    enforcing_operator,
    is_running,
    last_hour,
    wait_for,
)

SPACE = "shielded"
PATH = f"/apis/policy/v1/namespaces/{SPACE}/poddisruptionbudgets"


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


def shield(tenant: Server, name: str, **spec: object) -> None:
    """Over every pod of the namespace, and none of them may go."""
    spec = {"selector": {}, "maxUnavailable": 0} | spec
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
    code, answer = tenant.send("POST", PATH, json.dumps(body))
    assert code == 201, answer


def refusing(team: Team) -> list[list[str]]:
    return [each["by"] for each in team.status().get("refused", [])]


def test_disruption_budgets_made_while_a_step_stands_are_named_and_end_nothing(cluster: Cluster) -> None:
    team = cluster.team(SPACE)
    tenant = Server(cluster.plane, "editor")
    team.pod("burner")
    wait_for(lambda: team.names(is_running) == {"burner"}, "it runs")
    step = {"at": "100%", "action": "Evict", "afterDeadline": "Delete", "graceForDisruptionBudgets": "1h"}
    team.budget(quota=last_hour("0.002"), enforcement={"steps": [step], "gracePeriodSeconds": 10})
    wait_for(lambda: team.is_so("Degraded", "DeleteForbidden"), "it is said that pods may not be deleted")
    assert "ClusterRole headroom-pod-deleter" in team.message("Degraded")
    wait_for(lambda: bool(team.status().get("steps")), "the step stands")
    shield(tenant, "all", unhealthyPodEvictionPolicy="AlwaysAllow")
    wait_for(lambda: refusing(team) == [[f"{SPACE}/all"]], "the one that refuses is named")
    assert team.status()["refused"][0]["deletedAt"]
    assert f"PodDisruptionBudget {SPACE}/all has refused the eviction" in team.message("EnforcementBlocked")
    shield(tenant, "again", unhealthyPodEvictionPolicy="IfHealthyBudget")
    wait_for(
        lambda: refusing(team) == [[f"{SPACE}/again", f"{SPACE}/all"]], "both are, which the server does not allow"
    )
    assert team.evicted() == []
    for name in ("all", "again"):
        assert tenant.send("DELETE", f"{PATH}/{name}")[0] == 200
    wait_for(lambda: team.evicted() == ["burner"], "nothing is in the way any more")
    wait_for(lambda: not team.status().get("refused"), "and nothing is said of it")
    tenant.close()
