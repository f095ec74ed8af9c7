"""The loop asks the plans in their order: what one decides, the later ones see in the same tick, and are asked again for."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs

from headroom.core import CAPACITY
from headroom.model.actions import WakeMachine
from headroom.model.changes import Changes
from headroom.model.conditions import holds, judged
from headroom.model.decisions import Decision, Ref
from headroom.model.plans import Plan, judgement
from headroom.model.times import MINUTE, SECOND
from headroom.model.world import World, by_ref
from tests.builders import NOON, a_ref, a_resource
from tests.core.test_ticks import used_up
from tests.runtime.fakes import FakePort
from tests.runtime.test_loop import Rig

BUDGET, POOL = "GPUWorkloadBudget", "PowerPool"


class Verdict:
    """A plan for budgets that says what a test tells it to, and one for pools that notes what it sees of them."""

    def __init__(self, every_ms: int = 100) -> None:
        self.exceeded, self.asked = False, list[bool]()
        self.seen: list[tuple[Changes, list[str]]] = []
        self.budgets = Plan(name="budgets", kinds=(BUDGET,), at_most_every_ms=every_ms, decide=self._judge)
        self.pools = Plan(
            name="pools", kinds=(POOL,), reads=(BUDGET,), at_most_every_ms=100, decides_together=True, decide=self._look
        )

    def _judge(self, world: World, _changes: Changes) -> Iterable[Decision]:
        self.asked.append(self.exceeded)
        for ref, budget in world.of_kind(BUDGET):
            decision = judgement(world, ref, budget, (True, "Reconciled", "It is so."))
            over = judged(budget, "QuotaExceeded", self.exceeded, "Over" if self.exceeded else "Within", "", world.now)
            verdicts = (*decision.status.conditions[:1], over)
            yield structs.replace(decision, status=structs.replace(decision.status, conditions=verdicts))

    def _look(self, world: World, changes: Changes) -> Iterable[Decision]:
        found = [each.reason for _, budget in world.of_kind(BUDGET) for each in budget.status.conditions]
        self.seen.append((changes, found))
        for ref, pool in world.of_kind(POOL):
            yield judgement(world, ref, pool, (True, "Reconciled", ",".join(found)))

    @property
    def sees(self) -> str:
        """What the later plan saw last."""
        return self.seen[-1][1][-1] if self.seen[-1][1] else ""


def rig_of(verdict: Verdict) -> Rig:
    return Rig(FakePort(a_resource(), a_resource(POOL)), verdict.budgets, verdict.pools)


async def test_a_later_plan_sees_in_the_same_tick_what_is_not_written_yet() -> None:
    verdict = Verdict()
    rig = rig_of(verdict)
    verdict.exceeded = True
    rig.operator.loop.tick()
    assert rig.port.done == []
    assert verdict.sees == "Over"


async def test_a_decision_that_turned_is_news_for_who_reads_its_kind() -> None:
    verdict = Verdict()
    rig = rig_of(verdict)
    await rig.tick()
    await rig.tick()
    count = len(verdict.seen)
    verdict.exceeded = True
    rig.port._changes["budgets"].resources.add(a_ref())  # nobody but the budgets' plan hears of it
    await rig.tick()
    assert len(verdict.seen) > count
    assert verdict.sees == "Over"
    assert any(a_ref() in changes.resources for changes, _ in verdict.seen[count:])


async def test_a_decision_that_only_says_the_same_again_is_not() -> None:
    verdict = Verdict()
    rig = rig_of(verdict)
    for _ in range(3):
        await rig.tick()
    count = len(verdict.seen)
    rig.port._changes["budgets"].resources.add(a_ref())
    await rig.tick()
    assert len(verdict.seen) == count


async def test_an_estimated_start_that_moved_is_news_and_one_that_moves_by_seconds_is_not() -> None:
    verdict, starts = Verdict(), {"Pod/a/p": NOON + 10 * MINUTE}
    budgets = structs.replace(verdict.budgets, announces=lambda _status: dict(starts))
    rig = Rig(FakePort(a_resource(), a_resource(POOL)), budgets, verdict.pools)
    for _ in range(3):
        await rig.tick()
    count = len(verdict.seen)
    for moved, is_news in ((SECOND, False), (5 * MINUTE, True)):
        starts["Pod/a/p"] -= moved
        rig.port._changes["budgets"].resources.add(a_ref())
        await rig.tick()
        assert (len(verdict.seen) > count) is is_news


async def test_who_reads_a_kind_hears_that_a_resource_of_it_is_gone() -> None:
    verdict = Verdict()
    rig = rig_of(verdict)
    await rig.tick()
    await rig.tick()
    count = len(verdict.seen)
    rig.port.resources = by_ref([rig.port.resources[Ref(POOL, "", "one")]])
    rig.port._changes["budgets"].resources.add(a_ref())
    await rig.tick()
    assert len(verdict.seen) > count
    assert verdict.seen[-1][1] == []


async def test_an_earlier_plan_with_news_is_asked_first_though_it_was_asked_a_moment_ago() -> None:
    verdict = Verdict(every_ms=60_000)
    rig = rig_of(verdict)
    await rig.tick()
    verdict.exceeded = True
    rig.port.change(Changes(resources={a_ref(), Ref(POOL, "", "one")}))
    await rig.tick()
    assert verdict.asked[-1]
    assert verdict.sees == "Over"


async def test_a_round_is_not_asked_while_one_of_its_statuses_is_on_its_way() -> None:
    verdict = Verdict()
    rig = rig_of(verdict)
    counts: list[int] = []

    def meanwhile() -> None:
        if not rig.operator.writer.is_writing([POOL]):
            return
        before = len(verdict.seen)
        rig.port.change(Changes(everything=True))
        rig.clock.seconds += 10
        rig.operator.loop.tick()
        counts.append(len(verdict.seen) - before)

    rig.port.after_status = meanwhile
    await rig.tick()
    rig.port.after_status = lambda: None
    assert counts == [0]
    before = len(verdict.seen)
    await rig.tick()
    assert len(verdict.seen) == before + 1


# --- a budget that turns over quota in this very tick -----------------------------------------------------------------------------


def port_of(world: World) -> FakePort:
    """A port onto a world."""
    port = FakePort(*world.resources.values())
    port.fields = {name: getattr(world, name) for name in World.__struct_fields__ if name not in ("now", "resources")}
    return port


def wakes(port: FakePort) -> list[str]:
    return [each.machine for what, each in port.done if what == "action" and isinstance(each, WakeMachine)]


async def test_no_machine_wakes_for_a_budget_that_turns_over_quota_in_this_tick() -> None:
    rig = Rig(port_of(used_up(written=False)))
    for _ in range(3):
        await rig.tick(2)
    assert wakes(rig.port) == []
    assert holds(rig.port.resources[a_ref()].status.conditions, "QuotaExceeded")


async def test_it_would_if_budgets_were_not_asked_before() -> None:
    rig = Rig(port_of(used_up(written=False)), CAPACITY)
    await rig.tick()
    assert wakes(rig.port) == ["w1"]
