"""The guard: nobody is let through without leave, and everybody sees their own part only, by token or by certificate."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from headroom.adapters.kube.reviews import RequiredRight, Who
from headroom.model.errors import Misconfigured, Unavailable
from headroom.web import certificate
from headroom.web.access import ACCESS
from headroom.web.guard import METRICS, NODES, Viewer, budgets_in, guard
from headroom.web.listening import Servers
from headroom.web.scope import Access
from tests.certificates import Authority

NAMESPACES = ["lab", "attic", "cellar"]
TURNS = web.AppKey("turns", asyncio.Queue[bool])


class Judge:
    """Knows tokens by their name, and what everybody may."""

    def __init__(self) -> None:
        self.away = False
        self.patience = 1000
        """So many questions are answered, then it is away."""
        self.turns: asyncio.Queue[bool] = asyncio.Queue()
        self.asked: list[str] = []
        self.seen: list[Who] = []
        self.rights: dict[str, set[RequiredRight]] = {
            "scraper": {METRICS},
            "ada": {budgets_in("lab"), budgets_in("attic")},
            "root": {budgets_in(""), NODES},
            "nodewatch": {NODES},
            "bob": set(),
        }

    async def who(self, token: str) -> Who | None:
        self.asked.append(token)
        if self._gone():
            raise Unavailable("creating a TokenReview: cannot reach https://secret-address:6443")
        name = token.removeprefix("t-")
        return Who(token.encode(), name) if name in self.rights else None

    def _gone(self) -> bool:
        self.patience -= 1
        return self.away or self.patience < 0

    async def allowed(self, who: Who, needs: Iterable[RequiredRight]) -> frozenset[RequiredRight]:
        if self._gone():
            raise Unavailable("creating a SubjectAccessReview: cannot reach https://secret-address:6443")
        self.seen.append(who)
        return frozenset(needs) & self.rights.get(who.name, set())


async def _scope(request: web.Request) -> web.Response:
    access: Access = request[ACCESS]
    scope = await access.scope()
    return web.json_response(
        {
            "name": access.name,
            "everything": scope.everything,
            "namespaces": sorted(scope.namespaces),
            "nodes": scope.nodes,
        }
    )


async def _live(request: web.Request) -> web.StreamResponse:
    """One line each time the test says so."""
    response = web.StreamResponse()
    await response.prepare(request)
    while await request.app[TURNS].get():
        scope = await request[ACCESS].scope()
        await response.write(f"{sorted(scope.namespaces)}\n".encode())
    return response


async def _plain(_: web.Request) -> web.Response:
    return web.Response(text="ok")


@asynccontextmanager
async def serving(judge: Judge, tls: certificate.Context | None = None) -> AsyncIterator[str]:
    app = web.Application(middlewares=[guard(judge, lambda: NAMESPACES)])
    app[TURNS] = judge.turns
    app.add_routes([web.get("/", _plain), web.get("/metrics", _plain), web.get("/static/{file}", _plain)])
    app.add_routes([web.get("/api/overview", _scope), web.get("/api/live/overview", _live)])
    app.add_routes([web.get("/new", _plain)])
    servers = Servers()
    port = await servers.listen(app, "127.0.0.1:0", "metrics_address", tls)
    yield f"http{'s' if tls else ''}://127.0.0.1:{port}"
    await servers.close()


def client_tls(pair: tuple[Path, Path] | None = None) -> ssl.SSLContext:
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    if pair:
        tls.load_cert_chain(*pair)
    return tls


async def get(url: str, path: str, authorization: str = "", pair: tuple[Path, Path] | None = None) -> tuple[int, Any]:
    """Status and body; 0 if the connection was refused."""
    headers = {"Authorization": authorization} if authorization else {}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=client_tls(pair))) as client:
        try:
            async with client.get(url + path, headers=headers) as reply:
                is_json = reply.content_type == "application/json"
                return reply.status, await reply.json() if is_json else await reply.text()
        except aiohttp.ClientError:
            return 0, ""


async def test_who_shows_nothing_that_is_known_is_told_how(judge: Judge) -> None:
    async with serving(judge) as url:
        for shown in ("", "Basic dC1hZGE=", "Bearer", "Bearer t-eve"):
            for path in ("/", "/static/app.js", "/metrics", "/api/overview", "/api/live/overview"):
                status, said = await get(url, path, shown)
                assert (status, "Authorization: Bearer TOKEN" in said["problem"]) == (401, True), (path, shown)


@pytest.fixture
def judge() -> Judge:
    return Judge()


@pytest.mark.parametrize(
    ("user", "metrics", "scope"),
    [
        ("scraper", 200, None),
        ("bob", 403, None),
        ("nodewatch", 403, {"everything": False, "namespaces": [], "nodes": True}),
        ("ada", 403, {"everything": False, "namespaces": ["attic", "lab"], "nodes": False}),
        ("root", 403, {"everything": True, "namespaces": [], "nodes": True}),
    ],
)
async def test_everybody_sees_their_part(judge: Judge, user: str, metrics: int, scope: dict[str, Any] | None) -> None:
    async with serving(judge) as url:
        assert (await get(url, "/metrics", f"Bearer t-{user}"))[0] == metrics
        # The page itself holds no data.
        assert await get(url, "/", f"bearer  t-{user}") == (200, "ok")
        assert await get(url, "/static/app.js", f"Bearer t-{user}") == (200, "ok")
        status, said = await get(url, "/api/overview", f"Bearer t-{user}")
        if scope is None:
            assert (status, (await get(url, "/new", f"Bearer t-{user}"))[0]) == (403, 403)
            assert "headroom-view in the namespaces of their team, or to headroom-viewer" in said["problem"]
            assert user in said["problem"]
        else:
            assert (status, said) == (200, {"name": user, **scope})


async def test_nobody_is_asked_about_what_is_not_there(judge: Judge) -> None:
    async with serving(judge) as url:
        assert (await get(url, "/wp-admin", "Bearer t-root"))[0] == 404
        async with aiohttp.ClientSession(url) as client, client.post("/api/overview") as reply:
            assert reply.status == 404
    assert judge.asked == []


async def test_a_silent_api_server_lets_nobody_in_and_tells_strangers_nothing(judge: Judge) -> None:
    judge.away = True
    async with serving(judge) as url:
        status, said = await get(url, "/metrics", "Bearer t-scraper")
    assert (status, "secret-address" in str(said)) == (503, False)


@pytest.mark.parametrize("questions", [0, 1, 2, 3, 4, 5])
async def test_a_server_that_goes_silent_in_the_middle_of_a_request_is_a_sentence_too(
    judge: Judge, questions: int
) -> None:
    judge.patience = questions
    async with serving(judge) as url:
        status, said = await get(url, "/api/overview", "Bearer t-ada")
    assert (status, said["problem"]) == (503, "The API server could not verify who you are; try again.")


async def test_what_is_lost_while_a_page_is_open_is_seen_no_more(judge: Judge) -> None:
    token = {"Authorization": "Bearer t-ada"}
    async with (
        serving(judge) as url,
        aiohttp.ClientSession(url) as client,
        client.get("/api/live/overview", headers=token) as reply,
    ):
        judge.turns.put_nowait(True)
        assert await reply.content.readline() == b"['attic', 'lab']\n"
        judge.rights["ada"] = {budgets_in("attic")}
        judge.turns.put_nowait(True)
        assert await reply.content.readline() == b"['attic']\n"
        del judge.rights["ada"]  # the token itself is revoked
        judge.turns.put_nowait(True)
        assert await reply.content.readline() == b"[]\n"
        judge.turns.put_nowait(False)


# Certificates


@pytest.fixture
def authorities(tmp_path: Path) -> list[Authority]:
    folders = [tmp_path / name for name in ("cluster", "other")]
    for folder in folders:
        folder.mkdir()
    return [Authority(folder) for folder in folders]


@pytest.fixture
def tls(authorities: list[Authority]) -> certificate.Context:
    made = certificate.context("", "", ("headroom",))
    made.trust(authorities[0].file.read_text())
    return made


async def test_a_client_certificate_names_a_user_and_groups(
    judge: Judge, tls: certificate.Context, authorities: list[Authority]
) -> None:
    pair = authorities[0].client("ada", ["team-lab", "people"])
    async with serving(judge, tls) as url:
        status, said = await get(url, "/api/overview", pair=pair)
        assert (status, said["name"], said["namespaces"]) == (200, "ada", ["attic", "lab"])
        assert judge.seen[-1].groups == ("team-lab", "people", "system:authenticated")
        assert judge.asked == [], "no token, no TokenReview"
        # A token speaks louder, even one that nobody knows.
        assert (await get(url, "/api/overview", "Bearer t-root", pair))[1]["name"] == "root"
        assert (await get(url, "/api/overview", "Bearer t-eve", pair))[0] == 401
        assert (await get(url, "/api/overview"))[0] == 401


async def test_certificates_that_are_not_the_clusters_let_nobody_in(
    judge: Judge, tls: certificate.Context, authorities: list[Authority]
) -> None:
    cluster, other = authorities
    expired = cluster.client("ada", [], lifetime=timedelta(minutes=-1))
    nameless = cluster.client("", ["people"])
    async with serving(judge, tls) as url:
        assert (await get(url, "/api/overview", pair=other.client("ada", [])))[0] == 0
        assert (await get(url, "/api/overview", pair=expired))[0] == 0
        assert (await get(url, "/api/overview", pair=cluster.server("ada")))[0] == 0, "it is for servers"
        assert (await get(url, "/api/overview", pair=nameless))[0] == 401
    assert judge.seen == []


async def test_an_authority_that_is_replaced_is_trusted_no_more_not_even_on_open_connections(
    judge: Judge, tls: certificate.Context, authorities: list[Authority]
) -> None:
    cluster, other = authorities
    old, new = cluster.client("ada", []), other.client("root", [])
    connector = aiohttp.TCPConnector(ssl=client_tls(old))
    async with serving(judge, tls) as url, aiohttp.ClientSession(url, connector=connector) as kept:
        async with kept.get("/api/overview") as reply:
            assert (reply.status, (await reply.json())["name"]) == (200, "ada")
        tls.trust(other.file.read_text())
        async with kept.get("/api/overview") as reply:
            assert (reply.status, reply.headers["Connection"]) == (401, "close")
        assert (await get(url, "/api/overview", pair=old))[0] == 0
        assert (await get(url, "/api/overview", pair=new))[1]["name"] == "root"
        assert (await get(url, "/api/overview", "Bearer t-ada"))[0] == 200
        tls.trust("")
        # Nothing is asked of clients then, so a certificate neither helps nor hurts.
        assert (await get(url, "/api/overview", pair=new))[0] == 401
        assert (await get(url, "/api/overview", "Bearer t-ada", new))[0] == 200


async def test_authorities_that_are_none_change_nothing(
    judge: Judge, tls: certificate.Context, authorities: list[Authority]
) -> None:
    with pytest.raises(Misconfigured, match="no PEM certificates in it"):
        tls.trust("-----BEGIN NOTHING-----")
    async with serving(judge, tls) as url:
        assert (await get(url, "/api/overview", pair=authorities[0].client("ada", [])))[0] == 200


async def test_authorities_with_words_of_any_language_beside_them_are_taken(
    judge: Judge, tls: certificate.Context, authorities: list[Authority]
) -> None:
    tls.trust(f"\ufeff# Bücherei, für Ada ✓\n{authorities[1].file.read_text()}# Ende, schön\n")
    async with serving(judge, tls) as url:
        assert (await get(url, "/api/overview", pair=authorities[1].client("ada", [])))[0] == 200
        assert (await get(url, "/api/overview", pair=authorities[0].client("ada", [])))[0] == 0
    with pytest.raises(Misconfigured, match="no PEM certificates in it"):
        tls.trust("Bücher")


async def test_an_authority_between_the_root_and_the_users_is_enough(
    judge: Judge, tls: certificate.Context, authorities: list[Authority], tmp_path: Path
) -> None:
    """As it is for the API server."""
    (tmp_path / "between").mkdir()
    between = Authority(tmp_path / "between", "between", of=authorities[0])
    tls.trust(between.file.read_text())
    async with serving(judge, tls) as url:
        assert (await get(url, "/api/overview", pair=between.client("ada", [])))[0] == 200
        assert (await get(url, "/api/overview", pair=authorities[0].client("ada", [])))[0] == 0


async def test_a_renewed_certificate_of_the_server_keeps_the_trust(
    judge: Judge, tls: certificate.Context, authorities: list[Authority]
) -> None:
    tls.present(certificate.self_signed(("renewed",)))
    async with serving(judge, tls) as url:
        assert (await get(url, "/api/overview", pair=authorities[0].client("ada", [])))[0] == 200


async def test_a_connection_that_outlives_the_certificate_is_nobodys(
    judge: Judge, tls: certificate.Context, authorities: list[Authority], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = UTC) -> Any:
            return datetime.now(tz) + timedelta(days=3)

    connector = aiohttp.TCPConnector(ssl=client_tls(authorities[0].client("ada", [])))
    async with serving(judge, tls) as url, aiohttp.ClientSession(url, connector=connector) as kept:
        async with kept.get("/api/overview") as reply:
            assert (reply.status, (await reply.json())["name"]) == (200, "ada")
        monkeypatch.setattr(certificate, "datetime", Later)
        async with kept.get("/api/overview") as reply:
            assert reply.status == 401


@pytest.mark.parametrize(
    ("name", "tenant"), [("ada", "ada"), ("system:serviceaccount:lab:one", "system:serviceaccount:lab")]
)
async def test_a_viewer_takes_the_share_of_their_tenant(judge: Judge, name: str, tenant: str) -> None:
    judge.rights[name] = {budgets_in("lab")}
    viewer = Viewer(make_mocked_request("GET", "/", {"Authorization": f"Bearer t-{name}"}), judge, lambda: NAMESPACES)
    assert await viewer.scope()
    assert (viewer.name, viewer.tenant) == (name, tenant)
