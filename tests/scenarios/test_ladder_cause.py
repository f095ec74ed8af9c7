"""Nothing is stopped without cause, with the production operator and an auditor: dollars that are known, and ends that were ours."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.sim.scenario import Simulation
from tests.scenarios.auditing import Judge, ledger_of
from tests.scenarios.ladder import CAPS, Run, a_budget, a_pod, a_service, a_template, play, stage

LABELS = {"team": "vision"}
SOON = {"gracePeriodSeconds": 5, "recoverWithin": "1m"}


def prices(*nodes: str) -> dict[str, Any]:
    """The price book: what each of some nodes costs."""
    lines = "".join(f'- {{node: {name}, pricePerHour: "6400"}}\n' for name in nodes)
    metadata = {"name": "headroom-prices", "namespace": "headroom-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"book": lines}}


def on(node: str, name: str) -> dict[str, Any]:
    pod = a_pod(name, a_template(LABELS, 4))
    return pod | {"spec": pod["spec"] | {"nodeName": node}}


def found(run: Run, type_: str) -> tuple[str, str]:
    status = (run.simulation.server.object("GPUWorkloadBudget", "lab", "vision") or {})["status"]
    (condition,) = [each for each in status["conditions"] if each["type"] == type_]
    return condition["status"], condition["reason"]


def problems(run: Run, budget: dict[str, Any]) -> list[str]:
    return Judge(run.auditor, [ledger_of(budget, set())], (CAPS.cluster, CAPS.namespace)).problems()


def dollars(*priced: str) -> tuple[Run, dict[str, Any]]:
    """Two pods on two nodes under a quota of 20 dollars, of which each costs 400 an hour where its node has a price."""
    budget = a_budget("vision", "1000", "100% Evict", enforcement=SOON)
    budget["spec"]["quota"] = {"usd": "20", "windowHours": 24}
    timeline = [{"at": "10s", "apply": on("n0", "one")}, {"at": "10s", "apply": on("n1", "two")}]
    return play([*stage(budget), prices(*priced)], timeline, duration="10m"), budget


def test_dollars_evict_where_every_node_has_a_price() -> None:
    run, budget = dollars("n0", "n1")
    assert problems(run, budget) == []
    assert {stop.unit for stop in run.auditor.stops()} == {"Pod/lab/one", "Pod/lab/two"}


def test_dollars_evict_nothing_where_half_of_the_time_has_no_price() -> None:
    run, budget = dollars("n0")
    assert problems(run, budget) == []
    assert run.auditor.stops() == []
    assert found(run, "QuotaExceeded") == ("True", "QuotaReached")
    assert found(run, "EnforcementBlocked") == ("True", "PriceUnknown")


@pytest.mark.parametrize("how", ["finish", "delete"])
def test_a_service_whose_pods_end_by_themselves_is_in_no_eviction_loop(how: str) -> None:
    """A disruption budget lets nothing go, and somebody else ends each pod; the operator did not stop one of them."""
    budget = a_budget("vision", "0.05", "100% Evict", enforcement=SOON)
    block = {"minAvailable": 2, "selector": {"matchLabels": LABELS}}
    guard = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "all", "namespace": "lab"}}

    def end(simulation: Simulation) -> None:
        for each in simulation.server.objects("Pod"):
            name = each["metadata"]["name"]
            path = f"/api/v1/namespaces/lab/pods/{name}"
            if how == "delete":
                simulation.server.do("DELETE", path, {"gracePeriodSeconds": 0})
            else:
                status = each["status"] | {"phase": "Failed", "conditions": []}
                simulation.server.do("PUT", f"{path}/status", each | {"status": status})

    timeline = [
        {"at": "5s", "apply": guard | {"spec": block}},
        {"at": "10s", "apply": a_service("web", a_template(LABELS, 4))},
    ]
    acts = [(second, end) for second in range(120, 600, 60)]
    run = play(stage(budget), timeline, duration="12m", acts=acts)
    assert len(run.auditor.lives) > 5
    assert run.auditor.victims, "it was tried"
    assert problems(run, budget) == []
    assert found(run, "EnforcementBlocked")[1] != "EvictionLoop"
    status = (run.simulation.server.object("GPUWorkloadBudget", "lab", "vision") or {})["status"]
    assert [each for each in status.get("stopped", ()) if each["outcome"] == "Stopped"] == []
    assert status.get("evictions", []) == []


def test_a_service_that_is_really_evicted_again_and_again_is() -> None:
    budget = a_budget("vision", "0.05", "100% Evict", enforcement=SOON)
    timeline = [{"at": "10s", "apply": a_service("web", a_template(LABELS, 4))}]
    run = play(stage(budget), timeline, duration="12m")
    assert problems(run, budget) == []
    assert found(run, "EnforcementBlocked") == ("True", "EvictionLoop")
    assert len(run.auditor.stops()) == 3
