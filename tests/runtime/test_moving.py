"""Actions carry what they need, and what moves by itself in them makes no news, no new try and no difference."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs

from headroom.api.budget_hold import BudgetHoldSpec
from headroom.api.resources import Status
from headroom.model.action_names import identity_of, occurrence_of, target_of
from headroom.model.actions import (
    BY_NAME,
    Action,
    ApplyBudgetHold,
    ApplyNodePool,
    EmitEvent,
    OnBudget,
    OnMachine,
    OnNode,
    OnOwner,
    OnPod,
    Urgency,
    WakeMachine,
)
from headroom.model.decisions import Decision
from headroom.model.errors import Unavailable
from headroom.model.handlers import carries_out, handlers_of
from headroom.runtime.loop import differences, is_news
from tests.builders import a_ref
from tests.runtime.test_writes import Desk, desk

__all__ = ["desk"]

SPEC = BudgetHoldSpec(budget="lab/one", match_labels={"team": "lab"})
HOLD = ApplyBudgetHold(budget="lab/one", spec=SPEC, because="10 of 10 used.")
LATER = structs.replace(HOLD, because="11 of 10 used.")
WIDER = structs.replace(HOLD, spec=structs.replace(SPEC, match_labels={"team": "other"}))
POOL = ApplyNodePool(node_pool="spot", spec={"limits": {"nvidia.com/gpu": 8}})


def decided(*due: Action) -> Decision:
    return Decision(resource=a_ref(), status=Status(), reason="Fine", message="", actions=due)


def test_an_action_with_a_spec_is_news_once_and_again_when_its_spec_is_another() -> None:
    larger = structs.replace(POOL, spec={"limits": {"nvidia.com/gpu": 9}})
    assert is_news(decided(), decided(POOL))
    assert not is_news(decided(POOL), decided(structs.replace(POOL)))
    assert is_news(decided(POOL), decided(larger))
    assert is_news(decided(HOLD), decided(WIDER))


def test_what_moves_is_no_news_and_no_difference_of_a_full_pass() -> None:
    assert not is_news(decided(HOLD), decided(LATER))
    assert differences({a_ref(): decided(HOLD)}, {a_ref(): decided(LATER)}) == []
    assert differences({a_ref(): decided(HOLD)}, {a_ref(): decided(WIDER)}) == [a_ref()]


async def test_what_moves_is_no_reason_to_try_again_sooner(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Action] = []

    async def refused(action: Action, _resource: object) -> None:
        tried.append(action)
        raise Unavailable("holding: no answer")

    monkeypatch.setattr(desk.port, "perform", refused)
    for hours in range(5):
        desk.submit(structs.replace(HOLD, because=f"{hours} of 10 used."))
        await desk.work()
    assert len(tried) == 1, "one action that failed, not five"
    desk.clock.seconds += 20
    desk.submit(LATER)
    await desk.work()
    assert tried[1:] == [LATER], "with what it says by then"


def test_two_events_that_differ_in_their_words_are_two_events_and_one_piece_of_news() -> None:
    one = EmitEvent(object="Pod/lab/a", event_type="Normal", reason="Released", message="1 GPU.")
    two = structs.replace(one, message="2 GPUs.")
    assert identity_of(one) == identity_of(two)
    assert occurrence_of(one) != occurrence_of(two)
    assert identity_of(one) != identity_of(structs.replace(one, object="Pod/lab/b"))


def test_every_field_that_is_named_by_a_trait_is_one() -> None:
    for each in BY_NAME.values():
        fields = set(each.__struct_fields__)
        assert each.moving <= fields, each
        assert not each.target or each.target in fields, each
        assert isinstance(each.urgency, Urgency), each
        assert each.at_once >= 1, each
        assert each.__struct_config__.tag == each.__name__


def test_actions_of_one_name_on_the_wire_are_found_by_it() -> None:
    wire = msgspec.to_builtins(POOL)
    assert BY_NAME[wire["type"]] is ApplyNodePool
    assert target_of(wire) == "spot"
    assert target_of(msgspec.to_builtins(WakeMachine(pool="rack", machine="n1"))) == "n1"
    assert target_of({"type": "OfAnotherVersion", "pod": "lab/a"}) == ""


def test_an_action_has_one_handler() -> None:
    class Hands:
        @carries_out(WakeMachine)
        def wake(self, action: WakeMachine) -> str:
            return action.machine

    class Others:
        @carries_out(WakeMachine, EmitEvent)
        def all_of_them(self) -> None: ...

    assert handlers_of(Hands())[WakeMachine](WakeMachine(pool="rack", machine="n1")) == "n1"
    with pytest.raises(TypeError, match="WakeMachine has two handlers"):
        handlers_of(Hands(), Others())


def test_only_what_can_be_done_has_a_name() -> None:
    """The classes that others are made of are no actions themselves."""
    for each in (OnPod, OnBudget, OnNode, OnOwner, OnMachine):
        assert each.__name__ not in BY_NAME
