"""The pages of power as data: what a pool and its machines are doing, and what they did in the last hours."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from msgspec import structs

from headroom.api.kinds import problems
from headroom.api.power_status import MachineStatus, PowerPoolStatus, State
from headroom.model.decisions import Ref
from headroom.model.times import HOUR, MINUTE, SECOND, text
from headroom.model.world import World
from headroom.runtime.journal import Journal
from headroom.sim.ledger import MemoryLedger
from headroom.web.pages import Maker, Model, frame, framed, search
from headroom.web.pages.machines import last_told
from headroom.web.pages.power import EXAMPLE
from headroom.web.scope import EVERYTHING, Scope
from headroom.web.view import OperatorView
from tests.builders import NOON, a_node, a_resource, a_used_world
from tests.core.stage import running
from tests.web import pools
from tests.web.showing import Made, page_at

BASEMENT = Ref("PowerPool", "", "basement")
LAB = Scope(namespaces=frozenset({"team-a"}), nodes=True)


def world_of(*left: pools.Left, **more: Any) -> World:
    return a_used_world(*(each.resource for each in left), **more)


def made_of(*left: pools.Left, **more: Any) -> Made:
    made = Made(world_of(*left, **more))
    made.journal = Journal(MemoryLedger())  # the plans would have their own word
    pools.leave(made, *left)
    return made


def shown(page: Maker, view: OperatorView, scope: Scope = EVERYTHING) -> Model:
    body = page(view, scope)
    assert body is not None
    return framed(frame(view), scope, "") | body


def basement(made: Made) -> Model:
    return shown(page_at("power", "basement"), made.view())


@pytest.fixture
def made() -> Made:
    pods = [running("train", HOUR, gpus=3, node="l4-1"), running("done", HOUR, gpus=1, node="l4-1", phase="Succeeded")]
    return made_of(pools.troubled(), pods=pods, nodes=pools.nodes_of())


def test_a_pool_is_told_in_numbers_and_in_words(made: Made) -> None:
    row = shown(page_at("power"), made.view())["pools"]["basement"]
    assert row == {
        "name": "basement",
        "state": "MachinesFailed",
        "tone": "bad",
        "machines": 8,
        "states": {"Off": 1, "Booting": 1, "On": 2, "Draining": 1, "Sleeping": 1, "Unknown": 1, "Failed": 1},
        "gpus": "32",
        "gpusOn": "8",
        "gpusFree": "5",
        "usedKwh": "12.345678",
        "savedKwh": "34.5",
        "unservedPods": 4,
        "reason": "Steady",
        "message": "2 of 8 machines are on.",
    }


@pytest.mark.parametrize(
    ("status", "spec", "state", "tone"),
    [
        ({"on": 1, "off": 1}, {}, "Steady", "good"),
        ({"on": 1, "changing": 1}, {}, "Changing", "good"),
        ({"on": 1, "unserved": pools.UNSERVED}, {}, "Unserved", "warn"),
        ({"on": 1, "unserved": pools.UNSERVED, "conditions": pools.WARNINGS}, {}, "Braked", "warn"),
        ({"on": 1, "failed": 1, "conditions": pools.WARNINGS}, {}, "MachinesFailed", "bad"),
        ({}, {}, "Waiting", "idle"),
        ({"on": 1, "failed": 1}, {"paused": True}, "Paused", "idle"),
    ],
)
def test_the_state_is_one_word(status: dict[str, Any], spec: dict[str, Any], state: str, tone: str) -> None:
    pool = structs.replace(a_resource("PowerPool", "basement", **spec), status=PowerPoolStatus(**status))
    made = Made(a_used_world(pool))
    made.decisions.clear()
    row = shown(page_at("power"), made.view())["pools"]["basement"]
    assert (row["state"], row["tone"], row["reason"]) == (state, tone, "Waiting")


def test_a_pool_without_watts_says_nothing_of_energy() -> None:
    left = pools.a_pool()
    bare = structs.replace(left.decision, status=structs.replace(left.decision.status, energy=None))
    made = made_of(left._replace(decision=bare))
    row = shown(page_at("power"), made.view())["pools"]["basement"]
    assert not {"usedKwh", "savedKwh"} & row.keys()


def test_an_invalid_pool_says_what_is_wrong_with_it() -> None:
    made = Made(a_used_world(a_resource("PowerPool", "basement", machines=[])))
    assert shown(page_at("power"), made.view())["pools"]["basement"]["state"] == "Invalid"
    page = basement(made)
    assert page["machines"] == {}
    assert "spec.machines" in page["pool"]["problems"][0]


def test_without_a_pool_there_is_one_to_begin_with() -> None:
    page = shown(page_at("power"), Made(a_used_world()).view())
    assert (page["pools"], page["example"]) == ({}, EXAMPLE)
    assert problems(yaml.safe_load(EXAMPLE)) == []


def test_each_machine_says_what_it_does_and_what_it_was_told(made: Made) -> None:
    found = basement(made)["machines"]
    assert list(found) == list(pools.BASEMENT)
    assert {name: each["state"] for name, each in found.items()} == pools.BASEMENT
    first = {name: value for name, value in found["l4-1"].items() if name != "turns"}
    assert first == {
        "state": "On",
        "since": text(NOON - 10 * MINUTE),
        "gpus": "4",
        "held": "3",
        "idleSince": text(NOON - 5 * MINUTE),
        "told": "wake",
        "toldAt": text(NOON - HOUR),
        "switch": "webhook",
        "protected": True,
        "node": "ready",
    }
    assert (found["l4-6"]["failures"], found["l4-6"]["reason"]) == (2, "No node after 900 s.")
    assert found["l4-6"]["retryAfter"] == text(NOON + HOUR)
    assert "node" not in found["l4-6"]
    assert (found["l4-5"]["told"], found["l4-5"]["node"], found["l4-3"]["node"]) == ("sleep", "not ready", "cordoned")
    assert [found[name]["switch"] for name in ("l4-2", "l4-3")] == ["Redfish", "Wake-on-LAN"]
    assert "held" not in found["l4-5"], "nothing is known of a machine that is off"


def test_a_machine_that_came_up_with_fewer_gpus_has_what_its_node_says() -> None:
    made = made_of(pools.a_pool(), nodes=[a_node("l4-1", gpus=3)])
    assert basement(made)["machines"]["l4-1"]["gpus"] == "3"


@pytest.mark.parametrize(
    ("woken", "slept", "told"),
    [
        ("", "", ("", "")),
        ("2026-11-15T12:00:00Z", "", ("wake", "2026-11-15T12:00:00Z")),
        ("2026-11-15T12:00:00Z", "2026-11-15T12:00:00.500Z", ("sleep", "2026-11-15T12:00:00.500Z")),
        ("yesterday", "2026-11-15T12:00:00Z", ("sleep", "2026-11-15T12:00:00Z")),
        ("yesterday", "", ("", "")),
    ],
)
def test_what_a_machine_was_last_told(woken: str, slept: str, told: tuple[str, str]) -> None:
    assert last_told(MachineStatus(name="w", woken_at=woken, slept_at=slept)) == told


def test_the_page_of_a_pool_has_what_people_must_know(made: Made) -> None:
    page = basement(made)
    assert [each["pod"] for each in page["unserved"]] == ["team-a/huge", "team-a/odd"]
    assert page["unserved"][0]["message"] == "It needs 16 nvidia.com/gpu and 4 are there."
    types = [each["type"] for each in page["pool"]["conditions"]]
    assert types == ["Ready", "SharedWithKarpenter", "Braked", "MachinesFailed"]
    assert page["pool"]["trials"] == [
        {"machine": "l4-2", "at": text(NOON - 10 * MINUTE)},
        {"machine": "l4-1", "at": text(NOON - 20 * MINUTE), "inVain": 2},
    ]
    assert page["pool"]["policy"]["keepOn"] == ["Mon Fri 08:00 to 18:00 Europe/Berlin, 1 on"]
    assert page["pool"]["policy"]["idleSeconds"] == 900
    assert page["mayListNodes"]


# --- the last hours -----------------------------------------------------------------------------------------------------------


def turns(made: Made, name: str) -> list[tuple[int, State]]:
    """The turns of a machine, in minutes before noon."""
    found = basement(made)["machines"][name]["turns"]
    return [((NOON - at * SECOND) // MINUTE, state) for at, state in found]


def test_the_journal_tells_the_last_hours() -> None:
    made = made_of(pools.a_pool(states={"a": "On", "b": "Off"}))
    pools.turned(made, BASEMENT, NOON - 3 * HOUR, ("a", "Off"), ("b", "On"))
    pools.turned(made, BASEMENT, NOON - 14 * MINUTE, ("a", "Booting"))
    pools.turned(made, BASEMENT, NOON - 10 * MINUTE, ("a", "On"))
    assert turns(made, "a") == [(180, "Off"), (14, "Booting"), (10, "On")]
    assert turns(made, "b") == [(180, "On"), (10, "Off")], "what is observed counts"


def test_of_what_is_older_only_how_it_stood_is_shown() -> None:
    made = made_of(pools.a_pool(states={"a": "On"}))
    for hours, state in ((50, "On"), (20, "Sleeping"), (19, "Off"), (1, "Booting")):
        pools.turned(made, BASEMENT, NOON - hours * HOUR, ("a", state))  # type: ignore[arg-type]  # one of the states
    assert turns(made, "a") == [(19 * 60, "Off"), (60, "Booting"), (10, "On")]


def test_a_machine_of_which_the_journal_knows_nothing_shows_what_is_known() -> None:
    assert turns(made_of(pools.a_pool(states={"a": "Off"})), "a") == [(10, "Off")]
    odd = pools.a_pool(states={"a": "On"})
    status = structs.replace(odd.decision.status, machines=(MachineStatus(name="a", state="On", since="odd"),))
    made = made_of(odd._replace(decision=structs.replace(odd.decision, status=status)))
    assert turns(made, "a") == []


def test_what_was_told_after_it_last_turned_does_not_count() -> None:
    """Another replica, or a clock that is off: the status says what is true."""
    made = made_of(pools.a_pool(states={"a": "On"}))
    pools.turned(made, BASEMENT, NOON - 5 * MINUTE, ("a", "Failed"))
    assert turns(made, "a") == [(10, "On")]


def test_turns_of_other_pools_are_not_mixed_in() -> None:
    made = made_of(pools.a_pool(states={"a": "On"}), pools.a_pool("attic", states={"b": "On"}))
    pools.turned(made, Ref("PowerPool", "", "attic"), NOON - 2 * HOUR, ("a", "Off"))
    assert turns(made, "a") == [(10, "On")]
    assert all(each["name"] == "basement" for each in basement(made)["history"].values())


# --- who sees it --------------------------------------------------------------------------------------------------------------


def test_pools_are_for_those_who_see_everything(made: Made) -> None:
    view = made.view()
    page = shown(page_at("power"), view, LAB)
    assert (page["maySee"], page["pools"]) == (False, {})
    assert "example" not in page
    assert page_at("power", "basement")(view, LAB) is None
    assert page_at("power", "none")(view, EVERYTHING) is None
    for text_ in (json.dumps(page), json.dumps(shown(page_at("decisions", search({})), view, LAB))):
        assert "basement" not in text_
        assert "l4-" not in text_


def test_who_may_not_list_nodes_gets_no_way_there(made: Made) -> None:
    page = shown(page_at("power", "basement"), made.view(), Scope(everything=True))
    assert not page["mayListNodes"]


def test_no_page_holds_a_null(made: Made) -> None:
    def nulls(value: Any) -> bool:
        if isinstance(value, dict):
            return any(nulls(each) for each in value.values())
        return any(nulls(each) for each in value) if isinstance(value, list) else value is None

    assert not nulls(basement(made))
    assert not nulls(shown(page_at("power"), made.view()))


# --- on the other pages -------------------------------------------------------------------------------------------------------


def test_a_node_that_sleeps_is_not_sick(made: Made) -> None:
    nodes = shown(page_at("nodes"), made.view())["nodes"]
    assert {name: each["power"] for name, each in nodes.items() if "power" in each} == {
        "l4-2": "Booting",
        "l4-5": "Off",
    }
    fleet = shown(page_at("overview"), made.view())["fleet"]
    assert (fleet["nodes"], fleet["nodesReady"], fleet["nodesAsleep"]) == (7, 4, 2)
    usable = sum(int(each["free"]) for each in nodes.values() if each["ready"] and not each["cordoned"])
    idle = sum(int(each["free"]) for each in nodes.values())
    assert int(fleet["free"]) == usable < idle, "GPUs of machines that sleep are not free"
