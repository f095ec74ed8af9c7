"""The administrator's list of where calls may go: what an entry means, what it does not mean, and which mistakes are named."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_address

import pytest

from headroom.adapters.egress import Guard, NotSent, Request, entries, networks, target_of
from headroom.model.errors import Misconfigured, Refused


async def unasked(host: str, port: int) -> Sequence[str]:
    """Whoever comes so far is allowed: the name is looked up."""
    raise OSError(-2, "looked up")


async def allows(listed: str, url: str) -> bool:
    with pytest.raises((Refused, NotSent)) as caught:
        await Guard(entries(listed), resolve=unasked).call(Request(url=url), 5)
    return "looked up" in str(caught.value)


@pytest.mark.parametrize(
    ("listed", "url", "is_allowed"),
    [
        ("", "https://power.example", False),
        ("power.example", "https://power.example", True),
        ("power.example", "https://power.example:443/x?y", True),
        ("power.example", "https://power.example:8443", False),
        ("power.example", "http://power.example", False),
        ("power.example:8443", "https://power.example:8443", True),
        ("power.example:8443", "https://power.example", False),
        ("https://power.example", "https://power.example", True),
        ("http://power.example", "http://power.example", True),
        ("http://power.example", "http://power.example:80", True),
        ("http://power.example", "https://power.example", False),
        ("http://power.example:8000", "http://power.example:8000", True),
        # Upper and lower case are one name, and a name is no part of another.
        ("Power.Example", "https://pOWER.eXAMPLE", True),
        ("power.example", "https://a.power.example", False),
        ("power.example", "https://power.example.org", False),
        ("power.example", "https://xpower.example", False),
        # A star stands for one label or more, and never for none.
        ("*.power.example", "https://a.power.example", True),
        ("*.power.example", "https://a.b.power.example", True),
        ("*.power.example", "https://power.example", False),
        ("*.power.example", "https://xpower.example", False),
        ("*.power.example:8443", "https://a.power.example:8443", True),
        ("*.power.example:8443", "https://a.power.example", False),
        # What a list says of names it says of no number, and the other way round.
        ("0.0.0.0/0,[::]/0", "https://power.example", False),
        ("*.example", "https://10.0.7.1", False),
        (" power.example ,, http://other.example ", "http://other.example", True),
    ],
)
async def test_a_name_is_listed_by_its_name(listed: str, url: str, is_allowed: bool) -> None:
    assert await allows(listed, url) == is_allowed


@pytest.mark.parametrize(
    ("listed", "url", "is_listed"),
    [
        ("10.0.7.1", "https://10.0.7.1", True),
        ("10.0.7.1", "https://10.0.7.2", False),
        ("10.0.7.0/24", "https://10.0.7.255", True),
        ("10.0.7.0/24", "https://10.0.8.0", False),
        ("10.0.7.0/24:8443", "https://10.0.7.9:8443", True),
        ("10.0.7.0/24:8443", "https://10.0.7.9", False),
        ("[fd00:7::1]", "https://[fd00:7:0::1]", True),
        ("[fd00:7::]/64", "https://[fd00:7::abcd]", True),
        ("[fd00:7::]/64:8443", "https://[fd00:7::abcd]:8443", True),
        ("[fd00:7::]/64", "https://[fd00:8::1]", False),
        ("wol://10.0.7.1", "https://10.0.7.1", False),
    ],
)
def test_a_number_is_listed_by_its_number(listed: str, url: str, is_listed: bool) -> None:
    target = target_of(url)
    found = [each for each in entries(listed) if each.is_for(target.scheme, target.port)]
    assert target.number is not None
    assert any(each.has_number(target.number) for each in found) == is_listed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Power.Example", "https://power.example"),
        ("*.power.example:8443", "https://*.power.example:8443"),
        ("http://power-api", "http://power-api"),
        ("10.0.7.0/24", "https://10.0.7.0/24"),
        ("http://[fd00::]/8:81", "http://[fd00::]/8:81"),
        ("[fd00:0::1]", "https://[fd00::1]"),
        ("wol://10.0.7.255", "wol://10.0.7.255"),
        ("wol://255.255.255.255:7", "wol://255.255.255.255:7"),
    ],
)
def test_an_entry_is_shown_as_it_is_understood(text: str, shown: str) -> None:
    [found] = entries(text)
    assert str(found) == shown
    assert entries(shown) == (found,)


@pytest.mark.parametrize(
    "text",
    [
        "ftp://power.example",
        "HTTPS://power.example",
        "https://",
        "https://power.example/path",
        "https://user@power.example",
        "https://power.example?x",
        "power.example.",
        "power..example",
        "power_api",
        "-power.example",
        "pöwer.example",
        "１０.0.7.1",
        "*",
        "*.",
        "*power.example",
        "power.*.example",
        "*.10.0.7.1",
        "*.[fd00::1]",
        "power.example:0",
        "power.example:65536",
        "power.example:",
        "power.example:https",
        "power.example/24",
        "10.0.7.1/24",
        "10.0.7.0/33",
        "[fd00::1]/64",
        "[fd00::]/129",
        "10.0.7",
        "0x0a000701",
        "010.0.7.1",
        "167772161",
        "fd00::1",
        "[fe80::1%eth0]",
        "[10.0.7.1]",
        "wol://power.example",
        "wol://*.power.example",
        "power.example other.example",
    ],
)
def test_a_mistake_names_the_setting_and_the_entry(text: str) -> None:
    with pytest.raises(Misconfigured) as caught:
        entries(f"https://fine.example,{text}")
    assert str(caught.value).startswith(f"reading the settings: --allow-egress (HEADROOM_ALLOW_EGRESS): {text!r}: ")
    assert len(str(caught.value)) > len(text) + 80, "it says what to write instead"


async def test_a_refusal_names_the_entry_that_would_allow_it() -> None:
    for url, entry in (
        ("https://power.example/x", "https://power.example"),
        ("http://Power.Example:8000/x", "http://power.example:8000"),
        ("https://[fd00:7::1]:8443/", "https://[fd00:7::1]:8443"),
    ):
        with pytest.raises(Refused) as caught:
            await Guard(()).call(Request(url=url), 5)
        expected = f"calls to {entry} are not allowed; an administrator can allow them in --allow-egress (HEADROOM_ALLOW_EGRESS)"
        assert str(caught.value) == expected
        assert entries(entry)


# --- datagrams --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "number", "why"),
    [
        ("", "10.0.7.255", "calls to wol://10.0.7.255:9 are not allowed"),
        ("http://10.0.7.255:9,https://10.0.7.255:9", "10.0.7.255", "calls to wol://10.0.7.255:9 are not allowed"),
        ("wol://10.0.7.255:7", "10.0.7.255", "calls to wol://10.0.7.255:9 are not allowed"),
        ("wol://10.0.7.0/25", "10.0.7.255", "calls to wol://10.0.7.255:9 are not allowed"),
        ("wol://0.0.0.0/0", "127.0.0.1", "127.0.0.1 is this machine itself; only the entry wol://127.0.0.1:9"),
        ("wol://0.0.0.0/0", "255.255.255.255", "255.255.255.255 is broadcast"),
        ("wol://0.0.0.0/0", "169.254.169.254", "169.254.169.254 is link-local"),
        ("wol://0.0.0.0/0", "1.2.3", "its address is not an IPv4 address"),
        ("wol://0.0.0.0/0", "999.1.1.1", "its address is not an IPv4 address"),
    ],
)
async def test_a_packet_goes_only_where_its_number_is_listed(listed: str, number: str, why: str) -> None:
    with pytest.raises(Refused) as caught:
        await Guard(entries(listed)).send(number, 9, b"x")
    assert why in str(caught.value)


@pytest.mark.parametrize("number", ["127.0.0.1", "127.255.255.255"])
async def test_a_packet_arrives_at_one_or_at_all_of_a_network(number: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind((number, 0))
        receiver.setblocking(False)
        port = receiver.getsockname()[1]
        await Guard(entries("wol://127.0.0.0/8")).send(number, port, b"packet")
        loop = asyncio.get_running_loop()
        assert await asyncio.wait_for(loop.sock_recv(receiver, 100), 60) == b"packet"


def test_the_broadcast_to_all_can_be_listed() -> None:
    [entry] = entries("wol://255.255.255.255")
    everybody = ip_address("255.255.255.255")
    assert entry.network is not None
    assert all(networks.lies_within(entry.network, network) for network, _ in networks.special(everybody))


async def test_a_packet_that_is_too_large_was_not_sent() -> None:
    with pytest.raises(NotSent, match=r"cannot send to 127\.0\.0\.1: Message too long"):
        await Guard(entries("wol://127.0.0.1")).send("127.0.0.1", 9, b"x" * 70_000)
