"""While a hold stands, a pod behind the gate of somebody else is queued like any other: whoever set its last gate does not lift it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.core.budgets.explaining import explained
from headroom.model import conditions
from headroom.model.actions import ReleasePod, ResumeOwner, SuspendOwner
from headroom.model.decisions import Ref
from headroom.model.device_facts import DeviceClass
from headroom.model.devices import DeviceTable
from headroom.model.facts import Pod, Workload, WorkloadPart
from headroom.model.times import HOUR, MINUTE, text
from tests.builders import NOON, a_claim, a_pod, a_request
from tests.core.stage import TEAM, Stage, a_budget, gated, of_job
from tests.core.test_holding import DONE, held_stage, queue, released

LATER, KUEUES = "example.com/later", "kueue.x-k8s.io/admission"


def stocked(name: str = "s", gate: str = LATER, **fields: Any) -> Pod:
    """A pod that a tenant made before the hold, behind a gate of its own."""
    base: dict[str, Any] = {"labels": TEAM, "created": NOON - 5 * HOUR, "gates": (gate,)}
    return a_pod(name, **base | fields)


def full(*pods: Pod, **more: Any) -> Stage:
    return held_stage(a_budget(hours="18", enforce="Hold"), DONE, *pods, **more)


def test_a_stock_of_pods_is_queued_behind_its_own_gates() -> None:
    stage = full(stocked("a", gpus=8), stocked("b", gpus=8, owner=of_job("w", "ReplicaSet")))
    assert stage.look() == []
    assert {name: state for name, (state, _) in queue(stage).items()} == {"a": "Reserved", "b": "Waiting"}
    found = conditions.find(stage.status().conditions, "Holding")
    assert found is not None
    assert "2 pods or gangs are queued" in found.message
    assert "without harm" not in found.message


def test_it_is_released_in_its_turn_and_counts_from_then_on_though_its_gate_is_there() -> None:
    stage = full(stocked("a", gpus=8), gated("b", gpus=8))
    done = stage.pass_time(12 * HOUR + 30 * MINUTE, every=10 * MINUTE)
    assert released(done) == ["a"], "the older one, and no room is left for the other"
    assert stage.pods["uid-a"].gates == (LATER,)
    assert queue(stage).keys() == {"b"}


def test_without_a_hold_it_is_nobodys_business() -> None:
    stage = Stage(a_budget(hours="18", enforce=["150% Hold"]), pods=[DONE, stocked()])
    assert stage.look() == []
    assert stage.status().held is None


@pytest.mark.parametrize(
    "pod",
    [
        stocked(labels=(("team", "b"),)),
        stocked(gpus=0),
        stocked(annotations=((marks.PROTECTED, "yes"),)),
        stocked(annotations=((marks.RELEASED_AT, text(NOON)),)),
        stocked(deleting=NOON),
    ],
)
def test_who_does_not_wait(pod: Pod) -> None:
    stage = full(pod)
    assert stage.look() == []
    assert stage.status().held is None


def test_a_gang_behind_different_gates_waits_as_one() -> None:
    pods = [stocked("j-0", owner=of_job("j")), gated("j-1", owner=of_job("j"))]
    stage = full(*pods)
    stage.look()
    (entry,) = stage.status().held.queue
    assert (entry.unit, entry.pods, entry.gpus) == ("Job/team-a/j", 2, "2")


def kueue(**fields: Any) -> Workload:
    part = WorkloadPart(labels=TEAM, requests=(("nvidia.com/gpu", 1_000_000),))
    base: dict[str, Any] = {"namespace": "team-a", "name": "w", "parts": (part,), "owner": "Pod/team-a/s"}
    base["owner_uids"] = ("uid-s",)
    return Workload(kind="Workload", uid="uid-w", **base | fields)


BY = "GPUWorkloadBudget/team-a/one"


@pytest.mark.parametrize(
    ("workload", "waits", "done"),
    [
        (kueue(), [], [SuspendOwner(kind="Workload", object="team-a/w", uid="uid-w")]),
        (kueue(suspended=True, suspended_by=BY), ["Workload/team-a/w"], []),
        (kueue(admitted=True), ["Pod/team-a/s"], []),
        (None, ["Pod/team-a/s"], []),
    ],
    ids=["queued", "inactive", "admitted", "not Kueue's"],
)
def test_a_pod_behind_kueues_gate_waits_once(workload: Workload | None, waits: list[str], done: list[Any]) -> None:
    workloads = {} if workload is None else {"Workload/team-a/w": workload}
    stage = full(stocked(gate=KUEUES), workloads=workloads, kueue=True)
    assert stage.look() == done
    held = stage.status().held
    assert ([each.unit for each in held.queue] if held else []) == waits


def test_a_pod_of_kueues_is_released_so_that_kueue_can_lift_its_gate() -> None:
    stage = held_stage(
        a_budget(hours="30", enforce=["50% Hold"]),
        DONE,
        stocked(gate=KUEUES),
        workloads={"Workload/team-a/w": kueue(admitted=True)},
        kueue=True,
    )
    assert stage.look() == [ReleasePod(pod="team-a/s", uid="uid-s")]
    assert ResumeOwner not in {type(each) for _, each in stage.done}


def with_a_nic() -> Stage:
    """A policy cannot see what a claim is for."""
    nic = DeviceClass(name="nic.example.com", selectors=('device.driver == "nic"',))
    claim = a_claim(requests=(a_request("nic.example.com", 32),))
    return full(stocked(gpus=0, claims=("claim",)), claims={claim.key: claim}, devices=DeviceTable([nic]))


def test_a_covered_pod_that_the_budget_does_not_count_is_released_at_once() -> None:
    assert with_a_nic().look() == [ReleasePod(pod="team-a/s", uid="uid-s")]


def test_nothing_of_a_budget_that_cannot_be_read_is_released() -> None:
    stage = with_a_nic()
    (ref,) = stage.budgets
    stage.budgets[ref] = structs.replace(stage.budgets[ref], spec=None)
    assert stage.look() == []


def test_it_is_told_why_it_waits() -> None:
    stage = full(stocked())
    stage.look()
    statuses = {ref: each.status for ref, each in stage.budgets.items()}
    found = explained(stage.world(), statuses, Ref("Pod", "team-a", "s"))
    assert found is not None
    assert (found.state, found.budget) == ("Held", "team-a/one")
    assert found.sentence.startswith("Pod team-a/s is queued by budget team-a/one: ")
    assert f"scheduling gates of other controllers: {LATER}" in found.details
