"""Release requests with the production operator on the simulator: carried out once, removed later, and needed by nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.sim.answers import ErrorAnswer
from headroom.sim.rights import Actor, Right, User
from headroom.sim.scenario import Simulation
from tests.scenarios.dense import BRIEF, START, VISION_LABELS, past
from tests.scenarios.ladder import AS_EVER, UNHURRIED, Run, a_budget, a_pod, a_template, play, stage

REQUESTS = "/apis/headroom.dev/v1alpha1/namespaces/lab/releaserequests"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/releaserequests.headroom.dev"
RELEASER = (
    Right(verbs=("create", "delete"), resources=("releaserequests",)),
    Right(verbs=("release",), resources=("budgetholds",)),
)
EDIT = (Right(verbs=("*",), groups=("", "batch", "apps"), resources=("*",), namespaces=("lab",)),)


def a_request(pod: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "headroom.dev/v1alpha1",
        "kind": "ReleaseRequest",
        "metadata": {"name": pod, "namespace": "lab"},
        "spec": {"target": {"kind": "Pod", "name": pod}} | spec,
    }


class Person:
    """Somebody with some rights; remembers what was refused."""

    def __init__(self, name: str, rights: tuple[Right, ...]) -> None:
        self.name, self.rights = name, rights
        self.refused: list[str] = []

    def sends(self, method: str, path: str, document: Any = None) -> Any:
        def act(simulation: Simulation) -> None:
            users = simulation.server.users
            user = users.get(self.name) or users.add(User(name=self.name, rights=self.rights))
            try:
                simulation.server.do(method, path, document, actor=Actor(name=self.name, user=user))
            except ErrorAnswer as error:
                self.refused.append(error.message)

        return act


def played(*acts: Any, duration: str = "10m", **more: Any) -> Run:
    """A budget over its quota, and two pods that queue."""
    budget = a_budget("vision", "1", "100% Hold", window=24, enforcement=BRIEF)
    timeline = [{"at": "120s", "apply": a_pod(name, a_template(VISION_LABELS, 1))} for name in ("urgent", "waits")]
    return play(stage(budget), timeline, duration=duration, past=past(minutes_ago=15), acts=acts, start=START, **more)


def started(run: Run) -> set[str]:
    return {life.name for life in run.auditor.lives.values() if life.started is not None} - {"a", "b"}


def requests(run: Run) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in run.simulation.server.objects("ReleaseRequest")}


def test_a_request_is_carried_out_once_and_says_who_asked() -> None:
    ada, mallory = Person("ada", RELEASER), Person("mallory", EDIT)
    run = played(
        (150, mallory.sends("POST", REQUESTS, a_request("waits"))),
        (151, ada.sends("POST", REQUESTS, a_request("waits", requestedBy="root"))),
        (200, ada.sends("POST", REQUESTS, a_request("urgent", reason="a deadline"))),
    )
    assert started(run) == {"urgent"}
    assert (len(mallory.refused), len(ada.refused)) == (1, 1)
    found = requests(run)["urgent"]
    assert found["spec"]["requestedBy"] == "ada"
    assert (found["status"]["phase"], found["status"]["podsReleased"]) == ("Done", 1)
    assert "requested by ada (a deadline)" in found["status"]["message"]


def test_a_finished_request_is_removed_after_an_hour() -> None:
    ada = Person("ada", RELEASER)
    run = played((200, ada.sends("POST", REQUESTS, a_request("urgent"))), duration="70m", pace=UNHURRIED)
    assert started(run) == {"urgent"}
    assert requests(run) == {}


def test_a_request_that_is_deleted_before_it_is_done_is_cancelled() -> None:
    ada, root = Person("ada", RELEASER), Person("root", (Right(verbs=("*",), resources=("*",)),))
    stop = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "headroom"}, "data": {"stop": "true"}}
    maps = "/api/v1/namespaces/headroom-system/configmaps"
    run = played(
        (190, root.sends("POST", maps, stop)),
        (200, ada.sends("POST", REQUESTS, a_request("urgent"))),
        (230, ada.sends("DELETE", f"{REQUESTS}/urgent")),
        (240, root.sends("DELETE", f"{maps}/headroom")),
    )
    assert (ada.refused, root.refused) == ([], [])
    assert started(run) == set()


@pytest.mark.parametrize("at", [1, 60])
def test_without_the_kind_everything_else_goes_on(at: int) -> None:
    """As after an upgrade of the operator alone: pods queue, and nothing is released."""
    root = Person("root", (Right(verbs=("*",), resources=("*",)),))
    run = played((at, root.sends("DELETE", DEFINITION)), pace=AS_EVER)
    assert root.refused == []
    assert started(run) == set()
    budget = run.simulation.server.object("GPUWorkloadBudget", "lab", "vision") or {}
    assert budget["status"]["held"]["pods"] == 2
