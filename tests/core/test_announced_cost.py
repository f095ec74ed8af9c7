"""What announced pods cost a round: each schedule is reckoned once for each run, and while nothing is due little is decided."""

from __future__ import annotations

from collections import Counter
from itertools import islice, product
from time import process_time
from typing import Any

import numpy as np
import pytest

from headroom.core import demand
from headroom.core.demand import cron as schedules
from headroom.core.demand.announcing import MOST_OF_NAMESPACE, Presence, _counted, job_of
from headroom.model.batch_facts import CronJob
from headroom.model.changes import Topic
from headroom.model.facts import Owner
from headroom.model.tables import PodTable
from headroom.model.times import HOUR, MINUTE
from tests.builders import NOON, a_pod
from tests.core.power_stage import Stage, a_pool, a_view, off, on, waiting
from tests.core.test_capacity_announcers import BOOT, a_part, cron, given
from tests.core.test_capacity_changes import Watched, a_quiet_fleet

MANY = 20_000


def distinct(count: int, **fields: Any) -> list[CronJob]:
    """CronJobs that all run at other moments, none of them soon."""
    times = islice(product(range(60), range(15, 24), range(1, 29), range(1, 13)), count)
    return [
        cron(name=f"c{number}", schedule=f"{minute} {hour} {day} {month} *", **fields)
        for number, (minute, hour, day, month) in enumerate(times)
    ]


class Searches:
    """Counts how often the runs of each schedule are searched for."""

    def __init__(self) -> None:
        self.found = Counter[str]()
        self.remembered = schedules.NextRuns(self._search)

    def _search(self, text: str, zone: str, after: int, until: int) -> int | None:
        self.found[text] += 1
        return schedules._search(text, zone, after, until)

    def run(self, text: str, after: int, until: int) -> int | None:
        return self.remembered.first(text, "", after, until)


