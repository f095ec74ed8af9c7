"""The simulated cloud keeps the promises of a real one, and breaks them only as it is told."""

from __future__ import annotations

import pytest

from headroom.model import times
from headroom.sim.cloud import CallRefused, Cloud, LaunchRefused, RequestedLaunch, TokenReused, UnknownLaunch

OURS = {"headroom.dev/cluster": "c"}


class Time:
    """A clock that stands still until it is moved."""

    now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def cloud(time: Time) -> Cloud:
    return Cloud(time)


def order(token: str = "t", zone: str = "a") -> RequestedLaunch:
    return RequestedLaunch(token=token, instance_type="GN7", zone=zone, tags=OURS)


def states(cloud: Cloud, lag: int = 0) -> dict[str, str]:
    return {each.name: each.state for each in cloud.page(OURS, lag=lag)[0]}


def test_a_token_brings_the_same_machine_back_also_after_its_end(cloud: Cloud, time: Time) -> None:
    first = cloud.launch(order())
    assert cloud.launch(order()) == first
    cloud.terminate(first)
    time.now += times.HOUR
    assert cloud.launch(order()) == first
    assert not cloud.is_alive(first)
    with pytest.raises(TokenReused):
        cloud.launch(order(zone="b"))


def test_a_machine_is_pending_then_runs_or_fails(cloud: Cloud, time: Time) -> None:
    good = cloud.launch(order("good"))
    cloud.sabotaged = lambda _order: True
    bad = cloud.launch(order("bad"))
    assert states(cloud) == {good: "PENDING", bad: "PENDING"}
    time.now += cloud.boot_ms
    assert states(cloud) == {good: "RUNNING", bad: "LAUNCH_FAILED"}


def test_a_lost_reply_has_launched_and_an_unreached_cloud_has_not(cloud: Cloud) -> None:
    cloud.wrong = lambda _verb: "Lost"
    with pytest.raises(UnknownLaunch):
        cloud.launch(order("lost"))
    cloud.wrong = lambda _verb: "Unreached"
    with pytest.raises(UnknownLaunch):
        cloud.launch(order("unreached"))
    cloud.wrong = lambda _verb: "Throttled"
    with pytest.raises(CallRefused):
        cloud.page(OURS)
    cloud.wrong = lambda _verb: ""
    assert len(cloud.alive(OURS)) == 1


def test_reads_lag_but_an_end_once_told_is_never_taken_back(cloud: Cloud, time: Time) -> None:
    made = cloud.launch(order())
    time.now += 10 * times.MINUTE
    assert states(cloud, 15 * times.MINUTE) == {}
    assert states(cloud, 9 * times.MINUTE + 30 * times.SECOND) == {made: "PENDING"}
    cloud.terminate(made)
    time.now += times.MINUTE
    assert states(cloud, 2 * times.MINUTE) == {made: "RUNNING"}
    assert states(cloud) == {made: "SHUTDOWN"}
    assert states(cloud, 2 * times.MINUTE) == {made: "SHUTDOWN"}
    time.now += cloud.forget_ms
    assert states(cloud) == {}
    assert cloud.describe([made]) == {}


def test_what_is_short_is_said_and_launches_nothing(cloud: Cloud) -> None:
    cloud.stock["GN7", "a"] = 1
    cloud.prices["GN7", "b"] = 300
    cloud.launch(order("1"))
    for token, zone, limit, outcome in (("2", "a", None, "SoldOut"), ("3", "b", 299, "PriceTooLow")):
        with pytest.raises(LaunchRefused) as none:
            cloud.launch(RequestedLaunch(token=token, instance_type="GN7", zone=zone, max_price=limit))
        assert none.value.outcome == outcome
    cloud.quota = 1
    with pytest.raises(LaunchRefused, match="QuotaReached"):
        cloud.launch(order("4", "b"))
    assert cloud.launch(order("1")) in cloud.machines  # a token that has its machine is never refused
    assert len(cloud.machines) == 1
    assert [(each.zone, each.price_per_hour, each.available) for each in cloud.offers()] == [
        ("a", None, False),
        ("b", 300, True),
    ]


def test_a_reclaim_is_told_beforehand_or_not_at_all(cloud: Cloud, time: Time) -> None:
    warned, taken = cloud.launch(order("1")), cloud.launch(order("2"))
    time.now += cloud.boot_ms
    cloud.reclaim(warned, 2 * times.MINUTE)
    cloud.reclaim(taken)
    told = {each.name: each.reclaim_at for each in cloud.page(OURS)[0]}
    assert told == {warned: time.now + 2 * times.MINUTE, taken: None}
    assert states(cloud) == {warned: "RUNNING", taken: "TERMINATING"}
    time.now += 2 * times.MINUTE
    assert states(cloud) == {warned: "TERMINATING", taken: "SHUTDOWN"}


def test_pages_hold_every_machine_once_and_foreign_ones_are_left_out(cloud: Cloud) -> None:
    cloud.page_size = 20
    ours = {cloud.launch(order(f"t{number}")) for number in range(45)}
    cloud.add(RequestedLaunch(token="", instance_type="GN7", zone="a"), "RUNNING")
    found, place, pages = list[str](), 0, 0
    while place is not None:
        page, place = cloud.page(OURS, place)  # type: ignore[assignment]  # None ends it
        found += [each.name for each in page]
        pages += 1
    assert (pages, len(found), set(found)) == (3, 45, ours)
