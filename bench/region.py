"""What a region's offers take in memory: read page by page through the code that reads AWS, from answers in the shape of EC2's."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import tracemalloc
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final

from headroom.adapters.clouds.aws_market import AwsMarket
from headroom.adapters.clouds.aws_sdk import Clients
from headroom.adapters.clouds.bucket import TokenBucket
from headroom.adapters.clouds.market import RegionMarket, read_all
from headroom.adapters.clouds.markets import KIND, Markets
from headroom.adapters.clouds.providers import Keys
from headroom.adapters.clouds.sessions import Places
from headroom.adapters.prices import confirmed
from headroom.adapters.usable_by import Secret
from headroom.api.kinds import AnyResource
from headroom.api.offers import LeftoverNodePoolSpec
from headroom.api.offers_status import LeftoverNodePoolStatus
from headroom.model.cloud_facts import Offer
from headroom.model.errors import Refused
from headroom.model.world import World, by_ref
from headroom.runtime.clock import RealClock

TYPES: Final = 170
FEW_TYPES: Final = 100
"""So few that no call has to wait for its token."""
ZONES: Final = 6
PAGE: Final = 100
MEBIBYTE: Final = 1024 * 1024


class _Answers:
    """EC2 and its price list, with so many types and zones, a page at a time."""

    def __init__(self, types: int, zones: int) -> None:
        self._types = [f"g{number // 10}.{number % 10 + 1}xlarge" for number in range(types)]
        self._zones = [(f"use1-az{number}", f"us-east-1{'abcdefghij'[number]}") for number in range(zones)]

    async def describe_availability_zones(self, **_: Any) -> dict[str, Any]:
        rows = [{"ZoneId": one, "ZoneName": name, "ZoneType": "availability-zone"} for one, name in self._zones]
        return {"AvailabilityZones": rows}

    async def describe_instance_types(self, **given: Any) -> dict[str, Any]:
        return _paged("InstanceTypes", [_machine(kind) for kind in self._types], given)

    async def describe_instance_type_offerings(self, **given: Any) -> dict[str, Any]:
        rows = [{"InstanceType": kind, "Location": zone} for kind, zone in self._places(given["Filters"][0]["Values"])]
        return _paged("InstanceTypeOfferings", rows, given)

    async def describe_spot_price_history(self, **given: Any) -> dict[str, Any]:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        rows = [
            {
                "InstanceType": kind,
                "AvailabilityZoneId": zone,
                "SpotPrice": "1.006000",
                "Timestamp": at,
                "ProductDescription": "Linux/UNIX",
            }
            for kind, zone in self._places(given["InstanceTypes"])
        ]
        return _paged("SpotPriceHistory", rows, given)

    async def get_products(self, **given: Any) -> dict[str, Any]:
        return _paged("PriceList", [_product(kind) for kind in self._types], given)

    async def get_spot_placement_scores(self, **_: Any) -> dict[str, Any]:
        return {"SpotPlacementScores": [{"AvailabilityZoneId": zone, "Score": 7} for zone, _ in self._zones]}

    def _places(self, kinds: list[str]) -> Iterator[tuple[str, str]]:
        return ((kind, zone) for kind in kinds for zone, _ in self._zones)


def _paged(field: str, rows: list[Any], given: Mapping[str, Any]) -> dict[str, Any]:
    begin = int(given.get("NextToken") or 0)
    end = begin + PAGE
    return {field: rows[begin:end]} | ({"NextToken": str(end)} if end < len(rows) else {})


def _machine(kind: str) -> dict[str, Any]:
    gpu = {"Count": 1, "Manufacturer": "NVIDIA", "Name": f"GPU-{kind.partition('.')[0]}"}
    return {
        "InstanceType": kind,
        "ProcessorInfo": {"SupportedArchitectures": ["x86_64"]},
        "SupportedUsageClasses": ["on-demand", "spot"],
        "GpuInfo": {"Gpus": [gpu | {"MemoryInfo": {"SizeInMiB": 22888}}], "TotalGpuMemoryInMiB": 22888},
        "NetworkInfo": {"NetworkCards": [{"BaselineBandwidthInGbps": 10.0}]},
    }


def _product(kind: str) -> str:
    about = {"instanceType": kind, "regionCode": "us-east-1", "operatingSystem": "Linux", "tenancy": "Shared"}
    term = {"priceDimensions": {"a": {"unit": "Hrs", "pricePerUnit": {"USD": "1.006"}}}}
    return json.dumps({"product": {"attributes": about}, "terms": {"OnDemand": {"a": term}}})


class _Given(Clients):
    """Clients that answer without a network."""

    def __init__(self, answers: _Answers) -> None:
        super().__init__()
        self._answers, self.lists = answers, 0

    @asynccontextmanager
    async def client(self, service: str, region: str, url: str, keys: Keys) -> AsyncIterator[Any]:
        del service, region, url, keys
        self.lists += 1
        yield self._answers


async def _read(types: int, zones: int) -> tuple[RegionMarket, dict[str, Offer]]:
    clock = RealClock()
    aws = AwsMarket("us-east-1", Keys({}), _Given(_Answers(types, zones)), TokenBucket(clock, 1e6, 1000))
    market = RegionMarket(region="us-east-1")
    spec = LeftoverNodePoolSpec(region="us-east-1", node_class_name="gpu")
    offers: dict[str, Offer] = {}
    for _ in range(2):  # the second time what is the same stays the same object
        problems = await read_all(market, aws, [spec], clock.now())
        assert not problems, problems
        offers = confirmed(offers, market.offers(clock.now()))
    return market, offers


def region_memory(types: int = TYPES, zones: int = ZONES) -> dict[str, float]:
    """How many offers a region has, and the MiB that they take: what is kept, and the most while it is read. The SDK is not in it."""
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    market, offers = asyncio.run(_read(types, zones))
    gc.collect()
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(offers) == 2 * types * zones, (len(offers), len(market.types))
    return {"offers": len(offers), "kept": (kept - before) / MEBIBYTE, "most": (most - before) / MEBIBYTE}


class _NoSecrets:
    """Nobody needs one."""

    async def read(self, name: str, namespace: str = "") -> Secret:
        raise Refused(f"there is no Secret {namespace}/{name}")


async def _polled(objects: int) -> int:
    clients, clock = _Given(_Answers(FEW_TYPES, ZONES)), RealClock()
    markets = Markets(_NoSecrets(), clients, Places(), clock, random.Random(1), lambda _topic, _name: None)
    spec = LeftoverNodePoolSpec(region="us-east-1", node_class_name="gpu", requeue_minutes=1)
    pools = [
        AnyResource(kind=KIND, namespace="", name=f"p{number}", spec=spec, status=LeftoverNodePoolStatus())
        for number in range(objects)
    ]
    world = World(now=clock.now(), resources=by_ref(pools))
    quiet = 0
    while quiet < 50:  # until nothing has been due for a while
        markets.step(world)
        quiet = 0 if markets.is_busy else quiet + 1
        await clock.sleep(0.01)
    assert len(markets.feeds) == objects
    assert all(each.score for each in markets.offers.values() if each.capacity_type == "spot")
    await markets.stop()
    return clients.lists


def lists_read(objects: int) -> int:
    """How many lists of AWS are read for so many LeftoverNodePools in one region."""
    return asyncio.run(_polled(objects))


if __name__ == "__main__":
    found = region_memory()
    print(f"lists read for 1 object: {lists_read(1)}, for 100: {lists_read(100)}")
    print(
        f"{found['offers']} offers: {found['kept']:.1f} MiB kept, {found['most']:.1f} MiB at most while they are read"
    )
