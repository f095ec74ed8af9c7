"""What is done to pods on a simulated API server: evictions, pauses, releases; what is refused, and what is said on them."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.adapters.kube import errors, paths
from headroom.api import marks
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.resources import Condition
from headroom.model import actions
from headroom.model.actions import Action
from headroom.model.errors import Refused, Unavailable
from headroom.sim import faults as wrong
from tests.adapters.doing import BY, CHORES, POD, do, do_twice, evict, forget, notes, on, told
from tests.adapters.simulated import Cluster, virtual
from tests.builders import a_ref, a_resource

GATES = [{"name": "first.example"}, {"name": "headroom.dev/budget"}, {"name": "last.example"}]


@virtual
async def test_evict() -> None:
    cluster = Cluster()
    cluster.node("n1")
    action = evict(cluster.pod(node="n1"))
    await do(cluster, action)
    found = cluster.stored("Pod", "team-a", "train-0")["metadata"]
    assert found["deletionTimestamp"]
    assert found["deletionGracePeriodSeconds"] == 30
    await do(cluster, action)
    assert told(cluster) == [("Pod/train-0", "Warning", "Evicted", "GPUWorkloadBudget team-a/one")]
    assert cluster.writes() == 2


@virtual
async def test_an_eviction_whose_reply_was_lost_is_done() -> None:
    cluster = Cluster()
    cluster.node("n1")
    action = evict(cluster.pod(node="n1"))
    cluster.transport._faults.add(wrong.LostReply(verb="create", times=1))
    with pytest.raises(Unavailable):
        await do(cluster, action)
    await do(cluster, action)
    assert cluster.writes() == 1


@virtual
async def test_a_pod_that_goes_between_the_look_and_the_eviction_needs_none() -> None:
    cluster = Cluster()
    cluster.node("n1")
    action, ask = evict(cluster.pod(node="n1")), cluster.kube.evict

    async def meanwhile(*args: Any, **more: Any) -> bytes:
        forget(cluster, paths.pod("team-a", "train-0"))
        return await ask(*args, **more)

    cluster.kube.evict = meanwhile  # type: ignore[method-assign]  # the moment between reading and writing
    await do(cluster, action)


@virtual
async def test_evict_only_that_pod_in_that_version() -> None:
    cluster = Cluster()
    cluster.node("n1")
    old = cluster.pod(node="n1")
    cluster.server.do("PATCH", paths.pod("team-a", "train-0"), {"metadata": {"labels": {"new": "label"}}})
    with pytest.raises(errors.Conflict):
        await do(cluster, evict(old))
    forget(cluster, paths.pod("team-a", "train-0"))
    await do(cluster, evict(old))
    cluster.pod(node="n1")
    await do(cluster, evict(old))
    assert "deletionTimestamp" not in cluster.stored("Pod", "team-a", "train-0")["metadata"]


@virtual
async def test_a_pod_that_has_ended_is_not_evicted() -> None:
    cluster = Cluster()
    document = cluster.pod(status={"phase": "Succeeded"})
    with pytest.raises(Refused, match="it has already ended"):
        await do(cluster, evict(document))


@virtual
async def test_pause_and_resume() -> None:
    cluster = Cluster()
    document = cluster.pod(metadata={"annotations": {"theirs": "stays"}})
    await do(cluster, on(actions.PausePod, document))
    first = notes(cluster, "Pod", "team-a", "train-0")
    assert first == {"theirs": "stays", "headroom.dev/paused-at": "2026-11-15T12:00:00Z", "headroom.dev/paused-by": BY}
    await cluster.clock.sleep(60)
    await do_twice(cluster, on(actions.PausePod, document))
    assert notes(cluster, "Pod", "team-a", "train-0") == first
    await do_twice(cluster, on(actions.ResumePod, document))
    assert notes(cluster, "Pod", "team-a", "train-0") == {"theirs": "stays"}


@virtual
async def test_what_another_resource_did_is_not_undone() -> None:
    cluster = Cluster()
    cluster.node("n1")
    document, other = cluster.pod(), a_resource("GPUWorkloadBudget", "two")
    for action in (on(actions.PausePod, document), actions.CordonNode(node="n1")):
        await do(cluster, action)
    writes = cluster.writes()
    await do(cluster, on(actions.ResumePod, document), other)
    with pytest.raises(Refused, match=f"{BY} cordoned it"):
        await do(cluster, actions.UncordonNode(node="n1"), other)
    assert cluster.writes() == writes
    assert notes(cluster, "Pod", "team-a", "train-0")[marks.PAUSED_BY] == BY


@virtual
async def test_touch() -> None:
    cluster = Cluster()
    document = cluster.pod()
    for _ in range(2):
        await do(cluster, on(actions.TouchPod, document))
    assert notes(cluster, "Pod", "team-a", "train-0") == {"headroom.dev/touched-at": "2026-11-15T12:00:00Z"}


@virtual
async def test_release_lifts_our_gate_only() -> None:
    cluster = Cluster()
    document = cluster.pod(spec={"schedulingGates": GATES})
    await do_twice(cluster, on(actions.ReleasePod, document))
    left = cluster.stored("Pod", "team-a", "train-0")["spec"]["schedulingGates"]
    assert left == [{"name": "first.example"}, {"name": "last.example"}]
    assert notes(cluster, "Pod", "team-a", "train-0") == {"headroom.dev/released-at": "2026-11-15T12:00:00Z"}
    assert told(cluster) == [("Pod/train-0", "Normal", "Released", "GPUWorkloadBudget team-a/one")]


@virtual
async def test_release_marks_a_pod_behind_gates_of_others_only() -> None:
    cluster = Cluster()
    document = cluster.pod(spec={"schedulingGates": GATES[:1]})
    await do_twice(cluster, on(actions.ReleasePod, document))
    assert cluster.stored("Pod", "team-a", "train-0")["spec"]["schedulingGates"] == GATES[:1]
    assert notes(cluster, "Pod", "team-a", "train-0") == {"headroom.dev/released-at": "2026-11-15T12:00:00Z"}
    assert told(cluster) == [("Pod/train-0", "Normal", "Released", "GPUWorkloadBudget team-a/one")]


@virtual
async def test_release_when_others_lift_theirs_at_the_same_moment() -> None:
    cluster = Cluster()
    document = cluster.pod(spec={"schedulingGates": GATES})
    answer = cluster.kube.merge_patch

    async def meanwhile(path: str, body: Any) -> bytes:
        cluster.server.do("PATCH", path, {"spec": {"schedulingGates": GATES[1:]}})
        return await answer(path, body)

    cluster.kube.merge_patch = meanwhile  # type: ignore[method-assign]  # the moment between reading and writing
    await do(cluster, on(actions.ReleasePod, document))
    assert cluster.stored("Pod", "team-a", "train-0")["spec"]["schedulingGates"] == [{"name": "last.example"}]


@pytest.mark.parametrize("kind", [actions.PausePod, actions.TouchPod])
@virtual
async def test_a_pod_that_is_gone_is_not_changed(kind: type[Action]) -> None:
    cluster = Cluster()
    document = cluster.pod()
    forget(cluster, paths.pod("team-a", "train-0"))
    with pytest.raises(Refused, match="pod team-a/train-0: it is gone"):
        await do(cluster, on(kind, document))
    cluster.pod()
    with pytest.raises(Refused, match="pod team-a/train-0: it is gone"):
        await do(cluster, on(kind, document))
    assert cluster.writes() == 0


@pytest.mark.parametrize("kind", [actions.ResumePod, actions.ReleasePod])
@virtual
async def test_a_pod_that_is_gone_needs_no_undoing(kind: type[Action]) -> None:
    cluster = Cluster()
    document = cluster.pod()
    forget(cluster, paths.pod("team-a", "train-0"))
    await do(cluster, on(kind, document))
    cluster.pod(metadata={"annotations": {"headroom.dev/paused-at": "x"}}, spec={"schedulingGates": GATES})
    await do(cluster, on(kind, document))
    assert cluster.writes() == 0


@pytest.mark.parametrize(
    ("namespace", "metadata", "why"),
    [
        ("kube-system", {}, "it belongs to the cluster itself"),
        ("headroom-system", {}, "it is in Headroom's own namespace"),
        ("team-a", {"annotations": {"kubernetes.io/config.mirror": "hash"}}, "only its kubelet can end it"),
        ("team-a", {"annotations": {"headroom.dev/protected": "true"}}, "it is protected by the annotation"),
        (
            "team-a",
            {"ownerReferences": [{"kind": "DaemonSet", "controller": True}]},
            "its DaemonSet would recreate it",
        ),
    ],
)
@virtual
async def test_what_is_never_evicted_whatever_was_decided(namespace: str, metadata: dict[str, Any], why: str) -> None:
    cluster = Cluster()
    cluster.node("n1")
    references = [
        {"apiVersion": "apps/v1", "name": "d", "uid": "u"} | each for each in metadata.get("ownerReferences", ())
    ]
    named = {"namespace": namespace} | metadata | ({"ownerReferences": references} if references else {})
    spec = {"containers": [{"name": "c", "image": "i"}], "nodeName": "n1"}
    cluster.server.put({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train-0"} | named, "spec": spec})
    document = cluster.stored("Pod", namespace, "train-0")
    with pytest.raises(Refused, match=why):
        await do(cluster, evict(document, pod=f"{namespace}/train-0"))
    assert cluster.writes() == 0
    assert "deletionTimestamp" not in cluster.stored("Pod", namespace, "train-0")["metadata"]


@pytest.mark.parametrize("group", ["apps/v1", "nobody.example/v1"])
@virtual
async def test_no_owner_keeps_a_pod_with_gpus_from_eviction(group: str) -> None:
    cluster = Cluster()
    cluster.node("n1")
    owner = {"apiVersion": group, "kind": "DaemonSet", "name": "d", "uid": "u", "controller": True}
    gpus = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    document = cluster.pod(node="n1", metadata={"ownerReferences": [owner]}, spec={"containers": [gpus]})
    await do(cluster, evict(document))
    assert cluster.stored("Pod", "team-a", "train-0")["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(("seconds", "is_evicted"), [(3000, False), (31_536_000, True)])
@virtual
async def test_a_deletion_that_takes_years_is_cut_short(seconds: int, is_evicted: bool) -> None:
    cluster = Cluster()
    cluster.node("n1")
    cluster.pod(node="n1")
    cluster.server.do("DELETE", paths.pod("team-a", "train-0"), {"gracePeriodSeconds": seconds})
    before = cluster.stored("Pod", "team-a", "train-0")
    assert before["metadata"]["deletionGracePeriodSeconds"] == seconds
    await do(cluster, evict(before))
    after = cluster.stored("Pod", "team-a", "train-0")["metadata"]
    assert after["deletionGracePeriodSeconds"] == (30 if is_evicted else seconds)


@pytest.mark.parametrize("word", ["", "false", "No"])
@virtual
async def test_a_pod_that_says_it_is_not_protected_is_not(word: str) -> None:
    cluster = Cluster()
    cluster.node("n1")
    await do(cluster, evict(cluster.pod(node="n1", metadata={"annotations": {marks.PROTECTED: word}})))
    assert cluster.stored("Pod", "team-a", "train-0")["metadata"]["deletionTimestamp"]


def guarded(cluster: Cluster, *names: str) -> None:
    for name in names:
        cluster.server.put(
            {
                "apiVersion": "policy/v1",
                "kind": "PodDisruptionBudget",
                "metadata": {"name": name, "namespace": "team-a"},
                "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "trainer"}}},
            }
        )


@pytest.mark.parametrize(
    ("budgets", "why"),
    [
        (("one",), f"evicting pod {POD}: its PodDisruptionBudget allows no eviction now"),
        (("one", "two"), f"evicting pod {POD}: more than one PodDisruptionBudget selects it"),
    ],
)
@virtual
async def test_a_disruption_budget_is_a_refusal_and_nothing_is_deleted_instead(
    budgets: tuple[str, ...], why: str
) -> None:
    cluster = Cluster()
    cluster.node("n1")
    guarded(cluster, *budgets)
    document = cluster.pod(node="n1", metadata={"labels": {"app": "trainer"}}, status={"phase": "Running"})
    with pytest.raises(Refused, match=why):
        await do(cluster, evict(document))
    assert "deletionTimestamp" not in cluster.stored("Pod", "team-a", "train-0")["metadata"]
    assert told(cluster) == []


@virtual
async def test_chores_undo_the_pause_of_any_budget_and_of_nobody_else() -> None:
    cluster = Cluster()
    document = cluster.pod()
    await do(cluster, on(actions.PausePod, document))
    await do_twice(cluster, on(actions.ResumePod, document), CHORES)
    assert notes(cluster, "Pod", "team-a", "train-0") == {}
    theirs = {"headroom.dev/paused-at": "2026-11-15T11:00:00Z"}
    document = cluster.pod(metadata={"annotations": theirs})
    await do(cluster, on(actions.ResumePod, document), CHORES)
    assert notes(cluster, "Pod", "team-a", "train-0") == theirs


@virtual
async def test_a_release_leaves_all_other_annotations() -> None:
    cluster = Cluster()
    held = {"headroom.dev/held-by": "team-a/one", "theirs": "stays"}
    document = cluster.pod(spec={"schedulingGates": GATES[1:2]}, metadata={"annotations": held})
    await do_twice(cluster, on(actions.ReleasePod, document), CHORES)
    stored = cluster.stored("Pod", "team-a", "train-0")
    assert "schedulingGates" not in stored["spec"]
    assert stored["metadata"]["annotations"] == {"theirs": "stays", "headroom.dev/released-at": "2026-11-15T12:00:00Z"}
    assert told(cluster) == [("Pod/train-0", "Normal", "Released", "No budget queues it any more.")]


# --- what is said on them --------------------------------------------------------------------------------------------------------


def exceeded(message: str) -> GPUWorkloadBudgetStatus:
    condition = Condition(
        type="QuotaExceeded",
        status="True",
        reason="QuotaReached",
        message=message,
        last_transition_time="2026-11-15T12:00:00Z",
    )
    return GPUWorkloadBudgetStatus(conditions=(condition,))


@virtual
async def test_what_is_said_has_the_numbers_of_the_budget_as_it_stands() -> None:
    async with Cluster() as cluster:
        decided = cluster.resource()
        document = cluster.pod()
        await cluster.settle()
        await cluster.port.write_status(decided, exceeded("101.0 of 100 GPU-hours in the last 24h."))
        await do(cluster, on(actions.PausePod, document), decided)
        says = "GPUWorkloadBudget team-a/one: 101.0 of 100 GPU-hours in the last 24h."
        assert told(cluster) == [("Pod/train-0", "Warning", "Paused", says)]
        [event] = cluster.server.objects("Event")
        assert event["involvedObject"]["uid"] == document["metadata"]["uid"]
        await cluster.settle()
        resumed = cluster.port.world(cluster.clock.now()).resources[a_ref()]
        await do_twice(cluster, on(actions.ResumePod, document), resumed)
        assert sorted(each[1:3] for each in told(cluster)) == [("Normal", "Resumed"), ("Warning", "Paused")]


@virtual
async def test_an_effect_stands_though_nothing_can_be_said_of_it() -> None:
    cluster = Cluster()
    document = cluster.pod()
    cluster.transport._faults.add(wrong.Refusal(status=403, path=paths.events("team-a")))
    await do(cluster, on(actions.PausePod, document))
    assert notes(cluster, "Pod", "team-a", "train-0")[marks.PAUSED_BY] == BY
