"""One tick over a whole world, and how it is printed: what `plan`, `replay`, `explain` and `run --dry-run` have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headroom.cli import output
from headroom.cli.options import Form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headroom.core.capacity import Round
    from headroom.model.decisions import Decision, Ref
    from headroom.model.plans import Plan
    from headroom.model.world import World

MOST_NAMED: Final = 3
Problems = list[tuple[dict[str, str], str, str]]
"""Which object (kind, namespace, name), which field, what about it."""


def decisions(world: World) -> list[Decision]:
    """What every plan says of every valid resource."""
    from headroom.core import PLANS
    from headroom.core.ticks import decide_all

    return _valid(world, decide_all(world, PLANS))


def with_chores(world: World, plans: Sequence[Plan] | None = None) -> list[Decision]:
    """The same, and what is due although no resource asks for it: a decision more for each plan that has such."""
    from headroom.api.resources import Status
    from headroom.core import PLANS
    from headroom.core.ticks import whole_tick
    from headroom.model.decisions import Decision, Ref

    plans = PLANS if plans is None else plans
    tick, found = whole_tick(world, plans)
    says = "Left behind by resources that are gone, or that ask for it no more."
    due = {plan.name: tick.chores(plan) for plan in plans} if world.complete else {}
    return _valid(world, found) + [
        Decision(resource=Ref("Chores", "", name), status=Status(), reason="LeftOver", message=says, actions=actions)
        for name, actions in due.items()
        if actions
    ]


def _valid(world: World, found: list[Decision]) -> list[Decision]:
    known = world.resources
    return [each for each in found if each.resource not in known or not known[each.resource].problems]


def capacity_round(world: World, *, by_status: bool = False) -> Round:
    """Who is pending and which machine is for whom: with what budgets decide now, or `by_status` with what they have written."""
    from headroom.core import CAPACITY, PLANS, SOURCES
    from headroom.core.capacity import round_of
    from headroom.core.ticks import as_seen_by

    return round_of(world if by_status else as_seen_by(CAPACITY, world, PLANS), SOURCES)


class Result(dict[str, Any]):
    """One tick as JSON has it, and beside it what a table should warn of, by resource."""

    warnings: dict[str, list[str]]


def planned(world: World, problems: Problems | None = None) -> Result:
    """The result of one tick, as `plan -o json` prints it; the problems are those of the world's resources if none are given."""
    from headroom.model import times

    if problems is None:
        problems = problems_of(world)
    found = with_chores(world)
    result = Result(
        now=times.text(world.now),
        problems=wire(problems),
        decisions=[decision.wire() for decision in found],
    )
    result.warnings = {str(decision.resource): decision.warnings() for decision in found}
    return result


def problems_of(world: World) -> Problems:
    """All that is wrong with the resources of a world."""
    return [
        (_named(ref), problem.field, problem.message)
        for ref in sorted(world.resources)
        for problem in world.resources[ref].problems
    ]


def wire(problems: Problems) -> list[dict[str, Any]]:
    """Problems as programs read them."""
    return [{"resource": what, "field": field, "message": why} for what, field, why in problems]


def show_problems(problems: Problems) -> None:
    """Problems as people read them, a line each."""
    for what, field, why in problems:
        named = _spoken(what)
        output.line(" ".join(word for word in (f"{named}:" if named else "", field, why) if word))


def show(result: Result, form: Form) -> None:
    """Print the result."""
    if form.is_data:
        output.as_data(result, form)
        return
    show_problems([(each["resource"], each["field"], each["message"]) for each in result["problems"]])
    if result["decisions"]:
        output.line(f"Decided for {result['now']}:")
        rows = [_row(each, result.warnings) for each in result["decisions"]]
        output.as_table(("RESOURCE", "REASON", "ACTIONS", "MESSAGE"), rows, texts=2)
    elif not result["problems"]:
        output.line("There is no resource of Headroom to decide on.")


def exit_code(result: dict[str, Any]) -> int:
    """1 if something in the input is wrong."""
    return output.PROBLEMS if result["problems"] else output.OK


def _row(decision: dict[str, Any], warnings: dict[str, list[str]]) -> tuple[str, ...]:
    message = " ".join((decision["message"], *warnings[_spoken(decision["resource"])]))
    named = _spoken(decision["resource"])
    return named, decision["reason"], _listed(decision["actions"], named) or "none", message


def _listed(actions: list[dict[str, Any]], resource: str) -> str:
    """Actions of one type once, with what they are done to if it is little and not the resource itself."""
    from headroom.model.actions import target_of

    targets: dict[str, list[str]] = {}
    for action in actions:
        target = target_of(action)
        targets.setdefault(str(action["type"]), []).append("" if resource.endswith(f"/{target}") else target)
    shown = []
    for name, each in targets.items():
        named = " ".join(filter(None, each)) if len(each) <= MOST_NAMED else ""
        shown.append(f"{name} {named}" if named else name if len(each) == 1 else f"{name} x{len(each)}")
    return ", ".join(shown)


def _named(ref: Ref) -> dict[str, str]:
    return {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name}


def _spoken(resource: dict[str, str]) -> str:
    return "/".join(part for part in resource.values() if part)
