"""Whose a queued pod is: the API server writes which controller made it, and nobody else can say so.

Anybody may name a Job of their namespace as the owner of a pod of theirs, and the controller of Jobs adopts whatever has the right
labels. Neither is one of the pods that the Job's template describes, so a release of the Job is not for them.
"""

from __future__ import annotations

from typing import Final

from headroom.api.marks import CONTROLLER_UID
from headroom.api.policies import cel
from headroom.api.resources import GROUP
from headroom.api.schema import Json

OWNED: Final = "headroom-owned"
OWNERSHIP: Final = "headroom-ownership"
SINGLE_GROUP: Final = "apps"
"""The pods of its kinds do without one another, so each is released by its own name."""

FORGED: Final = (
    f"the annotation {CONTROLLER_UID} of pod {{pod}} names the controller that created it, so only the API server sets it, not "
    f"{{user}}: leave it out of the pod and of its template"
)
PLAIN: Final = (
    f"only the API server, or a user who may release budgetholds.{GROUP}, names the controller that created a pod"
)

_CONTROLLERS: Final = (
    "(has(object.metadata.ownerReferences) ? "
    "object.metadata.ownerReferences.filter(o, has(o.controller) && o.controller) : [])"
)
_GROUP_OF: Final = "o.apiVersion.split('/')[0]"
_MADE_IT: Final = (
    f"(o.apiVersion.contains('/') && {_GROUP_OF} != '{SINGLE_GROUP}' && "
    f"authorizer.group({_GROUP_OF}).resource(o.kind.lowerAscii() + 's').subresource('status').check('update').allowed())"
)
"""Whoever may write the status of such owners in the whole cluster is their controller; in their own namespace an administrator may too."""
_SAID: Final = f"{cel.annotations_of()}['{CONTROLLER_UID}']"


def _made_by(*, named: bool) -> str:
    """The controller makes it, and the annotation names that one, or does not yet."""
    is_named = f"({cel.annotated(CONTROLLER_UID)} && {_SAID} == o.uid)"
    return f"{_CONTROLLERS}.exists(o, {is_named if named else f'!{is_named}'} && {_MADE_IT})"


def owned() -> dict[str, Json]:
    """A new pod with a gate gets the uid of the controller that makes it.

    The condition does not ask for the gate: others may set it later, and the server asks again only where the condition held before.
    """
    uid = f"{_CONTROLLERS}[0].uid"
    mark = f"Object{{metadata: Object.metadata{{annotations: {{'{CONTROLLER_UID}': {uid}}}}}}}"
    return {
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": cel.pods("CREATE"),
        "matchConditions": [
            {"name": "made-by-its-controller", "expression": _made_by(named=False)},
        ],
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": f"{cel.gates()} ? {mark} : Object{{}}"},
            }
        ],
    }


def ownership() -> dict[str, Json]:
    """Nobody without the right to release says who made a pod: neither when it is made, nor later, nor through a part of it."""
    old = f"({cel.CREATED} ? {{}} : {cel.annotations_of('oldObject')})"
    changed = cel.differs(f"'{CONTROLLER_UID}'", cel.annotations_of(), old)
    wrong = f"!({cel.CREATED} && {_made_by(named=True)})"
    return {
        "failurePolicy": "Fail",
        "matchConstraints": cel.outside(cel.rule(["CREATE"], ["pods"]), cel.rule(["UPDATE"], ["pods", "pods/*"])),
        "matchConditions": [{"name": "said", "expression": changed}],
        "variables": [cel.EXEMPT],
        "validations": [cel.refusal(wrong, cel.text(FORGED, pod=cel.POD, user="request.userInfo.username"), PLAIN)],
    }
