"""The cases that machines are woken and sent to sleep for, as files: one tick decides each, and one sentence explains it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.conftest import Headroom

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "examples" / "power"
NOW = "2026-11-15T12:00:00Z"
SCHEDULER = "0/1 nodes are available: 1 node(s) didn't match pod topology spread constraints"


def wake(machine: str) -> dict[str, str]:
    return {"type": "WakeMachine", "pool": "basement", "machine": machine}


CASES: list[tuple[str, list[dict[str, str]], str]] = [
    (
        "one-large-pod",
        [wake("w2")],
        "Waking: Waking w2 (8 GPUs) for 1 pod that needs 8 GPUs; 0 of 2 machines are on.",
    ),
    (
        "six-small-pods",
        [wake("w2")],
        "Waking: Waking w2 (8 GPUs) for 6 pods that need 6 GPUs; 0 of 2 machines are on.",
    ),
    (
        "fragments",
        [wake("n3")],
        "Waking: Waking n3 (4 GPUs) for 1 pod that needs 4 GPUs; 2 of 3 machines are on, 2 in use.",
    ),
    (
        "image-pull",
        [{"type": "CordonNode", "node": "w2"}],
        "Draining: Draining w2 (8 GPUs), idle since 2026-11-15T08:00:00Z; 1 of 2 machines is on, 1 in use.",
    ),
    (
        "finished-pods",
        [{"type": "CordonNode", "node": "w2"}],
        "Draining: Draining w2 (8 GPUs), idle since 2026-11-15T11:30:00Z; 1 of 2 machines is on.",
    ),
    (
        "impossible-pod",
        [],
        (
            "NoMachineFits: Pod lab/huge is unserved: no machine of the pool can hold it: the nearest is w2, but it needs 16 "
            "nvidia.com/gpu and 8 are there."
        ),
    ),
    (
        "topology-spread",
        [wake("w1")],
        (
            "Waking: Waking w1 (2 GPUs) on trial for 2 pods that need 2 GPUs: kube-scheduler does not place lab/serve-0 on n1, "
            f"where it would fit ({SCHEDULER}); 0 of 2 machines are on."
        ),
    ),
    (
        "half-a-gang",
        [],
        (
            "NotEnoughMachines: Pod lab/rank-0 and 2 like it are unserved: its gang of 3 pods does not fit "
            "on 2 machines: 2 are off."
        ),
    ),
]


def example(name: str) -> Path:
    return FOLDER / f"{name}.yaml"


def decided(headroom: Headroom, *files: Path, now: str = NOW) -> dict[str, Any]:
    """What one tick decides on the pool."""
    named = [word for file in files for word in ("-f", file)]
    done = headroom("plan", *named, "--now", now, "-o", "json")
    assert (done.code, done.err) == (0, "")
    [decision] = [each for each in json.loads(done.out)["decisions"] if each["resource"]["kind"] == "PowerPool"]
    assert isinstance(decision, dict)
    return decision


def effects(decision: dict[str, Any]) -> list[dict[str, str]]:
    return [each for each in decision["actions"] if each["type"] != "EmitEvent"]


def test_every_case_has_a_file_and_every_file_a_case() -> None:
    assert sorted(FOLDER.glob("*.yaml")) == sorted(example(name) for name, _, _ in CASES)


@pytest.mark.parametrize(("name", "due", "sentence"), CASES, ids=[name for name, _, _ in CASES])
def test_a_case_is_decided_and_explained(
    headroom: Headroom, name: str, due: list[dict[str, str]], sentence: str
) -> None:
    decision = decided(headroom, example(name))
    assert effects(decision) == due
    assert f"{decision['reason']}: {decision['message']}" == sentence
    told = headroom("explain", "powerpool/basement", "-f", example(name), "--now", NOW, "-o", "json")
    assert json.loads(told.out)["decision"] == decision
    lines = headroom("explain", "pp/basement", "-f", example(name), "--now", NOW).out.splitlines()
    assert lines[:3] == [
        "Dry run: nothing was changed.",
        "",
        "PowerPool/basement",
    ]
    assert " ".join(lines[3:]).startswith(sentence)


@pytest.mark.parametrize(
    ("name", "pod", "state", "sentence"),
    [
        ("one-large-pod", "train", "Waking", "w2 (8 GPUs) of PowerPool/basement wakes for it."),
        ("fragments", "whole", "Waking", "n3 (4 GPUs) of PowerPool/basement wakes for it."),
        (
            "impossible-pod",
            "huge",
            "NoMachineFits",
            (
                "PowerPool/basement wakes no machine for it: no machine of the pool can hold it: the nearest is w2, but it "
                "needs 16 nvidia.com/gpu and 8 are there."
            ),
        ),
        (
            "topology-spread",
            "serve-2",
            "Unmodelled",
            (
                f"PowerPool/basement wakes no machine for it: kube-scheduler does not place it on n1, where it would fit: "
                f"{SCHEDULER}. w1 is on trial, and no other machine wakes until such a pod is bound."
            ),
        ),
        (
            "half-a-gang",
            "rank-1",
            "NotEnoughMachines",
            ("PowerPool/basement wakes no machine for it: its gang of 3 pods does not fit on 2 machines: 2 are off."),
        ),
    ],
)
def test_a_pod_that_waits_is_told_what_it_waits_for(
    headroom: Headroom, name: str, pod: str, state: str, sentence: str
) -> None:
    told = headroom("explain", f"pod/lab/{pod}", "-f", example(name), "--now", NOW, "-o", "json")
    found = json.loads(told.out)
    assert found["power"]["state"] == state
    assert found["sentence"].endswith(sentence)


# --- restarted while a machine boots ---------------------------------------------------------------------------------------------


def remembering(source: Path, status: dict[str, Any], folder: Path) -> Path:
    """The same documents, the pool with the status that was written down."""
    documents = list(yaml.safe_load_all(source.read_text()))
    documents[0]["status"] = status
    target = folder / "again.yaml"
    target.write_text(yaml.safe_dump_all(documents))
    return target


def test_an_operator_that_restarts_during_a_boot_waits_for_it(headroom: Headroom, tmp_path: Path) -> None:
    first = decided(headroom, example("six-small-pods"))
    assert effects(first) == [wake("w2")]
    again = remembering(example("six-small-pods"), first["status"], tmp_path)
    later = decided(headroom, again, now="2026-11-15T12:05:00Z")
    assert effects(later) == []
    sentence = (
        "w2 (8 GPUs) has been booting since 2026-11-15T12:00:00Z for 6 pods that need 6 GPUs; 0 of 2 machines are on."
    )
    assert (later["reason"], later["message"]) == ("Waking", sentence)
    told = headroom("explain", "pod/lab/eval-3", "-f", again, "--now", "2026-11-15T12:05:00Z")
    assert (
        "w2 (8 GPUs) of PowerPool/basement has been booting for it since 2026-11-15T12:00:00Z; if its node is not Ready by "
        "2026-11-15T12:15:00Z, another machine is tried." in " ".join(told.out.split())
    )
    late = decided(headroom, again, now="2026-11-15T12:15:00Z")
    assert effects(late) == [wake("w1"), wake("w2")], (
        "w1 did not fail and holds four of them; w2 is tried once more for the rest"
    )


@pytest.mark.parametrize("named", [False, True])
def test_a_plain_pod_of_another_scheduler_counts_where_a_pool_names_it(
    headroom: Headroom, tmp_path: Path, named: bool
) -> None:
    pool, *others = yaml.safe_load_all(example("one-large-pod").read_text())
    pool["spec"].setdefault("policy", {})["schedulers"] = ["gpu-binpack"] if named else []
    for each in others:
        if each["kind"] == "Pod":
            each["spec"]["schedulerName"] = "gpu-binpack"
            each.pop("status", None)
    file = tmp_path / "other.yaml"
    file.write_text(yaml.safe_dump_all([pool, *others]))
    assert effects(decided(headroom, file)) == ([wake("w2")] if named else [])
    told = headroom("explain", "pod/lab/train", "-f", file, "--now", NOW).out
    assert ("a PowerPool names" in " ".join(told.split())) != named


# --- a budget that turns over quota in this very tick ----------------------------------------------------------------------------

BUDGETED = """\
apiVersion: headroom.dev/v1alpha1
kind: GPUWorkloadBudget
metadata: {name: team-a, namespace: lab, uid: budget-a, creationTimestamp: "2026-11-01T00:00:00Z"}
spec:
  selector: {matchLabels: {team: a}}
  quota: {gpuHours: "HOURS", windowHours: 24}
  enforcement: {action: AlertOnly}
