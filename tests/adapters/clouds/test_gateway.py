"""A gateway's targets follow the pool, and nobody else's are touched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headroom.api.kinds import AnyResource
from headroom.model.errors import Refused, Unavailable
from headroom.sim.clock import SimClock
from tests.builders import NOON
from tests.cloud_sides import CANARY
from tests.cloud_stage import Stage, a_spotpool, until
from tests.kong_service import KongService

TOKEN = f"token-{CANARY}"
KEY = "team-a/one"
A, B, C = "10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"


class Scene:
    """Kong, a pool in front of which it stands, and a fleet."""

    def __init__(self, kong: KongService) -> None:
        self.kong = kong
        self.stage = Stage("c", SimClock(NOON, 20.0), egress=kong.url)
        self.fleet = self.stage.fleet
        self.usable("one")

    def usable(self, *names: str) -> None:
        users = " ".join(f"Spotpool/team-a/{name}@{self.kong.url}" for name in names)
        self.stage.vault.secrets["team-a/kong"] = {"token": TOKEN}, users

    def pool(self, name: str = "one", **gateway: Any) -> AnyResource:
        given = {"adminUrl": self.kong.url, "upstream": "llama", "tokenSecretRef": {"name": "kong"}} | gateway
        return self.stage.view.put(a_spotpool(name, gateway=given, availabilityZone="z"))

    def changes(self) -> list[str]:
        found, self.kong.changes = self.kong.changes, []
        return found


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with KongService(TOKEN) as kong:
        made = Scene(kong)
        yield made
        made.stage.close()


async def test_targets_are_added_and_removed_and_the_second_time_nothing_is(scene: Scene) -> None:
    pool = scene.pool()
    scene.kong.put("llama", A, C, tags=[f"headroom-{pool.uid}"])
    scene.kong.put("llama", "203.0.113.9:80", tags=["theirs"])
    async with scene.stage.running():
        await until(lambda: KEY in scene.fleet.gateways)
        found = scene.fleet.gateways[KEY]
        assert (found.ours, found.others, found.ensured, found.problem) == ((A, C), ("203.0.113.9:80",), True, "")
        await scene.fleet.add_target(pool, B)
        await scene.fleet.remove_target(pool, C)
        assert [each.split("/")[0] for each in scene.changes()] == ["POST upstreams", "DELETE upstreams"]
        assert scene.kong.all("llama") == {A, B, "203.0.113.9:80"}
        assert scene.fleet.gateways[KEY].ours == (A, B)
        await scene.fleet.add_target(pool, B)
        await scene.fleet.remove_target(pool, C)
        assert scene.changes() == []
        with pytest.raises(Refused, match="somebody else's"):
            await scene.fleet.remove_target(pool, "203.0.113.9:80")
        assert scene.changes() == []


async def test_upstream_service_and_route_are_made_where_they_are_missing(scene: Scene) -> None:
    pool = scene.pool(route="/chat", path="/api/chat")
    await scene.fleet.add_target(pool, A)
    assert scene.changes() == [
        "PUT upstreams/llama",
        "PUT services/llama",
        "PUT routes/llama",
        "POST upstreams/llama/targets",
    ]
    mark = [f"headroom-{pool.uid}"]
    assert scene.kong.things["services/llama"] == {
        "name": "llama",
        "host": "llama",
        "protocol": "http",
        "path": "/api/chat",
        "tags": mark,
    }
    assert scene.kong.things["routes/llama"]["paths"] == ["/chat"]
    assert scene.fleet.gateways[KEY].ensured
    changed = scene.pool(route="/talk", path="/api/chat")
    await scene.fleet.add_target(changed, A)
    assert scene.changes() == ["PUT routes/llama"]


async def test_what_somebody_else_made_is_not_changed(scene: Scene) -> None:
    scene.kong.things["upstreams/llama"] = {"name": "llama"}
    scene.kong.things["services/llama"] = {"name": "llama", "host": "other", "path": "/"}
    pool = scene.pool(route="/chat")
    with pytest.raises(Refused, match="service llama that is somebody else's"):
        await scene.fleet.add_target(pool, A)
    assert scene.changes() == []


async def test_two_pools_share_an_upstream_and_each_has_its_own_targets(scene: Scene) -> None:
    scene.usable("one", "two")
    one, two = scene.pool("one"), scene.pool("two")
    await scene.fleet.add_target(one, A)
    await scene.fleet.add_target(two, B)
    assert (scene.fleet.gateways["team-a/two"].ours, scene.fleet.gateways["team-a/two"].others) == ((B,), (A,))
    with pytest.raises(Refused):
        await scene.fleet.remove_target(two, A)


async def test_a_token_goes_only_where_its_secret_says_and_is_never_told(scene: Scene) -> None:
    scene.kong.token = "another"
    with pytest.raises(Refused, match="answered 401") as caught:
        await scene.fleet.add_target(scene.pool(), A)
    assert CANARY not in repr(caught.value) + str(caught.value)
    scene.stage.vault.secrets["team-a/kong"] = {"token": TOKEN}, "Spotpool/team-a/one@https://elsewhere.example"
    with pytest.raises(Refused, match="does not let Spotpool/team-a/one@http://127"):
        await scene.fleet.add_target(scene.pool(), A)


async def test_a_gateway_that_is_away_is_said_to_be(scene: Scene) -> None:
    scene.kong.down = True
    pool = scene.pool()
    with pytest.raises(Unavailable, match=f"adding target {A} of Spotpool team-a/one: 127.0.0.1 answered 503"):
        await scene.fleet.add_target(pool, A)
    async with scene.stage.running():
        await until(lambda: KEY in scene.fleet.gateways)
        assert scene.fleet.gateways[KEY].at == 0
        assert scene.fleet.gateways[KEY].problem == "reading the gateway: 127.0.0.1 answered 503"
        scene.kong.down = False
        await until(lambda: not scene.fleet.gateways[KEY].problem)
        assert not scene.fleet.gateways[KEY].ensured
