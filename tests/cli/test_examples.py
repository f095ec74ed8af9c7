"""The examples in the docs are valid, at least one for each kind, and get a plan."""

import re
from pathlib import Path

import pytest
import yaml

from headroom.api.kinds import KINDS, problems
from tests.cli import samples
from tests.cli.conftest import Headroom

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "examples"
SHOWN = [
    (path.name, block)
    for path in sorted([*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")])
    for block in re.findall(r"```yaml\n(.*?)```", path.read_text(), re.DOTALL)
]
OURS = [each for path in sorted(FOLDER.rglob("*.yaml")) for each in yaml.load_all(path.read_text(), yaml.SafeLoader)]


def test_there_is_one_for_each_kind() -> None:
    assert {each["kind"] for each in OURS} >= set(KINDS)


@pytest.mark.parametrize("document", [each for each in OURS if each["kind"] in KINDS], ids=lambda each: each["kind"])
def test_an_example_is_valid(document: dict[str, object]) -> None:
    assert problems(document) == []


def test_the_sample_of_leftover_is_what_convert_makes_of_it(headroom: Headroom) -> None:
    done = headroom("convert", "-", stdin=samples.LEFTOVER.encode())
    shown = yaml.safe_load((FOLDER / "cheapest" / "quick-test.yaml").read_text())
    assert (done.code, yaml.safe_load(done.out)) == (0, shown)


@pytest.mark.parametrize(("page", "block"), SHOWN, ids=[page for page, _ in SHOWN])
def test_what_the_pages_show_is_valid(page: str, block: str) -> None:
    found = [each for each in yaml.load_all(block, yaml.SafeLoader) if each.get("kind") in KINDS]
    assert [(page, problems(each)) for each in found if problems(each)] == []
    assert page != "enforcement.md" or found, "the ladder is shown as a whole"
