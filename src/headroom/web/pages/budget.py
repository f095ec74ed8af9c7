"""The page of one budget: its window as a curve, the forecast, usage by user, the queue, and the history of enforcement."""

from __future__ import annotations

from typing import Any, Final

from headroom.api.budgets import GPUWorkloadBudgetSpec, GPUWorkloadBudgetStatus
from headroom.api.enforcement import EnteredStep, percent
from headroom.api.kinds import AnyResource
from headroom.api.resources import LabelSelector
from headroom.core import usage
from headroom.core.budgets import exit_share
from headroom.model.decisions import Ref, status_wire
from headroom.model.usage import DAY
from headroom.runtime.journal import Noted
from headroom.web.pages import parts, queue, who
from headroom.web.pages.curves import drawn
from headroom.web.pages.pace import Answer, Paced
from headroom.web.pages.parts import Model
from headroom.web.scope import Scope
from headroom.web.view import OperatorView

MOST_HISTORY: Final = 100
MOST_RELEASED: Final = 50
CURVE_SECONDS: Final = 1.0
SHARES_SECONDS: Final = 5.0
MOST_CURVES: Final = 64
"""Budgets whose curves are cached."""


class BudgetPage:
    """Makes the page of any budget."""

    def __init__(self) -> None:
        self._curves: dict[Ref, Paced[Model]] = {}
        self._shares: dict[Ref, Paced[usage.Shares]] = {}

    def model(self, view: OperatorView, scope: Scope, namespace: str, name: str) -> Model | None:
        """The page without its frame; None if the budget does not exist or the viewer may not see it."""
        world, ref = view.world(), Ref(usage.KIND, namespace, name)
        resource = world.resources.get(ref)
        if resource is None or not scope.sees(ref.namespace):
            return None
        decision = view.loop.decisions.get(ref)
        told = decision.status if decision else resource.status
        assert isinstance(told, GPUWorkloadBudgetStatus)
        status = status_wire(told)
        model: Model = {"budget": parts.budget_row(resource, decision) | _details(resource, status)}
        held = status.get("held", {})
        model |= {
            "topPods": status.get("topPods", []),
            "held": queue.rows(world, scope, told.held.queue if told.held else ()),
            "heldUnits": held.get("units", 0),
            "heldPods": held.get("pods", 0),
            "stopped": list(reversed(status.get("stopped", []))),
            "released": status.get("released", [])[:MOST_RELEASED],
            "refused": [_without_uids(each) for each in status.get("refused", [])],
            "history": parts.entries(_history(view, world.now, ref)),
        }
        if "following" in status:
            model["following"] = status["following"]
        if "victim" in status:
            model["victim"] = {name: status["victim"].get(name, "") for name in ("unit", "action", "at")}
        if resource.spec is not None and world.ledger.loaded and usage.is_read(world, resource):
            question = resource.spec if view.moment is None else view
            curves = _kept(self._curves, ref, CURVE_SECONDS)
            model |= curves.get(question, lambda: drawn(world, resource))
            shares = _kept(self._shares, ref, SHARES_SECONDS)
            found = shares.get(question, lambda: usage.of_budget(world, resource))
            model["who"] = who.model(world, scope, found, view.presentation.user_key)
        model["tools"] = view.presentation.links_for(namespace=namespace)
        return model


def _kept(known: dict[Ref, Paced[Answer]], ref: Ref, seconds: float) -> Paced[Answer]:
    """The cached answer for one budget; the budgets viewed last stay in the cache."""
    found = known.pop(ref, None) or Paced(seconds)
    known[ref] = found
    while len(known) > MOST_CURVES:
        del known[next(iter(known))]
    return found


def _without_uids(refused: dict[str, Any]) -> Model:
    return {name: value for name, value in refused.items() if name != "uids"}


def _details(resource: AnyResource, status: dict[str, Any]) -> Model:
    found: Model = {
        "conditions": [
            {name: each[name] for name in ("type", "status", "reason", "message")}
            | {"since": each["lastTransitionTime"]}
            for each in status.get("conditions", [])
        ],
        "problems": [f"{each.field} {each.message}" for each in resource.problems],
    }
    names = ("upperGpuHours", "remainingGpuHours", "upperUsd", "remainingUsd", "unpricedGpuHours", "lastEnforcementAt")
    found |= {name: status[name] for name in names if name in status}
    if resource.spec is not None:
        spec: GPUWorkloadBudgetSpec = resource.spec
        found |= {
            "selector": _selector(spec.selector),
            "accounting": spec.accounting,
            "gracePeriodSeconds": spec.enforcement.grace_period_seconds,
            "ladder": _ladder(spec, status),
        }
    return found


def _ladder(spec: GPUWorkloadBudgetSpec, status: dict[str, Any]) -> list[Model]:
    since = {(each["at"], each["action"]): each["since"] for each in status.get("steps", [])}
    steps: list[EnteredStep] = [
        EnteredStep(at=each.at, action=each.action, since=since.get((each.at, each.action), ""))
        for each in spec.enforcement.ladder
    ]
    return [
        parts.known({"at": each.at, "action": each.action, "since": each.since, "endsBelow": _end(each)})
        for each in steps
    ]


def _end(step: EnteredStep) -> str:
    return f"{exit_share(percent(step.at))}%"


def _selector(selector: LabelSelector) -> str:
    """The selector in kubectl's syntax."""
    words = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for each in selector.match_expressions:
        values = f"({', '.join(each.values)})"
        spoken = {"In": f"{each.key} in {values}", "NotIn": f"{each.key} notin {values}"}
        spoken |= {"Exists": each.key, "DoesNotExist": f"!{each.key}"}
        words.append(spoken[each.operator])
    return ", ".join(words)


def _history(view: OperatorView, now: int, ref: Ref) -> list[Noted]:
    name = str(ref)
    return view.journal.newest(now - 7 * DAY, MOST_HISTORY, lambda each: each.resource == name)
