"""`headroom status` and `headroom forecast` where there is more to tell than a golden output shows."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headroom.cli import output
from headroom.runtime.clock import RealClock
from headroom.sim.rights import Right
from tests.cli.conftest import Headroom
from tests.cli.served import Served
from tests.cli.stage import FLEET, LEASE, NOON, NOON_MS, ROOT, fill, fleet_behind_a_port
from tests.cli.test_behaviour import ENVIRONMENT, PROGRAM

TENANT = (Right(verbs=("*",), resources=("pods", "gpuworkloadbudgets"), namespaces=("lab",)),)
OFFLINE = ("-f", FLEET, "--now", NOON)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(RealClock, "now", lambda _: NOON_MS)
    with fleet_behind_a_port(tmp_path) as made:
        yield made


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"holderIdentity": ""}, "none leads: Headroom counts nothing and does nothing"),
        (
            {"renewTime": "2026-11-15T11:00:00.000000Z"},
            "none leads: headroom-0 last renewed its lease 1h ago",
        ),
        ({"renewTime": "2026-11-15T11:59:31.000000Z"}, "headroom-0 leads, lease renewed 29 s ago"),
    ],
)
def test_who_leads(headroom: Headroom, fleet: Served, spec: dict[str, str], says: str) -> None:
    lease: dict[str, Any] = LEASE
    fleet.put(lease | {"spec": lease["spec"] | spec})
    assert f"Operator   {says}\n" in headroom("status", "--kubeconfig", fleet.kubeconfig()).out


POOL = """\
apiVersion: headroom.dev/v1alpha1
kind: PowerPool
metadata: {name: rack}
spec: {machines: [{name: w1, gpuCount: 8, redfish: {address: "https://bmc.example.com"}}]}
"""


def test_without_budgets_nothing_is_said_of_budgets(headroom: Headroom) -> None:
    done = headroom("status", "-f", "-", "--now", NOON, stdin=POOL.encode())
    lines = [line for line in done.out.splitlines() if line]
    proviso = "Dry run: nothing was changed."
    assert [line.split("  ")[0] for line in lines] == [proviso, "As of", "GPUs", "Pods", "POOL", "rack"]
    used = [
        *(f"---\n{each}" for each in FLEET.read_text().split("---\n") if "kind: GPUWorkloadBudget" not in each),
        POOL,
    ]
    assert "\nUncovered  " in headroom("status", "-f", "-", "--now", NOON, stdin="\n".join(used).encode()).out
    assert headroom(
        "status", "-f", "-", "--now", NOON, stdin=b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"
    ).out.endswith("There is no budget; see docs/examples.\n")


@pytest.mark.parametrize(
    "words",
    [
        ("status", *OFFLINE, "--watch"),
        ("status", *OFFLINE, "--from", "x.json"),
        ("status", "--from", FLEET),
        ("status", "--from", "-", "--now", NOON),
        ("forecast", "--plus", "8", *OFFLINE),
        ("forecast", "--plus", "x4h", *OFFLINE),
        ("forecast", "--plus", "-1x4h", *OFFLINE),
        ("forecast", "--plus", "1x0h", *OFFLINE),
        ("forecast", "sp/inference", *OFFLINE),
    ],
    ids=lambda words: " ".join(map(str, words[:3])),
)
def test_what_cannot_be_is_one_sentence(headroom: Headroom, words: tuple[object, ...]) -> None:
    done = headroom(*words)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("headroom: ")
    assert done.err.count("\n") == 1


def test_a_snapshot_tells_the_same_as_its_cluster_did(headroom: Headroom, fleet: Served, tmp_path: Path) -> None:
    headroom("snapshot", "-o", tmp_path / "world.json", "--kubeconfig", fleet.kubeconfig())
    found = json.loads(headroom("status", "--from", tmp_path / "world.json", "-o", "json").out)
    live = json.loads(headroom("status", "--kubeconfig", fleet.kubeconfig(), "-o", "json").out)
    assert found["fleet"] == live["fleet"]
    assert [each["name"] for each in found["budgets"]] == [each["name"] for each in live["budgets"]]


EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.yaml"))
DUBIOUS = ROOT / "tests" / "cli" / "dubious.yaml"


def test_both_round_alike(headroom: Headroom) -> None:
    given = ("-f", ROOT / "docs" / "examples" / "budget-used-up.yaml", "--now", NOON, "-o", "json")
    shares = [json.loads(headroom(word, *given).out)["budgets"][0]["percent"] for word in ("status", "forecast")]
    assert shares == [101.0, 101.0], "48 of 47.5 are 101.05 %"


@pytest.mark.parametrize("command", ["status", "forecast"])
def test_a_shell_may_make_many_words_of_the_files(headroom: Headroom, command: str) -> None:
    done = headroom(command, "-f", *EXAMPLES, "--now", NOON)
    assert (done.code, done.err) == (0, "")
    assert all(name in done.out for name in ("lab/team-a", "team-b/team-b", "headroom-system/research"))


def test_a_forecast_takes_a_budget_beside_files(headroom: Headroom) -> None:
    done = headroom("forecast", "lab/team-a", "-f", *EXAMPLES, "--now", NOON)
    assert done.out.startswith("lab/team-a: 48.0 of 47.5 GPU-hours in")
    refused = headroom("forecast", "lab/team-a", "lab/team-b", *OFFLINE)
    assert (refused.code, refused.out) == (2, "")
    assert "at most one budget" in refused.err


def test_a_forecast_names_what_is_wrong(headroom: Headroom, tmp_path: Path) -> None:
    done = headroom("forecast", "-f", DUBIOUS, "--now", NOON)
    assert done.code == 1
    assert done.out.startswith("GPUWorkloadBudget/lab/both: spec.enforcement.action cannot be combined with")
    assert "lab/hasty" in done.out, "what is right is told all the same"
    found = json.loads(headroom("forecast", "-f", DUBIOUS, "--now", NOON, "-o", "json").out)
    assert [each["resource"]["name"] for each in found["problems"]] == ["both", "neither", "nowhere"]
    wrong = 'apiVersion: headroom.dev/v1alpha1\nkind: GPUWorkloadBudget\nmetadata: {name: a, namespace: lab}\nspec: {quota: {gpuHours: "-1"}}\n'
    (tmp_path / "bad.yaml").write_text(wrong)
    alone = headroom("forecast", "-f", tmp_path / "bad.yaml")
    assert alone.code == 1
    assert alone.out.startswith("GPUWorkloadBudget/lab/a: spec.")
    assert alone.out.endswith("There is no valid budget.\n")
    row = next(line for line in headroom("status", "-f", tmp_path / "bad.yaml").out.splitlines() if "lab/a" in line)
    assert row.count("spec.") == 1
    assert row.endswith(" more")


def test_the_status_of_something_wrong_says_how_much(headroom: Headroom) -> None:
    done = headroom("status", "-f", DUBIOUS, "--now", NOON)
    assert done.code == 1
    *_, first, last = done.err.splitlines()
    assert first.startswith("GPUWorkloadBudget/lab/both: spec.enforcement.action "), "the first is told"
    assert last == "3 problems in what was given: `headroom check` names each, with its line"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("visoin", "There is no budget in namespace visoin (did you mean vision?).\n"),
        ("zzz", "There is no budget in namespace zzz; there are budgets in lab, vision.\n"),
    ],
)
def test_a_namespace_that_is_not_there(headroom: Headroom, asked: str, says: str) -> None:
    done = headroom("status", "-n", asked, *OFFLINE)
    assert (done.code, done.out.endswith(says)) == (0, True), done.out


def test_of_a_namespace_that_is_not_there_no_zeros_are_shown(headroom: Headroom) -> None:
    assert "GPUs" not in headroom("status", "-n", "zzz", *OFFLINE).out
    assert "\nGPUs   3 allocated\n" in headroom("status", "-n", "vision", *OFFLINE).out


@pytest.mark.parametrize(
    ("percent", "drawn", "said"),
    [
        (0, "░░░░", "0%"),
        (97.5, "███░", "97.5%"),
        (100, "████", "100%"),
        (100.5, "███▶", "100.5%"),
        (250, "███▶", "250%"),
    ],
)
def test_a_bar_tells_full_from_beyond(monkeypatch: pytest.MonkeyPatch, percent: float, drawn: str, said: str) -> None:
    monkeypatch.setattr(output, "shows_blocks", lambda: True)
    assert (output.bar(percent, 4), output.percent(percent)) == (drawn, said)


def test_only_the_fullest_fit_a_screen(headroom: Headroom, monkeypatch: pytest.MonkeyPatch) -> None:
    budget = """\
