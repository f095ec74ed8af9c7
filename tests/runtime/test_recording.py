"""The recorder over a port that tests move by hand, and a ledger that can fail."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import structs

from headroom.api.resources import Status
from headroom.model.actions import EmitEvent
from headroom.model.changes import Changes, Topic
from headroom.model.cloud_facts import Offer
from headroom.model.decisions import Decision
from headroom.model.facts import Pod, Price
from headroom.model.ports import SETTLE_MS
from headroom.model.tables import NodeTable, PodTable
from headroom.model.usage import UsageRow
from headroom.model.world import World, by_ref, ref_of
from headroom.runtime import horizon
from headroom.runtime.recording import Recorder
from headroom.runtime.surroundings import Runtime
from headroom.sim.clock import SimClock, run_virtual
from headroom.sim.ledger import MemoryLedger
from tests.builders import NOON, a_node, a_pod, a_resource, news_of

HOUR = 3_600_000
TEAM = (("team", "a"),)


class Port:
    """What is in view, as a test says it."""

    def __init__(self, clock: SimClock, cluster: str = "here") -> None:
        self.clock, self.cluster = clock, cluster
        self.pods, self.nodes = PodTable(), NodeTable()
        self.resources = by_ref(())
        self.prices: tuple[Price, ...] = ()
        self.offers: dict[str, Offer] = {}
        self.complete = True
        self.behind = 0
        self.ahead: int | None = None
        """By how much our clock is ahead of the API server's; None while that has not told."""
        self.told: list[str] = []
        self.changes = Changes(everything=True)

    def world(self, now: int) -> World:
        return World(
            now=now,
            cluster=self.cluster,
            pods=self.pods,
            nodes=self.nodes,
            prices=self.prices,
            offers=self.offers,
            resources=self.resources,
        )

    def heard_until(self, now: int) -> int:
        return now - SETTLE_MS - self.behind

    def missed_since(self, now: int) -> int:
        return now - self.behind

    def server_time(self) -> int | None:
        return None if self.ahead is None else self.clock.now() - self.ahead

    def subscribe(self, plan: str, parts: frozenset[str], *, quiet: bool = False) -> None:
        assert quiet, plan
        assert "nodes" in parts

    def take_changes(self, plan: str) -> Changes:
        assert plan == "usage"
        taken, self.changes = self.changes, Changes()
        return taken

    def tell(self, topic: Topic, name: str = "") -> None:
        self.told.append(topic)


