"""What a request released is bound to what was judged then, by the same rule as what was released by its turn."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.core.budgets import PLAN, REQUESTS
from headroom.core.budgets.accounts import BudgetAccount
from headroom.core.budgets.records import record
from headroom.core.budgets.requests import TAKEN_MS
from headroom.core.budgets.waiting import Demand
from headroom.model.actions import EvictPod, ReleasePod, ResumeOwner
from headroom.model.changes import EVERYTHING, Changes
from headroom.model.facts import Owner, Pod, Workload, WorkloadPart
from headroom.model.resource_table import ResourceTable
from headroom.model.times import HOUR, MINUTE, SECOND
from headroom.model.world import World, ref_of
from tests.builders import NOON, a_claim
from tests.builders import a_request as devices
from tests.core.stage import TEAM, Stage, a_budget, gated, of_job, running
from tests.core.test_holding import DONE, KEY
from tests.core.test_requests import a_request, held

BUDGET = a_budget(hours="18", enforce="Hold")
"""It is over quota, so nothing is released by its turn."""
BY = f"GPUWorkloadBudget/{KEY}"


class Asking(Stage):
    """A stage on which both plans decide: requests are carried out, and the budget sees what they released."""

    def __init__(self, *requests: AnyResource, pods: tuple[Pod, ...] = (), budget: Any = BUDGET, **more: Any) -> None:
        super().__init__(budget, pods=(DONE, *pods), holds=held(budget), **more)
        self.requests = {ref_of(each): each for each in requests}

    def world(self) -> World:
        world = super().world()
        return structs.replace(world, resources=ResourceTable({**world.resources, **self.requests}))

    def ask(self, *, does: bool = True) -> None:
        """Decide on the requests, write their statuses, and release."""
        for each in REQUESTS.decide(self.world(), EVERYTHING):
            request = self.requests[each.resource] = structs.replace(self.requests[each.resource], status=each.status)
            for action in each.actions if does else ():
                if isinstance(action, ReleasePod | ResumeOwner):
                    self._do(action, request)

    def carry_out(self) -> None:
        """From the request to the status of its budget, which the request then need not remember."""
        self.ask()
        self.ask()
        assert {each.status.phase for each in self.requests.values()} == {"Done"}
        assert self.look() == []

    def come(self, *pods: Pod) -> list[str]:
        """Whom of these pods the operator lets start."""
        self.pods |= {pod.uid: pod for pod in pods}
        done = self.pass_time(10 * SECOND)
        return [each.pod.partition("/")[2] for each in done if isinstance(each, ReleasePod)]

    def place(self, name: str, **fields: Any) -> None:
        """As a pod is now that was released: nothing has placed it yet, unless `fields` say so."""
        unplaced: dict[str, Any] = {"started": None, "node": "", "phase": "Pending"}
        self.pods[f"uid-{name}"] = structs.replace(self.pods[f"uid-{name}"], **unplaced | fields)


def claimed(count: int, **fields: Any) -> dict[str, Any]:
    claim = a_claim(requests=(devices(count=count),), **{"created": NOON - HOUR} | fields)
    return {claim.key: claim}


def of_claim(name: str = "dra", **fields: Any) -> Pod:
    return gated(name, gpus=0, claims=("claim",), resource_version="7", **fields)


def ranks(*names: str, gpus: int = 5, owner: Owner | None = None, **fields: Any) -> tuple[Pod, ...]:
    return tuple(gated(name, gpus=gpus, owner=owner or of_job("fit"), **fields) for name in names)


def back(name: str) -> EvictPod:
    return EvictPod(pod=f"team-a/{name}", uid=f"uid-{name}", resource_version="7", grace_seconds=30)


# --- claims that grow -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [None, of_job("j"), of_job("w", "ReplicaSet")], ids=["bare", "Job", "ReplicaSet"])
@pytest.mark.parametrize("is_deleted", [False, True], ids=["", "request deleted"])
def test_a_pod_whose_claim_grew_after_it_was_asked_for_goes_back(by: Owner | None, *, is_deleted: bool) -> None:
    stage = Asking(a_request(name="dra"), pods=(of_claim(owner=by),), claims=claimed(2))
    stage.carry_out()
    (record,) = stage.status().released
    assert (record.gpus, record.request) == ("2", "team-a/one")
    stage.place("dra")
    if is_deleted:
        stage.requests.clear()
    assert stage.pass_time(MINUTE) == []
    stage.more["claims"] = claimed(8)
    assert stage.pass_time(MINUTE) == [back("dra")]


def test_what_grows_while_it_is_being_released_goes_back() -> None:
    """It is judged before anything is released, and not when the budget first sees what was."""
    stage = Asking(a_request(name="dra"), pods=(of_claim(),), claims=claimed(2))
    stage.ask()
    stage.place("dra")
    stage.more["claims"] = claimed(8)
    stage.ask()
    assert stage.look() == [back("dra")]


def test_a_pod_that_was_placed_with_a_new_and_larger_claim_goes_back_though_it_runs() -> None:
    """kube-scheduler places a pod within milliseconds of its claim."""
    stage = Asking(a_request(name="dra"), pods=(of_claim(),), claims=claimed(2))
    stage.carry_out()
    stage.more["claims"] = claimed(8, created=stage.now + SECOND)
    assert stage.pass_time(MINUTE) == [back("dra")]


def test_a_pod_that_runs_with_the_claim_that_was_judged_stays() -> None:
    """Though it counts for more by now: whoever changes what a device counts for stops nothing that runs."""
    stage = Asking(a_request(name="dra"), pods=(of_claim(),), claims=claimed(2))
    stage.carry_out()
    stage.more["claims"] = claimed(8)
    assert stage.pass_time(MINUTE) == []


def test_of_several_pods_the_one_goes_back_whose_claim_grew() -> None:
    pods = tuple(
        gated(name, gpus=0, claims=(name,), owner=of_job("j"), resource_version="7", created=NOON - MINUTE + age)
        for age, name in enumerate(("old", "new"))
    )
    claims = claimed(2, name="old") | claimed(2, name="new")
    stage = Asking(a_request("Job", "j"), pods=pods, claims=claims)
    stage.carry_out()
    stage.place("old")
    stage.place("new")
    stage.more["claims"] = claims | claimed(8, name="old", created=stage.now + SECOND)
    assert stage.pass_time(MINUTE) == [back("old")]


def test_it_goes_back_however_long_it_was_kept_from_being_placed() -> None:
    stage = Asking(a_request(name="dra"), pods=(of_claim(),), claims=claimed(2))
    stage.carry_out()
    stage.place("dra")
    stage.requests.clear()
    stage.pass_time(3 * HOUR, every=10 * MINUTE)
    stage.more["claims"] = claimed(8)
    assert stage.pass_time(MINUTE) == [back("dra")]


def test_pods_that_ran_before_the_hold_are_none_of_what_was_released() -> None:
    ran = running("ran", 5 * MINUTE, gpus=4, owner=of_job("j"))
    stage = Asking(a_request("Job", "j"), pods=(of_claim(owner=of_job("j")), ran), claims=claimed(2))
    stage.carry_out()
    stage.place("dra")
    assert stage.pass_time(MINUTE) == []


def test_many_releases_do_not_make_it_forget_what_may_still_grow() -> None:
    stage = Asking(a_request(name="dra"), pods=(of_claim(),), claims=claimed(2))
    stage.carry_out()
    stage.place("dra")
    stage.requests.clear()
    ref, budget = next(iter(stage.budgets.items()))
    others = [structs.replace(budget.status.released[0], uid=f"u{n}", owner=f"Job/team-a/{n}") for n in range(300)]
    later = [structs.replace(each, at=each.until, request="") for each in others]
    status = structs.replace(budget.status, released=(*later, *budget.status.released))
    stage.budgets[ref] = structs.replace(budget, status=status)
    stage.pass_time(MINUTE)
    assert len(stage.status().released) < 300
    stage.more["claims"] = claimed(8)
    assert stage.pass_time(MINUTE) == [back("dra")]


# --- owners that grow -------------------------------------------------------------------------------------------------------------


def test_more_parallelism_than_was_asked_for_waits_and_a_failed_rank_is_replaced() -> None:
    stage = Asking(a_request("Job", "fit"), pods=ranks("f0", "f1"))
    stage.carry_out()
    assert stage.come(*ranks("f2", "f3", created=stage.now)) == []
    stage.place("f0", phase="Failed", ended=stage.now, ended_by="ContainerFinish")
    assert stage.come(*ranks("f4", "f5", created=stage.now)) == ["f2"]


def test_a_rank_that_is_made_anew_and_larger_waits() -> None:
    stage = Asking(a_request("Job", "fit"), pods=ranks("f0"))
    stage.carry_out()
    del stage.pods["uid-f0"]
    assert stage.come(*ranks("f0b", gpus=6, created=stage.now)) == []
    assert stage.come(*ranks("f0c", gpus=5, created=stage.now)) == ["f0c"]


def test_a_job_that_is_made_anew_under_the_same_name_gets_nothing_of_it() -> None:
    stage = Asking(a_request("Job", "fit"), pods=ranks("f0", "f1"))
    stage.carry_out()
    del stage.pods["uid-f0"], stage.pods["uid-f1"]
    assert stage.come(*ranks("f0b", owner=Owner("Job", "fit", "uid-another", "batch"), created=stage.now)) == []


def test_a_request_that_is_made_anew_gives_nothing_twice() -> None:
    stage = Asking(a_request("Job", "fit"), pods=ranks("f0", "f1"))
    stage.carry_out()
    again = structs.replace(a_request("Job", "fit"), created=stage.now, uid="again")
    stage.requests = {ref_of(again): again}
    stage.ask()
    assert stage.requests[ref_of(again)].status.phase == "Pending"
    stage.now += 3 * SECOND
    stage.ask()
    stage.look()
    assert stage.requests[ref_of(again)].status.reason == "NothingQueued"
    assert [each.gpus for each in stage.status().released] == ["10"]


def test_two_who_ask_for_the_same_have_it_released_once() -> None:
    other = structs.replace(a_request("Job", "fit"), name="two", uid="two")
    stage = Asking(a_request("Job", "fit"), other, pods=ranks("f0", "f1"))
    stage.carry_out()
    assert [each.gpus for each in stage.status().released] == ["10"]
    assert stage.come(*ranks("f2", created=stage.now)) == []


def test_what_is_asked_for_as_its_turn_comes_is_released_once() -> None:
    stage = Asking(a_request("Job", "fit"), pods=ranks("f0", "f1"), budget=a_budget(hours="60", enforce=["10% Hold"]))
    stage.ask(does=False)
    assert len(stage.look()) == 2, "it is its turn"
    stage.ask()
    stage.look()
    assert [(each.gpus, each.request) for each in stage.status().released] == [("10", "")]


def test_single_pods_of_a_job_that_are_asked_for_add_up() -> None:
    requests = [structs.replace(a_request(name=name), name=name, uid=name) for name in ("f0", "f1")]
    stage = Asking(*requests, pods=ranks("f0", "f1"))
    stage.carry_out()
    assert [each.gpus for each in stage.status().released] == ["5", "5"]
    del stage.pods["uid-f0"], stage.pods["uid-f1"]
    assert stage.come(*ranks("g0", "g1", "g2", created=stage.now)) == ["g0", "g1"]


def test_only_the_budget_that_is_asked_takes_note() -> None:
    quiet = structs.replace(a_budget("two", hours="1000", enforce="Hold"), uid="two")
    stage = Asking(a_request("Job", "fit", budget=KEY), pods=ranks("f0"))
    stage.budgets |= Stage(quiet).budgets
    stage.carry_out()
    assert (len(stage.status().released), stage.status("two").released) == (1, ())


# --- an owner that is resumed -----------------------------------------------------------------------------------------------------


def suspended(**fields: Any) -> Workload:
    part = WorkloadPart(labels=TEAM, requests=(("nvidia.com/gpu", 5_000_000),), count=2)
    base: dict[str, Any] = {"namespace": "team-a", "name": "fit", "created": NOON - HOUR, "parts": (part,)}
    return Workload(kind="Job", uid="uid-fit", **base | {"suspended": True, "suspended_by": BY} | fields)


def test_an_owner_is_judged_when_it_is_asked_for_and_not_when_it_is_seen_to_go_on() -> None:
    stage = Asking(a_request("Job", "fit"), workloads={"Job/team-a/fit": suspended()})
    stage.ask()
    larger = (structs.replace(suspended().parts[0], requests=(("nvidia.com/gpu", 50_000_000),)),)
    grown = suspended(suspended=False, suspended_by="", released_at=stage.now, is_as_released=True, parts=larger)
    stage.workloads[grown.key] = grown
    stage.look()
    stage.ask()
    stage.look()
    assert [(each.owner, each.gpus) for each in stage.status().released] == [("Job/team-a/fit", "10")]
    assert stage.come(*ranks("f0", "f1", "f2", created=stage.now)) == ["f0", "f1"]


def test_an_owner_that_was_released_a_moment_ago_is_released_once() -> None:
    """It had its turn, was suspended again, and is asked for."""
    stage = Asking(a_request("Job", "fit"), workloads={"Job/team-a/fit": suspended()})
    ref, budget = next(iter(stage.budgets.items()))
    account = BudgetAccount(stage.world(), budget)
    demand = Demand(account=KEY, rate=10_000_000, price=0, length=HOUR, is_declared=False)
    before = record(account, ("Job/team-a/fit", "uid-fit"), demand, NOON - SECOND)
    stage.budgets[ref] = structs.replace(budget, status=structs.replace(budget.status, released=(before,)))
    stage.ask()
    stage.ask()
    stage.look()
    assert [(each.gpus, each.request) for each in stage.status().released] == [("10", "")]


@pytest.mark.parametrize(("pods", "gone"), [(2, False), (3, True)])
def test_an_owner_that_has_more_than_was_judged_is_suspended_again(pods: int, *, gone: bool) -> None:
    """Nothing holds its pods: only what was judged is left alone for the horizon."""
    budget = a_budget(hours="18", enforce="Suspend")
    stage = Asking(a_request("Job", "fit"), workloads={"Job/team-a/fit": suspended()}, budget=budget)
    stage.holds.clear()
    stage.ask()
    free = suspended(suspended=False, suspended_by="", released_at=stage.now, is_as_released=True)
    stage.workloads[free.key] = free
    stage.ask()
    stage.look()
    changed = structs.replace(free, is_as_released=pods == 2)
    stage.workloads[free.key] = changed
    for number in range(pods):
        pod = running(f"f{number}", 0, gpus=5, owner=of_job("fit"), started=stage.now, created=stage.now)
        stage.pods[pod.uid] = pod
    stage.pass_time(10 * MINUTE, every=MINUTE)
    assert ("uid-f0" not in stage.pods) == gone


def test_an_owner_that_was_changed_before_anybody_saw_it_go_on_is_not_left_alone() -> None:
    free = suspended(suspended=False, suspended_by="", released_at=NOON - SECOND)
    pod = running("f0", 0, gpus=5, owner=of_job("fit"))
    stage = Stage(a_budget(hours="18", enforce="Suspend"), pods=(DONE, pod), workloads={free.key: free})
    stage.pass_time(10 * MINUTE, every=MINUTE)
    assert "uid-f0" not in stage.pods


# --- where it is remembered -------------------------------------------------------------------------------------------------------


def test_the_request_forgets_what_its_budget_remembers() -> None:
    stage = Asking(a_request("Job", "fit"), pods=ranks("f0"))
    stage.carry_out()
    (request,) = stage.requests.values()
    assert [(each.budget, each.release.gpus) for each in request.status.released] == [(KEY, "5")]
    stage.now += TAKEN_MS
    stage.ask()
    (request,) = stage.requests.values()
    assert request.status.released == ()
    stage.look()
    assert len(stage.status().released) == 1


def test_a_paused_budget_remembers_it_too() -> None:
    paused = structs.replace(BUDGET, spec=structs.replace(BUDGET.spec, paused=True))
    stage = Asking(a_request("Job", "fit"), pods=ranks("f0"), budget=paused)
    stage.ask()
    stage.ask()
    stage.look()
    assert [each.gpus for each in stage.status().released] == ["5"]


def test_what_could_not_be_carried_out_gives_nothing() -> None:
    stage = Asking(a_request("Job", "fit"), pods=ranks("f0"))
    stage.ask(does=False)
    stage.now += HOUR
    stage.ask(does=False)
    (request,) = stage.requests.values()
    assert (request.status.reason, request.status.released) == ("Expired", ())
    assert stage.look() == []
    assert marks.GATE in stage.pods["uid-f0"].gates


def test_the_budget_is_asked_when_a_request_is_written() -> None:
    stage = Asking(a_request("Job", "fit"), pods=ranks("f0"))
    stage.ask()
    stage.ask()
    (ref,) = stage.requests
    assert ref.kind in PLAN.parts
    (decision,) = PLAN.decide(stage.world(), Changes(resources={ref}))
    status: Any = decision.status
    assert len(status.released) == 1
