"""The recorder keeps the labels that budgets select by, and reads the ledger for those of a budget that comes later."""

from collections.abc import AsyncIterator
from typing import Any

from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.api.resources import LabelSelector
from headroom.core.usage import BudgetScope, BudgetUsage
from headroom.model.errors import Unavailable
from headroom.model.facts import Pairs, Pod
from headroom.model.usage import UsageRow
from headroom.model.world import World, by_ref
from headroom.runtime import label_keys
from headroom.sim.ledger import MemoryLedger
from tests.builders import a_resource
from tests.runtime.test_recording import HOUR, Stage, played, running

FIRST = running(labels=(("job-name", "j"), ("team", "a"), ("tier", "x")))


class FailingLedger(MemoryLedger):
    """A ledger that cannot be read while a test says so; it counts how often it is."""

    fails = False
    reads = 0

    async def read(self, since: int) -> AsyncIterator[list[UsageRow]]:
        self.reads += 1
        if self.fails:
            raise Unavailable("reading the ledger: it is away")
        async for rows in super().read(since):
            yield rows


def a_budget(key: str, value: str = "a", **fields: Any) -> AnyResource:
    return a_resource(name=f"by-{key}", selector={"matchLabels": {key: value}}, **fields)


def give(stage: Stage, *budgets: AnyResource) -> None:
    stage.port.resources = by_ref(budgets)
    stage.port.changes.resources |= set(stage.port.resources)


def relabelled(stage: Stage, pod: Pod, labels: Pairs) -> Pod:
    after = structs.replace(pod, labels=labels, resource_version=str(int(pod.resource_version or 0) + 1))
    stage.see(after)
    return after


def used(stage: Stage, key: str, value: str) -> float:
    """Hours of one GPU in the last day."""
    scope = BudgetScope(
        "here", frozenset({"team-a"}), LabelSelector(match_labels={key: value}), (("nvidia.com/gpu", None),)
    )
    table, now = stage.recorder.table, stage.clock.now()
    table.group_by(frozenset({key}))
    world = World(now=now, cluster="here", pods=stage.port.pods, usage=table, ledger=stage.recorder.state())
    return round(BudgetUsage(world, scope, 24 * HOUR).gpus.total / (10**6 * HOUR), 2)


def known(stage: Stage) -> set[str]:
    keys = stage.recorder.state().keys
    assert keys is not None
    return {key for key in keys if not key.startswith("@")}


async def started(*budgets: AnyResource, ledger: MemoryLedger | None = None) -> Stage:
    stage = Stage(ledger)
    give(stage, *budgets)
    stage.port.pods.put(FIRST)
    await stage.start()
    return stage


def test_a_label_that_no_budget_selects_by_begins_no_row() -> None:
    async def script() -> None:
        stage, pod = await started(a_budget("team")), FIRST
        for number in range(20):
            await stage.clock.sleep(2)
            pod = relabelled(stage, pod, (("job-name", f"j{number}"), (f"new-{number}", ""), ("team", "a")))
        await stage.clock.sleep(2)
        assert [row.labels for row in stage.rows] == [FIRST.labels]
        assert [row.labels for row in stage.recorder.table] == [(("team", "a"),)]
        await stage.kill()

    played(script)


def test_a_restart_splits_nothing_for_labels_that_no_budget_selects_by() -> None:
    async def script() -> None:
        stage = await started(a_budget("team"))
        await stage.clock.sleep(5)
        relabelled(stage, FIRST, (("job-name", "other"), ("team", "a")))
        await stage.kill()
        again = Stage(stage.ledger, clock=stage.clock)
        give(again, a_budget("team"))
        again.port.pods = stage.port.pods
        await again.start()
        await again.clock.sleep(5)
        assert [row.labels for row in again.rows] == [FIRST.labels]
        await again.kill()

    played(script)


