"""What pending pods cost a decision: each is matched as often for many budgets that hold as for one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from headroom.core.budgets.accounts import Account
from headroom.core.budgets.allowances import Allowances
from headroom.core.budgets.holding import sweep
from headroom.core.budgets.releasing import Rooms
from headroom.core.budgets.waiting import Matcher, waiting
from headroom.model.facts import Pod
from headroom.model.times import HOUR
from tests.builders import a_pod
from tests.core.stage import TEAM, Stage, a_budget, gated, of_job, running


class CountingMatcher(Matcher):
    """Counts how often it is asked about each pod."""

    asked: Counter[str]

    def of_pod(self, pod: Pod, without: Collection[str] = ()) -> tuple[tuple[Account, int], ...]:
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
    accounts = [Account(world, each) for each in stage.budgets.values()]
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
