"""Machines that are switched through their BMC, by as much of Redfish as that takes.

A BMC says where its own things are. Only plain paths on that same BMC are followed, through the guard like any other address.
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeVar

import msgspec
from msgspec import Struct, field

from headroom.adapters.egress import HttpResponse, NoAnswer, NotSent, Request, target_of
from headroom.adapters.power.orders import Command, Means, State, SwitchTarget, answered, secret_for
from headroom.adapters.usable_by import AUTHORITY
from headroom.api.switches import LONGEST_CALL_SECONDS, Redfish
from headroom.model.errors import Refused

ROOT: Final = "/redfish/v1"
SETTING: Final = "--allow-insecure-secrets (HEADROOM_ALLOW_INSECURE_SECRETS)"
_LINK: Final = re.compile(r"/redfish/v1(?:/[A-Za-z0-9_~:@!$&'()*+,;=-][A-Za-z0-9._~:@!$&'()*+,;=-]*)+/?", re.ASCII)
_STATES: Final[Mapping[str, State]] = {"On": "On", "Off": "Off", "PoweringOff": "PoweringOff"}
_THERE: Final = {"Wake": ("On", "PoweringOn"), "Sleep": ("Off", "PoweringOff")}
"""What a command would change nothing of; many BMCs answer one with an error then."""

Wire = TypeVar("Wire", bound=Struct)


class _Link(Struct):
    path: str = field(name="@odata.id", default="")


class _Systems(Struct, rename="pascal"):
    members: list[_Link] | None = None
    count: int | None = field(name="Members@odata.count", default=None)
    """Of all, where they are listed page by page."""


class _Reset(Struct):
    target: str = ""
    offered: list[str] | None = field(name="ResetType@Redfish.AllowableValues", default=None)


class _Actions(Struct):
    reset: _Reset | None = field(name="#ComputerSystem.Reset", default=None)


class _System(Struct, rename="pascal"):
    power_state: str | None = None
    actions: _Actions | None = None


async def switch(means: Means, order: SwitchTarget, how: Redfish, command: Command) -> None:
    """Tell the BMC; returns once it has accepted, which is before anything has happened."""
    bmc = await _bmc(means, order, how)
    system = await bmc.system()
    if system.power_state in _THERE[command]:
        return
    reset = system.actions.reset if system.actions else None
    if reset is None:
        raise Refused(f"the BMC of {order.machine.name} offers no way to switch it")
    kind = _reset_type(command, how, reset.offered)
    await bmc.post(_followed(reset.target), {"ResetType": kind})


async def power(means: Means, order: SwitchTarget, how: Redfish) -> State:
    """What the BMC says."""
    system = await (await _bmc(means, order, how)).system()
    return _STATES.get(system.power_state or "", "Unknown")


def _reset_type(command: Command, how: Redfish, offered: list[str] | None) -> str:
    if command == "Wake":
        wanted = ["On", "ForceOn"]
    else:
        wanted = ["ForceOff"] if how.force else ["GracefulShutdown"]
    found = [each for each in wanted if offered is None or each in offered]
    if found:
        return found[0]
    hint = "; redfish.force allows ForceOff" if wanted == ["GracefulShutdown"] and "ForceOff" in (offered or ()) else ""
    raise Refused(f"the BMC does not offer {' or '.join(wanted)}{hint}")


class _Bmc:
    """One BMC, for as long as one command or question may take."""

    def __init__(self, means: Means, how: Redfish, headers: Mapping[str, str], tls: ssl.SSLContext | None) -> None:
        self._guard, self._how, self._headers, self._tls = means.guard, how, headers, tls
        self._deadline = asyncio.get_running_loop().time() + LONGEST_CALL_SECONDS
        where = target_of(how.address)
        if where.path.rstrip("/") not in ("", ROOT) or where.query:
            raise Refused(f"the address of the BMC has a path of its own; write {where.entry}")
        self._base, self._host = where.entry, where.host

    async def system(self) -> _System:
        """The system: the one that is named, or the only one."""
        if self._how.system:
            return await self._read(f"{ROOT}/Systems/{self._how.system}", _System)
        systems = await self._read(f"{ROOT}/Systems", _Systems)
        found = systems.members or []
        count = max(len(found), systems.count or 0)
        if count != 1 or not found:
            raise Refused(f"there are {count} systems behind the BMC; name one in redfish.system")
        return await self._read(_followed(found[0].path), _System)

    async def _read(self, path: str, kind: type[Wire]) -> Wire:
        try:
            answer = await self._ask(path, "GET")
        except NoAnswer as problem:
            raise NotSent(str(problem)) from problem  # a question changes nothing, and nothing else was sent yet
        try:
            return msgspec.json.decode(answer.body, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise NotSent(f"{self._host} answered with something that is not Redfish") from None

    async def post(self, path: str, body: Mapping[str, str]) -> None:
        """Have an action done."""
        await self._ask(path, "POST", msgspec.json.encode(body))

    async def _ask(self, path: str, method: str, body: bytes = b"") -> HttpResponse:
        more = {"content-type": "application/json"} if body else {}
        request = Request(
            url=self._base + path,
            method=method,
            headers={"accept": "application/json", "odata-version": "4.0", **self._headers, **more},
            body=body,
            tls=self._tls,
        )
        left = self._deadline - asyncio.get_running_loop().time()
        answer = await self._guard.call(request, max(left, 0.001))
        if not 200 <= answer.status < 300:
            raise answered(self._host, answer.status)
        return answer


async def _bmc(means: Means, order: SwitchTarget, how: Redfish) -> _Bmc:
    if how.credentials_secret_ref is None:
        return _Bmc(means, how, {}, _trust(how.certificate_authority, how.insecure))
    name, number = how.credentials_secret_ref.name, order.spec.machines.index(order.machine)
    field = f"spec.machines[{number}].redfish"
    secret = await secret_for(means, order, name, url=how.address, field=f"{field}.credentialsSecretRef")
    missing = [key for key in ("username", "password") if key not in secret]
    if missing:
        raise Refused(f"Secret {name} has no key {missing[0]}")
    authority = secret.get(AUTHORITY, "")
    if means.allow_insecure:
        tls = _trust(how.certificate_authority or authority, how.insecure)
    else:
        _check_trust(how, field, name, authority)
        tls = _trust(authority, False)
    pair = ":".join(secret[key].rstrip("\r\n") for key in ("username", "password"))
    return _Bmc(means, how, {"authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}, tls)


def _check_trust(how: Redfish, field: str, name: str, authority: str) -> None:
    """Raise `Refused` if the pool says whom to believe, and the Secret does not say the same.

    Whoever writes the pool could else stand in for the BMC and be shown the password.
    """
    remedy = f"put the certificate of the BMC's authority into Secret {name} as {AUTHORITY}, or have {SETTING} set"
    if how.insecure:
        raise Refused(f"{field}.insecure: must not be true together with credentialsSecretRef; {remedy}")
    if how.certificate_authority.strip() not in ("", authority.strip()):
        raise Refused(f"{field}.certificateAuthority: with credentialsSecretRef, the Secret must contain it; {remedy}")


def _followed(link: str) -> str:
    """A path on the same BMC. Raises `Refused` for any other link: a BMC does not say whom else to call."""
    if not _LINK.fullmatch(link):
        raise Refused("the BMC points to another address")
    return link


@lru_cache(maxsize=64)
def _trust(authority: str, insecure: bool) -> ssl.SSLContext | None:
    """Whom to believe; None: the usual ones."""
    if insecure:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    if not authority:
        return None
    try:
        return ssl.create_default_context(cadata=authority)
    except (ssl.SSLError, ValueError):
        raise Refused("redfish.certificateAuthority, or ca.crt of its Secret, is not a certificate in PEM") from None