def test_a_budget_that_comes_later_counts_what_the_ledger_has() -> None:
    async def script() -> None:
        stage = await started(a_budget("team"))
        await stage.clock.sleep(HOUR // 1000)
        give(stage, a_budget("team"), a_budget("tier", "x"))
        assert known(stage) == {"team"}
        await stage.clock.sleep(3)
        assert known(stage) == {"team", "tier"}
        assert used(stage, "tier", "x") == used(stage, "team", "a") == 2.0
        relabelled(stage, FIRST, (("team", "a"), ("tier", "y")))
        await stage.clock.sleep(HOUR // 1000)
        assert (used(stage, "tier", "x"), used(stage, "tier", "y")) == (2.0, 1.0)
        assert [dict(row.labels)["tier"] for row in stage.rows] == ["x", "y"]
        await stage.kill()

    played(script)


def test_before_a_budget_selects_by_a_label_that_of_the_rows_begin_counts() -> None:
    async def script() -> None:
        stage = await started(a_budget("team"))
        relabelled(stage, FIRST, (("team", "a"), ("tier", "y")))
        await stage.clock.sleep(HOUR // 1000)
        give(stage, a_budget("team"), a_budget("tier", "x"))
        await stage.clock.sleep(HOUR // 1000)
        assert (used(stage, "tier", "x"), used(stage, "tier", "y")) == (2.0, 1.0)
        await stage.kill()

    played(script)


def test_the_first_budget_needs_nothing_from_the_ledger() -> None:
    async def script() -> None:
        ledger = FailingLedger()
        stage = await started(ledger=ledger)
        await stage.clock.sleep(5)
        ledger.fails = True
        give(stage, a_budget("tier", "x"))
        await stage.clock.sleep(2)
        assert known(stage) == {"tier"}
        assert used(stage, "tier", "x") == 1.0
        await stage.kill()

    played(script)


def test_while_the_ledger_cannot_be_read_that_is_said_and_it_is_tried_again() -> None:
    async def script() -> None:
        ledger = FailingLedger()
        stage = await started(a_budget("team"), ledger=ledger)
        await stage.clock.sleep(5)
        ledger.fails = True
        give(stage, a_budget("team"), a_budget("tier", "x"))
        await stage.clock.sleep(30)
        assert known(stage) == {"team"}
        assert "it is away" in stage.recorder.state().problem
        relabelled(stage, FIRST, (("team", "a"),))
        await stage.clock.sleep(HOUR // 1000)
        ledger.fails = False
        await stage.clock.sleep(30)
        assert known(stage) == {"team", "tier"}
        assert stage.recorder.state().problem == ""
        assert used(stage, "tier", "x") == 1.01, "what was removed while the ledger was away ended then"
        await stage.kill()

    played(script)


def test_new_budgets_over_and_over_do_not_make_the_ledger_be_read_all_the_time() -> None:
    async def script() -> None:
        ledger = FailingLedger()
        stage = await started(a_budget("team"), ledger=ledger)
        await stage.clock.sleep(5)
        before = ledger.reads
        for number in range(60):
            give(stage, a_budget("team"), a_budget(f"key-{number}"))
            await stage.clock.sleep(1)
        assert ledger.reads - before <= 60 / label_keys.PAUSE_SECONDS + 1
        await stage.clock.sleep(10)
        assert known(stage) == {"team", *(f"key-{number}" for number in range(60))}
        await stage.kill()

    played(script)


def test_keys_are_forgotten_in_time_but_not_while_a_budget_cannot_be_read() -> None:
    async def script() -> None:
        stage = await started(a_budget("team"), a_budget("tier", "x"))
        give(stage, a_budget("team"), a_budget("broken", quota={}))
        await stage.clock.sleep(4000)
        assert known(stage) == {"team", "tier"}
        give(stage, a_budget("team"))
        await stage.clock.sleep(4000)
        assert known(stage) == {"team"}
        assert [row.labels for row in stage.recorder.table] == [(("team", "a"),)]
        give(stage, a_budget("team"), a_budget("tier", "x"))
        await stage.clock.sleep(10)
        assert used(stage, "tier", "x") == used(stage, "team", "a")
        await stage.kill()

    played(script)


def test_a_label_that_flaps_makes_a_row_a_second_at_most() -> None:
    async def script() -> None:
        stage, pod = await started(a_budget("team")), FIRST
        for number in range(3000):
            await stage.clock.sleep(0.001)
            pod = relabelled(stage, pod, (("team", "ab"[number % 2]),))
        pod = relabelled(stage, pod, (("team", "c"),))
        await stage.clock.sleep(5)
        assert len(stage.rows) <= 6
        assert stage.rows[-1].labels == pod.labels
        assert round(sum(used(stage, "team", team) for team in "abc"), 1) == 1.0
        await stage.kill()

    played(script)


def test_what_is_not_written_yet_is_known_for_a_new_key_too() -> None:
    async def script() -> None:
        stage = await started(a_budget("team"))
        await stage.clock.sleep(4.5)
        second = running("second", labels=(("team", "b"), ("tier", "x")), start=0)
        stage.see(second)
        give(stage, a_budget("team"), a_budget("tier", "x"))
        await stage.clock.sleep(3)
        assert {dict(row.labels)["tier"] for row in stage.recorder.table} == {"x"}
        stage.lose(second)
        await stage.clock.sleep(3)
        assert {row.pod: dict(row.labels)["tier"] for row in stage.rows} == {"p": "x", "second": "x"}
        await stage.kill()

    played(script)


def test_a_label_that_the_dashboard_asks_for_is_kept_whatever_budgets_select_by() -> None:
    keys = label_keys.LabelKeys(Stage().clock, frozenset({"user"}))
    world = World(now=0, cluster="here", resources=by_ref([a_budget("team")]))
    table = keys.new_table(world)
    assert table.keys is not None
    assert {"user", "team"} <= table.keys
    keys.forget(table, structs.replace(world, complete=True))
    assert "user" in table.keys
