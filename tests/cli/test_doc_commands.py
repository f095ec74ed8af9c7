"""The commands of the pages: the program understands every one, and those that end by themselves run as written, in their order.

The commands of the README, and those with what they print, run in test_readme.py and test_page.py; kubectl's on a real API server in
integration/test_doc_kubectl.py.
"""

from __future__ import annotations

import re
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
from tests.cli import doc_commands
from tests.cli.conftest import Headroom
from tests.cli.doc_commands import PAGES, commands_of, misunderstood, named_in, parts
from tests.cli.stage import NOON_MS, ROOT, fill, fleet_behind_a_port

# What is not run here: why, and what runs it.
ELSEWHERE = {
    "headroom dashboard": "it goes on until Ctrl-C: test_dashboard.py",
    "headroom run --metrics-plain --metrics-address 127.0.0.1:8443": "the operator goes on: test_serving.py",
    "headroom run": "the operator goes on: test_serving.py",
    "headroom extender": "it goes on until it is stopped: integration/test_extender.py",
    "headroom bench workload --count 50 --rate 10 --runtime 30s --gpus 1 --label team=a --namespace default": (
        "fifty pods take a while: test_page.py makes two"
    ),
    "headroom backtest offers --prices prices.csv.gz --types types.csv -f pool.yaml": (
        "it needs recorded prices: backtest tests"
    ),
    "headroom demo": "the demo goes on until Ctrl-C: test_demo.py",
    "headroom demo --for 60 --snapshot world.json": "the same for five seconds, below",
    "headroom demo --scenario tests/scenarios/everything-goes-wrong.yaml --speed 600": (
        "a scenario of its own: scenarios/test_scenarios.py"
    ),
    "headroom ledger copy --from sqlite:///var/lib/headroom/ledger.db --to postgresql://headroom@db/usage": (
        "it needs PostgreSQL: adapters/ledger"
    ),
    "headroom ledger prune --before 2026-01-31T00:00:00Z": "the ledger here ends before that: test_page.py",
}
RUN: tuple[str, ...] = (
    "access",
    "accuracy",
    "backtest",
    "bandwidth",
    "cheapest-capacity",
    "enforcement",
    "ledger",
    "operating",
)
RUN = (*RUN, "policies", "power", "simulator", "spot-pools")
PODS = """\
apiVersion: v1
kind: Pod
metadata: {name: train-0, namespace: team-a, uid: train-0, creationTimestamp: "2026-11-15T11:50:00Z"}
spec:
  containers: [{name: main, image: main:1, resources: {limits: {nvidia.com/gpu: 8}}}]
status: {phase: Pending}
"""
SLOT = {
    "slot": 0,
    "state": "Running",
    "token": "token-0",
    "instanceId": "i-0abc",
    "instanceType": "g5.2xlarge",
    "zone": "us-east-1a",
    "since": "2026-11-15T11:55:00Z",
}
"""The machine that docs/spot-pools.md asks about."""


def ours(command: str) -> list[str]:
    """The part of a pipe that is our program, without its name."""
    return next((words[1:] for words in parts(command) if Path(words[0]).name == "headroom"), [])


def runs_elsewhere(command: str) -> bool:
    return f"headroom {' '.join(ours(command))}".strip() in ELSEWHERE


def to_run(page: str) -> list[str]:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    return [each for each in commands_of(text) if ours(each) and not runs_elsewhere(each)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_of_a_page_is_understood(page: Path) -> None:
    text = page.read_text()
    typed = [(each, misunderstood(ours(each))) for each in commands_of(text) if ours(each)]
    named = [(each, misunderstood(ours(each), whole=False)) for each in named_in(text)]
    assert [said for said in (*typed, *named) if said[1]] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_has_made_is_there(page: Path) -> None:
    made = [words[1:] for each in commands_of(page.read_text()) for words in parts(each) if words[0] == "make"]
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert [words for words in made if words[0] not in targets] == []
    benches = [word.removeprefix("NAME=") for words in made for word in words if word.startswith("NAME=")]
    assert [each for each in benches if not (ROOT / "bench" / f"{each}.py").exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_example_that_a_page_names_is_there(page: Path) -> None:
    named = re.findall(r"(?<![\w./])(?:docs/)?examples/[\w./-]*\w", page.read_text())
    folder = ROOT / "docs"
    assert [each for each in named if not (folder / each.removeprefix("docs/")).exists()] == []


def test_what_is_not_run_here_stands_in_a_page() -> None:
    written = {f"headroom {' '.join(ours(each))}".strip() for page in PAGES for each in commands_of(page.read_text())}
    assert [each for each in ELSEWHERE if each not in written] == []


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a demo leaves behind."""
    folder = tmp_path_factory.mktemp("demo")
    command = [sys.executable, "-m", "headroom", "demo", "--for", "5", "--snapshot", "world.json"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    return folder / "world.json"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A checkout with the files that pages name, a state directory with a ledger, and the fleet behind KUBECONFIG."""
    fill(tmp_path)
    for name in ("docs", "deploy", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "pods.yaml").write_text(PODS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(RealClock, "now", lambda _: NOON_MS)
    with fleet_behind_a_port(tmp_path) as cluster:
        cluster.put(*_shown(), yaml.safe_load(PODS))
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig()))
        yield tmp_path


def _shown() -> list[dict[str, Any]]:
    """The pools that the pages of spot pools and cheapest capacity show, with the status that an operator would give them."""
    texts = [doc_commands.document_of(ROOT / "docs" / f"{page}.md") for page in ("spot-pools", "cheapest-capacity")]
    given = documents.read([("pools", "---\n".join(texts).encode())]).world(NOON_MS)
    statuses = {each.resource.kind: status_wire(each.status) for each in planning.decisions(given)}
    found = [yaml.safe_load(each) for each in texts]
    for each in found:
        each["metadata"]["uid"] = each["metadata"]["name"]
        each["status"] = statuses.get(each["kind"], {})
    found[0]["status"]["slots"] = [SLOT]
    return found


def works(headroom: Headroom, folder: Path, page: str) -> None:
    """Every command of the page, in its order."""
    if shown := doc_commands.document_of(ROOT / "docs" / f"{page}.md"):
        (folder / "pool.yaml").write_text(shown)
    status = (folder / "status.json").read_bytes()
    for command in to_run(page):
        done = headroom(*ours(command), stdin=status)
        assert done.code in (0, 1) if ours(command)[0] == "check" else done.code == 0, (command, done.err, done.out)
        assert done.out or done.err, command


@pytest.mark.parametrize("page", RUN)
def test_the_commands_of_a_page_run_as_written(
    headroom: Headroom, folder: Path, monkeypatch: pytest.MonkeyPatch, page: str
) -> None:
    monkeypatch.setenv("HEADROOM_STATE_DIR", str(folder))
    works(headroom, folder, page)


def test_the_commands_on_a_demo_that_has_ended_run_as_written(headroom: Headroom, folder: Path, world: Path) -> None:
    (folder / "world.json").symlink_to(world)
    works(headroom, folder, "demo")