apiVersion: headroom.dev/v1alpha1
kind: GPUWorkloadBudget
metadata: {{name: team-{0:02d}, namespace: lab}}
spec:
  selector: {{matchLabels: {{team: t{0}}}}}
  quota: {{gpuHours: "100", windowHours: 24}}
  enforcement: {{action: AlertOnly}}
"""
    many = "---\n".join(budget.format(number) for number in range(30)).encode()
    words = ("status", "-f", "-", "--now", NOON)
    assert headroom(*words, stdin=many).out.count("lab/team-") == 30, "a pipe has room"
    monkeypatch.setenv("FORCE_COLOR", "1")
    screen = headroom(*words, stdin=many).out
    assert (screen.count("lab/team-"), screen.splitlines()[-1]) == (
        20,
        "and 10 budgets more, less used; --all lists them",
    )
    assert headroom(*words, "--all", stdin=many).out.count("lab/team-") == 30


def test_a_forecast_takes_no_more_rights_than_its_team_has(headroom: Headroom, fleet: Served) -> None:
    tenant = ("--kubeconfig", fleet.kubeconfig("tenant", TENANT))
    done = headroom("forecast", "lab/team-a", *tenant)
    assert done.code == 0
    assert done.out.startswith("lab/team-a: 56.0 of 100 GPU-hours in the last 24h; 4 GPUs in use now.\n")
    assert "not checked for lack of permission: " in done.err
    assert headroom("forecast", *tenant).code == 2


def test_a_forecast_without_the_ledger_says_what_it_misses(headroom: Headroom, fleet: Served) -> None:
    fleet.do(lambda server: server.object("Pod", "lab", "train-0"))
    stored = fleet.do(lambda server: server.object("GPUWorkloadBudget", "lab", "team-a"))
    assert stored is not None
    kind = {"apiVersion": "headroom.dev/v1alpha1", "kind": "GPUWorkloadBudget"}
    fleet.put(kind | stored | {"status": stored["status"] | {"consumedGpuHours": "77.5"}})
    said = headroom("forecast", "lab/team-a", "--kubeconfig", fleet.kubeconfig()).out
    assert "56.0 GPU-hours; the operator counts 77.5 with its ledger." in said


def test_watching_goes_on_until_ctrl_c(fleet: Served) -> None:
    command = [*PROGRAM, "status", "--watch", "--every", "0.2", "--kubeconfig", str(fleet.kubeconfig())]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        screens = 0
        while screens < 3:
            screens += process.stdout.readline().startswith("As of ")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert (process.returncode, said) == (130, "")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_how_far_it_is_is_shown_on_a_terminal_only(tmp_path: Path, is_terminal: bool) -> None:
    fill(tmp_path)
    ours, theirs = pty.openpty() if is_terminal else os.pipe()
    command = [*PROGRAM, "ledger", "copy", "--from", str(tmp_path / "ledger.db"), "--to", str(tmp_path / "other.db")]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=theirs, timeout=180, check=True, env=ENVIRONMENT | {"TERM": "xterm"}
    )
    os.close(theirs)
    said = os.read(ours, 100_000).decode()
    os.close(ours)
    assert done.stdout == b""
    assert ("copying" in said) == is_terminal
    assert said.splitlines()[-1].endswith("read 3 rows; 3 were new or more complete than in the ledger")
