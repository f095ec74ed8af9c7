"""A status of which some part cannot be read, as after going back to an older version, keeps all other parts."""

from typing import Any

import pytest

from headroom.api import kinds
from headroom.api.kinds import KINDS

AT = "2026-11-15T11:00:00Z"
STATUS: dict[str, Any] = {
    "consumedGpuHours": "12.5",
    "trackedPods": 3,
    "steps": [{"at": "100%", "action": "Evict", "since": AT}],
    "victim": {"unit": "Pod/lab/x", "action": "Evict", "at": AT, "uids": ["u1"]},
    "evictions": [{"owner": "Job/lab/x", "count": 2, "last": AT}],
    "stopped": [{"unit": "Pod/lab/y", "action": "Evict", "at": AT}, {"unit": "Pod/lab/z", "action": "Evict", "at": AT}],
    "held": {"units": 2, "pods": 2, "queue": [{"unit": "Pod/lab/q", "gpus": "1", "state": "Waiting"}]},
    "conditions": [
        {"type": "QuotaExceeded", "status": "True", "reason": "QuotaReached", "message": "", "lastTransitionTime": AT}
    ],
}


def status(**changes: Any) -> Any:
    return kinds.status_of("GPUWorkloadBudget", STATUS | changes)


PLAIN = status()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("trackedPods", "three"),
        ("consumedGpuHours", ["12.5"]),
        ("steps", {"at": "100%"}),
        ("victim", "Pod/lab/x"),
        ("evictions", 7),
        ("stopped", [None]),
        ("held", []),
        ("conditions", "none"),
        ("forecast", "never"),
        ("newField", {"deep": 1}),
    ],
)
def test_a_field_that_cannot_be_read_takes_no_other_with_it(field: str, value: Any) -> None:
    found = status(**{field: value})
    names = dict(zip(PLAIN.__struct_encode_fields__, PLAIN.__struct_fields__, strict=True))
    for encoded, name in names.items():
        if encoded != field:
            assert getattr(found, name) == getattr(PLAIN, name), name
    if field in names:
        assert getattr(found, names[field]) == getattr(KINDS["GPUWorkloadBudget"].status(), names[field])


def test_of_a_list_only_the_item_that_cannot_be_read_is_left_out() -> None:
    broken = {"unit": "Pod/lab/w", "action": "Evict", "at": 5}
    found = status(stopped=[STATUS["stopped"][0], broken, STATUS["stopped"][1]])
    assert found.stopped == PLAIN.stopped
    parked = {"unit": "Pod/lab/p", "gpus": "1", "pods": 4, "state": "Parked"}
    found = status(held={**STATUS["held"], "queue": [parked, *STATUS["held"]["queue"]]})
    assert (found.held.units, [each.unit for each in found.held.queue]) == (2, ["Pod/lab/p", "Pod/lab/q"])
    assert found.held.queue[0].pods == 4, "what can be read of the item stays, only its state is unknown"


def test_a_part_of_a_struct_that_cannot_be_read_leaves_its_other_parts() -> None:
    found = status(victim={**STATUS["victim"], "pods": 9})
    assert (found.victim.unit, found.victim.uids, found.victim.pods) == ("Pod/lab/x", ("u1",), ())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("document", [None, [], "x", 5, {"observedGeneration": "\ud800", "conditions": [{}]}])
def test_a_status_of_another_form_is_none_at_all(kind: str, document: Any) -> None:
    assert kinds.status_of(kind, document) == KINDS[kind].status()
