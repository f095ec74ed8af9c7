"""Reviews: who somebody is and what they may is asked of the API server once in a while, and never more than is needed."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.reviews import (
    ALLOWED_SECONDS,
    AT_ONCE,
    DENIED_SECONDS,
    FORGET_SECONDS,
    MANY,
    MOST_REMEMBERED,
    MOST_WAITING,
    RIGHTS_AT_ONCE,
    STALE_SECONDS,
    RequiredRight,
    Reviews,
    Who,
    lacking,
)
from headroom.adapters.kube.transport import Reply
from headroom.model.errors import Unavailable
from tests.processes import PATIENCE_SECONDS

METRICS = RequiredRight("get", "/metrics")
LAB = RequiredRight("list", "pods", namespace="lab")
ATTIC = RequiredRight("list", "pods", namespace="attic")


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Server:
    """An API server that knows the token `t-ada`; ada may get /metrics, and list pods in lab."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.noise = self.away = False
        self.rights = {"/metrics", "lab"}
        self.tokens = {"t-ada": "ada", "t-bob": "bob"}
        self.inside = self.most_inside = 0
        self.answers = asyncio.Event()
        self.answers.set()

    async def request(self, method: str, path: str, *, body: bytes = b"", **_: Any) -> Reply:
        asked = json.loads(body)
        assert (method, path) == ("POST", f"/apis/{asked['apiVersion']}/{asked['kind'].lower()}s")
        self.asked.append(asked)
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            await asyncio.sleep(0)
            await self.answers.wait()
        finally:
            self.inside -= 1
        if self.away:
            raise Unavailable("creating a review: cannot reach https://10.0.0.1")
        return Reply(
            201,
            b"no json" if self.noise else json.dumps({"status": self._status(asked["kind"], asked["spec"])}).encode(),
        )

    def _status(self, kind: str, spec: dict[str, Any]) -> Any:
        if kind == "TokenReview":
            name = self.tokens.get(spec["token"])
            return {"authenticated": bool(name), "user": {"username": name, "groups": ["g"]} if name else None}
        path = spec.get("nonResourceAttributes", {"path": ""})
        wanted = spec.get("resourceAttributes", {})
        mine = kind == "SelfSubjectAccessReview" or (spec["user"], spec["groups"]) == ("ada", ["g"])
        right = path["path"] in self.rights or (
            (wanted.get("verb"), wanted.get("resource")) == ("list", "pods") and wanted["namespace"] in self.rights
        )
        return {"allowed": mine and right}

    def stream(self, *_: Any, **__: Any) -> AsyncIterator[bytes]:
        raise AssertionError("nothing is watched here")

    async def close(self) -> None:
        pass


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def reviews(server: Server, clock: Clock) -> Reviews:
    return Reviews(Kube(server, clock), clock)


async def known(reviews: Reviews, token: str = "t-ada") -> Who:
    who = await reviews.who(token)
    assert who is not None
    return who


async def test_a_known_token_is_somebody_and_has_rights(reviews: Reviews) -> None:
    ada = await known(reviews)
    assert (ada.name, ada.groups) == ("ada", ("g",))
    assert await reviews.allowed(ada, [METRICS, LAB, ATTIC]) == {METRICS, LAB}
    assert await reviews.who("t-eve") is None
    assert await reviews.allowed(await known(reviews, "t-bob"), [METRICS, LAB]) == frozenset()


async def test_a_yes_holds_a_minute_and_a_no_ten_seconds(reviews: Reviews, server: Server, clock: Clock) -> None:
    ada = await known(reviews)
    for need, seconds in ((METRICS, ALLOWED_SECONDS), (ATTIC, DENIED_SECONDS)):
        await reviews.allowed(ada, [need])
        asked = len(server.asked)
        clock.seconds += seconds - 0.1
        await reviews.allowed(ada, [need])
        assert len(server.asked) == asked
        clock.seconds += 0.2
        await reviews.allowed(ada, [need])
        assert len(server.asked) == asked + 1


async def test_who_somebody_is_holds_as_long(reviews: Reviews, server: Server, clock: Clock) -> None:
    for token, seconds in (("t-ada", ALLOWED_SECONDS), ("t-eve", DENIED_SECONDS)):
        await reviews.who(token)
        asked = len(server.asked)
        clock.seconds += seconds - 0.1
        await reviews.who(token)
        assert len(server.asked) == asked
        clock.seconds += 0.2
        await reviews.who(token)
        assert len(server.asked) == asked + 1


async def test_a_lost_right_and_a_revoked_token_are_noticed_after_a_minute(
    reviews: Reviews, server: Server, clock: Clock
) -> None:
    ada = await known(reviews)
    assert await reviews.allowed(ada, [LAB])
    server.rights.clear()
    assert await reviews.allowed(ada, [LAB])
    clock.seconds += ALLOWED_SECONDS + 1
    assert not await reviews.allowed(ada, [LAB])
    server.tokens.clear()
    assert await reviews.who("t-ada") is None


