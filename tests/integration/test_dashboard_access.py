"""Who sees what on a real API server, and `headroom dashboard`, which leads there through a real port-forward.

KWOK plays the kubelet with the kubelet's own code for port-forwards; the operator runs beside it with just the rights of deploy/.
"""

import asyncio
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from headroom.adapters.kube import config
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.http import HttpTransport
from headroom.adapters.kube.reviews import ALLOWED_SECONDS, Reviews
from headroom.adapters.kube.tls import tls_context
from headroom.api import generate
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from headroom.runtime.clock import RealClock
from headroom.web.access import ACCESS
from headroom.web.guard import guard
from headroom.web.listening import Servers
from tests.control_plane import ControlPlane, find_assets, lacking, wait_until
from tests.processes import PATIENCE_SECONDS, free_ports

PARTS = ("kwok",)
SYSTEM = "headroom-system"
TEAMS = ("team-a", "team-b")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
PROGRAM = [sys.executable, "-m", "headroom"]
EVERYTHING = {"team-a/gpus", "team-b/gpus"}


def budget(team: str) -> dict[str, Any]:
    return {
        "apiVersion": "headroom.dev/v1alpha1",
        "kind": "GPUWorkloadBudget",
        "metadata": {"name": "gpus", "namespace": team},
        "spec": {
            "selector": {"matchLabels": {"team": team}},
            "quota": {"gpuHours": "10", "windowHours": 24},
            "enforcement": {"action": "AlertOnly"},
        },
    }


