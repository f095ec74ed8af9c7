"""Who may ask for a release, and in whose name: the API server writes who asks, and takes no other name."""

from __future__ import annotations

from typing import Final

from headroom.api.policies import cel
from headroom.api.policies.guarding import RELEASER_ROLE
from headroom.api.releases import ReleaseRequest
from headroom.api.resources import GROUP
from headroom.api.schema import Json

REQUESTER: Final = "headroom-requester"
REQUESTS: Final = "headroom-requests"

_PLURAL: Final = ReleaseRequest.kind.plural
_ONLY: Final = "(has(object.spec.budget) ? object.spec.budget.replace('/', '.', 1) : '')"
"""The name of the hold of the only budget that is asked about; long names are shortened there, and take the right to release all."""
MAY_ASK: Final = cel.either(
    cel.MAY_RELEASE,
    f"{_ONLY} != '' && authorizer.group('{GROUP}').resource('budgetholds').name({_ONLY}).check('release').allowed()",
)
NOT_RELEASER: Final = (
    f"{_PLURAL}.{GROUP} are created and changed only by users who may release budgetholds.{GROUP}{{only}}, and {{user}} may not: "
    f"have an administrator bind the ClusterRole {RELEASER_ROLE}"
)
FORGED: Final = (
    "spec.requestedBy must be {user}, who creates the request, not {named}: leave it out, and the API server sets it"
)
PLAIN: Final = f"only users who may release budgetholds.{GROUP} request releases, in their own name"


def requester() -> dict[str, Json]:
    """A new request gets the name of who makes it."""
    patch = "[JSONPatch{op: 'add', path: '/spec/requestedBy', value: request.userInfo.username}]"
    return {
        # The policy below refuses what has no name.
        "failurePolicy": "Ignore",
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": [cel.rule(["CREATE"], [_PLURAL], GROUP)]},
        "matchConditions": [
            {"name": "unnamed", "expression": "!has(object.spec.requestedBy) || object.spec.requestedBy == ''"}
        ],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }


def requests() -> dict[str, Json]:
    """Only who may release makes a request or changes one, and only in their own name. Anybody whom RBAC lets may delete one."""
    named = "(has(object.spec.requestedBy) ? object.spec.requestedBy : '')"
    user = "request.userInfo.username"
    only = f"{_ONLY} == '' ? '' : ' ' + {_ONLY}"
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [cel.rule(["CREATE", "UPDATE"], [_PLURAL], GROUP)]},
        "validations": [
            _refuse(MAY_ASK, cel.text(NOT_RELEASER, only=only, user=user)),
            _refuse(
                f"{named} == ({cel.CREATED} ? {user} : {named.replace('object', 'oldObject')})",
                cel.text(FORGED, user=user, named=named),
            ),
        ],
    }


def _refuse(right: str, words: str) -> dict[str, Json]:
    return {"expression": right, "message": PLAIN, "messageExpression": words, "reason": "Forbidden"}