status:
  conditions:
  - {type: QuotaExceeded, status: "False", reason: WithinQuota, message: "", lastTransitionTime: "2026-11-01T00:00:00Z"}
---
apiVersion: v1
kind: Pod
metadata: {name: before, namespace: lab, uid: u-before, labels: {team: a}, creationTimestamp: "2026-11-15T02:00:00Z"}
spec:
  nodeName: elsewhere
  containers: [{name: main, resources: {limits: {nvidia.com/gpu: 4}}}]
status:
  phase: Running
  containerStatuses: [{name: main, state: {running: {startedAt: "2026-11-15T02:00:00Z"}}}]
"""


@pytest.mark.parametrize(("hours", "exceeded", "due"), [("30", "True", []), ("3000", "False", [wake("w2")])])
def test_the_quota_counts_as_it_is_in_this_tick_not_as_it_was_written(
    headroom: Headroom, tmp_path: Path, hours: str, exceeded: str, due: list[dict[str, str]]
) -> None:
    (tmp_path / "budget.yaml").write_text(BUDGETED.replace("HOURS", hours))
    documents = list(yaml.safe_load_all(example("one-large-pod").read_text()))
    documents[1]["metadata"]["labels"] = {"team": "a"}
    (tmp_path / "pool.yaml").write_text(yaml.safe_dump_all(documents))
    named = ("-f", tmp_path / "budget.yaml", "-f", tmp_path / "pool.yaml")
    done = headroom("plan", *named, "--now", NOW, "-o", "json")
    assert (done.code, done.err) == (0, "")
    found = {each["resource"]["kind"]: each for each in json.loads(done.out)["decisions"]}
    told = {each["type"]: each["status"] for each in found["GPUWorkloadBudget"]["status"]["conditions"]}
    assert told["QuotaExceeded"] == exceeded
    assert effects(found["PowerPool"]) == due
