"""The HTTP servers: what is there, with which headers, and that nothing of a cluster can run in a browser."""

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
from msgspec import structs

from headroom.adapters.kube import parse
from headroom.cli import capabilities
from headroom.model.errors import Misconfigured
from headroom.model.tables import NodeTable, PodTable
from headroom.model.world import World, by_ref
from headroom.runtime.metrics import Metrics
from headroom.web import certificate
from headroom.web.addresses import free_port, split
from headroom.web.health import STILL_SECONDS, Heart, health_app
from headroom.web.listening import Servers
from headroom.web.page import Page
from headroom.web.pages import Model
from headroom.web.scope import Scope
from headroom.web.server import main_app
from headroom.web.source import Local
from headroom.web.view import OperatorView, Showing
from tests.processes import PATIENCE_SECONDS, free_ports
from tests.web.showing import Made

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


class Cluster(Made):
    """A view with one budget, one invalid budget, three pods and a node."""

    def __init__(self) -> None:
        pods, nodes = PodTable(), NodeTable()
        bound = [pod("a", "n1", "Running"), pod("b", "n1", "Succeeded"), pod("c", gpus="500m")]
        for each in bound:
            pods.put(parse.pod(each))
        nodes.put(parse.node({"metadata": {"name": "n1"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}}))
        documents = [budget("team-a"), budget("team-b", colour=HOSTILE)]
        resources = by_ref(map(parse.resource, documents))
        super().__init__(World(now=NOW, cluster="c1", pods=pods, nodes=nodes, resources=resources))
        self.complete = True
        self.refusal = ["watching pods: cannot reach https://10.0.0.1:6443: timed out"]

    def world(self, now: int) -> World:
        return structs.replace(super().world(now), complete=self.complete)

    def problems(self) -> list[str]:
        return [] if self.complete else self.refusal


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def view(cluster: Cluster) -> OperatorView:
    return cluster.view()


def shown(view: OperatorView) -> Local:
    return Local(Showing(view=view, metrics=capabilities.measured(Metrics()), pages=capabilities.pages()))


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


async def text(client: aiohttp.ClientSession, path: str, token: str = "", host: str = "") -> tuple[int, str]:
    headers = ({"Authorization": f"Bearer {token}"} if token else {}) | ({"Host": host} if host else {})
    async with client.get(path, headers=headers) as reply:
        return reply.status, await reply.text()


async def test_the_document_holds_no_data_and_nothing_can_run_in_it(view: OperatorView, serve: Serve) -> None:
    async with serve(main_app(shown(view), None)) as client, client.get("/") as reply:
        page, policy = await reply.text(), reply.headers["Content-Security-Policy"]
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bstyle=|\bon\w+=|javascript:", page)
    assert "team-a" not in page


async def test_every_file_that_the_document_names_is_there(view: OperatorView, serve: Serve) -> None:
    async with serve(main_app(shown(view), None)) as client:
        _, page = await text(client, "/")
        named = re.findall(r'(?:src|href)="([^"#]+)"', page)
        assert named
        for each in named:
            assert (await text(client, f"/{each}"))[0] == 200, each


async def test_a_page_is_one_record(view: OperatorView, serve: Serve) -> None:
    def model(_view: OperatorView, _scope: Scope, name: str) -> Model | None:
        return {"told": name} if name == "north" else None

    more = (Page("spots", "power", link="Spots & more"), Page("spots/{name}", "pool", lambda: model, kind="SpotPool"))
    showing = Showing(view=view, metrics=Metrics(), pages=(*capabilities.pages(), *more))
    async with serve(main_app(Local(showing), None)) as client:
        _, document = await text(client, "/")
        assert '<a href="#/spots" data-page="spots">Spots &amp; more</a>' in document
        assert '<a href="#/" data-page="overview">Overview</a>' in document
        _, listing = await text(client, "/static/app/pages.js")
        assert '{"path":"spots/{name}","script":"pool","kind":"SpotPool","noun":""}' in listing
        status, body = await text(client, "/api/spots/north")
        assert (status, json.loads(body)["told"]) == (200, "north")
        assert (await text(client, "/api/spots/south"))[0] == 404
        assert (await text(client, "/api/spots"))[0] == 404, "it has no data of its own"


