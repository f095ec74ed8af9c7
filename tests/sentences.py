"""Sentences that people read, held against a file beside the tests: HEADROOM_GOLDEN=write writes it anew, to be looked at before it is kept."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

WRITES = os.environ.get("HEADROOM_GOLDEN") == "write"
_TEST = re.compile(r"^def (test_\w+)", re.MULTILINE)


class Says(Protocol):
    """Holds sentences against those that a test had before."""

    def __call__(self, *sentences: str) -> None: ...


def read(file: Path) -> dict[str, list[str]]:
    """The sentences of each test."""
    found: dict[str, list[str]] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        if line.startswith("# "):
            found[line.removeprefix("# ")] = []
        elif line:
            found[next(reversed(found))].append(line)
    return found


def write(file: Path, found: dict[str, list[str]]) -> None:
    """All tests in their order by name."""
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join("\n".join((f"# {test}", *lines, "")) for test, lines in sorted(found.items())))


def golden_of(module: Path) -> Path:
    """Where the sentences of a module of tests are."""
    return module.parent / "golden" / f"{module.stem.removeprefix('test_')}.txt"


@pytest.fixture
def says(request: pytest.FixtureRequest) -> Iterator[Says]:
    """Each sentence that a test hands over, in this order, and no others."""
    file, test, said = golden_of(request.path), request.node.name, list[str]()
    recorded = read(file)

    def hold(*sentences: str) -> None:
        first = len(said)
        said.extend(sentences)
        if not WRITES:
            assert said[first:] == recorded.get(test, [])[first : len(said)], (
                f"HEADROOM_GOLDEN=write writes {file} anew"
            )

    yield hold
    if WRITES:
        write(file, read(file) | {test: said})
    else:
        assert said == recorded.get(test, []), f"HEADROOM_GOLDEN=write writes {file} anew"


def stale(module: Path) -> list[str]:
    """Tests with sentences that a module does not have any more."""
    tests = set(_TEST.findall(module.read_text()))
    return [test for test in read(golden_of(module)) if test.partition("[")[0] not in tests]
