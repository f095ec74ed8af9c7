"""Who may say of a Job, a JobSet or a Workload that Headroom suspended it or let it go: by such a mark its pods would start at once."""

from __future__ import annotations

from typing import Final

from headroom.api.marks import RELEASED_AT, RELEASED_GENERATION, SUSPENDED, SUSPENDED_AT, SUSPENDED_BY
from headroom.api.policies import cel
from headroom.api.policies.guarding import RELEASER_ROLE
from headroom.api.resources import GROUP
from headroom.api.schema import Json

MARKS: Final = "headroom-marks"
OWNERS: Final = (("batch", "jobs"), ("jobset.x-k8s.io", "jobsets"), ("kueue.x-k8s.io", "workloads"))
ANNOTATIONS: Final = (RELEASED_AT, RELEASED_GENERATION, SUSPENDED_BY, SUSPENDED_AT)

MARKED: Final = (
    f"{{object}} has marks that only users who may release budgetholds.{GROUP} set, and {{user}} may not: {{keys}}; leave them out, or "
    f"have an administrator with the ClusterRole {RELEASER_ROLE} run headroom release"
)
PLAIN: Final = f"only users who may release budgetholds.{GROUP} set Headroom's marks on owners of pods"


def _old(part: str) -> str:
    return f"({cel.CREATED} ? {{}} : {part})"


def _set(key: str, new: str, old: str) -> str:
    """A key was added or given another value; whoever takes one away harms only themselves."""
    return f"({key} in {new} && (!({key} in {old}) || {new}[{key}] != {old}[{key}]))"


def owners_marked() -> dict[str, Json]:
    """Nobody without the right to release sets them; taking them away is free."""
    notes = cel.annotations_of(), _old(cel.annotations_of("oldObject"))
    is_labelled = _set(f"'{SUSPENDED}'", cel.labels_of(), _old(cel.labels_of("oldObject")))
    wrong = cel.either(is_labelled, *(_set(f"'{key}'", *notes) for key in ANNOTATIONS))
    keys = f"({is_labelled} ? ['{SUSPENDED}'] : []) + {[*ANNOTATIONS]}.filter(key, {_set('key', *notes)})"
    named = f"request.resource.resource + ' ' + {cel.POD}"
    words = cel.text(MARKED, object=named, user="request.userInfo.username", keys=f"({keys}).join(', ')")
    rules = [cel.rule(["CREATE", "UPDATE"], [plural], group) for group, plural in OWNERS]
    return {
        "failurePolicy": "Fail",
        "matchConstraints": cel.outside(*rules),
        "matchConditions": [{"name": "marked", "expression": wrong}],
        "variables": [cel.EXEMPT],
        "validations": [cel.refusal(wrong, words, PLAIN)],
    }
