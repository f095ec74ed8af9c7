"""A proxy answers wrongly for a few seconds between the operator and a real API server; `make bench NAME=blindness` has every cell."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fault_proxy import Fault
from tests.integration.blinded import LONGEST_SECONDS, Blinded, blinded


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Blinded]:
    folder: Path = tmp_path_factory.mktemp("blinded")
    with blinded(folder / "stage") as found:
        yield found


@pytest.mark.parametrize(
    ("fault", "path"),
    [
        (None, "none"),
        ("404", "all kinds of headroom.dev"),
        ("empty", "gpuworkloadbudgets"),
        ("empty", "pods"),
        ("html", "nodes"),
        ("endless", "budgetholds"),
        ("500", "jobsets, workloads, nodepools, nodeclaims"),
        ("403", "every path"),
    ],
)
def test_nothing_comes_of_a_wrong_answer(stage: Blinded, fault: Fault | None, path: str) -> None:
    outcome = stage.cell(fault, path, 4.0)
    assert outcome.effects == ()
    assert outcome.well_after < LONGEST_SECONDS  # how soon is measured by bench.blindness
