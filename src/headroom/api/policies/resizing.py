"""While a budget holds, no pod that it covers grows in place: a running pod of 4 cores that becomes one of 64 is new demand.

Kubernetes resizes pods through the subresource `pods/resize`, and that alone. To shrink is free.
"""

from __future__ import annotations

from typing import Final

from headroom.api.budget_hold import BudgetHold
from headroom.api.policies import cel
from headroom.api.policies.holding import BECAUSE, WAITS
from headroom.api.resources import API_VERSION, GROUP
from headroom.api.schema import Json

RESIZE: Final = "headroom-resize"
GROWN: Final = (
    "pod {pod} cannot grow ({names}), since budget {budget} queues new pods now ({because}): wait until it has room, "
    f"or ask a user who may release budgetholds.{GROUP}"
)

PLAIN: Final = "^[0-9]{1,15}([.][0-9]{1,9})?([numkMGTP]|[KMGTP]i)?$"
"""Amounts that are compared. A huge exponent would keep `quantity` busy for ever, so any other that changes counts as more."""
_COUNTS: Final = (
    "(has(b.resources) && b.resources.exists(c, c.endsWith('*') ? n.startsWith(c.substring(0, c.size() - 1)) : c == n))"
)
"""The budget counts the resource `n`."""


def _asked(of: str, part: str) -> str:
    return f"(has({of}.resources) && has({of}.resources.{part}) ? {of}.resources.{part} : {{}})"


def _amount(of: str) -> str:
    """How much of the resource `n` it asks for; where there is only a limit, that is the request."""
    requests, limits = _asked(of, "requests"), _asked(of, "limits")
    return f"(n in {requests} ? string({requests}[n]) : n in {limits} ? string({limits}[n]) : '0')"


def _grown(holders: str) -> str:
    """The counted resources of which a container, or the pod as a whole, asks for more than before."""
    new, old = (f"(has({of}.spec.{holders}) ? {of}.spec.{holders} : [])" for of in ("object", "oldObject"))
    if not holders:
        new, old = "[object.spec]", "[oldObject.spec]"
    requests = _asked("x", "requests")
    names = f"({requests}.map(n, n) + {_asked('x', 'limits')}.filter(n, !(n in {requests})))"
    same = "y.name == x.name && " if holders else ""
    is_plain = f"p.matches('{PLAIN}') && q.matches('{PLAIN}')"
    exceeds = f"({is_plain} ? quantity(p).isGreaterThan(quantity(q)) : p != q)"
    more = f"{old}.exists(y, {same}[{_amount('x')}].exists(p, [{_amount('y')}].exists(q, {exceeds})))"
    return f"{new}.map(x, {names}.filter(n, {_COUNTS} && {more}).join(' ')).filter(s, s != '')"


_NAMES: Final = f"({' + '.join(_grown(each) for each in ('containers', 'initContainers', ''))})"


def resize() -> dict[str, Json]:
    """Refused to everybody who may not release: the owner of a pod and whatever resizes it for them alike."""
    grows = cel.both(cel.HERE, cel.selected(), f"{_NAMES}.size() > 0")
    names = f"[params.spec].map(b, {_NAMES}.join(' '))[0]"
    words = cel.text(GROWN, pod=cel.POD, names=names, budget="params.spec.budget", because=BECAUSE)
    return {
        "failurePolicy": "Fail",
        "paramKind": {"apiVersion": API_VERSION, "kind": BudgetHold.kind.name},
        "matchConstraints": cel.outside(cel.rule(["UPDATE"], ["pods/resize"])),
        "matchConditions": [{"name": "grows", "expression": f"[params.spec].exists(b, {grows})"}],
        "variables": [cel.EXEMPT],
        "validations": [cel.refusal("true", words, WAITS)],
    }
