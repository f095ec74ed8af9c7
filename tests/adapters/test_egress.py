"""The egress guard: hostile addresses reach nobody, what is checked is what is called, and an answer is taken with care."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncIterator, Sequence
from ipaddress import ip_address, ip_network
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from headroom.adapters.egress import LARGEST_ANSWER, Guard, NoAnswer, NotSent, Request, entries, networks, target_of
from headroom.model.errors import HeadroomError, Refused
from tests.adapters import hostile_urls
from tests.adapters.hostile_urls import REBINDING
from tests.adapters.listening import OK, Listening, listening
from tests.certificates import Authority

NAMES = {**REBINDING, "good.example": ("10.9.9.9",)}
LISTED = ("good.example", "*.attacker.example", *(name for name in REBINDING if "attacker" not in name))
SECONDS = 5.0


class Resolver:
    """Answers by a table, or by turns, and counts who asked."""

    def __init__(self, *turns: Sequence[str], **table: tuple[str, ...]) -> None:
        self.turns, self.table, self.asked = list(turns), table, list[str]()

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if self.turns:
            return self.turns.pop(0)
        if host not in self.table:
            raise OSError(-2, "Name or service not known")
        return self.table[host]


@pytest.fixture
async def server() -> AsyncIterator[Listening]:
    async with listening() as found:
        yield found


def everything(port: int) -> str:
    """A list as wide as one can be: all numbers, and many names, by each scheme and port that the addresses have."""
    hosts = ("0.0.0.0/0", "[::]/0", *LISTED)
    return ",".join(
        f"{scheme}{host}{at}" for scheme in ("http://", "https://") for host in hosts for at in ("", f":{port}")
    )


# --- hostile addresses -----------------------------------------------------------------------------------------------------------


def test_there_are_many_of_them() -> None:
    found = [each for group in hostile_urls.urls(8080).values() for each in group]
    assert len(set(found)) == len(found) >= 200


@pytest.mark.parametrize("what", hostile_urls.urls(1))
@pytest.mark.parametrize("allowed", ["everything", "nothing"])
async def test_no_hostile_address_is_reached(what: str, allowed: str, server: Listening) -> None:
    resolver = Resolver(**NAMES)
    listed = entries(everything(server.port) if allowed == "everything" else "")
    guard = Guard(listed, api_server=f"https://{hostile_urls.API_SERVER}:443", resolve=resolver)
    for url in hostile_urls.urls(server.port)[what]:
        with pytest.raises(Refused) as caught:
            await guard.call(Request(url=url, method="POST", body=b"{}"), SECONDS)
        assert str(caught.value).strip(), f"{url!r} is refused without a word"
    assert server.peers == []
    assert allowed == "everything" or resolver.asked == [], "what is not listed is not even looked up"


async def test_the_same_server_is_reached_once_its_number_is_listed(server: Listening) -> None:
    """Or the test above would pass whatever the guard does."""
    listed = f"http://good.example:{server.port},http://127.0.0.1:{server.port},http://[::1]:{server.port}"
    guard = Guard(entries(listed), resolve=Resolver(**{"good.example": ("127.0.0.1", "::1")}))
    for host in ("good.example", "127.0.0.1", "[::1]"):
        answer = await guard.call(Request(url=f"http://{host}:{server.port}/latest"), SECONDS)
        assert (answer.status, answer.body, answer.whole) == (200, b"on", True)
    assert server.peers == ["127.0.0.1", "127.0.0.1", "::1"]
    assert b"host: good.example:" in server.requests[0].lower()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://good.example/", "does not begin with http:// or https://"),
        ("http://ada:word@good.example/", "has a user name in it; credentials belong in a Secret"),
        ("http://good.example/#part", "has a fragment"),
        ("http://good.example/a b", "has characters that are not allowed"),
        ("http://good.example./", "has a host that ends with a dot"),
        ("http://good_example/", "has a host that is neither a plain name nor an IP address"),
        ("http://-good.example/", "has a host that is not a host name"),
        ("http://0x7f.1/", "has an IPv4 address that is not written like 10.0.7.1"),
        ("http://[::1::]/", "has brackets without an IPv6 address"),
        ("http://good.example:0/", "has a port that is not a port number"),
        ("http://good.example/" + "x" * 2048, "is longer than 2048 characters"),
    ],
)
def test_what_is_wrong_with_an_address_is_said_without_the_address(url: str, why: str) -> None:
    with pytest.raises(Refused) as caught:
        target_of(url)
    assert str(caught.value) == f"its address {why}"


@given(st.text(alphabet=st.sampled_from("htps:/.@#?[]%\\\t\n 127.0x1afegoodexmpl１。:-_"), max_size=60))
def test_whatever_is_understood_is_understood_alike_by_others(tail: str) -> None:
    for url in (tail, f"http://{tail}", f"https://good.example{tail}"):
        try:
            target = target_of(url)
        except Refused:
            continue
        for host, port in ((urlsplit(url).hostname, urlsplit(url).port), (URL(url).host, URL(url).explicit_port)):
            assert ip_address(host or "") == target.number if target.number else host == target.host
            assert port in (None, target.port)


# --- what is checked is what is called -----------------------------------------------------------------------------------------------


async def test_a_name_is_looked_up_once_and_its_second_answer_never_counts(server: Listening) -> None:
    resolver = Resolver(("127.0.0.1",), ("127.0.0.2",), ("169.254.169.254",))
    listed = f"http://flip.example:{server.port},http://127.0.0.1:{server.port}"
    guard = Guard(entries(listed), resolve=resolver)
    await guard.call(Request(url=f"http://flip.example:{server.port}/"), SECONDS)
    assert (server.peers, resolver.asked) == (["127.0.0.1"], ["flip.example"])
    with pytest.raises(Refused, match=r"flip.example resolves to 127.0.0.2, which is this machine itself"):
        await guard.call(Request(url=f"http://flip.example:{server.port}/"), SECONDS)
    assert len(server.peers) == 1


@pytest.mark.parametrize(
    ("listed", "number", "refused"),
    [
        ("http://127.0.0.1:{}", "127.0.0.1", ""),
        ("http://127.0.0.0/8:{}", "127.0.0.1", ""),
        ("http://127.0.0.1", "127.0.0.1", "this machine itself"),  # another port
        ("https://127.0.0.1:{}", "127.0.0.1", "this machine itself"),  # another scheme
        ("http://127.0.0.2:{}", "127.0.0.1", "this machine itself"),
        ("http://0.0.0.0/0:{}", "127.0.0.1", "this machine itself"),
        ("http://126.0.0.0/7:{}", "127.0.0.1", "this machine itself"),
        ("http://169.254.0.0/16:{}", "169.254.169.254", "the cloud's metadata service"),
        ("http://[64:ff9b::]/96:{}", "64:ff9b::7f00:1", "this machine itself"),
        ("http://10.96.0.0/16:{}", "10.96.0.1", "the API server"),
    ],
)
async def test_a_special_number_must_be_meant(server: Listening, listed: str, number: str, refused: str) -> None:
    allowed = entries(f"http://good.example:{server.port},{listed.format(server.port)}")
    resolver = Resolver(**{"good.example": (number,), "api.example": ("10.96.0.1",)})
    guard = Guard(allowed, api_server="https://api.example:6443", resolve=resolver)
    asking = guard.call(Request(url=f"http://good.example:{server.port}/"), SECONDS)
    if not refused:
        assert (await asking).status == 200
        return
    entry = f"http://[{number}]:{server.port}" if ":" in number else f"http://{number}:{server.port}"
    with pytest.raises(Refused) as caught:
        await asking
    assert f"resolves to {number}, which is {refused}" in str(caught.value)
    assert f"only the entry {entry} in --allow-egress (HEADROOM_ALLOW_EGRESS) allows that" in str(caught.value)


async def test_the_api_server_is_called_where_it_is_meant(server: Listening) -> None:
    listed = entries(f"http://127.0.0.1:{server.port}")
    guard = Guard(listed, api_server=f"https://127.0.0.1:{server.port}")
    assert (await guard.call(Request(url=f"http://127.0.0.1:{server.port}/"), SECONDS)).status == 200
    # One whose own name cannot be found is not in the way of others.
    guard = Guard(listed, api_server="https://gone.example", resolve=Resolver())
    assert (await guard.call(Request(url=f"http://127.0.0.1:{server.port}/"), SECONDS)).status == 200


def test_every_special_network_is_refused_at_its_edges() -> None:
    for network, what in networks._SPECIAL:
        for number in (network.network_address, network.broadcast_address):
            assert what in {why for _, why in networks.special(number)}
    ordinary = (
        "10.0.7.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "93.184.216.34",
        "fd00:7::1",
        "2606:4700::1111",
        "64:ff9b::a00:701",
    )
    assert [each for each in ordinary if networks.special(ip_address(each))] == []
    assert not networks.lies_within(ip_network("10.0.0.0/8"), ip_network("::/0"))


async def test_nothing_in_the_environment_turns_a_call_elsewhere(
    server: Listening, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".netrc").write_text("machine good.example login ada password canary\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{server.port}")
    guard = Guard(entries("http://good.example,http://127.0.0.9"), resolve=Resolver(**{"good.example": ("127.0.0.9",)}))
    with pytest.raises(NotSent, match=r"cannot connect to good\.example"):
        await guard.call(Request(url="http://good.example/"), SECONDS)
    assert server.peers == []


async def test_the_certificate_must_be_for_the_name_and_the_name_is_sent(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.server("power-api")
    seen: list[str | None] = []
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.load_cert_chain(certificate, key)
    ours.sni_callback = lambda _socket, name, _context: seen.append(name)
    assert "localhost" in x509.load_pem_x509_certificate(certificate.read_bytes()).extensions.get_extension_for_class(
        x509.SubjectAlternativeName
    ).value.get_values_for_type(x509.DNSName)
    trusting = ssl.create_default_context(cafile=authority.file)
    async with listening(ours) as server:
        listed = f"https://localhost:{server.port},https://other.example:{server.port},https://127.0.0.1:{server.port}"
        resolver = Resolver(**{"localhost": ("127.0.0.1",), "other.example": ("127.0.0.1",)})
        guard = Guard(entries(listed), resolve=resolver)
        asked = Request(url=f"https://localhost:{server.port}/", tls=trusting)
        assert (await guard.call(asked, SECONDS)).status == 200
        assert seen == ["localhost"]
        for url, tls in ((asked.url, None), (f"https://other.example:{server.port}/", trusting)):
            with pytest.raises(NotSent, match=r"the certificate of \S+ is not trusted"):
                await guard.call(Request(url=url, tls=tls), SECONDS)
        assert len(server.requests) == 1
        await asyncio.sleep(0.2)  # both ends of a TLS connection say goodbye


# --- answers ---------------------------------------------------------------------------------------------------------------------


def local(server: Listening) -> tuple[Guard, Request]:
    guard = Guard(entries(f"http://127.0.0.1:{server.port}"))
    return guard, Request(url=f"http://127.0.0.1:{server.port}/x?y=%7a", method="POST", body=b"{}")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_no_redirect_is_followed(server: Listening, status: int) -> None:
    guard, request = local(server)
    server.answer = f"HTTP/1.1 {status} Elsewhere\r\nLocation: http://127.0.0.1:{server.port}/there\r\nContent-Length: 0\r\n\r\n".encode()
    assert (await guard.call(request, SECONDS)).status == status
    assert len(server.requests) == 1
    assert server.requests[0].startswith(b"POST /x?y=%7a HTTP/1.1\r\n")


async def test_only_so_much_of_an_answer_is_read(server: Listening) -> None:
    guard, request = local(server)
    server.answer = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + b"x" * (50 * LARGEST_ANSWER)
    answer = await guard.call(request, SECONDS)
    assert (answer.status, len(answer.body), answer.whole) == (200, LARGEST_ANSWER, False)


async def test_nothing_is_unpacked_and_no_cookie_comes_back(server: Listening) -> None:
    guard, request = local(server)
    packed = gzip.compress(b"on" * 10_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nSet-Cookie: canary=1\r\nContent-Length: %d\r\n\r\n" % len(
        packed
    )
    server.answer = head + packed
    for _ in range(2):
        answer = await guard.call(request, SECONDS)
        assert answer.body == packed
    assert all(b"canary" not in each for each in server.requests)
    assert b"accept-encoding: identity" in server.requests[0].lower()


async def test_an_answer_that_breaks_off_is_still_an_answer(server: Listening) -> None:
    guard, request = local(server)
    server.answer = b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\nhalf"
    answer = await guard.call(request, SECONDS)
    assert (answer.status, answer.body, answer.whole) == (202, b"half", False)
    server.answer, server.trickle = OK, 30.0
    answer = await guard.call(request, 0.3)
    assert (answer.status, answer.body, answer.whole) == (200, b"", False)


async def test_silence_after_the_request_is_told_from_silence_before_it(server: Listening) -> None:
    guard, request = local(server)
    server.pause = 30.0
    with pytest.raises(NoAnswer, match=r"127\.0\.0\.1 did not answer within 0\.3s"):
        await guard.call(request, 0.3)
    server.hang_up = True
    with pytest.raises(NoAnswer, match=r"the connection to 127\.0\.0\.1 broke"):
        await guard.call(request, SECONDS)
    assert len(server.requests) == 2

    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(30)
        return ()

    guard = Guard(entries("http://good.example"), resolve=never)
    with pytest.raises(NotSent, match=r"good\.example did not answer"):
        await guard.call(Request(url="http://good.example/"), 0.05)


async def test_what_cannot_be_found_or_reached_was_not_sent() -> None:
    guard = Guard(entries("http://gone.example,http://empty.example,http://127.0.0.1:1"), resolve=Resolver((), ()))
    with pytest.raises(NotSent, match=r"cannot resolve empty\.example"):
        await guard.call(Request(url="http://empty.example/"), SECONDS)
    guard = Guard(entries("http://gone.example,http://127.0.0.1:1"), resolve=Resolver())
    with pytest.raises(NotSent, match=r"cannot resolve gone\.example: Name or service not known"):
        await guard.call(Request(url="http://gone.example/"), SECONDS)
    with pytest.raises(NotSent, match=r"cannot connect to 127\.0\.0\.1: .*onnect"):
        await guard.call(Request(url="http://127.0.0.1:1/"), SECONDS)


async def test_names_are_looked_up_by_the_machine_unless_somebody_else_does() -> None:
    guard = Guard(entries("http://localhost:1,http://127.0.0.0/8:1,http://[::1]:1"))
    with pytest.raises(NotSent, match="cannot connect to localhost"):
        await guard.call(Request(url="http://localhost:1/"), SECONDS)
    guard.close()


async def test_a_header_that_none_may_be_is_not_sent(server: Listening) -> None:
    guard, _ = local(server)
    with pytest.raises(HeadroomError) as caught:
        await guard.call(
            Request(url=f"http://127.0.0.1:{server.port}/", headers={"x": "canary\r\nHost: elsewhere"}), SECONDS
        )
    assert "canary" not in str(caught.value)
    assert server.requests == []
