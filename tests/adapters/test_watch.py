"""The list-watch, against a server that says what a script tells it to say."""

import asyncio

import pytest

from headroom.adapters.kube.backoff import LONGEST_PAUSE
from headroom.adapters.kube.transport import Reply
from headroom.model.pace import Pace
from tests.adapters.played import BROKEN, SILENCE, Played, Step, added, bookmark, deleted, error, page, play, refusal


async def test_streamed_list_then_events_on_the_same_stream() -> None:
    played = await play([added("a", 3), added("b", 5), bookmark(9, end=True), deleted("a", 10), added("c", 11)])
    assert played.sink.calls == ["list a@3", "list b@5", "listed", "remove a", "put c@11"]
    first, second = played.script.asked
    assert first["sendInitialEvents"] == "true"
    assert first["resourceVersionMatch"] == "NotOlderThan"
    assert "resourceVersion" not in first  # unset: a consistent read
    assert first["allowWatchBookmarks"] == "true"
    assert first["labelSelector"] == second["labelSelector"] == "a=b"
    assert 300 <= int(first["timeoutSeconds"]) <= 600
    assert second["resourceVersion"] == "11"
    assert "sendInitialEvents" not in second
    assert played.reflector.synced
    assert played.reflector.relists == 0


async def test_not_synced_before_the_list_is_complete() -> None:
    played = Played([added("a", 3)])
    played.script.answers[0].append(lambda: states.append(played.reflector.synced))  # type: ignore[union-attr]  # a list
    states: list[bool] = []
    await played()
    assert states == [False]
    assert "listed" not in played.sink.calls


async def test_a_list_that_broke_off_removes_nothing() -> None:
    played = await play(
        [added("a", 1), added("b", 2), bookmark(2, end=True), error(410)],
        [added("a", 1), BROKEN],
        page(7, "a", cont="more"),
        refusal(410, "Expired"),
        page(8, "a", cont="more"),
        BROKEN,
        BROKEN,
        BROKEN,
        page(9, "a", cont="more"),
    )
    assert played.sink.held == {"a": "9", "b": "2"}
    assert not played.reflector.synced


async def test_what_a_complete_list_lacks_is_removed() -> None:
    played = await play(
        [added("a", 1), added("b", 2), bookmark(2, end=True), error(410)],
        [added("b", 2), added("c", 4), deleted("c", 5), bookmark(6, end=True)],
    )
    assert played.sink.calls[3:] == ["list b@2", "list c@4", "remove c", "remove a", "listed"]
    assert played.reflector.relists == 1
    assert played.reflector.synced


@pytest.mark.parametrize("code", [400, 422, 500, 504])
@pytest.mark.parametrize("inside", [False, True])
async def test_pages_where_lists_are_not_streamed(code: int, inside: bool) -> None:
    answer: Reply | list[Step] = [error(code, "not here")] if inside else refusal(code, "Invalid")
    played = await play(answer, page(20, "a", "b", cont="x"), page(20, "c"), [bookmark(30)])
    assert played.sink.held == {"a": "20", "b": "20", "c": "20"}
    assert played.passed == 0
    _, first, second, watch, after = played.script.asked
    assert first["limit"] == "500"
    assert "resourceVersion" not in first
    assert second["continue"] == "x"
    assert watch["resourceVersion"] == "20"
    assert after["resourceVersion"] == "30"


async def test_expired_version_lists_at_once_then_more_slowly() -> None:
    listed: list[Step] = [added("a", 1), bookmark(1, end=True)]
    played = await play(*[[*listed, error(410)]] * 12)
    assert len(played.clock.sleeps) == 11  # the first relist alone is at once
    assert max(played.clock.sleeps) > 2
    assert played.reflector.relists == 11


async def test_expired_version_as_a_status() -> None:
    played = await play(
        [bookmark(1, end=True), BROKEN], refusal(410, "Expired"), [added("a", 5), bookmark(5, end=True)]
    )
    assert played.sink.held == {"a": "5"}
    assert [query.get("resourceVersion") for query in played.script.asked] == [None, "1", None, "5"]
    assert len(played.clock.sleeps) == 1  # for the broken stream, none for the 410


