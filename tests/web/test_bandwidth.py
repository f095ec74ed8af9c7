"""The pages of bandwidth as data: how full each node's links are and who has reserved what, for what each viewer may see."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headroom.runtime.journal import Journal
from headroom.sim.ledger import MemoryLedger
from headroom.web.pages import Model, bandwidth
from headroom.web.scope import EVERYTHING, Scope
from tests.builders import a_resource, a_used_world
from tests.web import links, pools
from tests.web.links import a_bit_of_everything, a_node_with, holds
from tests.web.showing import Made, page_at

TEAM = Scope(namespaces=frozenset({"team-a"}))
TEAM_WITH_NODES = Scope(namespaces=frozenset({"team-a"}), nodes=True)


def made_of(*left: pools.Left) -> Made:
    made = Made(a_used_world(*(each.resource for each in left)))
    made.journal = Journal(MemoryLedger())  # the plans would have their own word
    pools.leave(made, *left)
    return made


def shown(made: Made, *address: str, scope: Scope = EVERYTHING) -> Model:
    body = page_at(*address)(made.view(), scope)
    assert body is not None
    return body


@pytest.fixture
def made() -> Made:
    return made_of(*a_bit_of_everything())


def test_a_node_is_told_in_numbers_the_fullest_first(made: Made) -> None:
    page = shown(made, "bandwidth")
    assert list(page["nodes"]) == ["full", "odd", "calm", "quiet"]
    assert (page["maySee"], page["mode"]) == (True, "Off")
    assert page["nodes"]["calm"] == {
        "state": "Reserved",
        "tone": "good",
        "pods": 2,
        "network": {"up": [300, 1000], "down": [100, 1000]},
        "local": {"up": [500, 20000], "down": [100, 20000]},
        "percent": 30.0,
        "bar": [
            {"pod": "team-a/web", "up": 300, "down": 100, "owner": "Job train"},
            {"pod": "team-b/rank-0", "up": 200, "down": 0, "owner": "StatefulSet rank", "linkLocal": True},
        ],
    }


def test_an_overcommitted_node_says_so_and_by_how_much(made: Made) -> None:
    found = shown(made, "bandwidth")["nodes"]["full"]
    assert (found["state"], found["tone"], found["percent"]) == ("Overcommitted", "warn", 112.0)
    assert (found["edited"], found["malformed"], found["pods"]) == (1, 1, 4)
    assert found["message"].startswith("More is reserved than there is: 120 Mbps up")


@pytest.mark.parametrize(
    ("left", "state", "tone"),
    [
        (a_node_with("n"), "Free", "idle"),
        (a_node_with("n", holds("a/b", 1)), "Reserved", "good"),
        (a_node_with("n", holds("a/b", 1000)), "Reserved", "good"),
        (a_node_with("n", holds("a/b", 1001)), "Overcommitted", "warn"),
        (a_node_with("n", ready=links.UNREADABLE), "InvalidAnnotation", "warn"),
        (a_node_with("n", holds("a/b", 1001), ready=links.UNREADABLE), "Overcommitted", "warn"),
    ],
)
def test_the_state_is_one_word(left: pools.Left, state: str, tone: str) -> None:
    row = shown(made_of(left), "bandwidth")["nodes"]["n"]
    assert (row["state"], row["tone"]) == (state, tone)


def test_almost_full_never_reads_as_full() -> None:
    assert bandwidth.fullness(a_node_with("n", holds("a/b", 1999), capacity=2000).decision.status) == 99.9  # type: ignore[arg-type]  # a Bandwidth's


def test_an_invalid_object_says_what_is_wrong_with_it() -> None:
    made = Made(a_used_world(a_resource("Bandwidth", "broken", capacity={"network": {"ulMbps": -1}})))
    row = shown(made, "bandwidth")["nodes"]["broken"]
    assert (row["state"], row["tone"]) == ("Invalid", "bad")
    assert "spec.capacity.network.ulMbps" in row["message"]


def test_one_node_has_all_its_reservations_and_where_its_capacity_is_said(made: Made) -> None:
    page = shown(made, "bandwidth", "full")
    assert list(page["reservations"]) == ["team-a/train-0", "team-b/odd", "team-b/later"]
    assert page["reservations"]["team-b/later"] == {"up": 200, "down": 0, "owner": "Job train", "edited": True}
    assert (page["unlisted"], page["node"]["networkFrom"], page["node"]["localFrom"]) == (1, "Annotation", "Settings")
    assert shown(made, "bandwidth", "quiet")["node"]["hostNetworkPods"] == 2
    assert page_at("bandwidth", "nowhere")(made.view(), EVERYTHING) is None


# --- what a tenant sees ------------------------------------------------------------------------------------------------------------


def named(page: Model) -> set[str]:
    """Everything of other teams that is named in a page."""
    told = msgspec.json.encode(page).decode()
    return {each for each in ("team-b", "rank-0", "later", "odd") if each in told}


def test_who_sees_nodes_but_one_namespace_is_told_no_names_of_others(made: Made) -> None:
    page = shown(made, "bandwidth", scope=TEAM_WITH_NODES)
    assert page["nodes"]["calm"]["network"] == {"up": [300, 1000], "down": [100, 1000]}
    assert [each["pod"] for each in page["nodes"]["calm"]["bar"]] == ["team-a/web"]
    one = shown(made, "bandwidth", "full", scope=TEAM_WITH_NODES)
    assert (list(one["reservations"]), one["unlisted"]) == (["team-a/train-0"], 3)
    assert "history" not in one
    assert named(one) | named({"bars": [each.get("bar") for each in page["nodes"].values()]}) == set()


def test_who_may_not_see_nodes_sees_what_is_reserved_for_their_own_pods(made: Made) -> None:
    page = shown(made, "bandwidth", scope=TEAM)
    assert page == {
        "maySee": False,
        "nodes": {},
        "own": {
            "team-a/train-0": {"node": "full", "up": 900, "down": 400, "owner": "Job train"},
            "team-a/web": {"node": "calm", "up": 300, "down": 100, "owner": "Job train"},
        },
        "ownCount": 2,
    }
    assert page_at("bandwidth", "full")(made.view(), TEAM) is None


def test_whoever_may_see_nothing_sees_nothing(made: Made) -> None:
    assert shown(made, "bandwidth", scope=Scope()) == {"maySee": False, "nodes": {}, "own": {}, "ownCount": 0}


# --- large fleets ------------------------------------------------------------------------------------------------------------------


def test_only_the_fullest_of_many_nodes_come_with_their_reservations() -> None:
    many = [
        a_node_with(f"n{each:03}", *(holds(f"team-a/p{each}-{pod}", each) for pod in range(10))) for each in range(300)
    ]
    page = shown(made_of(*many), "bandwidth")
    detailed = [name for name, row in page["nodes"].items() if "bar" in row]
    assert (len(page["nodes"]), len(detailed)) == (300, bandwidth.MOST_DETAILED)
    assert detailed[0] == "n299"
    assert {len(page["nodes"][name]["bar"]) for name in detailed} == {bandwidth.MOST_IN_A_BAR}


def test_a_page_of_5000_nodes_is_small() -> None:
    held: list[Any] = [holds(f"team-{each}/p{each}", each) for each in range(20)]
    made = made_of(*(a_node_with(f"node-{each:04}", *held) for each in range(5000)))
    page = shown(made, "bandwidth")
    assert len(msgspec.json.encode(page)) < 1_000_000


def test_only_nodes_on_which_something_was_decided_are_worked_out_anew(made: Made) -> None:
    page = page_at("bandwidth")
    before = page(made.view(), EVERYTHING)
    pools.leave(made, a_node_with("calm", holds("team-a/web", 700)))
    after = page(made.view(), EVERYTHING)
    assert before is not None
    assert after is not None
    assert after["nodes"]["quiet"] is before["nodes"]["quiet"]
    assert after["nodes"]["calm"]["network"]["up"] == [700, 1000]
    assert before["nodes"]["calm"]["network"]["up"] == [300, 1000]


def test_the_list_of_other_resources_has_bandwidths_only_while_they_are_not_well(made: Made) -> None:
    assert list(shown(made, "overview")["others"]) == ["Bandwidth/odd"]
