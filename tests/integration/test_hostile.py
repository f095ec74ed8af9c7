"""A tenant with `edit` in its namespace tries everything against a budget at its limit, and gets nothing."""

from collections.abc import Iterator

import pytest

from tests.integration.besieged import RELEASED, Siege, besieged
from tests.tiers import DEEP

SECONDS = 60 if DEEP else 20
"""For the script; every move is made at least twice. `make bench NAME=hostile` goes on for an hour."""


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    with besieged(tmp_path_factory.mktemp("besieged")) as made:
        made.play(SECONDS)
        yield made


def test_what_only_others_may_do_is_refused(siege: Siege) -> None:
    assert siege.tenant.breaches == []
    assert 0 < siege.tenant.refused < siege.tenant.tried


def test_no_pod_starts_that_did_not_run_when_the_hold_began(siege: Siege) -> None:
    assert siege.intruders == set()


def test_a_release_frees_what_was_judged_however_many_pods_are_asked_for(siege: Siege) -> None:
    assert 0 < siege.peak_released <= RELEASED
    assert siege.used_released <= siege.judged


def test_gpu_hours_past_the_quota_stay_within_what_was_running(siege: Siege) -> None:
    assert 0 < siege.past_quota <= siege.running


def test_no_other_tenant_loses_a_pod(siege: Siege) -> None:
    assert siege.lost() == set()
