"""What moto lacks of a region's market: spot prices with dates and pages, placement scores, and the price list."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from headroom.model import times

SPACE: Final = "http://ec2.amazonaws.com/doc/2016-11-15/"
TARGET: Final = "AWSPriceListService.GetProducts"
ZONES: Final = {
    "use1-az6": "us-east-1a",
    "use1-az1": "us-east-1b",
    "use1-az2": "us-east-1c",
    "use1-az4": "us-east-1d",
    "use1-az3": "us-east-1e",
    "use1-az5": "us-east-1f",
}
"""As moto has them."""


def product(kind: str, dollars: object, *, region: str = "us-east-1", **about: str) -> dict[str, Any]:
    """A product of the price list, in the shape of the real one."""
    attributes = {
        "instanceType": kind,
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "instanceFamily": "GPU instance",
    }
    dimension = {"unit": "Hrs", "pricePerUnit": {"USD": dollars}, "beginRange": "0", "endRange": "Inf"}
    term = {"priceDimensions": {"SKU.TERM.RATE": dimension}, "sku": "SKU", "termAttributes": {}}
    return {
        "product": {"productFamily": "Compute Instance", "attributes": attributes | about, "sku": "SKU"},
        "serviceCode": "AmazonEC2",
        "terms": {"OnDemand": {"SKU.TERM": term}},
    }


class AwsRegion:
    """The market of a region as a test has set it; what is not set is not answered here."""

    def __init__(self) -> None:
        self.history: list[tuple[str, str, str, int]] = []
        """Type, zone id, price, and since when, in milliseconds."""
        self.scores: Callable[[frozenset[str], int], dict[str, int]] | None = None
        """By the types and the count that are asked for, the score of each zone id."""
        self.products: list[Any] | None = None
        self.page = 1000
        self.with_zone_ids = True
        self.endless = False
        """The last page names another one."""
        self.asked: list[tuple[str, frozenset[str], int]] = []
        """Every question for scores: its region, types and count."""

    def answer(self, action: str, given: dict[str, str], body: bytes) -> tuple[str, bytes] | None:
        """The content type and the body; None for what somebody else answers."""
        if action == "DescribeSpotPriceHistory" and self.history:
            return self._xml(action, "spotPriceHistorySet", self._prices(given), given)
        if action == "GetSpotPlacementScores" and self.scores is not None:
            return self._xml(action, "spotPlacementScoreSet", self._scored(given, self.scores), given)
        if action == TARGET and self.products is not None:
            return self._listed(json.loads(body), self.products)
        return None

    def _prices(self, given: dict[str, str]) -> Iterable[dict[str, str]]:
        """The newest first: all changes since StartTime, and what was in force then."""
        kinds = {value for key, value in given.items() if key.startswith("InstanceType.")}
        since, in_force = times.moment(given["StartTime"]) or 0, set[tuple[str, str]]()
        for kind, zone, price, at in sorted(self.history, key=lambda each: -each[3]):
            if kind not in kinds or (at <= since and (kind, zone) in in_force):
                continue
            if at <= since:
                in_force.add((kind, zone))
            row = {"instanceType": kind, "productDescription": "Linux/UNIX", "spotPrice": price}
            row |= {"timestamp": times.text(at), "availabilityZone": ZONES.get(zone, "")}
            yield row | ({"availabilityZoneId": zone} if self.with_zone_ids else {})

    def _scored(
        self, given: dict[str, str], scores: Callable[[frozenset[str], int], dict[str, int]]
    ) -> Iterable[dict[str, str]]:
        kinds = frozenset(value for key, value in given.items() if key.startswith("InstanceType."))
        count, region = int(given["TargetCapacity"]), given["RegionName.1"]
        assert given["SingleAvailabilityZone"] == "true"
        assert given["TargetCapacityUnitType"] == "units"
        self.asked.append((region, kinds, count))
        found = sorted(scores(kinds, count).items(), key=lambda each: -each[1])[:10]
        return [{"region": region, "availabilityZoneId": zone, "score": str(score)} for zone, score in found]

    def _xml(self, action: str, field: str, rows: Iterable[dict[str, str]], given: dict[str, str]) -> tuple[str, bytes]:
        part, token = self._part([*rows], given.get("NextToken", ""), int(given.get("MaxResults") or 1000))
        items = "".join(
            "<item>" + "".join(f"<{name}>{escape(value)}</{name}>" for name, value in row.items()) + "</item>"
            for row in part
        )
        text = f'<{action}Response xmlns="{SPACE}"><{field}>{items}</{field}><nextToken>{token}</nextToken></{action}Response>'
        return "text/xml;charset=UTF-8", text.encode()

    def _listed(self, asked: dict[str, Any], products: Sequence[Any]) -> tuple[str, bytes]:
        assert asked["ServiceCode"] == "AmazonEC2"
        wanted = {each["Field"]: each["Value"] for each in asked["Filters"] if each["Type"] == "TERM_MATCH"}
        found = [each if isinstance(each, str) else json.dumps(each) for each in products if _matches(each, wanted)]
        part, token = self._part(found, asked.get("NextToken", ""), asked["MaxResults"])
        answer = {"FormatVersion": "aws_v1", "PriceList": part} | ({"NextToken": token} if token else {})
        return "application/x-amz-json-1.1", json.dumps(answer).encode()

    def _part(self, rows: list[Any], token: str, most: int) -> tuple[list[Any], str]:
        begin, size = int(token.removeprefix("page-") or 0), min(self.page, most)
        more = begin + size < len(rows) or self.endless
        return rows[begin : begin + size], f"page-{begin + size}" if more else ""

    def paged(self, action: str, answer: bytes, given: dict[str, str]) -> bytes:
        """An answer of moto, which knows no pages here, in pages."""
        field = {"DescribeInstanceTypes": "instanceTypeSet", "DescribeInstanceTypeOfferings": "instanceTypeOfferingSet"}
        tree = ET.fromstring(answer)
        found = tree.find(f"{{*}}{field[action]}")
        if found is None:
            return answer
        part, token = self._part(list(found), given.get("NextToken", ""), int(given.get("MaxResults") or 1000))
        for item in list(found):
            found.remove(item)
        found.extend(part)
        for old in tree.findall("{*}nextToken"):
            tree.remove(old)
        ET.SubElement(tree, tree.tag.rpartition("}")[0] + "}nextToken").text = token
        ET.register_namespace("", tree.tag[1:].partition("}")[0])
        return ET.tostring(tree)


def _matches(each: Any, wanted: dict[str, str]) -> bool:
    """Rows that are no products are answered whatever is asked for."""
    if not isinstance(each, dict) or "product" not in each:
        return True
    about = each["product"].get("attributes")
    return not isinstance(about, dict) or all(about.get(name, value) == value for name, value in wanted.items())
