"""Reviews: who may read is asked of the API server once in a while, and never more than is needed."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.reviews import AT_ONCE, MOST_REMEMBERED, MOST_WAITING, Need, Reviews, lacking
from headroom.adapters.kube.transport import Reply
from headroom.model.errors import Unavailable


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
        self.noise = False
        self.answers = asyncio.Event()
        self.answers.set()

    async def request(self, method: str, path: str, *, body: bytes = b"", **_: Any) -> Reply:
        asked = json.loads(body)
        self.asked.append(asked)
        await self.answers.wait()
        spec = asked["spec"]
        assert (method, path) == ("POST", f"/apis/{asked['apiVersion']}/{asked['kind'].lower()}s")
        if asked["kind"] == "TokenReview":
            known = spec["token"] == "t-ada"
            status: Any = {"authenticated": known, "user": {"username": "ada", "groups": ["g"]} if known else None}
        elif asked["kind"] == "SubjectAccessReview":
            status = {
                "allowed": spec["user"] == "ada"
                and spec["nonResourceAttributes"] == {"path": "/metrics", "verb": "get"}
            }
        else:
            wanted = spec["resourceAttributes"]
            status = {
                "allowed": (wanted["verb"], wanted["resource"], wanted.get("namespace")) == ("list", "pods", "lab")
            }
        return Reply(201, b"no json" if self.noise else json.dumps({"status": status}).encode())

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


async def test_a_known_token_with_the_right_may(reviews: Reviews) -> None:
    assert await reviews.may("t-ada", "/metrics")
    assert not await reviews.may("t-ada", "/api/state")
    assert not await reviews.may("t-eve", "/metrics")


async def test_a_yes_holds_a_minute_and_a_no_ten_seconds(reviews: Reviews, server: Server, clock: Clock) -> None:
    for path, seconds in (("/metrics", 60.0), ("/", 10.0)):
        await reviews.may("t-ada", path)
        asked = len(server.asked)
        clock.seconds += seconds - 0.1
        await reviews.may("t-ada", path)
        assert len(server.asked) == asked
        clock.seconds += 0.2
        await reviews.may("t-ada", path)
        assert len(server.asked) == asked + 2


async def test_no_token_and_an_endless_one_are_not_asked_about(reviews: Reviews, server: Server) -> None:
    assert not await reviews.may("", "/metrics")
    assert not await reviews.may("x" * 20_000, "/metrics")
    assert server.asked == []


async def test_only_so_much_is_remembered(reviews: Reviews) -> None:
    for number in range(MOST_REMEMBERED + 50):
        await reviews.may(f"t-{number}", "/metrics")
    assert len(reviews._until[False]) == MOST_REMEMBERED
    assert b"t-0" not in b"".join(digest for digest, _ in reviews._until[False])


async def strangers(reviews: Reviews, server: Server, count: int) -> list[asyncio.Task[bool]]:
    """Callers with made-up tokens, while the API server takes its time."""
    server.answers.clear()
    tasks = [asyncio.create_task(reviews.may(f"made-up-{number}", "/metrics")) for number in range(count)]
    await asyncio.sleep(0.01)
    return tasks


async def end(server: Server, tasks: list[asyncio.Task[bool]]) -> list[bool | BaseException]:
    server.answers.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_is_known_does_not_wait_behind_strangers(reviews: Reviews, server: Server) -> None:
    assert await reviews.may("t-ada", "/metrics")
    tasks = await strangers(reviews, server, 20)
    assert await asyncio.wait_for(reviews.may("t-ada", "/metrics"), 1)
    assert await end(server, tasks) == [False] * 20


async def test_only_so_many_strangers_may_wait(reviews: Reviews, server: Server) -> None:
    tasks = await strangers(reviews, server, AT_ONCE + MOST_WAITING + 5)
    assert [type(task.exception()) for task in tasks if task.done()] == [Unavailable] * 5
    assert len(server.asked) == AT_ONCE
    await end(server, tasks)
    assert not await reviews.may("one-more", "/metrics")


async def test_who_was_let_in_before_is_asked_about_beside_any_number_of_strangers(
    reviews: Reviews, server: Server, clock: Clock
) -> None:
    assert await reviews.may("t-ada", "/metrics")
    for number in range(MOST_REMEMBERED + 50):
        await reviews.may(f"t-{number}", "/metrics")
    clock.seconds += 61
    tasks = await strangers(reviews, server, AT_ONCE + MOST_WAITING)
    ada = asyncio.create_task(reviews.may("t-ada", "/metrics"))
    await asyncio.sleep(0.01)
    assert server.asked[-1]["spec"] == {"token": "t-ada"}
    await end(server, [*tasks, ada])
    assert ada.result() is True


async def test_the_same_question_at_the_same_time_is_asked_as_often_as_there_are_turns(
    reviews: Reviews, server: Server
) -> None:
    server.answers.clear()
    tasks = [asyncio.create_task(reviews.may("t-ada", "/metrics")) for _ in range(20)]
    await asyncio.sleep(0.01)
    assert await end(server, tasks) == [True] * 20
    assert len(server.asked) == 2 * AT_ONCE


async def test_an_answer_that_is_none_lets_nobody_in(reviews: Reviews, server: Server) -> None:
    server.noise = True
    with pytest.raises(Unavailable):
        await reviews.may("t-ada", "/metrics")


async def test_what_we_lack_is_named(server: Server, clock: Clock) -> None:
    needs = [
        Need("list", "pods", namespace="lab"),
        Need("watch", "pods"),
        Need("patch", "powerpools/status", "headroom.dev"),
    ]
    missing = await lacking(Kube(server, clock), needs)
    assert [str(need) for need in missing] == ["watch pods", "patch powerpools/status.headroom.dev"]
    assert server.asked[-1]["spec"]["resourceAttributes"]["subresource"] == "status"
