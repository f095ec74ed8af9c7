"""A fleet on the clouds of the tests: Secrets from a dict, Spotpools as the test says, and what was told of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec import structs

from headroom.adapters.clouds import CloudFleet, Places
from headroom.adapters.egress import Guard, entries
from headroom.adapters.usable_by import Secret
from headroom.api.kinds import AnyResource
from headroom.api.spot_pools_status import Slot, SpotpoolStatus
from headroom.model import times
from headroom.model.actions import LaunchInstance
from headroom.model.changes import Topic
from headroom.model.errors import Refused
from headroom.model.ports import Clock
from headroom.model.world import World
from tests.builders import a_resource, a_world
from tests.cloud_sides import CANARY, CloudSide

USER_DATA = f"#!/bin/sh\necho {CANARY}\n"


class Vault:
    """Secrets by namespace/name, each with who may use it."""

    def __init__(self) -> None:
        self.secrets: dict[str, tuple[dict[str, str], str]] = {}
        self.asked: list[str] = []

    async def read(self, name: str, namespace: str = "") -> Secret:
        place = f"{namespace}/{name}"
        self.asked.append(place)
        if place not in self.secrets:
            raise Refused(f"reading Secret {place}: there is none")
        values, usable_by = self.secrets[place]
        found = Secret(values)
        found.usable_by, found.place = usable_by, place
        return found


class View:
    """The port, as far as a fleet knows it."""

    def __init__(self, cluster: str) -> None:
        self.cluster, self.pools, self.complete = cluster, dict[str, AnyResource](), True
        self.news: list[tuple[Topic, str]] = []

    def put(self, pool: AnyResource) -> AnyResource:
        self.pools[f"{pool.namespace}/{pool.name}"] = pool
        return pool

    def world(self, now: int) -> World:
        return a_world(*self.pools.values(), now=now, cluster=self.cluster, complete=self.complete)

    def tell(self, topic: Topic, name: str = "") -> None:
        self.news.append((topic, name))


class Stage:
    """A fleet, its Secrets and its view."""

    def __init__(self, cluster: str, clock: Clock, *sides: CloudSide, egress: str = "", **places: Any) -> None:
        self.clock, self.view, self.vault = clock, View(cluster), Vault()
        self.guard = Guard(entries(",".join([egress, *(side.url.removesuffix("/v1") for side in sides)])))
        endpoints: dict[str, str] = {}
        for side in sides:
            names = {"tencent": ["tencent", "tencent-sts"], "aws": ["aws-ec2", "aws-sqs", "aws-sts"]}.get(side.name, [])
            endpoints |= dict.fromkeys(names, side.url)
        self.fleet = CloudFleet(
            self.guard, self.vault, clock, random.Random(1), Places(**{"endpoints": endpoints} | places)
        )
        self.fleet.connect(self.view, lambda: self.leads)
        self.leads = True

    def close(self) -> None:
        self.guard.close()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[CloudFleet]:
        """While the fleet lists what there is."""
        task = asyncio.create_task(self.fleet.run())
        try:
            yield self.fleet
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def pool(self, side: CloudSide, name: str = "one", *, namespace: str = "team-a", **spec: Any) -> AnyResource:
        """A pool of a side's machines, with a Secret that it may use."""
        host = side.url.removesuffix("/v1")
        user = f"Spotpool/{namespace}/{name}@{host}"
        place = f"{namespace}/{side.name}-keys"
        users = self.vault.secrets.get(place, ({}, ""))[1]
        self.vault.secrets[place] = side.secret, f"{users} {user}".strip()
        shared = self.vault.secrets.get(f"{namespace}/user-data", ({}, ""))[1]
        self.vault.secrets[f"{namespace}/user-data"] = {"userData": USER_DATA}, f"{shared} {user}".strip()
        given: dict[str, Any] = {
            "provider": side.name,
            "region": side.region,
            "availabilityZone": side.zone,
            "instanceType": side.kind,
            "imageId": side.image,
            "maximum": 3,
            "credentialsSecretRef": {"name": f"{side.name}-keys"},
            "userDataSecretRef": {"name": "user-data"},
        }
        given |= {"endpoint": side.url} if side.name == "webhook" else {}
        return self.view.put(a_spotpool(name, namespace, **given | spec))

    def slots(self, pool: AnyResource, *slots: Slot) -> AnyResource:
        """The same pool with these slots in its status."""
        return self.view.put(structs.replace(pool, status=SpotpoolStatus(slots=slots)))


async def until(what: Callable[[], bool], said: str = "it happens") -> None:
    """Wait in real time."""
    for _ in range(3000):
        if what():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"not within 30 s: {said}")


def a_spotpool(name: str = "one", namespace: str = "team-a", **spec: Any) -> AnyResource:
    """A Spotpool as it comes from the API server."""
    plain = {key: value for key, value in spec.items() if value is not None}
    made = a_resource("Spotpool", name, **{"minimum": 0, "maximum": 3} | plain)
    assert not made.problems, made.problems
    return structs.replace(made, namespace=namespace, uid=f"uid-{namespace}-{name}")


def an_intent(clock: Clock, slot: int = 0, token: str = "t", **more: Any) -> Slot:
    """A slot that is being launched since now."""
    now = times.text(clock.now())
    return Slot(slot=slot, state=more.pop("state", "Launching"), token=token, since=now, launched_at=now, **more)


def a_launch(pool: AnyResource, slot: int = 0, token: str = "t") -> LaunchInstance:
    """The action of an intent, for the pool's first type and zone."""
    key, spec = f"{pool.namespace}/{pool.name}", pool.spec
    return LaunchInstance(pool=key, slot=slot, token=token, instance_type=spec.types[0], zone=spec.all_zones[0])
