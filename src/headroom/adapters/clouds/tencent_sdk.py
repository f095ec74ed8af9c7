"""What is used of Tencent Cloud's SDK, and its errors in our words."""

from __future__ import annotations

import importlib
import logging
from typing import Any, Final

from msgspec import Struct

from headroom.adapters.clouds.providers import (
    BadCredentials,
    CloudThrottled,
    NotLaunched,
    NotPermitted,
    Outcome,
    Unusable,
    code_in,
)
from headroom.model.errors import HeadroomError, Refused, Unavailable

_SOLD_OUT: Final = frozenset(
    f"ResourceInsufficient.{each}"
    for each in (
        "SpecifiedInstanceType",
        "ZoneSoldOutForSpecifiedInstance",
        "AvailabilityZoneSoldOut",
        "InsufficientOfferingMinimum",
        "CloudDiskSoldOut",
        "CloudDiskUnavailable",
    )
) | {"ResourceUnavailable.InstanceType", "UnsupportedOperation.NoInstanceTypeSupportSpot"}
_QUOTAS: Final = ("LimitExceeded", "OverQuota", "InstancesQuotaLimitExceeded", "ResourceInsufficient.DisasterRecover")
_REFUSED: Final = (
    "AccountQualificationRestrictions",
    "AuthFailure",
    "Invalid",
    "MissingParameter",
    "OperationDenied.AccountNotSupported",
    "RegionAbilityLimit",
    "ResourceInsufficient",
    "ResourceNotFound",
    "UnauthorizedOperation",
    "UnknownParameter",
    "UnsupportedOperation",
)
NO_SUCH_ID: Final = (
    "InvalidInstanceId",
    "ResourceNotFound.InvalidInstanceIdNotFound",
    "InvalidParameterValue.InstanceIdMalformed",
)


class TencentError(HeadroomError):
    """The cloud answered with an error of this code."""

    def __init__(self, code: object) -> None:
        self.code = code_in(code)
        super().__init__(f"Tencent Cloud answered {self.code}")


class Sdk(Struct, frozen=True):
    """What we use of the SDK."""

    Client: Any
    Credential: Any
    Ambient: Any
    ClientProfile: Any
    HttpProfile: Any
    Failure: Any


def sdk() -> Sdk:
    """The SDK, loaded when it is first needed. Raises `Unusable` where it is not installed."""
    try:
        common = "tencentcloud.common"
        client = importlib.import_module(f"{common}.common_client")
        credential = importlib.import_module(f"{common}.credential")
        client_profile = importlib.import_module(f"{common}.profile.client_profile")
        http_profile = importlib.import_module(f"{common}.profile.http_profile")
        failures = importlib.import_module(f"{common}.exception.tencent_cloud_sdk_exception")
    except ImportError:
        raise Unusable(
            "provider tencent needs the package tencentcloud-sdk-python-cvm: pip install headroom[tencent]"
        ) from None
    logging.getLogger("tencentcloud_sdk_common").setLevel(logging.CRITICAL)  # its debug log has every header and body
    return Sdk(
        client.CommonClient,
        credential.Credential,
        credential.DefaultCredentialProvider,
        client_profile.ClientProfile,
        http_profile.HttpProfile,
        failures.TencentCloudSDKException,
    )


def told(code: str) -> HeadroomError:
    """A failure that does not depend on what was asked."""
    said = f"Tencent Cloud answered {code}"
    if code.startswith("RequestLimitExceeded"):
        return CloudThrottled(f"{said}: too many requests")
    if code.startswith(("UnauthorizedOperation", "AuthFailure.Unauthorized")):
        return NotPermitted(f"{said}: the keys lack the permission")
    if code.startswith("AuthFailure.SignatureExpire"):
        return BadCredentials(f"{said}: this machine's clock, or the cloud's, is more than 5 minutes off")
    if code.startswith("AuthFailure"):
        return BadCredentials(f"{said}: the keys are not valid")
    if code.startswith(("InternalError", "InternalServerError", "FailedOperation", "MutexOperation")):
        return Unavailable(said)
    return Refused(said)


def not_launched(code: str) -> NotLaunched:
    """What a refused launch proves. What is not surely a refusal is Unknown."""
    said = f"Tencent Cloud answered {code}"
    outcomes: tuple[tuple[bool, Outcome], ...] = (
        (code.startswith("RequestLimitExceeded"), "Unknown"),
        (code.startswith("InvalidClientToken") and code != "InvalidClientToken.TooLong", "Unknown"),
        (code in _SOLD_OUT or code.startswith("ResourcesSoldOut"), "SoldOut"),
        (code == "InvalidParameterValue.InsufficientPrice", "PriceTooLow"),
        (code.startswith(_QUOTAS), "QuotaReached"),
        (code.startswith(_REFUSED), "Refused"),
    )
    outcome: Outcome = next((word for is_it, word in outcomes if is_it), "Unknown")
    return NotLaunched(outcome, said, before_token=outcome == "Refused")
