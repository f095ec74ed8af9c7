"""What the commands say of cheapest capacity: what is first and why, the rungs, the fleet, and what is dubious in a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from headroom.runtime.clock import RealClock
from tests.cli.conftest import Headroom
from tests.cli.served import Served
from tests.cli.stage import NOON, NOON_MS, fleet_behind_a_port
from tests.core.offer_stage import Stage
from tests.web import cheap


def a_document(stage: Stage) -> dict[str, Any]:
    """As it stands in a cluster, with its status."""
    status = msgspec.to_builtins(cheap.left_by(stage).decision.status)
    metadata = {"name": "cheap", "uid": "u"}
    return {"apiVersion": "headroom.dev/v1alpha1", "kind": "LeftoverNodePool", "metadata": metadata} | {
        "spec": cheap.SPEC | {"region": "us-east-1"},
        "status": status,
    }


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RealClock, "now", lambda _: NOON_MS)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Served]:
    with fleet_behind_a_port(tmp_path) as made:
        yield made


def test_one_says_what_is_first_why_and_every_rung(headroom: Headroom, fleet: Served) -> None:
    fleet.put(a_document(cheap.a_stage()))
    done = headroom("explain", "lonp/cheap", "--kubeconfig", fleet.kubeconfig())
    lines = done.out.splitlines()
    for said in (
        "Offers           g5, g6, g4dn in us-east-1, spot; 6 ranked",
        "First            g5.xlarge in us-east-1a",
        "Expected cost    $0.4125 for each useful GPU-hour: 0.5 interruptions in 1000 hours, 3% of launches fail",
        "Placement score  8 of 10, read at 2026-11-15T12:01:00Z",
        "Switches         0 in all, 0 of at most 6 in the last day",
        "Node class       EC2NodeClass gpu",
        "- The next best, g6.xlarge in us-east-1a, costs 27.7% more.",
        "- Passed over: 1 of another family; 1 sold out.",
    ):
        assert said in lines, done.out
    rungs = [line.split() for line in lines if line.startswith("  leftover-cheap-")]
    assert rungs[0][1:10] == ["100", "Active", "g5.xlarge", "us-east-1a", "spot", "$0.4000/h", "$0.4125", "8", "2"]
    assert [row[2] for row in rungs] == ["Active"] * 4 + ["Resting"]
    assert "a launch failed; tried again at 2026-11-15T12:05:00Z" in done.out


def test_a_rung_that_leaves_says_why(headroom: Headroom, fleet: Served) -> None:
    fleet.put(a_document(cheap.moved()))
    done = headroom("explain", "leftovernodepool/cheap", "--kubeconfig", fleet.kubeconfig())
    assert "its offers are no longer among the best; deleted once it has no nodes" in done.out


def test_the_fleet_has_its_table(headroom: Headroom, fleet: Served) -> None:
    fleet.put(a_document(cheap.a_stage()))
    lines = headroom("status", "--kubeconfig", fleet.kubeconfig()).out.splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("CHEAPEST CAPACITY"))
    assert lines[head + 1].split()[:9] == [
        "cheap", "g5.xlarge", "in", "us-east-1a", "5", "3", "$0.4125", "8", "$0.0253"
    ]  # fmt: skip
    assert not [line for line in lines if line.startswith("LeftoverNodePool:")], "told in its own table"


def test_with_files_it_is_decided_anew(headroom: Headroom) -> None:
    document = a_document(cheap.a_stage())
    del document["status"]
    gpu = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "gpu"}, "spec": {}}
    spec = {"provider": "aws", "region": "us-east-1", "zone": "us-east-1a", "instanceType": "g5.xlarge"}
    spec |= {
        "arch": "amd64",
        "vendor": "nvidia",
        "gpus": "1",
        "capacityType": "spot",
        "pricePerHour": "0.4",
        "at": NOON,
    }
    offer = {"apiVersion": "sim.headroom.dev/v1", "kind": "Offer", "metadata": {"name": "a"}, "spec": spec}
    given = yaml.safe_dump_all([document, gpu, offer]).encode()
    done = headroom("explain", "lonp/cheap", "-f", "-", "--now", NOON, stdin=given)
    assert "First          g5.xlarge in us-east-1a" in done.out, done.out + done.err
    assert "- No other offer can be ranked, so nothing can replace it." in done.out
    assert "ApplyNodePool" in done.out


def test_check_says_what_is_dubious(headroom: Headroom) -> None:
    one = a_document(cheap.a_stage())
    del one["status"]
    one["spec"] |= {"families": ["g5x"], "maxZones": 1, "credentialsSecretRef": {"name": "aws-keys"}}
    other = one | {"metadata": {"name": "dear"}}
    done = headroom("check", "-", stdin=yaml.safe_dump_all([one, other]).encode())
    assert done.code == 0
    assert "LeftoverNodePool/cheap: warning: spec.families[0] is g5x" in done.out, done.out
    assert "spec.maxZones is 1" in done.out
    host = "https://ec2.us-east-1.amazonaws.com"
    assert (
        f"Secret aws-keys: headroom.dev/usable-by: LeftoverNodePool/cheap@{host},LeftoverNodePool/dear@{host}"
        in done.err
    )
    assert "LeftoverNodePool/dear: warning: spec.weights are 1 to 100 and overlap 1 to 100 of cheap" in done.out
