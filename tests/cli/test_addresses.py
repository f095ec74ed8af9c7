"""Addresses of power pools are read as the operator's guard reads them, before anybody depends on them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headroom.adapters.egress import Guard, Request, entries
from headroom.model.errors import Refused
from tests.cli import samples
from tests.cli.conftest import Headroom

MAC = "0a:1b:2c:3d:4e:5f"
NEVER = "; the operator calls no such address, whatever --allow-egress lists"
HINT = "the operator calls only addresses that it is allowed to: give it --allow-egress "


def pool(*machines: dict[str, Any]) -> bytes:
    """A pool of these machines, each otherwise sound."""
    usual = [
        {"name": f"w{number}", "gpuCount": 1, "scaleDownEndpoint": f"https://power-api/w{number}/down"}
        for number in range(len(machines))
    ]
    listed = [sound | each for sound, each in zip(usual, machines, strict=True)]
    kind = {"apiVersion": "headroom.dev/v1alpha1", "kind": "PowerPool", "metadata": {"name": "rack"}}
    return json.dumps(kind | {"spec": {"machines": listed}}).encode()


def wakes_at(url: str) -> dict[str, Any]:
    return {"scaleUpEndpoint": url}


def wakes_by_packet(**way: Any) -> dict[str, Any]:
    return {"wakeOnLan": {"mac": MAC} | way}


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.1/up", "has an IPv4 address that is not written like 10.0.7.1"),
        ("http://2130706433/up", "has an IPv4 address that is not written like 10.0.7.1"),
        ("http://0x7f000001/up", "has an IPv4 address that is not written like 10.0.7.1"),
        ("http://010.0.7.1/up", "has an IPv4 address that is not written like 10.0.7.1"),
        ("http://10.0.7.256/up", "has an IPv4 address that is not written like 10.0.7.1"),
        ("http://[::1::2]/up", "has brackets without an IPv6 address"),
        ("http://a:70000/up", "has a port that is not a port number"),
        ("http://a..b/up", "has a host that is not a host name"),
        ("http://a/up#now", "has a fragment"),
    ],
)
async def test_what_the_guard_never_calls_is_wrong(headroom: Headroom, url: str, says: str) -> None:
    done = headroom("check", "-", stdin=pool(wakes_at(url)))
    assert done.code == 1
    assert done.out == f"standard input:1: PowerPool/rack: spec.machines[0].scaleUpEndpoint {says}{NEVER}\n"
    guard = Guard(entries("http://0.0.0.0/0,http://*.b,http://a,http://[::]/0"))
    with pytest.raises(Refused, match=says.partition(",")[0]):
        await guard.call(Request(url=url), 1)
    guard.close()


async def test_a_packet_goes_to_a_number(headroom: Headroom) -> None:
    done = headroom("check", "-", stdin=pool(wakes_by_packet(address="10.0.7.256")))
    says = "is not an IPv4 address such as 10.0.7.255"
    assert done.code == 1
    assert done.out == f"standard input:1: PowerPool/rack: spec.machines[0].wakeOnLan.address {says}{NEVER}\n"
    guard = Guard(entries("wol://0.0.0.0/0"))
    with pytest.raises(Refused, match="is not an IPv4 address"):
        await guard.send("10.0.7.256", 9, b"")
    guard.close()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://127.0.0.1:8000/up", "is this machine itself; only the entry http://127.0.0.1:8000 itself"),
        (
            "http://169.254.169.254/up",
            "is the cloud's metadata service, which hands out credentials; only the entry http://169.254.169.254 itself",
        ),
        ("https://[fe80::1]/up", "is link-local; only the entry https://[fe80::1] itself"),
        ("http://localhost:8000/up", "is the operator's own machine; if that is meant, write 127.0.0.1"),
    ],
)
def test_numbers_that_are_hardly_meant_are_a_warning_and_not_to_be_copied(
    headroom: Headroom, url: str, says: str
) -> None:
    done = headroom("check", "-", stdin=pool(wakes_at(url)))
    assert done.code == 0
    assert f"rack: warning: spec.machines[0].scaleUpEndpoint {says}" in done.out
    assert done.err == f"{HINT}https://power-api\n"


def test_what_must_be_listed_is_said_once_for_all_pools(headroom: Headroom) -> None:
    machines = (
        wakes_at("http://Power-API:80/w0/up"),
        wakes_at("http://10.0.7.1:8000/up?w=1") | {"statusEndpoint": "https://status.example.com/w1"},
        wakes_by_packet(),
        wakes_by_packet(address="10.0.7.255", port=7),
    )
    needed = [
        "http://10.0.7.1:8000",
        "http://power-api",
        "https://power-api",
        "https://status.example.com",
        "wol://10.0.7.255:7",
        "wol://255.255.255.255:9",
    ]
    done = headroom("check", "-", stdin=pool(*machines))
    assert (done.code, done.out, done.err) == (0, "1 resource, no problems\n", f"{HINT}{','.join(needed)}\n")
    found = json.loads(headroom("check", "-", "-o", "json", stdin=pool(*machines)).out)
    assert found["allowEgress"] == needed
    assert [str(each) for each in entries(",".join(needed))] == needed, "the setting takes them as they are"


def test_hundreds_are_not_listed_one_by_one(headroom: Headroom) -> None:
    many = [wakes_at(f"https://bmc-{number:03}/up") for number in range(100)]
    said = headroom("check", "-", stdin=pool(*many)).err
    assert (said.count("https://"), "and 81 more (-o json has them all" in said) == (20, True)


def test_convert_says_it_of_old_machines_too(headroom: Headroom) -> None:
    old = samples.ENVIRONMENT.replace("http://power-api/gpu-worker-1/start", "http://127.1/gpu-worker-1/start")
    assert old != samples.ENVIRONMENT
    done = headroom("convert", "-", stdin=old.encode())
    assert done.code == 1
    assert (
        "PowerPool/gpu-machines: spec.machines[0].scaleUpEndpoint has an IPv4 address that is not written" in done.err
    )
