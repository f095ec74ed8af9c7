"""Events: one object for each thing said, however often it is said, and whoever crashed in between."""

import json
from typing import Any

import pytest

from headroom.adapters.kube import errors, events
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.transport import Reply
from headroom.model.errors import Unavailable

POD = {"apiVersion": "v1", "kind": "Pod", "namespace": "lab", "name": "train-0", "uid": "u-1"}
POOL = {"apiVersion": "headroom.dev/v1alpha1", "kind": "PowerPool", "name": "rack", "uid": "u-2"}


class Clock:
    time = 1_700_000_000_000

    def now(self) -> int:
        return self.time

    def monotonic(self) -> float:
        return self.time / 1000

    async def sleep(self, seconds: float) -> None:
        self.time += int(seconds * 1000)


def status(code: int, reason: str, message: str = "no") -> Reply:
    return Reply(code, json.dumps({"kind": "Status", "code": code, "reason": reason, "message": message}).encode())


class Server:
    """Holds events by their address."""

    def __init__(self) -> None:
        self.held: dict[str, Any] = {}
        self.requests: list[str] = []
        self.refuses: Reply | Unavailable | None = None
        self.loses = 0
        """Replies to writes that will get lost."""

    async def request(self, method: str, path: str, *, body: bytes = b"", **_: Any) -> Reply:
        self.requests.append(method)
        if isinstance(self.refuses, Unavailable):
            raise self.refuses
        if self.refuses:
            return self.refuses
        if method == "POST":
            event = json.loads(body)
            path += "/" + event["metadata"]["name"]
            if path in self.held:
                return status(409, "AlreadyExists")
            event["metadata"]["resourceVersion"] = "1"
            self.held[path] = event
            if self.loses:
                self.loses -= 1
                raise Unavailable("the reply was lost")
        if path not in self.held:
            return status(404, "NotFound")
        if method == "PATCH":
            change = json.loads(body)
            tied = change.pop("metadata")
            if tied["resourceVersion"] != self.held[path]["metadata"]["resourceVersion"]:
                return status(409, "Conflict")
            merged = self.held[path]["metadata"].get("annotations", {}) | tied["annotations"]
            kept = {name: value for name, value in merged.items() if value is not None}
            self.held[path].update(change)
            self.held[path]["metadata"] |= {"annotations": kept, "resourceVersion": str(len(self.requests))}
            if self.loses:
                self.loses -= 1
                raise Unavailable("the reply was lost")
        return Reply(200, json.dumps(self.held[path]).encode())

    def stream(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("nothing is watched here")

    async def close(self) -> None:
        pass

    @property
    def only(self) -> Any:
        (event,) = self.held.values()
        return event


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def teller(server: Server, clock: Clock) -> Events:
    return Events(Kube(server, clock), clock)


async def test_an_event_says_who_what_and_when(server: Server, teller: Events) -> None:
    await teller.emit(POD, "Warning", "Evicted", "over budget")
    (path,) = server.held
    assert path.startswith("/api/v1/namespaces/lab/events/train-0.")
    event = server.only
    assert event["involvedObject"] == POD
    assert (event["type"], event["reason"], event["message"], event["count"]) == (
        "Warning",
        "Evicted",
        "over budget",
        1,
    )
    assert event["source"] == {"component": "headroom"}
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2023-11-14T22:13:20Z"


async def test_said_again_is_counted(server: Server, clock: Clock, teller: Events) -> None:
    for _ in range(3):
        await teller.emit(POD, "Normal", "Held", "waiting")
        clock.time += 60_000
    assert server.only["count"] == 3
    assert server.only["firstTimestamp"] < server.only["lastTimestamp"]
    assert server.requests == ["POST", "POST", "GET", "PATCH", "POST", "GET", "PATCH"]


async def test_once_is_once_and_another_time_counts(server: Server, clock: Clock, teller: Events) -> None:
    for token, count in (("token-1", 1), ("token-2", 2), ("token-1", 3)):
        for each in (teller, teller, Events(Kube(server, clock), clock)):
            await each.emit(POD, "Normal", "Launched", "bought a machine", once=token)
        assert server.only["count"] == count
        assert server.only["metadata"]["annotations"] == {events.OCCURRENCE: token}
    await teller.emit(POD, "Normal", "Launched", "bought a machine")
    await teller.emit(POD, "Normal", "Launched", "bought a machine", once="token-1")
    assert server.only["count"] == 5


async def test_an_occurrence_whose_reply_was_lost_counts_once(server: Server, clock: Clock) -> None:
    for token, count in (("first", 1), ("second", 2)):
        server.loses = 1
        with pytest.raises(Unavailable):
            await Events(Kube(server, clock), clock).emit(POD, "Normal", "Held", "waiting", once=token)
        await Events(Kube(server, clock), clock).emit(POD, "Normal", "Held", "waiting", once=token)
        assert server.only["count"] == count


async def test_different_things_are_different_events(server: Server, teller: Events) -> None:
    await teller.emit(POD, "Normal", "A", "b")
    await teller.emit(POD, "Normal", "A", "c")
    await teller.emit(POD, "Normal", "B", "b")
    await teller.emit(POD, "Normal", "Ab", "")
    await teller.emit(POD | {"uid": "u-9"}, "Normal", "A", "b")
    assert len(server.held) == 5


async def test_expired_events_are_made_anew(server: Server, teller: Events) -> None:
    await teller.emit(POD, "Normal", "Held", "waiting")
    server.held.clear()
    await teller.emit(POD, "Normal", "Held", "waiting")
    assert server.only["count"] == 1


async def test_objects_of_no_namespace(server: Server, teller: Events) -> None:
    await teller.emit(POOL, "Normal", "Woke", "a machine")
    (path,) = server.held
    assert path.startswith("/api/v1/namespaces/default/events/rack.")
    assert server.only["involvedObject"] == POOL


async def test_long_texts_are_cut(server: Server, teller: Events) -> None:
    await teller.emit(POD | {"name": "x" * 253}, "Normal", "Long", "ä" * 5000)
    assert len(server.only["message"].encode()) <= 1024
    assert server.only["message"].endswith("ä…")
    assert len(server.only["metadata"]["name"]) <= 253


async def test_a_namespace_that_is_going_or_gone_is_no_failure(server: Server, teller: Events) -> None:
    server.refuses = status(403, "Forbidden", "unable to create: namespace lab because it is being terminated")
    await teller.emit(POD, "Normal", "Held", "waiting")
    server.refuses = status(404, "NotFound")
    await teller.emit(POD, "Normal", "Held", "waiting")


async def test_other_failures_are_the_callers(server: Server, teller: Events) -> None:
    server.refuses = status(403, "Forbidden", 'User "x" cannot create resource "events" in API group ""')
    with pytest.raises(errors.Forbidden, match="cannot create") as caught:
        await teller.emit(POD, "Normal", "Held", "waiting")
    assert (caught.value.verb, caught.value.resource) == ("create", "events")
    server.refuses = Unavailable("the network is down")
    with pytest.raises(Unavailable):
        await teller.emit(POD, "Normal", "Held", "waiting")