class Stage:
    """A recorder with its port, its ledger and its clock."""

    def __init__(
        self, ledger: MemoryLedger | None = None, cluster: str = "here", clock: SimClock | None = None
    ) -> None:
        self.clock = clock or SimClock(NOON)
        self.port = Port(self.clock, cluster)
        self.ledger = ledger or MemoryLedger()
        self.leads = True
        self.recorder = Recorder(self.ledger, Runtime(clock=self.clock), may_lead=lambda: self.leads)
        self.recorder.connect(self.port)
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.task = asyncio.create_task(self.recorder.run())
        await self.clock.sleep(0.2)

    async def kill(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    def see(self, pod: Pod) -> None:
        self.port.pods.put(pod)
        self.recorder.pod(pod)

    def lose(self, pod: Pod, seen_until: int | None = None) -> None:
        self.port.pods.remove(pod.uid)
        self.recorder.gone(pod, self.clock.now() if seen_until is None else seen_until)

    @property
    def rows(self) -> list[UsageRow]:
        return sorted(self.ledger.rows.values(), key=lambda row: (row.uid, row.start))


def running(name: str = "p", start: int = HOUR, **fields: Any) -> Pod:
    base: dict[str, Any] = {"labels": TEAM, "started": NOON - start, "phase": "Running", "node": "n"}
    return a_pod(name, **base | fields)


def finished(name: str = "p", at: int = 0, **fields: Any) -> Pod:
    return running(name, phase="Succeeded", ended=NOON + at, ended_by="ContainerFinish", **fields)


def played(script: Callable[[], Any]) -> None:
    run_virtual(script)


def test_what_is_in_view_at_the_start_is_in_the_ledger_soon() -> None:
    async def script() -> None:
        stage = Stage()
        stage.port.pods.put(running())
        assert not stage.recorder.state().loaded
        await stage.start()
        assert stage.recorder.state().loaded
        assert stage.recorder.state().problem == ""
        assert [(row.pod, row.start, row.ended) for row in stage.rows] == [("p", NOON - HOUR, None)]
        assert await stage.ledger.heartbeats() == {"here": stage.clock.now() - 200 - SETTLE_MS}

    played(script)


def test_every_event_is_a_row_within_a_second_however_short_the_pod_lives() -> None:
    async def script() -> None:
        stage = Stage()
        await stage.start()
        stage.see(running("short", start=0))
        stage.see(finished("short", at=100, start=0))
        stage.lose(finished("short", at=100, start=0))
        assert stage.recorder.state().unwritten
        assert "usage" in stage.port.told
        await stage.clock.sleep(1.1)
        assert not stage.recorder.state().unwritten
        assert [(row.pod, row.ended) for row in stage.rows] == [("short", NOON + 100)]

    played(script)


def test_a_pod_that_went_while_nobody_ran_is_told_as_bounds() -> None:
    async def script() -> None:
        first = Stage()
        first.port.pods.put(running())
        await first.start()
        await first.clock.sleep(30)
        await first.kill()
        beat = (await first.ledger.heartbeats())["here"]
        await first.clock.sleep(180)
        second = Stage(first.ledger, clock=first.clock)
        await second.start()
        (row,) = second.rows
        assert (row.seen_until, row.ended) == (beat, None)
        assert row.gone_by is not None
        assert 0 <= second.clock.now() - row.gone_by <= 300

    played(script)


def test_a_pod_deleted_before_the_first_view_was_complete_is_not_forgotten() -> None:
    async def script() -> None:
        stage = Stage()
        stage.port.complete = False
        stage.task = asyncio.create_task(stage.recorder.run())
        await stage.clock.sleep(1)
        stage.lose(finished("early", at=500))
        stage.port.complete = True
        await stage.clock.sleep(2)
        assert [(row.pod, row.ended) for row in stage.rows] == [("early", NOON + 500)]

    played(script)


def test_a_new_price_begins_a_new_row_and_so_does_a_new_count_of_cpu() -> None:
    async def script() -> None:
        stage = Stage()
        stage.port.nodes.put(a_node("n", gpus=8))
        stage.port.prices = (Price(price_per_hour=8_000_000, node="n"),)
        stage.port.pods.put(running())
        await stage.start()
        stage.port.prices = (Price(price_per_hour=16_000_000, node="n"),)
        stage.port.changes = news_of(Topic.PRICES)
        await stage.clock.sleep(1.5)
        assert [row.price for row in stage.rows] == [1_000_000, 2_000_000]
        budget = a_resource(gpuResourceName="cpu")
        plain = structs.replace(running("cpu-only"), shape=structs.replace(running().shape, requests=(("cpu", 10**6),)))
        stage.see(plain)
        assert stage.recorder.table.of_pod(plain.uid) == []
        stage.port.resources.put(ref_of(budget), budget)
        stage.port.changes = Changes(resources={ref_of(budget)})
        await stage.clock.sleep(1.5)
        assert [row.start for row in stage.recorder.table.of_pod(plain.uid)] == [NOON - HOUR]

    played(script)


def test_new_offers_concern_only_the_pods_on_nodes_that_they_price() -> None:
    async def script() -> None:
        stage = Stage()
        seen: list[str] = []
        kinds = {"n": "small", "m": "large"}
        for node, kind in kinds.items():
            stage.port.nodes.put(a_node(node, gpus=8, labels=(("node.kubernetes.io/instance-type", kind),)))
        offers = {
            kind: Offer(name=kind, instance_type=kind, price_per_hour=8_000_000, at=NOON) for kind in kinds.values()
        }
        stage.port.offers = dict(offers)
        stage.port.pods.put(running("one"))
        stage.port.pods.put(structs.replace(running("two"), node="m"))
        await stage.start()
        see = stage.recorder._keeper.see

        def counted(pod: Pod, *more: Any) -> list[UsageRow]:
            seen.append(pod.uid)
            return see(pod, *more)

        stage.recorder._keeper.see = counted  # type: ignore[method-assign,assignment]  # it counts

        async def told(**more: int) -> list[str]:
            seen.clear()
            stage.port.offers = stage.port.offers | {"large": structs.replace(offers["large"], **more)}
            stage.port.changes = news_of(Topic.OFFERS)
            await stage.clock.sleep(1.5)
            return seen

        assert await told(at=NOON + 1, score=7) == [], "a price that stays concerns nobody"
        assert await told(at=NOON + 2, price_per_hour=16_000_000) == ["uid-two"]
        assert [(row.uid, row.price) for row in stage.rows] == [
            ("uid-one", 1_000_000),
            ("uid-two", 1_000_000),
            ("uid-two", 2_000_000),
        ]

    played(script)


def test_a_node_that_turns_into_another_machine_has_another_price_whatever_else_is_new() -> None:
    async def script() -> None:
        stage = Stage()
        kinds = {name: (("node.kubernetes.io/instance-type", name),) for name in ("small", "large")}
        prices = (("small", 8_000_000), ("large", 16_000_000))
        stage.port.prices = tuple(Price(price_per_hour=each, instance_type=name) for name, each in prices)
        stage.port.nodes.put(a_node("n", gpus=8, labels=kinds["small"]))
        budget = a_resource()
        stage.port.resources.put(ref_of(budget), budget)
        stage.port.pods.put(running())
        await stage.start()
        stage.port.nodes.put(a_node("n", gpus=8, labels=kinds["large"]))
        stage.port.changes = Changes(nodes={"n"}, resources={ref_of(budget)}, facts={Topic.USAGE: set()})
        await stage.clock.sleep(1.5)
        assert [row.price for row in stage.rows] == [1_000_000, 2_000_000]

    played(script)


def test_a_longer_window_reads_more_of_the_ledger() -> None:
    async def script() -> None:
        ledger = MemoryLedger()
        old = UsageRow(
            cluster="here",
            uid="old",
            start=NOON - 90 * HOUR,
            earliest=NOON - 90 * HOUR,
            seen_until=NOON - 90 * HOUR,
            ended=NOON - 80 * HOUR,
            evidence=3,
            amounts=(("nvidia.com/gpu", 10**6),),
        )
        await ledger.write([old])
        stage = Stage(ledger)
        await stage.start()
        assert len(stage.recorder.table) == 0
        budget = a_resource(quota={"gpuHours": "1", "windowHours": 100})
        stage.port.resources.put(ref_of(budget), budget)
        await stage.clock.sleep(1.5)
        assert [row.uid for row in stage.recorder.table] == ["old"]

    played(script)


def test_what_other_clusters_and_replicas_write_is_read_and_only_the_leader_says_how_far_the_view_is() -> None:
    async def script() -> None:
        here = Stage()
        there = Stage(here.ledger, cluster="there", clock=here.clock)
        standby = Stage(here.ledger, clock=here.clock)
        standby.leads = False
        there.port.pods.put(running("far"))
        for stage in (here, there, standby):
            await stage.start()
        await here.clock.sleep(3)
        assert [row.cluster for row in here.recorder.table] == ["there"]
        assert here.recorder.state().complete_until.keys() == {"there"}
        standby.see(running("near"))
        await here.clock.sleep(4)
        assert sorted(row.pod for row in here.recorder.table) == ["far", "near"]
        before = (await here.ledger.heartbeats())["here"]
        await here.kill()
        await here.clock.sleep(30)
        after = (await here.ledger.heartbeats())["here"]
        assert after - before <= 5_000, "a standby does not speak for the cluster"

    played(script)


def test_a_view_that_was_behind_splits_within_bounds() -> None:
    async def script() -> None:
        stage = Stage()
        stage.port.pods.put(running())
        await stage.start()
        await stage.clock.sleep(60)
        stage.port.behind = 20_000
        stage.see(running(labels=(("team", "b"),)))
        stage.port.behind = 0
        await stage.clock.sleep(1.5)
        first, second = stage.rows
        assert second.start - second.earliest == 20_000
        assert (first.gone_by, first.seen_until) == (second.start, second.earliest)

    played(script)


def test_stopping_writes_what_waits_and_how_far_the_view_is() -> None:
    async def script() -> None:
        stage = Stage()
        await stage.start()
        await stage.clock.sleep(2.2)
        stage.see(running())
        await stage.recorder.stop()
        assert len(stage.rows) == 1
        assert (await stage.ledger.heartbeats())["here"] == stage.clock.now() - SETTLE_MS
        await stage.kill()

    played(script)


def test_rows_are_forgotten_once_no_window_can_reach_them() -> None:
    async def script() -> None:
        stage = Stage()
        await stage.start()
        for number, hours in enumerate((54, 40)):
            stage.see(running(f"p{number}", start=hours * HOUR, phase="Succeeded", ended=NOON - (hours - 1) * HOUR))
        await stage.clock.sleep(2)
        assert len(stage.rows) == 2
        await stage.clock.sleep(2 * 3600)
        assert [row.pod for row in stage.recorder.table] == ["p1"], "a day and one more, so that pages can look back"
        assert len(stage.rows) == 2, "the ledger keeps them for 35 days"

    played(script)


@pytest.mark.parametrize(("most", "found"), [(200_000, ["p0", "p1"]), (1, ["p1"])])
def test_one_window_more_is_read_unless_that_is_very_much(
    most: int, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(horizon, "MOST_LOOKED_BACK", most)

    async def script() -> None:
        before = Stage()
        await before.start()
        for number, hours in enumerate((40, 20)):
            before.see(running(f"p{number}", start=hours * HOUR, phase="Succeeded", ended=NOON - (hours - 1) * HOUR))
        await before.recorder.stop()
        await before.kill()
        stage = Stage(before.ledger, clock=before.clock)
        await stage.start()
        table = stage.recorder.table
        assert sorted(row.pod for row in table) == ["p1"], "first what the budgets need"
        assert table.complete_since >= NOON - 24 * HOUR
        await stage.clock.sleep(3)
        await stage.clock.sleep(3600)  # what is too much goes with the next pruning
        assert sorted(row.pod for row in table) == found
        assert (table.complete_since < NOON - 40 * HOUR) == (most > 1)

    played(script)


def test_a_new_leader_knows_the_last_words_of_the_one_before() -> None:
    async def script() -> None:
        old, new = Stage(), Stage()
        new.ledger, new.leads = old.ledger, False
        new.recorder = Recorder(old.ledger, Runtime(clock=old.clock), may_lead=lambda: new.leads)
        new.recorder.connect(old.port)
        await old.start()
        await new.start()
        await old.clock.sleep(10)
        said = Decision(resource=ref_of(a_resource()), status=Status(), reason="Last", message="Last.")
        new.leads, old.leads = True, False
        old.recorder.decided(said, old.clock.now())
        await old.recorder.stop()
        await old.clock.sleep(30)
        found = new.recorder.journal.newest(0, 10, lambda _: True)
        assert [each.reason for each in found] == ["Last"]
        await new.kill()
        await old.kill()

    played(script)


def test_what_was_decided_is_in_the_history() -> None:
    async def script() -> None:
        stage = Stage()
        await stage.start()
        ref = ref_of(a_resource())
        told = EmitEvent(object=str(ref), event_type="Warning", reason="QuotaExceeded", message="2 of 1")
        stage.recorder.decided(
            Decision(resource=ref, status=Status(), reason="QuotaReached", message="2 of 1", actions=(told,)), NOON
        )
        await stage.clock.sleep(1.5)
        (entry,) = await stage.ledger.history(0, 10)
        assert (entry.at, entry.resource, entry.reason) == (NOON, str(ref), "QuotaReached")
        assert json.loads(entry.actions)[0]["type"] == "EmitEvent"

    played(script)


@pytest.mark.parametrize("kept", [True, False])
def test_plans_hear_when_the_end_of_a_kept_pod_is_durable(kept: bool) -> None:
    async def script() -> None:
        stage = Stage()
        await stage.start()
        await stage.clock.sleep(1)
        stage.see(finished(finalizers=("headroom.dev/usage",) if kept else ()))
        stage.port.told.clear()
        await stage.clock.sleep(1.5)
        assert ("ledger" in stage.port.told) == kept

    played(script)
