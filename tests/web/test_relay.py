"""The dashboard on a workstation: for one browser only, live, and without a word about the credentials behind it."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from headroom.adapters.kube.config import ClientConfig, Pem
from headroom.adapters.kube.credentials import Credentials
from headroom.adapters.kube.operator_link import OperatorLink
from headroom.model.errors import Misconfigured
from headroom.runtime.clock import RealClock
from headroom.web.listening import Servers
from headroom.web.relay import Relay
from tests.certificates import Authority

TOKEN = "the-secret-token"


class Operator:
    """A server of HTTPS that notes what it is asked."""

    def __init__(self, authority: Authority) -> None:
        self.requests: list[web.Request] = []
        self.headers: list[dict[str, str]] = []
        self.more = asyncio.Event()
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.file)
        self.tls.verify_mode = ssl.CERT_OPTIONAL
        self.tls.load_cert_chain(*authority.server("operator"))
        self.servers = Servers()
        self.port = 0
        self.peers: list[str] = []
        self.known = ""
        """The one token that it knows; empty: all."""

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/api/live/overview", self._live)
        app.router.add_get("/{path:.*}", self._answer)
        self.port = await self.servers.listen(app, f"127.0.0.1:{self.port}", "x", self.tls)

    def _note(self, request: web.Request) -> None:
        self.requests.append(request)
        self.headers.append(dict(request.headers))
        shown = request.get_extra_info("ssl_object").getpeercert() or {}
        self.peers.append(str(shown.get("subject", "")))

    async def _answer(self, request: web.Request) -> web.Response:
        self._note(request)
        if self.known not in request.headers.get("Authorization", ""):
            return web.json_response({"problem": "Who are you?"}, status=401)
        headers = {
            "Set-Cookie": "theirs=1",
            "WWW-Authenticate": "Bearer",
            "X-Kept": "yes",
            "ETag": '"1"',
            "Content-Encoding": "gzip",
        }
        return web.Response(body=b"not decoded", status=418, headers=headers)

    async def _live(self, request: web.Request) -> web.StreamResponse:
        self._note(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b"event: state\ndata: {}\n\n")
        await self.more.wait()
        await response.write(b"event: patch\ndata: {}\n\n")
        return response


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
async def operator(authority: Authority) -> AsyncIterator[Operator]:
    made = Operator(authority)
    await made.start()
    yield made
    made.more.set()
    await made.servers.close()


def way(operator: Operator, authority: Authority) -> ClientConfig:
    server = f"https://127.0.0.1:{operator.port}"
    return ClientConfig(source="a test", server=server, token=TOKEN, authority=Pem("ca", file=authority.file))


@asynccontextmanager
async def relayed(config: ClientConfig) -> AsyncIterator[Relay]:
    link = OperatorLink(config, Credentials(config, RealClock()))
    relay, servers = Relay(link), Servers()
    relay.port = await servers.listen(relay.app(), "127.0.0.1:0", "--port")
    yield relay
    await servers.close()
    await link.close()


@asynccontextmanager
async def browser(relay: Relay, *, enter: bool = True) -> AsyncIterator[aiohttp.ClientSession]:
    jar = aiohttp.CookieJar(unsafe=True)  # so that it keeps cookies of an address without a name
    base = f"http://127.0.0.1:{relay.port}/"
    if enter:
        async with aiohttp.ClientSession(cookie_jar=jar) as first, first.get(relay.address) as reply:
            assert reply.status == 200
            delay, _, folder = reply.headers["Refresh"].partition("; url=./")
            assert (delay, folder[-1]) == ("0", "/")
        base += folder
    async with aiohttp.ClientSession(base, cookie_jar=jar, auto_decompress=False) as made:
        yield made


async def test_the_first_visit_gets_a_cookie_that_scripts_and_other_sites_cannot_use(
    operator: Operator, authority: Authority
) -> None:
    async with relayed(way(operator, authority)) as relay, browser(relay, enter=False) as client:
        async with client.get(relay.address) as reply:
            cookie, folder = reply.headers["Set-Cookie"], reply.headers["Refresh"].partition("url=.")[2]
            assert relay.address.rpartition("=")[2] not in cookie + folder
            assert all(part in cookie for part in ("HttpOnly", "SameSite=Strict", f"Path={folder}"))
        assert (operator.requests, len(folder) > 16) == ([], True)
        async with client.get(folder) as reply:
            assert reply.status == 418
        # A page of another server of this machine, which the browser takes for the same site.
        async with client.get(folder, headers={"Sec-Fetch-Site": "same-site"}) as reply:
            assert reply.status == 403
    # The key has been used.
    async with (
        relayed(way(operator, authority)) as relay,
        browser(relay),
        browser(relay, enter=False) as late,
        late.get(relay.address) as reply,
    ):
        assert reply.status == 403


async def test_only_a_visit_that_shows_the_page_uses_the_key_up(operator: Operator, authority: Authority) -> None:
    async with relayed(way(operator, authority)) as relay, browser(relay, enter=False) as client:
        for method in ("HEAD", "POST", "OPTIONS"):
            async with client.request(method, relay.address) as reply:
                assert (reply.status, "Set-Cookie" in reply.headers) == (403, False)
        assert not relay.entered.is_set()
        async with client.get(relay.address) as reply:
            assert (reply.status, relay.entered.is_set()) == (200, True)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/", {}),
        ("/?key=wrong", {}),
        ("/?key=", {}),
        ("/static/app.js", {}),
        ("/api/overview", {"Cookie": "headroom=wrong"}),
        ("/api/overview?key={key}", {}),
        ("/?key={key}", {"Host": "evil.example.com"}),
        ("/?key={key}", {"Host": "127.0.0.1"}),
        ("/?key={key}", {"Host": "evil.example.com:{port}"}),
    ],
)
async def test_nobody_else_gets_anything(
    operator: Operator, authority: Authority, path: str, headers: dict[str, str]
) -> None:
    async with relayed(way(operator, authority)) as relay, browser(relay, enter=False) as stranger:
        known = {"port": relay.port, "key": relay.address.rpartition("=")[2]}
        sent = {name: value.format(**known) for name, value in headers.items()}
        async with stranger.get(path.format(**known), headers=sent) as reply:
            assert (reply.status, "Set-Cookie" in reply.headers) == (403, False)
            said = await reply.text()
            assert (json.loads(said)["problem"] if path.startswith("/api/") else said).startswith("This")
        # Whoever came with the key after all has not lost it to that.
        async with stranger.get(relay.address) as reply:
            assert reply.status == 200
    assert operator.requests == []


async def test_another_name_of_this_machine_does(operator: Operator, authority: Authority) -> None:
    async with relayed(way(operator, authority)) as relay, browser(relay, enter=False) as client:
        host = {"Host": f"localhost:{relay.port}"}
        async with client.get(relay.address, headers=host) as reply:
            assert reply.status == 200
            folder = reply.headers["Refresh"].partition("url=.")[2]
        async with client.get(folder, headers=host) as reply:
            assert reply.status == 418
        async with client.post(folder, headers=host) as reply:
            assert reply.status == 405, "nothing can be changed here"


async def test_what_passes_and_what_does_not(operator: Operator, authority: Authority) -> None:
    async with relayed(way(operator, authority)) as relay, browser(relay) as client:
        sent = {"Accept": "text/x", "If-None-Match": '"1"', "Authorization": "Bearer theirs", "X-Odd": "1"}
        async with client.get("api/decisions?q=a%20b%26c&since=24h", headers=sent) as reply:
            assert (reply.status, await reply.read()) == (418, b"not decoded")
            assert (reply.headers["X-Kept"], reply.headers["Content-Encoding"]) == ("yes", "gzip")
            assert not {"Set-Cookie", "WWW-Authenticate"} & set(reply.headers)
            assert TOKEN not in str(reply.headers)
        async with client.head("api/overview") as reply:
            assert reply.status == 418
    asked, got = operator.requests[0], operator.headers[0]
    assert asked.rel_url.raw_path_qs == "/api/decisions?q=a%20b%26c&since=24h"
    assert (got["Authorization"], got["Accept"], got["If-None-Match"]) == (f"Bearer {TOKEN}", "text/x", '"1"')
    assert not {"Cookie", "X-Odd"} & set(got)
    assert operator.requests[1].method == "HEAD"


async def test_an_absolute_address_leads_nowhere_else(operator: Operator, authority: Authority) -> None:
    async with relayed(way(operator, authority)) as relay, browser(relay) as client:
        base = client._base_url
        assert base is not None
        [(name, value)] = client.cookie_jar.filter_cookies(base).items()
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        lines = [
            f"GET http://evil.example.com{base.path}x HTTP/1.1",
            f"Host: 127.0.0.1:{relay.port}",
            f"Cookie: {name}={value.value}",
        ]
        writer.write(("\r\n".join(lines) + "\r\nConnection: close\r\n\r\n").encode())
        status = (await reader.read()).split()[1]
        writer.close()
    assert (status, [each.path for each in operator.requests]) == (b"403", [])


async def test_live_pages_pass_piece_by_piece(operator: Operator, authority: Authority) -> None:
    async with (
        relayed(way(operator, authority)) as relay,
        browser(relay) as client,
        client.get("api/live/overview") as reply,
    ):
        assert reply.headers["Content-Type"] == "text/event-stream"
        assert await reply.content.readany() == b"event: state\ndata: {}\n\n"
        operator.more.set()
        assert await reply.content.readany() == b"event: patch\ndata: {}\n\n"


async def test_a_restarted_operator_is_found_again(operator: Operator, authority: Authority) -> None:
    async with relayed(way(operator, authority)) as relay, browser(relay) as client:
        async with client.get("api/live/overview") as cut:
            assert await cut.content.readany()
            await operator.servers.close()
            with pytest.raises(aiohttp.ClientPayloadError):
                await cut.content.read()
        async with client.get("api/overview") as reply:
            problem = (await reply.json())["problem"]
            assert (reply.status, problem.startswith("The operator does not answer: reaching")) == (502, True)
            assert TOKEN not in problem
        async with client.get("./") as reply:
            assert (reply.status, reply.content_type) == (502, "text/plain")
        await operator.start()
        async with client.get("api/overview") as reply:
            assert reply.status == 418


async def test_a_client_certificate_is_shown_to_the_operator(
    operator: Operator, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.client("ada", ["people"])
    pems = Pem("certificate", file=certificate), Pem("key", file=key)
    config = replace(way(operator, authority), token="", certificate=pems[0], key=pems[1])
    async with relayed(config) as relay, browser(relay) as client, client.get("./") as reply:
        assert reply.status == 418
    assert "Authorization" not in operator.headers[0]
    assert "ada" in operator.peers[0]


async def test_an_operator_that_cannot_be_verified_gets_no_token(
    operator: Operator, authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Authority(tmp_path_factory.mktemp("other"))
    config = replace(way(operator, authority), authority=Pem("ca", file=other.file))
    link = OperatorLink(config, Credentials(config, RealClock()))
    with pytest.raises(Misconfigured, match=r"--certificate-authority$"):
        async with link.answer("GET", "/", {}):
            pass
    await link.close()
    assert operator.requests == []


async def test_a_token_that_has_run_out_is_read_anew(authority: Authority, operator: Operator, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    config = replace(way(operator, authority), token="", token_file=file)
    operator.known = "new"
    async with relayed(config) as relay, browser(relay) as client:
        async with client.get("./") as reply:
            assert reply.status == 401
        file.write_text("new")
        async with client.get("./") as reply:
            assert reply.status == 418
    assert [got["Authorization"] for got in operator.headers] == ["Bearer old", "Bearer old", "Bearer new"]
