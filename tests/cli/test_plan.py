"""`headroom plan` decides once on plain documents, and says everything that is wrong with them."""

import json
from pathlib import Path
from typing import Any

import pytest

from headroom.adapters import documents
from headroom.model.snapshots import save
from headroom.model.world import World
from tests.cli import samples
from tests.cli.conftest import Done, Headroom

NOW = "2026-01-31T12:00:00Z"
BUDGET = samples.BUDGET.replace("budget.zxuhan.dev", "headroom.dev")
WRONG = (
    BUDGET.replace("name: team-a", "name: team-b").replace("windowHours: 24", "windowHours: 0").replace('"100"', "none")
)
PODS = """\
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: train-0, namespace: default, labels: {team: a}}
  spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 2}}}]}
- apiVersion: v1
  kind: Node
  metadata: {name: n1}
"""


def result(done: Done) -> Any:
    return json.loads(done.out)


def test_the_result_has_the_published_form(headroom: Headroom, tmp_path: Path) -> None:
    (tmp_path / "budget.yaml").write_text(BUDGET)
    (tmp_path / "pods.yaml").write_text(PODS)
    done = headroom("plan", "-f", tmp_path / "budget.yaml", "-f", tmp_path / "pods.yaml", "--now", NOW, "-o", "json")
    assert (done.code, done.err) == (0, "")
    found = result(done)
    assert list(found) == ["now", "problems", "decisions"]
    assert (found["now"], found["problems"]) == (NOW, [])
    [decision, of_node] = found["decisions"]
    assert of_node["resource"] == {"kind": "Bandwidth", "namespace": "", "name": "n1"}
    assert list(decision) == ["resource", "status", "actions", "reason", "message", "lookAgainAfterSeconds"]
    assert decision["resource"] == {"kind": "GPUWorkloadBudget", "namespace": "default", "name": "team-a"}
    assert decision["status"]["conditions"][0]["lastTransitionTime"] == NOW


def test_every_problem_at_once_and_the_rest_is_still_decided(headroom: Headroom) -> None:
    done = headroom("plan", "-f", "-", "-o", "json", stdin=f"{WRONG}---\n{BUDGET}".encode())
    assert done.code == 1
    found = result(done)
    assert [(each["resource"]["name"], each["field"]) for each in found["problems"]] == [
        ("team-b", "spec.quota.gpuHours"),
        ("team-b", "spec.quota.windowHours"),
    ]
    assert [each["resource"]["name"] for each in found["decisions"]] == ["team-a"]


def test_a_wrong_fact_from_outside_is_a_problem_too(headroom: Headroom) -> None:
    fact = "apiVersion: sim.headroom.dev/v1\nkind: Machine\nmetadata: {name: m1}\nspec: {power: Sometimes}\n"
    done = headroom("plan", "-f", "-", "-o", "json", stdin=fact.encode())
    assert done.code == 1
    [problem] = result(done)["problems"]
    assert (problem["resource"], problem["field"]) == ({"kind": "Machine", "namespace": "", "name": "m1"}, "spec.power")


def test_people_get_a_table_without_control_characters(headroom: Headroom) -> None:
    hostile = BUDGET.replace("metadata:", 'metadata:\n  finalizers: ["x"]').replace(
        "action: AlertOnly", r'action: "\e[31mRed\a"'
    )
    done = headroom("plan", "-f", "-", stdin=f"{hostile}---\n{BUDGET.replace('team-a', 'team-c')}".encode())
    assert done.code == 1
    assert "GPUWorkloadBudget/default/team-c" in done.out
    assert "\nDecided for 20" in done.out
    assert "spec.enforcement.action must be one of" in done.out
    assert all(char.isprintable() or char == "\n" for char in done.out)


def test_what_is_passed_over_is_said(headroom: Headroom) -> None:
    other = samples.NODE_CLASS.replace("EC2NodeClass", "AKSNodeClass")
    done = headroom("plan", "-f", "-", stdin=f"{samples.SPOTPOOL}---\n{samples.NODE_CLASS}---\n{other}".encode())
    assert done.code == 0
    assert done.out == "There is no resource of Headroom to decide on.\n"
    assert done.err.splitlines() == [
        "skipped 1 Spotpool of devops.jokerbai.com/v1: `headroom convert` rewrites them as Headroom's",
        "skipped 1 AKSNodeClass: Headroom does not use them",
    ]


@pytest.mark.parametrize("moment", ["yesterday", "12:00", "2026-13-01T00:00:00Z", "1e309", "٢٠٢٦"])
def test_a_wrong_moment_is_one_sentence(headroom: Headroom, moment: str) -> None:
    done = headroom("plan", "-f", "-", "--now", moment, stdin=BUDGET.encode())
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("headroom: reading --now: ")


