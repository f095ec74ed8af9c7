"""Who used what: it adds up to what the budget counts, whoever is asked about."""

from __future__ import annotations

from msgspec import structs

from headroom.core import usage
from headroom.model.facts import Price
from headroom.model.times import HOUR
from tests.builders import NOON, a_node, a_pod, a_used_world
from tests.core.stage import a_budget, running

PRICE = Price(price_per_hour=8_000_000, node="n")


def gpu_hours(amount: int) -> float:
    return amount / usage.GPU_HOUR


def test_pods_are_told_apart_and_add_up_to_what_the_budget_counts() -> None:
    pods = [running("a", 3 * HOUR, gpus=4), running("b", HOUR), running("c", HOUR, labels=())]
    budget = a_budget()
    world = a_used_world(budget, pods=pods, nodes=[a_node("n")])
    found = usage.of_budget(world, budget)
    assert [(each.pod, gpu_hours(each.gpu_ms)) for each in found.pods] == [("a", 12), ("b", 1)]
    assert gpu_hours(found.gpu_ms) == 13
    assert (found.others, found.others_gpu_ms) == (0, 0)


def test_what_a_budget_does_not_count_is_still_used_in_the_namespace() -> None:
    pods = [running("a", 3 * HOUR), running("c", HOUR, labels=()), running("x", HOUR, namespace="elsewhere")]
    found = usage.of_namespace(a_used_world(a_budget(), pods=pods, nodes=[a_node("n")]), "team-a", 24)
    assert [(each.pod, gpu_hours(each.gpu_ms)) for each in found.pods] == [("a", 3), ("c", 1)]


def test_the_window_of_a_namespace_is_cut_off() -> None:
    world = a_used_world(a_budget(), pods=[running("a", 30 * HOUR)], nodes=[a_node("n")])
    assert gpu_hours(usage.of_namespace(world, "team-a", 24).gpu_ms) == 24
    used = usage.of_pod(world, "team-a", "a")
    assert used is not None
    assert gpu_hours(used.gpu_ms) == 30


def test_a_pod_of_another_namespace_or_without_gpus_used_nothing() -> None:
    pods = [running("a", HOUR), a_pod("web", gpus=0, node="n", phase="Running", started=NOON - HOUR)]
    world = a_used_world(a_budget(), pods=pods, nodes=[a_node("n")])
    assert usage.of_pod(world, "elsewhere", "a") is None
    assert usage.of_pod(world, "team-a", "web") is None
    assert usage.of_pod(world, "team-a", "") is None


def test_dollars_are_known_only_where_all_of_them_are() -> None:
    pods = [running("a", HOUR, gpus=8)]
    plain = a_used_world(a_budget(), pods=pods, nodes=[a_node("n")])
    priced = a_used_world(a_budget(), pods=pods, nodes=[a_node("n")], prices=(PRICE,))
    assert usage.of_namespace(plain, "team-a", 24).pods[0].usd_ms is None
    assert (usage.of_namespace(priced, "team-a", 24).pods[0].usd_ms or 0) / usage.DOLLAR == 8


def test_only_so_many_are_named_and_the_others_are_added_up() -> None:
    pods = [running(f"p{number}", (number + 1) * HOUR) for number in range(4)]
    world = a_used_world(a_budget(), pods=pods, nodes=[a_node("n")])
    found = usage.of_namespace(world, "team-a", 24, most=2)
    assert [each.pod for each in found.pods] == ["p3", "p2"]
    assert (found.others, gpu_hours(found.others_gpu_ms), gpu_hours(found.gpu_ms)) == (2, 3, 10)


def test_an_empty_ledger_has_no_users() -> None:
    world = a_used_world(a_budget())
    assert usage.of_namespace(structs.replace(world, now=NOON), "team-a", 24).pods == ()
