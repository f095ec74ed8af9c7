"""A Job that is tried again is the same demand: whatever is new about its pods, their shape is not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from headroom.adapters.kube import parse
from headroom.core.demand import digest_of
from headroom.model.facts import Pod, Shape
from tests.core.demand_stage import a_shape
from tests.core.power_stage import MINUTE, SECOND, Stage, a_pool

TRIES = 20


def spread(uid: str) -> dict[str, Any]:
    """A constraint as the API server stores it: what it copied from the pod's labels is in the selector."""
    copied = {"key": "controller-uid", "operator": "In", "values": [uid]}
    return {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "train"}, "matchExpressions": [copied]},
        "matchLabelKeys": ["controller-uid"],
    }


def a_try(number: int, *, picky: bool = False) -> Pod:
    """The pod of a Job that somebody made anew, as the API server shows it."""
    uid, job = f"4ad1c0de-{number:04d}", f"train-{number:05d}"
    labels = {"app": "train", "job-name": job, "controller-uid": uid, "batch.kubernetes.io/job-completion-index": "0"}
    labels |= {f"batch.kubernetes.io/{key}": labels[key] for key in ("job-name", "controller-uid")}
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"job-name": job}}}
    container = {
        "name": "main",
        "image": f"train:{number}",
        "env": [{"name": "JOB_COMPLETION_INDEX", "value": str(number)}, {"name": "TRY", "value": str(number)}],
        "resources": {"limits": {"nvidia.com/gpu": "8"}},
        "volumeMounts": [{"name": f"kube-api-access-{number:05d}", "mountPath": "/token"}],
    }
    spec: dict[str, Any] = {
        "containers": [container],
        "hostname": f"{job}-0",
        "serviceAccountName": "train",
        "volumes": [{"name": f"kube-api-access-{number:05d}"}],
        "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
    }  # fmt: skip
    if picky:
        spec["topologySpreadConstraints"] = [spread(uid)]
        spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": True}
    meta = {
        "namespace": "lab", "name": f"{job}-0-{number:05d}", "uid": f"pod-{number}", "labels": labels,
        "generateName": f"{job}-0-", "ownerReferences": [owner], "resourceVersion": str(number),
        "annotations": {"batch.kubernetes.io/job-completion-index": "0", "tries": str(number)},
    }  # fmt: skip
    return parse.pod({"metadata": meta, "spec": spec})


@pytest.mark.parametrize("picky", [False, True])
def test_every_try_has_the_same_digest(picky: bool) -> None:
    tries = [a_try(number, picky=picky) for number in range(TRIES)]
    assert len({pod.uid for pod in tries}) == TRIES
    assert len({digest_of(pod.shape) for pod in tries}) == 1


def tried_again(stage: Stage, pause: int, *, picky: bool = False, tries: int = TRIES) -> None:
    """The Job fails and is made anew, again and again."""
    for number in range(tries):
        pod = structs.replace(
            a_try(number, picky=picky), created=stage.now, unschedulable_since=stage.now, unschedulable_message="no"
        )
        stage.pods = {pod.uid: pod}
        stage.never = {pod.uid} if picky else set()
        stage.pass_time(pause, every=min(pause, 30 * SECOND))


def test_a_job_that_fails_while_a_machine_boots_for_it_wakes_no_second_one() -> None:
    stage = Stage(a_pool(machines={"w1": 8, "w2": 8, "w3": 8}))
    stage.boot_ms = 10 * MINUTE
    tried_again(stage, 5 * SECOND)
    assert [command for _, command in stage.commands()] == ["wake w1"]


def test_a_job_that_fails_on_the_machine_that_was_woken_for_it_wakes_no_second_one() -> None:
    stage = Stage(a_pool(machines={"w1": 8, "w2": 8, "w3": 8}))
    tried_again(stage, 4 * MINUTE)
    assert [command for _, command in stage.commands()] == ["wake w1"]
    assert stage.pods[f"pod-{TRIES - 1}"].node == "w1"


def test_one_machine_is_tried_for_a_job_that_is_placed_nowhere_however_often_it_is_made_anew() -> None:
    stage = Stage(a_pool(machines={f"w{number}": 8 for number in range(1, 9)}))
    tried_again(stage, 3 * MINUTE, picky=True, tries=4)
    # The first as for any pod, the second on trial; not one for each of the others.
    assert [command for _, command in stage.commands()] == ["wake w1", "wake w2"]


# --- digests --------------------------------------------------------------------------------------------------------------------


def selecting(**selector: Any) -> Shape:
    return a_shape(spread=json.dumps([{"labelSelector": selector, "topologyKey": "zone"}]))


def test_what_is_selected_otherwise_is_another_shape() -> None:
    shapes = [
        selecting(matchLabels={"app": "a"}),
        selecting(matchLabels={"app": "b"}),
        selecting(matchLabels={"app": "a", "job-name": "x"}),
        selecting(matchExpressions=[{"key": "app", "operator": "In", "values": ["a"]}]),
        selecting(matchExpressions=[{"key": "job-name", "operator": "In", "values": ["a"]}]),
        selecting(matchExpressions=[{"key": "job-name", "operator": "NotIn", "values": ["a"]}]),
    ]
    assert len({digest_of(each) for each in shapes}) == len(shapes)


@pytest.mark.parametrize(
    "odd",
    [
        '{"labelSelector":',
        '{"labelSelector": 3}',
        '[{"labelSelector": {"matchLabels": 3, "matchExpressions": {}}, "matchLabelKeys": [3, [], null]}]',
        '[{"labelSelector": {"matchExpressions": [3, null, {"key": []}, {}]}, "mismatchLabelKeys": 3}]',
        '{"a":' * 5000 + '"labelSelector"' + "}" * 5000,
        '"labelSelector \\ud800"',
    ],
)
def test_whatever_a_pod_says_has_a_digest(odd: str) -> None:
    assert len(digest_of(a_shape(affinity=odd, spread=odd))) == 12
