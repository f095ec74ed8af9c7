"""Usage through deaths, on a real API server: of the operator, of PostgreSQL, of another cluster. What was recorded stays recorded."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headroom.api.policies import USAGE_FINALIZER
from tests.control_plane import ControlPlane, wait_until
from tests.integration.accounts import (
    Account,
    Api,
    Operator,
    OperatorWithPages,
    bounds,
    condition,
    is_close,
    moment,
    next_second,
)
from tests.postgres import Postgres

NUMBERS = itertools.count(1)
MakeOperator = Callable[..., Operator]


@pytest.fixture
def account(prepared_plane: ControlPlane) -> Iterator[Account]:
    api = Api(prepared_plane)
    made = Account(api, f"team-{next(NUMBERS)}")
    yield made
    made.close()
    api.close()


@pytest.fixture
def new_operator(prepared_plane: ControlPlane, account: Account, tmp_path: Path) -> Iterator[MakeOperator]:
    """Makes operators that are gone before the next test begins."""
    made: list[Operator] = []

    def make(name: str = "operator", at: ControlPlane = prepared_plane, **settings: str) -> Operator:
        made.append(OperatorWithPages(at, tmp_path, name, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


def all_is_written(operator: Operator) -> bool:
    return operator.metric("ledger_waiting_pods") == 0


def health(account: Account) -> tuple[str, str]:
    return condition(account.status(), "Degraded")


def test_killed_while_pods_end_and_vanish_the_truth_stays_within_the_bounds(
    account: Account, new_operator: MakeOperator
) -> None:
    """What an API server still has is exact; only what nobody can tell any more stands as bounds."""
    operator = new_operator()
    operator.start()
    for gpus, name in enumerate(("told", "runs", "ended", "vanished")):
        account.budget(name, {"pod": name})
        account.run(name, 2**gpus)
    account.budget("all")
    wait_until(lambda: account.status("all").get("trackedPods") == 4, "all are counted")
    next_second()
    account.finish("told")
    account.delete("told")
    wait_until(
        lambda: account.status("all")["trackedPods"] == 3 and all_is_written(operator), "the first has been told"
    )

    operator.kill()
    for name in ("ended", "vanished"):
        account.finish(name)
    account.delete("vanished")
    account.run("born", 16)
    operator.start()

    since = account.latest()
    whole = account.settled("all", since)
    for name in ("told", "runs", "ended"):
        account.assert_exact(account.settled(name, since), name)
    at = moment(whole["asOf"])
    low, high = bounds(account.settled("vanished", since))
    assert low < high
    assert low <= account.hours(at, "vanished") <= high
    known = account.hours(at) - account.hours(at, "vanished")
    assert [is_close(found, known + part) for found, part in zip(bounds(whole), (low, high), strict=True)] == [
        True,
        True,
    ]


def test_exact_accounting_keeps_pods_until_an_operator_has_recorded_them(
    account: Account, new_operator: MakeOperator
) -> None:
    operator = new_operator()
    operator.start()
    account.budget(accounting="Exact")
    wait_until(lambda: account.finalizers() == [USAGE_FINALIZER], "the policy knows the budget")
    operator.kill()

    for gpus, name in enumerate(("one", "two", "stays")):
        account.run(name, 2**gpus)
    account.make("unbound", 8, nodeName=None)
    for name in ("one", "two"):
        account.finish(name)
    for name in ("one", "two", "unbound"):
        account.delete(name)
    assert account.there() == {"one", "two", "stays", "unbound"}
    operator.start()
    wait_until(lambda: account.there() == {"stays"}, "those that were told are let go")
    account.assert_exact(account.settled())

    account.drop("team")
    wait_until(lambda: account.finalizers() == [], "the policy knows that the budget is gone")
    next_second()
    account.finish("stays")
    account.delete("stays")
    wait_until(lambda: account.there() == set(), "nobody holds a pod that no budget counts")
    account.budget()
    account.assert_exact(account.settled())


def test_postgresql_dies_and_the_operator_too_and_nothing_is_lost(
    account: Account, new_operator: MakeOperator, own_postgres: Postgres
) -> None:
    url = own_postgres.new_database()
    operator = new_operator(ledger_url=url)
    operator.start()
    account.budget()
    for gpus, name in enumerate(("ended", "vanished", "torn")):
        account.run(name, 2**gpus)
    wait_until(lambda: account.status().get("trackedPods") == 3, "all are counted")
    next_second()

    own_postgres.kill()
    for name in ("ended", "vanished"):
        account.finish(name)
    account.delete("vanished")
    wait_until(lambda: health(account) == ("True", "LedgerUnavailable"), "it is said that the ledger is away")
    assert operator.metric("ledger_up") == 0
    wait_until(lambda: all_is_written(operator), "all is in the queue")
    operator.kill()
    operator.start()
    wait_until(lambda: "the ledger cannot be used" in operator.log.rpartition('"starting"')[2], "it has tried")
    assert operator.metric("ledger_up") == 0
    assert health(account) == ("True", "LedgerUnavailable")
    account.finish("torn")
    account.delete("torn")

    own_postgres.start()
    wait_until(lambda: health(account) == ("False", "HistoryIncomplete"), "it heals without help")
    account.assert_exact(account.settled())
    assert operator.metric("ledger_up") == 1
    wait_until(
        lambda: (
            own_postgres.sql("SELECT count(DISTINCT uid) FROM usage WHERE ended > 0", url.rpartition("/")[2]) == "3"
        ),
        "all is there",
    )


def test_a_standby_records_what_happens_while_nobody_leads(
    account: Account, new_operator: MakeOperator, postgres: Postgres
) -> None:
    url = postgres.new_database()
    leader, standby = (new_operator(name, ledger_url=url) for name in ("first", "second"))
    leader.start()
    account.budget()
    account.run("one", 8)
    wait_until(lambda: account.status().get("trackedPods") == 1, "it is counted")
    standby.start()
    budget = f"{account.namespace}/team"
    wait_until(lambda: standby.metric("budget_burn_rate_gpus", budget) == 8, "the other one counts it too")
    assert (leader.metric("leading"), standby.metric("leading")) == (1, 0)

    leader.kill()
    account.finish("one")
    account.delete("one")
    ended = "SELECT count(DISTINCT uid) FROM usage WHERE ended > 0"
    wait_until(lambda: postgres.sql(ended, url.rpartition("/")[2]) == "1", "its end is in the ledger")
    assert standby.metric("leading") == 0
    account.assert_exact(account.settled())
    assert standby.metric("leading") == 1


def test_one_cluster_decides_for_two_and_waits_for_none_that_is_lost(
    account: Account, new_operator: MakeOperator, second_prepared_plane: ControlPlane, postgres: Postgres
) -> None:
    url, warned = postgres.new_database(), ("Warning", "QuotaExceeded", 1)
    with (
        contextlib.closing(Api(second_prepared_plane)) as api,
        contextlib.closing(Account(api, account.namespace)) as there,
    ):
        east = new_operator("east", cluster_id="east", ledger_url=url)
        west = new_operator("west", second_prepared_plane, cluster_id="west", ledger_url=url)
        for each, gpus in ((account, 1), (there, 8)):
            each.budget(homeCluster="east", quota={"gpuHours": "0.02", "windowHours": 24})
            each.run("one", gpus)

        def both() -> tuple[Account, Account]:
            """Things happen in both clusters."""
            for each in (account, there):
                each.touch("one")
            return account, there

        for operator in (east, west):
            operator.start()
        wait_until(lambda: warned in both()[0].events(), "both together reach the quota")
        wait_until(lambda: condition(both()[1].status(), "QuotaExceeded")[0] == "True", "the other one sees it too")
        assert condition(there.status(), "Ready") == ("True", "DecidedElsewhere")
        assert there.events() == {}
        status = account.settled(since=0)
        at = moment(status["asOf"])
        consumed, upper = bounds(status)
        assert consumed == upper
        assert is_close(consumed, account.hours(at) + there.hours(at))
        assert (status["burnRateGpus"], status["trackedPods"]) == ("9", 1)
        assert condition(status, "Degraded") == ("False", "HistoryIncomplete")

        west.kill()
        # As if it had said its last word before its pod began.
        aged = (
            "UPDATE clusters SET complete_until = complete_until - 600000 WHERE encode(cluster, 'escape') LIKE '%west'"
        )
        postgres.sql(aged, url.rpartition("/")[2])
        wait_until(lambda: condition(account.settled(), "Degraded") == ("True", "ClusterStale"), "one is lost")
        status = account.settled()
        at = moment(status["asOf"])
        low, high = bounds(status)
        assert is_close(low, account.hours(at))
        assert is_close(high, account.hours(at) + there.hours(at))
