"""Any other cloud, behind a small JSON protocol over HTTP: docs/spot-pools-webhook.md. Every call goes through the egress guard.

Whoever writes the pool chooses who answers. So nothing of an answer is told but its number and words of our own, provider and region
are ours to say, and what is not exactly as the protocol has it is no answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Self, TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from headroom.adapters.clouds.providers import (
    ON_DEMAND,
    SPOT,
    BadCredentials,
    CloudThrottled,
    Keys,
    LaunchRequest,
    NotLaunched,
    NotPermitted,
    QuoteRequest,
    ReclaimNotice,
    batches,
    checked_region,
    dollars,
    is_id,
    millionths,
    own_tags,
    unknown_ids,
)
from headroom.adapters.egress import Guard, HttpResponse, Request, target_of
from headroom.api.marks import CLUSTER_TAG
from headroom.model import times
from headroom.model.cloud_facts import Instance, Offer
from headroom.model.errors import HeadroomError, Refused, Unavailable

NAME: Final = "webhook"
PAGE: Final = 100
"""Machines on a page; an answer may have 64 KiB."""
MOST_PAGES: Final = 1000
MOST_IDS: Final = 40
MOST_OFFERS: Final = 1000
LONGEST_WORD: Final = 128

Wire = TypeVar("Wire", bound=Struct)


class _Machine(Struct, rename="camel"):
    id: str
    state: str = ""
    zone: str = ""
    instance_type: str = ""
    public_ip: str = ""
    private_ip: str = ""
    tags: dict[str, str] = {}
    launched_at: str = ""
    reclaim_at: str = ""
    price_per_hour: str = ""


class _Machines(Struct):
    instances: list[_Machine]
    next: str = ""
    notices: bool = False


class _Launched(Struct):
    instance: _Machine


class _NotLaunched(Struct):
    refused: Literal["SoldOut", "PriceTooLow", "QuotaReached", "Refused"]


class _Offer(Struct, rename="camel"):
    instance_type: str
    zone: str = ""
    price_per_hour: str = ""
    available: bool | None = None
    gpus: int = 0


class _Offers(Struct):
    offers: list[_Offer]


class WebhookProvider:
    """Whoever answers at an address."""

    def __init__(
        self, region: str, endpoint: str, headers: Keys, guard: Guard, *, seconds: float = 5.0, page: int = PAGE
    ) -> None:
        """`headers` go with every call, secret ones among them."""
        self._region, self._headers, self._guard = checked_region(region), headers, guard
        self._seconds, self._page = seconds, page
        target = target_of(endpoint)
        if target.query:
            raise Refused("spec.endpoint must have no query: paths are added to it")
        self._endpoint, self._base, self._host, self._notices = endpoint, endpoint.rstrip("/"), target.host, False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is held between calls."""

    # The provider

    async def identity(self) -> str:
        """There are none: its address says whose machines they are."""
        return ""

    async def machines(self, cluster: str) -> list[Instance]:
        """Every machine with the cluster's tag."""
        found: dict[str, Instance] = {}
        page, pages = "", set[str]()
        while True:
            asked = {"cluster": cluster, "region": self._region, "limit": str(self._page), "page": page}
            answer = await self._get("/instances", asked, _Machines)
            for each in answer.instances:
                if each.id in found:
                    raise Unavailable(f"{self._host} answered with a machine twice")
                found[each.id] = self._instance(each)
            self._notices, page = answer.notices, answer.next
            if not page:
                return [each for each in found.values() if each.tags.get(CLUSTER_TAG) == cluster]
            if page in pages or len(pages) >= MOST_PAGES:
                raise Unavailable(f"{self._host} answered with a repeated page, or with too many")
            pages.add(page)

    async def describe(self, ids: Sequence[str]) -> dict[str, Instance]:
        """Machines by id."""
        found: dict[str, Instance] = {}
        for part in batches(ids, MOST_IDS):
            answer = await self._get("/instances", {"region": self._region, "ids": ",".join(part)}, _Machines)
            if answer.next:
                raise Unavailable(f"{self._host} answered with a part of the machines")
            found |= {each.id: self._instance(each) for each in answer.instances if each.id in part}
        return found | unknown_ids(ids, found, NAME, self._region)

    async def launch(self, request: LaunchRequest) -> Instance:
        """Launch a machine, or learn which one the token has launched."""
        try:
            answer = await self._call("/instances", self._wanted(request), key=request.token)
            if 400 <= answer.status < 500 and (why := _read(answer, _NotLaunched)) is not None:
                raise NotLaunched(why.refused, f"{self._host} answered {why.refused}")
            self._check(answer)
            launched = self._decoded(answer, _Launched)
            found = self._instance(launched.instance)
        except NotLaunched:
            raise
        except HeadroomError as problem:
            # A refusal that the protocol does not know may be a proxy's.
            surely = isinstance(problem, BadCredentials | NotPermitted)
            raise NotLaunched("Refused" if surely else "Unknown", str(problem), before_token=surely) from None
        if dict(found.tags) != request.tags:
            raise NotLaunched("Unknown", f"{self._host} answered with a machine without Headroom's tags")
        return found

    async def terminate(self, ids: Sequence[str]) -> None:
        """End machines."""
        self._check(await self._call("/instances/terminate", {"region": self._region, "ids": list(ids)}))

    async def offers(self, question: QuoteRequest) -> list[Offer]:
        """Prices and stock; a service without prices need not answer."""
        capacity = SPOT if question.spot else ON_DEMAND
        asked = [("region", self._region), ("capacityType", capacity)]
        asked += [("instanceType", each) for each in question.types] + [
            ("zone", each) for each in question.zones if each
        ]
        answer = await self._call(f"/offers?{urlencode(asked)}")
        if answer.status in (404, 501):
            return []
        self._check(answer)
        found = self._decoded(answer, _Offers).offers[:MOST_OFFERS]
        return [self._offer(each, question) for each in found if each.instance_type in question.types]

    async def notices(self) -> list[ReclaimNotice] | None:
        """They stand in the list itself, if it says that it has them."""
        return [] if self._notices else None

    # What is sent, and what comes back

    def _wanted(self, request: LaunchRequest) -> dict[str, Any]:
        return {
            "token": request.token,
            "name": request.name,
            "region": self._region,
            "zone": request.zone,
            "instanceType": request.instance_type,
            "capacityType": SPOT if request.spot else ON_DEMAND,
            "maxPricePerHour": "" if request.max_price is None else dollars(request.max_price),
            "imageId": request.image,
            "vpcId": request.vpc,
            "subnetId": request.subnet,
            "securityGroupIds": list(request.security_groups),
            "systemDisk": {"type": request.disk_type, "sizeGiB": request.disk_gib},
            "publicIp": request.public_ip,
            "keyIds": list(request.key_ids),
            "tags": request.tags,
            "userData": request.user_data.get("userData", ""),
        }

    def _instance(self, found: _Machine) -> Instance:
        words = (found.state, found.zone, found.instance_type, found.public_ip, found.private_ip)
        if not is_id(found.id) or any(len(each) > LONGEST_WORD or not each.isprintable() for each in words):
            raise Unavailable(f"{self._host} answered with a machine that cannot be read")
        return Instance(
            name=found.id,
            provider=NAME,
            region=self._region,
            zone=found.zone,
            instance_type=found.instance_type,
            state=found.state,
            public_ip=found.public_ip,
            private_ip=found.private_ip,
            tags=own_tags(found.tags.items()),
            launched_at=times.moment(found.launched_at),
            reclaim_at=times.moment(found.reclaim_at),
            price_per_hour=millionths(found.price_per_hour),
        )

    def _offer(self, found: _Offer, question: QuoteRequest) -> Offer:
        capacity, zone = SPOT if question.spot else ON_DEMAND, found.zone[:LONGEST_WORD]
        return Offer(
            name=f"{NAME}/{self._endpoint}/{self._region}/{zone}/{found.instance_type}/{capacity}",
            provider=NAME,
            region=self._region,
            zone=zone,
            instance_type=found.instance_type,
            gpus=max(0, min(found.gpus, 1024)),
            capacity_type=capacity,
            price_per_hour=millionths(found.price_per_hour),
            at=question.now,
            available=found.available,
            endpoint=self._endpoint,
        )

    # The call

    async def _get(self, path: str, asked: Mapping[str, str], kind: type[Wire]) -> Wire:
        answer = await self._call(f"{path}?{urlencode({key: value for key, value in asked.items() if value})}")
        self._check(answer)
        return self._decoded(answer, kind)

    async def _call(self, path: str, body: Mapping[str, Any] | None = None, key: str = "") -> HttpResponse:
        headers = {"accept": "application/json", **self._headers}
        if body is not None:
            headers["content-type"] = "application/json"
        if key:
            headers["idempotency-key"] = key
        sent = b"" if body is None else msgspec.json.encode(body)
        request = Request(url=self._base + path, method="GET" if body is None else "POST", headers=headers, body=sent)
        return await self._guard.call(request, self._seconds)

    def _check(self, answer: HttpResponse) -> None:
        said = f"{self._host} answered {answer.status}"
        if answer.status == 401:
            raise BadCredentials(f"{said}: the token is not valid")
        if answer.status == 403:
            raise NotPermitted(f"{said}: the token lacks the permission")
        if answer.status == 429:
            raise CloudThrottled(f"{said}: too many requests")
        if not 200 <= answer.status < 300:
            raise (Unavailable if answer.status >= 500 else Refused)(said)

    def _decoded(self, answer: HttpResponse, kind: type[Wire]) -> Wire:
        found = _read(answer, kind)
        if found is None:
            raise Unavailable(f"{self._host} answered with something that is not of the webhook protocol")
        return found


def _read(answer: HttpResponse, kind: type[Wire]) -> Wire | None:
    try:
        return msgspec.json.decode(answer.body, type=kind) if answer.whole else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
