"""The HTTP servers: who may read, what the pages say, and that nothing of a cluster can run in a browser."""

import asyncio
import json
import re
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from headroom.adapters.kube import parse
from headroom.core import PLANS
from headroom.model.decisions import Decision, Ref
from headroom.model.errors import Misconfigured, Unavailable
from headroom.model.tables import NodeTable, PodTable
from headroom.model.world import EVERYTHING, World, by_ref
from headroom.runtime.metrics import Metrics
from headroom.web import certificate
from headroom.web.server import STILL_SECONDS, Pulse, Servers, free_port, health_app, main_app, split
from headroom.web.view import Showing, View

NOW = 1_770_000_000_000
HOSTILE = "<script>alert(1)</script>"


def budget(name: str, **spec: Any) -> dict[str, Any]:
    quota = {"gpuHours": "10", "windowHours": 24}
    wanted = {"selector": {"matchLabels": {"team": "a"}}, "quota": quota, "enforcement": {"action": "AlertOnly"}}
    metadata = {"name": name, "namespace": "lab"}
    return {
        "apiVersion": "headroom.dev/v1alpha1",
        "kind": "GPUWorkloadBudget",
        "metadata": metadata,
        "spec": wanted | spec,
    }


def pod(name: str, node: str = "", phase: str = "Pending", gpus: str = "2") -> dict[str, Any]:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    spec = {"containers": [container]} | ({"nodeName": node} if node else {})
    return {"kind": "Pod", "metadata": {"name": name, "namespace": "lab"}, "spec": spec, "status": {"phase": phase}}


