"""Machines behind a BMC: what is asked of it, what is chosen from what it offers, and that it cannot send us elsewhere."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from headroom.adapters.power import redfish
from headroom.adapters.power.orders import Means, order_of
from headroom.api.kinds import AnyResource
from headroom.model.errors import Refused, Unavailable
from tests.adapters.power.stage import CANARY, Vault, a_pool, by_redfish, power

SYSTEMS = "/redfish/v1/Systems"
RESET = f"{SYSTEMS}/1/Actions/ComputerSystem.Reset"
OFFERED = ["On", "ForceOff", "GracefulShutdown", "ForceRestart"]


def a_system(state: Any = "Off", offered: Any = OFFERED, target: Any = RESET) -> dict[str, Any]:
    reset = {"target": target} | ({} if offered is None else {"ResetType@Redfish.AllowableValues": offered})
    return {"Id": "1", "PowerState": state, "Actions": {"#ComputerSystem.Reset": reset}}


@dataclass
class Bmc:
    """Answers what the test says, and notes what it is asked."""

    port: int = 0
    documents: dict[str, Any] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    lost: str = ""
    """The answers to requests with this method are lost."""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(f"{request.method} {request.path}")
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if request.method == "POST":
            self.bodies.append(await request.json())
        if self.lost == request.method and request.transport is not None:
            request.transport.close()
        found = self.documents.get(request.path)
        status = self.statuses.get(request.path, 200 if found is not None else 404)
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        return web.Response(status=status, body=body, headers={"Location": f"http://127.0.0.1:{self.port}/elsewhere"})


@contextlib.asynccontextmanager
async def _serving() -> AsyncIterator[Bmc]:
    bmc = Bmc()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", bmc.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    bmc.port = runner.addresses[0][1]
    bmc.documents = {SYSTEMS: {"Members": [{"@odata.id": f"{SYSTEMS}/1"}]}, f"{SYSTEMS}/1": a_system(), RESET: {}}
    try:
        yield bmc
    finally:
        await runner.cleanup()


@pytest.fixture
async def bmc() -> AsyncIterator[Bmc]:
    async with _serving() as found:
        yield found


def pool(bmc: Bmc, **how: Any) -> AnyResource:
    return a_pool(by_redfish(bmc.port, **how))


async def test_the_only_system_is_found_and_told(bmc: Bmc) -> None:
    switches = power(bmc.port)
    await switches.wake(pool(bmc), "w1")
    assert bmc.asked == [f"GET {SYSTEMS}", f"GET {SYSTEMS}/1", f"POST {RESET}"]
    assert bmc.bodies == [{"ResetType": "On"}]
    assert switches.calls["w1"].outcome == "Accepted"
    assert "authorization" not in bmc.headers[0]


@pytest.mark.parametrize("status", [200, 202, 204])
async def test_the_system_that_is_named_is_asked_at_once(bmc: Bmc, status: int) -> None:
    bmc.statuses[RESET] = status
    bmc.documents[f"{SYSTEMS}/1"] = a_system("On")
    await power(bmc.port).sleep(pool(bmc, system="1", address=f"http://127.0.0.1:{bmc.port}/redfish/v1/"), "w1")
    assert bmc.asked == [f"GET {SYSTEMS}/1", f"POST {RESET}"]
    assert bmc.bodies == [{"ResetType": "GracefulShutdown"}]


@pytest.mark.parametrize(
    ("command", "state", "offered", "force", "chosen"),
    [
        ("wake", "Off", OFFERED, False, "On"),
        ("wake", "Off", ["ForceOn", "ForceOff"], False, "ForceOn"),
        ("wake", "Off", None, False, "On"),
        ("wake", None, OFFERED, False, "On"),
        ("wake", "Paused", OFFERED, False, "On"),
        ("wake", "PoweringOff", OFFERED, False, "On"),
        ("sleep", "On", OFFERED, False, "GracefulShutdown"),
        ("sleep", "On", OFFERED, True, "ForceOff"),
        ("sleep", "On", None, True, "ForceOff"),
        ("sleep", "PoweringOn", OFFERED, False, "GracefulShutdown"),
        # What is so already, or on its way, needs no word: many BMCs answer one with an error.
        ("wake", "On", OFFERED, False, ""),
        ("wake", "PoweringOn", OFFERED, False, ""),
        ("sleep", "Off", OFFERED, False, ""),
        ("sleep", "PoweringOff", OFFERED, True, ""),
    ],
)
async def test_what_is_chosen_from_what_it_offers(
    bmc: Bmc, command: str, state: str | None, offered: list[str] | None, force: bool, chosen: str
) -> None:
    bmc.documents[f"{SYSTEMS}/1"] = a_system(state, offered)
    switches = power(bmc.port)
    await getattr(switches, command)(pool(bmc, force=force), "w1")
    assert bmc.bodies == ([{"ResetType": chosen}] if chosen else [])
    assert switches.calls["w1"].outcome == "Accepted"


@pytest.mark.parametrize(
    ("command", "system", "why"),
    [
        ("sleep", a_system("On", ["On", "ForceOff"]), "does not offer GracefulShutdown; redfish.force allows ForceOff"),
        ("sleep", a_system("On", ["On"]), "the BMC does not offer GracefulShutdown"),
        ("wake", a_system("Off", ["ForceOff"]), "the BMC does not offer On or ForceOn"),
        ("wake", {"PowerState": "Off"}, "the BMC of w1 offers no way to switch it"),
        ("wake", {"PowerState": "Off", "Actions": {}}, "the BMC of w1 offers no way to switch it"),
    ],
)
async def test_what_it_does_not_offer_is_not_asked_for(
    bmc: Bmc, command: str, system: dict[str, Any], why: str
) -> None:
    bmc.documents[f"{SYSTEMS}/1"] = system
    switches = power(bmc.port)
    with pytest.raises(Refused, match=why):
        await getattr(switches, command)(pool(bmc), "w1")
    assert (bmc.bodies, switches.calls["w1"].outcome) == ([], "Failed")


@pytest.mark.parametrize(
    "link",
    [
        "http://169.254.169.254/redfish/v1/Systems/1",
        "//169.254.169.254/redfish/v1/Systems/1",
        "/redfish/v1//169.254.169.254/",
        "/redfish/v1/../../etc/passwd",
        "/redfish/v1/Systems/..",
        "/redfish/v1/Systems/./1",
        "/redfish/v1/Systems/%2e%2e/1",
        "/redfish/v1/Systems/1?x=1",
        "/redfish/v1/Systems/1#x",
        "/redfish/v1/Systems/1\r\nHost: elsewhere",
        "/redfish/v1/Systems/1 ",
        "/redfish/v1/Systems\\1",
        "/redfish/v1/Systéms/1",
        "/redfish/v1",
        "/redfish/v1/",
        "/other/v1/Systems/1",
        "redfish/v1/Systems/1",
        "@169.254.169.254/redfish/v1/x",
        "",
    ],
)
async def test_a_bmc_cannot_send_us_elsewhere(bmc: Bmc, link: str) -> None:
    bmc.documents[SYSTEMS] = {"Members": [{"@odata.id": link}]}
    with pytest.raises(Refused, match="the BMC points to another address"):
        await power(bmc.port).wake(pool(bmc), "w1")
    bmc.documents[f"{SYSTEMS}/1"] = a_system(target=link)
    with pytest.raises(Refused, match="the BMC points to another address"):
        await power(bmc.port).wake(pool(bmc, system="1"), "w1")
    assert bmc.asked == [f"GET {SYSTEMS}", f"GET {SYSTEMS}/1"]


async def test_which_system_is_meant_must_be_plain(bmc: Bmc) -> None:
    one = {"@odata.id": f"{SYSTEMS}/1"}
    every: list[dict[str, Any]] = [
        {"Members": []},
        {"Members": [one, one]},
        {},
        {"Members": [one], "Members@odata.count": 40},
    ]
    for systems in every:
        bmc.documents[SYSTEMS] = systems
        with pytest.raises(Refused, match=r"there are \d+ systems behind the BMC; name one in redfish\.system"):
            await power(bmc.port).wake(pool(bmc), "w1")


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b"null", b"{", b'{"Members": 3}', b'{"Members": [3]}', b"\xff", b"[" * 60_000]
)
async def test_what_is_not_redfish_is_not_understood(bmc: Bmc, body: bytes) -> None:
    bmc.documents[SYSTEMS] = body
    switches = power(bmc.port)
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1 answered with something that is not Redfish"):
        await switches.wake(pool(bmc), "w1")
    assert switches.calls["w1"].outcome == "Failed"


@pytest.mark.parametrize("path", [SYSTEMS, f"{SYSTEMS}/1", RESET])
@pytest.mark.parametrize("status", [301, 307, 401, 403, 404, 500, 503])
async def test_any_other_answer_means_no(bmc: Bmc, path: str, status: int) -> None:
    bmc.statuses[path] = status
    switches = power(bmc.port)
    with pytest.raises(Refused, match=rf"waking machine w1: 127\.0\.0\.1 answered {status}"):
        await switches.wake(pool(bmc), "w1")
    assert switches.calls["w1"].outcome == "Failed"
    assert not any("elsewhere" in each for each in bmc.asked)


async def test_a_lost_answer_to_the_command_is_unknown(bmc: Bmc) -> None:
    bmc.lost = "POST"
    switches = power(bmc.port)
    with pytest.raises(Unavailable, match="broke"):
        await switches.wake(pool(bmc), "w1")
    assert switches.calls["w1"].outcome == "Unknown"
    assert bmc.bodies == [{"ResetType": "On"}]


async def test_a_lost_answer_to_a_question_has_done_nothing(bmc: Bmc) -> None:
    bmc.lost = "GET"
    switches = power(bmc.port)
    with pytest.raises(Unavailable, match="broke"):
        await switches.wake(pool(bmc), "w1")
    assert (switches.calls["w1"].outcome, bmc.bodies) == ("Failed", [])
    with pytest.raises(Unavailable, match="cannot connect"):
        await power(1).wake(a_pool(by_redfish(1)), "w1")


async def test_the_password_is_sent_and_never_told(bmc: Bmc) -> None:
    vault = Vault(bmc={"username": "admin", "password": f"{CANARY}\n"})
    how = {"credentialsSecretRef": {"name": "bmc"}}
    switches = power(bmc.port, vault)
    await switches.wake(pool(bmc, **how), "w1")
    expected = base64.b64encode(f"admin:{CANARY}".encode()).decode()
    assert {each.get("authorization") for each in bmc.headers} == {f"Basic {expected}"}
    bmc.statuses[SYSTEMS] = 401
    with pytest.raises(Refused) as caught:
        await switches.wake(pool(bmc, **how), "w1")
    told = repr(caught.value) + repr(caught.value.__cause__) + repr(dict(switches.calls))
    assert CANARY not in told
    assert expected not in told
    for secret in ({"username": "admin"}, {"password": CANARY}):
        with pytest.raises(Refused, match=r"Secret bmc has no key (username|password)") as caught:
            await power(bmc.port, Vault(bmc=secret)).wake(pool(bmc, **how), "w1")
        assert CANARY not in repr(caught.value)


async def test_a_secret_that_does_not_name_this_pool_and_bmc_stays_here(bmc: Bmc) -> None:
    vault = Vault(bmc={"username": "admin", "password": CANARY})
    vault.usable_by = f"PowerPool/other@http://127.0.0.1:{bmc.port},PowerPool/rack@127.0.0.1:{bmc.port}"
    switches = power(bmc.port, vault)
    with pytest.raises(
        Refused, match=r"spec.machines\[0\].redfish.credentialsSecretRef: Secret bmc does not allow "
    ) as caught:
        await switches.wake(pool(bmc, credentialsSecretRef={"name": "bmc"}), "w1")
    assert f"headroom.dev/usable-by=PowerPool/rack@http://127.0.0.1:{bmc.port}" in str(caught.value)
    assert (bmc.asked, CANARY in repr(caught.value)) == ([], False)


@pytest.mark.parametrize(
    ("how", "authority", "why"),
    [
        (
            {"insecure": True},
            "",
            "spec.machines[0].redfish.insecure: must not be true together with credentialsSecretRef",
        ),
        (
            {"insecure": True},
            "theirs",
            "spec.machines[0].redfish.insecure: must not be true together with credentialsSecretRef",
        ),
        (
            {"certificateAuthority": "mine"},
            "",
            "redfish.certificateAuthority: with credentialsSecretRef, the Secret must contain it",
        ),
        (
            {"certificateAuthority": "mine"},
            "theirs",
            "certificateAuthority: with credentialsSecretRef, the Secret must contain it",
        ),
        ({}, "theirs", "ca.crt of its Secret, is not a certificate in PEM"),
    ],
)
async def test_beside_a_secret_the_pool_does_not_say_whom_to_believe(
    bmc: Bmc, how: dict[str, Any], authority: str, why: str
) -> None:
    secret = {"username": "admin", "password": CANARY} | ({"ca.crt": authority} if authority else {})
    switches = power(bmc.port, Vault(bmc=secret))
    with pytest.raises(Refused, match=re.escape(why)) as caught:
        await switches.wake(pool(bmc, credentialsSecretRef={"name": "bmc"}, **how), "w1")
    assert (bmc.asked, CANARY in repr(caught.value)) == ([], False)


async def test_an_administrator_may_let_the_pool_say_it(bmc: Bmc) -> None:
    vault = Vault(bmc={"username": "admin", "password": CANARY})
    await power(bmc.port, vault, allow_insecure=True).wake(
        pool(bmc, credentialsSecretRef={"name": "bmc"}, insecure=True), "w1"
    )
    assert bmc.bodies == [{"ResetType": "On"}]
    # Without a Secret there is nothing to lose.
    await power(bmc.port).wake(pool(bmc, insecure=True), "w1")


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"address": "http://127.0.0.1:{}/proxy"}, "the address of the BMC has a path of its own; write http://127"),
        ({"address": "http://127.0.0.1:{}/?x"}, "the address of the BMC has a path of its own"),
        (
            {"certificateAuthority": "no PEM"},
            "redfish.certificateAuthority, or ca.crt of its Secret, is not a certificate in PEM",
        ),
        ({"address": "http://127.0.0.2:{}"}, "calls to http://127.0.0.2:"),
    ],
)
async def test_an_address_or_authority_that_cannot_be_is_named(bmc: Bmc, how: dict[str, str], why: str) -> None:
    given = {name: value.format(bmc.port) for name, value in how.items()}
    with pytest.raises(Refused, match=why):
        await power(bmc.port).wake(pool(bmc, **given), "w1")
    assert bmc.asked == []


@pytest.mark.parametrize(
    ("state", "power_state"),
    [
        ("On", "On"),
        ("Off", "Off"),
        ("PoweringOn", "Unknown"),
        ("PoweringOff", "PoweringOff"),
        (None, "Unknown"),
        ("on", "Unknown"),
    ],
)
async def test_what_it_says_of_its_power(bmc: Bmc, state: str | None, power_state: str) -> None:
    bmc.documents[f"{SYSTEMS}/1"] = a_system(state)
    order = order_of(pool(bmc), "w1")
    means: Means = power(bmc.port)._means
    assert order.machine.redfish is not None
    assert await redfish.power(means, order, order.machine.redfish) == power_state


def test_whom_to_believe_is_worked_out_once() -> None:
    assert redfish._trust("", insecure=False) is None
    trusting = redfish._trust("", insecure=True)
    assert trusting is not None
    assert not trusting.check_hostname
    assert redfish._trust("", insecure=True) is trusting
