"""What AWS says of a region's GPU machines: types, zones, spot and on-demand prices, placement scores.

Every page is one call, and takes one token. A row that makes no sense is left out and costs the others nothing; an answer without end is
refused.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

from headroom.adapters.clouds.aws_sdk import PRODUCT, AwsError, Clients, spot_price, told, within
from headroom.adapters.clouds.bucket import TokenBucket
from headroom.adapters.clouds.machine_types import MachineType, machine_type
from headroom.adapters.clouds.providers import CALL_SECONDS, Keys, batches, checked_region, millionths
from headroom.model import times
from headroom.model.errors import Refused, Unavailable

LIST_SECONDS: Final = 120.0
"""For all pages of a list."""
PAGE: Final = 100
PRICE_PAGE: Final = 1000
MOST_PAGES: Final = 100
MOST_ROWS: Final = 20_000
TYPES_AT_ONCE: Final = 150
"""Values of one filter; EC2 takes 200."""
FAMILIES: Final = ("g*", "p*")
"""What the names of machine types with GPUs begin with; families that resources name are asked for beside them."""
PER_SECOND, BURST = 2.0, 20
"""How many calls a region gets: a small part of what EC2 allows an account."""
_PRODUCTS: Final = {
    "operatingSystem": "Linux",
    "tenancy": "Shared",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "instanceFamily": "GPU instance",
}

Place = tuple[str, str]
"""Machine type and zone id."""


class AwsMarket:
    """A region, seen with one set of keys."""

    def __init__(
        self, region: str, keys: Keys, clients: Clients, bucket: TokenBucket, urls: Mapping[str, str] | None = None
    ) -> None:
        """`urls` are other addresses than the usual ones, of ec2 and pricing."""
        self._region, self._keys, self._clients = checked_region(region), keys, clients
        self._bucket, self._urls = bucket, dict(urls or {})

    async def types(self, families: Iterable[str] = ()) -> dict[str, MachineType]:
        """All types with GPUs, by name."""
        wanted = sorted({*FAMILIES, *(f"{each}.*" for each in families)})
        found: dict[str, MachineType] = {}
        for part in batches(wanted, TYPES_AT_ONCE):
            given = {"Filters": [{"Name": "instance-type", "Values": list(part)}], "MaxResults": PAGE}
            for row in await self._rows("describe_instance_types", "InstanceTypes", given):
                if (each := machine_type(row)) is not None:
                    found[each.name] = each
        return found

    async def zones(self) -> dict[str, str]:
        """The names of the region's zones, by id; local zones are none of Karpenter's usual ones."""
        found: dict[str, str] = {}
        for row in await self._rows("describe_availability_zones", "AvailabilityZones", {}):
            zone_id, name = row.get("ZoneId"), row.get("ZoneName")
            if _word(zone_id) and _word(name) and row.get("ZoneType") in (None, "availability-zone"):
                found[str(zone_id)] = str(name)
        return found

    async def offered(self, types: Sequence[str]) -> set[Place]:
        """Which types are sold in which zones."""
        found: set[Place] = set()
        for part in batches(sorted(types), TYPES_AT_ONCE):
            given = {
                "LocationType": "availability-zone-id",
                "Filters": [{"Name": "instance-type", "Values": list(part)}],
            }
            for row in await self._rows("describe_instance_type_offerings", "InstanceTypeOfferings", given):
                found.add((str(row.get("InstanceType")), str(row.get("Location"))))
        return found

    async def spot(self, types: Sequence[str], zones: Mapping[str, str], now: int) -> dict[Place, int]:
        """Spot prices in force, in millionths of a dollar: the newest of each type and zone; of two of one moment the dearer."""
        ids = {name: zone_id for zone_id, name in zones.items()}
        newest: dict[Place, tuple[int, int]] = {}
        begin = datetime.fromtimestamp(now / times.SECOND, UTC)
        for part in batches(sorted(types), TYPES_AT_ONCE):
            given = {
                "InstanceTypes": list(part),
                "ProductDescriptions": [PRODUCT],
                "StartTime": begin,
                "MaxResults": PRICE_PAGE,
            }
            for row in await self._rows("describe_spot_price_history", "SpotPriceHistory", given):
                found = _priced(row, ids, now)
                if found is not None and found[0] in set(part) and found[1] in zones:
                    kind, zone_id, at, price = found
                    newest[kind, zone_id] = max(newest.get((kind, zone_id), (at, price)), (at, price))
        return {place: price for place, (_, price) in newest.items() if price}

    async def on_demand(self) -> dict[str, int]:
        """What types cost on demand, in millionths of a dollar."""
        filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in _PRODUCTS.items()]
        filters.append({"Type": "TERM_MATCH", "Field": "regionCode", "Value": self._region})
        given = {"ServiceCode": "AmazonEC2", "Filters": filters, "MaxResults": PAGE}
        found: dict[str, int] = {}
        for row in await self._rows("get_products", "PriceList", given, service="pricing"):
            for kind, price in _products(row, self._region):
                found[kind] = max(price, found.get(kind, 0))
        return found

    async def scores(self, types: Sequence[str], count: int) -> dict[str, int]:
        """How likely so many machines of any of these types can be had, from 1 to 10, by zone id."""
        given = {
            "InstanceTypes": sorted(types),
            "TargetCapacity": count,
            "TargetCapacityUnitType": "units",
            "SingleAvailabilityZone": True,
            "RegionNames": [self._region],
            "MaxResults": PAGE,
        }
        found: dict[str, int] = {}
        for row in await self._rows("get_spot_placement_scores", "SpotPlacementScores", given):
            score, zone_id = row.get("Score"), row.get("AvailabilityZoneId")
            good = isinstance(score, int) and not isinstance(score, bool) and 1 <= score <= 10
            if good and _word(zone_id) and row.get("Region") in (None, self._region):
                found[str(zone_id)] = score
        return found

    async def _rows(self, call: str, field: str, given: Mapping[str, Any], service: str = "ec2") -> list[Any]:
        """All rows of all pages."""
        token, seen = "", set[str]()
        found: list[Any] = []
        async with self._client(service) as client:
            for _ in range(MOST_PAGES):
                await self._bucket.take()
                async with within(CALL_SECONDS):
                    answer = await getattr(client, call)(**given, **({"NextToken": token} if token else {}))
                found += [row for row in answer.get(field) or () if isinstance(row, Mapping | str)]
                token = str(answer.get("NextToken") or "")
                if not token:
                    return found
                if token in seen or len(found) > MOST_ROWS:
                    break
                seen.add(token)
        raise Unavailable(f"AWS answered {call} without an end")

    @asynccontextmanager
    async def _client(self, service: str) -> AsyncIterator[Any]:
        """A client for all pages of a list, with its failures in our words."""
        region = pricing_region(self._region) if service == "pricing" else self._region
        try:
            async with (
                within(LIST_SECONDS),
                self._clients.client(service, region, self._urls.get(service, ""), self._keys) as client,
            ):
                yield client
        except AwsError as problem:
            raise told(problem.code) from None


def pricing_region(region: str) -> str:
    """Where the price list of a region is served. Raises `Refused` for regions whose list AWS serves nowhere."""
    if region.startswith(("us-gov-", "us-iso", "eu-isoe", "eusc-")):
        raise Refused("AWS serves no price list for this region; put its on-demand prices into the price book")
    return "cn-northwest-1" if region.startswith("cn-") else "us-east-1"


def _word(found: object) -> bool:
    return isinstance(found, str) and 0 < len(found) <= 64


def _priced(row: Mapping[str, Any], ids: Mapping[str, str], now: int) -> tuple[str, str, int, int] | None:
    """Type, zone id, moment and price of a row; None for one that makes no sense."""
    kind, zone_id = row.get("InstanceType"), row.get("AvailabilityZoneId") or ids.get(str(row.get("AvailabilityZone")))
    price = spot_price(row, now)
    return (str(kind), str(zone_id), *price) if price is not None and _word(kind) and _word(zone_id) else None


def _products(row: object, region: str) -> list[tuple[str, int]]:
    """Types and prices of one product of the price list, which is JSON in a text; none for what makes no sense."""
    try:
        found: Any = json.loads(row) if isinstance(row, str) else row
        about = found["product"]["attributes"]
        if any(about.get(name, value) != value for name, value in _PRODUCTS.items() if name != "instanceFamily"):
            return []
        if about.get("regionCode", region) != region or about.get("marketoption", "OnDemand") != "OnDemand":
            return []
        kind = about["instanceType"]
        dimensions = [each for term in found["terms"]["OnDemand"].values() for each in term["priceDimensions"].values()]
        prices = [millionths(each["pricePerUnit"].get("USD")) for each in dimensions if each.get("unit") == "Hrs"]
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        return []
    return [(kind, price) for price in prices if price] if _word(kind) else []
