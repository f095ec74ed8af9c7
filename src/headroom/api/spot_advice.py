"""What is allowed in a Spotpool and still hardly meant: said by `headroom check`, refused by nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headroom.api.kinds import AnyResource
from headroom.api.schema import Problem
from headroom.api.spot_pools import DEMAND, SpotpoolSpec

REGIONS_OWN: Final = "DEFAULT"
"""A subnet that stands for the region's own in any zone."""
JOIN_SHARE: Final = 5
"""Idle for less than this part of what a join may take, a machine is ended before it has paid for its start."""


def of_pool(pool: AnyResource) -> list[Problem]:
    """Everything that is dubious about a valid pool, in the order of its fields."""
    spec: SpotpoolSpec = pool.spec
    return [*_places(spec), *_numbers(spec), *_times(spec), *_network(spec), *_keys(spec)]


def _places(spec: SpotpoolSpec) -> Iterator[Problem]:
    if spec.provider != "webhook":
        named = spec.zones or ((spec.availability_zone,) if spec.availability_zone else ())
        for number, zone in enumerate(named):
            if zone and not zone.startswith(spec.region):
                field = f"spec.zones[{number}]" if spec.zones else "spec.availabilityZone"
                yield Problem(field, f"is {zone}, which does not look like a zone of region {spec.region}")
    if len(spec.types) * len(spec.all_zones) == 1 and spec.all_zones[0]:
        yield Problem(
            "spec.instanceType",
            "is one type in one zone, so no machine can be launched while it is sold out there; list more in instanceTypes or zones",
        )


def _numbers(spec: SpotpoolSpec) -> Iterator[Problem]:
    if spec.maximum == 0:
        yield Problem("spec.maximum", "is 0, so the pool never has a machine")
    elif spec.desired == DEMAND and spec.minimum == spec.maximum:
        yield Problem("spec.minimum", "is the maximum, so pending pods never change the number of machines")
    if isinstance(spec.desired, int) and not spec.minimum <= spec.desired <= spec.maximum:
        kept = min(max(spec.desired, spec.minimum), spec.maximum)
        yield Problem(
            "spec.desired", f"is {spec.desired}, outside minimum and maximum; {kept} machines are kept instead"
        )
    if spec.max_surge == 0 and spec.maximum > 0:
        yield Problem(
            "spec.maxSurge",
            "is 0, so at the maximum a machine that is reclaimed is replaced only once it is gone; 1 replaces it first",
        )
    if spec.max_purchases_per_hour is not None and spec.max_purchases_per_hour < spec.minimum:
        yield Problem(
            "spec.maxPurchasesPerHour",
            f"is {spec.max_purchases_per_hour}, so it takes more than an hour to reach the minimum of {spec.minimum}",
        )


def _times(spec: SpotpoolSpec) -> Iterator[Problem]:
    if spec.desired == DEMAND and spec.idle_seconds * JOIN_SHARE < spec.join_timeout_seconds:
        yield Problem(
            "spec.idleSeconds",
            f"is {spec.idle_seconds}, less than a fifth of joinTimeoutSeconds, so machines are ended soon after they join; "
            "600 suits most",
        )


def _network(spec: SpotpoolSpec) -> Iterator[Problem]:
    if spec.subnet_id not in (None, REGIONS_OWN) and len(spec.zones) > 1:
        without = [each for each in spec.zones if each not in spec.subnet_ids]
        if len(without) > 1:
            yield Problem(
                "spec.subnetId",
                f"is in one zone, and {len(without)} zones have no other; give each zone its own in subnetIds",
            )
    unknown = sorted(set(spec.subnet_ids) - set(spec.all_zones))
    if unknown:
        yield Problem("spec.subnetIds", f"names zones that the pool does not launch in: {', '.join(unknown[:3])}")


def _keys(spec: SpotpoolSpec) -> Iterator[Problem]:
    if spec.credentials_secret_ref is None and spec.provider != "webhook":
        yield Problem(
            "spec.credentialsSecretRef",
            "is missing, so the pool works only where an administrator lists its namespace in --ambient-credentials",
        )
    secret = spec.webhook.token_secret_ref or next(
        (each.secret_key_ref for each in spec.webhook.headers if each.secret_key_ref), None
    )
    if spec.endpoint and spec.endpoint.startswith("http://") and (secret or spec.credentials_secret_ref):
        yield Problem("spec.endpoint", "is http, so the token is sent unencrypted; use https")
    if spec.gateway and spec.gateway.token_secret_ref and spec.gateway.admin_url.startswith("http://"):
        yield Problem("spec.gateway.adminUrl", "is http, so the token is sent unencrypted; use https")
