"""Whatever is observed twice, by two, late or in part: the rows stay the same, and so does what they come to."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from headroom.core.usage import Keeper, Look, PricingContext
from headroom.model.facts import Pod
from headroom.model.tables import NodeTable
from headroom.model.usage_table import UsageTable
from tests.builders import a_pod, no_devices

NOTHING = PricingContext(NodeTable(), no_devices(), (), {}, {}, ())
LAST = 10_000


class Event(NamedTuple):
    """One thing that was seen of a pod, and when."""

    at: int
    pod: Pod
    is_gone: bool = False


def a_life(number: int, start: int, steps: list[tuple[int, str]], end: str, by: int) -> list[Event]:
    """A pod that starts, changes its team now and then, and ends or is deleted or goes on."""
    fields: dict[str, Any] = {"uid": f"u{number}", "created": start, "started": start, "node": "n"}
    fields |= {"phase": "Running", "resource_version": "1"}
    at, events, team = start + 1, [], "a"
    events.append(Event(at, a_pod(f"p{number}", gpus=number + 1, labels=(("team", team),), **fields)))
    for version, (wait, team) in enumerate(steps, start=2):
        at += wait
        fields["resource_version"] = str(version)
        events.append(Event(at, a_pod(f"p{number}", gpus=number + 1, labels=(("team", team),), **fields)))
    if end != "runs":
        at += by
        over = {"phase": "Succeeded", "ended": at - 1, "ended_by": "ContainerFinish"} if end == "finishes" else {}
        last = a_pod(f"p{number}", gpus=number + 1, labels=(("team", team),), **fields | over)
        events.append(Event(at, last, is_gone=end == "deleted"))
    return events


steps = st.lists(st.tuples(st.integers(1, 400), st.sampled_from("abc")), max_size=4)
lives = st.lists(
    st.tuples(st.integers(0, 3000), steps, st.sampled_from(["runs", "finishes", "deleted"]), st.integers(2, 500)),
    min_size=1,
    max_size=4,
)


def events_of(found: Any) -> list[Event]:
    every = [event for number, life in enumerate(found) for event in a_life(number, *life)]
    return sorted(every, key=lambda event: (event.at, event.pod.uid))


def play(keeper: Keeper, events: list[Event], late: int = 0) -> None:
    for event in events:
        look = Look("default", event.at + late, event.at + late)
        (keeper.lose if event.is_gone else keeper.see)(event.pod, NOTHING, look)


def copied(*tables: UsageTable) -> Keeper:
    """Somebody who starts with what the ledger has of all of them."""
    keeper = Keeper(UsageTable())
    for table in tables:
        keeper.table.extend(list(table))
    return keeper


def sums(table: UsageTable, alive: set[str]) -> dict[str, int]:
    """What each team used until the last moment, the certain and the possible together."""
    for uid in {row.uid for row in table}:
        table.set_alive(uid, uid in alive)
    found: dict[str, int] = {}
    for number in range(len(table)):
        row = table.row(number)
        low, high = (min(LAST, int(table.column(name)[number])) for name in ("low_end", "high_end"))
        team = dict(row.labels)["team"]
        for name, end in ((f"{team} low", low), (f"{team} high", high)):
            found[name] = found.get(name, 0) + max(0, end - row.start) * dict(row.amounts)["nvidia.com/gpu"]
    return {name: value for name, value in found.items() if value}


def still_there(events: list[Event]) -> set[str]:
    gone = {event.pod.uid for event in events if event.is_gone}
    return {event.pod.uid for event in events} - gone


def truth(events: list[Event]) -> dict[str, int]:
    """Counted directly from the events."""
    found: dict[str, int] = {}
    for uid in {event.pod.uid for event in events}:
        mine = [event for event in events if event.pod.uid == uid]
        last = mine[-1]
        end = last.pod.ended if last.pod.ended is not None else last.at if last.is_gone else LAST
        for place, event in enumerate(mine):
            begin = event.pod.started or 0 if place == 0 else event.at
            until = min(mine[place + 1].at if place + 1 < len(mine) else LAST, end)
            team = dict(event.pod.labels)["team"]
            used = max(0, until - begin) * event.pod.shape.requests[0][1]
            for name in (f"{team} low", f"{team} high"):
                found[name] = found.get(name, 0) + used
    return {name: value for name, value in found.items() if value}


@given(lives)
def test_rows_come_to_what_the_events_say(found: Any) -> None:
    events = events_of(found)
    keeper = Keeper(UsageTable())
    play(keeper, events)
    assert sums(keeper.table, still_there(events)) == truth(events)


@given(lives, st.integers(0, 20))
def test_any_prefix_replayed_after_a_restart_changes_nothing(found: Any, prefix: int) -> None:
    events = events_of(found)
    keeper = Keeper(UsageTable())
    play(keeper, events)
    again = copied(keeper.table)
    before = set(again.table)
    play(again, events[:prefix])
    assert set(again.table) == before
    assert sums(again.table, still_there(events)) == truth(events)


@given(lives, st.integers(0, 20), st.integers(0, 20))
def test_killed_anywhere_and_started_again_nothing_is_lost_or_counted_twice(found: Any, killed: int, back: int) -> None:
    """It dies after some events, of which some more had not been written, and starts with a look at what is in view."""
    events = events_of(found)
    first = Keeper(UsageTable())
    play(first, events[:killed])
    second = copied(first.table)
    play(second, events[max(0, killed - back) :])
    assert sums(second.table, still_there(events)) == truth(events)


@settings(max_examples=200)
@given(lives, st.integers(0, 20))
def test_two_unfenced_leaders_count_once_even_if_one_is_late(found: Any, late: int) -> None:
    events = events_of(found)
    one, other = Keeper(UsageTable()), Keeper(UsageTable())
    play(one, events)
    play(other, events, late=late)
    both, reverse = copied(one.table, other.table), copied(other.table, one.table)
    alive, wanted = still_there(events), truth(events)
    assert sums(both.table, alive) == sums(reverse.table, alive)
    total = {
        kind: sum(value for name, value in sums(both.table, alive).items() if name.endswith(kind))
        for kind in ("low", "high")
    }
    meant = {kind: sum(value for name, value in wanted.items() if name.endswith(kind)) for kind in ("low", "high")}
    assert total == meant, "what was used in all is exact, whoever saw it first"
    assert sums(both.table, alive) == wanted, "and the earlier look decides which team it was"
