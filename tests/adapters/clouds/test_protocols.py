"""What is peculiar to each cloud: how it pages, what it is sent, and answers that only it gives."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headroom.adapters.clouds.aws import warning_in
from headroom.adapters.clouds.providers import (
    CloudThrottled,
    Keys,
    NotLaunched,
    QuoteRequest,
    code_in,
    dollars,
    is_id,
    millionths,
)
from headroom.adapters.clouds.tencent import TRIES
from headroom.adapters.clouds.tencent_sdk import not_launched
from headroom.adapters.clouds.threads import Threads
from headroom.model import times
from headroom.model.errors import Unavailable
from tests.aws_service import AwsService
from tests.builders import NOON
from tests.cloud_sides import OnAws, OnTencent, OnWebhook
from tests.webhook_service import WebhookService


@pytest.fixture
async def tencent() -> AsyncIterator[OnTencent]:
    async with OnTencent() as side:
        yield side


@pytest.fixture
async def webhook() -> AsyncIterator[OnWebhook]:
    async with OnWebhook() as side:
        yield side


@pytest.fixture
async def aws(aws_service: AwsService) -> AsyncIterator[OnAws]:
    async with OnAws(aws_service) as side:
        yield side


# --- Tencent Cloud


async def test_a_list_that_changes_under_us_is_begun_anew(tencent: OnTencent) -> None:
    tencent.ours(45)
    lists = 0
    described = tencent.service._DescribeInstances

    def changing(given: dict[str, Any]) -> dict[str, Any]:
        nonlocal lists
        found = described(given)
        lists += 0 < given["Offset"] < 20
        if given["Offset"] == 0 and lists < changes:
            tencent.ours(1)  # before the second page: what was the last of the first page comes again
        return found

    tencent.service._DescribeInstances = changing  # type: ignore[method-assign]  # one answer differs
    async with tencent.provider(page=20) as provider:
        changes = 1
        assert len(await provider.machines(tencent.cluster)) == 46
        lists, changes = 0, TRIES
        with pytest.raises(Unavailable, match="came and went"):
            await provider.machines(tencent.cluster)


@pytest.mark.parametrize("newest", [True, False])
@pytest.mark.parametrize("place", [0, 15, 30, 42])
async def test_machines_that_go_while_others_come_are_noticed(tencent: OnTencent, place: int, newest: bool) -> None:
    """The count is the same as before, so that it does not tell."""
    ours = tencent.ours(45)
    for number, name in enumerate(ours):
        tencent.machine(name).created_ms -= (number + 1) * 10_000  # the first is the youngest, and is listed first
    described, pages, new = tencent.service._DescribeInstances, 0, list[str]()
    gone = ours[place : place + 3]

    def swapping(given: dict[str, Any]) -> dict[str, Any]:
        nonlocal pages, new
        found = described(given)
        pages += 1
        if pages == 2:
            new = tencent.ours(3)
            for old, young in zip(gone, new, strict=True):
                del tencent.service.machines[old]
                tencent.machine(young).created_ms -= 0 if newest else 10_000_000
        return found

    tencent.service._DescribeInstances = swapping  # type: ignore[method-assign]  # the same
    async with tencent.provider(page=20) as provider:
        found = {each.name for each in await provider.machines(tencent.cluster)}
    assert {*ours} - {*gone} <= found, "none that was there all the time is missing"
    assert found <= {*ours, *new}


async def test_machines_that_go_and_come_back_to_the_same_count_are_noticed(tencent: OnTencent) -> None:
    """After the first page all move up by two, after the second down by one: one was on no page, one on two."""
    ours = tencent.ours(45)
    for number, name in enumerate(ours):
        tencent.machine(name).created_ms -= (number + 1) * 10_000
    described, pages = tencent.service._DescribeInstances, 0

    def moving(given: dict[str, Any]) -> dict[str, Any]:
        nonlocal pages
        found = described(given)
        pages += 1
        if pages in (1, 2):
            gone = ours[:2] if pages == 1 else ours[-1:]
            for name, old in zip(tencent.ours(len(gone)), gone, strict=True):
                tencent.machine(name).created_ms -= 10_000_000 if pages == 1 else 0
                del tencent.service.machines[old]
        return found

    tencent.service._DescribeInstances = moving  # type: ignore[method-assign]  # the same
    async with tencent.provider(page=20) as provider:
        found = {each.name for each in await provider.machines(tencent.cluster)}
    assert {*ours[2:-1]} <= found


async def test_a_page_that_is_cut_short_is_no_list(tencent: OnTencent) -> None:
    tencent.ours(45)
    described = tencent.service._DescribeInstances

    def short(given: dict[str, Any]) -> dict[str, Any]:
        found = described(given)
        return found | {"InstanceSet": found["InstanceSet"][: 20 if given["Offset"] == 0 else left]}

    tencent.service._DescribeInstances = short  # type: ignore[method-assign]  # the same
    async with tencent.provider(page=20) as provider:
        left = 0
        with pytest.raises(Unavailable):
            await provider.machines(tencent.cluster)
        left = 1
        with pytest.raises(Unavailable):
            await provider.machines(tencent.cluster)
        left = 7  # fewer than were asked for, and yet all of them in the end
        assert len(await provider.machines(tencent.cluster)) == 45


async def test_a_machine_whose_launch_fails_has_no_address_and_says_so(tencent: OnTencent) -> None:
    tencent.service.fails_launches = True
    async with tencent.provider() as provider:
        launched = await provider.launch(tencent.request())
        (pending,) = await provider.machines(tencent.cluster)
        assert (pending.state, pending.private_ip, pending.public_ip) == ("PENDING", "", "")
        tencent.settle()
        assert (await provider.describe([launched.name]))[launched.name].state == "LAUNCH_FAILED"


async def test_an_error_whose_content_type_was_touched_is_one_all_the_same(tencent: OnTencent) -> None:
    tencent.service.content_type = "application/json; charset=utf-8"
    tencent.faults.next("list", "throttled")
    tencent.faults.next("launch", "sold out")
    async with tencent.provider() as provider:
        with pytest.raises(CloudThrottled):
            await provider.machines(tencent.cluster)
        with pytest.raises(NotLaunched) as caught:
            await provider.launch(tencent.request())
        assert caught.value.outcome == "SoldOut"


async def test_no_call_is_sent_on_to_somebody_else(tencent: OnTencent) -> None:
    async with OnTencent() as elsewhere:
        tencent.service.redirect = elsewhere.url
        async with tencent.provider() as provider:
            with pytest.raises(Unavailable):
                await provider.machines(tencent.cluster)
            with pytest.raises(NotLaunched) as caught:
                await provider.launch(tencent.request())
        assert (caught.value.outcome, elsewhere.service.log) == ("Unknown", [])


async def test_a_price_limit_is_sent_and_kept(tencent: OnTencent) -> None:
    tencent.offer(tencent.zone, 0.8)
    async with tencent.provider() as provider:
        with pytest.raises(NotLaunched) as caught:
            await provider.launch(tencent.request(max_price=799_999))
        assert caught.value.outcome == "PriceTooLow"
        assert (await provider.launch(tencent.request(max_price=800_000))).name
        assert (await provider.launch(tencent.request(max_price=1, spot=False))).name, "on demand there is none"


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("ResourceInsufficient.ZoneSoldOutForSpecifiedInstance", "SoldOut"),
        ("ResourcesSoldOut.AvailableZone", "SoldOut"),
        ("ResourceInsufficient.CidrBlock", "Refused"),
        ("LimitExceeded.SpotQuota", "QuotaReached"),
        ("InvalidParameterValue.InsufficientPrice", "PriceTooLow"),
        ("InvalidParameterValue.Range", "Refused"),
        ("AuthFailure.SignatureExpire", "Refused"),
        ("RequestLimitExceeded.UinLimitExceeded", "Unknown"),
        ("InternalError.TradeUnknownError", "Unknown"),
        ("FailedOperation.InquiryPriceFailed", "Unknown"),
        ("OperationDenied.InstanceOperationInProgress", "Unknown"),
        ("InvalidClientToken.InUse", "Unknown"),
        ("InvalidClientToken.TooLong", "Refused"),
        ("SomethingNew", "Unknown"),
    ],
)
def test_only_what_is_surely_a_refusal_is_one(code: str, outcome: str) -> None:
    assert not_launched(code).outcome == outcome


async def test_a_call_that_hangs_costs_a_thread_and_no_more() -> None:
    threads, gate = Threads(2), threading.Event()
    try:
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await threads.run(gate.wait, 0.01)
        with pytest.raises(Unavailable, match="2 earlier calls have not ended yet"):
            await threads.run(lambda: 1, 1)
    finally:
        gate.set()
    for _ in range(500):
        await asyncio.sleep(0.01)
        if not threads._alive:
            break
    assert await threads.run(lambda: 1, 5) == 1


# --- AWS


async def test_a_token_that_comes_back_with_another_order_proves_nothing(aws: OnAws) -> None:
    wanted = aws.request()
    async with aws.provider() as provider:
        await provider.launch(wanted)
        with pytest.raises(NotLaunched, match="IdempotentParameterMismatch") as caught:
            await provider.launch(aws.request(token=wanted.token, slot=1))
        assert caught.value.outcome == "Unknown"


async def test_a_machine_of_aws_is_as_it_was_asked_for(aws: OnAws) -> None:
    async with aws.provider() as provider:
        found = await provider.launch(aws.request(max_price=250_000, disk_gib=100, disk_type="CLOUD_BSSD"))
    made = aws.service.instances()[found.name]
    assert (made.instance_type, made._placement.zone, made.lifecycle) == (aws.kind, aws.zone, "spot")
    (disk,) = made.block_device_mapping.values()
    assert disk.size == 100


async def test_a_price_that_makes_no_sense_costs_the_others_nothing(aws: OnAws) -> None:
    """As in the prices of a region: one from the future, one that is none, and of two of one moment the dearer."""
    a, b, day = "use1-az6", "use1-az1", 24 * times.HOUR
    types = ("g5.xlarge", "g5.2xlarge", "g5.4xlarge")
    told = [("g5.xlarge", a, "0.4", NOON - day), ("g5.xlarge", a, "0.01", NOON + day)]
    told += [("g5.2xlarge", b, "0.6", NOON + 1), ("g5.2xlarge", b, "0.7", NOON + 1)]
    told += [("g5.4xlarge", b, "NaN", NOON + 1), ("g5.4xlarge", b, "0.1", NOON - day)]
    for order in (1, -1):
        aws.service.region.history = told[::order]
        async with aws.provider() as provider:
            found = await provider.offers(QuoteRequest(types=types, now=NOON))
        prices = {each.instance_type: each.price_per_hour for each in found if each.price_per_hour}
        assert prices == {"g5.xlarge": 400_000, "g5.2xlarge": 700_000}


@pytest.mark.parametrize(
    "body",
    [
        None,
        "",
        "null",
        "[]",
        "{}",
        "x" * 100,
        "[" * 100_000,
        json.dumps(
            {"source": "aws.ec2", "detail-type": "EC2 Spot Instance Interruption Warning", "detail": 3, "time": 3}
        ),
        json.dumps({"source": "aws.ec2", "detail-type": "Another", "detail": {"instance-id": "i-1"}, "time": "x"}),
    ],
)
def test_what_is_no_warning_is_none(body: str | None) -> None:
    assert warning_in(body) is None


def test_a_warning_is_of_two_minutes() -> None:
    event = {
        "source": "aws.ec2",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "time": "1970-01-01T00:00:10Z",
    }
    notice = warning_in(json.dumps(event | {"detail": {"instance-id": "i-1", "instance-action": "terminate"}}))
    assert notice is not None
    assert (notice.instance, notice.at) == ("i-1", 130_000)


# --- webhook


async def test_a_page_or_a_machine_that_comes_twice_is_no_list(webhook: OnWebhook) -> None:
    webhook.ours(5)
    listed = WebhookService._list

    def circling(self: WebhookService, request: Any, given: dict[str, Any]) -> dict[str, Any]:
        return listed(self, request, given) | {"next": "2"}

    def repeating(self: WebhookService, request: Any, given: dict[str, Any]) -> dict[str, Any]:
        found = listed(self, request, given)
        return found | {"instances": found["instances"] * 2}

    def empty(self: WebhookService, request: Any, given: dict[str, Any]) -> dict[str, Any]:
        assert len(self.log) < 20, "it is not asked for ever"
        return {"instances": [], "next": "2"}

    async with webhook.provider(page=2) as provider:
        for how in (circling, repeating, empty):
            webhook.service._list = how.__get__(webhook.service)  # type: ignore[method-assign]  # one answer differs
            with pytest.raises(Unavailable, match=r"repeated|twice"):
                await provider.machines(webhook.cluster)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"instances": None},
        {"instances": [{"id": "../x"}]},
        {"instances": [{"id": ""}]},
        {"instances": [{"id": "m-1", "state": "A\nB"}]},
        {"instances": [{"id": "m-1", "state": "x" * 200}]},
        {"instances": [{"id": "m-1", "tags": {"a": 1}}]},
        {"instances": [{"id": "m-1", "tags": {"a": "b" * 70_000}}]},
    ],
)
async def test_an_answer_that_is_not_of_the_protocol_is_none(webhook: OnWebhook, answer: dict[str, Any]) -> None:
    # The types do not know that a service plays a liar here.
    webhook.service._list = lambda _request, _given: answer  # type: ignore[assignment, method-assign]
    webhook.service._launch = lambda _request, _given: {"instance": (answer.get("instances") or [None])[0]}  # type: ignore[assignment, method-assign]
    async with webhook.provider() as provider:
        with pytest.raises(Unavailable):
            await provider.machines(webhook.cluster)
        with pytest.raises(NotLaunched) as caught:
            await provider.launch(webhook.request())
        assert caught.value.outcome == "Unknown"


async def test_a_machine_without_our_tags_is_not_what_was_asked_for(webhook: OnWebhook) -> None:
    # The types do not know that a service plays a liar here.
    webhook.service._launch = lambda _request, _given: {"instance": {"id": webhook.foreign[0]}}  # type: ignore[assignment, method-assign]
    async with webhook.provider() as provider:
        with pytest.raises(NotLaunched, match="without Headroom's tags") as caught:
            await provider.launch(webhook.request())
        assert caught.value.outcome == "Unknown"


async def test_a_notice_stands_in_the_list(webhook: OnWebhook) -> None:
    (mine,) = webhook.ours(1)
    async with webhook.provider() as provider:
        await provider.machines(webhook.cluster)
        assert await provider.notices() is None
        webhook.service.notices, webhook.machine(mine).reclaim_at = True, "1970-01-01T00:02:00Z"
        (found,) = await provider.machines(webhook.cluster)
        assert (await provider.notices(), found.reclaim_at) == ([], 120_000)


# --- all


@pytest.mark.parametrize(
    ("price", "found"),
    [
        ("0.42", 420_000),
        (0.42, 420_000),
        ("1000000", 10**12),
        *((each, None) for each in ("0", -1, "1e9", "nan", "inf", "x", None, True, "0.0000001")),
    ],
)
def test_prices_that_nobody_should_count_with_are_none(price: object, found: int | None) -> None:
    assert millionths(price) == found


def test_words_of_others_are_looked_at_before_they_are_repeated() -> None:
    assert [code_in(each) for each in ("A.b", "<script>", "a b", None, "A" * 101)] == ["A.b"] + [
        "an error without a code"
    ] * 4
    assert [is_id(each) for each in ("i-1", "a/b", "..", "", 3, "a" * 129)] == [True] + [False] * 5
    assert (dollars(1), dollars(1_250_000)) == ("0.000001", "1.25")
    assert repr(Keys({"secretKey": "x", "secretId": "y"})) == "Keys(secretId, secretKey)"
