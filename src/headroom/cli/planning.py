"""One tick over a whole world, and how it is printed: what `plan`, `replay`, `explain` and `run --dry-run` have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headroom.cli import output, plan_text
from headroom.cli.options import Form

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headroom.core.capacity import CapacityRound
    from headroom.model.decisions import Decision, Ref
    from headroom.model.plans import Plan
    from headroom.model.world import World

MOST_USUAL: Final = 10
"""Rows of resources that are as usual, where a fleet has one for each node."""
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


def capacity_round(world: World, *, by_status: bool = False) -> CapacityRound:
    """Who is pending and which machine is for whom: with what budgets decide now, or `by_status` with what they have written."""
    from headroom.core import CAPACITY, PLANS
    from headroom.core import capacity_round as round_of
    from headroom.core.ticks import as_seen_by

    return round_of(world if by_status else as_seen_by(CAPACITY, world, PLANS))


class PlanResult(dict[str, Any]):
    """One tick as JSON has it, and beside it what a table should warn of, by resource."""

    warnings: dict[str, list[str]]
    usual: set[str]
    """Resources of which there is one for each node, and nothing to tell."""


def planned(world: World, problems: Problems | None = None, namespace: str = "") -> PlanResult:
    """The result of one tick, as `plan -o json` prints it, or what is of one namespace.

    The problems are those of the world's resources if none are given.
    """
    from headroom.model import times

    problems = [
        each
        for each in (problems_of(world) if problems is None else problems)
        if namespace in ("", each[0]["namespace"])
    ]
    found = [each for each in with_chores(world) if namespace in ("", each.resource.namespace)]
    result = PlanResult(
        now=times.text(world.now),
        problems=wire(problems),
        decisions=[decision.wire() for decision in found],
    )
    result.warnings = {str(decision.resource): decision.warnings() for decision in found}
    result.usual = _usual(world, found)
    return result


def _usual(world: World, found: Sequence[Decision]) -> set[str]:
    """Those that are only to be made; and those that are there, where they are many."""
    from headroom.model.actions import ApplyBandwidth

    usual = [each for each in found if each.routine and all(isinstance(due, ApplyBandwidth) for due in each.actions)]
    there = [each for each in usual if each.resource in world.resources]
    shown = {each.resource for each in there[:MOST_USUAL]}
    return {str(each.resource) for each in usual if each.resource not in shown}


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
    for each in problems:
        output.line(problem_line(*each))


def problem_line(what: dict[str, str], field: str, why: str) -> str:
    """A problem as people read it."""
    named = _spoken(what)
    return " ".join(word for word in (f"{named}:" if named else "", field, why) if word)


def show(result: PlanResult, form: Form) -> None:
    """Print the result."""
    if form.is_data:
        output.as_data(result, form)
        return
    show_problems([(each["resource"], each["field"], each["message"]) for each in result["problems"]])
    if result["decisions"]:
        output.line(f"Decided for {result['now']}:")
        plan_text.show(shown_of(result), result.warnings)
        if result.usual:
            output.line()
            nodes = output.counted(len(result.usual), "node")
            output.line(f"Bandwidth of {nodes} is accounted, with nothing to report; -o json has all of it.")
        output.line()
        output.line(plan_text.summary(shown_of(result)))
    elif not result["problems"]:
        output.line("There is no resource of Headroom to decide on.")


def shown_of(result: PlanResult) -> list[dict[str, Any]]:
    """The decisions that people see: those of nodes with nothing to report are only counted."""
    return [each for each in result["decisions"] if _spoken(each["resource"]) not in result.usual]


def exit_code(result: dict[str, Any]) -> int:
    """1 if something in the input is wrong."""
    return output.PROBLEMS if result["problems"] else output.OK


def due_code(result: PlanResult) -> int:
    """The same with `--exit-code`, as terraform has it: 2 if the input is right and something is due."""
    if result["problems"]:
        return output.PROBLEMS
    return output.DUE if any(map(plan_text.effects, shown_of(result))) else output.OK


def _named(ref: Ref) -> dict[str, str]:
    return {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name}


def _spoken(resource: dict[str, str]) -> str:
    return "/".join(part for part in resource.values() if part)