async def test_a_broken_stream_goes_on_where_it_was() -> None:
    played = await play(
        [bookmark(1, end=True), added("a", 4), BROKEN], [added("b", 5), BROKEN], BROKEN, BROKEN, [bookmark(9)]
    )
    assert [query.get("resourceVersion") for query in played.script.asked] == [None, "4", "5", "5", "5", "9"]
    assert played.reflector.synced
    assert played.reflector.problem == ""
    assert played.reflector.relists == 0


async def test_pauses_grow_up_to_a_limit_and_are_reset_by_success() -> None:
    rounds = 400
    played = await Played(
        [bookmark(1, end=True)], *[BROKEN] * rounds, [bookmark(2), BROKEN], pace=Pace(silent_seconds=1e6)
    )()
    *growing, last = played.clock.sleeps
    assert len(growing) == rounds
    assert growing[0] <= 0.5
    assert growing[2] <= 2
    assert LONGEST_PAUSE * 0.9 < max(growing) <= LONGEST_PAUSE
    assert 0.4 < sum(growing[50:]) / (rounds - 50) / LONGEST_PAUSE < 0.6  # full jitter: half the limit on average
    assert last <= 0.5


async def test_a_server_that_only_ends_streams_is_not_asked_in_a_hot_loop() -> None:
    played = await Played([bookmark(1, end=True)], *[[]] * 20, pace=Pace(silent_seconds=1e6))()
    assert len(played.clock.sleeps) >= 19


async def test_nor_one_that_says_a_word_each_time_before_it_ends_them() -> None:
    words: list[list[Step]] = [[bookmark(each)] for each in range(2, 22)]
    played = await Played([bookmark(1, end=True)], *words, pace=Pace(silent_seconds=1e6))()
    assert len(played.clock.sleeps) >= 19


async def test_a_refused_watch_is_opened_again_quickly_for_as_long_as_it_counts_as_seen() -> None:
    refusals = [refusal(500, "InternalError")] * 200
    played = Played([bookmark(1, end=True), BROKEN], *refusals, pace=Pace(silent_seconds=1e6))
    seen: list[bool] = []
    played.script.before_opening = [lambda: seen.append(played.reflector.seen)] * 200
    await played()
    quick = seen[1:].index(False)
    assert 15 <= quick <= 31, "even where half of all watches are refused, so many in a row are not"
    assert max(played.clock.sleeps[:quick]) <= 0.2
    assert max(played.clock.sleeps[quick : quick + 3]) <= 2.0, "from then on the pauses grow as they do anywhere"
    assert max(played.clock.sleeps) > LONGEST_PAUSE * 0.9


async def test_a_watch_that_counts_as_seen_waits_as_long_as_the_server_asks() -> None:
    throttled = refusal(429, "TooManyRequests", retryAfterSeconds=2)
    played = await Played([bookmark(1, end=True), BROKEN], throttled, [bookmark(2)])()
    assert played.clock.sleeps[1] == 2.0


async def test_a_stream_that_ends_after_its_time_is_resumed_at_once() -> None:
    played = Played([bookmark(1, end=True)])
    played.script.answers += [[played.wait(400), bookmark(2)]] * 20
    await played()
    assert played.clock.sleeps == []
    assert played.reflector.relists == 0


async def test_a_stream_that_never_says_a_word_leads_to_a_new_list() -> None:
    """A cluster restored from a backup is at an older version than ours: it would let us wait for ever."""
    played = Played([added("a", 900), bookmark(900, end=True)])
    played.script.answers += [[played.wait(90), SILENCE], [added("b", 3), bookmark(4, end=True)]]
    await played()
    assert played.sink.held == {"b": "3"}
    assert [query.get("resourceVersion") for query in played.script.asked] == [None, "900", None, "4"]


async def test_silence_after_the_list_on_its_own_stream_leads_to_a_new_list_too() -> None:
    """Resumed instead, it could be silent as long again, and the view would be too old by then."""
    played = Played()
    played.script.answers += [[bookmark(1, end=True), played.wait(89.999), SILENCE], [bookmark(4, end=True)]]
    await played()
    assert [query.get("resourceVersion") for query in played.script.asked] == [None, None, "4"]


