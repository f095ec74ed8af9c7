"""Tencent Cloud's CVM on this machine, as far as Headroom uses it: signatures, tags, pages, tokens and all are checked as it checks them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import itertools
import json
import re
import time
from typing import Any, Final, Self

from aiohttp import web

from headroom.model import times
from tests.cloud_faults import Call, CloudMachine, Faults, How

CALLS: Final[dict[str, Call]] = {
    "RunInstances": "launch",
    "TerminateInstances": "terminate",
    "GetCallerIdentity": "identity",
    "DescribeZoneInstanceConfigInfos": "offers",
}
CODES: Final[dict[How, str]] = {
    "throttled": "RequestLimitExceeded",
    "denied": "UnauthorizedOperation.PermissionDenied",
    "sold out": "ResourceInsufficient.SpecifiedInstanceType",
    "too dear": "InvalidParameterValue.InsufficientPrice",
    "quota": "LimitExceeded.UserSpotQuota",
    "refused": "InvalidParameterValue.InvalidImageId",
}
SKEW_SECONDS: Final = 300
_AUTHORIZATION: Final = re.compile(
    r"TC3-HMAC-SHA256 Credential=([^/]+)/(\d{4}-\d\d-\d\d)/(cvm|sts)/tc3_request, "
    r"SignedHeaders=content-type;host, Signature=([0-9a-f]{64})"
)
_VERSIONS: Final = {"cvm": "2017-03-12", "sts": "2018-08-13"}


class _Wrong(Exception):
    """Answered as an error of this code."""

    def __init__(self, code: str, message: str = "no") -> None:
        self.code, self.message = code, message
        super().__init__(code)


class TencentService:
    """A server with machines. It hears its own clock, which may be wrong, and shows machines only some time after they were made."""

    def __init__(self, keys: dict[str, str]) -> None:
        self.keys, self.faults = keys, Faults()
        self.account = "100012345678"
        """Whose machines these are, and whose keys."""
        self.others: list[TencentService] = []
        """Other accounts, which answer here too: each with keys and machines of its own."""
        self.machines: dict[str, CloudMachine] = {}
        self.log: list[str] = []
        self.stock: dict[tuple[str, str], tuple[float, bool]] = {}
        """Price and whether it can be had, by zone and type."""
        self.skew_seconds = 0.0
        self.lag_seconds = 0.0
        self.ahead_seconds = 0.0
        self.fails_launches = False
        self.content_type = "application/json"
        self.redirect = ""
        """Where it sends all calls on to."""
        self.echo = False
        """Its errors repeat all that was sent."""
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_post("/", self._answer)
        self._runner = web.AppRunner(application, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    def now(self) -> float:
        """By its own clock."""
        return time.time() + self.skew_seconds + self.ahead_seconds

    def add(self, **tags: str) -> CloudMachine:
        """A machine that somebody launched."""
        made = CloudMachine(f"ins-{next(self._numbers):08x}", zone="ap-1", kind="GN7", tags=tags)
        made.state, made.created_ms = "RUNNING", int(self.now() * 1000)
        self.machines[made.name] = made
        return made

    def settle(self) -> None:
        """Let what is beginning have begun, and what is ending have ended."""
        after = {"PENDING": "LAUNCH_FAILED" if self.fails_launches else "RUNNING", "TERMINATING": "SHUTDOWN"}
        for each in self.machines.values():
            each.state = after.get(each.state, each.state)

    # What it answers

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        action = request.headers.get("X-TC-Action", "")
        given: dict[str, Any] = json.loads(body)
        self.log.append(action)
        call = CALLS.get(action) or ("describe" if "InstanceIds" in given else "list")
        how = self.faults.take(call)
        if self.redirect:
            return web.Response(status=307, headers={"Location": self.redirect})
        try:
            service = self._of(request)
            service._check(request, body)
            if how == "hang":
                await asyncio.sleep(3600)
            if how == "drop":
                return _lost(request)
            if how == "garbage":
                return web.Response(status=502, text="<html>bad gateway</html>", content_type="text/html")
            if how in CODES:
                raise _Wrong(CODES[how])
            found = getattr(service, f"_{action}")(given)
        except _Wrong as problem:
            message = f"{dict(request.headers)} {body.decode()}" if self.echo else problem.message
            found = {"Error": {"Code": problem.code, "Message": message}}
        if how == "cut":
            return _lost(request)
        text = json.dumps({"Response": found | {"RequestId": f"r-{len(self.log)}"}}).encode()
        return web.Response(body=text, headers={"Content-Type": self.content_type})

    def _of(self, request: web.Request) -> TencentService:
        """The account whose keys these are."""
        sent = _AUTHORIZATION.fullmatch(request.headers.get("Authorization", ""))
        return next((each for each in self.others if sent and sent[1] in each.keys), self)

    def _check(self, request: web.Request, body: bytes) -> None:
        """The signature, as the documentation of TC3-HMAC-SHA256 has it."""
        found = _AUTHORIZATION.fullmatch(request.headers.get("Authorization", ""))
        name, date, service, signature = found.groups() if found else ("", "", "", "")
        if not name or request.headers.get("X-TC-Version") != _VERSIONS[service]:
            raise _Wrong("AuthFailure.InvalidAuthorization")
        if name not in self.keys:
            raise _Wrong("AuthFailure.SecretIdNotFound")
        stamp = int(request.headers["X-TC-Timestamp"])
        if abs(stamp - (time.time() + self.skew_seconds)) > SKEW_SECONDS:
            raise _Wrong("AuthFailure.SignatureExpire")
        kind, host = request.headers["Content-Type"], request.headers["Host"]
        parts = ("POST", "/", "", f"content-type:{kind}\nhost:{host}\n", "content-type;host", _digest(body))
        scope = f"{date}/{service}/tc3_request"
        signed = f"TC3-HMAC-SHA256\n{stamp}\n{scope}\n{_digest(chr(10).join(parts).encode())}"
        key = f"TC3{self.keys[name]}".encode()
        for part in (date, service, "tc3_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        if time.strftime("%Y-%m-%d", time.gmtime(stamp)) != date or not hmac.compare_digest(
            hmac.new(key, signed.encode(), "sha256").hexdigest(), signature
        ):
            raise _Wrong("AuthFailure.SignatureFailure")
        if not request.headers.get("X-TC-Region"):
            raise _Wrong("InvalidParameter.Region")

    def _seen(self, machine: CloudMachine) -> bool:
        return self.now() * 1000 - machine.created_ms >= self.lag_seconds * 1000

    def _GetCallerIdentity(self, _given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - as the cloud calls it
        return {"AccountId": self.account, "Type": "CAMUser"}

    def _DescribeInstances(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - as the cloud calls it
        ids, filters = given.get("InstanceIds"), given.get("Filters")
        limit, offset = given.get("Limit", 20), given.get("Offset", 0)
        if (ids and filters) or limit > 100 or len(ids or ()) > 100:
            raise _Wrong("InvalidParameter")
        seen = [each for each in self.machines.values() if self._seen(each)]
        if ids:
            known = {each.name: each for each in seen}
            if any(each not in known for each in ids):
                raise _Wrong("InvalidInstanceId.NotFound")
            seen = [known[each] for each in ids]
        for one in filters or ():
            key = one["Name"].removeprefix("tag:")
            seen = [each for each in seen if each.tags.get(key) in one["Values"]]
        seen.sort(key=lambda each: (-each.created_ms, each.name))
        page = [_shown(each) for each in seen[offset : offset + limit]]
        return {"TotalCount": len(seen), "InstanceSet": page}

    def _RunInstances(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - as the cloud calls it
        token = given.get("ClientToken", "")
        if len(token) > 64:
            raise _Wrong("InvalidClientToken.TooLong")
        for each in self.machines.values():
            if token and each.token == token:
                return {"InstanceIdSet": [each.name]}
        zone, kind = given["Placement"]["Zone"], given["InstanceType"]
        price, there = self.stock.get((zone, kind), (1.0, True))
        if not there:
            raise _Wrong("ResourceInsufficient.ZoneSoldOutForSpecifiedInstance")
        if given["InstanceChargeType"] == "SPOTPAID" and "InstanceMarketOptions" in given:
            options = given["InstanceMarketOptions"]
            assert (options["MarketType"], options["SpotOptions"]["SpotInstanceType"]) == ("spot", "one-time")
            if float(options["SpotOptions"]["MaxPrice"]) < price:
                raise _Wrong("InvalidParameterValue.InsufficientPrice")
        (tags,) = [each["Tags"] for each in given["TagSpecification"] if each["ResourceType"] == "instance"]
        name = f"ins-{next(self._numbers):08x}"
        made = CloudMachine(name, token=token, zone=zone, kind=kind, tags={each["Key"]: each["Value"] for each in tags})
        made.created_ms, made.user_data = int(self.now() * 1000), base64.b64decode(given.get("UserData", "")).decode()
        made.public = given.get("InternetAccessible", {}).get("PublicIpAssigned", False)
        self.machines[name] = made
        return {"InstanceIdSet": [name]}

    def _TerminateInstances(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - as the cloud calls it
        for each in given["InstanceIds"]:
            if each not in self.machines:
                raise _Wrong("InvalidInstanceId.NotFound")
            self.machines[each].state = "TERMINATING"
        return {}

    def _DescribeZoneInstanceConfigInfos(self, given: dict[str, Any]) -> dict[str, Any]:  # noqa: N802 - as the cloud calls it
        wanted = {each["Name"]: each["Values"] for each in given["Filters"]}
        (charge,) = wanted["instance-charge-type"]
        return {
            "InstanceTypeQuotaSet": [
                {
                    "Zone": zone,
                    "InstanceType": kind,
                    "InstanceChargeType": charge,
                    "Status": "SELL" if there else "SOLD_OUT",
                    "GpuCount": 1.0,
                    "Price": {"UnitPrice": price * 4, "UnitPriceDiscount": price, "ChargeUnit": "HOUR"},
                }
                for (zone, kind), (price, there) in self.stock.items()
                if kind in wanted["instance-type"] and zone in wanted.get("zone", [zone])
            ]
        }


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _shown(machine: CloudMachine) -> dict[str, Any]:
    number = int(machine.name.removeprefix("ins-"), 16)
    running = machine.state != "PENDING"
    return {
        "InstanceId": machine.name,
        "InstanceType": machine.kind,
        "InstanceState": machine.state,
        "Placement": {"Zone": machine.zone, "ProjectId": 0},
        "Tags": [{"Key": key, "Value": value} for key, value in machine.tags.items()],
        "PrivateIpAddresses": [f"10.0.{number // 250}.{number % 250}"] if running else None,
        "PublicIpAddresses": [f"43.0.{number // 250}.{number % 250}"] if running and machine.public else None,
        "CreatedTime": times.text(machine.created_ms),
        "GPUInfo": None,
    }


def _lost(request: web.Request) -> web.Response:
    """No answer: the connection is closed."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()
