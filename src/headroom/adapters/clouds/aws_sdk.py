"""What is used of the AWS SDK: clients that are kept for a while, since one costs 35 ms to make, its errors and spot prices in our words."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from headroom.adapters.clouds.accounts import Accounts
from headroom.adapters.clouds.providers import (
    CALL_SECONDS,
    BadCredentials,
    CloudThrottled,
    Keys,
    NotPermitted,
    Unusable,
    code_in,
    millionths,
)
from headroom.model import times
from headroom.model.errors import HeadroomError, Refused, Unavailable

PRODUCT: Final = "Linux/UNIX"
AHEAD_MS: Final = 15 * times.MINUTE
"""A price from further ahead than clocks differ is none."""
CONNECT_SECONDS, READ_SECONDS = 5, 20
MOST_IDLE: Final = 8
_KEYS: Final = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "RequestExpired",
        "RequestTimeTooSkewed",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_RIGHTS: Final = frozenset(
    {"AccessDenied", "AccessDeniedException", "Blocked", "OptInRequired", "UnauthorizedOperation"}
)
_PACE: Final = frozenset(
    {
        "EC2ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_TROUBLE: Final = ("InternalError", "InternalFailure", "Internal", "Server", "ServiceUnavailable", "Unavailable")


class AwsError(HeadroomError):
    """AWS answered with an error of this code."""

    def __init__(self, code: object) -> None:
        self.code = code_in(code)
        super().__init__(f"AWS answered {self.code}")


def told(code: str) -> HeadroomError:
    """A failure that does not depend on what was asked."""
    said = f"AWS answered {code}"
    if code in _PACE:
        return CloudThrottled(f"{said}: too many requests")
    if code in _RIGHTS:
        return NotPermitted(f"{said}: the keys lack the permission")
    if code in ("RequestExpired", "RequestTimeTooSkewed"):
        return BadCredentials(f"{said}: this machine's clock, or the cloud's, is wrong")
    if code in _KEYS:
        return BadCredentials(f"{said}: the keys are not valid")
    if code.startswith(_TROUBLE) or code.isdecimal():
        return Unavailable(said)
    return Refused(said)


class _Sdk(Struct, frozen=True):
    Session: Any
    Config: Any
    ClientError: Any
    NoCredentials: tuple[type[Exception], ...]
    Failures: tuple[type[Exception], ...]


def sdk() -> _Sdk:
    """The SDK, loaded when it is first needed. Raises `Unusable` where it is not installed."""
    try:
        session = importlib.import_module("aiobotocore.session")
        config = importlib.import_module("aiobotocore.config")
        failures = importlib.import_module("botocore.exceptions")
        parsers = importlib.import_module("botocore.parsers")
    except ImportError:
        raise Unusable("provider aws needs the package aiobotocore: pip install headroom[aws]") from None
    for name in ("botocore", "aiobotocore"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # their debug logs have every header and body
    return _Sdk(
        session.AioSession,
        config.AioConfig,
        failures.ClientError,
        (failures.NoCredentialsError, failures.PartialCredentialsError, failures.CredentialRetrievalError),
        # An answer that is not of AWS, such as a proxy's page, is no BotoCoreError.
        (failures.BotoCoreError, parsers.ResponseParserError, OSError, ValueError, KeyError, TypeError),
    )


class _Kept:
    """A client, and how many use it now."""

    def __init__(self, client: Any, stack: AsyncExitStack) -> None:
        self.client, self.stack, self.users = client, stack, 0


class Clients:
    """Clients by service, region, address and keys. New keys make a new client; what nobody has used lately is closed."""

    def __init__(self, *, instance_metadata: bool = False) -> None:
        """Only with `instance_metadata` is the machine that we run on asked for its credentials."""
        self._instance_metadata = instance_metadata
        self._kept: dict[str, _Kept] = {}
        self._session: Any = None
        self._making = asyncio.Lock()
        self.accounts = Accounts()
        self.root_devices: dict[str, str] = {}
        """The name of the disk that machines of an image boot from; an image never changes it."""

    @asynccontextmanager
    async def client(self, service: str, region: str, url: str, keys: Keys) -> AsyncIterator[Any]:
        """A client for a few calls. Its failures come as `AwsError`, or as `model.errors`; whatever it takes, no longer than a call may."""
        values = "\0".join((service, region, url, str(keys.ambient), *(keys[name] for name in sorted(keys))))
        name = hashlib.sha256(values.encode()).hexdigest()  # so that no key stands in a dict
        used = sdk()
        async with _explained(used):
            async with self._making:
                kept = self._kept.pop(name, None) or await self._made(used, service, region, url, keys)
                self._kept[name] = kept  # the last used one comes last
                kept.users += 1
            try:
                yield kept.client
            finally:
                kept.users -= 1
                await self._close_idle()

    async def _made(self, used: _Sdk, service: str, region: str, url: str, keys: Keys) -> _Kept:
        if self._session is None:
            self._session = used.Session()
            if not self._instance_metadata:
                self._session.get_component("credential_provider").remove("iam-role")
        config = used.Config(
            retries={"total_max_attempts": 1},
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            ignore_configured_endpoint_urls=True,
        )
        given = {} if keys.ambient else _given(keys)
        stack = AsyncExitStack()
        making = self._session.create_client(
            service, region_name=region, endpoint_url=url or None, config=config, **given
        )
        return _Kept(await stack.enter_async_context(making), stack)

    async def _close_idle(self, most: int = MOST_IDLE) -> None:
        idle = [name for name, each in self._kept.items() if not each.users]
        for name in idle[: max(0, len(idle) - most)]:
            await self._kept.pop(name).stack.aclose()

    async def close(self) -> None:
        """Close those that are idle."""
        await self._close_idle(0)


def _given(keys: Keys) -> Mapping[str, str | None]:
    return {
        "aws_access_key_id": keys["accessKeyId"],
        "aws_secret_access_key": keys["secretAccessKey"],
        "aws_session_token": keys.get("sessionToken"),
    }


@asynccontextmanager
async def _explained(used: _Sdk) -> AsyncIterator[None]:
    """The SDK's errors in our words, without a word of theirs: those may repeat what was sent."""
    try:
        yield
    except used.ClientError as problem:
        response = problem.response if isinstance(problem.response, dict) else {}
        code = (response.get("Error") or {}).get("Code")
        status = (response.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0
        if status >= 500 and (not code or str(code).isdecimal()):  # a page of a proxy, to whom speaks JSON
            raise Unavailable(f"no readable answer from AWS (status {status})") from None
        raise AwsError(code) from None
    except used.NoCredentials as problem:
        raise BadCredentials(f"there are no usable keys for AWS ({type(problem).__name__})") from None
    except used.Failures as problem:
        raise Unavailable(f"no readable answer from AWS ({type(problem).__name__})") from None


@asynccontextmanager
async def within(seconds: float = CALL_SECONDS) -> AsyncIterator[None]:
    """One deadline over everything."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Unavailable(f"no answer from AWS within {seconds:g}s") from None


def spot_price(row: Mapping[str, Any], now: int) -> tuple[int, int] | None:
    """Moment and price of a row of the spot price history; None for one that makes no sense. A price that is none is 0: no older one
    stands for it.
    """
    at = row.get("Timestamp")
    if not isinstance(at, datetime) or row.get("ProductDescription") not in (None, PRODUCT):
        return None
    moment = int(at.timestamp() * times.SECOND)
    return None if moment > now + AHEAD_MS else (moment, millionths(row.get("SpotPrice")) or 0)
