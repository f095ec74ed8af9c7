"""One round for all supplies: whoever could serve a pod, one machine opens for it, and one supply that fails leaves the others alone."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from headroom.api.power import KeepOn
from headroom.core import power
from headroom.core.capacity import round_of
from headroom.core.demand import choose
from headroom.model import conditions
from headroom.model.actions import Action, LaunchInstance, TerminateInstance, WakeMachine
from headroom.model.changes import EVERYTHING
from headroom.model.facts import NodePool
from tests.builders import NOON, a_resource
from tests.core import power_stage, toy_supply
from tests.core.power_stage import MINUTE, SECOND, a_pool, off, on, waiting
from tests.core.toy_supply import Market, plan_of


class Town(power_stage.Stage):
    """Machines that sleep, and a market."""

    def __init__(self, market: Market, *pools: Any, **more: Any) -> None:
        super().__init__(*pools, a_resource("Spotpool", "toy"), **more)
        self.market, self.plan = market, plan_of((power.SOURCE, market.source))

    def _do(self, action: Action) -> None:
        if isinstance(action, LaunchInstance):
            self._later.append((self.now + self.boot_ms, action.token, "up"))
        elif isinstance(action, TerminateInstance):
            del self.nodes[action.instance]
        else:
            super()._do(action)

    def _gpus(self, name: str) -> int:
        return self.market.gpus if name in self.market.bought else super()._gpus(name)

    def opened(self) -> list[str]:
        """Everything that was woken or bought, in order."""
        woken = [(at, each.machine) for at, each in self.done if isinstance(each, WakeMachine)]
        return [name for _, name in sorted([*woken, *self.market.sales])]


def a_town(market: Market, **fields: Any) -> Town:
    """One machine that sleeps, one that is for sale, and a pod that either could serve."""
    pool = a_pool("one", {"a": 8}, order=1, **fields)
    return Town(market, pool, nodes=[off("a")], pods=[waiting("p", 8)])


@pytest.mark.parametrize(("order", "opened"), [(0, ["toy-0"]), (2, ["a"])])
def test_the_first_supply_in_order_serves_the_pod_and_the_other_does_not(order: int, opened: list[str]) -> None:
    town = a_town(Market(order=order))
    town.pass_time(10 * MINUTE)
    assert town.opened() == opened
    assert town.pods["uid-p"].node == opened[0]


def test_a_third_supply_serves_pods_that_power_declined() -> None:
    town = Town(
        Market(order=2),
        a_pool("one", {"a": 8}, order=1, priorityFloor=10),
        nodes=[off("a")],
        pods=[waiting("low", 8), waiting("high", 8, priority=10)],
    )
    town.pass_time(10 * MINUTE)
    assert (town.pods["uid-low"].node, town.pods["uid-high"].node) == ("toy-0", "a")


def test_a_third_supply_knows_nothing_of_power() -> None:
    tree = ast.parse(Path(toy_supply.__file__).read_text())
    modules = [each.module or "" for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)]
    names = [alias.name for each in ast.walk(tree) if isinstance(each, ast.Import) for alias in each.names]
    assert not [each for each in (*modules, *names) if "power" in each]
    assert len(Path(toy_supply.__file__).read_text().splitlines()) < 150


# --- one machine for one pod --------------------------------------------------------------------------------------------------------


def test_an_earlier_supply_that_recovers_does_not_buy_while_a_machine_boots() -> None:
    market = Market(order=0, stock=0)
    town = a_town(market)
    town.look()
    assert town.opened() == ["a"]
    market.stock = 1
    town.pass_time(10 * MINUTE)
    assert town.opened() == ["a"]


def test_a_room_is_for_those_it_was_opened_for_whoever_comes_later() -> None:
    """Else the first pod would lose its room, and with it the time it has waited."""
    market = Market(order=2, stock=9)
    town = a_town(market)
    town.look()
    assert town.opened() == ["a"]
    urgent = waiting("urgent", 8, since=NOON, priority=1000)
    other = structs.replace(urgent.shape, tolerations='[{"key": "x", "operator": "Exists"}]')
    town.pods["uid-urgent"] = structs.replace(urgent, shape=other)
    found = round_of(town.world(), (power.SOURCE, market.source))
    assert found.into["a"] == ("uid-p",)
    assert [each.pods for each in found.opened.values()] == [("uid-urgent",)]


def test_what_was_bought_keeps_its_pod_while_an_earlier_machine_may_wake_again() -> None:
    town = a_town(Market(order=2))
    [ref] = [ref for ref in town.pools if ref.kind == "PowerPool"]
    rested = town.pools[ref].spec.policy.min_off_seconds * SECOND
    known = power_stage.was("a", "Off", since=NOON - rested + 30 * SECOND, slept_at=NOON - rested + 30 * SECOND)
    town.pools[ref] = power_stage.remembered(town.pools[ref], known)
    town.pass_time(10 * MINUTE)
    assert town.opened() == ["toy-0"]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_machine_that_boots_for_its_floor_serves_the_pod_that_an_earlier_supply_could(at_once: bool) -> None:
    town = a_town(Market(order=0), minOn=1)
    pod = town.pods.pop("uid-p")
    if not at_once:
        town.look()
        assert town.opened() == ["a"]
    town.pods["uid-p"] = pod
    town.pass_time(10 * MINUTE)
    assert town.opened() == ["a"]


def test_a_floor_of_the_market_serves_the_pod() -> None:
    town = a_town(Market(order=2, floor_gap=1))
    town.look()
    assert town.opened() == ["toy-0"]


@pytest.mark.parametrize(("order", "rest"), [(0, 0), (2, 600)])
def test_a_market_that_is_sold_out_every_ten_minutes_never_makes_two_machines_for_one_pod(
    order: int, rest: int
) -> None:
    market = Market(order=order)
    town = a_town(
        market, idleSeconds=60, minOnSeconds=0, minOffSeconds=rest, togglesPerHour=120, bootTimeoutSeconds=1500
    )
    town.pods.clear()
    town.boot_ms = 12 * MINUTE
    by = set()
    for number in range(24 * 60 // 29):
        before, uid = len(town.opened()), f"uid-p{number}"
        town.pods[uid] = waiting(f"p{number}", 8, since=town.now)
        for _ in range(25 * 2):
            market.stock = (town.now - NOON) // (10 * MINUTE) % 2
            town.pass_time(30 * SECOND, every=30 * SECOND)
        opened = town.opened()[before:]
        assert len(opened) <= 1
        assert town.pods[uid].node
        by |= {each[:1] for each in opened}
        town.end(uid, gone=True)
        town.pass_time(4 * MINUTE, every=30 * SECOND)
    assert by == {"a", "t"}  # both had their turns


# --- terms --------------------------------------------------------------------------------------------------------------------------


def pods(count: int, gpus: int = 8, **fields: Any) -> list[Any]:
    return [waiting(f"p{number}", gpus, **fields) for number in range(count)]


def test_a_candidate_with_a_count_is_opened_as_often_as_pods_need_it() -> None:
    town = Town(Market(stock=1000), pods=pods(3))
    town.look()
    assert town.opened() == ["toy-0", "toy-1", "toy-2"]
    town.pass_time(MINUTE)
    assert len(town.opened()) == 3


def test_beyond_the_most_that_may_be_opened_pods_pass_on() -> None:
    town = Town(Market(order=0, stock=9, at_most=1), a_pool("one", {"a": 8}, order=1), nodes=[off("a")], pods=pods(2))
    town.look()
    assert town.opened() == ["a", "toy-0"]


def test_beyond_what_may_be_opened_at_once_pods_wait() -> None:
    market = Market(order=0, stock=9, at_once=1)
    town = Town(market, a_pool("one", {"a": 8}, order=1), nodes=[off("a")], pods=pods(2))
    [unit] = next(iter(round_of(town.world(), (power.SOURCE, market.source)).waiting.values()))
    assert unit.count == 1
    assert town.opened() == ["toy-0"]


@pytest.mark.parametrize(("namespaces", "bought"), [({"team-a"}, 1), ({"team-b"}, 0), (None, 1)])
def test_a_supply_of_some_namespaces_serves_only_their_pods(namespaces: set[str] | None, bought: int) -> None:
    market = Market(stock=9, namespaces=None if namespaces is None else frozenset(namespaces))
    town = Town(market, pods=[waiting("p", 8, namespace="team-a")])
    town.look()
    assert len(town.opened()) == bought


def test_equal_pods_of_several_namespaces_are_told_apart() -> None:
    market = Market(stock=9, namespaces=frozenset({"team-b"}))
    mixed = [waiting(f"p{number}", 8, namespace=f"team-{'ab'[number % 2]}") for number in range(4)]
    town = Town(market, pods=mixed)
    town.look()
    assert len(town.opened()) == 2


@pytest.mark.parametrize("halted", ["Stopped", "Paused", "Deleting"])
def test_a_supply_that_is_halted_opens_nothing(halted: str) -> None:
    town = a_town(Market(order=0, halted=halted))
    town.look()
    assert town.opened() == ["a"]


@pytest.mark.parametrize(("beside", "bought"), [(False, 0), (True, 1)])
def test_what_karpenter_could_serve_is_declined_by_who_does_not_share(beside: bool, bought: int) -> None:
    town = Town(Market(beside_karpenter=beside), pods=pods(1), node_pools={"gpu": NodePool(name="gpu", ready=True)})
    town.look()
    assert len(town.opened()) == bought


def test_a_gang_uses_what_is_free_and_opens_the_rest() -> None:
    gang = pods(3, labels=(("scheduling.x-k8s.io/pod-group", "g"),), since=NOON - 10 * SECOND)
    town = Town(
        Market(stock=9), nodes=[on("n", 8)], pods=[structs.replace(each, created=NOON - MINUTE) for each in gang]
    )
    town.binds = False
    town.look()
    assert len(town.opened()) == 2


def test_what_does_not_come_passes_its_pods_on() -> None:
    market = Market(order=0)
    town = a_town(market)
    town.look()
    assert town.opened() == ["toy-0"]
    market.bought.clear()  # the order fell through, and nothing more is for sale
    market.stock = 0
    town._later.clear()
    town.pass_time(10 * MINUTE)
    assert town.opened() == ["toy-0", "a"]


# --- a supply that raises -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["terms", "nodes", "Ready", "Leaving", "Coming", "Closed", "settle"])
def test_a_supply_that_raises_is_left_out_and_only_its_resource_says_so(where: str) -> None:
    market = Market(order=0)
    market.raises = where
    town = a_town(market)
    town.look()
    assert town.opened() == ["a"]
    bad = conditions.find(town.decisions["toy"].status.conditions, "Ready")
    assert bad is not None
    assert (bad.status, bad.reason) == ("False", "InternalError")
    assert bad.message == f"deciding raised RuntimeError: no {where} today"
    assert town.decisions["one"].reason == "Waking"
    good = conditions.find(town.decisions["one"].status.conditions, "Ready")
    assert good is not None
    assert good.status == "True"
    market.raises = ""
    town.pass_time(10 * MINUTE)
    assert town.opened() == ["a"]
    assert town.decisions["toy"].reason == "Settled"


def test_a_pool_that_raises_keeps_its_machines_from_others() -> None:
    first, second = a_pool("first", {"a": 8}, order=1), a_pool("second", {"a": 8, "b": 8}, order=2)
    nowhere = KeepOn(begin="00:00", end="23:00", time_zone="Nowhere/AtAll")
    policy = structs.replace(first.spec.policy, keep_on=(nowhere,))
    first = structs.replace(first, spec=structs.replace(first.spec, policy=policy))
    world = power_stage.a_view(first, second, nodes=[off("a"), off("b")], pods=pods(2))
    found = {each.resource.name: each for each in plan_of((power.SOURCE,)).decide(world, EVERYTHING)}
    assert found["first"].reason == "InternalError"
    assert [each.name for each in power_stage.status(found["second"]).machines] == ["b"]
    assert power_stage.wakes(found["second"]) == ["b"]


def test_deciding_again_opens_nothing_more() -> None:
    market = Market(stock=5)
    town = Town(market, a_pool("one", {"a": 4, "b": 4}, order=1), nodes=[off("a", 4), off("b", 4)], pods=pods(5, 4))
    town.look()
    first = town.opened()
    for _ in range(3):
        town.look()
    assert town.opened() == first
    assert choose([], []).rooms == ()