def test_files_may_be_given_without_a_flag_and_long_names_stay_whole(headroom: Headroom, tmp_path: Path) -> None:
    name = "a" * 60
    (tmp_path / "budget.yaml").write_text(BUDGET.replace("name: team-a", f"name: {name}"))
    done = headroom("plan", tmp_path / "budget.yaml", "--now", NOW)
    assert done.code == 0
    assert done.out.startswith(f"Decided for {NOW}:\n")
    assert f"GPUWorkloadBudget/default/{name}" in done.out


def test_a_name_stays_whole_on_a_narrow_terminal(headroom: Headroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "30")
    name = "a" * 60
    done = headroom("plan", "-", stdin=BUDGET.replace("name: team-a", f"name: {name}").encode())
    assert f"GPUWorkloadBudget/default/{name}" in done.out


def test_no_file_is_a_usage_error(headroom: Headroom) -> None:
    assert headroom("plan").code == 2
    assert headroom("plan", "-f", "-", "-f", "-").code == 2


@pytest.mark.parametrize("name", ["gwb/team-a", "gwb/default/team-a", "gpuworkloadbudget/team-a"])
def test_explain_says_why(headroom: Headroom, name: str) -> None:
    done = headroom("explain", name, "-f", "-", "--now", NOW, stdin=BUDGET.encode())
    assert done.code == 0
    assert done.out.splitlines()[:4] == [
        "Dry run: nothing was changed.",
        "",
        "GPUWorkloadBudget/default/team-a",
        "WithinBudget: Within quota: 0.00 of 100 GPU-hours in the last 24h.",
    ]
    assert "100%  AlertOnly  not active" in done.out
    assert "Nothing is due now." in done.out


def test_explain_names_problems(headroom: Headroom) -> None:
    done = headroom("explain", "gwb/team-b", "-f", "-", stdin=WRONG.encode())
    assert done.out.startswith("GPUWorkloadBudget/"), "nothing would be done"
    assert done.out.count("Problem: spec.quota.") == 2


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("gwb/team-x", "did you mean GPUWorkloadBudget/default/team-a?"),
        ("budget/team-a", "there is no kind 'budget'"),
        ("gwbz/team-a", "did you mean gwb"),
        ("train", "write KIND/[NAMESPACE/]NAME"),
        (
            "spotpool/x",
            "the files have GPUWorkloadBudget/a/same, GPUWorkloadBudget/b/same, GPUWorkloadBudget/default/team-a",
        ),
        ("gwb", "write KIND/[NAMESPACE/]NAME"),
        ("gwb/a/b/c", "write KIND/[NAMESPACE/]NAME"),
        ("gwb/same", "several match: GPUWorkloadBudget/a/same, GPUWorkloadBudget/b/same; name one"),
    ],
)
def test_explain_helps_who_asks_for_something_else(headroom: Headroom, asked: str, says: str) -> None:
    twins = [BUDGET.replace("team-a", "same").replace("default", place) for place in "ab"]
    done = headroom("explain", asked, "-f", "-", stdin="---\n".join([BUDGET, *twins]).encode())
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_a_saved_world_is_replayed(headroom: Headroom, tmp_path: Path) -> None:
    world: World = documents.read([("x", f"{BUDGET}---\n{PODS}".encode())]).world(1_770_000_000_000)
    (tmp_path / "world.json").write_bytes(save(world))
    done = headroom("replay", tmp_path / "world.json", "-o", "json")
    assert done.code == 0
    assert [each["resource"]["name"] for each in result(done)["decisions"]] == ["team-a", "n1"]


@pytest.mark.parametrize("text", ["", "{}", "[" * 10_000, '{"format": "other"}', BUDGET])
def test_what_is_no_snapshot_is_one_sentence(headroom: Headroom, text: str) -> None:
    done = headroom("replay", "-", stdin=text.encode())
    assert (done.code, done.out) == (2, "")
    assert done.err.endswith("make one with `headroom snapshot`\n")
    assert len(done.err) < 400


def test_the_table_warns_of_what_the_verdict_does_not_tell(headroom: Headroom) -> None:
    misspelt = BUDGET.replace("spec:", "spec:\n  namespaceSelector: {matchLabels: {org: x}}", 1)
    done = headroom("plan", "-f", "-", "--now", NOW, stdin=misspelt.encode())
    assert "Degraded: namespaceSelector has an effect only in namespace headroom-system" in " ".join(done.out.split())
    assert "warnings" not in headroom("plan", "-f", "-", "--now", NOW, "-o", "json", stdin=misspelt.encode()).out
    told = headroom("explain", "gwb/team-a", "-f", "-", "--now", NOW, stdin=misspelt.encode()).out
    assert "Degraded: namespaceSelector has an effect only in namespace headroom-system" in told
    assert "0.00 of 100 GPU-hours in 24h; 100.0 left" in told
