"""What a list-watch takes for gone, and when it counts as seen: never on one answer, and never on a list without an end."""

import pytest

from headroom.adapters.kube.absence import PROOF_SECONDS
from headroom.adapters.kube.transport import Reply
from headroom.adapters.kube.watch import GRACE_SECONDS, LIST_SECONDS
from headroom.model.pace import Pace
from tests.adapters.played import (
    BROKEN,
    DEFAULT_BACKEND,
    Played,
    Step,
    added,
    bookmark,
    deleted,
    error,
    groups,
    page,
    play,
    refusal,
)

OURS = "/apis/headroom.dev/v1alpha1/powerpools"
THEIRS = "/apis/e.com/v1/things"
DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/powerpools.headroom.dev"
UNDEFINED = {DEFINITION: refusal(404, "NotFound", 'customresourcedefinitions "powerpools.headroom.dev" not found')}
UNSERVED = refusal(404, "NotFound", "the server could not find the requested resource")
ONE: list[Step] = [added("a", 1), bookmark(1, end=True)]


def missing_for(played: Played, seconds: float) -> None:
    """Let the kind answer 404 for so long, as the reflector asks again."""
    played.script.answers += [UNSERVED] * 200
    played.script.before_opening += [None] * len(played.script.answers)
    ends = played.clock.time + seconds

    def enough() -> None:
        if played.clock.time >= ends:
            played.script.answers.clear()

    played.script.before_opening = [enough] * len(played.script.before_opening)


# --- a kind that is not served -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", [UNSERVED, DEFAULT_BACKEND], ids=["API server", "load balancer"])
@pytest.mark.parametrize("path", [OURS, THEIRS, "/api/v1/pods"])
async def test_a_404_takes_nothing_along(path: str, answer: Reply) -> None:
    played = await Played([*ONE, BROKEN], *[answer] * 5, path=path, optional=path != "/api/v1/pods")()
    assert played.sink.held == {"a": "1"}
    assert (played.reflector.synced, played.reflector.absent, played.reflector.seen) == (False, False, False)
    assert played.reflector.cause


@pytest.mark.parametrize("path", [OURS, THEIRS])
async def test_a_kind_that_went_takes_nothing_along_either(path: str) -> None:
    """Discovery and definition say for an hour that it is not there: what was in view stays, and nobody acts on it."""
    played = Played([*ONE, BROKEN], path=path, optional=True)
    played.script.discovery = groups() | UNDEFINED
    missing_for(played, 3600)
    await played()
    assert played.sink.held == {"a": "1"}
    assert (played.reflector.absent, played.reflector.seen) == (False, False)


@pytest.mark.parametrize(
    ("discovery", "seconds", "absent"),
    [
        (groups() | UNDEFINED, 2 * PROOF_SECONDS, True),
        (groups() | UNDEFINED, 0.5 * PROOF_SECONDS, False),
        (groups(), 2 * PROOF_SECONDS, False),
        (groups() | {DEFINITION: Reply(200, b"{}")}, 2 * PROOF_SECONDS, False),
        (groups() | {DEFINITION: refusal(403, "Forbidden")}, 2 * PROOF_SECONDS, False),
        (groups(headroom_dev="v1alpha1/powerpools") | UNDEFINED, 2 * PROOF_SECONDS, False),
        (UNDEFINED, 2 * PROOF_SECONDS, False),
        ({"/apis": Reply(200, b'{"kind":"APIGroupList","groups":[]}')} | UNDEFINED, 2 * PROOF_SECONDS, False),
        ({"/apis": Reply(200, b"<html>")} | UNDEFINED, 2 * PROOF_SECONDS, False),
    ],
    ids=["both", "too short", "no word", "defined", "not allowed", "served", "no groups", "empty groups", "HTML"],
)
async def test_an_empty_kind_of_ours_is_absent_by_discovery_and_definition_for_minutes(
    discovery: dict[str, Reply], seconds: float, absent: bool
) -> None:
    played = Played([bookmark(1, end=True), BROKEN], path=OURS, optional=True)
    played.script.discovery = discovery
    missing_for(played, seconds)
    await played()
    assert played.reflector.absent is absent