class Cluster:
    """A view with one budget, one invalid budget, three pods and a node; also the loop and the gate above it."""

    def __init__(self) -> None:
        self.complete, self.why = True, ["watching pods: cannot reach https://10.0.0.1:6443: timed out"]
        self.ticks = 1
        pods, nodes = PodTable(), NodeTable()
        bound = [pod("a", "n1", "Running"), pod("b", "n1", "Succeeded"), pod("c", gpus="500m")]
        for each in bound:
            pods.put(parse.pod(each))
        nodes.put(parse.node({"metadata": {"name": "n1"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}))
        documents = [budget("team-a"), budget("team-b", colour=HOSTILE)]
        self._parts = {"pods": pods, "nodes": nodes, "resources": by_ref(map(parse.resource, documents))}
        world = self.world(NOW)
        decided = [each for plan in PLANS for each in plan.decide(world, EVERYTHING)]
        self.decisions: dict[Ref, Decision] = {each.resource: each for each in decided}
        self.decided_at = {each.resource: NOW + number for number, each in enumerate(decided)}

    def world(self, now: int) -> World:
        return World(now=now, cluster="c1", complete=self.complete, **self._parts)  # type: ignore[arg-type]  # parts of any kind

    def problems(self) -> list[str]:
        return [] if self.complete else self.why

    def age_seconds(self) -> float:
        return 1.5

    def may_act(self) -> bool:
        return True

    def now(self) -> int:
        return NOW


class Reviews:
    """Knows two tokens, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.answers = True

    async def may(self, token: str, path: str) -> bool:
        self.asked.append((token, path))
        if not self.answers:
            raise Unavailable("creating a TokenReview: cannot reach https://secret-address:6443")
        return token == "good" and path in ("/", "/metrics", "/static")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def view(cluster: Cluster) -> View:
    return View(port=cluster, loop=cluster, gate=cluster, clock=cluster)


def shown(view: View) -> Showing:
    return Showing(view=view, metrics=Metrics())


Serve = Callable[..., AbstractAsyncContextManager[aiohttp.ClientSession]]


@pytest.fixture
def serve() -> Serve:
    """Serves an app on a free port: `async with serve(app) as client: await client.get("/")`."""

    @asynccontextmanager
    async def serving(
        app: aiohttp.web.Application, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[aiohttp.ClientSession]:
        servers = Servers()
        port = await servers.listen(app, "127.0.0.1:0", "metrics_address", tls)
        base = f"http{'s' if tls else ''}://127.0.0.1:{port}"
        async with aiohttp.ClientSession(base, connector=aiohttp.TCPConnector(ssl=False)) as client:
            yield client
        await servers.close()

    return serving


async def text(client: aiohttp.ClientSession, path: str, token: str = "") -> tuple[int, str]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with client.get(path, headers=headers) as reply:
        return reply.status, await reply.text()


async def test_only_who_may_get_a_path_gets_it(view: View, serve: Serve) -> None:
    reviews = Reviews()
    async with serve(main_app(shown(view), reviews)) as client:
        assert (await text(client, "/metrics"))[0] == 401
        assert (await text(client, "/metrics", "bad"))[0] == 403
        status, metrics = await text(client, "/metrics", "good")
        assert (status, "headroom_view_age_seconds 1.5" in metrics) == (200, True)
        assert (await text(client, "/api/state", "good"))[0] == 403
        assert (await text(client, "/static/dashboard.css", "good"))[0] == 200
        assert reviews.asked[-1] == ("good", "/static")


async def test_nobody_is_asked_about_what_is_not_there_or_who_shows_nothing(view: View, serve: Serve) -> None:
    reviews = Reviews()
    async with serve(main_app(shown(view), reviews)) as client:
        assert (await text(client, "/wp-admin", "good"))[0] == 404
        async with client.get("/", headers={"Authorization": "Basic Z29vZA=="}) as reply:
            assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
        async with client.post("/", headers={"Authorization": "Bearer good"}) as reply:
            assert reply.status == 404
        assert reviews.asked == []


async def test_a_silent_api_server_lets_nobody_in_and_tells_strangers_nothing(view: View, serve: Serve) -> None:
    reviews = Reviews()
    reviews.answers = False
    async with serve(main_app(shown(view), reviews)) as client:
        status, said = await text(client, "/metrics", "good")
        assert (status, "secret-address" in said) == (503, False)


async def test_the_page_shows_the_fleet_and_every_resource(view: View, serve: Serve) -> None:
    async with serve(main_app(shown(view), None)) as client:
        status, page = await text(client, "/")
    assert status == 200
    plain = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "GPUs held 2 of 8" in plain
    assert "Nodes ready 0 of 1" in plain
    assert "Pods running 1 and 1 starting or finished" in plain
    assert "lab/team-a 0.000 of 10 GPU-hours in 24 h" in plain
    assert "no budget 0.000 GPU-hours in 24 h" in plain
    assert "GPUWorkloadBudget lab/team-a True WithinBudget 0.000 of 10 GPU-hours" in plain
    assert "GPUWorkloadBudget lab/team-b False InvalidSpec spec.colour" in plain
    assert plain.index("Last decisions") < plain.rindex("GPUWorkloadBudget/lab/team-b")


async def test_nothing_of_a_cluster_can_run_in_a_browser(view: View, serve: Serve) -> None:
    async with serve(main_app(shown(view), None)) as client, client.get("/") as reply:
        page, policy = await reply.text(), reply.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=|javascript:", page)
    assert HOSTILE not in page


async def test_every_answer_has_the_headers(view: View, serve: Serve) -> None:
    for app, path in (
        (main_app(shown(view), Reviews()), "/x"),
        (main_app(shown(view), None), "/x"),
        (health_app(view), "/"),
    ):
        async with serve(app) as client, client.get(path) as reply:
            assert reply.status == 404
            assert reply.headers["X-Content-Type-Options"] == "nosniff"
            assert "default-src 'self'" in reply.headers["Content-Security-Policy"]


async def test_the_state_is_the_same_as_json(view: View, cluster: Cluster, serve: Serve) -> None:
    async with serve(main_app(shown(view), None)) as client:
        state = json.loads((await text(client, "/api/state"))[1])
    assert state["fleet"]["gpusHeld"] == "2"
    assert [(each["name"], each["ready"]) for each in state["resources"]] == [("team-a", "True"), ("team-b", "False")]
    assert state["recent"][0]["resource"] == "GPUWorkloadBudget/lab/team-b"


async def test_metrics_count_resources_by_readiness(view: View, serve: Serve) -> None:
    async with serve(main_app(shown(view), None)) as client:
        metrics = (await text(client, "/metrics"))[1]
    assert 'headroom_resources{kind="GPUWorkloadBudget",ready="False"} 1.0' in metrics


async def test_readiness_says_why_not(view: View, cluster: Cluster, serve: Serve) -> None:
    async with serve(health_app(view)) as client:
        assert await text(client, "/readyz") == (200, "ok\n")
        cluster.complete = False
        assert await text(client, "/readyz") == (503, f"{cluster.why[0]}\n")
        cluster.why = []
        assert await text(client, "/readyz") == (503, "The view of the cluster is not complete yet.\n")
        assert await text(client, "/healthz") == (200, "ok\n")


def test_health_ends_when_the_loop_stands_still(view: View, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("headroom.web.server.time.monotonic", lambda: now[0])
    pulse = Pulse(view)
    assert pulse.beats()
    now[0] += STILL_SECONDS - 1
    assert pulse.beats()
    now[0] += 2
    assert not pulse.beats()
    cluster.ticks += 1
    assert pulse.beats()


async def test_a_self_signed_certificate_serves_https(view: View, serve: Serve) -> None:
    tls = certificate.context("", "", ("headroom", "headroom.headroom-system.svc"))
    async with serve(main_app(shown(view), None), tls) as client:
        assert (await text(client, "/metrics"))[0] == 200


async def test_a_given_certificate_serves_https(view: View, serve: Serve, tmp_path: Path) -> None:
    file = tmp_path / "both.pem"
    file.write_bytes(certificate.self_signed(("example.com",)))
    async with serve(main_app(shown(view), None), certificate.context(str(file), "", ())) as client:
        assert (await text(client, "/metrics"))[0] == 200


def test_a_wrong_certificate_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "no.pem"
    file.write_text("nothing")
    for name, key in ((str(file), ""), (str(tmp_path / "none"), ""), ("", str(file))):
        with pytest.raises(Misconfigured, match=r"^reading the certificate[^\n]*$"):
            certificate.context(name, key, ())


@pytest.mark.parametrize("address", ["8443", "host:port", "a:1:b", "1.2.3.4:99999", "::1:80", "x:-1", "x:٣"])
def test_a_wrong_address_is_one_sentence(address: str) -> None:
    with pytest.raises(Misconfigured, match=r"^reading metrics_address: it must be host:port"):
        split(address, "metrics_address")


def test_right_addresses() -> None:
    assert [split(each, "x") for each in (":80", "[::1]:80", "0.0.0.0:0")] == [("", 80), ("::1", 80), ("0.0.0.0", 0)]


async def test_a_taken_port_is_one_sentence_and_the_demo_takes_the_next(view: View) -> None:
    servers = Servers()
    port = await servers.listen(health_app(view), f"127.0.0.1:{free_port(20000)}", "x")
    assert free_port(port) > port
    with pytest.raises(
        Misconfigured, match=rf"^listening on 127.0.0.1:{port}: another process listens there already; set x"
    ):
        await servers.listen(health_app(view), f"127.0.0.1:{port}", "x")
    await asyncio.wait_for(servers.close(), 5)
