"""`headroom offers` asks AWS, as far as it answers, or documents, and says what it could not read."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from msgspec import structs

from headroom.adapters.ledger.sqlite import SqliteLedger
from headroom.model import times
from headroom.model.machine_records import MachineRecord
from headroom.runtime.clock import RealClock
from tests.aws_region import product
from tests.aws_service import AwsService
from tests.cli.conftest import Headroom
from tests.cli.stage import ROOT
from tests.cloud_sides import CANARY, KEY, KEY_ID

A, B = "use1-az6", "use1-az1"
EXAMPLES = ROOT / "docs" / "examples"
POOL = """
apiVersion: headroom.dev/v1alpha1
kind: LeftoverNodePool
metadata: {{name: {name}}}
spec: {{region: us-east-1, nodeClassName: gpu, families: [{family}], onDemandFallback: {fallback}}}
"""


@pytest.fixture
def aws(aws_service: AwsService, headroom: Headroom, monkeypatch: pytest.MonkeyPatch) -> AwsService:
    """A region with a few prices, reached with keys of the environment."""
    aws_service.forget()
    for name, value in (("AWS_ACCESS_KEY_ID", KEY_ID), ("AWS_SECRET_ACCESS_KEY", KEY)):
        monkeypatch.setenv(name, value)
    endpoints = f"aws-ec2={aws_service.url},aws-pricing={aws_service.url}"
    monkeypatch.setenv("HEADROOM_CLOUD_ENDPOINTS", endpoints)
    since = RealClock().now() - times.HOUR
    prices = {("g5.xlarge", A): "0.45", ("g5.xlarge", B): "0.40", ("g5g.xlarge", A): "0.20", ("g6.xlarge", A): "0.30"}
    aws_service.region.history = [(kind, zone, price, since) for (kind, zone), price in prices.items()]
    aws_service.region.products = [product("g5.xlarge", "1.006"), product("g6.xlarge", "0.8048")]
    aws_service.region.scores = lambda _kinds, _count: {A: 9, B: 3}
    return aws_service


def rows(text: str) -> list[tuple[str, str, str]]:
    (pool,) = json.loads(text)["pools"]
    return [(each["instanceType"], each["zone"], each["capacityType"]) for each in pool["offers"]]


def test_a_region_is_ranked_by_cost_and_risk(aws: AwsService, headroom: Headroom) -> None:
    done = headroom("offers", "--region", "us-east-1", "--family", "g5", "--family", "g6", "-o", "json")
    assert done.code == 0, done.err
    found = rows(done.out)
    assert found[:3] == [
        ("g6.xlarge", "us-east-1a", "spot"),
        ("g5.xlarge", "us-east-1a", "spot"),
        ("g5.xlarge", "us-east-1b", "spot"),
    ], "a low score makes the cheaper zone dearer"
    assert {kind for kind, _, _ in found} == {"g5.xlarge", "g6.xlarge"}
    assert found[-1] == ("g5.xlarge", found[-1][1], "on-demand")
    said = headroom("offers", "-r", "us-east-1", "--family", "g5").out
    assert "TYPE" in said
    assert "$0.4500" in said
    assert "of another architecture" not in said, "another family is named before"


def test_what_clusters_of_a_ledger_saw_counts(
    aws: AwsService, headroom: Headroom, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("offers", "-r", "us-east-1", "--family", "g5", "-o", "json")
    assert rows(headroom(*words).out)[0] == ("g5.xlarge", "us-east-1a", "spot")
    now = RealClock().now()
    machine = MachineRecord(
        cluster="far",
        machine="x",
        instance_type="g5.xlarge",
        zone=A,
        capacity_type="spot",
        began=now,
        seen_until=now,
        outcome="Failed",
    )

    async def kept() -> None:
        ledger = SqliteLedger(tmp_path / "ledger.db")
        await ledger.record_machines([structs.replace(machine, machine=str(number)) for number in range(30)])
        await ledger.close()

    asyncio.run(kept())
    monkeypatch.setenv("HEADROOM_LEDGER_URL", str(tmp_path / "ledger.db"))
    assert rows(headroom(*words).out)[0] == ("g5.xlarge", "us-east-1b", "spot")
    monkeypatch.setenv("HEADROOM_LEDGER_URL", str(tmp_path / "none.db"))
    done = headroom(*words)
    assert (done.code, rows(done.out)[0][1]) == (1, "us-east-1a")
    assert "there is no such file" in json.loads(done.out)["unread"][0]


def test_pools_of_files_say_what_counts(aws: AwsService, headroom: Headroom, tmp_path: Path) -> None:
    file = tmp_path / "pools.yaml"
    both = [POOL.format(name=name, family=name, fallback="false") for name in ("g5", "g6")]
    file.write_text("---".join(both))
    done = headroom("offers", "-f", file, "-o", "json")
    pools = {each["name"]: each["offers"] for each in json.loads(done.out)["pools"]}
    assert {name: {each["instanceType"] for each in found} for name, found in pools.items()} == {
        "g5": {"g5.xlarge"},
        "g6": {"g6.xlarge"},
    }
    assert aws.log.count("DescribeInstanceTypes") == 1, "a region is read once for all of them"
    assert "For LeftoverNodePool g6:" in headroom("offers", file).out


def test_what_cannot_be_read_is_said_and_the_rest_is_ranked(aws: AwsService, headroom: Headroom) -> None:
    aws.faults.always("scores", "denied")
    aws.faults.always("products", "garbage")
    done = headroom("offers", "-r", "us-east-1", "-r", "eu-west-1", "--family", "g5")
    assert done.code == 1
    assert "$0.4000" in done.out
    assert "The placement scores of us-east-1 cannot be read: AWS answered UnauthorizedOperation" in done.err
    assert "The on-demand prices of us-east-1 cannot be read" in done.err
    assert "eu-west-1 cannot be read: AWS answered without any spot price" in done.err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "name a region with --region"),
        (("-r", "nowhere at all"), "spec.region is not a region"),
        (("-r", "us-east-1", "--now", "2026-11-15T12:00:00Z"), "--now is for Offer documents"),
        (("-f", "/nowhere.yaml"), "nowhere.yaml"),
        (("-f", EXAMPLES / "budget.yaml"), "budget.yaml: name a region with --region, or give a LeftoverNodePool"),
        (
            ("-f", EXAMPLES / "cheapest/offers.yaml", "-r", "us-west-9"),
            "offers.yaml: there is no Offer of region us-west-9; there are eu-west-1, us-east-1",
        ),
        (("-r", "us-east-1", "-o", "xml"), "xml"),
    ],
)
def test_mistakes_are_told_in_one_sentence(
    aws: AwsService, headroom: Headroom, words: tuple[object, ...], says: str
) -> None:
    done = headroom("offers", *words)
    assert done.code == 2
    assert says in done.err
    assert "Traceback" not in done.err


def test_keys_that_are_wrong_are_told_and_never_shown(
    aws: AwsService, headroom: Headroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws.echo = True
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", f"not-{KEY}")
    done = headroom("offers", "-r", "us-east-1")
    assert done.code == 2
    assert "the keys are not valid" in done.err
    assert CANARY not in done.out + done.err


def test_documents_are_ranked_without_asking_anybody(aws: AwsService, headroom: Headroom) -> None:
    file = ROOT / "docs/examples/cheapest/offers.yaml"
    done = headroom("offers", "-f", file, "--now", "2026-11-15T12:00:00Z", "-o", "json")
    assert done.code == 0
    assert rows(done.out)[0] == ("g5.xlarge", "eu-west-1b", "spot"), "side by side"
    assert not aws.log
    later = headroom("offers", "-f", file, "--now", "2026-11-15T14:00:00Z")
    assert "There is no offer to rank." in later.out
    assert "Not ranked in us-east-1: 1 of another architecture; 3 whose prices are over an hour old." in later.out


def test_a_wrong_document_is_told_with_the_rest(aws: AwsService, headroom: Headroom, tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(POOL.format(name="one", family="G5", fallback="false"))
    done = headroom("offers", "-f", file, "-r", "us-east-1")
    assert (done.code, "spec.families" in done.out, aws.log) == (1, True, [])
    file.write_text(file.read_text() + "---" + POOL.format(name="two", family="g5", fallback="false"))
    done = headroom("offers", "-f", file)
    assert (done.code, "spec.families" in done.out, "For LeftoverNodePool two:" in done.out) == (1, True, True)