def pod(name: str, namespace: str, labels: dict[str, str], **container: Any) -> dict[str, Any]:
    spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "none"} | container]}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Stage:
    """A control plane with two teams, their people, and an operator that can be started and ended."""

    def __init__(self, plane: ControlPlane, port: int, folder: Path) -> None:
        self.plane, self.port, self._folder = plane, port, folder
        self._process: subprocess.Popen[bytes] | None = None
        self.people: dict[str, Path] = {"admin": plane.kubeconfig("admin")}

    def prepare(self) -> None:
        plane = self.plane
        plane.apply(*(crd(kind) for kind in DEFINITIONS.values()))
        for file in ("rbac.yaml", "roles.yaml"):
            plane.kubectl("apply", "-f", str(generate.ROOT / "deploy" / file))
        for team in TEAMS:
            plane.kubectl("create", "namespace", team)
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=300s")
        plane.add_node("n1", {"nvidia.com/gpu": "8"})
        plane.kubectl("wait", "--for=condition=Ready", "node/n1", "--timeout=300s")
        limits = {"limits": {"nvidia.com/gpu": "1"}}
        ports = [{"name": "metrics", "containerPort": 9}, {"name": "https", "containerPort": 9443}]
        wait_until(self._takes_budgets, "the API server takes budgets")
        plane.apply(*(pod("train", team, {"team": team}, resources=limits) for team in TEAMS))
        plane.apply(pod("headroom-0", SYSTEM, {"app.kubernetes.io/name": "headroom"}, ports=ports))
        plane.kubectl("wait", "--for=condition=Ready", "pod", "--all", "-A", "--timeout=300s")
        self._invite()

    def _takes_budgets(self) -> bool:
        try:
            self.plane.apply(*map(budget, TEAMS))
        except Exception:  # noqa: BLE001  the server learns of a kind a moment after it has established it
            return False
        return True

    def _invite(self) -> None:
        """Two teams by service account, a member of team-b by certificate, somebody without rights, one who may only find the pod."""
        plane = self.plane
        for team in TEAMS:
            self.people[team] = plane.account_kubeconfig("viewer", team)
            self.bind(team, "headroom-view", f"--serviceaccount={team}:viewer")
        self.people["carol"] = plane.certificate_kubeconfig("carol", ["people-of-b"])
        self.bind("team-b", "headroom-view", "--group=people-of-b", name="people")
        self.people["stranger"] = plane.account_kubeconfig("default", "team-a")
        self.people["finder"] = plane.account_kubeconfig("finder", "team-b")
        finder = ("role", "finder", "--verb=list", "--resource=pods", "--namespace", SYSTEM)
        plane.kubectl("create", *finder)
        plane.kubectl(
            "create", "rolebinding", "finder", "--role=finder", "--serviceaccount=team-b:finder", "--namespace", SYSTEM
        )
        accounts = [f"--serviceaccount={team}:viewer" for team in TEAMS]
        self.bind(SYSTEM, "headroom-dashboard", *accounts, "--user=carol")
        plane.kubectl("create", "clusterrolebinding", "auditor", "--clusterrole=headroom-viewer", "--user=auditor")
        self.people["auditor"] = plane.certificate_kubeconfig("auditor")
        plane.kubectl("create", "clusterrole", "nodes", "--verb=list", "--resource=nodes")
        plane.kubectl("create", "clusterrolebinding", "nodes", "--clusterrole=nodes", "--user=nodewatch")
        self.people["nodewatch"] = plane.certificate_kubeconfig("nodewatch")

    def bind(self, namespace: str, role: str, *subjects: str, name: str = "") -> None:
        made = ("create", "rolebinding", name or role, f"--clusterrole={role}", "--namespace", namespace)
        self.plane.kubectl(*made, *subjects)

    def start(self) -> None:
        """The operator, as the service account of deploy/rbac.yaml."""
        kubeconfig = self.plane.account_kubeconfig("headroom", SYSTEM)
        flags = ["--kubeconfig", str(kubeconfig), "--metrics-address", f"127.0.0.1:{self.port}", "--health-address", ""]
        flags += ["--identity", "headroom-0"]  # of another host than this one, as in a pod
        command = [*PROGRAM, "run", *flags, "--state-dir", str(self._folder)]
        with (self._folder / "operator.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=ENVIRONMENT)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_SECONDS)
            self._process = None

    def log(self) -> str:
        return (self._folder / "operator.log").read_text()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    assets = find_assets()
    if why := lacking(assets, PARTS):
        pytest.skip(why)
    [port] = free_ports(1)
    with ControlPlane(assets, components=PARTS, forwards={9443: port}) as plane:
        made = Stage(plane, port, tmp_path_factory.mktemp("operator"))
        made.prepare()
        made.start()
        try:
            wait_until(lambda: "the view is complete" in made.log(), "the operator sees the cluster")
            yield made
        finally:
            made.end(signal.SIGKILL)


class Person:
    """Somebody who asks the operator directly, with what their kubeconfig has."""

    def __init__(self, stage: Stage, kubeconfig: Path) -> None:
        known = config.load(str(kubeconfig))
        self._headers = {"Authorization": f"Bearer {known.token}"} if known.token else {}
        # Made for the API server, it has the person's certificate; the operator's own is one that nobody can verify.
        tls = tls_context(known)
        assert tls is not None
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        self._connector = aiohttp.TCPConnector(ssl=tls)
        self._url = f"https://127.0.0.1:{stage.port}"

    async def __aenter__(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(self._url, connector=self._connector, headers=self._headers)
        return self._session

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()
        # aiohttp does not wait for the farewell of TLS; without it a socket may outlive the test's loop.
        await asyncio.sleep(0.25)


async def json_of(client: aiohttp.ClientSession, path: str) -> tuple[int, Any]:
    async with client.get(path) as reply:
        return reply.status, json.loads(await reply.read())


async def first_event(client: aiohttp.ClientSession, path: str) -> tuple[str, Any]:
    """The first event of a live page, and its data."""
    async with client.get(path) as reply:
        assert reply.status == 200, await reply.text()
        name = ""
        async for line in reply.content:
            if line.startswith(b"event: "):
                name = line.removeprefix(b"event: ").decode().strip()
            if line.startswith(b"data: "):
                return name, json.loads(line.removeprefix(b"data: "))
    raise AssertionError("the stream ended without an event")


@pytest.mark.parametrize(
    ("person", "name", "budgets", "nodes"),
    [
        ("team-a", "system:serviceaccount:team-a:viewer", {"team-a/gpus"}, False),
        ("team-b", "system:serviceaccount:team-b:viewer", {"team-b/gpus"}, False),
        ("carol", "carol", {"team-b/gpus"}, False),
        ("auditor", "auditor", EVERYTHING, True),
        ("admin", "admin", EVERYTHING, True),
    ],
)
async def test_everybody_sees_what_their_rights_say(
    stage: Stage, person: str, name: str, budgets: set[str], nodes: bool
) -> None:
    hidden = EVERYTHING - budgets
    async with Person(stage, stage.people[person]) as client:
        status, overview = await json_of(client, "/api/overview")
        assert (status, set(overview["budgets"])) == (200, budgets)
        assert overview["viewer"]["name"] == name
        assert overview["viewer"]["everything"] == (not hidden)
        assert ("fleet" in overview) == (not hidden)
        event, live = await first_event(client, "/api/live/overview")
        assert (event, set(live["budgets"])) == ("state", budgets)
        for each in EVERYTHING:
            assert (await json_of(client, f"/api/budgets/{each}"))[0] == (200 if each in budgets else 404)
        _, decisions = await json_of(client, "/api/decisions")
        assert {each["namespace"] for each in decisions["entries"].values()} == {each.split("/")[0] for each in budgets}
        everything_said = json.dumps([overview, live, decisions])
        assert not [each for each in hidden if each.split("/")[0] in everything_said]
        status, seen = await json_of(client, "/api/nodes")
        pods = {each.get("pod") for node in seen.get("nodes", {}).values() for each in node.get("pods", [])}
        if nodes:
            assert (status, {"team-a/train", "team-b/train"} <= pods) == (200, True)
        else:
            assert not pods & {f"{team}/train" for team in TEAMS if f"{team}/gpus" in hidden}


async def test_who_may_only_list_nodes_sees_them_without_names_of_pods(stage: Stage) -> None:
    async with Person(stage, stage.people["nodewatch"]) as client:
        status, seen = await json_of(client, "/api/nodes")
        assert (status, list(seen["nodes"])) == (200, ["n1"])
        event, live = await first_event(client, "/api/live/nodes")
        assert (event, list(live["nodes"])) == ("state", ["n1"])
        status, overview = await json_of(client, "/api/overview")
        assert (status, overview["budgets"]) == (200, {})
        everything_said = json.dumps([seen, live, overview])
        assert not [name for name in (*TEAMS, "train") if name in everything_said]
        assert (await json_of(client, "/api/budgets/team-a/gpus"))[0] == 404


async def test_strangers_see_nothing(stage: Stage) -> None:
    async with Person(stage, stage.people["stranger"]) as client:
        for path in ("/api/overview", "/api/live/overview", "/api/budgets/team-a/gpus"):
            status, said = await json_of(client, path)
            assert (status, "system:serviceaccount:team-a:default" in said["problem"]) == (403, True)
        assert (await json_of(client, "/metrics"))[0] == 403
        async with client.get("/") as reply:
            assert reply.status == 200, "the page itself holds no data"
        for shown in ("Bearer made-up", "Basic YTpi"):
            async with client.get("/api/overview", headers={"Authorization": shown}) as reply:
                assert (reply.status, reply.headers["WWW-Authenticate"]) == (401, "Bearer")
    log = stage.log()
    assert not [word for word in ("made-up", "forbidden", "client certificates are not taken") if word in log]


class MovedClock(RealClock):
    """The time, and a while on top of it."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


async def test_a_right_that_is_taken_away_is_gone_within_a_minute(stage: Stage) -> None:
    """The guard alone, on the real API server, with a clock that need not be waited for."""
    clock = MovedClock()
    kube = Kube(HttpTransport(config.load(str(stage.people["admin"])), clock), clock)
    account = stage.plane.account_kubeconfig("passing", "team-a")
    stage.bind("team-a", "headroom-view", "--serviceaccount=team-a:passing", name="passing")

    async def scope(request: web.Request) -> web.Response:
        return web.json_response(sorted((await request[ACCESS].scope()).namespaces))

    app = web.Application(middlewares=[guard(Reviews(kube, clock), lambda: TEAMS)])
    app.router.add_get("/api/scope", scope)
    servers = Servers()
    port = await servers.listen(app, "127.0.0.1:0", "x")
    token = {"Authorization": f"Bearer {config.load(str(account)).token}"}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", headers=token) as client:
        for _ in range(1200):  # the grant reaches the API server's authorizer in its own time
            clock.ahead += ALLOWED_SECONDS
            found = await json_of(client, "/api/scope")
            if found[0] == 200:
                break
            await asyncio.sleep(0.1)
        assert found == (200, ["team-a"])
        await asyncio.to_thread(stage.plane.kubectl, "delete", "rolebinding", "passing", "--namespace", "team-a")
        assert await json_of(client, "/api/scope") == (200, ["team-a"]), "remembered"
        for _ in range(1200):
            clock.ahead += ALLOWED_SECONDS
            found = await json_of(client, "/api/scope")
            if found[0] == 403:
                break
            await asyncio.sleep(0.1)
        assert found[0] == 403
        await asyncio.to_thread(stage.plane.kubectl, "delete", "serviceaccount", "passing", "--namespace", "team-a")
        clock.ahead += ALLOWED_SECONDS
        for _ in range(1200):  # the API server remembers tokens for ten seconds itself
            clock.ahead += ALLOWED_SECONDS
            found = await json_of(client, "/api/scope")
            if found[0] == 401:
                break
            await asyncio.sleep(0.1)
        assert found[0] == 401
    await servers.close()
    await kube.close()


# The dashboard on a workstation


@contextmanager
def dashboard(kubeconfig: Path, *flags: str) -> Iterator[str]:
    """`headroom dashboard`, and the address that it printed."""
    command = [*PROGRAM, "dashboard", "--no-open", "--kubeconfig", str(kubeconfig), *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline().strip()
            assert said.startswith("The dashboard is at http://127.0.0.1:"), said
            yield said.rpartition(" ")[2]
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()


@asynccontextmanager
async def browser(address: str) -> AsyncIterator[aiohttp.ClientSession]:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as first, first.get(address) as reply:
        assert reply.status == 200
        folder = reply.headers["Refresh"].partition("url=./")[2]
    async with aiohttp.ClientSession(address.partition("?")[0] + folder, cookie_jar=jar) as client:
        yield client


@pytest.mark.parametrize(
    ("person", "budgets"), [("team-a", {"team-a/gpus"}), ("carol", {"team-b/gpus"}), ("admin", EVERYTHING)]
)
async def test_the_dashboard_comes_through_the_api_server(stage: Stage, person: str, budgets: set[str]) -> None:
    with dashboard(stage.people[person]) as address:
        async with aiohttp.ClientSession() as stranger, stranger.get(address.partition("?")[0]) as reply:
            assert reply.status == 403
        async with browser(address) as client:
            async with client.get("./") as reply:
                assert (reply.status, reply.content_type) == (200, "text/html")
                assert "Content-Security-Policy" in reply.headers
            seen = await asyncio.gather(*(json_of(client, "api/overview") for _ in range(8)))
            assert all((status, set(said["budgets"])) == (200, budgets) for status, said in seen)
            event, live = await first_event(client, "api/live/overview")
            assert (event, set(live["budgets"])) == ("state", budgets)


async def test_the_dashboard_outlives_the_operator(stage: Stage) -> None:
    with dashboard(stage.people["team-a"]) as address:
        async with browser(address) as client:
            async with client.get("api/live/overview") as cut:
                assert await cut.content.readline()
                await asyncio.to_thread(stage.end)
                try:
                    await cut.content.read()
                except aiohttp.ClientPayloadError:
                    print("cut off, as it should be; a stream that was ended in good order is as well")
            status, said = await json_of(client, "api/overview")
            assert status == 502
            assert said["problem"].startswith("The operator does not answer: reaching the operator")
            assert "connection refused" in said["problem"]
            stage.start()
            for _ in range(1200):
                status, said = await json_of(client, "api/overview")
                if status == 200 and said["budgets"]:
                    break
                await asyncio.sleep(0.1)
            assert (status, set(said["budgets"])) == (200, {"team-a/gpus"})


async def test_a_certificate_authority_that_did_not_sign_the_operators_certificate_is_refused(stage: Stage) -> None:
    said = await asyncio.to_thread(refused, stage.people["admin"], "--certificate-authority", str(stage.plane.ca_file))
    assert said.endswith("give the authority that signed it with --certificate-authority")


def refused(kubeconfig: Path, *flags: str) -> str:
    """The sentence of a dashboard that cannot be had."""
    command = [*PROGRAM, "dashboard", "--no-open", "--kubeconfig", str(kubeconfig), *flags]
    done = subprocess.run(
        command, capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE_SECONDS, check=False
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    [said] = done.stderr.splitlines()
    return said


def test_what_is_missing_is_one_sentence(stage: Stage, tmp_path: Path) -> None:
    said = refused(stage.people["stranger"])
    assert (
        "you may not list its pods; have an administrator bind you there to the ClusterRole headroom-dashboard" in said
    )
    said = refused(stage.people["finder"])
    assert "you may not get and create pods/portforward in namespace headroom-system" in said
    said = refused(stage.people["admin"], "--operator-namespace", "team-a")
    assert (
        "no pod has the label app.kubernetes.io/name=headroom; give the operator's namespace with --operator-namespace"
        in said
    )
    gone = tmp_path / "gone"
    [port] = free_ports(1)
    gone.write_text(stage.people["admin"].read_text().replace(stage.plane.url, f"https://127.0.0.1:{port}"))
    assert f"cannot reach https://127.0.0.1:{port}" in refused(gone)
    said = refused(stage.people["admin"], "--port", str(stage.port))
    assert f"listening on 127.0.0.1:{stage.port}: another process listens there already" in said


def test_one_who_reaches_it_but_may_see_nothing_is_told_what_helps(stage: Stage) -> None:
    account = stage.plane.account_kubeconfig("reacher", "team-a")
    stage.bind(SYSTEM, "headroom-dashboard", "--serviceaccount=team-a:reacher", name="reacher")

    def told() -> bool:
        said = refused(account)
        return "reacher may list gpuworkloadbudgets.headroom.dev; bind them to the ClusterRole headroom-view" in said

    wait_until(told, "the grant is at work, and the operator says no")
