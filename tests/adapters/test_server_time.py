"""The API server's time, from the Date of its answers."""

import pytest

from headroom.adapters.kube.server_time import ServerTime
from tests.builders import NOON

DATE = "Sun, 15 Nov 2026 12:00:00 GMT"


def test_it_goes_on_between_answers_with_the_monotonic_clock() -> None:
    time = ServerTime()
    assert time.now(5.0) is None
    time.heard({"date": DATE}, 100.0)
    assert time.now(100.0) == NOON + 500, "a Date is in whole seconds"
    assert time.now(160.0) == NOON + 60_500
    time.heard({"date": "Sun, 15 Nov 2026 13:00:00 GMT"}, 161.0)
    assert time.now(161.0) == NOON + 3_600_500


@pytest.mark.parametrize(
    "date", [None, "", "yesterday", "Sun, 99 Nov 2026 12:00:00 GMT", "0", "\ud800", f"1 Jan {10**20} 00:00:00 GMT"]
)
def test_an_answer_that_tells_no_time_changes_nothing(date: str | None) -> None:
    time = ServerTime()
    time.heard({"date": DATE}, 1.0)
    time.heard({} if date is None else {"date": date}, 2.0)
    assert time.now(1.0) == NOON + 500
