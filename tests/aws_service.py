"""AWS on this machine: moto, behind a thin layer for what moto lacks: signatures, tokens, capacity, late lists, lost answers."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import json
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, Self
from urllib.parse import parse_qsl, quote
from xml.etree import ElementTree as ET

from moto.backends import get_backend
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.aws_region import TARGET, AwsRegion
from tests.cloud_faults import Call, Faults, How, MarketCall

CALLS: Final[dict[str, Call | MarketCall]] = {
    "RunInstances": "launch",
    "TerminateInstances": "terminate",
    "GetCallerIdentity": "identity",
    "DescribeSpotPriceHistory": "offers",
    "DescribeInstanceTypes": "types",
    "GetSpotPlacementScores": "scores",
    TARGET: "products",
}
CODES: Final[dict[How, tuple[int, str]]] = {
    "throttled": (503, "RequestLimitExceeded"),
    "denied": (403, "UnauthorizedOperation"),
    "sold out": (500, "InsufficientInstanceCapacity"),
    "too dear": (400, "SpotMaxPriceTooLow"),
    "quota": (400, "MaxSpotInstanceCountExceeded"),
    "refused": (400, "InvalidAMIID.NotFound"),
}
REGION: Final = "us-east-1"
SKEW_SECONDS: Final = 300
HANG_SECONDS: Final = 5.0
_SPACE: Final = "http://ec2.amazonaws.com/doc/2016-11-15/"
_AUTHORIZATION: Final = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})"
)

Environ = dict[str, Any]
Start = Callable[..., Any]


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 - as werkzeug calls it
        """Nobody reads it."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nobody reads it."""


class _Wrong(Exception):
    """Answered as an error."""

    def __init__(self, status: int, code: str) -> None:
        self.status, self.code = status, code
        super().__init__(code)