async def test_a_kind_of_ours_that_was_never_seen_is_never_absent() -> None:
    """A fresh process must not take a kind that went for one without objects: others' holds may stand."""
    played = Played(path=OURS, optional=True)
    played.script.discovery = groups() | UNDEFINED
    missing_for(played, 3600)
    await played()
    assert not played.reflector.absent
    assert "install the kinds" in played.reflector.cause


async def test_a_kind_that_was_never_installed_is_absent_and_stays_so_through_errors() -> None:
    played = Played(*[UNSERVED] * 2, *[refusal(503, "ServiceUnavailable")] * 20, path=THEIRS, optional=True)
    played.script.discovery = groups()
    await played()
    assert played.reflector.absent
    assert played.reflector.cause == ""
    assert not played.reflector.is_served


async def test_it_stays_absent_while_discovery_says_nothing() -> None:
    played = Played(*[UNSERVED] * 30, path=THEIRS, optional=True)
    played.script.discovery = groups()
    played.script.before_opening = [None, None, played.script.discovery.clear]
    await played()
    assert played.reflector.absent


async def test_a_kind_that_is_installed_later_is_noticed() -> None:
    played = Played(*[UNSERVED] * 5, ONE, path=THEIRS, optional=True)
    played.script.discovery = groups()
    await played()
    assert (played.reflector.absent, played.reflector.is_served, played.sink.held) == (False, True, {"a": "1"})


@pytest.mark.parametrize(("path", "least"), [(THEIRS, 18 * Pace().absent_seconds[0]), (OURS, 0.0)])
async def test_what_others_did_not_install_is_looked_for_now_and_then(path: str, least: float) -> None:
    """Most clusters lack a kind or two for ever; one of ours is waited for."""
    played = Played(*[UNSERVED] * 20, path=path, optional=True)
    played.script.discovery = groups() | UNDEFINED
    await played()
    assert least <= played.passed <= 20 * Pace().absent_seconds[1]
    assert path == THEIRS or played.passed < 18 * Pace().absent_seconds[0]


# --- lists that lack what is there ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [True, False])
async def test_an_empty_list_removes_nothing_while_the_objects_are_there(streamed: bool) -> None:
    empty: list[Reply | list[Step]] = [[bookmark(9, end=True)]] if streamed else [refusal(400, "BadRequest"), page(9)]
    played = Played([added("a", 1), added("b", 2), bookmark(2, end=True), error(410)], *empty)
    played.script.still_there = {"a", "b"}
    await played()
    assert played.sink.held == {"a": "1", "b": "2"}
    assert not played.reflector.synced
    assert played.reflector.problem.startswith("watching pods: the list lacks ")


@pytest.mark.parametrize(
    "answer",
    [
        DEFAULT_BACKEND,
        UNSERVED,
        refusal(404, "NotFound", 'pods "other" not found'),
        refusal(403, "Forbidden", "not yours"),
        refusal(410, "Expired"),
        refusal(500, "InternalError"),
        Reply(200, b"<html>"),
        Reply(200, b'{"metadata": {"name": "other", "uid": "uid-other"}}'),
        Reply(200, b'{"metadata": {"name": "a"}}'),
    ],
)
async def test_what_a_list_lacks_stays_if_nobody_says_that_it_is_gone(answer: Reply) -> None:
    played = Played([*ONE, error(410)], [bookmark(9, end=True)])
    played.script.named = answer
    await played()
    assert played.script.by_name
    assert played.sink.held == {"a": "1"}
    assert not played.reflector.synced


@pytest.mark.parametrize("path", [OURS, "/api/v1/pods"])
async def test_of_our_own_kinds_every_object_is_looked_for(path: str) -> None:
    """One budget that is left out of a long list would let a whole team go."""
    many: list[Step] = [added(f"b{each:02}", each + 1) for each in range(40)]
    played = Played([*many, bookmark(40, end=True), error(410)], [bookmark(90, end=True)], path=path)
    played.script.still_there = {"b38"}
    await played()
    assert ("b38" in played.sink.held) == (path == OURS)


