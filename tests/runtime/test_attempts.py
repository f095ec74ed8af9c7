"""For how long what failed is left alone: not for long after an outage, and not at all once more is seen."""

import random

from headroom.model.decisions import Ref
from headroom.runtime.attempts import LONGEST_OUTAGE_SECONDS, STATUS, Attempts
from tests.adapters.played import Clock

REF = Ref("GPUWorkloadBudget", "team-a", "one")


def failing(times: int, **longest: float) -> tuple[Clock, Attempts]:
    clock = Clock()
    attempts = Attempts(clock, random.Random(1))
    for _ in range(times):
        attempts.failed(REF, STATUS, 1.0, "not now", **longest)
    return clock, attempts


def test_an_outage_however_long_is_over_soon_after_it_ends() -> None:
    clock, attempts = failing(20, longest=LONGEST_OUTAGE_SECONDS)
    assert not attempts.is_due(REF, STATUS)
    clock.time += 1.5 * LONGEST_OUTAGE_SECONDS
    assert attempts.is_due(REF, STATUS)


def test_what_was_refused_is_tried_at_once_when_more_is_seen() -> None:
    clock, attempts = failing(20)
    clock.time += 60
    assert not attempts.is_due(REF, STATUS)
    attempts.take_due()
    attempts.forgive()
    assert attempts.is_due(REF, STATUS)
    assert attempts.take_due() == {REF}


def test_what_was_done_is_not_done_again_for_that() -> None:
    clock = Clock()
    attempts = Attempts(clock, random.Random(1))
    attempts.succeeded(REF, b"an action")
    attempts.forgive()
    assert not attempts.is_due(REF, b"an action")
