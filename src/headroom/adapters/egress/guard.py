"""Makes calls, each to the numbers that were checked for it and to no others.

A name is looked up once. If any number that it stands for may not be called, none is. No proxy, no redirect, no cookie, no
decompression; one deadline over everything, and at most so much of an answer is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address, ip_network
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection
from msgspec import Struct
from yarl import URL

import headroom
from headroom.adapters.egress.entries import SETTING, EgressEntry
from headroom.adapters.egress.networks import Network, Number, lies_within, special
from headroom.adapters.egress.targets import EgressTarget, datagram_to, number_of, spelled, target_of
from headroom.model.errors import Refused, Unavailable

LARGEST_ANSWER: Final = 64 * 1024
RECEIVE_BUFFER: Final = 16 * 1024
"""Of the kernel for one call: so much is read at once, whoever floods us."""
MOST_INTERIM: Final = 8
"""Answers before the answer, such as 100 and 103: nobody needs many."""
LOOKUPS: Final = 24
"""At once; each holds a thread until the name server answers or gives up."""

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""All numbers of a name, as text."""


class NotSent(Unavailable):
    """Nobody could be reached: surely nothing was done."""


class NoAnswer(Unavailable):
    """The request went out and no answer came: whether it was done, only its target can tell."""


class Request(Struct, frozen=True, kw_only=True):
    """One call."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = {}
    body: bytes = b""
    tls: ssl.SSLContext | None = None
    """How the other side proves who it is; None: by a certificate that this machine trusts."""


class HttpResponse(Struct, frozen=True, kw_only=True):
    """What came back. A redirect is an answer like any other."""

    status: int
    body: bytes = b""
    whole: bool = True
    """False: there was more than is ever read, or it broke off."""


class Guard:
    """Whoever calls an address from a resource asks here."""

    def __init__(self, allowed: Sequence[EgressEntry], *, api_server: str = "", resolve: Resolve | None = None) -> None:
        """`api_server` is the URL of the API server, which is not called on somebody else's word either."""
        self._allowed = tuple(allowed)
        self._api_server = urlsplit(api_server).hostname or ""
        self._api_known: frozenset[Number] = frozenset()
        self._executor = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="name lookup")
        self._resolve = resolve or self._look_up

    async def call(self, request: Request, seconds: float) -> HttpResponse:
        """Make a call. Raises `Refused` if it is not allowed, `NotSent` or `NoAnswer`; nothing else."""
        target = target_of(request.url)
        deadline = asyncio.get_running_loop().time() + seconds
        sent = asyncio.Event()
        with _explained(target, seconds, sent):
            async with asyncio.timeout_at(deadline):
                numbers = await self._checked(target)
            return await _exchange(request, target, numbers, sent, deadline)

    async def send(self, number: str, port: int, packet: bytes) -> None:
        """Send one datagram, as Wake-on-LAN does. Raises `Refused` or `NotSent`."""
        target = datagram_to(number, port)
        entries = self._entries(target)
        _check_listed(target, entries)
        assert target.number is not None
        _check_special(target, target.number, special(target.number), entries)
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
                await asyncio.get_running_loop().sock_sendto(sender, packet, (target.host, port))
        except OSError as problem:
            raise NotSent(f"cannot send to {target.host}: {problem.strerror or problem}") from problem

    def protect(self, api_server: Iterable[str]) -> None:
        """From now on these numbers are the API server's too, beside those of its configured address."""
        self._api_known = frozenset(known for each in api_server if (known := number_of(each)) is not None)

    def close(self) -> None:
        """End the threads."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    # What may be called

    async def _checked(self, target: EgressTarget) -> list[Number]:
        """The numbers to connect to. Raises `Refused` if the target is not listed, or one of its numbers is special."""
        entries = self._entries(target)
        _check_listed(target, entries)
        numbers = [target.number] if target.number else await self._numbers(target.host, target.port)
        api_server = await self._api_numbers(target)
        for number in numbers:
            ours = ((ip_network(number), "the API server"),) if number in api_server else ()
            _check_special(target, number, (*special(number), *ours), entries)
        return numbers

    def _entries(self, target: EgressTarget) -> list[EgressEntry]:
        return [each for each in self._allowed if each.is_for(target.scheme, target.port)]

    # What names stand for

    async def _numbers(self, host: str, port: int) -> list[Number]:
        """Every number of a name, in the order of the name server."""
        try:
            found = await self._resolve(host, port)
        except OSError as problem:
            raise NotSent(f"cannot resolve {host}: {problem.strerror or problem}") from problem
        numbers = list(dict.fromkeys(ip_address(each.partition("%")[0]) for each in found))
        if not numbers:
            raise NotSent(f"cannot resolve {host}")
        return numbers

    async def _api_numbers(self, target: EgressTarget) -> frozenset[Number]:
        if not self._api_server:
            return self._api_known
        known = number_of(self._api_server)
        if known is not None:
            return self._api_known | {known}
        try:
            return self._api_known | {*await self._numbers(self._api_server, target.port)}
        except NotSent:
            return self._api_known  # whatever it is called elsewhere, nobody reaches it by this name

    async def _look_up(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(
            self._executor, lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        )
        return [str(address[0]) for *_, address in found]


def _check_listed(target: EgressTarget, entries: Sequence[EgressEntry]) -> None:
    number = target.number
    # A name is listed by its name, a number by its number: what a name stands for today is no reason to call it tomorrow.
    if not any(each.has_number(number) if number else each.has_name(target.host) for each in entries):
        raise Refused(f"calls to {target.entry} are not allowed; an administrator can allow them in {SETTING}")


def _check_special(
    target: EgressTarget, number: Number, why: Sequence[tuple[Network, str]], entries: Sequence[EgressEntry]
) -> None:
    """An entry that means a special network by its number allows it; a wider one, such as all numbers, does not."""
    listed = [each.network for each in entries if each.network is not None and number in each.network]
    for network, what in why:
        if not any(lies_within(each, network) for each in listed):
            entry = spelled(target.scheme, str(number), target.port)
            stands = "is" if target.number == number else f"resolves to {number}, which is"
            raise Refused(f"{target.host} {stands} {what}; only the entry {entry} in {SETTING} allows that")


# --- one exchange ---------------------------------------------------------------------------------------------------------------


class _Pinned(AbstractResolver):
    """Knows one name, and only the numbers that were checked for it."""

    def __init__(self, target: EgressTarget, numbers: Sequence[Number]) -> None:
        self._target, self._numbers = target, numbers

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,  # noqa: ARG002  our connector takes either
    ) -> list[ResolveResult]:
        if host != self._target.host:
            raise OSError(f"{host} was not checked")
        return [
            ResolveResult(
                hostname=host,
                host=str(each),
                port=port,
                family=socket.AF_INET if each.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for each in self._numbers
        ]

    async def close(self) -> None:
        """Nothing is held."""


def _small_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    made = socket.socket(*address[:3])
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    return made


class _Brief(aiohttp.ClientResponse):
    """An answer that comes soon: the library would read any number of interim ones before it."""

    async def start(self, connection: Connection) -> aiohttp.ClientResponse:
        """Read up to the headers of the answer."""
        protocol = connection.protocol
        assert protocol is not None
        read, left = protocol.read, MOST_INTERIM + 1

        async def few() -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise aiohttp.ClientPayloadError("too many interim answers")
            return await read()

        protocol.read = few  # type: ignore[method-assign]  # the connection serves this one call
        return await super().start(connection)


async def _exchange(
    request: Request, target: EgressTarget, numbers: Sequence[Number], sent: asyncio.Event, deadline: float
) -> HttpResponse:
    # One for each call: nothing of one, be it a cookie or a connection, is there for the next.
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(
            resolver=_Pinned(target, numbers), use_dns_cache=False, socket_factory=_small_socket
        ),
        response_class=_Brief,
        headers={"User-Agent": f"headroom/{headroom.__version__}", "Accept-Encoding": "identity"},
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None),
        trace_configs=[_noting(sent)],
        trust_env=False,
    )
    async with session:
        async with asyncio.timeout_at(deadline):
            response = await session.request(
                request.method,
                _url(target),
                headers=request.headers,
                data=request.body or None,
                allow_redirects=False,
                ssl=True if request.tls is None else request.tls,
            )
        async with response:
            body, whole = await _some_of(response, deadline)
        return HttpResponse(status=response.status, body=body, whole=whole)


def _url(target: EgressTarget) -> URL:
    """From the parts that were checked, so that nobody reads the text a second time."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    path, query = target.path, target.query
    return URL.build(scheme=target.scheme, host=host, port=target.port, path=path, query_string=query, encoded=True)


