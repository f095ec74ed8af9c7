"""What machines teach one cluster, the others that share the ledger know within a minute, also after the ledger was away."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import structs

from headroom.core.offers.quotes import market_of
from headroom.model import times
from headroom.model.cloud_facts import Experience
from headroom.model.errors import Unavailable
from headroom.model.facts import NodeClaim
from headroom.model.machine_records import MachineRecord
from headroom.model.world import World, by_ref
from headroom.runtime.learning import Learning
from headroom.sim.ledger import MemoryLedger
from tests.builders import NOON
from tests.core.offer_stage import a_leftover, an_offer
from tests.core.test_offers_learning import a_claim, a_world, failed

OFFER = "g5.xlarge/us-east-1a/spot"
MINUTE = times.MINUTE


class Away(MemoryLedger):
    """Answers nobody while it is away."""

    away, writes = False, 0

    async def record_machines(self, records: Any) -> None:
        if self.away:
            raise Unavailable("away")
        self.writes += 1
        await super().record_machines(records)


class SetClock:
    """Shows what it is set to."""

    def __init__(self, now: int) -> None:
        self.at = now

    def now(self) -> int:
        return self.at

    def monotonic(self) -> float:
        return self.at / 1000

    async def sleep(self, seconds: float) -> None:
        self.at += round(seconds * 1000)


class Cluster:
    """One cluster's view, and what it learns."""

    def __init__(self, ledger: MemoryLedger, name: str, clock: SetClock) -> None:
        self.clock, self.found, self.told = clock, dict[str, Experience](), 0
        self.seen = self._with(a_world(), name)
        self.learning = Learning(ledger, self, clock, lambda: True)

    def _with(self, world: World, name: str) -> World:
        resources, offers = by_ref([a_leftover()]), {"x": an_offer(), "y": an_offer(zone="us-east-1b", dollars=0.52)}
        return structs.replace(world, cluster=name, resources=resources, offers=offers)

    def world(self, now: int) -> World:
        return structs.replace(self.seen, now=now)

    def learn(self, found: Mapping[str, Experience]) -> None:
        self.found, self.told = dict(found), self.told + 1

    async def look(self, *claims: NodeClaim, later: int = 0, **more: Any) -> None:
        self.seen = self._with(a_world(*claims, **more), self.seen.cluster)
        self.clock.at += later
        await self.learning.step(self.world(self.clock.now()))


def two() -> tuple[Away, Cluster, Cluster]:
    ledger, clock = Away(), SetClock(NOON)
    return ledger, Cluster(ledger, "one", clock), Cluster(ledger, "two", clock)


def records(ledger: MemoryLedger) -> list[MachineRecord]:
    return [ledger._machines[key] for key in sorted(ledger._machines)]


async def test_clusters_that_share_a_ledger_share_failures_and_interruptions() -> None:
    _, one, two_ = two()
    await one.look(a_claim(), failure=failed())
    await one.look(a_claim(deleting=NOON))
    await two_.look()
    assert two_.found[OFFER] == Experience(offer=OFFER, launches=2, failures=1, interruptions=1, machine_ms=times.HOUR)
    before = market_of(structs.replace(two_.seen), a_leftover().spec, ())
    after = market_of(structs.replace(two_.seen, experience=two_.found), a_leftover().spec, ())
    assert next(iter(after.quotes.values())).offer.zone == "us-east-1b"
    assert next(iter(before.quotes.values())).offer.zone == "us-east-1a"


async def test_the_last_of_a_machine_is_written_once_it_is_gone_and_nothing_twice() -> None:
    ledger, one, _ = two()
    await one.look(a_claim())
    assert ledger.writes == 1
    for _ in range(3):
        await one.look(a_claim(), later=MINUTE)
    assert ledger.writes == 1, "it runs, and that is known"
    await one.look(a_claim(), later=10 * MINUTE)
    assert ledger.writes == 2
    await one.look(a_claim(), later=MINUTE)
    await one.look(later=MINUTE)
    await one.look(later=MINUTE)
    assert ledger.writes == 3
    assert [each.seen_until for each in records(ledger)] == [NOON + 14 * MINUTE]


async def test_what_a_ledger_that_is_away_does_not_take_is_written_later() -> None:
    ledger, one, _ = two()
    await one.look(a_claim("a"))
    ledger.away = True
    await one.look(a_claim("a", deleting=NOON), a_claim("b"))
    await one.look(a_claim("b"))
    await one.look()
    ledger.away = False
    await one.look()
    assert [(each.machine, each.outcome) for each in records(ledger)] == [("uid-a", "Interrupted"), ("uid-b", "")]


async def test_nothing_is_asked_without_a_resource_that_needs_it() -> None:
    ledger, one, _ = two()
    await one.learning.step(a_world(a_claim()))
    await one.learning.step(structs.replace(one.seen, complete=False))
    assert (one.told, records(ledger)) == (0, [])