async def test_every_page_has_a_script(view: OperatorView, serve: Serve) -> None:
    async with serve(main_app(shown(view), None)) as client:
        for each in capabilities.pages():
            assert (await text(client, f"/static/app/pages/{each.script}.js"))[0] == 200, each


async def test_every_answer_has_the_headers(view: OperatorView, serve: Serve) -> None:
    for app, path in ((main_app(shown(view), None), "/x"), (health_app(shown(view).pulse), "/")):
        async with serve(app) as client, client.get(path) as reply:
            assert reply.status == 404
            assert reply.headers["X-Content-Type-Options"] == "nosniff"
            assert "default-src 'none'" in reply.headers["Content-Security-Policy"]


async def test_data_are_never_kept_and_files_are_asked_for_again(view: OperatorView, serve: Serve) -> None:
    async with serve(main_app(shown(view), None)) as client:
        async with client.get("/api/overview") as reply:
            assert reply.headers["Cache-Control"] == "no-store"
        async with client.get("/static/icon.svg") as reply:
            assert reply.headers["Cache-Control"] == "no-cache"
            tag = reply.headers["ETag"]
        async with client.get("/static/icon.svg", headers={"If-None-Match": tag}) as reply:
            assert reply.status == 304


async def test_pages_are_there_as_json(view: OperatorView, serve: Serve) -> None:
    async with serve(main_app(shown(view), None)) as client:
        first = json.loads((await text(client, "/api/overview"))[1])
        assert first["fleet"]["held"] == "2"
        assert {name: each["state"] for name, each in first["budgets"].items()} == {
            "lab/team-a": "Ok",
            "lab/team-b": "Invalid",
        }
        assert json.loads((await text(client, "/api/nodes"))[1])["nodes"]["n1"]["held"] == "2"
        assert json.loads((await text(client, "/api/budgets/lab/team-a"))[1])["budget"]["name"] == "team-a"
        status, said = await text(client, "/api/budgets/lab/none")
        assert (status, "This page does not exist" in said) == (404, True)
        assert json.loads((await text(client, "/api/decisions?q=team-b"))[1])["q"] == "team-b"
        assert json.loads((await text(client, "/api/power"))[1])["pools"] == {}
        status, said = await text(client, "/api/power/none")
        assert (status, "This page does not exist" in said) == (404, True)


@pytest.mark.parametrize(
    "path",
    [
        "/api/decisions?since=soon",
        "/api/live/decisions?limit=0",
        "/api/decisions?limit=x",
        f"/api/decisions?limit={'9' * 5000}",
        f"/api/decisions?since={'9' * 5000}h",
    ],
)
async def test_a_question_that_cannot_be_read_is_answered_in_a_sentence(
    view: OperatorView, serve: Serve, path: str
) -> None:
    async with serve(main_app(shown(view), None)) as client:
        status, said = await text(client, path)
    assert status == 400
    assert json.loads(said)["problem"].startswith("reading ")


async def test_the_loopback_answers_only_to_its_own_name(view: OperatorView, serve: Serve) -> None:
    async with serve(main_app(shown(view), None)) as client:
        for host, status in (("evil.example:1234", 403), ("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:2", 200)):
            async with client.get("/api/overview", headers={"Host": host}) as reply:
                assert reply.status == status, host


async def test_only_reading_is_possible(view: OperatorView, serve: Serve) -> None:
    async with serve(main_app(shown(view), None)) as client:
        for path in ("/", "/api/overview", "/api/budgets/lab/team-a", "/api/power", "/api/power/x", "/metrics"):
            for send in (client.post, client.put, client.delete, client.patch):
                async with send(path) as reply:
                    assert reply.status == 405


async def test_metrics_count_resources_by_readiness(view: OperatorView, serve: Serve) -> None:
    async with serve(main_app(shown(view), None)) as client:
        metrics = (await text(client, "/metrics"))[1]
    assert 'headroom_resources{kind="GPUWorkloadBudget",ready="False"} 1.0' in metrics


WEBHOOK = {"workloads.kueue.x-k8s.io": "watching workloads.kueue.x-k8s.io: conversion webhook failed"}


