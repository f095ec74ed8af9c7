"""Laws of stopping, over random worlds: whatever is evicted or suspended has a cause that can be worked out by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.model.actions import EvictPod, SuspendOwner
from headroom.model.facts import Pod
from headroom.model.times import HOUR, MINUTE, SECOND
from headroom.model.usage import UsageRow
from tests.builders import NOON
from tests.core.stage import Stage, a_budget, of_job, running

GPU = 1_000_000
WINDOW = 24 * HOUR
GROUP = ("scheduling.x-k8s.io/pod-group", "g")


@st.composite
def pods(draw: st.DrawFn, number: int) -> Pod:
    labels = draw(st.sampled_from([(("team", "a"),), (("team", "b"),), (GROUP, ("team", "a"))]))
    since = draw(st.sampled_from([0, MINUTE, HOUR, 5 * HOUR, 30 * HOUR]))
    more: dict[str, Any] = draw(
        st.sampled_from(
            [
                {},
                {"deadline": since + 2 * MINUTE},
                {"deadline": max(since, SECOND)},
                {"phase": "Succeeded", "ended": NOON - since // 2, "ended_by": "ContainerFinish"},
                {"deleting": NOON + SECOND},
                {"annotations": ((marks.PROTECTED, "true"),)},
                {"owner": of_job(f"j{number % 2}")},
                {"phase": "Pending", "started": None, "node": ""},
            ]
        )
    )
    return running(f"p{number}", since, gpus=draw(st.integers(0, 4)), labels=labels, **more)


@st.composite
def rows(draw: st.DrawFn, pod: Pod) -> tuple[UsageRow, ...]:
    """What the ledger has of a pod that is there or not: with a price or without, seen to the end or not."""
    if pod.started is None or not draw(st.booleans()):
        return ()
    price = draw(st.sampled_from([None, 0, GPU, 50 * GPU]))
    uid = draw(st.sampled_from([pod.uid, f"{pod.uid}-before"]))
    begin = pod.started - (0 if uid == pod.uid else draw(st.sampled_from([HOUR, 40 * HOUR])))
    end = None if uid == pod.uid else max(begin, pod.started)
    unsure = end is not None and draw(st.booleans())
    known: dict[str, Any] = {"start": begin, "earliest": begin, "gone_by": end}
    known |= {"seen_until": begin if end is None or unsure else end}
    held: dict[str, Any] = {"amounts": pod.shape.requests, "labels": pod.labels, "price": price}
    return (UsageRow(cluster="default", uid=uid, namespace="team-a", pod=pod.name, **known, **held),)


@st.composite
def stages(draw: st.DrawFn) -> Stage:
    quota = draw(st.sampled_from([{}, {"gpuHours": None, "usd": "30"}, {"usd": "30"}]))
    steps = draw(st.sampled_from([["100% Evict"], ["100% Suspend"], ["80% Suspend", "120% Evict"]]))
    hours = draw(st.sampled_from(["1", "20", "200"]))
    order = draw(st.sampled_from(["LeastLost", "WorstOffender"]))
    budget = a_budget(hours=hours, enforce=steps, quota=quota, enforcement={"order": order})
    there = [draw(pods(number)) for number in range(draw(st.integers(1, 5)))]
    stage = Stage(budget, pods=there)
    stage.rows = {row.key: row for pod in there for row in draw(rows(pod))}
    return stage


def used(stage: Stage) -> tuple[Fraction, Fraction, Fraction]:
    """GPU-hours and dollars that are certain, and GPU-hours without a price, of team a."""
    hours = dollars = unpriced = Fraction(0)
    for row in stage.world().usage:
        if dict(row.labels)["team"] != "a" or not row.amounts:
            continue
        pod = stage.pods.get(row.uid)
        end = row.ended if row.ended is not None else row.seen_until if row.gone_by is not None or pod is None else NOON
        span = Fraction(max(0, min(end, NOON) - max(row.start, NOON - WINDOW)), HOUR)
        gpus = Fraction(dict(row.amounts).get("nvidia.com/gpu", 0), GPU)
        hours += span * gpus
        dollars += span * Fraction(row.price or 0, GPU) if gpus else 0
        unpriced += span * gpus if row.price is None else 0
    return hours, dollars, unpriced


def reached(budget: AnyResource, share: int, sums: tuple[Fraction, Fraction, Fraction]) -> bool:
    hours, dollars, unpriced = sums
    quota = budget.spec.quota
    by_hours = quota.gpu_hours is not None and 100 * hours >= share * Fraction(quota.gpu_hours)
    by_dollars = quota.usd is not None and 100 * dollars >= share * Fraction(quota.usd)
    return by_hours or (by_dollars and 100 * unpriced <= hours)


@given(stages())
def test_whatever_is_stopped_has_a_cause(stage: Stage) -> None:
    sums, (budget,) = used(stage), stage.budgets.values()
    there = dict(stage.pods)
    done = [each for each in stage.look() if isinstance(each, EvictPod | SuspendOwner)]
    victim = stage.status().victim
    assert bool(done) == (victim is not None)
    if victim is None:
        return
    share = next(int(each.at[:-1]) for each in budget.spec.enforcement.ladder if each.action == victim.action)
    assert reached(budget, share, sums)
    chosen = [there[uid] for uid in victim.uids]
    assert all(pod.phase not in ("Succeeded", "Failed") and pod.deleting is None for pod in chosen)
    assert not any(pod.annotations for pod in chosen), "protected"
    counted = [pod for pod in chosen if ("team", "a") in pod.labels and dict(pod.shape.requests).get("nvidia.com/gpu")]
    assert any(pod.started is not None for pod in counted)
    ends = [pod.started + pod.deadline for pod in counted if pod.started is not None and pod.deadline is not None]
    assert len(ends) < len(counted) or max(ends) > NOON, "it ends just now"


@given(stages(), st.booleans())
def test_what_goes_by_itself_is_never_recorded(stage: Stage, seen: bool) -> None:
    """The victim ends in one way or another, and nothing that the API server writes says that it was evicted.

    One that nobody saw go, as over a restart, may have been: caps count it, loops do not.
    """
    before = dict(stage.pods)
    stage.world()
    kept = dict(stage.rows)
    stage.look()
    stage.pods, stage.rows, stage.evicted, stage.workloads = before, kept, {}, {}
    victim = stage.status().victim
    went = victim.uids if victim is not None else ()
    stage.seen_going = list(went) if seen else []
    for number, uid in enumerate(went):
        pod = stage.pods.pop(uid)
        if number % 2:
            stage.pods[uid] = structs.replace(pod, phase="Succeeded", ended=NOON, ended_by="ContainerFinish")
    (budget,) = stage.budgets.values()
    roomy = structs.replace(budget.spec, quota=a_budget(hours="100000").spec.quota)
    stage.budgets = {ref: structs.replace(each, spec=roomy) for ref, each in stage.budgets.items()}
    stage.pass_time(18 * SECOND, every=6 * SECOND)
    unseen = ["Unknown"] if victim is not None and victim.action == "Evict" and not seen else []
    assert [each.outcome for each in stage.status().stopped] == unseen
    assert stage.status().evictions == ()