def test_the_runs_of_a_schedule_are_searched_for_once_for_each_run() -> None:
    searches = Searches()
    for minute in range(120):
        now = NOON + minute * MINUTE
        assert searches.run("7 * * * *", now, now + 2 * HOUR) == NOON + (7 + (minute + 53) // 60 * 60) * MINUTE
    assert searches.found.total() == 3


def test_where_none_is_near_they_are_searched_for_once_for_each_horizon() -> None:
    searches = Searches()
    for minute in range(120):
        now = NOON + minute * MINUTE
        assert searches.run("7 3 * * *", now, (now // HOUR + 2) * HOUR) is None
    assert searches.found.total() == 2


def test_what_is_remembered_is_no_answer_for_who_asks_from_earlier_on() -> None:
    searches = Searches()
    asked = [(NOON + 10 * MINUTE, 67), (NOON, 7), (NOON + 7 * MINUTE, 67), (NOON + 6 * MINUTE, 7)]
    for after, minutes in asked:
        assert searches.run("7 * * * *", after, NOON + 3 * HOUR) == NOON + minutes * MINUTE
    assert searches.run("7 * * * *", NOON, NOON + 5 * MINUTE) is None


def test_no_namespace_has_more_cron_jobs_looked_at_than_so_many() -> None:
    jobs = [*distinct(MOST_OF_NAMESPACE + 500), *distinct(10, namespace="team-b")]
    looked_at = Counter(each.namespace for each in _counted(given(*jobs)["cron_jobs"]))
    assert looked_at == {"team-a": MOST_OF_NAMESPACE, "team-b": 10}


def test_a_round_over_many_cron_jobs_is_bounded() -> None:
    """Of distinct schedules there may be as many as anybody likes; the time is that of this process alone."""
    world = a_view(a_pool(), **given(*distinct(MANY)))
    demand.wanted(world, ahead_ms=5 * MINUTE)
    began = process_time()
    demand.wanted(world, ahead_ms=5 * MINUTE)
    assert process_time() - began < 0.2


def test_pods_of_a_namespace_are_looked_at_once_for_all_runs_that_are_expected() -> None:
    class Counting(PodTable):
        scans = 0

        def column(self, name: str) -> np.ndarray[Any, Any]:
            self.scans += name == "created"
            return super().column(name)

    pods = Counting()
    job = job_of("c7", NOON)
    owner = Owner("Job", job, "uid-job")
    pods.put(a_pod("p", gpus=1, namespace="team-a", created=NOON, owner=owner, unschedulable_since=NOON))
    presence = Presence(a_view(a_pool(), pods=pods))
    presence._pods = pods
    came = [each for each in range(64) if presence.has_come(f"CronJob/team-a/c{each}", "", NOON)]
    assert came == [7]
    assert pods.scans <= 1


# --- how much is decided --------------------------------------------------------------------------------------------------------------


def a_fleet_with(*jobs: CronJob) -> Watched:
    watched = a_quiet_fleet()
    watched.more["cron_jobs"] = {each.key: each for each in jobs}
    watched.told.fact(Topic.BATCH)
    assert watched.decide() == {"one", "two", "three"}
    return watched


@pytest.mark.parametrize(("minutes", "pools"), [(50, {"two"}), (4, {"one", "two", "three"})])
def test_only_while_a_cron_job_is_due_all_pools_are_decided(minutes: int, pools: set[str]) -> None:
    """A boot may take ten minutes, and this one runs so many minutes after noon."""
    watched = a_fleet_with(cron(minutes))
    watched.node_sink.put(off("b-two"))
    assert watched.decide() == pools
    assert watched.is_right()


# --- who answers for it ---------------------------------------------------------------------------------------------------------------


def test_a_run_that_does_not_come_counts_once_however_many_pools_kept_a_machine_for_it() -> None:
    """Six pods that fit one to a machine, six pools with a machine each that is idle: all are kept, and nobody comes."""
    pools = [a_pool(f"p{each}", machines={f"w{each}": 8}, idleSeconds=60, minOnSeconds=0, **BOOT) for each in range(6)]
    facts = given(cron(4, part=a_part(count=6)))
    stage = Stage(*pools, nodes=[on(f"w{each}") for each in range(6)], **facts)
    stage.pass_time(3 * MINUTE, every=10_000)
    assert [len(each.status.expected) for each in stage.pools.values()] == [1] * 6
    stage.more = given()
    stage.pass_time(4 * MINUTE, every=10_000)
    assert sum(len(it.at) for each in stage.pools.values() for it in each.status.fruitless) == 1
    # Real pods of that namespace do not wait for it.
    stage.pass_time(10 * MINUTE, every=10_000)
    assert [stage.state(f"w{each}") for each in range(6)] == ["Off"] * 6
    pod = waiting("real", 8, namespace="team-a", since=stage.now)
    stage.pods[pod.uid] = pod
    stage.pass_time(3 * MINUTE, every=10_000)
    assert stage.pods[pod.uid].node


@pytest.mark.parametrize("first", ["kept", "woken"])
def test_a_run_that_does_not_come_counts_once_if_one_pool_kept_a_machine_and_another_woke_one(first: str) -> None:
    """The machine that was woken counts when it goes to sleep, and the one that was kept beside it does not count as well."""
    names = {"kept": "a" if first == "kept" else "b", "woken": "a" if first == "woken" else "b"}
    more: dict[str, Any] = {"idleSeconds": 60, "minOnSeconds": 0, **BOOT}
    pools = [a_pool(names[each], machines={each: 8}, **more) for each in names]
    stage = Stage(*pools, nodes=[on("kept"), off("woken")], **given(cron(4, part=a_part(count=2))))
    stage.pass_time(3 * MINUTE, every=10_000)
    assert [len(each.status.expected) for each in stage.pools.values()] == [1, 1]
    stage.more = given()
    stage.pass_time(30 * MINUTE, every=10_000)
    assert [stage.state(each) for each in names] == ["Off", "Off"]
    found = {ref.name: sum(len(it.at) for it in each.status.fruitless) for ref, each in stage.pools.items()}
    assert found == {names["kept"]: 0, names["woken"]: 1}
