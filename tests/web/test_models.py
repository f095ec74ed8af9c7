"""GPUs by model: each is counted once, and free ones never contradict pending pods, since the page says what these need."""

from __future__ import annotations

from typing import Any

from headroom.model.facts import Node, Shape, Taint
from headroom.model.times import HOUR
from headroom.web.pages import models
from headroom.web.scope import EVERYTHING
from tests.builders import NOON, a_claim, a_node, a_pod, a_used_world
from tests.core.stage import a_budget, gated, running
from tests.web.showing import Made, page_at
from tests.web.test_pages import LAB, whole

PRODUCT = "nvidia.com/gpu.product"


def of(name: str, product: str = "", **more: Any) -> Node:
    labels = {"kubernetes.io/hostname": name} | ({PRODUCT: product} if product else {}) | more.pop("also", {})
    return a_node(name, labels=tuple(sorted(labels.items())), **more)


def wanting(name: str, gpus: int = 1, **selector: str) -> Any:
    requests = (("nvidia.com/gpu", gpus * 1_000_000),)
    shape = Shape(requests=requests, node_selector=tuple((PRODUCT, each) for each in selector.values()))
    return a_pod(name, shape=shape)


def test_every_gpu_is_counted_once() -> None:
    nodes = [
        of("a", "H100"),
        of("b", "H100", unschedulable=True),
        of("c", "H100", ready=False),
        of("d", "L4", ready=False),
        of("e", "L4", ready=False),
        of("f"),
        a_node("cpu", gpus=0),
    ]
    pods = [running("x", HOUR, gpus=3, node="a"), running("y", HOUR, gpus=2, node="c")]
    world = a_used_world(pods=pods, nodes=nodes)
    found = models.fleet(world, models.nodes_with_gpus(world, {"d": "Off", "e": "Booting"}))
    rows = models.rows(found)
    assert rows == {
        "H100": {
            "allocated": "5",
            "free": "5",
            "asleep": "0",
            "cordoned": "8",
            "unreachable": "6",
            "gpus": "24",
            "nodes": 3,
            "largest": "5",
        },
        "L4": {
            "allocated": "0",
            "free": "0",
            "asleep": "8",
            "booting": "8",
            "gpus": "16",
            "nodes": 2,
            "largest": "0",
        },
        models.UNNAMED: {"allocated": "0", "free": "8", "asleep": "0", "gpus": "8", "nodes": 1, "largest": "8"},
    }
    for row in rows.values():
        assert sum(float(row.get(name, "0")) for name in models.COUNTED) == float(row["gpus"])
    assert (found.allocated, found.free, found.all) == (5_000_000, 13_000_000, 48_000_000)


def test_devices_of_claims_are_allocated() -> None:
    claim = a_claim("four", devices=4, reserved_for=("uid-dra",))
    pod = running("dra", HOUR, gpus=0, claims=("four",))
    world = a_used_world(a_budget(), pods=[pod], nodes=[a_node("n")], claims={claim.key: claim})
    assert models.allocated(world) == {"n": 4_000_000}


def test_pending_pods_say_which_model_and_how_many_on_one_node() -> None:
    taints = (Taint(key="dedicated", value="x", effect="NoSchedule"),)
    pods = [
        wanting("big", 8, a="H100"),
        wanting("big2", 8, a="H100"),
        wanting("any"),
        wanting("none", 1, a="B200"),
        gated("queued", gpus=8),
        a_pod("kueue", gates=("kueue.x-k8s.io/admission",)),
    ]
    nodes = [of("a", "H100"), of("b", "L4"), of("c", "T4", taints=taints), of("d", "L4", ready=False)]
    world = a_used_world(a_budget(), pods=pods, nodes=nodes)
    assert models.needs(world, models.pending(world)) == [
        {"pods": 2, "gpus": "8", "models": ["H100"]},
        {"pods": 1, "gpus": "1", "models": []},
        {"pods": 1, "gpus": "1", "models": ["H100", "L4"]},
    ]


def test_who_asks_for_one_node_by_its_name_needs_its_model() -> None:
    shape = Shape(requests=(("nvidia.com/gpu", 1_000_000),), node_selector=(("kubernetes.io/hostname", "b"),))
    world = a_used_world(pods=[a_pod("p", shape=shape)], nodes=[of("a", "H100"), of("b", "L4"), of("c", "L4")])
    assert models.needs(world, models.pending(world))[0]["models"] == ["L4"]


def test_what_the_cluster_taints_while_a_node_is_away_is_no_need() -> None:
    away = (Taint(key="node.kubernetes.io/unreachable", value="", effect="NoSchedule"),)
    world = a_used_world(pods=[wanting("p")], nodes=[of("a", "H100", ready=False, taints=away)])
    assert models.needs(world, models.pending(world))[0]["models"] == ["H100"]


def test_the_overview_and_the_nodes_tell_them_to_those_who_may_see() -> None:
    made = Made(a_used_world(a_budget(), pods=[wanting("p", 16)], nodes=[of("a", "H100")], now=NOON))
    first = whole(page_at("overview"), made.view(), EVERYTHING)
    assert first["models"]["H100"]["free"] == "8"
    assert first["needs"] == [{"pods": 1, "gpus": "16", "models": ["H100"]}]
    nodes = whole(page_at("nodes"), made.view(), EVERYTHING)
    assert (nodes["models"], nodes["needs"]) == (first["models"], first["needs"])
    assert nodes["nodes"]["a"]["model"] == "H100"
    mine = whole(page_at("overview"), made.view(), LAB)
    assert "needs" not in mine
    assert "models" not in mine


def test_gpus_of_pods_that_have_not_started_are_told_apart() -> None:
    """They are allocated, and their time does not count yet: burn rates and these add up to what is allocated."""
    pods = [running("old", HOUR), running("new", 0, gpus=4), running("pulls", 0, gpus=2, phase="Pending", started=None)]
    made = Made(a_used_world(a_budget(), nodes=[a_node("n")], pods=pods, settled=NOON - 3000))
    page = whole(page_at("overview"), made.view(), EVERYTHING)
    assert (page["fleet"]["held"], page["fleet"]["starting"]) == ("7", "2")
    assert (page["budgets"]["team-a/one"]["burnRateGpus"], page["uncovered"]["burnRateGpus"]) == ("5", "0")
