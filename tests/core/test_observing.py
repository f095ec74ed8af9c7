"""From what is seen of a pod to rows of usage: starts, ends, changes, gaps, clocks that are off."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from headroom.core.usage import observing
from headroom.core.usage.keeping import Keeper, PricingContext
from headroom.core.usage.observing import Look, PodAllocation
from headroom.model.facts import Namespace, Pod
from headroom.model.tables import NodeTable
from headroom.model.usage import Evidence, UsageRow
from headroom.model.usage_table import OPEN, UsageTable
from tests.builders import a_pod, no_devices

GPU = (("nvidia.com/gpu", 1_000_000),)
HELD = PodAllocation(GPU, None, (("team", "a"),))


def at(moment: int, since: int | None = None) -> Look:
    return Look("default", moment, moment if since is None else since)


def running(**fields: Any) -> Pod:
    base: dict[str, Any] = {"phase": "Running", "started": 100, "created": 90, "node": "n", "labels": (("team", "a"),)}
    return a_pod(**base | fields)


def ended(end: int = 500, by: str = "ContainerFinish", **fields: Any) -> Pod:
    return running(phase="Succeeded", ended=end, ended_by=by, **fields)


def rows(*steps: tuple[Pod, Look], held: PodAllocation = HELD) -> list[UsageRow]:
    """The rows after a pod was seen like this, one look after the other."""
    table = UsageTable()
    for pod, look in steps:
        for row in observing.observed(table.of_pod(pod.uid), pod, held._replace(labels=pod.labels), look):
            table.put(row)
    return list(table.of_pod(steps[0][0].uid))


def spans(found: list[UsageRow]) -> list[tuple[int, int | None, str]]:
    return [(row.start, row.closed, dict(row.labels)["team"]) for row in found]


def test_a_pod_counts_from_its_first_container_on_and_not_before() -> None:
    waiting = a_pod(phase="Pending", started=None)
    assert rows((waiting, at(50))) == []
    assert spans(rows((waiting, at(50)), (running(), at(120)))) == [(100, None, "a")]


def test_a_pod_without_a_counted_resource_is_nobodys_business() -> None:
    assert rows((running(), at(120)), held=PodAllocation((), None, ())) == []


def test_a_restart_that_hides_the_first_start_changes_nothing_once_it_was_seen() -> None:
    found = rows((running(), at(120)), (running(started=300, started_after=95), at(320)))
    assert spans(found) == [(100, None, "a")]


def test_a_first_start_that_nobody_saw_is_a_bound() -> None:
    (row,) = rows((running(started=300, started_after=95), at(320)))
    assert (row.earliest, row.start) == (95, 300)


def test_a_start_before_the_creation_is_a_clock_that_is_off() -> None:
    (row,) = rows((running(started=80, created=90), at(120)))
    assert (row.earliest, row.start) == (80, 90)


def test_an_end_before_the_start_is_no_time_at_all() -> None:
    assert spans(rows((ended(end=50), at(600)))) == [(100, 100, "a")]


def test_a_failed_pod_that_says_nothing_ends_when_that_was_first_known() -> None:
    failed = running(phase="Failed", ended=None)
    (row,) = rows((running(), at(120)), (failed, at(400)), (failed, at(900)))
    assert (row.ended, row.evidence) == (400, Evidence.FAILURE_KNOWN)


def test_a_relabel_splits_and_the_past_stays() -> None:
    relabelled = running(labels=(("team", "b"),))
    found = rows((running(), at(120)), (relabelled, at(200)), (ended(labels=(("team", "b"),)), at(600)))
    assert spans(found) == [(100, 200, "a"), (200, 500, "b")]


def test_a_pod_that_is_resized_counts_with_what_it_asks_for_from_then_on() -> None:
    table = UsageTable()
    for moment, cores in ((120, 4), (200, 64), (300, 2)):
        held = PodAllocation((("cpu", cores * 1_000_000),), None, (("team", "a"),))
        for row in observing.observed(table.of_pod(running().uid), running(), held, at(moment)):
            table.put(row)
    found = [(row.start, row.closed, row.amounts[0][1] // 1_000_000) for row in table.of_pod(running().uid)]
    assert found == [(100, 200, 4), (200, 300, 64), (300, None, 2)]


def test_a_relabel_after_the_end_means_nothing() -> None:
    assert spans(rows((ended(), at(600)), (ended(labels=(("team", "b"),)), at(700)))) == [(100, 500, "a")]


def test_a_relabel_between_the_end_and_the_word_of_it_means_nothing() -> None:
    """A kubelet tells of a finish a moment later, and its timestamps have no fractions of a second."""
    steps = [
        (running(), at(120)),
        (running(labels=(("team", "b"),)), at(550)),
        (ended(labels=(("team", "b"),)), at(600)),
    ]
    assert spans(rows(*steps)) == [(100, 500, "a"), (550, 550, "b")]
    again = running(labels=(("team", "c"),))
    found = rows(*steps[:2], (again, at(570)), (ended(labels=(("team", "c"),)), at(600)))
    assert spans(found) == [(100, 500, "a"), (550, 550, "b"), (570, 570, "c")]


def test_a_relabel_that_nobody_saw_before_an_end_told_late_stays_within_the_end() -> None:
    relabelled = running(labels=(("team", "b"),))
    steps = [(running(), at(120)), (relabelled, at(550, since=450)), (ended(labels=(("team", "b"),)), at(600))]
    first, second = rows(*steps)
    assert (first.seen_until, first.gone_by, first.ended) == (450, 500, None)
    assert (second.start, second.ended) == (550, 550)


def test_a_relabel_while_nobody_looked_is_told_as_bounds() -> None:
    first, second = rows((running(), at(120)), (running(labels=(("team", "b"),)), at(400, since=250)))
    assert (first.seen_until, first.gone_by, first.ended) == (250, 400, None)
    assert (second.earliest, second.start) == (250, 400)


def test_a_relabel_and_an_end_while_nobody_looked_are_told_as_bounds() -> None:
    first, second = rows((running(), at(120)), (ended(labels=(("team", "b"),)), at(900, since=250)))
    assert (first.seen_until, first.gone_by) == (250, 500)
    assert (second.earliest, second.start, second.ended) == (250, 500, 500)


def test_a_price_that_is_not_known_any_more_is_no_new_price() -> None:
    table = UsageTable()
    for held in (HELD._replace(price=7), HELD):
        for row in observing.observed(table.of_pod(running().uid), running(), held, at(200)):
            table.put(row)
    assert [row.price for row in table] == [7]


def test_a_new_price_begins_a_new_row() -> None:
    table = UsageTable()
    for price, moment in ((7, 120), (9, 300)):
        for row in observing.observed(table.of_pod(running().uid), running(), HELD._replace(price=price), at(moment)):
            table.put(row)
    assert [(row.start, row.closed, row.price) for row in table] == [(100, 300, 7), (300, None, 9)]


def test_a_new_price_after_a_gap_leaves_no_doubt_about_what_was_held() -> None:
    table = UsageTable()
    for price, look in ((7, at(120)), (9, at(400, since=250))):
        for row in observing.observed(table.of_pod(running().uid), running(), HELD._replace(price=price), look):
            table.put(row)
    assert [(row.start, row.earliest, row.closed, row.price) for row in table] == [
        (100, 100, 400, 7),
        (400, 400, None, 9),
    ]


def test_the_labels_of_the_namespace_are_kept_and_a_namespace_that_is_gone_changes_nothing() -> None:
    spaces = {"team-a": Namespace(name="team-a", labels=(("org", "x"),))}
    labels = observing.labels_of(running(), spaces)
    assert dict(labels) == {"team": "a", "@namespace/org": "x", "@namespace/kubernetes.io/metadata.name": "team-a"}
    table = UsageTable()
    for seen in (labels, running().labels):
        for row in observing.observed(table.of_pod(running().uid), running(), PodAllocation(GPU, None, seen), at(200)):
            table.put(row)
    assert [row.labels for row in table] == [labels]


def test_a_row_that_was_closed_goes_on_where_it_ended_while_the_pod_runs() -> None:
    known = UsageRow(cluster="default", uid=running().uid, start=100, earliest=100, seen_until=150, gone_by=150)
    found = observing.observed([known], running(), HELD, at(300))
    assert [(row.start, row.ended) for row in found] == [(150, None)]


def test_what_the_ledger_lacks_of_the_begin_comes_from_the_pod() -> None:
    known = UsageRow(
        cluster="default", uid=running().uid, start=200, earliest=200, seen_until=250, labels=running().labels
    )
    found = observing.observed([known], running(), PodAllocation((), None, running().labels), at(300))
    assert [(row.start, row.closed) for row in found] == [(100, 200)]


# --- deleted ----------------------------------------------------------------------------------------------------------------------


def lost(pod: Pod, look: Look, *before: tuple[Pod, Look]) -> tuple[list[tuple[int, int]], UsageRow]:
    """The bounds of the end of each row, and the last row, after a pod was deleted."""
    keeper, around = Keeper(UsageTable()), PricingContext(NodeTable(), no_devices(), (), {}, {}, ())
    for seen, when in before:
        keeper.see(seen, around, when)
    keeper.lose(pod, around, look)
    low, high = keeper.table.column("low_end"), keeper.table.column("high_end")
    return [(int(a), int(b)) for a, b in zip(low, high, strict=True)], list(keeper.table)[-1]


def test_a_pod_deleted_before_our_eyes_ended_then() -> None:
    bounds, last = lost(running(), at(400), (running(), at(120)))
    assert bounds == [(400, 400)]
    assert last.evidence == Evidence.DELETION_SEEN


def test_a_pod_whose_last_state_tells_its_end_ended_then() -> None:
    bounds, _ = lost(ended(end=350), at(400), (running(), at(120)))
    assert bounds == [(350, 350)]


def test_a_pod_that_was_only_ever_seen_being_deleted_still_counts() -> None:
    assert lost(ended(end=350), at(400))[0] == [(350, 350)]


def test_a_pod_deleted_while_nobody_listened_ended_somewhere_between() -> None:
    bounds, _ = lost(running(), at(400, since=260), (running(), at(120)))
    assert bounds == [(260, 400)]


def test_a_pod_first_heard_of_in_a_late_event_is_not_said_to_be_there_now() -> None:
    bounds, _ = lost(running(), at(900, since=110), (running(), at(890, since=110)))
    assert bounds == [(110, 900)]


def test_a_pod_missing_after_a_restart_ended_between_the_last_word_and_now() -> None:
    keeper, around = Keeper(UsageTable()), PricingContext(NodeTable(), no_devices(), (), {}, {}, ())
    keeper.see(running(), around, at(120))
    again = Keeper(UsageTable())
    for row in keeper.table:
        again.table.put(row)
    assert again.miss(seen_until=300, at=450) != []
    assert again.miss(seen_until=440, at=900) == []
    assert (int(again.table.column("low_end")[0]), int(again.table.column("high_end")[0])) == (300, 450)


def test_stronger_evidence_that_comes_later_settles_it() -> None:
    keeper, around = Keeper(UsageTable()), PricingContext(NodeTable(), no_devices(), (), {}, {}, ())
    keeper.see(running(), around, at(120))
    keeper.table.set_alive(running().uid, False)
    keeper.miss(seen_until=300, at=450)
    keeper.table.put(structs.replace(keeper.table.row(0), ended=333, evidence=Evidence.CONTAINER_FINISH))
    assert (int(keeper.table.column("low_end")[0]), int(keeper.table.column("high_end")[0])) == (333, 333)


def test_a_pod_that_is_back_in_view_was_never_gone() -> None:
    keeper, around = Keeper(UsageTable()), PricingContext(NodeTable(), no_devices(), (), {}, {}, ())
    keeper.see(running(), around, at(120))
    keeper.table.set_alive(running().uid, False)
    keeper.miss(seen_until=300, at=450)
    keeper.see(running(), around, at(600))
    assert int(keeper.table.column("low_end")[0]) == OPEN


# --- amounts ----------------------------------------------------------------------------------------------------------------------


def test_cpu_is_counted_where_a_budget_asks_for_it_and_kept_beside_gpus() -> None:
    pod = a_pod(gpus=0)
    plain = structs.replace(pod, shape=structs.replace(pod.shape, requests=(("cpu", 500_000), ("memory", 10**12))))
    mixed = structs.replace(pod, shape=structs.replace(pod.shape, requests=(("amd.com/gpu", 10**6), ("cpu", 500_000))))
    assert observing.amounts_of(plain, no_devices()) == ()
    assert observing.amounts_of(plain, no_devices(), {"cpu"}) == (("cpu", 500_000),)
    assert observing.amounts_of(mixed, no_devices()) == (("amd.com/gpu", 1_000_000), ("cpu", 500_000))