async def test_of_many_namespaces_only_what_is_new_is_asked_about(
    reviews: Reviews, server: Server, clock: Clock
) -> None:
    """One who sees one of many namespaces is not a reason to ask about all the others every ten seconds."""
    ada = await known(reviews)
    many = [RequiredRight("list", "pods", namespace=f"n{number}") for number in range(100)]
    assert await reviews.allowed(ada, [LAB, *many]) == {LAB}
    asked = len(server.asked)
    assert server.most_inside == RIGHTS_AT_ONCE
    clock.seconds += DENIED_SECONDS + 1
    assert await reviews.allowed(ada, [LAB, *many, ATTIC]) == {LAB}
    assert len(server.asked) == asked + 1


async def test_one_who_may_nothing_is_no_reason_to_ask_about_many_namespaces_every_ten_seconds(
    reviews: Reviews, server: Server, clock: Clock
) -> None:
    many = [RequiredRight("list", "pods", namespace=f"n{number}") for number in range(MANY + 1)]
    bob = await known(reviews, "t-bob")
    before = len(server.asked)
    for _ in range(int(ALLOWED_SECONDS)):
        assert await reviews.allowed(bob, many) == frozenset()
        clock.seconds += 1
    assert len(server.asked) == before + len(many)
    await reviews.allowed(bob, many)
    assert len(server.asked) == before + 2 * len(many)


async def test_a_namespace_that_is_new_is_asked_about_with_the_others_from_then_on(
    reviews: Reviews, server: Server, clock: Clock
) -> None:
    ada = await known(reviews)
    wanted = [LAB]
    for number in range(20):
        wanted.append(RequiredRight("list", "pods", namespace=f"n{number}"))
        assert await reviews.allowed(ada, wanted) == {LAB}
        clock.seconds += 1
    assert len(reviews._caller(ada.key).batches) == 1
    asked = len(server.asked)
    server.rights = {"n3"}
    clock.seconds = ALLOWED_SECONDS
    assert await reviews.allowed(ada, wanted) == {wanted[4]}
    assert len(server.asked) == asked + len(wanted)


async def test_those_who_may_nothing_share_what_is_remembered_of_them(reviews: Reviews) -> None:
    for key in (b"1", b"2", b"3"):
        many = [RequiredRight("list", "pods", namespace=f"n{number}") for number in range(500)]
        await reviews.allowed(Who(key, "bob"), many)
    kept = [batch for caller in reviews._callers[False].values() for batch in caller.batches]
    assert [len(batch.needs) for batch in kept] == [500] * 3
    assert len({id(batch.needs) for batch in kept}) == 1
    assert not any(batch.yes for batch in kept)


async def test_an_answer_that_runs_out_while_another_right_is_asked_about_is_asked_for_again(
    reviews: Reviews, server: Server, clock: Clock
) -> None:
    ada = await known(reviews)
    await reviews.allowed(ada, [LAB])
    clock.seconds = ALLOWED_SECONDS + STALE_SECONDS - 5
    server.away = True
    assert await reviews.allowed(ada, [LAB]) == {LAB}, "it cannot be asked, so the last answer holds"
    server.away = False
    clock.seconds += 3
    server.answers.clear()
    asking = asyncio.create_task(reviews.allowed(ada, [LAB, ATTIC]))
    await settled()
    clock.seconds += 3
    server.rights = {"attic"}
    server.answers.set()
    assert await asking == {ATTIC}


async def test_an_older_yes_does_not_come_back_while_the_server_is_away(
    reviews: Reviews, server: Server, clock: Clock
) -> None:
    ada = await known(reviews)
    assert await reviews.allowed(ada, [LAB, ATTIC]) == {LAB}
    server.rights.clear()
    clock.seconds += ALLOWED_SECONDS
    assert await reviews.allowed(ada, [LAB]) == frozenset()
    clock.seconds += DENIED_SECONDS
    server.away = True
    assert await reviews.allowed(ada, [LAB]) == frozenset()


async def test_who_has_not_come_for_minutes_is_forgotten(reviews: Reviews, clock: Clock) -> None:
    ada, bob = await known(reviews), await known(reviews, "t-bob")
    await reviews.allowed(ada, [LAB])
    clock.seconds += FORGET_SECONDS - 1
    await reviews.who("t-ada")
    clock.seconds += 2
    await reviews.who("t-new")
    assert list(reviews._callers[True]) == [ada.key]
    assert bob.key not in reviews._callers[False]
    clock.seconds += FORGET_SECONDS
    await reviews.who("t-new")
    assert not reviews._callers[True]


