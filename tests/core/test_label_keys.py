"""Rows keep and split on only those labels that budgets select by; the ledger has the rest for a budget that comes later."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import structs

from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.resources import Condition
from headroom.core.budgets import PLAN
from headroom.core.usage import Keeper, Look, PricingContext, label_keys
from headroom.model import conditions
from headroom.model.census import cut
from headroom.model.changes import EVERYTHING
from headroom.model.decisions import Decision
from headroom.model.facts import Namespace, Pairs, Pod
from headroom.model.snapshots import load, save
from headroom.model.tables import NodeTable
from headroom.model.usage import UNSEEN, UsageRow, merged
from headroom.model.usage_table import UsageTable
from headroom.model.world import LedgerState, World
from tests.builders import NOON, a_pod, a_resource, a_used_world, no_devices

KEYS = ("team", "tier", "job-name")
NAMESPACES = {"team-a": Namespace(name="team-a", labels=(("org", "x"),))}
START = 1000
AROUND = PricingContext(NodeTable(), no_devices(), (), {}, {}, ())


def labelled(**labels: str) -> Pairs:
    return tuple(sorted((key.replace("_", "-"), value) for key, value in labels.items()))


def running(labels: Pairs, version: int = 1) -> Pod:
    fields: dict[str, Any] = {"phase": "Running", "started": START, "created": START, "node": "n", "labels": labels}
    return a_pod("p", **fields, resource_version=str(version))


class Recorded:
    """One pod, whoever records it, and a ledger. Beside it the plain model: rows with all labels, split where a kept one changes."""

    def __init__(self, keys: frozenset[str]) -> None:
        self.now, self.version, self.keys = START, 1, keys
        self.labels: Pairs = labelled(team="a", tier="x", job_name="j")
        self.ledger: dict[Any, UsageRow] = {}
        self.unwritten: dict[Any, UsageRow] = {}
        self.model: list[tuple[int, Pairs]] = []
        self.kept = keys
        self.begin()

    def begin(self) -> None:
        """Start, with what the ledger has."""
        self.write()
        table = UsageTable()
        table.keep(self.keys)
        table.extend(list(self.ledger.values()))
        self.keeper, self.kept = Keeper(table), self.keys
        self.see()

    def see(self) -> None:
        """The pod is seen as it is."""
        self.version += 1
        look, pod = Look("default", self.now, self.now), running(self.labels, self.version)
        # While the ledger was not read for a key, nobody can tell whether its label changed.
        is_split = self.keeper.table.is_unread(pod.uid)
        for row in self.keeper.hear(pod, AROUND, look):
            before = self.unwritten.get(row.key)
            self.unwritten[row.key] = row if before is None else merged(before, row)
        if not self.model or is_split or cut(self.model[-1][1], self.kept) != cut(self.labels, self.kept):
            self.model.append((self.now, self.labels))

    def write(self) -> None:
        """What waits is durable."""
        for key, row in self.unwritten.items():
            self.ledger[key] = merged(self.ledger[key], row) if key in self.ledger else row
        self.unwritten = {}

    def select(self, keys: frozenset[str]) -> None:
        """Budgets select by these keys now."""
        self.keys = keys
        if not keys <= self.kept:
            self.kept |= keys
            self.keeper.table.keep(self.kept)

    def read(self) -> None:
        """The ledger is read for keys that were not kept."""
        table, unread = self.keeper.table, self.keeper.table.unread
        if unread:
            table.extend(list(self.ledger.values()))
            table.extend(list(self.unwritten.values()))
            table.unread -= unread
            self.see()

    def shrink(self) -> None:
        """Keys that no budget selects by any more are forgotten."""
        self.kept = self.keys
        self.keeper.table.keep(self.keys)

    def used(self, key: str) -> dict[str, int]:
        """Milliseconds by the value of a label."""
        table, found = self.keeper.table, dict[str, int]()
        ends = table.column("low_end").tolist()
        for number, end in enumerate(ends):
            row = table.row(number)
            value = dict(row.labels).get(key, "")
            found[value] = found.get(value, 0) + min(end, self.now) - row.start
        return {value: ms for value, ms in found.items() if ms}

    def wanted(self, key: str) -> dict[str, int]:
        """The same by the plain model."""
        ends = [start for start, _ in self.model[1:]] + [self.now]
        found: dict[str, int] = {}
        for (start, labels), end in zip(self.model, ends, strict=True):
            value = dict(labels).get(key, "")
            found[value] = found.get(value, 0) + end - start
        return {value: ms for value, ms in found.items() if ms}


some_keys = st.frozensets(st.sampled_from(KEYS))
labels = st.dictionaries(st.sampled_from(KEYS), st.sampled_from("xyz")).map(lambda found: tuple(sorted(found.items())))
actions = st.one_of(
    st.tuples(st.just("relabel"), labels),
    st.tuples(st.just("relabel"), labels),
    st.tuples(st.just("select"), some_keys),
    st.tuples(st.sampled_from(["read", "write", "restart", "shrink", "see"]), st.none()),
)


@example(
    frozenset(),
    [
        (("relabel", ()), 1),
        (("select", frozenset({"team"})), 1),
        (("restart", None), 1),
        (("select", frozenset()), 1),
        (("shrink", None), 1),
        (("select", frozenset({"tier"})), 1),
        (("read", None), 1),
    ],
)
@given(some_keys, st.lists(st.tuples(actions, st.integers(1, 5000)), max_size=25))
def test_usage_by_selected_labels_is_what_rows_with_all_labels_say(
    keys: frozenset[str], steps: list[tuple[tuple[str, Any], int]]
) -> None:
    pod = Recorded(keys)
    for (what, given_), ms in steps:
        pod.now += ms
        match what:
            case "relabel":
                pod.labels = given_
                pod.see()
            case "select":
                pod.select(given_)
            case "restart":
                pod.begin()
            case _:
                getattr(pod, what)()
        known = pod.keeper.table.known_keys
        assert known is not None
        for key in known - {UNSEEN}:
            assert pod.used(key) == pod.wanted(key), key
    assert {cut(row.labels, pod.kept) for row in pod.keeper.table} == {row.labels for row in pod.keeper.table}, (
        "nothing else is kept"
    )


@given(st.lists(st.tuples(labels, st.integers(1, 5000)), max_size=15), some_keys)
def test_a_key_that_was_always_selected_by_is_exact(steps: list[tuple[Pairs, int]], others: frozenset[str]) -> None:
    pod, truth = Recorded(others | {"team"}), {"a": 7}
    pod.now += 7
    for has, ms in steps:
        pod.labels = has
        pod.see()
        value = dict(has).get("team", "")
        truth[value] = truth.get(value, 0) + ms
        pod.now += ms
    assert pod.used("team") == truth


def test_labels_that_nobody_selects_by_split_nothing() -> None:
    pod = Recorded(frozenset({"team"}))
    for number in range(100):
        pod.now += 1000
        pod.labels = labelled(team="a", job_name=str(number), **{f"key{number}": "v"})
        pod.see()
    assert [row.labels for row in pod.keeper.table] == [labelled(team="a")]
    assert [row.labels for row in pod.unwritten.values()] == [labelled(team="a", tier="x", job_name="j")]


def test_a_row_that_changes_keeps_all_its_labels_in_the_ledger() -> None:
    pod = Recorded(frozenset({"job-name"}))
    pod.write()
    pod.now += 5000
    pod.labels = labelled(team="b", tier="y")
    pod.see()
    pod.write()
    first, second = sorted(pod.ledger.values(), key=lambda row: row.start)
    assert (first.closed, first.labels) == (pod.now, labelled(team="a", tier="x", job_name="j"))
    assert second.labels == labelled(team="b", tier="y")


def test_all_labels_of_the_namespace_are_in_the_ledger_too() -> None:
    keeper = Keeper(UsageTable())
    keeper.table.keep(frozenset({"team"}))
    (row,) = keeper.see(
        running(labelled(team="a")), AROUND._replace(namespaces=NAMESPACES), Look("default", 2000, 2000)
    )
    assert dict(row.labels) == {"team": "a", "@namespace/org": "x", "@namespace/kubernetes.io/metadata.name": "team-a"}
    assert keeper.table.row(0).labels == labelled(team="a")


def test_labels_that_nobody_saw_stay_unseen_in_the_ledger() -> None:
    keeper = Keeper(UsageTable())
    keeper.table.keep(frozenset({"team"}))
    pod = structs.replace(running(labelled(team="a", tier="x")), created=500)
    rows = keeper.see(pod, AROUND, Look("default", 2000, 800))
    assert [row.labels for row in rows] == [((UNSEEN, ""),), labelled(team="a", tier="x")]
    assert [row.labels for row in keeper.table] == [((UNSEEN, ""),), labelled(team="a")]


# --- changes within a second -----------------------------------------------------------------------------------------------------


@example([(1, "b"), (1, "a"), (1, "a"), (998, "b")], 1)
@given(st.lists(st.tuples(st.integers(1, 1500), st.sampled_from("abc")), max_size=30), st.integers(1, 3000))
def test_a_change_within_a_second_after_another_counts_from_its_end(steps: list[tuple[int, str]], rest: int) -> None:
    keeper, now, truth = Keeper(UsageTable(), shortest=1000), START, [(START, "a")]
    keeper.see(running(labelled(team="a")), AROUND, Look("default", now + 1, now + 1))
    now += 1
    for version, (ms, team) in enumerate(steps, start=2):
        now += ms
        truth.append((now, team))
        keeper.see(running(labelled(team=team), version), AROUND, Look("default", now, now))
    now += rest
    keeper.settle(AROUND, Look("default", now, now))
    wanted = sampled(truth, now)
    assert [(row.start, dict(row.labels)["team"]) for row in keeper.table.of_pod("uid-p")] == wanted
    assert len(wanted) <= 2 + (now - START) // 1000


def sampled(truth: list[tuple[int, str]], now: int) -> list[tuple[int, str]]:
    """A row ends at the first moment, a second after it began or later, at which the labels are others. The first is no change."""
    found, since = [truth[0]], START
    for moment in range(START, now + 1):
        team = next(team for at, team in reversed(truth) if at <= moment)
        if moment >= since and team != found[-1][1]:
            found.append((moment, team))
            since = moment + 1000
    return found


def test_a_thousand_changes_within_a_second_are_two_rows() -> None:
    keeper, look = Keeper(UsageTable(), shortest=1000), Look("default", 5000, 5000)
    keeper.see(running(labelled(team="a")), AROUND, look)
    for number in range(1000):
        look = Look("default", 6000 + number, 6000 + number)
        keeper.see(running(labelled(team=f"t{number}"), number + 2), AROUND, look)
    assert len(keeper.table) == 2
    assert keeper.settle(AROUND, Look("default", 6999, 6999)) == []
    keeper.settle(AROUND, Look("default", 7300, 7300))
    assert [(row.start, dict(row.labels)["team"]) for row in keeper.table.of_pod("uid-p")] == [
        (START, "a"),
        (6000, "t0"),
        (7000, "t999"),
    ]


def test_a_pod_that_ends_within_the_second_ends_under_the_labels_that_count() -> None:
    keeper = Keeper(UsageTable(), shortest=1000)
    for moment, team in ((5000, "a"), (6000, "b"), (6100, "c")):
        keeper.see(running(labelled(team=team), moment), AROUND, Look("default", moment, moment))
    ended = structs.replace(
        running(labelled(team="c"), 9000), phase="Succeeded", ended=6500, ended_by="ContainerFinish"
    )
    keeper.see(ended, AROUND, Look("default", 6600, 6600))
    assert [(row.start, row.closed) for row in keeper.table.of_pod("uid-p")] == [(START, 6000), (6000, 6500)]
    assert keeper.settle(AROUND, Look("default", 9000, 9000)) == []


# --- what plans do with it -------------------------------------------------------------------------------------------------------


def decided(world: World) -> dict[str, Decision]:
    return {each.resource.name: each for each in PLAN.decide(world, EVERYTHING)}


def used(decision: Decision) -> str:
    assert isinstance(decision.status, GPUWorkloadBudgetStatus)
    return decision.status.consumed_gpu_hours


def a_world_of_two(**ledger: Any) -> World:
    pods = [a_pod("p", labels=labelled(team="a", tier="x"), phase="Running", node="n", started=NOON - 3_600_000)]
    tier = a_resource(name="tier", selector={"matchLabels": {"tier": "x"}})
    world = a_used_world(a_resource(name="team"), tier, pods=pods)
    return structs.replace(world, ledger=LedgerState(**ledger))


def degraded(decision: Decision) -> Condition | None:
    return conditions.find(decision.status.conditions, "Degraded")


def test_a_budget_is_counted_once_the_ledger_was_read_for_its_labels() -> None:
    world = a_world_of_two(keys=frozenset({"team"}))
    found = decided(world)
    assert used(found["team"]) == "1"
    assert found["tier"].status == world.resources[found["tier"].resource].status
    assert found["tier"].actions == ()
    assert used(decided(a_world_of_two(keys=frozenset({"team", "tier"})))["tier"]) == "1"


def test_a_budget_says_if_the_ledger_cannot_be_read_for_its_labels() -> None:
    found = decided(a_world_of_two(keys=frozenset({"team"}), problem="reading the ledger: gone."))
    condition = degraded(found["tier"])
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "LedgerUnavailable")
    assert "usage is not counted" in condition.message
    assert used(found["tier"]) == ""


def test_a_snapshot_keeps_which_labels_were_read() -> None:
    world = a_world_of_two(keys=frozenset({"team"}))
    assert load(save(world)).ledger.keys == frozenset({"team"})
    assert load(save(structs.replace(world, ledger=LedgerState()))).ledger.keys is None


def test_keys_are_those_of_pods_and_of_namespaces() -> None:
    budgets = [
        a_resource(selector={"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
        a_resource(selector={"matchLabels": {"team": "a"}}, namespaceSelector={"matchLabels": {"org": "x"}}),
    ]
    assert label_keys(budgets) == {"team", "tier", "@namespace/org", "@namespace/kubernetes.io/metadata.name"}
