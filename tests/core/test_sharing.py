"""Pods that share a claim give nothing back one by one: they are stopped together, or something else is."""

from __future__ import annotations

from typing import Any

from headroom.api import marks
from headroom.model.actions import EvictPod
from headroom.model.device_facts import Claim
from headroom.model.facts import Pod
from headroom.model.times import HOUR, MINUTE
from tests.builders import a_claim
from tests.core.stage import Stage, a_budget, running

PROTECTED = {"annotations": ((marks.PROTECTED, "true"),)}


def holding(name: str, hours: int, *claims: str, **fields: Any) -> Pod:
    return running(name, hours * HOUR, gpus=0, claims=claims, **fields)


def held(name: str, devices: int, *pods: str) -> Claim:
    return a_claim(name, devices=devices, reserved_for=tuple(f"uid-{pod}" for pod in sorted(pods)))


def gone(*pods: Pod, claims: tuple[Claim, ...], hours: str = "380") -> set[str]:
    """Who is evicted within half an hour, so that 16 GPUs for a day get below so many hours."""
    stage = Stage(a_budget(hours=hours), pods=pods, claims={each.key: each for each in claims})
    stage.look()
    stage.pass_time(30 * MINUTE, every=MINUTE)
    return {each.pod.partition("/")[2] for _, each in stage.done if isinstance(each, EvictPod)}


def test_one_sharer_is_not_evicted_where_the_other_keeps_the_claim() -> None:
    pods = holding("x", 30, "c"), holding("y", 30, "c", **PROTECTED), running("z", 31 * HOUR, gpus=8)
    assert gone(*pods, claims=(held("c", 8, "x", "y"),)) == {"z"}


def test_sharers_are_judged_by_all_that_must_go_with_them() -> None:
    """The first of them would lose the least, and both together more than the one beside them."""
    pods = holding("x", 25, "c"), holding("y", 40, "c"), running("z", 30 * HOUR, gpus=8)
    assert gone(*pods, claims=(held("c", 8, "x", "y"),)) == {"z"}


def test_they_go_together_where_nothing_else_helps() -> None:
    pods = holding("x", 30, "c"), holding("y", 30, "c"), running("z", 30 * HOUR, gpus=8, **PROTECTED)
    assert gone(*pods, claims=(held("c", 8, "x", "y"),)) == {"x", "y"}


def test_a_small_claim_shared_with_one_that_stays_protects_nobody() -> None:
    pods = (
        holding("x", 30, "big", "small"),
        holding("y", 30, "big"),
        holding("p", 30, "small", **PROTECTED),
    )
    claims = held("big", 15, "x", "y"), held("small", 1, "x", "p")
    assert gone(*pods, claims=claims) == {"x", "y"}


def test_one_with_gpus_of_its_own_goes_for_those() -> None:
    pods = running("x", 30 * HOUR, gpus=8, claims=("c",)), holding("y", 30, "c", **PROTECTED)
    assert gone(*pods, claims=(held("c", 8, "x", "y"),)) == {"x"}


def test_a_claim_that_was_only_named_ties_nobody() -> None:
    pods = running("x", 30 * HOUR, gpus=8, claims=("c",)), running("y", 40 * HOUR, gpus=8, claims=("c",))
    assert gone(*pods, claims=(held("c", 0),)) == {"x"}