async def test_what_is_gone_by_name_too_is_removed() -> None:
    played = await play([added("a", 1), added("b", 2), bookmark(2, end=True), error(410)], [bookmark(9, end=True)])
    assert played.script.by_name == ["a", "b"]
    assert played.sink.held == {}
    assert played.reflector.synced


async def test_deleted_events_need_no_second_read() -> None:
    played = await play([added("a", 1), added("b", 2), bookmark(2, end=True), deleted("a", 3), deleted("b", 4)])
    assert played.sink.held == {}
    assert played.script.by_name == []


async def test_of_very_many_a_few_are_looked_for() -> None:
    many: list[Step] = [added(f"p{each:03}", each + 1) for each in range(500)]
    played = await play([*many, bookmark(500, end=True), error(410)], [bookmark(900, end=True)])
    assert 10 <= len(played.script.by_name) <= 12
    assert played.sink.held == {}


# --- lists without an end ------------------------------------------------------------------------------------------------------


async def test_a_list_that_goes_in_circles_is_refused_and_makes_nothing_fresh() -> None:
    played = Played([*ONE, error(410)], refusal(400, "BadRequest"), page(5, "a", cont="x"), page(5, "b", cont="x"))
    # Ten seconds for each page: none of them is news.
    played.script.before_opening = [None, None, played.wait(10), played.wait(10)]
    await played()
    assert "the list repeats" in played.reflector.problem
    assert played.reflector.heard == played.reflector._in_touch_at == 1000


async def test_a_list_has_a_limit_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headroom.adapters.kube.watch.MOST_PAGES", 3)
    pages = [page(5, cont=f"x{each}") for each in range(4)]
    played = await Played([*ONE, error(410)], refusal(400, "BadRequest"), *pages)()
    assert "no end after 3 pages" in played.reflector.problem
    assert not played.reflector.synced


async def test_a_list_of_ever_new_pages_has_a_limit() -> None:
    pages = [page(5, cont=f"x{each}") for each in range(100)]
    played = Played([*ONE, error(410)], refusal(400, "BadRequest"), *pages)
    played.script.before_opening = [None, None, *[played.wait(10)] * 100]
    await played()
    assert f"no end after {LIST_SECONDS:g}s" in played.reflector.problem
    assert not played.reflector.synced


async def test_a_stream_of_endless_initial_events_has_a_limit() -> None:
    played = Played()
    endless: list[Step] = [step for each in range(200) for step in (added(f"p{each}", each), played.wait(10))]
    played.script.answers.append(endless)
    await played()
    assert f"no end after {LIST_SECONDS:g}s" in played.reflector.problem
    assert played.reflector.heard == 1000


# --- when a kind is seen -------------------------------------------------------------------------------------------------------


async def test_a_watch_that_fails_is_not_seen_after_a_few_seconds() -> None:
    played = await Played([*ONE, BROKEN], *[refusal(503, "ServiceUnavailable", "not now")] * 4)()
    played.clock.time = played.reflector._in_touch_at + GRACE_SECONDS
    assert played.reflector.seen
    played.clock.time += 0.1
    assert not played.reflector.seen
    assert played.reflector.cause == "watching pods: not now"


async def test_a_stream_that_opens_only_to_break_is_not_seen() -> None:
    """Such as a page of HTML with 200."""
    played = Played([*ONE, BROKEN])
    played.script.answers += [[b"<html>"]] * 4
    await played()
    played.clock.time = played.reflector._in_touch_at + GRACE_SECONDS + 0.1
    assert not played.reflector.seen
    assert "cannot be read" in played.reflector.cause


async def test_a_stream_that_was_opened_just_now_proves_nothing_yet() -> None:
    """A proxy that takes every watch and cuts it at once never lets an event through."""
    played = Played([*ONE, BROKEN], pace=Pace(silent_seconds=1e6))
    seen: list[bool] = []
    played.script.answers += [[lambda: seen.append(played.reflector.seen), BROKEN] for _ in range(30)]
    await played()
    assert seen[0]
    assert not seen[-1]
