"""The list-watch: its sink becomes what the server has, whatever was missed in between."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from headroom.adapters.kube import decode
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.listwatch import Identity
from headroom.adapters.kube.parse import RawConfigMap
from headroom.adapters.kube.watch import Reflector
from tests.contracts.cluster import Cluster
from tests.contracts.objects import config_map, uid_of
from tests.contracts.outages import Severable


class Facts:
    """A sink that also notes what went."""

    def __init__(self) -> None:
        self.held: dict[str, RawConfigMap] = {}
        self.removed: list[str] = []
        self.lists = 0

    def key(self, fact: RawConfigMap) -> str:
        return fact.uid

    def keys(self) -> Iterable[str]:
        return self.held.keys()

    def identity(self, key: str) -> Identity | None:
        fact = self.held.get(key)
        return None if fact is None else Identity(fact.namespace, fact.name, fact.uid)

    def put(self, fact: RawConfigMap, *, listed: bool = False) -> None:
        self.held[fact.uid] = fact

    def remove(self, key: str, last: RawConfigMap | None, seen_until: int) -> None:
        fact = self.held.pop(key, None)
        if fact:
            self.removed.append(fact.name)

    def listed(self) -> None:
        self.lists += 1

    def data(self) -> dict[str, dict[str, str]]:
        return {fact.name: dict(fact.data) for fact in self.held.values()}


class Followed:
    """A reflector that runs, its sink, and the line to the server."""

    def __init__(self, cluster: Cluster, user: str = "admin") -> None:
        self.line = Severable(cluster.transport(user))
        self.facts = Facts()
        self.cluster = cluster
        self.reflector = Reflector(
            Kube(self.line, cluster.clock),
            cluster.path("ConfigMap"),
            decode.settings(),
            self.facts,
            clock=cluster.clock,
            rng=random.Random(1),
        )

    async def until(self, wanted: dict[str, dict[str, str]]) -> None:
        async def same() -> bool:
            return self.reflector.synced and self.facts.data() == wanted

        await self.cluster.until(same, f"the sink holds {wanted}, not {self.facts.data()}")

    async def cut(self) -> None:
        async def silent() -> bool:
            return self.line.streams == 0

        self.line.cut()
        await self.cluster.until(silent, "the stream is cut")


@asynccontextmanager
async def following(cluster: Cluster, user: str = "admin") -> AsyncIterator[Followed]:
    followed = Followed(cluster, user)
    task = asyncio.create_task(followed.reflector.run())
    try:
        yield followed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_sink_becomes_what_the_server_has_and_follows_it(cluster: Cluster) -> None:
    a = await cluster.create(config_map("a", {"x": "1"}))
    async with following(cluster) as followed:
        await followed.until({"a": {"x": "1"}})
        await cluster.create(config_map("b"))
        await cluster.merge(a, {"data": {"x": "2"}})
        await followed.until({"a": {"x": "2"}, "b": {}})
        await cluster.delete(a)
        await followed.until({"b": {}})
        assert (followed.facts.lists, followed.reflector.relists, followed.facts.removed) == (1, 0, ["a"])


async def test_after_a_break_it_resumes_and_needs_no_new_list(cluster: Cluster) -> None:
    a = await cluster.create(config_map("a"))
    async with following(cluster) as followed:
        await followed.until({"a": {}})
        await followed.cut()
        await cluster.delete(a)
        await cluster.create(config_map("b"))
        followed.line.mend()
        await followed.until({"b": {}})
        assert (followed.reflector.relists, followed.facts.removed) == (0, ["a"])
        assert followed.reflector.problem == ""


async def test_what_was_missed_beyond_memory_is_found_by_a_new_list(forgetful: Cluster) -> None:
    a = await forgetful.create(config_map("a"))
    b = await forgetful.create(config_map("b", {"x": "1"}))
    async with following(forgetful) as followed:
        await followed.until({"a": {}, "b": {"x": "1"}})
        await followed.cut()
        await forgetful.delete(a)
        await forgetful.merge(b, {"data": {"x": "2"}})
        await forgetful.create(config_map("c"))
        await forgetful.compact()
        followed.line.mend()
        await followed.until({"b": {"x": "2"}, "c": {}})
        assert (followed.reflector.relists, followed.facts.removed) == (1, ["a"])


async def test_an_object_made_anew_while_nobody_looked_is_another_one(forgetful: Cluster) -> None:
    old = await forgetful.create(config_map("a", {"made": "first"}))
    async with following(forgetful) as followed:
        await followed.until({"a": {"made": "first"}})
        await followed.cut()
        await forgetful.delete(old)
        new = await forgetful.create(config_map("a", {"made": "second"}))
        await forgetful.compact()
        followed.line.mend()
        await followed.until({"a": {"made": "second"}})
        assert list(followed.facts.held) == [uid_of(new)]
        assert followed.facts.removed == ["a"]


async def test_without_the_right_it_waits_and_says_which(cluster: Cluster) -> None:
    async with following(cluster, user="nobody") as followed:

        async def complains() -> bool:
            return bool(followed.reflector.problem)

        await cluster.until(complains, "it complains")
        assert not followed.reflector.synced
        assert "cannot watch resource" in followed.reflector.problem
        assert "get, list and watch on configmaps" in followed.reflector.problem
