"""What every command prints, held against files: HEADROOM_GOLDEN=write writes them anew, to be looked at before they are kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from headroom.api import generate
from headroom.cli.main import app
from headroom.runtime.clock import RealClock
from headroom.sim.rights import Right
from tests.cli.conftest import Headroom
from tests.cli.served import Served
from tests.cli.stage import FLEET, NOON, NOON_MS, ROOT, fill, fleet_behind_a_port, steady

GOLDEN = Path(__file__).parent / "golden"
WRITES = os.environ.get("HEADROOM_GOLDEN") == "write"
EXAMPLE = ("-f", "docs/examples/budget-used-up.yaml", "--now", NOON)
OFFLINE = ("-f", str(FLEET.relative_to(ROOT)), "--now", NOON)
LINKS = ("-f", "docs/examples/bandwidth-pods.yaml", "--now", NOON)
OFFERED = ("-f", "docs/examples/cheapest/offers.yaml", "--now", NOON)
DUBIOUS = str((Path(__file__).parent / "dubious.yaml").relative_to(ROOT))

# name of the file: the command line. `@` alone leads to the fleet behind a port, FOLDER to a folder of the test's own.
CASES: dict[str, tuple[str, ...]] = {
    "help.txt": ("--help",),
    "version.txt": ("version",),
    "version.yaml": ("version", "-o", "yaml"),
    "plan.txt": ("plan", *EXAMPLE),
    "plan.json": ("plan", *EXAMPLE, "-o", "json"),
    "plan.yaml": ("plan", *EXAMPLE, "-o", "yaml"),
    "check.txt": ("check", DUBIOUS),
    "check.json": ("check", DUBIOUS, "-o", "json"),
    "check.yaml": ("check", DUBIOUS, "-o", "yaml"),
    "convert.yaml": ("convert", "FOLDER/old.yaml", "FOLDER/nodes.env"),
    "convert.json": ("convert", "FOLDER/old.yaml", "-o", "json"),
    "explain-budget.txt": ("explain", "gwb/lab/team-a", *EXAMPLE),
    "explain-budget.json": ("explain", "gwb/lab/team-a", *EXAMPLE, "-o", "json"),
    "explain-budget.yaml": ("explain", "gwb/lab/team-a", *EXAMPLE, "-o", "yaml"),
    "explain-other.txt": ("explain", "sp/inference", *OFFLINE),
    "explain-pod.txt": ("explain", "pod/lab/next", *EXAMPLE),
    "explain-pod.yaml": ("explain", "pod/lab/next", *EXAMPLE, "-o", "yaml"),
    "explain-pool.txt": ("explain", "pp/basement", *OFFLINE),
    "explain-pool.json": ("explain", "pp/basement", *OFFLINE, "-o", "json"),
    "explain-machine.txt": ("explain", "machine/gpu-02", *OFFLINE),
    "explain-machine.json": ("explain", "machine/gpu-02", *OFFLINE, "-o", "json"),
    "explain-waiting.txt": ("explain", "pod/lab/wide", *OFFLINE),
    "explain-waiting.json": ("explain", "pod/lab/wide", *OFFLINE, "-o", "json"),
    "explain-live-pool.txt": ("explain", "pp/basement", "@"),
    "explain-live-machine.txt": ("explain", "machine/gpu-02", "@"),
    "explain-live-waiting.txt": ("explain", "pod/lab/wide", "@"),
    "explain-live-budget.txt": ("explain", "gwb/vision/team-b", "@"),
    "explain-live-pod.txt": ("explain", "pod/vision/next", "@"),
    "explain-bandwidth.txt": ("explain", "bw/net-worker-1", *LINKS),
    "explain-bandwidth-pod.txt": ("explain", "pod/team-b/ring-0", *LINKS),
    "explain-bandwidth-odd.txt": ("explain", "pod/team-a/odd", *LINKS),
    "explain-bandwidth-pending.txt": ("explain", "pod/team-a/sender", *LINKS),
    "status-bandwidth.txt": ("status", *LINKS),
    "check-bandwidth.txt": ("check", LINKS[1]),
    "status.txt": ("status", *OFFLINE),
    "status.json": ("status", *OFFLINE, "-o", "json"),
    "status.yaml": ("status", *OFFLINE, "-o", "yaml"),
    "status-live.txt": ("status", "@"),
    "status-live.json": ("status", "@", "-o", "json"),
    "status-namespace.txt": ("status", "-n", "vision", "@"),
    "status-tenant.txt": ("status", "-n", "vision", "@tenant"),
    "forecast.txt": ("forecast", *OFFLINE),
    "forecast.json": ("forecast", *OFFLINE, "-o", "json"),
    "forecast.yaml": ("forecast", "--plus", "8x4h", *OFFLINE, "-o", "yaml"),
    "forecast-one.txt": ("forecast", "lab/team-a", "--plus", "8x12h", *OFFLINE),
    "forecast-one.json": ("forecast", "lab/team-a", "--plus", "8x12h", *OFFLINE, "-o", "json"),
    "forecast-live.txt": ("forecast", "--plus", "1x1h", "@"),
    "offers.txt": ("offers", *OFFERED),
    "offers.json": ("offers", *OFFERED, "-o", "json"),
    "offers.yaml": ("offers", *OFFERED, "-o", "yaml"),
    "run-dry.txt": ("run", "--dry-run", "@"),
    "run-dry.yaml": ("run", "--dry-run", "-o", "yaml", "@"),
    "replay.txt": ("replay", "FOLDER/world.json"),
    "replay.json": ("replay", "FOLDER/world.json", "-o", "json"),
    "snapshot.txt": ("snapshot", "-o", "FOLDER/new.json", "@"),
    "extender.yaml": ("extender", "--scheduler-config", "@"),
    "release.txt": ("release", "pod/vision/next", "@"),
    "stop.txt": ("stop", "--reason", "maintenance", "@"),
    "status-stopped.txt": ("status", "@stopped"),
    "resume.txt": ("resume", "@"),
    "uninstall.txt": ("uninstall", "--yes", "--force", "@"),
    "crds.yaml": ("crds",),
    "policies.yaml": ("policies",),
    "completion-bash.txt": ("completion", "bash"),
    "completion-zsh.txt": ("completion", "zsh"),
    "completion-fish.txt": ("completion", "fish"),
    "ledger-info.txt": ("ledger", "info", "--ledger-url", "FOLDER/ledger.db"),
    "ledger-info.yaml": ("ledger", "info", "--ledger-url", "FOLDER/ledger.db", "-o", "yaml"),
    "ledger-history.txt": ("ledger", "history", "--ledger-url", "FOLDER/ledger.db"),
    "ledger-history.json": ("ledger", "history", "--ledger-url", "FOLDER/ledger.db", "-o", "json"),
    "ledger-backup.txt": ("ledger", "backup", "FOLDER/monday.db", "--ledger-url", "FOLDER/ledger.db"),
    "ledger-restore.txt": ("ledger", "restore", "FOLDER/ledger.db", "--ledger-url", "FOLDER/other.db"),
    "ledger-copy.txt": ("ledger", "copy", "--from", "FOLDER/ledger.db", "--to", "FOLDER/other.db"),
    "ledger-migrate.txt": ("ledger", "migrate", "--to-version", "1", "--ledger-url", "FOLDER/ledger.db"),
    "ledger-prune.txt": ("ledger", "prune", "--before", "2024-08-01T00:00:00Z", "--ledger-url", "FOLDER/ledger.db"),
    "bench-workload.txt": ("bench", "workload", "--count", "2", "--rate", "100", "@"),
    "bench-report.txt": (
        *("bench", "report", "--count", "2", "--elapsed", "45s", "--out-dir", "FOLDER"),
        *("--status-json", "FOLDER/status.json"),
    ),
    "bench-report.yaml": (
        *("bench", "report", "--count", "2", "--elapsed", "45s", "--out-dir", "FOLDER", "-o", "yaml"),
        *("--status-json", "FOLDER/status.json"),
    ),
}
# As a person sees it, 80 columns wide.
ON_A_TERMINAL = ("plan", "explain-budget", "explain-pod", "explain-pool", "status", "forecast", "forecast-one", "check")
ELSEWHERE = {"demo", "dashboard", "simulate", "backtest offers", "top"}
"""Their outputs are no tables of a moment; their own tests look at them."""
TENANT = (Right(verbs=("*",), resources=("pods", "gpuworkloadbudgets"), namespaces=("vision",)),)


def commands() -> set[str]:
    """Every command that there is."""
    top: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]  # a group
    inner = {f"{name} {each}" for name, group in top.items() for each in getattr(group, "commands", ())}
    return {name for name, each in top.items() if not hasattr(each, "commands")} | inner


def test_every_command_has_a_golden_output() -> None:
    shown = {" ".join(words[: 2 if words[0] in ("ledger", "bench") else 1]) for words in CASES.values()}
    assert commands() - ELSEWHERE == shown - {"--help"}
    assert {path.name for path in GOLDEN.iterdir()} == {*CASES, *(f"{name}-80.txt" for name in ON_A_TERMINAL)} - MADE


MADE = {"crds.yaml", "policies.yaml"}
"""Held against what stands in deploy/."""


@pytest.fixture
def folder(tmp_path: Path, headroom: Headroom) -> Path:
    """All files that the cases name."""

    fill(tmp_path)
    return tmp_path


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Served]:
    with fleet_behind_a_port(tmp_path) as made:
        yield made


@pytest.fixture(autouse=True)
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is noon, whatever the clock says."""
    monkeypatch.setattr(RealClock, "now", lambda _: NOON_MS)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(ROOT)


