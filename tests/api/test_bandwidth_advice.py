"""What is dubious about a valid Bandwidth: fields that are kept and not read, and a capacity that says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.api.bandwidth_advice import of_bandwidth
from tests.builders import a_resource

FULL = {"ulMbps": 1000, "dlMbps": 1000}
REQUEST = {"podUid": "1", "bandwidth": FULL}


def fields(given: tuple[str, ...] = (), **spec: Any) -> list[str]:
    return [each.field for each in of_bandwidth(a_resource("Bandwidth", "n1", **spec), given)]


def test_a_capacity_is_enough() -> None:
    assert fields(capacity={"network": FULL}) == []


@pytest.mark.parametrize("name", ["requests", "reservations"])
def test_requests_are_told_not_to_count(name: str) -> None:
    spec: dict[str, Any] = {"capacity": {"network": FULL}, name: [REQUEST]}
    [found] = of_bandwidth(a_resource("Bandwidth", "n1", **spec))
    assert found.field == f"spec.{name}"
    assert found.message.startswith("is ignored: its 1 entry is not counted.")


def test_a_state_that_is_given_is_told_to_be_without_effect() -> None:
    assert fields(("capacity", "status"), capacity={"network": FULL}, status="Created") == ["spec.status"]
    assert fields(("capacity",), capacity={"network": FULL}) == []


def test_zero_stands_for_not_said() -> None:
    assert fields(capacity={}) == ["spec.capacity"]
    assert fields(capacity={"network": {"ulMbps": 1000}}) == ["spec.capacity.network.dlMbps"]
    assert fields(capacity={"local": {"dlMbps": 5}, "network": FULL}) == ["spec.capacity.local.ulMbps"]
