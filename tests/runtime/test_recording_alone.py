"""Recording before the ledger could be read: what it says once it can be is what it would have said at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec import structs

from headroom.api.resources import LabelSelector
from headroom.core.usage import BudgetScope, BudgetUsage, QuotaLimits
from headroom.model.errors import Unavailable
from headroom.model.facts import Pod
from headroom.model.usage import Heartbeat, UsageRow, is_unseen
from headroom.model.usage_table import UsageTable
from headroom.model.world import World
from headroom.sim.clock import SimClock
from headroom.sim.ledger import MemoryLedger
from tests.builders import NOON, a_pod
from tests.runtime.test_recording import HOUR, Stage, played

GPU = 1_000_000
SECOND = 1000
TEAMS = ("a", "b", "c")


class Unreadable(MemoryLedger):
    """A ledger that takes rows, as a queue does, and cannot be read: it fails, or it hangs."""

    def __init__(self, clock: SimClock, mode: str = "") -> None:
        super().__init__()
        self.clock, self.mode = clock, mode

    async def _reading(self) -> None:
        if self.mode == "fails":
            raise Unavailable("reading the ledger: nobody answers")
        while self.mode:
            await self.clock.sleep(0.5)

    async def claimed(self, cluster: str) -> dict[str, int]:
        await self._reading()
        return await super().claimed(cluster)

    async def cursor(self) -> int:
        await self._reading()
        return await super().cursor()

    async def changes(self, after: int) -> tuple[list[UsageRow], int]:
        await self._reading()
        return await super().changes(after)

    async def read(self, since: int) -> AsyncIterator[list[UsageRow]]:
        await self._reading()
        async for rows in super().read(since):
            yield rows


def team(name: str) -> tuple[tuple[str, str], ...]:
    return (("team", name),)


def bounds(table: UsageTable, name: str, as_of: int) -> tuple[int, int]:
    """What is certain and what is possible for a team, in milliseconds of one GPU."""
    selector = LabelSelector(match_labels={"team": name})
    scope = BudgetScope("here", frozenset({"team-a"}), selector, (("nvidia.com/gpu", None),))
    table.group_by(frozenset({"team"}))
    found = BudgetUsage(World(now=as_of, settled=as_of, cluster="here", usage=table), scope, 24 * HOUR)
    sums = found.summarize(QuotaLimits(None, None))
    return sums.gpu_ms // GPU, sums.upper_gpu_ms // GPU


def a_running(name: str, label: str, *, version: int = 5, **fields: Any) -> Pod:
    base: dict[str, Any] = {"labels": team(label), "created": NOON - HOUR, "started": NOON - HOUR, "phase": "Running"}
    return a_pod(name, node="n", resource_version=str(version), **base | fields)


def a_row(name: str, label: str, *, start: int = NOON - HOUR, seen: int = 0, **fields: Any) -> UsageRow:
    return UsageRow(
        cluster="here",
        uid=a_pod(name).uid,
        start=start,
        earliest=start,
        created=NOON - HOUR,
        seen_until=max(start, seen),
        observed=start + 1,
        version=3,
        namespace="team-a",
        pod=name,
        amounts=(("nvidia.com/gpu", GPU),),
        labels=team(label),
        **fields,
    )


BEAT = NOON - HOUR // 2
"""Up to then nothing is missing in the ledger."""
Script = Callable[[Stage], None]


def relabel(stage: Stage) -> None:
    stage.see(a_running("p", "c", version=9))


def finish(stage: Stage) -> None:
    stage.see(a_running("p", "b", version=9, phase="Succeeded", ended=stage.clock.now(), ended_by="ContainerFinish"))


def delete(stage: Stage) -> None:
    stage.lose(a_running("p", "b", version=9))


def nothing(stage: Stage) -> None:
    del stage


def restarted(mode: str, event: Script, found: Pod, *rows: UsageRow, beat: int = BEAT) -> tuple[Stage, int]:
    """A start with these rows in the ledger and this pod in view; 20 s later something happens, and 20 s later it can be read."""
    stages = []

    async def script() -> None:
        clock = SimClock(NOON)
        stage = Stage(Unreadable(clock, mode), clock=clock)
        stage.ledger.put(rows)
        if beat:
            await stage.ledger.write([], Heartbeat(cluster="here", complete_until=beat))
        stage.port.pods.put(found)
        stages.append(stage)
        await stage.start()
        await clock.sleep(19.8)
        event(stage)
        await clock.sleep(20)
        stage.ledger.mode = ""  # type: ignore[attr-defined]  # an Unreadable
        await clock.sleep(60)
        assert stage.recorder.state().loaded
        await stage.kill()

    played(script)
    return stages[0], NOON + 100 * SECOND


KNOWN = {
    "the same": [a_row("p", "b")],
    "relabelled since": [a_row("p", "a")],
    "relabelled before": [
        a_row("p", "a", seen=NOON - 2400 * SECOND, gone_by=NOON - 2400 * SECOND),
        a_row("p", "b", start=NOON - 2400 * SECOND),
    ],
    "there and back": [
        a_row("p", "b", seen=NOON - 2400 * SECOND, gone_by=NOON - 2400 * SECOND),
        a_row("p", "a", start=NOON - 2400 * SECOND),
    ],
    "nothing": [],
}


@pytest.mark.parametrize("mode", ["fails", "hangs"])
@pytest.mark.parametrize("event", [relabel, finish, delete, nothing])
@pytest.mark.parametrize("known", KNOWN)
def test_a_ledger_read_late_says_what_it_would_have_said_at_once(known: str, event: Script, mode: str) -> None:
    found = a_running("p", "b")
    late, now = restarted(mode, event, found, *KNOWN[known])
    at_once, _ = restarted("", event, found, *KNOWN[known])
    for name in TEAMS:
        (low, high), (lower, higher) = bounds(late.recorder.table, name, now), bounds(at_once.recorder.table, name, now)
        # A ledger that hangs is waited for, so the pod is found that much later.
        assert (low, high) == (lower, higher) or (mode == "hangs" and lower - 12_000 <= low <= high <= higher + 12_000)


def test_a_pod_that_was_relabelled_before_it_was_found_is_nobodys_for_sure_between() -> None:
    """Known as team a's, found as team b's, and deleted before the ledger could be read."""
    stage, now = restarted("fails", delete, a_running("p", "b"), a_row("p", "a"))
    found = {name: bounds(stage.recorder.table, name, now) for name in TEAMS}
    assert found == {"a": (1_800_000, 3_600_000), "b": (20_000, 1_820_000), "c": (0, 0)}


def test_so_it_stays_if_the_process_dies_before_it_could_read_the_ledger() -> None:
    async def script() -> None:
        clock = SimClock(NOON)
        ledger = Unreadable(clock, "fails")
        first = Stage(ledger, clock=clock)
        first.port.pods.put(a_running("p", "b"))
        await first.start()
        await clock.sleep(19.8)
        delete(first)
        await clock.sleep(2)
        await first.kill()
        # What the ledger knew all the time arrives only now, as from a queue that was drained late.
        ledger.put([a_row("p", "a")])
        ledger.mode = ""
        second = Stage(ledger, clock=clock)
        await second.start()
        await clock.sleep(60)
        found = {name: bounds(second.recorder.table, name, clock.now()) for name in TEAMS}
        assert found == {"a": (0, 3_600_000), "b": (20_000, 3_620_000), "c": (0, 0)}
        await second.kill()

    played(script)


def test_a_pod_nobody_knew_counts_from_its_start_once_that_is_sure() -> None:
    stage, now = restarted("fails", relabel, a_running("p", "b"), beat=0)
    assert bounds(stage.recorder.table, "b", now) == (3_620_000, 3_620_000)
    assert not [row for row in stage.rows if is_unseen(row.labels)]


def test_its_row_in_the_ledger_has_all_of_its_labels() -> None:
    pod = structs.replace(a_running("p", "b"), labels=(("job", "j1"), ("team", "b")))
    stage, _ = restarted("fails", nothing, pod, beat=0)
    assert [row.labels for row in stage.rows] == [pod.labels]


def test_nothing_is_split_for_a_pod_to_which_nothing_happened() -> None:
    stage, _ = restarted("fails", nothing, a_running("p", "a"), a_row("p", "a"))
    assert [(row.start, row.labels, row.gone_by) for row in stage.rows] == [(NOON - HOUR, team("a"), None)]


def test_a_pod_deleted_before_the_first_view_was_complete_is_told_as_bounds_too() -> None:
    async def script() -> None:
        clock = SimClock(NOON)
        stage = Stage(Unreadable(clock, "fails"), clock=clock)
        stage.ledger.put([a_row("p", "a")])
        await stage.ledger.write([], Heartbeat(cluster="here", complete_until=BEAT))
        stage.port.complete = False
        await stage.start()
        stage.recorder.gone(a_running("p", "b"), clock.now())
        stage.port.complete = True
        await clock.sleep(10)
        stage.ledger.mode = ""  # type: ignore[attr-defined]  # an Unreadable
        await clock.sleep(60)
        found = {name: bounds(stage.recorder.table, name, clock.now()) for name in TEAMS}
        assert found == {"a": (1_800_000, 3_600_000), "b": (0, 1_800_000), "c": (0, 0)}
        await stage.kill()

    played(script)


def test_a_second_failure_right_after_changes_nothing() -> None:
    async def script() -> None:
        clock = SimClock(NOON)
        stage = Stage(Unreadable(clock, "fails"), clock=clock)
        stage.ledger.put([a_row("p", "a")])
        await stage.ledger.write([], Heartbeat(cluster="here", complete_until=BEAT))
        stage.port.pods.put(a_running("p", "b"))
        await stage.start()
        await clock.sleep(10)

        def away() -> None:
            raise Unavailable("writing the ledger: nobody answers")

        stage.ledger.before_write, stage.ledger.mode = away, ""  # type: ignore[attr-defined]  # an Unreadable
        while not stage.recorder.state().loaded:
            await clock.sleep(0.1)
        stage.ledger.mode = "fails"  # type: ignore[attr-defined]  # an Unreadable
        relabel(stage)
        relabelled_at = clock.now()
        await clock.sleep(30)
        stage.ledger.before_write, stage.ledger.mode = None, ""  # type: ignore[attr-defined]  # an Unreadable
        await clock.sleep(60)
        now, found_at = clock.now(), NOON
        for table in (stage.recorder.table, await read_anew(stage.ledger)):
            since = relabelled_at - found_at
            assert bounds(table, "a", relabelled_at) == (1_800_000, 3_600_000)
            assert bounds(table, "b", now) == (since, since + 1_800_000)
        await stage.kill()

    played(script)


async def read_anew(ledger: MemoryLedger) -> UsageTable:
    table = UsageTable("here")
    async for rows in ledger.read(0):
        table.extend(rows)
    return table


class Life:
    """Pods, an operator that comes and goes, a ledger that can be read or not; and what is true."""

    def __init__(self) -> None:
        self.clock = SimClock(NOON)
        self.ledger = Unreadable(self.clock)
        self.stage: Stage | None = None
        self.pods: dict[str, Pod] = {}
        self.spans: list[tuple[str, int, int | None]] = []
        self.open: dict[str, int] = {}
        self.version = 0
        self.unseen: dict[str, set[str]] = {}
        """What happened to a pod since the ledger was last read, while nobody looked."""
        self.untold = set[str]()
        """Pods that the ledger need not know of."""

    @property
    def is_watched(self) -> bool:
        return self.stage is not None and self.stage.recorder._is_recording

    async def do(self, what: str, number: int, name: str) -> None:
        await self.clock.sleep(1.3)
        pod = self.pods.get(f"p{number}")
        if what in ("fails", "hangs", "readable"):
            self.ledger.mode = "" if what == "readable" else what
        elif what == "up" and self.stage is None:
            await self.rise()
        elif what == "kill" and self.stage is not None:
            await self.stage.kill()
            self.stage = None
            self.untold = {each.name for each in self.pods.values() if each.started is None}
        elif what == "wait":
            await self.clock.sleep(5 * (number + 1))
        elif what == "create" and pod is None:
            self.untold.add(f"p{number}")
            self.put(a_pod(f"p{number}", created=self.clock.now(), phase="Pending", labels=team(name)), "create")
        elif pod is not None and self.leaves_a_trace(what, pod):
            self.happen(what, pod, name)
        await self.check()

    async def rise(self) -> None:
        self.stage = Stage(self.ledger, clock=self.clock)
        for pod in self.pods.values():
            self.stage.port.pods.put(pod)
        await self.stage.start()

    def leaves_a_trace(self, what: str, pod: Pod) -> bool:
        """Whether somebody sees it, or sees later that it was so."""
        before = self.unseen.get(pod.name, set())
        if self.is_watched:
            return True
        if what == "relabel":
            return not before and pod.name not in self.untold
        return what != "delete" or (not before and pod.name not in self.untold)

    def happen(self, what: str, pod: Pod, name: str) -> None:
        now = self.clock.now()
        is_over = pod.phase == "Succeeded"
        if what == "start" and pod.started is None:
            self.spans.append((pod.labels[0][1], now, None))
            self.open[pod.name] = len(self.spans) - 1
            self.put(structs.replace(pod, phase="Running", started=now, node="n"), what)
        elif what == "relabel" and pod.labels != team(name):
            if pod.name in self.open:
                self.close(pod.name)
                self.spans.append((name, now, None))
                self.open[pod.name] = len(self.spans) - 1
            self.put(structs.replace(pod, labels=team(name)), what)
        elif what == "finish" and pod.started is not None and not is_over:
            self.close(pod.name)
            self.put(structs.replace(pod, phase="Succeeded", ended=now, ended_by="ContainerFinish"), what)
        elif what == "delete":
            self.close(pod.name)
            del self.pods[pod.name]
            if self.stage is not None:
                self.stage.lose(pod)

    def close(self, name: str) -> None:
        if name in self.open:
            label, begin, _ = self.spans[self.open[name]]
            self.spans[self.open.pop(name)] = label, begin, self.clock.now()

    def put(self, pod: Pod, what: str) -> None:
        self.version += 1
        # Every pod that comes has a uid of its own.
        uid = f"{pod.name}-{self.version}" if what == "create" else pod.uid
        pod = self.pods[pod.name] = structs.replace(pod, resource_version=str(self.version), uid=uid)
        if not self.is_watched and what != "create":
            self.unseen.setdefault(pod.name, set()).add(what)
        elif what == "create":
            self.unseen.pop(pod.name, None)
        if self.stage is not None:
            self.stage.see(pod)
            if self.is_watched and pod.started is not None:
                self.untold.discard(pod.name)

    async def check(self) -> None:
        if self.stage is None or not self.stage.recorder.state().loaded:
            return
        self.unseen.clear()
        self.untold = {each.name for each in self.pods.values() if each.started is None}
        now = self.clock.now()
        for name in TEAMS:
            truth = sum((end or now) - begin for label, begin, end in self.spans if label == name)
            low, high = bounds(self.stage.recorder.table, name, now)
            assert low <= truth <= high, f"{name}: {truth} is not in {low}..{high}"


happenings = ["create", "start", "relabel", "finish", "delete", "wait", "kill", "up", "fails", "hangs", "readable"]
steps = st.tuples(st.sampled_from(happenings), st.integers(0, 2), st.sampled_from(TEAMS))


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=40))
@example(
    [
        ("up", 0, "a"),
        ("create", 0, "a"),
        ("start", 0, "a"),
        ("wait", 2, "a"),
        ("kill", 0, "a"),
        ("relabel", 0, "b"),
        ("fails", 0, "a"),
        ("up", 0, "a"),
        ("wait", 0, "a"),
        ("delete", 0, "a"),
        ("readable", 0, "a"),
        ("wait", 2, "a"),
    ]
)
def test_whenever_the_ledger_cannot_be_read_the_truth_lies_within_the_bounds(
    script: list[tuple[str, int, str]],
) -> None:
    async def run() -> None:
        life = Life()
        for step in script:
            await life.do(*step)
        for last in ("readable", "up", "wait", "wait", "wait"):
            await life.do(last, 2, "a")
        for _ in range(8):
            await life.do("wait", 2, "a")
        assert life.stage is not None
        assert life.stage.recorder.state().loaded
        await life.stage.kill()

    played(run)
