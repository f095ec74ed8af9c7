"""What `headroom check` finds dubious about a valid Spotpool."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.api import kinds, spot_advice
from tests.builders import a_resource
from tests.web import spots

GOOD = spots.SPEC


def advised(**spec: Any) -> list[str]:
    document = {key: value for key, value in (GOOD | spec).items() if value is not None}
    assert not kinds.problems(a_document(document)), "a valid pool"
    return [f"{each.field} {each.message}" for each in spot_advice.of_pool(spots.a_spot_pool(spec=spec).resource)]


def a_document(spec: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": "inference", "namespace": "team-a"}
    return {"apiVersion": "headroom.dev/v1alpha1", "kind": "Spotpool", "metadata": metadata, "spec": spec}


def test_an_ordinary_pool_is_not_dubious() -> None:
    assert advised() == []


@pytest.mark.parametrize(
    ("spec", "field", "says"),
    [
        ({"zones": ["eu-west-1a", "us-east-1b"]}, "spec.zones[0]", "does not look like a zone of region us-east-1"),
        ({"instanceTypes": ["g5.12xlarge"], "zones": ["us-east-1a"]}, "spec.instanceType", "while it is sold out"),
        ({"maximum": 0, "minimum": 0}, "spec.maximum", "never has a machine"),
        ({"minimum": 6}, "spec.minimum", "pending pods never change the number"),
        ({"desired": 9}, "spec.desired", "6 machines are kept instead"),
        ({"maxSurge": 0}, "spec.maxSurge", "replaced only once it is gone"),
        ({"maxPurchasesPerHour": 1, "minimum": 3}, "spec.maxPurchasesPerHour", "more than an hour to reach"),
        ({"idleSeconds": 60}, "spec.idleSeconds", "less than a fifth of joinTimeoutSeconds"),
        ({"subnetId": "subnet-1"}, "spec.subnetId", "2 zones have no other"),
        ({"subnetIds": {"us-east-1f": "subnet-1"}}, "spec.subnetIds", "does not launch in: us-east-1f"),
        ({"gateway": {"adminUrl": "http://kong:8001", "upstream": "u", "tokenSecretRef": {"name": "t"}}}, "spec.gateway.adminUrl", "unencrypted"),
        (
            {"provider": "webhook", "endpoint": "http://broker.example.com", "zones": ["anywhere"]},
            "spec.endpoint",
            "unencrypted",
        ),
    ],
)  # fmt: skip
def test_each_doubt_is_said_once(spec: dict[str, Any], field: str, says: str) -> None:
    [said] = advised(**spec)
    assert said.startswith(f"{field} ")
    assert says in said


def test_a_pool_without_credentials_needs_an_administrator() -> None:
    bare = a_resource("Spotpool", "bare")
    found = [each.message for each in spot_advice.of_pool(bare) if each.field == "spec.credentialsSecretRef"]
    assert found == [
        "is missing, so the pool works only where an administrator lists its namespace in --ambient-credentials"
    ]


def test_one_subnet_beside_those_of_other_zones_is_fine() -> None:
    assert advised(subnetId="subnet-1", subnetIds={"us-east-1b": "subnet-2"}) == []
    assert advised(subnetId="DEFAULT") == []
