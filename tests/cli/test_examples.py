"""The examples in the docs are valid, at least one for each kind, and get a plan."""

from pathlib import Path

import pytest
import yaml

from headroom.api.kinds import KINDS, problems

FOLDER = Path(__file__).parents[2] / "docs" / "examples"
OURS = [each for path in sorted(FOLDER.glob("*.yaml")) for each in yaml.load_all(path.read_text(), yaml.SafeLoader)]


def test_there_is_one_for_each_kind() -> None:
    assert {each["kind"] for each in OURS} >= set(KINDS)


@pytest.mark.parametrize("document", [each for each in OURS if each["kind"] in KINDS], ids=lambda each: each["kind"])
def test_an_example_is_valid(document: dict[str, object]) -> None:
    assert problems(document) == []
