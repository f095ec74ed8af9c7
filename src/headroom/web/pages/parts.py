"""What several pages share: the frame, one budget as a row, one journal entry, and numbers as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from headroom import __version__
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.kinds import AnyResource
from headroom.api.quantities import NANO, InvalidQuantity, nano
from headroom.core.usage import MICRO
from headroom.model import conditions, times
from headroom.model.decisions import Decision
from headroom.runtime.journal import Noted
from headroom.web.pages import weight
from headroom.web.scope import Scope
from headroom.web.view import OperatorView

_UID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
Model = dict[str, Any]
"""A page as plain data; unknown values are left out."""


def framed(whole: Model, scope: Scope, name: str) -> Model:
    """The frame for one viewer, with the viewer's name."""
    viewer: Model = {"everything": scope.everything} | ({"name": name} if name else {})
    if scope.everything:
        return whole | {"viewer": viewer}
    viewer["namespaces"] = sorted(scope.namespaces)
    operator = whole.get("operator", {})
    if operator.get("problems"):
        # The details may name objects of other namespaces.
        operator = operator | {"problems": ["The operator cannot see the whole cluster at the moment."]}
    return whole | {"operator": operator, "viewer": viewer}


def frame(view: OperatorView) -> Model:
    """What every page shows: the time and who acts. It includes details that only some viewers may see."""
    world = view.world()
    return known(
        {
            # Whole seconds, so that the passing of time alone updates a page at most once a second.
            "at": times.text(world.now - world.now % times.SECOND),
            "title": view.title,
            "cluster": world.cluster,
            "clusterName": view.presentation.cluster or _short(world.cluster),
            "outward": view.presentation.links_for(),
            "speed": round(view.speed()) if view.speed else None,
            "version": __version__,
            "operator": {
                "leading": view.gate.may_act(),
                "stopped": world.stopped,
                "complete": world.complete,
                "problems": [str(each) for each in view.port.problems()],
            },
        }
    )


def _short(cluster: str) -> str:
    """The first part of a uid, which is enough to tell clusters apart; any other id is meant to be read and has a name already."""
    return cluster[:8] if _UID.fullmatch(cluster) else ""


def known(model: Model) -> Model:
    """The model without unknown values."""
    return {name: value for name, value in model.items() if value is not None and value != ""}


def budget_row(resource: AnyResource, decision: Decision | None) -> Model:
    """One budget in a few numbers and words."""
    row: Model = {"namespace": resource.namespace, "name": resource.name}
    if resource.spec is None:
        said = "; ".join(f"{each.field} {each.message}" for each in resource.problems)
        return row | {"state": "Invalid", "tone": "bad", "percent": 0, "reason": "InvalidSpec", "message": said}
    status = decision.status if decision else resource.status
    assert isinstance(status, GPUWorkloadBudgetStatus)
    quota = resource.spec.quota
    state, tone = _state(resource, status)
    return row | known(
        {
            "windowHours": quota.window_hours,
            "consumedGpuHours": status.consumed_gpu_hours,
            "quotaGpuHours": _text(quota.gpu_hours),
            "consumedUsd": status.consumed_usd if quota.usd is not None or _number(status.consumed_usd) else "",
            "quotaUsd": _text(quota.usd),
            "percent": _percent((status.consumed_gpu_hours, quota.gpu_hours), (status.consumed_usd, quota.usd)),
            "burnRateGpus": status.burn_rate_gpus,
            "trackedPods": status.tracked_pods,
            "state": state,
            "tone": tone,
            "heldPods": status.held.pods if status.held else 0,
            "nextStartsAt": min((each.starts_at for each in status.held.queue if each.starts_at), default="")
            if status.held
            else "",
            "reason": decision.reason if decision else "Waiting",
            "message": decision.message if decision else "No decision has been made yet.",
            "asOf": status.as_of,
        }
        | _forecast(status)
    )


def _forecast(status: GPUWorkloadBudgetStatus) -> Model:
    """By declared ends, and what differs if nothing ended."""
    if (found := status.forecast) is None:
        return {}
    return {
        "exhaustedAt": found.exhausted_at,
        "recoversAt": found.recovers_at,
        "exhaustedAtIfNothingEnds": found.exhausted_at_if_nothing_ends,
    }


def _state(resource: AnyResource, status: GPUWorkloadBudgetStatus) -> tuple[str, str]:
    """One word for the state of a budget, and its tone. The words only summarize the status."""
    if resource.spec.paused:
        return "Paused", "idle"
    if not status.as_of:
        return "Waiting", "idle"
    entered = {each.action for each in status.steps}
    if status.victim is not None:
        return "Stopping", "bad"
    if conditions.holds(status.conditions, "Holding"):
        return "Holding", "bad"
    if "Pause" in entered:
        return "Pausing", "bad"
    if conditions.holds(status.conditions, "QuotaExceeded"):
        return "Exceeded", "bad"
    return ("Alerting", "warn") if entered else ("Ok", "good")


def _percent(*parts: tuple[str, str | int | None]) -> float:
    """The largest used share of any quota, for drawing only: the page shows the exact numbers beside it."""
    amounts = [(nano(used), nano(quota)) for used, quota in parts if used and quota is not None]
    shares = [
        used / quota
        for used, quota in amounts
        if not isinstance(used, InvalidQuantity) and not isinstance(quota, InvalidQuantity) and quota
    ]
    # Rounded down: usage below the quota must not read as 100.
    return int(1000 * max(shares, default=0.0)) / 10


def _number(amount: str | int | None) -> float:
    """For drawing and comparing; an amount that cannot be parsed counts as 0."""
    found = nano(amount) if amount not in (None, "") else 0
    return 0.0 if isinstance(found, InvalidQuantity) else found / NANO


def _text(amount: str | int | None) -> str:
    return "" if amount is None else str(amount)


def entries(found: Iterable[Noted]) -> Model:
    """Journal entries by ids that sort by time."""
    return {f"{each.at:013d}-{each.key.hex()[:8]}": entry(each) for each in found}


def entry(each: Noted) -> Model:
    """One journal entry."""
    return {
        "at": times.text(each.at),
        "resource": each.resource,
        "kind": each.ref.kind,
        "namespace": each.ref.namespace,
        "name": each.ref.name,
        "reason": each.reason,
        "message": each.message,
        "actions": list(each.actions),
        "count": each.count,
        "type": weight.type_of(each),
    }


def may_see(each: Noted, scope: Scope) -> bool:
    """Whether an entry may be shown."""
    return scope.sees(each.ref.namespace)


def decimal(micro: int) -> str:
    """Millionths as a decimal number, without trailing zeros."""
    whole, rest = divmod(micro, MICRO)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".") if rest else str(whole)


def amount(value: int, whole: int, places: int = 3) -> str:
    """An amount in whole units, rounded for people."""
    return f"{value / whole:.{places}f}"