async def test_a_stream_that_follows_a_silent_one_may_only_be_silent_for_the_rest() -> None:
    played = Played()
    played.script.answers += [[bookmark(1, end=True), played.wait(60), BROKEN], [played.wait(29), SILENCE]]
    await played()
    assert [query.get("resourceVersion") for query in played.script.asked] == [None, "1", None]
    whole, rest, again = played.script.idles
    assert (whole, again) == (90, 90)
    assert 29 < rest <= 30
    assert len(played.clock.sleeps) == 1  # for the broken stream, none after so long a silence


async def test_a_version_that_the_server_refuses_for_ever_leads_to_a_new_list() -> None:
    """Such as 504 "Too large resource version": no 410, but no word of what happens either."""
    played = Played([added("a", 900), bookmark(900, end=True)])
    ages: list[float] = []
    refused: list[Step] = [played.wait(17), error(504, "Too large resource version")]
    relisted: list[Step] = [lambda: ages.append(played.clock.time - 1000), added("b", 3), bookmark(4, end=True)]
    played.script.answers += [*[refused] * 5, relisted]
    await played()
    assert played.sink.held == {"b": "3"}
    assert [query.get("resourceVersion") for query in played.script.asked] == [None, *["900"] * 5, None, "4"]
    assert ages[0] < 120


async def test_a_throttled_list_waits_as_long_as_the_server_asks() -> None:
    played = await play(refusal(429, "TooManyRequests", retryAfterSeconds=7), [bookmark(1, end=True)])
    assert played.passed >= 7
    assert played.script.asked[1]["sendInitialEvents"] == "true"


FORBIDDEN = 'pods is forbidden: User "me" cannot watch resource "pods" in API group "" at the cluster scope'


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refusal(403, "Forbidden", FORBIDDEN), ["cannot watch", "grant the verbs get, list and watch on pods"]),
        (refusal(404, "NotFound", "the server could not find it"), ["could not find it"]),
        (refusal(401, "Unauthorized", "Unauthorized"), ["watching pods: Unauthorized"]),
    ],
)
async def test_missing_rights_or_kind_say_what_to_do_and_heal(answer: Reply, words: list[str]) -> None:
    seen: list[str] = []
    played = Played(*[answer] * 4)
    played.script.answers.append([lambda: seen.append(played.reflector.problem), added("a", 1), bookmark(1, end=True)])
    await played()
    assert all(word in seen[0] for word in words)
    assert len(played.clock.sleeps) == 4
    assert played.reflector.problem == ""
    assert played.reflector.synced


async def test_rights_lost_in_between_remove_nothing() -> None:
    played = await play([added("a", 1), bookmark(1, end=True), BROKEN], *[refusal(403, "Forbidden")] * 3)
    assert played.sink.held == {"a": "1"}
    assert played.script.asked[-1]["resourceVersion"] == "1"


async def test_kind_that_went_and_came_back_is_listed_anew() -> None:
    played = await play([added("a", 1), bookmark(1, end=True)], refusal(404, "NotFound"), [bookmark(9, end=True)])
    assert played.sink.held == {}
    assert played.reflector.relists == 1


async def test_a_line_that_is_no_event_breaks_the_stream_but_not_the_reflector() -> None:
    played = await play([bookmark(1, end=True), added("a", 2), b'{"type":"ADD'], [added("b", 3)])
    assert played.sink.held == {"a": "2", "b": "3"}
    assert played.script.asked[1]["resourceVersion"] == "2"


async def test_heard_moves_with_every_line() -> None:
    played = Played([bookmark(1, end=True)])
    marks: list[float] = []

    def later() -> None:
        marks.append(played.reflector.heard)
        played.clock.time += 60

    played.script.answers.append([later, bookmark(2), later, bookmark(3), later])
    await played()
    assert marks == [1000, 1060, 1120]


async def test_others_get_a_turn_in_a_big_list() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    played = Played([*[added(f"p{number}", number + 1) for number in range(5000)], bookmark(5000, end=True)])
    task = asyncio.create_task(other())
    await played()
    task.cancel()
    assert turns >= 5000 / 256 - 1
    assert len(played.sink.held) == 5000
