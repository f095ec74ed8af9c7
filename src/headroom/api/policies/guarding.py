"""What holds at all times, also while no budget holds: who may lift our gate, set our marks, and change a declared length."""

from __future__ import annotations

from typing import Final

from headroom.api.durations import HINT
from headroom.api.marks import EXPECTED_DURATION, GATE, PROTECTED, RELEASED_AT
from headroom.api.policies import cel
from headroom.api.policies.holding import readable
from headroom.api.resources import GROUP
from headroom.api.schema import Json

GUARD: Final = "headroom-guard"
RELEASER_ROLE: Final = "headroom-releaser"
PRIVILEGED: Final = (PROTECTED, RELEASED_AT)
"""Annotations by which a pod would escape what its budget does."""
LONGEST_SHOWN: Final = 40

# --- what is said --------------------------------------------------------------------------------------------------------------

_ONLY: Final = f"only by users who may release budgetholds.{GROUP}, and {{user}} may not"
GUARDED: Final = f"only users who may release budgetholds.{GROUP} change Headroom's marks on pods"
GATE_LIFTED: Final = (
    f"pod {{pod}} is queued by its budget: Headroom removes the scheduling gate {GATE} once the quota has room; before that it is "
    f"removed {_ONLY}; headroom explain pod/{{pod}} shows the estimated start, and an administrator with the ClusterRole "
    f"{RELEASER_ROLE} may run headroom release pod/{{pod}}"
)
MARKED: Final = (
    f"the annotation {{key}} of pod {{pod}} is set, changed or removed {_ONLY}: leave it out of the pod and of its template, or "
    "have a cluster administrator annotate the pod"
)
LENGTH_CHANGED: Final = (
    f"the annotation {EXPECTED_DURATION} of pod {{pod}} cannot change, since the pod is queued by it: "
    "recreate the pod with another one"
)
LENGTH_UNREADABLE: Final = (
    f"the annotation {EXPECTED_DURATION} of pod {{pod}} must be {HINT} and longer than 0s, not {{value}}"
)
LABELS_BY_PART: Final = (
    f"the labels of pod {{pod}} are changed through its {{part}} {_ONLY}: change those of the pod itself"
)

# --- marks and gates -----------------------------------------------------------------------------------------------------------

_NEW: Final = cel.annotations_of()
_OLD: Final = f"({cel.CREATED} ? {{}} : {cel.annotations_of('oldObject')})"
_DECLARED: Final = f"{_NEW}['{EXPECTED_DURATION}']"
_UNREADABLE: Final = cel.both(cel.CREATED, cel.annotated(EXPECTED_DURATION), f"!{readable(_DECLARED)}")
_MARKED: Final = cel.either(*(cel.differs(f"'{key}'", _NEW, _OLD) for key in PRIVILEGED))
_LENGTH_CHANGED: Final = cel.both(f"!({cel.CREATED})", cel.differs(f"'{EXPECTED_DURATION}'", _NEW, _OLD))
_GATE_LIFTED: Final = cel.both(f"!({cel.CREATED})", cel.lost(GATE))
# Every hold looks at changes of labels, and only at those of the pod itself: that would be too much for every status of a kubelet.
_LABELS_BY_PART: Final = cel.both(
    f"!({cel.CREATED})",
    "has(request.subResource) && request.subResource != ''",
    f"{cel.labels_of()} != {cel.labels_of('oldObject')}",
)
_TOUCHED: Final = cel.either(_MARKED, _LENGTH_CHANGED, _UNREADABLE)
_WHO: Final = {"pod": cel.POD, "user": "request.userInfo.username"}


def guard() -> dict[str, Json]:
    """Nobody lifts our gate, protects a pod, says that it was released, or changes its length, without the right to release.

    What kubelets, schedulers and garbage collectors write touches none of these.
    """
    key = f"{[*PRIVILEGED]}.filter(key, {cel.differs('key', _NEW, _OLD)}).join(' and ')"
    shown = (
        f"!{cel.annotated(EXPECTED_DURATION)} ? '' : {_DECLARED}.size() > {LONGEST_SHOWN} ? "
        f"{_DECLARED}.substring(0, {LONGEST_SHOWN}).replace('\\n', ' ') + '...' : {_DECLARED}.replace('\\n', ' ')"
    )
    return {
        "failurePolicy": "Fail",
        # An update of the status may change the metadata too.
        "matchConstraints": cel.outside(cel.rule(["CREATE"], ["pods"]), cel.rule(["UPDATE"], ["pods", "pods/*"])),
        "matchConditions": [
            {
                "name": "ours-is-touched",
                "expression": cel.either(_GATE_LIFTED, _LABELS_BY_PART, f"{_NEW} != {_OLD} && ({_TOUCHED})"),
            }
        ],
        "variables": [cel.EXEMPT],
        "validations": [
            _refuse(_GATE_LIFTED, cel.text(GATE_LIFTED, **_WHO)),
            _refuse(_MARKED, cel.text(MARKED, key=key, **_WHO)),
            _refuse(_LENGTH_CHANGED, cel.text(LENGTH_CHANGED, pod=cel.POD)),
            _refuse(_LABELS_BY_PART, cel.text(LABELS_BY_PART, part="request.subResource", **_WHO)),
            _refuse(_UNREADABLE, cel.text(LENGTH_UNREADABLE, pod=cel.POD, value=shown)),
        ],
    }


def _refuse(wrong: str, words: str) -> dict[str, Json]:
    return cel.refusal(wrong, words, GUARDED)