class AwsService:
    """One for a whole session: moto takes a while to begin. Tests have clusters of their own, and so do not see one another."""

    def __init__(self, keys: dict[str, str]) -> None:
        self.keys = keys
        self.account = DEFAULT_ACCOUNT_ID
        """Whose machines these are, and whose keys."""
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self, threaded=True, request_handler=_Quiet)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._tokens: dict[str, tuple[str, bytes]] = {}
        self._lock = threading.Lock()
        self.forget()

    def forget(self) -> None:
        """Begin anew with what a test has set."""
        self.faults, self.log = Faults(), list[str]()
        self.prices: dict[tuple[str, str], str] = {}
        """By zone and type."""
        self.skew_seconds = self.lag_seconds = self.ahead_seconds = 0.0
        self.echo = False
        self.region = AwsRegion()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def _ec2(self) -> Any:
        return get_backend("ec2")[DEFAULT_ACCOUNT_ID][REGION]

    @property
    def image(self) -> str:
        """An image that machines can start from."""
        return str(next(iter(self._ec2.amis)))

    def instances(self) -> dict[str, Any]:
        """moto's own machines by id."""
        return {each.id: each for one in self._ec2.reservations.values() for each in one.instances}

    def add(self, kind: str, zone: str, tags: dict[str, str]) -> str:
        """A machine that somebody launched."""
        more = {
            "instance_type": kind,
            "placement": zone,
            "tags": {"instance": tags},
            "nics": {},
            "is_instance_type_default": True,
        }
        made = self._ec2.run_instances(self.image, 1, b"", [], **more).instances[0]
        made._state.name, made._state.code = "running", 16
        return str(made.id)

    def user_data(self, machine: str) -> str:
        """With what it started."""
        return base64.b64decode(str(self.instances()[machine].user_data)).decode()

    # Warnings, by the way that EC2's go: EventBridge, a rule, and a queue

    def _backend(self, service: str) -> Any:
        return get_backend(service)[DEFAULT_ACCOUNT_ID][REGION]  # type: ignore[call-overload]  # any service

    def warning_queue(self) -> str:
        """A queue into which warnings come; its URL."""
        name = f"warnings-{uuid.uuid4().hex[:8]}"
        queue = self._backend("sqs").create_queue(name, {})
        pattern = json.dumps({"source": ["aws.ec2"]})
        self._backend("events").put_rule(name, event_pattern=pattern, state="ENABLED")
        self._backend("events").put_targets(name, None, [{"Id": "1", "Arn": queue.queue_arn}])
        return f"{self.url}/{DEFAULT_ACCOUNT_ID}/{name}"

    def warn(self, machine: str, now: int | None = None) -> int:
        """EC2 says that it takes a machine back; when. The time is the world's, unless the clock of a play is given."""
        at = int(time.time() if now is None else now // 1000) * 1000
        detail = {"instance-id": machine, "instance-action": "terminate"}
        entry: dict[str, Any] = {
            "Source": "aws.ec2",
            "DetailType": "EC2 Spot Instance Interruption Warning",
            "Time": at // 1000,
        }
        self._backend("events").put_events([entry | {"Detail": json.dumps(detail)}])
        return at

    # One request

    def __call__(self, environ: Environ, start: Start) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        given = dict(parse_qsl(body.decode(errors="replace")))
        action = given.get("Action", "") or environ.get("HTTP_X_AMZ_TARGET", "")
        ids = any(value == "instance-id" for key, value in given.items() if key.startswith("Filter."))
        call: Call | MarketCall = CALLS.get(action) or ("describe" if ids else "list")
        how = self.faults.take(call) if action else None
        with self._lock:
            self.log.append(action)
        try:
            if "HTTP_AUTHORIZATION" in environ:
                self._check(environ, body)
            if how in ("drop", "hang"):
                time.sleep(0 if how == "drop" else HANG_SECONDS)
                return _cut(environ, start)
            if how == "garbage":
                start("500 Internal Server Error", [("Content-Type", "text/html")])
                return [b"<!doctype html><title>500</title>"]
            if how in CODES:
                raise _Wrong(*CODES[how])
            status, headers, answer = self._answered(environ, body, given)
        except _Wrong as problem:
            message = f"{environ.get('HTTP_AUTHORIZATION')} {body.decode()}" if self.echo else "no"
            status, headers, answer = _json_error(problem, message) if action == TARGET else _error(problem, message)
        if how == "cut":
            return _cut(environ, start)
        start(status, headers)
        return [answer]

    def _answered(
        self, environ: Environ, body: bytes, given: dict[str, str]
    ) -> tuple[str, list[tuple[str, str]], bytes]:
        action, token = given.get("Action", "") or environ.get("HTTP_X_AMZ_TARGET", ""), given.get("ClientToken", "")
        if (market := self.region.answer(action, given, body)) is not None:
            return "200 OK", [("Content-Type", market[0])], market[1]
        xml = [("Content-Type", "text/xml;charset=UTF-8")]
        if action == "RunInstances" and token in self._tokens:
            before, answer = self._tokens[token]
            if before != _wish(given):
                raise _Wrong(400, "IdempotentParameterMismatch")
            return "200 OK", xml, answer
        if action == "DescribeSpotPriceHistory" and self.prices:
            return "200 OK", xml, self._prices(given)
        status, headers, answer = self._passed_on(environ, body)
        if action == "RunInstances" and token and status.startswith("200"):
            self._tokens[token] = _wish(given), answer
        if action in ("DescribeInstanceTypes", "DescribeInstanceTypeOfferings") and status.startswith("200"):
            answer, headers = self.region.paged(action, answer, given), xml
        if action == "DescribeInstances" and self.lag_seconds:
            answer = self._without_the_young(answer)
            headers = xml
        return status, headers, answer

    def _passed_on(self, environ: Environ, body: bytes) -> tuple[str, list[tuple[str, str]], bytes]:
        from io import BytesIO  # noqa: PLC0415 - only here

        said: list[Any] = []
        answer = b"".join(
            self._moto(
                {**environ, "wsgi.input": BytesIO(body)}, lambda status, headers, *_: said.append((status, headers))
            )
        )
        return said[0][0], said[0][1], answer

    def _without_the_young(self, answer: bytes) -> bytes:
        """A list that is behind: what was launched lately is not in it."""
        tree, now = ET.fromstring(answer), time.time() + self.ahead_seconds
        found = tree.find("{*}reservationSet")
        for item in list(found) if found is not None else ():
            launched = item.findall(".//{*}launchTime")[0].text or ""
            if now - datetime.fromisoformat(launched).timestamp() < self.lag_seconds:
                assert found is not None
                found.remove(item)
        ET.register_namespace("", tree.tag[1:].partition("}")[0])
        return ET.tostring(tree)

    def _prices(self, given: dict[str, str]) -> bytes:
        wanted = {value for key, value in given.items() if key.startswith("InstanceType.")}
        rows = "".join(
            f"<item><instanceType>{kind}</instanceType><productDescription>Linux/UNIX</productDescription>"
            f"<spotPrice>{price}</spotPrice><timestamp>{given['StartTime']}</timestamp>"
            f"<availabilityZone>{zone}</availabilityZone></item>"
            for (zone, kind), price in self.prices.items()
            if kind in wanted
        )
        return (
            f'<DescribeSpotPriceHistoryResponse xmlns="{_SPACE}"><spotPriceHistorySet>{rows}</spotPriceHistorySet>'
            "<nextToken></nextToken></DescribeSpotPriceHistoryResponse>"
        ).encode()

    def _check(self, environ: Environ, body: bytes) -> None:
        """The signature, version 4."""
        found = _AUTHORIZATION.fullmatch(environ["HTTP_AUTHORIZATION"])
        assert found is not None, environ["HTTP_AUTHORIZATION"]
        name, date, region, service, signed, signature = found.groups()
        if name not in self.keys:
            raise _Wrong(401, "AuthFailure")
        stamp = environ["HTTP_X_AMZ_DATE"]
        sent = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        if abs(sent - (time.time() + self.skew_seconds)) > SKEW_SECONDS:
            raise _Wrong(400, "RequestExpired")
        named = {"content-type": environ.get("CONTENT_TYPE", ""), "content-length": environ.get("CONTENT_LENGTH", "")}
        headers = "".join(
            f"{each}:{named.get(each) or environ.get('HTTP_' + each.upper().replace('-', '_'), '')}\n"
            for each in signed.split(";")
        )
        digest = hashlib.sha256(body).hexdigest()
        path = quote(environ.get("PATH_INFO") or "/", safe="/-_.~")
        asked = f"{environ['REQUEST_METHOD']}\n{path}\n{environ.get('QUERY_STRING', '')}\n{headers}\n{signed}\n{digest}"
        scope = f"{date}/{region}/{service}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(asked.encode()).hexdigest()}"
        key = f"AWS4{self.keys[name]}".encode()
        for part in (date, region, service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        if not hmac.compare_digest(hmac.new(key, text.encode(), "sha256").hexdigest(), signature):
            raise _Wrong(401, "AuthFailure")


def _wish(given: dict[str, str]) -> str:
    return repr(sorted(given.items()))


def _error(problem: _Wrong, message: str) -> tuple[str, list[tuple[str, str]], bytes]:
    safe = message.replace("&", "&amp;").replace("<", "&lt;")
    text = f"<Response><Errors><Error><Code>{problem.code}</Code><Message>{safe}</Message></Error></Errors><RequestID>r</RequestID></Response>"
    return f"{problem.status} No", [("Content-Type", "text/xml;charset=UTF-8")], text.encode()


def _json_error(problem: _Wrong, message: str) -> tuple[str, list[tuple[str, str]], bytes]:
    """The price list speaks JSON, and has words of its own."""
    code = {"RequestLimitExceeded": "ThrottlingException", "UnauthorizedOperation": "AccessDeniedException"}
    words = code | {"AuthFailure": "InvalidSignatureException"}
    text = json.dumps({"__type": words.get(problem.code, problem.code), "message": message})
    return "400 No", [("Content-Type", "application/x-amz-json-1.1")], text.encode()


def _cut(environ: Environ, start: Start) -> Iterable[bytes]:
    """No answer: the connection is closed."""
    with contextlib.suppress(OSError):  # whoever asked may be gone already
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    start("200 OK", [("Content-Type", "text/plain")])
    return []
