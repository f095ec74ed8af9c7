"""What `headroom check` finds dubious about a valid LeftoverNodePool."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.api import offer_advice
from headroom.api.kinds import AnyResource
from tests.builders import a_resource

GOOD: dict[str, Any] = {"families": ["g5", "g6"], "taints": ["nvidia.com/gpu:NoSchedule"]}


def a_pool(name: str = "one", **spec: Any) -> AnyResource:
    found = a_resource("LeftoverNodePool", name, **GOOD | spec)
    assert not found.problems, found.problems
    return found


def advised(**spec: Any) -> list[str]:
    return [f"{each.field} {each.message}" for each in offer_advice.of_pool(a_pool(**spec), spec)]


def test_an_ordinary_pool_is_not_dubious() -> None:
    assert advised() == []


@pytest.mark.parametrize(
    ("spec", "field", "says"),
    [
        ({"families": ["g5x"]}, "spec.families[0]", "did you mean g5"),
        ({"families": ["g5", "inf2"]}, "spec.families[1]", "not a known GPU family of AWS"),
        ({"families": ["g5", "g5g"]}, "spec.families[1]", "arm64; with architecture amd64 none is taken"),
        ({"families": ["g4ad"]}, "spec.families[0]", "of amd; with gpuVendor nvidia none is taken"),
        ({"families": ["g5"], "architecture": "arm64"}, "spec.families[0]", "whose machines are amd64"),
        ({"families": ["g5"], "gpuVendor": "amd"}, "spec.families[0]", "of nvidia; with gpuVendor amd none"),
        ({"maxInstanceTypes": 1}, "spec.maxInstanceTypes", "while that type is sold out"),
        ({"maxZones": 1}, "spec.maxZones", "while that zone is sold out"),
        ({"weights": {"min": 1, "max": 2}}, "spec.weights", "room for only 2 NodePools"),
        ({"limits": {"cpu": "100"}}, "spec.limits", "no nvidia.com/gpu, so 1000 of them are allowed"),
        ({"strategy": "CheapestAboveScore"}, "spec.strategy", "counts no interruptions"),
        ({"minSpotScore": 6}, "spec.minSpotScore", "counts only with strategy CheapestAboveScore"),
        ({"switchThreshold": "0.00%"}, "spec.switchThreshold", "the smallest saving"),
        ({"consolidationPolicy": "WhenEmptyOrUnderutilized"}, "spec.consolidationPolicy", "move running pods"),
        ({"expireAfter": "720h"}, "spec.expireAfter", "replaces every node at that age"),
        ({"rollout": "Replace"}, "spec.rollout", "replaces all running nodes"),
        ({"taints": []}, "spec.taints", "pods without GPUs; nvidia.com/gpu:NoSchedule keeps those off"),
    ],
)
def test_each_doubt_is_said_once(spec: dict[str, Any], field: str, says: str) -> None:
    [said] = advised(**spec)
    assert said.startswith(f"{field} ")
    assert says in said


def test_what_the_other_strategy_does_not_read_is_said() -> None:
    found = advised(strategy="CheapestAboveScore", restartHours="1", minSpotScore=0)
    assert [each.split(" ")[0] for each in found] == ["spec.strategy", "spec.restartHours", "spec.minSpotScore"]


def test_weights_of_two_pools_must_not_overlap_and_the_later_by_name_is_told() -> None:
    first, second = a_pool("a", weights={"min": 1, "max": 50}), a_pool("b", weights={"min": 50, "max": 100})
    apart = a_pool("c", weights={"min": 51, "max": 100})
    pools = [first, second, apart, a_resource("PowerPool", "a")]
    assert list(offer_advice.between(first, pools)) == []
    [said] = offer_advice.between(second, pools)
    assert (said.field, "overlap 1 to 50 of a" in said.message) == ("spec.weights", True)
    assert list(offer_advice.between(apart, [first, apart])) == []
