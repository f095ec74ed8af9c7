"""No eviction without cause: lengths from the pod's start, prices of the window."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.core.budgets import prospect
from headroom.model.actions import Action, EvictPod
from headroom.model.decisions import Ref
from headroom.model.facts import Pod
from headroom.model.times import HOUR, MINUTE
from headroom.model.usage import Row
from tests.builders import NOON
from tests.core.stage import TEAM, Stage, a_budget, gated, running

GPU = 1_000_000
REF = Ref("GPUWorkloadBudget", "team-a", "one")


def evicted(actions: list[Action]) -> list[str]:
    return [each.pod.partition("/")[2] for each in actions if isinstance(each, EvictPod)]


def a_row(pod: Pod | str, begin: int, end: int | None = None, **fields: Any) -> Row:
    """What the ledger has of a pod, from so long before noon, to so long before noon."""
    name = pod if isinstance(pod, str) else pod.name
    start = NOON - begin
    closed = None if end is None else NOON - end
    base: dict[str, Any] = {"cluster": "default", "uid": f"uid-{name}", "namespace": "team-a", "pod": name}
    base |= {"amounts": (("nvidia.com/gpu", GPU),) if isinstance(pod, str) else pod.shape.requests, "labels": TEAM}
    known = {"start": start, "earliest": start, "seen_until": start if closed is None else closed, "gone_by": closed}
    return Row(**base | known | fields)


def staged(*pods: Pod, rows: tuple[Row, ...] = (), **more: Any) -> Stage:
    stage = Stage(more.pop("budget"), pods=pods, **more)
    stage.rows = {row.key: row for row in rows}
    return stage


# --- lengths ----------------------------------------------------------------------------------------------------------------------


def splits(pod: Pod) -> dict[str, tuple[Row, ...]]:
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


def test_a_declared_word_counts_from_the_start_too() -> None:
    word = ((marks.EXPECTED_DURATION, "10h30m"),)
    pod = running("train", 10 * HOUR, gpus=8, annotations=word)
    old = a_row("old", 24 * HOUR, 20 * HOUR, amounts=(("nvidia.com/gpu", 4 * GPU),))
    rows = (old, *splits(pod)["price"])
    assert evicted(staged(pod, rows=rows, budget=a_budget(hours="95.5")).look()) == []


# --- prices -----------------------------------------------------------------------------------------------------------------------


def queued(*rows: Row) -> Any:
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
