"""A gateway's targets follow the pool, and nobody else's are touched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec import structs

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
        with pytest.raises(Refused, match="belongs to another owner"):
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
    mark = [f"headroom-{pool.uid}", "headroom.c.team-a"]
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
    scene.kong.things["upstreams/llama"] = {"name": "llama", "tags": ["headroom.c.team-a"]}
    scene.kong.things["services/llama"] = {"name": "llama", "host": "other", "path": "/"}
    pool = scene.pool(route="/chat")
    with pytest.raises(Refused, match="service llama of another owner"):
        await scene.fleet.add_target(pool, A)
    assert scene.changes() == []


@pytest.mark.parametrize("tags", [None, [], ["theirs", "headroom.c.team-b", "headroom.other.team-a"]])
async def test_no_pool_gets_the_requests_of_somebody_elses_upstream(scene: Scene, tags: list[str] | None) -> None:
    scene.kong.things["upstreams/llama"] = {"name": "llama", "tags": tags}
    pool = scene.pool()
    with pytest.raises(Refused, match=r"of another owner; .* adds the tag headroom.c.team-a to it"):
        await scene.fleet.add_target(pool, A)
    async with scene.stage.running():
        await until(lambda: KEY in scene.fleet.gateways)
        assert scene.fleet.gateways[KEY].at == 0
        assert "of another owner" in scene.fleet.gateways[KEY].problem
        assert scene.changes() == []
        scene.kong.things["upstreams/llama"]["tags"] = ["headroom.c.team-a"]
        await until(lambda: not scene.fleet.gateways[KEY].problem)
    await scene.fleet.add_target(pool, A)
    assert scene.kong.all("llama") == {A}


async def test_a_pool_that_was_made_anew_goes_on_with_the_upstream_of_its_namespace(scene: Scene) -> None:
    await scene.fleet.add_target(scene.pool(route="/chat"), A)
    scene.changes()
    again = structs.replace(scene.pool(route="/talk"), uid="another")
    await scene.fleet.add_target(again, B)
    assert scene.changes() == ["PUT routes/llama", "POST upstreams/llama/targets"]


async def test_our_own_targets_leave_an_upstream_that_is_ours_no_more(scene: Scene) -> None:
    pool = scene.pool()
    await scene.fleet.add_target(pool, A)
    scene.kong.things["upstreams/llama"]["tags"] = ["theirs"]
    await scene.fleet.remove_target(pool, A)
    assert scene.kong.all("llama") == set()


@pytest.mark.parametrize(
    ("theirs", "is_taken"),
    [
        ({"paths": ["/chat"]}, True),
        ({"paths": ["/other", "/ch"]}, True),
        ({"paths": ["/"]}, False),
        ({"paths": ["/chat/longer"]}, False),
        ({"paths": ["/chat"], "hosts": ["team-b.example"]}, False),
        ({"paths": ["/chat"], "tags": ["headroom.c.team-a"]}, False),
    ],
)
async def test_no_route_takes_the_requests_of_another(scene: Scene, theirs: dict[str, Any], is_taken: bool) -> None:
    for number in range(3):
        scene.kong.things[f"routes/r{number}"] = {"name": f"r{number}", "paths": [f"/r{number}"]}
    scene.kong.things["routes/theirs"] = {"name": "theirs"} | theirs
    pool = scene.pool(route="/chat")
    if is_taken:
        with pytest.raises(Refused, match="a route of another owner"):
            await scene.fleet.add_target(pool, A)
        assert "routes/llama" not in scene.kong.things
        assert not scene.kong.all("llama")
    else:
        await scene.fleet.add_target(pool, A)
        assert scene.kong.things["routes/llama"]["paths"] == ["/chat"]


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
    with pytest.raises(Refused, match="does not allow Spotpool/team-a/one@http://127"):
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
