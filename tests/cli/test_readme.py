"""Every command of the README works as written, in its order, on the first budget that it shows."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headroom.adapters import documents
from headroom.cli import planning
from headroom.model.decisions import status_wire
from headroom.runtime.clock import RealClock
from tests.cli.conftest import Headroom
from tests.cli.stage import LEASE, NOON_MS, ROOT, fleet_behind_a_port

README = (ROOT / "README.md").read_text()
LINES = [line.strip() for line in re.findall(r"^ {4}(\S[^\n]*)$", README, re.MULTILINE)]
COMMANDS = [re.split(r"\s{2,}#", line)[0] for line in LINES]

# What is not run here: why, and what runs it.
ELSEWHERE = {
    "make demo": "the demo goes on until Ctrl-C: test_demo.py",
    "make setup && . .venv/bin/activate": "this test runs in what it made",
    "kubectl apply -f deploy/rbac.yaml -f deploy/roles.yaml": "the real API server: integration/test_dashboard_workstation.py",
    "kubectl apply -f budget.yaml": "the budget is in the cluster of this test",
    "headroom run": "it goes on until it is stopped: integration/test_dashboard_workstation.py",
    "headroom dashboard": "it goes on until Ctrl-C: the same",
    "headroom top": "it goes on until q: test_top.py",
}
RUN = [each for each in COMMANDS if each not in ELSEWHERE]
BUDGET = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)[0]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the README's demo leaves behind."""
    folder = tmp_path_factory.mktemp("demo")
    (command,) = (each for each in RUN if each.startswith("headroom demo "))
    words = [sys.executable, "-m", *shlex.split(command)]
    subprocess.run(words, cwd=folder, check=True, capture_output=True, timeout=300)
    return folder / "world.json"


@pytest.fixture
def folder(tmp_path: Path, world: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout with the budget of the README in a file, and a cluster with it behind KUBECONFIG."""
    for name in ("docs", "deploy"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "world.json").symlink_to(world)
    (tmp_path / "budget.yaml").write_text(BUDGET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RealClock, "now", lambda _: NOON_MS)
    with fleet_behind_a_port(tmp_path, empty=True) as cluster:
        cluster.put(*_objects(), LEASE)
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig()))
        yield tmp_path


def _objects() -> list[dict[str, Any]]:
    """The README's budget over a node and two pods, with the status that the operator would give it."""
    pods = (ROOT / "docs" / "examples" / "cluster.yaml").read_bytes()
    given = documents.read([("pods", pods), ("budget", BUDGET.encode())]).world(NOON_MS)
    statuses = {each.resource.kind: status_wire(each.status) for each in planning.decisions(given)}
    found = [*yaml.safe_load_all(pods), yaml.safe_load(BUDGET)]
    ours = [each for each in found if each["apiVersion"] != "sim.headroom.dev/v1"]
    return [{**each, **({"status": statuses[each["kind"]]} if each["kind"] in statuses else {})} for each in ours]


def test_what_is_not_run_here_stands_in_the_readme() -> None:
    assert [each for each in ELSEWHERE if each not in COMMANDS] == []
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [each for each in COMMANDS if each.startswith("make ") and each.split()[1] not in targets] == []


def test_the_readme_is_in_the_order_of_a_first_day() -> None:
    assert re.findall(r"^## (.*)$", README, re.MULTILINE) == [
        "Try it",
        "What you get",
        "Install",
        "A first budget",
        "Where to read on",
    ]


def test_the_first_budget_has_five_lines() -> None:
    assert len(BUDGET.splitlines()) == 5


@pytest.mark.parametrize("command", [each for each in RUN if not each.startswith("headroom demo ")])
def test_a_command_of_the_readme_works_as_written(headroom: Headroom, folder: Path, command: str) -> None:
    line, _, piped = command.partition(" | ")
    assert piped in ("", "kubectl apply --server-side -f -")
    program, *words = shlex.split(line)
    assert Path(program).name == "headroom"
    done = headroom(*words)
    assert done.code == 0, done.err
    assert done.out
    if piped:
        assert all(each["metadata"]["name"] for each in yaml.safe_load_all(done.out))