def _noting(sent: asyncio.Event) -> aiohttp.TraceConfig:
    """Says when the request began to go out: from then on it may be done, whatever comes back."""
    trace = aiohttp.TraceConfig()

    async def note(_session: aiohttp.ClientSession, _context: SimpleNamespace, _what: Any) -> None:
        sent.set()

    trace.on_request_headers_sent.append(note)
    return trace


async def _some_of(response: aiohttp.ClientResponse, deadline: float) -> tuple[bytes, bool]:
    """The body, up to a limit, and whether that was all of it. The status is known, so a body that breaks off is no failure."""
    found = bytearray()
    try:
        async with asyncio.timeout_at(deadline):
            async for chunk in response.content.iter_any():
                found += chunk
                if len(found) > LARGEST_ANSWER:
                    break
            else:
                return bytes(found), True
    except (aiohttp.ClientError, OSError, TimeoutError):
        pass
    response.close()
    return bytes(found[:LARGEST_ANSWER]), False


@contextlib.contextmanager
def _explained(target: EgressTarget, seconds: float, sent: asyncio.Event) -> Iterator[None]:
    """Every way in which a call can fail, as one sentence without anything that the other side said."""
    try:
        yield
    except TimeoutError as problem:
        why = f"{target.host} did not answer within {seconds:g}s"
        raise (NoAnswer if sent.is_set() else NotSent)(why) from problem
    except aiohttp.ClientConnectorCertificateError as problem:
        raise NotSent(f"the certificate of {target.host} is not trusted") from problem
    except aiohttp.ClientConnectorError as problem:
        why = problem.os_error.strerror or type(problem.os_error).__name__
        raise NotSent(f"cannot connect to {target.host}: {why}") from problem
    except (aiohttp.ClientError, OSError, ValueError) as problem:
        why = f"the connection to {target.host} broke ({type(problem).__name__})"
        raise (NoAnswer if sent.is_set() else NotSent)(why) from problem
