"""What `-f` takes: files, folders, patterns and standard input, the same in every command that reads manifests."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Headroom
from tests.cli.stage import NOON
from tests.cli.test_behaviour import commands

BUDGET = """\
apiVersion: headroom.dev/v1alpha1
kind: GPUWorkloadBudget
metadata: {{name: {0}, namespace: lab}}
spec:
  selector: {{matchLabels: {{team: {0}}}}}
  quota: {{gpuHours: "100", windowHours: 24}}
  enforcement: {{action: AlertOnly}}
"""
READERS = (
    ("plan", "--now", NOON),
    ("status", "--now", NOON),
    ("forecast", "--now", NOON),
    ("explain", "gwb/one", "--now", NOON),
    ("check",),
    ("convert",),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two budgets, a third in a folder of the folder, and a file that is none of it."""
    (tmp_path / "deep").mkdir()
    (tmp_path / "empty").mkdir()
    for name, file in (("one", "one.yaml"), ("two", "two.yml"), ("three", "deep/three.json")):
        (tmp_path / file).write_text(BUDGET.format(name))
    (tmp_path / "README.md").write_text("# No manifest\n")
    return tmp_path


def budgets(headroom: Headroom, *words: object) -> list[str]:
    found = json.loads(headroom("plan", *words, "--now", NOON, "-o", "json").out)
    return sorted(each["resource"]["name"] for each in found["decisions"])


def test_a_folder_gives_its_manifests(headroom: Headroom, folder: Path) -> None:
    assert budgets(headroom, "-f", folder) == ["one", "two"]
    assert budgets(headroom, folder, "-R") == ["one", "three", "two"]


def test_a_pattern_gives_what_fits_it(headroom: Headroom, folder: Path) -> None:
    assert budgets(headroom, "-f", folder / "*.yaml") == ["one"]
    assert budgets(headroom, "-f", folder / "**/t*.*") == ["three", "two"]


def test_a_file_may_have_a_name_like_a_pattern(headroom: Headroom, folder: Path) -> None:
    (folder / "[a].yaml").write_text(BUDGET.format("odd"))
    assert budgets(headroom, "-f", folder / "[a].yaml") == ["odd"]


@pytest.mark.parametrize("command", READERS)
def test_every_command_takes_folders(headroom: Headroom, folder: Path, command: tuple[str, ...]) -> None:
    done = headroom(*command, "-f", folder)
    assert (done.code, done.err) == (0, "")
    assert "one" in done.out or command == ("check",)


@pytest.mark.parametrize("command", READERS)
@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("empty", "empty: the folder has no .yaml, .yml, .json"),
        ("empty", "file; check the path, or give -R to look into its folders too"),
        ("*.yml.old", "*.yml.old: no file matches; check the pattern"),
    ],
)
def test_nothing_found_is_one_sentence(
    headroom: Headroom, folder: Path, command: tuple[str, ...], given: str, says: str
) -> None:
    done = headroom(*command, "-f", folder / given)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith("headroom: reading ")
    assert says in done.err


def test_the_other_files_of_a_folder_are_checked(headroom: Headroom, folder: Path) -> None:
    (folder / "a.yaml").write_text("")
    done = headroom("check", "-f", folder)
    assert (done.code, done.out) == (2, "2 resources, no problems\n")
    assert done.err.endswith("a.yaml: it is empty; check the path, or the command that wrote it\n")


def test_policies_of_a_replay_may_be_folders(headroom: Headroom, folder: Path) -> None:
    done = headroom("simulate", "--from", folder / "none.json", "--change", folder / "empty")
    assert "none.json" in done.err


OFFER = """\
apiVersion: sim.headroom.dev/v1
kind: Offer
metadata: {{name: {0}}}
spec: {{provider: aws, region: us-east-1, zone: us-east-1a, zoneId: use1-az6, instanceType: {0}.xlarge, arch: amd64, vendor: nvidia,
       gpus: "1", capacityType: spot, pricePerHour: "0.5", at: "2026-11-15T11:58:00Z", score: 3}}
"""


def test_offers_come_from_folders_patterns_and_stdin_too(headroom: Headroom, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for name, file in (("g5", "a.yaml"), ("g6", "deep/b.yaml")):
        (tmp_path / file).write_text(OFFER.format(name))

    def types(*words: object, stdin: bytes = b"") -> list[str]:
        done = headroom("offers", *words, "--now", NOON, "-o", "json", stdin=stdin)
        assert done.code == 0, done.err
        return sorted(each["instanceType"] for each in json.loads(done.out)["pools"][0]["offers"])

    assert types("-f", tmp_path) == ["g5.xlarge"]
    assert types("-R", tmp_path) == ["g5.xlarge", "g6.xlarge"]
    assert types("-f", tmp_path / "*" / "*.yaml") == ["g6.xlarge"]
    assert types("-f", "-", stdin=OFFER.format("g7").encode()) == ["g7.xlarge"]


def test_whatever_takes_files_takes_those_of_folders_too(headroom: Headroom) -> None:
    helps = {command: headroom(*command.split(), "--help").out for command in commands()}
    takers = {command for command, said in helps.items() if " -f, --file" in said or " --file, -f" in said}
    assert {"check", "plan", "status", "top", "forecast", "explain", "convert", "offers", "backtest offers"} <= takers
    assert [each for each in sorted({*takers, "simulate"}) if "--recursive" not in helps[each]] == []


def test_help_names_no_type_of_python(headroom: Headroom) -> None:
    for command in commands():
        said = headroom(*command.split(), "--help").out
        assert re.findall(r"<(?:\w+\[)?(?:str|int|float|Path|range)\b[^>]*>", said) == [], command


def test_an_example_in_help_can_be_copied(headroom: Headroom) -> None:
    example = "  headroom plan docs/examples/budget-used-up.yaml --now 2026-11-15T12:00:00Z"
    assert example in headroom("plan", "--help").out.splitlines()
