"""What a row keeps of its pod beside its usage: how long it said it would run, where it could, who makes it anew, why it ended."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.core import usage
from headroom.core.usage import Keeper, Look
from headroom.model.facts import Owner, Pod
from headroom.model.times import HOUR, MINUTE, SECOND
from headroom.model.usage import Ending, PodDetails, UsageRow, merged
from headroom.model.usage_table import UsageTable
from tests.builders import NOON, a_node, a_pod, a_used_world

OWNER = Owner("Job", "train", "u-1", "batch")
TYPE = (("node.kubernetes.io/instance-type", "p4d.24xlarge"),)


def a_running_pod(**more: Any) -> Pod:
    given: dict[str, Any] = {
        "owner": OWNER,
        "annotations": ((marks.EXPECTED_DURATION, "2h"),),
        "node": "worker-1",
        "phase": "Running",
        "created": NOON - HOUR,
        "started": NOON - HOUR,
    }
    return a_pod("train-0", **given | more)


def row_of(*pods: Pod) -> UsageRow:
    """The row of a pod that is seen in these states, one after the other."""
    node = structs.replace(a_node(), labels=TYPE)
    table = UsageTable("default")
    keeper = Keeper(table)
    for number, pod in enumerate(pods):
        at = NOON + number * MINUTE
        keeper.see(pod, usage.around(a_used_world(nodes=[node], now=at)), Look("default", at, at))
    [row] = list(table)
    return row


def test_a_row_keeps_what_a_replay_needs() -> None:
    pod = a_running_pod()
    pod = structs.replace(pod, shape=structs.replace(pod.shape, node_selector=(("gpu", "a100"),)))
    assert PodDetails.of(row_of(pod)) == PodDetails("Job", "train", "u-1", 2 * HOUR, "p4d.24xlarge", (("gpu", "a100"),))


def test_the_shorter_of_a_deadline_and_a_declared_length_counts() -> None:
    assert PodDetails.of(row_of(a_running_pod(deadline=HOUR))).declared == HOUR


def test_a_row_from_before_has_no_details() -> None:
    assert PodDetails.of(structs.replace(row_of(a_running_pod()), details=())) == PodDetails()


@pytest.mark.parametrize(
    ("more", "ending"),
    [
        ({"phase": "Succeeded", "ended": NOON}, Ending.FINISHED),
        ({"phase": "Failed", "ended": NOON}, Ending.FAILED),
        ({"phase": "Failed", "ended": NOON, "evicted": NOON - SECOND, "deleting": NOON + 29 * SECOND}, Ending.EVICTED),
        ({"phase": "Failed", "ended": NOON, "deleting": NOON + 25 * SECOND}, Ending.DELETED),
        ({"phase": "Succeeded", "ended": NOON, "deleting": NOON + HOUR}, Ending.FINISHED),
    ],
)
def test_a_row_says_why_its_pod_ended(more: dict[str, Any], ending: Ending) -> None:
    assert row_of(a_running_pod(), a_running_pod(ended_by="ContainerFinish", **more)).ending == ending


def test_a_pod_that_is_deleted_while_it_runs_did_not_finish() -> None:
    table, around = UsageTable("default"), usage.around(a_used_world(nodes=[a_node()]))
    keeper = Keeper(table)
    keeper.see(a_running_pod(), around, Look("default", NOON, NOON))
    keeper.lose(a_running_pod(), around, Look("default", NOON + MINUTE, NOON + MINUTE))
    assert [row.ending for row in table] == [Ending.DELETED]


def test_who_knows_more_of_a_pod_counts_whoever_writes_first() -> None:
    row = row_of(a_running_pod())
    bare = structs.replace(row, details=(), ending=Ending.UNKNOWN)
    ended = structs.replace(row, ended=NOON, evidence=3, ending=Ending.EVICTED)
    for one, other in ((bare, ended), (ended, bare)):
        found = merged(one, other)
        assert (found.details, found.ending) == (row.details, Ending.EVICTED)
    lacking = structs.replace(row, details=PodDetails.of(row)._replace(instance_type="").pairs())
    assert merged(lacking, row).details == row.details