@pytest.mark.parametrize("stranger", ["from elsewhere", "a page with a name of its own"])
async def test_readiness_says_yes_or_no_and_nothing_of_the_cluster(
    cluster: Cluster, serve: Serve, monkeypatch: pytest.MonkeyPatch, stranger: str
) -> None:
    host = "evil.example" if "page" in stranger else ""
    if not host:
        monkeypatch.setattr("headroom.web.hosts.is_at_loopback", lambda _: False)
    cluster.become(structs.replace(cluster.world(NOW), unseen=WEBHOOK))
    async with serve(health_app(shown(cluster.view()).pulse)) as client:
        assert await text(client, "/readyz", host=host) == (200, "ok\n")
        cluster.complete = False
        assert await text(client, "/readyz", host=host) == (503, "not ready\n")
        assert await text(client, "/healthz", host=host) == (200, "ok\n")


async def test_over_the_loopback_it_names_what_is_not_seen(cluster: Cluster, serve: Serve) -> None:
    cluster.become(structs.replace(cluster.world(NOW), unseen=WEBHOOK))
    line = "not seen: workloads.kueue.x-k8s.io: watching workloads.kueue.x-k8s.io: conversion webhook failed\n"
    async with serve(health_app(shown(cluster.view()).pulse)) as client:
        assert await text(client, "/readyz") == (200, f"ok\n{line}")
        cluster.complete = False
        status, said = await text(client, "/readyz")
    assert (status, said.startswith(f"not ready\n{line}")) == (503, True)


async def test_every_watch_has_a_metric(cluster: Cluster, serve: Serve) -> None:
    cluster.become(structs.replace(cluster.world(NOW), unseen={"nodes": "gone"}))
    async with serve(main_app(shown(cluster.view()), None)) as client:
        _, said = await text(client, "/metrics")
        assert 'headroom_watch_up{kind="pods"} 1.0' in said
        assert 'headroom_watch_up{kind="nodes"} 0.0' in said


def test_health_ends_when_the_loop_stands_still(
    view: OperatorView, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("headroom.web.health.time.monotonic", lambda: now[0])
    pulse = Heart(shown(view).pulse)
    assert pulse.beats()
    now[0] += STILL_SECONDS - 1
    assert pulse.beats()
    now[0] += 2
    assert not pulse.beats()
    cluster.ticks += 1
    assert pulse.beats()


async def test_a_self_signed_certificate_serves_https(view: OperatorView, serve: Serve) -> None:
    tls = certificate.context("", "", ("headroom", "headroom.headroom-system.svc"))
    async with serve(main_app(shown(view), None), tls) as client:
        assert (await text(client, "/metrics"))[0] == 200


async def test_a_given_certificate_serves_https(view: OperatorView, serve: Serve, tmp_path: Path) -> None:
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


async def test_a_taken_port_is_one_sentence_and_the_demo_takes_the_next(view: OperatorView) -> None:
    servers = Servers()
    port = await servers.listen(health_app(shown(view).pulse), f"127.0.0.1:{free_ports(1)[0]}", "x")
    assert free_port(port) > port
    with pytest.raises(
        Misconfigured, match=rf"^listening on 127.0.0.1:{port}: another process listens there already; set x"
    ):
        await servers.listen(health_app(shown(view).pulse), f"127.0.0.1:{port}", "x")
    await asyncio.wait_for(servers.close(), PATIENCE_SECONDS)


async def test_files_are_packed_for_whom_that_suits(view: OperatorView, serve: Serve) -> None:
    async with serve(main_app(shown(view), None)) as client:
        for accepts, packed in (("gzip, deflate", "gzip"), ("identity", "")):
            async with client.get("/static/app/main.js", headers={"Accept-Encoding": accepts}) as reply:
                assert reply.status == 200
                assert reply.headers.get("Content-Encoding", "") == packed
                assert reply.headers["Content-Type"].startswith("text/javascript")
                assert "import" in await reply.text()


@pytest.mark.parametrize("path", ["../server.py", "app/../../server.py", "%2e%2e/server.py", "app", "app/", "none.js"])
async def test_there_are_no_other_files(view: OperatorView, serve: Serve, path: str) -> None:
    async with serve(main_app(shown(view), None)) as client:
        assert (await text(client, f"/static/{path}"))[0] == 404
