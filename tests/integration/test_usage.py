"""Usage on a real API server, as the production operator tells it: exact by the pods' own timestamps, whatever becomes of them."""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from headroom.model.ports import SETTLE_MS
from tests.control_plane import ControlPlane, wait_until
from tests.integration import accounts
from tests.integration.accounts import (
    GPU,
    HOUR,
    Account,
    Api,
    Operator,
    OperatorWithPages,
    bounds,
    condition,
    is_close,
    moment,
    now,
)

NUMBERS = itertools.count(1)
HASTE = 50
"""Seconds in which an end must have made somebody look: once a minute everything is looked at anyway."""
CLAIMS = "apis/resource.k8s.io/v1/namespaces/{}/resourceclaims"
PRICES = f"api/v1/namespaces/{accounts.OWN_NAMESPACE}/configmaps"


@pytest.fixture(scope="module")
def operator(prepared_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """One for the whole file: every test has a namespace of its own."""
    made = OperatorWithPages(prepared_plane, tmp_path_factory.mktemp("usage"))
    made.start()
    yield made
    made.close()


@pytest.fixture
def account(prepared_plane: ControlPlane, operator: Operator) -> Iterator[Account]:
    api = Api(prepared_plane)
    made = Account(api, f"lab-{next(NUMBERS)}")
    yield made
    made.close()
    api.close()


GPUS = {"runs": 1, "ended": 2, "ended-and-deleted": 4, "deleted": 8, "evicted": 16, "given-up": 32}


def play_all(account: Account) -> None:
    """Pods with every end that a pod can have."""
    for name, gpus in GPUS.items():
        account.run(name, gpus)
    for name in ("ended", "ended-and-deleted"):
        account.finish(name)
    account.delete("ended-and-deleted")
    account.delete("deleted", grace=30)
    account.evict("evicted")
    for name in ("deleted", "evicted"):
        account.finish(name, "Failed")
        account.delete(name)
    account.fail_without_a_finish("given-up")


def test_pods_keep_what_they_used_whatever_becomes_of_them(account: Account) -> None:
    play_all(account)
    assert account.there() == {"runs", "ended", "given-up"}
    account.budget(quota={"gpuHours": "0.5", "windowHours": 24})
    account.assert_exact(account.first_status())

    status = account.settled()
    account.assert_exact(status)
    consumed, _ = bounds(status)
    assert (status["trackedPods"], status["burnRateGpus"]) == (3, "1")
    assert Fraction(status["remainingGpuHours"]) + consumed == Fraction("0.5")
    reached = moment(status["asOf"]) + (Fraction("0.5") - account.hours(moment(status["asOf"]))) * HOUR
    assert 0 <= moment(status["forecast"]["exhaustedAt"]) - reached < 1
    assert "lastEnforcementAt" not in status
    assert {each["type"]: condition(status, each["type"]) for each in status["conditions"]} == {
        "Ready": ("True", "Reconciled"),
        "QuotaExceeded": ("False", "WithinBudget"),
        "Degraded": ("False", "HistoryIncomplete"),
        "NoPodsRequestResource": ("False", "ResourceRequested"),
        "HistoryIncomplete": ("True", "LedgerIsYounger"),
    }


def test_those_that_used_most_are_named(account: Account) -> None:
    play_all(account)
    wait_until(lambda: account.held("runs", now() - SETTLE_MS) >= 2000, "all ends are settled")
    account.budget()
    status = account.first_status()
    at = moment(status["asOf"])
    most = sorted(GPUS, key=lambda name: (-account.hours(at, name), name))[:5]
    assert [each["pod"] for each in status["topPods"]] == [f"{account.namespace}/{name}" for name in most]
    assert all(
        is_close(each["gpuHours"], account.hours(at, each["pod"].partition("/")[2])) for each in status["topPods"]
    )


def test_an_end_is_in_the_status_by_itself_as_soon_as_it_is_settled(account: Account) -> None:
    """Nothing else happens that would make anybody look again."""
    account.budget()
    account.run("one", 8)
    wait_until(lambda: account.status().get("burnRateGpus") == "8", "it is held")
    account.finish("one")
    wait_until(lambda: account.status()["burnRateGpus"] == "0", "it is let go", timeout=HASTE)
    # The burn rate is of now, and the sums are of a few seconds before.
    ended = account.hours(now())
    wait_until(lambda: account.hours(moment(account.status()["asOf"])) == ended, "its end counts", timeout=HASTE)
    account.assert_exact(account.status())


def test_a_pod_that_is_torn_away_ended_when_it_was_seen_to_go(account: Account) -> None:
    account.budget()
    account.run("torn", 8)
    wait_until(lambda: account.status().get("trackedPods") == 1, "it is counted")
    account.run("other", 1, team="b")
    before = now()
    account.delete("torn")
    wait_until(lambda: account.status()["trackedPods"] == 0, "it is gone")
    least, most = account.hours(before, "torn"), account.hours(now(), "torn")
    consumed, upper = bounds(account.settled())
    assert consumed == upper
    assert least <= consumed <= most


def test_a_relabelled_pod_leaves_what_it_used_where_it_was(account: Account) -> None:
    for team in ("a", "b"):
        account.budget(team, {"team": team})
    account.run("moved", 8)
    wait_until(lambda: account.status("a").get("trackedPods") == 1, "it is counted")
    before = now()
    account.relabel("moved", "b")
    wait_until(lambda: account.status("b").get("trackedPods") == 1, "the other team has it")
    after = now()
    assert account.status("a")["trackedPods"] == 0
    accounts.next_second()
    account.finish("moved")
    since = account.latest()
    (first, first_upper), (second, second_upper) = (bounds(account.settled(team, since)) for team in ("a", "b"))
    assert (first, second) == (first_upper, second_upper)
    assert account.hours(before) <= first <= account.hours(after)
    assert is_close(first + second, account.hours(now()))


def test_reaching_the_quota_is_said_once_and_so_is_its_end(account: Account) -> None:
    warned, calmed = ("Warning", "QuotaExceeded", 1), ("Normal", "WithinBudget", 1)
    account.budget(quota={"gpuHours": "0.05", "windowHours": 1})
    account.run("big", 100)
    wait_until(lambda: warned in account.events(), "the quota is reached")
    assert condition(account.status(), "QuotaExceeded") == ("True", "QuotaReached")
    [message] = account.events().values()
    assert " of 0.05 GPU-hours in the last 1h. Usage stays over quota while the current pods run." in message
    assert f"Largest user: {account.namespace}/big, " in message

    account.finish("big")
    status = account.settled()
    account.assert_exact(status)
    assert status["remainingGpuHours"] == "0"
    assert "exhaustedAt" not in status["forecast"]
    # So much of the end of the pod's time is the quota: 0.05 h x 3600 s / 100 GPUs.
    ended = moment(account.last["big"]["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"])
    assert moment(status["forecast"]["recoversAt"]) == ended + HOUR - 1800 + 1
    assert list(account.events()) == [warned]

    account.change("team", quota={"gpuHours": "50"})
    wait_until(lambda: calmed in account.events(), "it holds again")
    status = account.settled()
    assert condition(status, "QuotaExceeded") == ("False", "WithinBudget")
    assert "forecast" not in status
    assert account.events().keys() == {warned, calmed}


def test_a_budget_that_nobody_asks_anything_of_says_so(account: Account) -> None:
    account.run("other", 0, main={"resources": {"limits": {"amd.com/gpu": "1"}}})
    account.budget()
    status = account.first_status()
    assert condition(status, "NoPodsRequestResource") == ("True", "ResourceNotRequested")
    assert (status["trackedPods"], status["consumedGpuHours"]) == (0, "0")


# --- metrics ------------------------------------------------------------------------------------------------------------------------

SAME = {
    "consumed_gpu_hours": "consumedGpuHours",
    "upper_gpu_hours": "upperGpuHours",
    "remaining_gpu_hours": "remainingGpuHours",
    "burn_rate_gpus": "burnRateGpus",
    "tracked_pods": "trackedPods",
}


def test_metrics_are_what_the_status_says_at_the_moment_they_are_asked_for(
    account: Account, operator: Operator
) -> None:
    for name, gpus in (("ended", 8), ("runs", 4)):
        account.budget(name, {"pod": name}, quota={"gpuHours": "10", "windowHours": 24})
        account.run(name, gpus)
    account.run("nobodys", 32, team="none")
    account.finish("ended")
    still, moving = account.settled("ended"), account.settled("runs", since=0)

    before = now()
    metrics = operator.metrics()
    after = now()
    for metric, field in SAME.items():
        found = metrics[f"headroom_budget_{metric}", f"{account.namespace}/ended"]
        assert found == pytest.approx(float(still[field]), rel=1e-9), metric
    mine = {
        name.removeprefix("headroom_budget_"): value for (name, of), value in metrics.items() if of.endswith("/runs")
    }
    low, high = (float(account.hours(at - SETTLE_MS, "runs")) for at in (before, after))
    assert float(moving["consumedGpuHours"]) <= low <= mine["consumed_gpu_hours"] <= high
    assert mine["consumed_gpu_hours"] == mine["upper_gpu_hours"]
    assert mine["remaining_gpu_hours"] == pytest.approx(mine["quota_gpu_hours"] - mine["consumed_gpu_hours"])
    assert (mine["burn_rate_gpus"], mine["tracked_pods"], mine["exceeded"], mine["quota_gpu_hours"]) == (4, 1, 0, 10)
    assert mine["exhausted_timestamp_seconds"] * 1000 == pytest.approx(moment(moving["forecast"]["exhaustedAt"]), abs=2)
    assert "recovers_timestamp_seconds" not in mine
    assert metrics["headroom_uncovered_burn_rate_gpus", ""] == 32
    assert (metrics["headroom_ledger_up", ""], metrics["headroom_ledger_waiting_pods", ""]) == (1, 0)


# --- money --------------------------------------------------------------------------------------------------------------------------


def set_price(api: Api, dollars: str) -> None:
    """What an hour of a `p5` costs."""
    data = {"metal": f'- {{instanceType: p5, pricePerHour: "{dollars}"}}'}
    if any(each["metadata"]["name"] == "headroom-prices" for each in api.items(PRICES)):
        api.send("PATCH", f"{PRICES}/headroom-prices", {"data": data}, "merge")
    else:
        api.send("POST", PRICES, {"metadata": {"name": "headroom-prices"}, "data": data})


def add_node(api: Api, name: str, labels: dict[str, str]) -> None:
    """A node of eight GPUs."""
    resources = {"status": {"allocatable": {GPU: "8"}, "capacity": {GPU: "8"}}}
    api.send("POST", "api/v1/nodes", {"metadata": {"name": name, "labels": labels}, **resources})


def test_dollars_follow_the_price_in_force_and_hours_without_one_stand_apart(
    account: Account, operator: Operator
) -> None:
    add_node(account.api, "known", {"node.kubernetes.io/instance-type": "p5"})
    add_node(account.api, "unknown", {})
    set_price(account.api, "8")
    account.budget("pilot", {"pod": "pilot"}, quota={"usd": "1", "windowHours": 24})
    account.run("pilot", 8, team="pilot", nodeName="known")
    pilot = f"{account.namespace}/pilot"
    wait_until(lambda: operator.metric("budget_consumed_usd", pilot) > 0, "the price is known")

    account.budget(quota={"usd": "1", "windowHours": 24})
    account.run("priced", 2, nodeName="known")
    account.run("unpriced", 1, nodeName="unknown")
    # Metrics may be two seconds older than the status.
    team = f"{account.namespace}/team"
    wait_until(lambda: operator.metric("budget_tracked_pods", team) == 2, "both are counted")
    rows, before = operator.metric("usage_rows"), now()
    set_price(account.api, "16")
    wait_until(lambda: operator.metric("usage_rows") == rows + 2, "the price is another one")
    after = now()
    accounts.next_second()
    for name in ("priced", "unpriced"):
        account.finish(name)
    status = account.settled()

    # Two of eight GPUs: 2 dollars an hour until the change, 4 after it.
    whole = account.held("priced", now())
    least, most = (Fraction(4 * whole - 2 * account.held("priced", at), HOUR) for at in (after, before))
    usd = Fraction(status["consumedUsd"])
    assert least <= usd <= most
    assert "upperUsd" not in status, "what has no price has no bound"
    assert Fraction(status["remainingUsd"]) == 1 - usd
    assert is_close(status["unpricedGpuHours"], account.hours(now(), "unpriced"))
    account.assert_exact(status, "priced", "unpriced")
    assert "remainingGpuHours" not in status
    assert condition(status, "QuotaExceeded") == ("False", "WithinBudget")

    account.change("team", quota={"usd": "0.0001"})
    wait_until(lambda: ("Warning", "QuotaExceeded", 1) in account.events(), "the dollars are spent")
    [message] = account.events().values()
    assert " of 0.0001 dollars in the last 24h" in message
    assert account.settled()["remainingUsd"] == "0"


# --- devices of claims --------------------------------------------------------------------------------------------------------------


def claim(account: Account, name: str, devices: int, *pods: str) -> None:
    """A claim with devices that pods share, as kube-scheduler leaves it."""
    asked = {"name": "gpus", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": devices}}
    path = CLAIMS.format(account.namespace)
    account.api.send("POST", path, {"metadata": {"name": name}, "spec": {"devices": {"requests": [asked]}}})
    results = [
        {"request": "gpus", "driver": "gpu.nvidia.com", "pool": "n", "device": f"gpu-{number}"}
        for number in range(devices)
    ]
    users = [{"resource": "pods", "name": pod, "uid": account.last[pod]["metadata"]["uid"]} for pod in pods]
    status: dict[str, Any] = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
    account.api.send("PATCH", f"{path}/{name}/status", {"status": status}, "merge")


def test_a_claim_that_pods_share_is_charged_once_to_each_budget_that_covers_one(account: Account) -> None:
    pods = ("one", "two")
    for name in pods:
        account.budget(name, {"pod": name})
        uses = {"resources": {"claims": [{"name": "gpu"}]}}
        account.make(name, 0, main=uses, resourceClaims=[{"name": "gpu", "resourceClaimName": "shared"}])
    account.budget("both")
    claim(account, "shared", 3, *pods)
    for name in pods:
        account.start(name)
    wait_until(
        lambda: [account.status(name).get("burnRateGpus") for name in (*pods, "both")] == ["3", "3", "3"],
        "both are counted",
    )

    for name in pods:
        account.finish(name)
    ended = account.latest()
    for name in pods:
        consumed, upper = bounds(account.settled(name, ended))
        assert consumed == upper
        assert is_close(consumed, Fraction(3 * account.held(name, ended), HOUR))
    both, _ = bounds(account.settled("both", ended))
    longest, sum_ = max(account.held(name, ended) for name in pods), sum(account.held(name, ended) for name in pods)
    assert Fraction(3 * longest, HOUR) - both < Fraction(1, 1000)
    assert both < Fraction(3 * sum_, HOUR)
