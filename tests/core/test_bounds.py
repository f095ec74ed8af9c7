"""Whatever happens to a pod, and whether anybody looks or not: what is certain is never more than the truth, and never less is possible."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec import structs

from headroom.api.resources import LabelSelector
from headroom.core.usage import BudgetScope, BudgetUsage, QuotaLimits, uncovered
from headroom.core.usage.keeping import Keeper, PricingContext
from headroom.core.usage.observing import Look
from headroom.model.facts import Pod, Price
from headroom.model.tables import NodeTable
from headroom.model.usage_table import UsageTable
from headroom.model.world import World
from tests.builders import a_node, a_pod, a_resource, a_world, no_devices

GPU = 1_000_000
WINDOW = 1_000_000
TEAMS = ("a", "b", "c")


class Bounds(NamedTuple):
    low: int
    high: int


def bounds(table: UsageTable, team: str, now: int) -> Bounds:
    """What a budget for a team says: milliseconds of one GPU."""
    selector = LabelSelector(match_labels={"team": team})
    scope = BudgetScope("default", frozenset({"team-a"}), selector, (("nvidia.com/gpu", None),))
    table.group_by(frozenset({"team"}))
    found = BudgetUsage(World(now=now, settled=now, cluster="default", usage=table), scope, WINDOW)
    sums = found.summarize(QuotaLimits(None, None))
    return Bounds(sums.gpu_ms // GPU, sums.upper_gpu_ms // GPU)


class History:
    """A pod, what is seen of it, and what is true."""

    def __init__(self) -> None:
        self.now = 1000
        self.keeper = Keeper(UsageTable())
        self.nodes = NodeTable()
        self.nodes.put(a_node("n"))
        self.prices: tuple[Price, ...] = ()
        self.pod: Pod | None = a_pod("p", created=self.now, phase="Pending", labels=(("team", "a"),))
        self.away_since: int | None = None
        self.truth: dict[str, int] = dict.fromkeys(TEAMS, 0)
        self.last_seen = ""
        self.worn: set[str] = set()
        """Labels of a running pod while nobody looked."""
        self.leaves_no_trace = False

    @property
    def team(self) -> str:
        assert self.pod is not None
        return dict(self.pod.labels)["team"]

    def pass_time(self, ms: int) -> None:
        if self.pod is not None and self.pod.phase == "Running":
            self.truth[self.team] += ms
        self.now += ms

    def _wear(self) -> None:
        if self.pod is not None and self.pod.phase == "Running" and self.away_since is not None:
            self.worn |= {self.team} if self.worn or self.team != self.last_seen else set()

    def around(self) -> PricingContext:
        return PricingContext(self.nodes, no_devices(), self.prices, {}, {}, ())

    def _seen(self) -> None:
        if self.pod is not None and self.away_since is None:
            self.keeper.see(self.pod, self.around(), Look("default", self.now, self.now))
            self.last_seen = self.team

    def do(self, what: str) -> None:
        match what:
            case "start" if self.pod is not None and self.pod.phase == "Pending":
                self.pod = structs.replace(self.pod, phase="Running", started=self.now, node="n")
            case "a" | "b" | "c" if self.pod is not None and self.pod.phase in ("Pending", "Running"):
                self.pod = structs.replace(self.pod, labels=(("team", what),))
                self._wear()
            case "price":
                self.prices = (Price(price_per_hour=GPU * (1 + self.now % 3)),)
            case "finish" if self.pod is not None and self.pod.phase == "Running":
                end = {"ended": self.now, "ended_by": "ContainerFinish"}
                self.pod = structs.replace(self.pod, phase="Succeeded", **end)
            case "delete" if self.pod is not None:
                if self.away_since is None:
                    self.keeper.lose(self.pod, self.around(), Look("default", self.now, self.now))
                self.pod = None if self.away_since is None else structs.replace(self.pod, phase="Gone")
            case "down" if self.away_since is None:
                self.away_since = self.now
                self.worn.clear()
            case "up" if self.away_since is not None:
                self._return()
            case _:
                return
        if self.pod is not None and self.pod.phase != "Gone":
            self._seen()

    def _return(self) -> None:
        assert self.away_since is not None
        since, table = self.away_since, UsageTable()
        for row in self.keeper.table:
            table.put(row)
        self.keeper = Keeper(table)
        if self.pod is not None and self.pod.phase == "Gone" and not table.of_pod(self.pod.uid):
            self.leaves_no_trace |= self.pod.started is not None
        if self.pod is not None and table.of_pod(self.pod.uid):
            # Labels that came and went, or went with the pod, leave no trace.
            is_told = self.pod.phase != "Gone" and self.team != self.last_seen
            self.leaves_no_trace |= bool(self.worn - ({self.team} if is_told else set()))
        if self.pod is not None and self.pod.phase != "Gone":
            self.keeper.see(self.pod, self.around(), Look("default", self.now, since))
            self.last_seen = self.team
        elif self.pod is not None:
            self.pod = None
        self.keeper.miss(since, self.now)
        self.away_since = None


WHAT = ("start", "a", "b", "c", "price", "finish", "delete", "down", "up", "down", "up")


@given(st.lists(st.tuples(st.sampled_from(WHAT), st.integers(1, 500)), max_size=12), st.integers(1, 500))
def test_the_truth_lies_within_both_bounds(steps: list[tuple[str, int]], before: int) -> None:
    history = History()
    history.pass_time(before)
    for what, ms in [*steps, ("up", 1)]:
        history.do(what)
        history.pass_time(ms)
    assume(not history.leaves_no_trace)
    for team in TEAMS:
        low, high = bounds(history.keeper.table, team, history.now)
        assert low <= history.truth[team] <= high, f"{team}: {history.truth[team]} is not in {low}..{high}"


def started_unseen(*more: str) -> History:
    """A pod that waits when the operator goes away, starts as team a's, becomes team b's, and is seen again 100 ms later."""
    history = History()
    for what, ms in [("down", 10), ("start", 60), ("b", 30), *((each, 10) for each in more), ("up", 5)]:
        history.do(what)
        history.pass_time(ms)
    return history


def test_a_pod_relabelled_in_the_outage_in_which_it_started_may_have_been_anybodys() -> None:
    history = started_unseen()
    assert history.truth == {"a": 60, "b": 35, "c": 0}
    found = {team: bounds(history.keeper.table, team, history.now) for team in TEAMS}
    assert found == {"a": (0, 90), "b": (5, 95), "c": (0, 90)}


def test_so_may_one_that_also_finished_in_it() -> None:
    found = bounds(started_unseen("finish").keeper.table, "a", 5000)
    assert found == (0, 90)


def test_one_deleted_in_it_whose_last_state_is_told_may_have_been_there_or_not() -> None:
    history = History()
    pod = structs.replace(a_pod("p", created=1000), phase="Running", started=1020, node="n", labels=(("team", "b"),))
    history.keeper.lose(pod, history.around(), Look("default", 1100, 1010))
    assert [bounds(history.keeper.table, team, 2000) for team in TEAMS] == [(0, 80)] * 3


def test_a_pod_born_in_an_outage_counts_under_the_labels_it_is_found_with() -> None:
    history = History()
    pod = a_pod("p", created=1015, phase="Running", started=1020, node="n", labels=(("team", "b"),))
    history.keeper.see(pod, history.around(), Look("default", 1100, 1010))
    assert [bounds(history.keeper.table, team, 1200) for team in TEAMS] == [(0, 0), (180, 180), (0, 0)]


def test_unseen_labels_are_outside_no_budget_that_may_count_them() -> None:
    history = started_unseen()
    budget = a_resource(selector={"matchLabels": {"team": "c"}})
    world = a_world(budget, now=history.now)
    world = structs.replace(world, settled=history.now, usage=history.keeper.table)
    assert uncovered(world).gpu_ms == 5 * GPU
