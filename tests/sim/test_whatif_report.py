"""The what-if report: how its numbers are written, and how far a replay is from its record."""

from __future__ import annotations

import pytest
from msgspec import structs

from headroom.sim.whatif.comparing import Comparison
from headroom.sim.whatif.report import Section, report, span
from tests.core.stage import a_budget
from tests.sim.test_whatif import a_case, a_work, compared, played


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(0, "0s"), (0.4, "0s"), (90, "1m 30s"), (660, "11m"), (44_280, "12h 18m"), (7200, "2h"), (270_000, "3d 3h")],
)
def test_a_span_has_its_two_largest_units(seconds: float, says: str) -> None:
    assert span(seconds) == says


def test_a_report_says_how_far_a_replay_is_from_its_record() -> None:
    def told(recorded: float) -> Section:
        found = played(a_case(a_work(hours=4)), a_budget())
        budgets = [structs.replace(each, recorded_gpu_hours=recorded) for each in found.budgets]
        found = structs.replace(found, budgets=budgets)
        both = Comparison(case=a_case(), changes=[], every=1, before=found, after=found, is_record=True)
        found_accuracy = report(both).accuracy
        assert found_accuracy is not None
        return found_accuracy

    assert (told(4.0).rows, told(4.0).folded) == ([], "Within 0.1% of the record: team-a/one.")
    assert (told(3.95).rows[0][-1], told(3.95).folded) == ("+1.3%", "")
    assert told(3.0).rows == [("team-a/one", "3.0", "4.0", "+33.3%")]
    assert "Warning: team-a/one differs" in told(3.0).folded
    assert told(0.0).rows[0][3] == "no record"
    assert report(compared()).accuracy is None