async def test_while_the_server_is_away_the_last_answer_holds_a_minute_more(
    reviews: Reviews, server: Server, clock: Clock
) -> None:
    ada = await known(reviews)
    await reviews.allowed(ada, [LAB])
    server.away = True
    clock.seconds += ALLOWED_SECONDS + 1
    assert await reviews.who("t-ada") == ada
    assert await reviews.allowed(ada, [LAB]) == {LAB}
    asked = len(server.asked)
    assert await reviews.allowed(ada, [LAB]) == {LAB}
    assert len(server.asked) == asked, "it is not bothered again at once"
    with pytest.raises(Unavailable):
        await reviews.allowed(ada, [METRICS])
    clock.seconds += STALE_SECONDS
    with pytest.raises(Unavailable):
        await reviews.who("t-ada")
    with pytest.raises(Unavailable):
        await reviews.allowed(ada, [LAB])
    server.away = False
    assert await reviews.allowed(ada, [LAB]) == {LAB}


async def test_no_token_and_an_endless_one_are_not_asked_about(reviews: Reviews, server: Server) -> None:
    assert await reviews.who("") is None
    assert await reviews.who("x" * 20_000) is None
    assert server.asked == []


async def test_only_so_much_is_remembered_and_never_a_token(reviews: Reviews) -> None:
    for number in range(MOST_REMEMBERED + 50):
        await reviews.who(f"t-{number}")
    assert len(reviews._callers[False]) == MOST_REMEMBERED
    assert b"t-1000" not in b"".join(reviews._callers[False])


async def settled() -> None:
    """Until all that was begun waits for the server: each of its steps takes a turn of the loop, and none takes time."""
    for _ in range(50):
        await asyncio.sleep(0)


async def strangers(reviews: Reviews, server: Server, count: int) -> list[asyncio.Task[Who | None]]:
    """Callers with made-up tokens, while the API server takes its time."""
    server.answers.clear()
    tasks = [asyncio.create_task(reviews.who(f"made-up-{number}")) for number in range(count)]
    await settled()
    return tasks


async def end(server: Server, tasks: list[asyncio.Task[Any]]) -> list[Any]:
    server.answers.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_is_known_does_not_wait_behind_strangers(reviews: Reviews, server: Server) -> None:
    ada = await known(reviews)
    assert await reviews.allowed(ada, [METRICS])
    tasks = await strangers(reviews, server, 20)
    assert await asyncio.wait_for(reviews.allowed(await known(reviews), [METRICS]), PATIENCE_SECONDS)
    assert await end(server, tasks) == [None] * 20


async def test_only_so_many_strangers_may_wait(reviews: Reviews, server: Server) -> None:
    tasks = await strangers(reviews, server, AT_ONCE + MOST_WAITING + 5)
    assert [type(task.exception()) for task in tasks if task.done()] == [Unavailable] * 5
    assert len(server.asked) == AT_ONCE
    await end(server, tasks)
    assert await reviews.who("one-more") is None


async def test_who_was_let_in_before_is_asked_about_beside_any_number_of_strangers(
    reviews: Reviews, server: Server, clock: Clock
) -> None:
    await reviews.allowed(await known(reviews), [METRICS])
    for number in range(MOST_REMEMBERED + 50):
        await reviews.who(f"t-{number}")
    clock.seconds += 61
    tasks = await strangers(reviews, server, AT_ONCE + MOST_WAITING)
    ada = asyncio.create_task(reviews.who("t-ada"))
    await settled()
    assert server.asked[-1]["spec"] == {"token": "t-ada"}
    await end(server, [*tasks, ada])
    assert ada.result() is not None


async def test_one_who_is_known_but_may_nothing_stays_a_stranger(reviews: Reviews) -> None:
    """Else whoever can make many accounts could push out those who were let in."""
    bob = await known(reviews, "t-bob")
    await reviews.allowed(bob, [METRICS, LAB])
    assert (list(reviews._callers[True]), list(reviews._callers[False])) == ([], [bob.key])


async def test_the_same_question_at_the_same_time_is_asked_once(reviews: Reviews, server: Server) -> None:
    server.answers.clear()
    tasks = [asyncio.create_task(reviews.who("t-ada")) for _ in range(20)]
    await settled()
    assert len({who.key for who in await end(server, tasks)}) == 1
    assert len(server.asked) == 1


async def test_an_answer_that_is_none_lets_nobody_in(reviews: Reviews, server: Server) -> None:
    ada = await known(reviews)
    server.noise = True
    with pytest.raises(Unavailable):
        await reviews.who("t-bob")
    with pytest.raises(Unavailable):
        await reviews.allowed(ada, [METRICS])


async def test_what_we_lack_is_named(server: Server, clock: Clock) -> None:
    needs = [LAB, RequiredRight("watch", "pods"), RequiredRight("patch", "powerpools/status", "headroom.dev")]
    missing = await lacking(Kube(server, clock), needs)
    assert [str(need) for need in missing] == ["watch pods", "patch powerpools/status.headroom.dev"]
    assert server.asked[-1]["spec"]["resourceAttributes"]["subresource"] == "status"