def arguments(words: tuple[str, ...], folder: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    for word in words:
        if word == "FOLDER/world.json":
            request.getfixturevalue("headroom")("snapshot", "-o", folder / "world.json", *_to(request, "@"))
        yield from _to(request, word) if word.startswith("@") else (word.replace("FOLDER", str(folder)),)


def _to(request: pytest.FixtureRequest, word: str) -> tuple[str, ...]:
    fleet: Served = request.getfixturevalue("fleet")
    if word == "@tenant":
        return ("--kubeconfig", str(fleet.kubeconfig("tenant", TENANT)))
    admin = ("--kubeconfig", str(fleet.kubeconfig()))
    if word == "@stopped":
        request.getfixturevalue("headroom")("stop", "--reason", "maintenance", *admin)
    return admin


def held_against(name: str, said: str) -> None:
    file = GOLDEN / name
    if WRITES:
        file.parent.mkdir(exist_ok=True)
        file.write_text(said)
    assert said == (file.read_text() if file.exists() else ""), f"HEADROOM_GOLDEN=write writes {file} anew"


@pytest.mark.parametrize("name", [name for name in CASES if name not in MADE])
def test_a_command_prints_what_it_should(
    headroom: Headroom, folder: Path, request: pytest.FixtureRequest, name: str
) -> None:
    done = headroom(*arguments(CASES[name], folder, request))
    assert done.code in (0, 1)
    assert "\x1b" not in done.out + done.err, "colour is for terminals only"
    aside = f"\n(stderr)\n{done.err}" if done.err and name.endswith(".txt") else ""
    if name.endswith(".yaml"):
        assert list(yaml.safe_load_all(done.out))
    held_against(name, steady(done.out + aside, folder))


@pytest.mark.parametrize("name", ON_A_TERMINAL)
def test_it_fits_a_terminal(
    headroom: Headroom, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    coloured = headroom(*arguments(CASES[f"{name}.txt"], folder, request)).out
    monkeypatch.setenv("NO_COLOR", "1")
    plain = headroom(*arguments(CASES[f"{name}.txt"], folder, request)).out
    assert "\x1b" not in plain
    assert ("\x1b[3" in coloured or "\x1b[2" in coloured) == (name in ("status", "explain-pool", "plan"))
    assert max(map(len, plain.splitlines())) <= 80
    held_against(f"{name}-80.txt", plain)


def test_crds_and_policies_are_those_in_deploy(headroom: Headroom) -> None:
    kept = sorted((ROOT / "deploy" / "crds").glob("*.yaml"))
    printed = {each["metadata"]["name"]: each for each in yaml.safe_load_all(headroom("crds").out)}
    assert printed == {each["metadata"]["name"]: each for file in kept for each in yaml.safe_load_all(file.read_text())}
    policies = (generate.ROOT / "deploy" / "policies.yaml").read_text()
    assert list(yaml.safe_load_all(headroom("policies").out)) == list(yaml.safe_load_all(policies))
