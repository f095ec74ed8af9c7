"""A budget's window as curves: past usage, and the forecast with and without the durations that pods declare."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from headroom.api.kinds import AnyResource
from headroom.core import budgets, usage
from headroom.core.usage import BudgetUsage, Drawing, Drawn, UsageForecast
from headroom.model.times import HOUR, SECOND
from headroom.model.world import World
from headroom.web.pages.parts import Model


class CurveUnit(NamedTuple):
    """The unit of a curve."""

    name: str
    unit: int


GPU_HOURS: Final = CurveUnit("GPU-hours", usage.GPU_HOUR)
DOLLARS: Final = CurveUnit("dollars", usage.DOLLAR)


def drawn(world: World, budget: AnyResource) -> Model:
    """The curves of a valid budget, with the marks on them."""
    drawing = budgets.drawing(world, budget)
    length = budget.spec.quota.window_hours * HOUR
    endless = BudgetUsage(world, usage.scope_of(world, budget), length).forecasts({})
    marks = {"marks": _marks(drawing)}
    model = {"curve": _curve(drawing.gpus, endless[0], GPU_HOURS) | marks}
    if drawing.usd.quota is not None or any(drawing.usd.past.sums):
        model["usdCurve"] = _curve(drawing.usd, endless[1], DOLLARS) | marks
    return model


def _marks(drawing: Drawing) -> list[Model]:
    found: list[Model] = [{"t": drawing.as_of // SECOND, "kind": "now"}]
    turns = drawing.turns
    for moment, kind in ((turns.exhausted_at, "exhausted"), (turns.recovers_at, "recovers")):
        if moment is not None:
            found.append({"t": moment // SECOND, "kind": kind})
    return found


def _curve(drawn: Drawn, endless: UsageForecast, measure: CurveUnit) -> Model:
    declared = _line(drawn.ahead, measure)
    other = _line(usage.UsageCurve(drawn.ahead.moments, [endless.at(each) for each in drawn.ahead.moments]), measure)
    line: Model = {"unit": measure.name} | _line(drawn.past, measure) | {"ahead": declared}
    if declared != other:
        line["aheadEndless"] = other
    return line if drawn.quota is None else line | {"quota": round(drawn.quota / measure.unit, 6)}


def _line(line: usage.UsageCurve, measure: CurveUnit) -> dict[str, Any]:
    return {
        "t": [moment // SECOND for moment in line.moments],
        "used": [round(total / measure.unit, 4) for total in line.sums],
    }
