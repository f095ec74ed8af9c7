"""What pending pods cost a decision: each is matched as often for many budgets that hold as for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from msgspec import structs

from headroom.core.budgets.accounts import BudgetAccount
from headroom.core.budgets.allowances import Allowances
from headroom.core.budgets.holding import sweep
from headroom.core.budgets.releasing import Rooms
from headroom.core.budgets.waiting import Matcher, held_back, waiting
from headroom.model.facts import Pod
from headroom.model.tables import PodTable
from headroom.model.times import HOUR
from tests.builders import a_pod
from tests.core.stage import TEAM, Stage, a_budget, gated, of_job, running
from tests.core.test_foreign_gates import full, stocked


class CountingMatcher(Matcher):
    """Counts how often it is asked about each pod."""

    asked: Counter[str]

    def of_pod(self, pod: Pod, without: Collection[str] = ()) -> tuple[tuple[BudgetAccount, int], ...]:
        self.asked[pod.name] += 1
        return super().of_pod(pod, without)


def matched(budgets: int) -> Counter[str]:
    """How often each pending pod was matched while budgets sweep and look for room, now and later."""
    strangers = [a_pod(f"web-{each}", gpus=0, labels=(("app", "web"),)) for each in range(3)]
    pods = [running("used", 20 * HOUR, gpus=2), gated("waits"), a_pod("early", labels=TEAM, owner=of_job("fit"))]
    stage = Stage(
        *(a_budget(f"b{each}", hours="18", enforce="Hold") for each in range(budgets)), pods=[*pods, *strangers]
    )
    world = stage.world()
    accounts = [BudgetAccount(world, each) for each in stage.budgets.values()]
    matcher = CountingMatcher(world, accounts)
    matcher.asked = Counter()
    queue = waiting(world, matcher, frozenset())
    matcher.asked.clear()
    rooms = Rooms(world, Allowances(world, matcher, []), matcher, queue)
    rooms.far(ends=True)
    rooms.far(ends=False)
    swept = [sweep(account, matcher, is_there=True).actions for account in accounts]
    assert all(swept), "every budget takes the early one back"
    return matcher.asked


def test_pending_pods_are_matched_as_often_for_ten_budgets_as_for_one() -> None:
    assert matched(10) == matched(1)


class CountingTable(PodTable):
    """Counts how often it is asked for a pod."""

    looked = 0

    def get(self, uid: str) -> Pod | None:
        self.looked += 1
        return super().get(uid)


def looked_at(stage: Stage) -> int:
    """How many pods are looked at to find those that budgets keep waiting."""
    world = stage.world()
    table = CountingTable()
    for pod in world.pods:
        table.put(pod)
    world = structs.replace(world, pods=table)
    held_back(world, Matcher(world, [BudgetAccount(world, each) for each in stage.budgets.values()]))
    return table.looked


def test_pods_behind_the_gates_of_others_are_not_looked_at_while_no_hold_stands() -> None:
    others = [stocked(f"s{each}") for each in range(20)]
    assert looked_at(Stage(a_budget(hours="18", enforce=["150% Hold"]), pods=[gated("ours"), *others])) == 1
    assert looked_at(full(gated("ours"), *others)) == 21
