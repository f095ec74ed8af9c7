"""No eviction without cause: lengths from the pod's start, prices of the window, dollars that are known, rates that are counted."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.core.budgets import prospect
from headroom.model import conditions
from headroom.model.actions import Action, ApplyBudgetHold, EvictPod, PausePod, SuspendOwner
from headroom.model.decisions import Ref
from headroom.model.facts import Pod, Shape
from headroom.model.times import HOUR, MINUTE, SECOND
from headroom.model.usage import UsageRow
from tests.builders import NOON
from tests.core.stage import TEAM, Stage, a_budget, gated, of_job, running

GPU = 1_000_000
REF = Ref("GPUWorkloadBudget", "team-a", "one")


def evicted(actions: list[Action]) -> list[str]:
    return [each.pod.partition("/")[2] for each in actions if isinstance(each, EvictPod)]


def a_row(pod: Pod | str, begin: int, end: int | None = None, **fields: Any) -> UsageRow:
    """What the ledger has of a pod, from so long before noon, to so long before noon."""
    name = pod if isinstance(pod, str) else pod.name
    start = NOON - begin
    closed = None if end is None else NOON - end
    base: dict[str, Any] = {"cluster": "default", "uid": f"uid-{name}", "namespace": "team-a", "pod": name}
    base |= {"amounts": (("nvidia.com/gpu", GPU),) if isinstance(pod, str) else pod.shape.requests, "labels": TEAM}
    known = {"start": start, "earliest": start, "seen_until": start if closed is None else closed, "gone_by": closed}
    return UsageRow(**base | known | fields)


def staged(*pods: Pod, rows: tuple[UsageRow, ...] = (), **more: Any) -> Stage:
    stage = Stage(more.pop("budget"), pods=pods, **more)
    stage.rows = {row.key: row for row in rows}
    return stage


# --- lengths ----------------------------------------------------------------------------------------------------------------------


def splits(pod: Pod) -> dict[str, tuple[UsageRow, ...]]:
    """The rows of a pod that runs for ten hours, cut an hour ago for one reason or another."""
    half = tuple((name, amount // 2) for name, amount in pod.shape.requests)
    return {
        "nothing": (a_row(pod, 10 * HOUR),),
        "price": (a_row(pod, 10 * HOUR, HOUR, price=8 * GPU), a_row(pod, HOUR, price=9 * GPU)),
        "label": (a_row(pod, 10 * HOUR, HOUR, labels=(("more", "x"), *TEAM)), a_row(pod, HOUR)),
        "share of a claim": (a_row(pod, 10 * HOUR, HOUR, amounts=half), a_row(pod, HOUR)),
        "many": tuple(a_row(pod, (10 - n) * HOUR, (9 - n) * HOUR or None, price=n * GPU) for n in range(10)),
    }


@pytest.mark.parametrize(
    ("split", "hours"),
    [("nothing", "95.5"), ("price", "95.5"), ("label", "95.5"), ("share of a claim", "59.5"), ("many", "95.5")],
)
def test_a_split_row_does_not_restart_the_declared_length(split: str, hours: str) -> None:
    """Over quota by what leaves the window soon: a pod that ends in half an hour is enough, so nothing goes."""
    pod = running("train", 10 * HOUR, gpus=8, deadline=10 * HOUR + 30 * MINUTE)
    old = a_row("old", 24 * HOUR, 20 * HOUR, amounts=(("nvidia.com/gpu", 4 * GPU),))
    stage = staged(pod, rows=(old, *splits(pod)[split]), budget=a_budget(hours=hours))
    assert evicted(stage.look()) == []
    found = prospect(stage.world(), stage.budgets[REF])
    assert found.recovers_at is not None
    assert found.recovers_at < NOON + 2 * HOUR


def test_without_a_length_it_goes() -> None:
    pod = running("train", 10 * HOUR, gpus=8)
    old = a_row("old", 24 * HOUR, 20 * HOUR, amounts=(("nvidia.com/gpu", 4 * GPU),))
    stage = staged(pod, rows=(old, *splits(pod)["price"]), budget=a_budget(hours="95.5"))
    assert evicted(stage.look()) == ["train"]


def test_a_length_counts_from_the_start_that_restarts_have_hidden() -> None:
    """The kubelet counts from when it took the pod on, however often its containers began anew, and the ledger may know less."""
    pod = running("train", HOUR, gpus=8, deadline=10 * HOUR + 30 * MINUTE, created=NOON - 10 * HOUR)
    pod = structs.replace(pod, started_after=NOON - 10 * HOUR)
    old = a_row("old", 24 * HOUR, 15 * HOUR, amounts=(("nvidia.com/gpu", 4 * GPU),))
    assert evicted(staged(pod, rows=(old, a_row(pod, HOUR)), budget=a_budget(hours="43.5")).look()) == []


@pytest.mark.parametrize("split", ["price", "label", "many"])
def test_a_length_counts_from_the_start_that_only_the_ledger_knows(split: str) -> None:
    """Of containers that began anew the pod tells no older start, and a cut row begins later still."""
    pod = running("train", HOUR // 2, gpus=8, deadline=10 * HOUR + 30 * MINUTE, created=NOON - 10 * HOUR)
    old = a_row("old", 24 * HOUR, 20 * HOUR, amounts=(("nvidia.com/gpu", 4 * GPU),))
    stage = staged(pod, rows=(old, *splits(pod)[split]), budget=a_budget(hours="95.5"))
    assert evicted(stage.look()) == []


def test_a_declared_word_counts_from_the_start_too() -> None:
    word = ((marks.EXPECTED_DURATION, "10h30m"),)
    pod = running("train", 10 * HOUR, gpus=8, annotations=word)
    old = a_row("old", 24 * HOUR, 20 * HOUR, amounts=(("nvidia.com/gpu", 4 * GPU),))
    rows = (old, *splits(pod)["price"])
    assert evicted(staged(pod, rows=rows, budget=a_budget(hours="95.5")).look()) == []


def test_a_pod_that_ends_just_now_is_not_evicted_even_where_all_others_are() -> None:
    """The kubelet is about to end it: nothing is won by evicting it."""
    over = running("over", 10 * HOUR, deadline=10 * HOUR - SECOND)
    stage = Stage(a_budget(hours="1"), pods=[over, running("endless", 10 * HOUR)])
    assert evicted(stage.look()) == ["endless"]
    again = Stage(a_budget(hours="1"), pods=[over])
    assert evicted(again.look()) == []


def test_a_length_that_nobody_keeps_is_not_believed() -> None:
    over = running("over", 10 * HOUR, deadline=9 * HOUR)
    assert evicted(Stage(a_budget(hours="1"), pods=[over]).look()) == ["over"]


# --- prices -----------------------------------------------------------------------------------------------------------------------


def queued(*rows: UsageRow) -> Any:
    """What becomes of a pod of one GPU that waits under a quota of 100 dollars a day."""
    budget = a_budget(enforce="Hold", hours=None, quota={"usd": "100", "gpuHours": None})
    stage = staged(gated("new"), rows=rows, budget=budget)
    stage.look()
    held = stage.status().held
    return "Released" if held is None else held.queue[0].state


def test_a_price_outside_the_window_makes_nothing_too_dear() -> None:
    cheap = a_row("cheap", 11 * HOUR, 10 * HOUR, price=2 * GPU)
    assert queued(cheap) == "Releasing"
    assert queued(cheap, a_row("typo", 35 * HOUR, 35 * HOUR - MINUTE, price=1000 * GPU)) == "Releasing"
    assert queued(cheap, a_row("edge", 25 * HOUR, 24 * HOUR, price=1000 * GPU)) == "Releasing"


def test_a_price_inside_the_window_counts() -> None:
    cheap = a_row("cheap", 11 * HOUR, 10 * HOUR, price=2 * GPU)
    assert queued(cheap, a_row("dear", 25 * HOUR, 24 * HOUR - 1, price=1000 * GPU)) == "NeverFits"


def test_a_price_paid_now_counts_from_its_first_moment() -> None:
    runs = running("dear", 0)
    budget = a_budget(enforce="Hold", hours=None, quota={"usd": "100", "gpuHours": None})
    stage = staged(runs, gated("new"), rows=(a_row(runs, 0, price=1000 * GPU),), budget=budget)
    stage.look()
    assert stage.status().held.queue[0].state == "NeverFits"


# --- dollars ----------------------------------------------------------------------------------------------------------------------

USD = {"usd": "10", "gpuHours": None}


def in_dollars(unpriced: int, *pods: Pod, enforce: Any = "Evict", **quota: Any) -> Stage:
    """A budget of 10 dollars, of which 12 are spent by a pod of 100 hours of GPU time; beside it so many minutes without a price."""
    amounts = (("nvidia.com/gpu", 100 * GPU),)
    spent = a_row("spent", 2 * HOUR, HOUR, price=12 * GPU, amounts=amounts)
    unknown = a_row("unknown", 2 * HOUR, 2 * HOUR - unpriced)
    runs = running("runs", 0)
    rows = (spent, unknown, a_row(runs, 0, price=GPU))
    budget = a_budget(hours=None, enforce=enforce, quota=USD | quota)
    return staged(runs, *pods, rows=rows if unpriced else (spent, a_row(runs, 0, price=GPU)), budget=budget)


def blocked(stage: Stage) -> tuple[str, str, str]:
    found = conditions.find(stage.status().conditions, "EnforcementBlocked")
    assert found is not None
    return found.status, found.reason, found.message


def test_dollars_evict_where_all_has_a_price() -> None:
    stage = in_dollars(0)
    assert evicted(stage.look()) == ["runs"]


def test_dollars_evict_while_one_per_cent_has_no_price_and_no_more() -> None:
    """100 hours with a price: one per cent of the whole is 100/99 hours."""
    exactly = -(-HOUR * 100 // 99) - 1
    assert evicted(in_dollars(exactly).look()) == ["runs"]
    stage = in_dollars(exactly + 1)
    assert evicted(stage.look()) == []
    status, reason, message = blocked(stage)
    assert (status, reason) == ("True", "PriceUnknown")
    assert message.startswith("1.1% of the GPU time in the window has no price.")


@pytest.mark.parametrize("enforce", ["Evict", "Suspend", ["50% Suspend", "100% Evict"]])
def test_nothing_is_stopped_for_dollars_that_are_not_known(enforce: Any) -> None:
    job = running("job", 0, owner=of_job("fit"))
    stage = in_dollars(30 * HOUR // 10, job, enforce=enforce)
    assert [each for each in stage.look() if isinstance(each, EvictPod | SuspendOwner)] == []
    assert stage.status().victim is None
    assert stage.status().steps  # it stands, and says so
    assert blocked(stage)[1] == "PriceUnknown"


def test_a_hold_and_a_pause_stand_on_dollars_all_the_same() -> None:
    stage = in_dollars(3 * HOUR, enforce=["80% Pause", "90% Hold", "100% Evict"])
    done = stage.look()
    assert {type(each) for each in done} == {PausePod, ApplyBudgetHold}


def test_gpu_hours_evict_even_where_dollars_may_not() -> None:
    stage = in_dollars(3 * HOUR, gpuHours="90")
    assert evicted(stage.look()) == ["runs"]
    assert blocked(stage)[1] != "PriceUnknown"


def test_dollars_do_not_make_gpu_hours_take_more_than_they_need() -> None:
    """GPU-hours are below their step soon by themselves; only dollars, which are not known, would want more."""
    old = a_row("old", 24 * HOUR, 20 * HOUR, amounts=(("nvidia.com/gpu", 50 * GPU),))
    runs = running("runs", HOUR)
    unknown = a_row("unknown", 2 * HOUR, HOUR, amounts=(("nvidia.com/gpu", 100 * GPU),))
    rows = (old, unknown, a_row(runs, HOUR, price=100 * GPU))
    quota = {"usd": "10", "gpuHours": "300"}
    assert evicted(staged(runs, rows=rows, budget=a_budget(quota=quota)).look()) == []


def test_a_price_that_becomes_unknown_lets_the_victim_go_on() -> None:
    """Between the choice and the next look more time without a price came to light."""
    stage = in_dollars(0)
    before = dict(stage.pods)
    assert evicted(stage.look()) == ["runs"]
    stage.pods = before
    stage.rows = {row.key: row for row in in_dollars(3 * HOUR).rows.values()}
    assert evicted(stage.look()) == []
    assert stage.status().victim is None


def test_hours_leave_the_window_and_dollars_count_again() -> None:
    stage = in_dollars(3 * HOUR, running("more", 0))
    assert evicted(stage.look()) == []
    row = a_row("late", 60_000, price=2000 * GPU, amounts=(("nvidia.com/gpu", GPU),))
    stage.rows = {each.key: each for each in stage.rows.values() if each.pod != "unknown"} | {row.key: row}
    assert evicted(stage.look()) != []


def test_what_has_no_price_is_not_stopped_for_dollars() -> None:
    """Dollars cannot be saved by it, even where nothing that can be stopped is enough."""
    free, dear = running("free", 0), running("dear", 0)
    spent = a_row("spent", 2 * HOUR, HOUR, price=12 * GPU, amounts=(("nvidia.com/gpu", 100 * GPU),))
    rows = (spent, a_row(dear, 0, price=GPU))
    stage = staged(free, dear, rows=rows, budget=a_budget(hours=None, quota=USD))
    stage.look()
    stage.pass_time(3 * MINUTE, every=7 * SECOND)
    assert evicted([each for _, each in stage.done]) == ["dear"]
    assert blocked(stage)[1] == "NothingToStop"


def test_a_victim_that_the_sums_do_not_count_any_more_goes_on() -> None:
    """A claim of some other device lets a pod look like one GPU, which no row of it says."""
    pod = running("p", 2 * HOUR)
    stage = staged(pod, running("q", 200 * HOUR), budget=a_budget(hours="1"))
    stage.look()
    taken = stage.status().victim
    assert taken is not None
    uid = taken.uids[0]
    claimed = structs.replace(pod, uid=uid, name=taken.unit.rpartition("/")[2], shape=Shape(), claims=("nic",))
    stage.pods = {uid: claimed}
    stage.rows = {key: row for key, row in stage.rows.items() if row.uid != uid}
    stage.rows |= {row.key: row for row in (a_row("done", 3 * HOUR, HOUR, uid="uid-done"),)}
    assert evicted(stage.look()) == []
    assert stage.status().victim is None


# --- what was true before ---------------------------------------------------------------------------------------------------------


def test_grace_does_not_count_from_a_step_that_ended_while_the_budget_was_paused() -> None:
    """Over quota, paused, below it for a day, over it again, and resumed a moment later: the grace begins anew."""
    stage = Stage(a_budget(hours="5", grace=600), pods=[running("first", 6 * HOUR)])
    assert stage.look() == []
    paused(stage, True)
    stage.pass_time(MINUTE)
    stage.pods["uid-first"] = structs.replace(
        stage.pods["uid-first"], phase="Succeeded", ended=stage.now, ended_by="ContainerFinish"
    )
    stage.pass_time(30 * HOUR, every=HOUR)
    assert stage.status().steps == ()
    again = running("again", 0, gpus=60, started=stage.now, created=stage.now)
    stage.pods[again.uid] = again
    stage.pass_time(6 * MINUTE, every=MINUTE)
    assert stage.status().steps
    paused(stage, False)
    assert evicted(stage.pass_time(5 * MINUTE, every=MINUTE)) == []
    assert evicted(stage.pass_time(6 * MINUTE, every=MINUTE)) == ["again"]


def paused(stage: Stage, is_paused: bool) -> None:
    budget = stage.budgets[REF]
    stage.budgets[REF] = structs.replace(budget, spec=structs.replace(budget.spec, paused=is_paused))


def test_a_victim_that_was_chosen_before_a_pause_is_judged_anew() -> None:
    stage = Stage(a_budget(hours="5"), pods=[running("p", 6 * HOUR)])
    kept, rows = dict(stage.pods), None
    stage.world()
    rows = dict(stage.rows)
    stage.look()
    stage.pods, stage.rows, stage.evicted = kept, rows, {}
    paused(stage, True)
    assert stage.pass_time(MINUTE) == []
    stage.budgets[REF] = structs.replace(stage.budgets[REF], spec=a_budget(hours="50").spec)
    assert stage.pass_time(MINUTE) == []
    assert stage.status().victim is None


@pytest.mark.parametrize("change", ["selector", "quota", "resource"])
def test_a_victim_of_a_budget_that_was_changed_goes_on(change: str) -> None:
    stage = Stage(
        a_budget(hours="5"), pods=[running("p", 6 * HOUR), running("other", 9 * HOUR, labels=(("team", "b"),))]
    )
    kept = dict(stage.pods)
    stage.world()
    rows = dict(stage.rows)
    assert evicted(stage.look()) == ["p"]
    stage.pods, stage.rows, stage.evicted = kept, rows, {}
    spec = {
        "selector": a_budget(hours="500", selector={"matchLabels": {"team": "b"}}).spec,
        "quota": a_budget(hours="500").spec,
        "resource": a_budget(hours="500", gpuResourceName="amd.com/gpu").spec,
    }[change]
    stage.budgets[REF] = structs.replace(stage.budgets[REF], spec=spec, generation=2)
    assert evicted(stage.pass_time(SECOND)) == []
    assert stage.status().victim is None


def test_what_may_have_been_used_evicts_nothing() -> None:
    """Only what is certain counts: the pod that nobody saw end may have used 20 hours more."""
    unsure = a_row("gone", 23 * HOUR, uid="uid-gone", seen_until=NOON - 22 * HOUR, gone_by=NOON - 2 * HOUR)
    stage = staged(running("p", HOUR), rows=(unsure,), budget=a_budget(hours="10"))
    assert evicted(stage.look()) == []
    assert float(stage.status().upper_gpu_hours) == 22
    assert float(stage.status().consumed_gpu_hours) == 2


def test_rows_that_have_left_the_window_evict_nothing() -> None:
    old = a_row("old", 60 * HOUR, 24 * HOUR, amounts=(("nvidia.com/gpu", 100 * GPU),))
    assert evicted(staged(running("p", HOUR), rows=(old,), budget=a_budget(hours="2")).look()) == []


def test_a_pod_of_another_cluster_is_no_victim() -> None:
    """The ledger is shared, and the uid may be that of a pod here that nobody counts."""
    theirs = a_row("p", 20 * HOUR, cluster="west", uid="uid-p")
    here = running("p", 0, labels=(("team", "b"),))
    stage = staged(here, rows=(theirs,), budget=a_budget(hours="5"))
    assert evicted(stage.look()) == []
    assert float(stage.status().consumed_gpu_hours) == 0
