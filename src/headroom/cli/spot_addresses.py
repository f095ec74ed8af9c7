"""The addresses in spot pools, and which of their Secrets are sent where."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headroom.api.spot_pools import SpotpoolSpec


def called(spec: SpotpoolSpec) -> Iterator[tuple[str, str]]:
    """Every address that a pool gives, with its field. Those of clouds are settings, so no pool can change them."""
    if spec.endpoint:
        yield "spec.endpoint", spec.endpoint
    if spec.gateway:
        yield "spec.gateway.adminUrl", spec.gateway.admin_url


def sent(spec: SpotpoolSpec) -> Iterator[tuple[str, str]]:
    """Every Secret of a pool, with the address that it is sent to."""
    cloud = spec.endpoint or cloud_address(spec.provider, spec.region)
    of_webhook = (spec.webhook.token_secret_ref, *(each.secret_key_ref for each in spec.webhook.headers))
    for ref in (spec.credentials_secret_ref, spec.user_data_secret_ref, *(of_webhook if spec.endpoint else ())):
        if ref is not None:
            yield ref.name, cloud
    if spec.gateway and spec.gateway.token_secret_ref:
        yield spec.gateway.token_secret_ref.name, spec.gateway.admin_url


def cloud_address(provider: str, region: str) -> str:
    """Where a cloud answers, as the operator's setting says if it is set here too; empty for one whose address a pool gives."""
    from headroom.adapters.clouds import aws, tencent
    from headroom.model.errors import Refused
    from headroom.runtime.settings import load, pairs_of

    moved = pairs_of("cloud_endpoints", load({}).cloud_endpoints)
    try:
        usual = {"aws": aws.usual_url(region), "tencent": tencent.URL}
        return moved.get({"aws": "aws-ec2"}.get(provider, provider)) or usual.get(provider, "")
    except Refused:
        return ""
