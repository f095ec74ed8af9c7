"""What the list-watch knows of the moment at which something went: never later than it can have been there."""

from __future__ import annotations

from tests.adapters.played import BROKEN, Played, Step, added, bookmark, deleted, error, page, refusal

START = 1_000_000
"""What the clock of these tests shows first, in milliseconds."""


async def test_what_is_heard_as_it_happens_went_now_and_shows_its_last_state() -> None:
    played = Played()
    played.script.answers.append([added("a", 3), bookmark(9, end=True), played.wait(7), deleted("a", 10)])
    await played()
    assert played.sink.gone == [("a", "10", START + 7000)]


async def test_what_a_stream_says_first_may_have_happened_before_it() -> None:
    played = Played()
    listed: list[Step] = [added("a", 3), added("b", 4), bookmark(9, end=True), played.wait(20), added("c", 10), BROKEN]
    resumed: list[Step] = [played.wait(4), deleted("a", 11), played.wait(2), deleted("b", 12)]
    played.script.answers += [listed, resumed]
    await played()
    heard_last = START + 20_000
    [pause] = played.clock.sleeps
    assert played.sink.gone[0] == ("a", "11", heard_last)
    assert played.sink.gone[1] == ("b", "12", heard_last + int((pause + 6) * 1000))


async def test_a_stream_that_is_slow_to_open_is_not_established_by_waiting() -> None:
    played = Played([added("a", 3), bookmark(9, end=True), BROKEN])
    states: list[bool] = []

    def look() -> None:
        states.append(played.reflector.established)

    slow: list[Step] = [look, played.wait(4.9), look, played.wait(0.2), look, deleted("a", 10)]
    played.script.before_opening = [None, played.wait(30)]
    played.script.answers.append(slow)
    await played()
    assert states == [False, False, True]
    assert not played.reflector.established  # it has ended


async def test_a_stream_that_the_server_ended_had_said_all() -> None:
    played = Played()
    listed: list[Step] = [added("a", 3), bookmark(9, end=True), played.wait(20), bookmark(10), played.wait(30)]
    played.script.answers += [listed, [deleted("a", 11)]]
    await played()
    assert played.sink.gone == [("a", "11", START + 50_000)]


async def test_an_error_says_nothing_of_what_happened() -> None:
    played = Played()
    listed: list[Step] = [
        added("a", 3),
        bookmark(9, end=True),
        played.wait(20),
        bookmark(10),
        played.wait(30),
        error(410),
    ]
    played.script.answers += [listed, [played.wait(3), added("b", 20), bookmark(21, end=True)]]
    await played()
    assert played.sink.gone == [("a", None, START + 20_000)]


async def test_what_a_list_shows_was_there_when_the_list_was_asked_for() -> None:
    """While a large list is read, and shortly after, events are late."""
    played = Played()
    listed: list[Step] = [
        added("a", 3),
        added("b", 3),
        played.wait(40),
        deleted("a", 5),
        bookmark(9, end=True),
        played.wait(4),
        deleted("b", 10),
        added("c", 11),
        played.wait(2),
        deleted("c", 12),
    ]
    played.script.answers.append(listed)
    await played()
    assert played.sink.gone == [("a", "5", START), ("b", "10", START), ("c", "12", START + 46_000)]


async def test_a_list_in_pages_is_as_old_as_its_first_request() -> None:
    played = Played(refusal(400, "Invalid"), page(20, "a", "b", cont="x"), page(20, "c"))
    played.script.before_opening = [None, None, played.wait(9)]
    played.script.answers.append([played.wait(1), deleted("a", 21)])
    await played()
    assert played.sink.gone == [("a", "21", START)]
