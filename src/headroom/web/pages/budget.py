"""The page of one budget: its window as a curve, what comes, who used it, who waits, and what was done."""

from __future__ import annotations

from typing import Any, Final

from headroom.api.budgets import GPUWorkloadBudgetSpec
from headroom.api.enforcement import EnteredStep, percent
from headroom.api.kinds import AnyResource
from headroom.api.resources import LabelSelector
from headroom.core import usage
from headroom.core.budgets import exit_share
from headroom.model import times
from headroom.model.decisions import Ref, status_wire
from headroom.model.times import SECOND
from headroom.model.usage import DAY
from headroom.model.world import World
from headroom.runtime.journal import Noted
from headroom.web.pages import parts
from headroom.web.pages.pace import Paced
from headroom.web.pages.parts import Model
from headroom.web.scope import Scope
from headroom.web.view import View

MOST_HISTORY: Final = 100
MOST_RELEASED: Final = 50
CURVE_SECONDS: Final = 1.0
MOST_CURVES: Final = 64
"""Budgets whose curve is remembered."""


class BudgetPage:
    """Makes the page of any budget."""

    def __init__(self) -> None:
        self._curves: dict[Ref, Paced[Model]] = {}

    def model(self, view: View, scope: Scope, namespace: str, name: str) -> Model | None:
        """The page without its frame; None if there is no such budget, or none that may be seen."""
        world, ref = view.world(), Ref(usage.KIND, namespace, name)
        resource = world.resources.get(ref)
        if resource is None or not scope.sees(ref.namespace):
            return None
        decision = view.loop.decisions.get(ref)
        status = status_wire(decision.status if decision else resource.status)
        model: Model = {"budget": parts.budget_row(resource, decision) | _details(resource, status)}
        held = status.get("held", {})
        model |= {
            "topPods": status.get("topPods", []),
            "held": held.get("queue", []),
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
            model |= self._curve(ref).get(resource.spec, lambda: _curves(world, resource))
        return model

    def _curve(self, ref: Ref) -> Paced[Model]:
        found = self._curves.pop(ref, None) or Paced(CURVE_SECONDS)
        self._curves[ref] = found
        while len(self._curves) > MOST_CURVES:
            del self._curves[next(iter(self._curves))]
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
    """As kubectl writes it."""
    words = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    for each in selector.match_expressions:
        values = f"({', '.join(each.values)})"
        spoken = {"In": f"{each.key} in {values}", "NotIn": f"{each.key} notin {values}"}
        spoken |= {"Exists": each.key, "DoesNotExist": f"!{each.key}"}
        words.append(spoken[each.operator])
    return ", ".join(words)


def _history(view: View, now: int, ref: Ref) -> list[Noted]:
    name = str(ref)
    return view.journal.newest(now - 7 * DAY, MOST_HISTORY, lambda each: each.resource == name)


def _curves(world: World, resource: AnyResource) -> Model:
    drawing = usage.drawing(world, resource)
    marks_ = [{"t": drawing.as_of // SECOND, "kind": "now", "text": "now"}]
    if drawing.exhausted_at is not None:
        marks_.append(_mark(drawing.exhausted_at, "exhausted", "used up at"))
    if drawing.recovers_at is not None:
        marks_.append(_mark(drawing.recovers_at, "recovers", "holds again at"))
    model = {"curve": _curve(drawing.gpus, "GPU-hours", usage.GPU_HOUR) | {"marks": marks_}}
    if drawing.usd.quota is not None or any(drawing.usd.past.sums):
        model["usdCurve"] = _curve(drawing.usd, "dollars", usage.DOLLAR) | {"marks": marks_}
    return model


def _mark(moment: int, kind: str, words: str) -> Model:
    return {"t": moment // SECOND, "kind": kind, "text": f"{words} {times.text(moment - moment % SECOND)}"}


def _curve(drawn: usage.Drawn, unit: str, whole: int) -> Model:
    line: Model = {"unit": unit} | _line(drawn.past, whole) | {"ahead": _line(drawn.ahead, whole)}
    return line if drawn.quota is None else line | {"quota": round(drawn.quota / whole, 6)}


def _line(line: usage.Line, whole: int) -> Model:
    return {
        "t": [moment // SECOND for moment in line.moments],
        "used": [round(total / whole, 4) for total in line.sums],
    }
