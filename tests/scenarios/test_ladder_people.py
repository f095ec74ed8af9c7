"""The ladder and people: tenants who evade it, Jobs that never give up, administrators who stop it, delete it or uninstall it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from headroom.adapters.kube.client import Kube
from headroom.api.resources import GROUP
from headroom.cli import kill_switch
from headroom.cli.uninstall import take_all
from headroom.model.times import moment
from headroom.runtime.settings import Settings
from headroom.sim.answers import ErrorAnswer
from headroom.sim.rights import Actor, Right, User
from headroom.sim.scenario import Simulation
from tests.scenarios.auditing import Judge, ledger_of
from tests.scenarios.dense import (
    BATCH_LABELS,
    BRIEF,
    START,
    VISION_LABELS,
    dense,
    past,
    problems,
)
from tests.scenarios.ladder import CAPS, Run, a_budget, a_job, a_pod, a_template, play, stage

EDIT = (Right(verbs=("*",), groups=("", "batch", "apps"), resources=("*",), namespaces=("lab",)),)
"""What the role `edit` gives, more or less."""
PODS = "/api/v1/namespaces/lab/pods"
JOBS = "/apis/batch/v1/namespaces/lab/jobs"


class Tenant:
    """Somebody with `edit` who would rather not be held up; remembers what the API server said."""

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        self.granted: list[str] = []

    def tries(self, what: str, method: str, path: str, document: Any = None) -> Any:
        """An act that sends a request."""

        def act(simulation: Simulation) -> None:
            users = simulation.server.users
            user = users.get("mallory") or users.add(User(name="mallory", rights=EDIT))
            try:
                simulation.server.do(method, path, document, actor=Actor(name="mallory", user=user))
                self.granted.append(what)
            except ErrorAnswer as error:
                self.refused[what] = error.message

        return act


def annotated(**notes: str | None) -> dict[str, Any]:
    """A patch of our annotations."""
    return {"metadata": {"annotations": {f"{GROUP}/{name.replace('_', '-')}": value for name, value in notes.items()}}}


def relabelled(**labels: str) -> dict[str, Any]:
    """A patch of labels."""
    return {"metadata": {"labels": labels}}


def budget_status(run: Run, name: str) -> dict[str, Any]:
    found: dict[str, Any] = (run.simulation.server.object("GPUWorkloadBudget", "lab", name) or {})["status"]
    return found


def condition(run: Run, name: str, type_: str) -> tuple[str, str]:
    found = next(each for each in budget_status(run, name)["conditions"] if each["type"] == type_)
    return found["status"], found["reason"]


# --- tenants --------------------------------------------------------------------------------------------------------------------


def test_a_tenant_who_deletes_and_relabels_gets_nothing_by_it() -> None:
    budget = a_budget("vision", "2", "90% Pause", "100% Hold", window=1, enforcement=BRIEF)
    mallory = Tenant()
    unlabelled = a_template({"team": "none"}, 1)
    bound = a_pod("bound", a_template(VISION_LABELS, 1))
    bound["spec"] = bound["spec"] | {"nodeName": "n0"}
    acts = [
        (30, mallory.tries("relabel before", "PATCH", f"{PODS}/first", relabelled(team="none"))),
        (31, mallory.tries("delete", "DELETE", f"{PODS}/second")),
        (60, mallory.tries("unmark", "PATCH", f"{PODS}/third", annotated(paused_at=None, paused_by=None))),
        (200, mallory.tries("relabel", "PATCH", f"{PODS}/third", relabelled(team="none"))),
        (200, mallory.tries("lift", "PATCH", f"{PODS}/late", {"spec": {"schedulingGates": None}})),
        (200, mallory.tries("protect", "PATCH", f"{PODS}/late", annotated(protected="true"))),
        (200, mallory.tries("release", "PATCH", f"{PODS}/late", annotated(released_at=START))),
        (200, mallory.tries("relabel the gated", "PATCH", f"{PODS}/late", relabelled(team="none"))),
        (200, mallory.tries("bind", "POST", PODS, bound)),
        (201, mallory.tries("start as another", "POST", PODS, a_pod("other", unlabelled))),
        (202, mallory.tries("and relabel that", "PATCH", f"{PODS}/other", relabelled(team="vision"))),
    ]
    running = [a_pod(name, a_template(VISION_LABELS, 4)) for name in ("first", "second", "third")]
    timeline = [{"at": "10s", "apply": each} for each in running]
    timeline.append({"at": "190s", "apply": a_pod("late", a_template(VISION_LABELS, 1))})
    run = play(stage(budget), timeline, duration="5m", past=past(minutes_ago=15), acts=acts, start=START)

    assert mallory.granted == ["relabel before", "delete", "unmark", "start as another"]
    assert set(mallory.refused) == {
        "relabel",
        "lift",
        "protect",
        "release",
        "relabel the gated",
        "bind",
        "and relabel that",
    }
    assert all("lab/vision" in mallory.refused[each] for each in ("relabel", "relabel the gated", "bind"))
    lives = {life.name: life for life in run.auditor.lives.values()}
    assert lives["late"].started is None
    third = run.simulation.server.object("Pod", "lab", "third") or {}
    assert f"{GROUP}/paused-at" in third["metadata"]["annotations"], "the mark comes back"
    # What was used stays used: 14 GPUs for 8 minutes, and what the three used under the budget's label.
    status = budget_status(run, "vision")
    begun, until = lives["third"].started or 0, moment(status["asOf"]) or 0
    used = 14 * 8 * 60 + 4 * (18 + 19 + (until - begun) / 1000)
    assert abs(float(status["consumedGpuHours"]) * 3600 - used) < 4 * 3
    assert Judge(run.auditor, [ledger_of(budget, set())], (CAPS.cluster, CAPS.namespace)).problems() == []


def test_a_job_that_its_tenant_resumes_is_suspended_again_at_the_capped_rate() -> None:
    budget = a_budget("batch", "1.9", "100% Suspend", labels={"tier": "batch"}, window=1, enforcement=BRIEF)
    mallory = Tenant()
    again = [
        (second, mallory.tries("resume", "PATCH", f"{JOBS}/job-{number}", {"spec": {"suspend": False}}))
        for second in range(60, 300, 5)
        for number in range(3)
    ]
    jobs = [a_job(f"job-{number}", a_template(BATCH_LABELS, 2, "2m")) for number in range(3)]
    timeline = [{"at": "10s", "apply": each} for each in jobs]
    run = play(stage(budget), timeline, duration="20m", past=past(), acts=again, start=START)

    stops = run.auditor.stops()
    assert len([stop for stop in stops if stop.unit == "Job/lab/job-0"]) > 2
    assert Judge(run.auditor, [ledger_of(budget, set())], (CAPS.cluster, CAPS.namespace)).problems() == []
    for place, first in enumerate(stops):
        assert len([each for each in stops[place:] if each.at - first.at < 60_000]) <= CAPS.namespace
    assert run.left() == []


# --- Jobs that never give up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hold", [False, True], ids=["without hold", "with hold"])
def test_a_job_that_is_tried_again_for_ever(hold: bool) -> None:
    steps = ["100% Hold", "101% Evict"] if hold else ["101% Evict"]
    budget = a_budget("vision", "1.85", *steps, window=1, enforcement=BRIEF)
    timeline = [{"at": "10s", "apply": a_job("stubborn", a_template(VISION_LABELS, 4))}]
    run = play(stage(budget), timeline, duration="12m", past=past(minutes_ago=15), start=START)

    stops = run.auditor.stops()
    alive = [life for life in run.auditor.lives.values() if not life.is_over(run.auditor.end)]
    assert len(alive) == 1
    if hold:
        assert len(stops) <= 1
        assert alive[0].gated
        assert alive[0].started is None
        assert condition(run, "vision", "EnforcementBlocked") == ("False", "NothingInTheWay")
    else:
        assert len(stops) == 3
        assert alive[0].started is not None
        assert condition(run, "vision", "EnforcementBlocked") == ("True", "EvictionLoop")


# --- administrators ---------------------------------------------------------------------------------------------------------------


def by_admin(do: Any) -> Any:
    """An act of somebody with all rights, over a client of their own."""
    tasks: list[asyncio.Task[None]] = []

    def act(simulation: Simulation) -> None:
        work: Coroutine[Any, Any, None] = do(Kube(simulation.server.transport("admin"), simulation.clock))
        tasks.append(asyncio.get_running_loop().create_task(work))

    return act


async def stopped(kube: Kube) -> None:
    await kill_switch.throw(kube, "headroom-system", "to see what happens")
    await kill_switch.drop_holds(kube)


async def resumed(kube: Kube) -> None:
    await kill_switch.put_back(kube, "headroom-system")


async def uninstalled(kube: Kube) -> None:
    await take_all(kube, Settings(), set(), crds=False)


def test_stop_halts_every_step_within_a_tick_and_resume_goes_on() -> None:
    """It is stopped between two evictions, with all kinds of things due, and goes on two minutes later."""
    run = dense(acts=[(108.7, by_admin(stopped)), (230, by_admin(resumed))])
    writes = [each for each in run.operators_writes() if "/status" not in each.path and "/events" not in each.path]
    at = [(each.at - run.simulation.scenario.start) / 1000 for each in writes]
    assert [each for each in at if each < 108.7]
    assert [each for each in at if 109.2 < each < 230] == []
    assert [each for each in at if each > 230]
    assert problems(run) == []


@pytest.mark.parametrize("after", [65, 109, 200])
def test_deleting_the_budgets_undoes_all_that_they_did(after: int) -> None:
    gone = [{"at": f"{after}s", "delete": f"GPUWorkloadBudget/lab/{name}"} for name in ("vision", "batch")]
    run = dense(more=gone, duration=f"{after + 60}s")
    assert run.left() == []
    waited = [life for life in run.auditor.lives.values() if life.gated and life.going is None]
    assert all(life.released is not None for life in waited)


def test_deleting_one_of_two_budgets_leaves_what_it_suspended_to_the_other() -> None:
    """The Job is suspended by one budget and counted by both; the other one resumes it when it has room."""
    labels = {"team": "vision", "tier": "batch"}
    budgets = [
        a_budget("batch", "1.9", "101% Suspend", labels={"tier": "batch"}, window=1, enforcement=BRIEF),
        a_budget("vision", "2", "100% Hold", window=1, enforcement=BRIEF),
    ]
    before = past()
    before[0].labels = labels
    timeline: list[dict[str, Any]] = [
        {"at": "10s", "apply": a_job("job", a_template(labels, 4, "2m", "3m"))},
        {"at": "200s", "delete": "GPUWorkloadBudget/lab/batch"},
    ]
    run = play(stage(*budgets), timeline, duration="20m", past=before[:1], start=START)
    assert [stop.unit for stop in run.auditor.stops()] == ["Job/lab/job"]
    assert run.left() == []
    job = run.simulation.server.object("Job", "lab", "job") or {}
    assert job["status"]["succeeded"] == 1


def test_uninstalling_leaves_nothing() -> None:
    leave = {"at": "195s", "stopOperator": "operator-1"}
    run = dense(more=[leave], acts=[(200, by_admin(uninstalled))], duration="240s")
    assert run.left() == []
    assert not run.objects("BudgetIndex")
    assert not run.objects("MutatingAdmissionPolicy")
    assert not run.objects("ValidatingAdmissionPolicyBinding")
    waited = [life for life in run.auditor.lives.values() if life.gated and life.going is None]
    assert waited
    assert all(life.released is not None for life in waited)


# --- grace ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed", [False, True], ids=["in peace", "killed in between"])
def test_grace_counts_from_when_the_quota_was_reached(killed: bool) -> None:
    budget = a_budget("vision", "2", "100% Evict", window=1, enforcement=BRIEF | {"gracePeriodSeconds": 60})
    timeline: list[dict[str, Any]] = [{"at": "10s", "apply": a_pod("one", a_template(VISION_LABELS, 8))}]
    timeline += [{"at": "100s", "killOperator": "operator-1"}] if killed else []
    run = play(stage(budget), timeline, duration="4m", past=past(minutes_ago=15), start=START)

    (stop,) = run.auditor.stops()
    ((reached, _),) = run.auditor.exceeded["lab/vision"]
    assert 60_000 <= stop.at - reached < 63_000
    assert Judge(run.auditor, [ledger_of(budget, set())], (CAPS.cluster, CAPS.namespace)).problems() == []
