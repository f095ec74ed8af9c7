"""Tencent Cloud (CVM), through its own SDK.

The SDK's generic client signs and sends; it waits for answers, so each call has a thread. It never repeats a call by itself. Only
codes of errors are told, never the sentences with them: those may repeat what was sent.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import msgspec
from msgspec import Struct

from headroom.adapters.clouds.accounts import Accounts
from headroom.adapters.clouds.providers import (
    CALL_SECONDS,
    ON_DEMAND,
    SPOT,
    BadCredentials,
    Keys,
    LaunchRequest,
    NotLaunched,
    QuoteRequest,
    ReclaimNotice,
    batches,
    checked_region,
    code_in,
    dollars,
    is_id,
    millionths,
    own_tags,
    unknown_ids,
)
from headroom.adapters.clouds.tencent_sdk import NO_SUCH_ID, TencentError, not_launched, sdk, told
from headroom.adapters.clouds.threads import Threads
from headroom.adapters.egress import target_of
from headroom.api.marks import CLUSTER_TAG
from headroom.model import times
from headroom.model.cloud_facts import Instance, Offer
from headroom.model.errors import HeadroomError, Refused, Unavailable

NAME: Final = "tencent"
URL: Final = "https://cvm.tencentcloudapi.com"
"""One host for all regions; the region stands in a header."""
STS_URL: Final = "https://sts.tencentcloudapi.com"
PAGE: Final = 100
MOST_IDS: Final = 100
MOST_MACHINES: Final = 100_000
TRIES: Final = 3
"""How often a list is begun anew if machines come and go under it."""
SOCKET_SECONDS: Final = 20
VERSIONS: Final = {"cvm": "2017-03-12", "sts": "2018-08-13"}


class _Tag(Struct, rename="pascal"):
    key: str | None = None
    value: str | None = None


class _Placement(Struct, rename="pascal"):
    zone: str | None = None


class _Instance(Struct, rename="pascal"):
    instance_id: str
    instance_type: str | None = None
    instance_state: str | None = None
    placement: _Placement | None = None
    tags: list[_Tag] | None = None
    private_ip_addresses: list[str] | None = None
    public_ip_addresses: list[str] | None = None
    created_time: str | None = None


class _Page(Struct, rename="pascal"):
    total_count: int
    instance_set: list[_Instance] | None = None


class _Price(Struct, rename="pascal"):
    unit_price: float | None = None
    unit_price_discount: float | None = None
    charge_unit: str | None = None


class _Stock(Struct, rename="pascal"):
    zone: str
    instance_type: str
    instance_charge_type: str | None = None
    status: str | None = None
    price: _Price | None = None
    gpu_count: float | None = None


class _Stocks(Struct, rename="pascal"):
    instance_type_quota_set: list[_Stock] | None = None


class Tencent:
    """A region of Tencent Cloud."""

    def __init__(
        self,
        region: str,
        keys: Keys,
        threads: Threads,
        *,
        urls: Mapping[str, str] | None = None,
        per_dollar: float = 1.0,
        accounts: Accounts | None = None,
    ) -> None:
        """`urls` are other addresses than the usual ones, of cvm and sts; `per_dollar` is what a dollar is in the account's money."""
        self._region, self._keys, self._threads = checked_region(region), keys, threads
        given = dict(urls or {})
        self._urls = given if "cvm" in given else {"cvm": URL, "sts": STS_URL} | given
        self._per_dollar, self.page_size = per_dollar, PAGE
        self._accounts = accounts or Accounts()
        self._clients: dict[str, Any] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            client.request.conn._session.close()  # noqa: SLF001 - the SDK leaves its connections to chance

    # The provider

    async def identity(self) -> str:
        """As STS tells; empty where the cloud is somewhere else and its STS is not given."""
        return await self._accounts.of(NAME, self._keys, self._caller) if "sts" in self._urls else ""

    async def _caller(self) -> str:
        try:
            found = (await self._plain("GetCallerIdentity", {}, "sts")).get("AccountId")
        except TencentError as problem:
            raise Refused(str(problem)) from None
        if not is_id(found):
            raise Unavailable("Tencent Cloud answered without the account that the keys are of")
        return str(found)

    async def machines(self, cluster: str) -> list[Instance]:
        """Every machine with the cluster's tag."""
        for _ in range(TRIES):
            found = await self._pages({"Filters": [{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster]}]})
            if found is not None:
                return [each for each in map(self._instance, found) if each.tags.get(CLUSTER_TAG) == cluster]
        raise Unavailable("machines came and went while they were listed")

    async def describe(self, ids: Sequence[str]) -> dict[str, Instance]:
        """Machines by id."""
        found: dict[str, Instance] = {}
        for part in batches(ids, MOST_IDS):
            found |= await self._by_id(part)
        return {each: found[each] for each in ids if each in found} | unknown_ids(ids, found, NAME, self._region)

    async def launch(self, request: LaunchRequest) -> Instance:
        """Launch a machine, or learn which one the token has launched."""
        try:
            answer = await self._call("RunInstances", self._wanted(request))
        except TencentError as problem:
            raise not_launched(problem.code) from None
        except HeadroomError as problem:
            raise NotLaunched("Unknown", str(problem)) from None
        ids = answer.get("InstanceIdSet")
        if not isinstance(ids, list) or len(ids) != 1 or not is_id(ids[0]):
            raise NotLaunched("Unknown", "Tencent Cloud answered without the id of one machine")
        return Instance(
            name=ids[0],
            provider=NAME,
            region=self._region,
            zone=request.zone,
            instance_type=request.instance_type,
            state="PENDING",
            tags=own_tags(request.tags.items()),
        )

    async def terminate(self, ids: Sequence[str]) -> None:
        """End machines, one call for each: one that is gone must not keep the others."""
        for each in ids:
            try:
                await self._plain("TerminateInstances", {"InstanceIds": [each]})
            except TencentError as problem:
                # One that is being ended is refused too; what became of it, the next list says.
                if not problem.code.startswith((*NO_SUCH_ID, "OperationDenied.InstanceOperationInProgress")):
                    raise Refused(str(problem)) from None

    async def offers(self, question: QuoteRequest) -> list[Offer]:
        """Prices and stock; the cloud gives those of now, and no history."""
        charge = "SPOTPAID" if question.spot else "POSTPAID_BY_HOUR"
        wanted = {"instance-type": question.types, "zone": question.zones, "instance-charge-type": (charge,)}
        filters = [{"Name": name, "Values": list(values)} for name, values in wanted.items() if any(values)]
        try:
            answer = await self._plain("DescribeZoneInstanceConfigInfos", {"Filters": filters})
            found = msgspec.convert(answer, _Stocks)
        except TencentError as problem:
            raise Refused(str(problem)) from None
        except msgspec.ValidationError:
            raise Unavailable("Tencent Cloud answered with unreadable prices") from None
        return [
            self._offer(each, question)
            for each in found.instance_type_quota_set or ()
            if each.instance_charge_type in (charge, None) and each.instance_type in question.types
        ]

    async def notices(self) -> list[ReclaimNotice] | None:
        """It tells only inside the machine that it takes it back."""
        return None

    # Pages and ids

    async def _pages(self, filters: Mapping[str, Any]) -> list[_Instance] | None:
        """All pages; None if the list changed under us, so that one machine may stand on two pages and another on none.

        Each page begins with the last machine of the one before: whatever came or went in front of it, that would have moved.
        """
        found: dict[str, _Instance] = {}
        total, offset, last = -1, 0, ""
        while True:
            page = await self._page({**filters, "Offset": offset, "Limit": self.page_size})
            rows = page.instance_set or []
            if total not in (-1, page.total_count) or (last and (not rows or rows[0].instance_id != last)):
                return None
            total = page.total_count
            if not 0 <= total <= MOST_MACHINES:
                raise Unavailable("Tencent Cloud answered with an impossible number of machines")
            found |= {each.instance_id: each for each in rows}
            if offset + len(rows) >= total or len(rows) < 2:
                return list(found.values()) if len(found) == total else None
            last, offset = rows[-1].instance_id, offset + len(rows) - 1

    async def _page(self, asked: Mapping[str, Any]) -> _Page:
        try:
            page = msgspec.convert(await self._plain("DescribeInstances", asked), _Page)
        except TencentError as problem:
            raise Refused(str(problem)) from None
        except msgspec.ValidationError:
            raise Unavailable("Tencent Cloud answered with an unreadable list") from None
        if any(not is_id(each.instance_id) for each in page.instance_set or ()):
            raise Unavailable("Tencent Cloud answered with a machine that has no id")
        return page

    async def _by_id(self, ids: Sequence[str]) -> dict[str, Instance]:
        """Those of them that there are. Where one that is not known spoils the call, the others are asked for without it."""
        try:
            page = await self._call("DescribeInstances", {"InstanceIds": list(ids), "Limit": MOST_IDS})
            found = msgspec.convert(page, _Page)
        except TencentError as problem:
            if not problem.code.startswith(NO_SUCH_ID):
                raise told(problem.code) from None
            if len(ids) == 1:
                return {}
            half = len(ids) // 2
            return await self._by_id(ids[:half]) | await self._by_id(ids[half:])
        except msgspec.ValidationError:
            raise Unavailable("Tencent Cloud answered with unreadable machines") from None
        rows = found.instance_set or []
        if found.total_count != len(rows):
            raise Unavailable("Tencent Cloud answered with a part of the machines")
        return {each.instance_id: self._instance(each) for each in rows if each.instance_id in ids}

    def _instance(self, found: _Instance) -> Instance:
        return Instance(
            name=found.instance_id,
            provider=NAME,
            region=self._region,
            zone=(found.placement and found.placement.zone) or "",
            instance_type=found.instance_type or "",
            state=found.instance_state or "",
            public_ip=next(iter(found.public_ip_addresses or ()), ""),
            private_ip=next(iter(found.private_ip_addresses or ()), ""),
            tags=own_tags((each.key, each.value) for each in found.tags or ()),
            launched_at=times.moment(found.created_time),
        )

    def _offer(self, found: _Stock, question: QuoteRequest) -> Offer:
        price = found.price or _Price()
        capacity = SPOT if question.spot else ON_DEMAND
        paid = price.unit_price_discount if price.unit_price_discount is not None else price.unit_price
        in_dollars = None if paid is None or price.charge_unit not in ("HOUR", None) else paid / self._per_dollar
        return Offer(
            name=f"{NAME}/{self._region}/{found.zone}/{found.instance_type}/{capacity}",
            provider=NAME,
            region=self._region,
            zone=found.zone,
            instance_type=found.instance_type,
            gpus=int(found.gpu_count or 0),
            capacity_type=capacity,
            price_per_hour=millionths(in_dollars),
            at=question.now,
            available={"SELL": True, "SOLD_OUT": False}.get(found.status or ""),
        )

    def _wanted(self, request: LaunchRequest) -> dict[str, Any]:
        tags = [{"Key": key, "Value": value} for key, value in request.tags.items()]
        wanted: dict[str, Any] = {
            "Placement": {"Zone": request.zone},
            "ImageId": request.image,
            "InstanceType": request.instance_type,
            "InstanceChargeType": "SPOTPAID" if request.spot else "POSTPAID_BY_HOUR",
            "InstanceCount": 1,
            "InstanceName": request.name[:60],
            "ClientToken": request.token,
            "TagSpecification": [{"ResourceType": "instance", "Tags": tags}],
        }
        if request.disk_type:
            wanted["SystemDisk"] = {"DiskType": request.disk_type, "DiskSize": request.disk_gib}
        if request.vpc or request.subnet:
            wanted["VirtualPrivateCloud"] = {"VpcId": request.vpc, "SubnetId": request.subnet}
        if request.security_groups:
            wanted["SecurityGroupIds"] = list(request.security_groups)
        if request.key_ids:
            wanted["LoginSettings"] = {"KeyIds": list(request.key_ids)}
        if request.spot and request.max_price is not None:
            limit = dollars(round(request.max_price * self._per_dollar))
            options = {"MaxPrice": limit, "SpotInstanceType": "one-time"}
            wanted["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
        if request.public_ip:
            way = {"InternetChargeType": "BANDWIDTH_POSTPAID_BY_HOUR", "InternetMaxBandwidthOut": 1}
            wanted["InternetAccessible"] = way | {"PublicIpAssigned": True}
        if "userData" in request.user_data:
            wanted["UserData"] = base64.b64encode(request.user_data["userData"].encode()).decode()
        return wanted

    # The SDK

    async def _plain(self, action: str, params: Mapping[str, Any], service: str = "cvm") -> dict[str, Any]:
        """A call whose failures mean the same whatever was asked; `TencentError` for those that do not."""
        try:
            return await self._call(action, params, service)
        except TencentError as problem:
            meant = told(problem.code)
            raise problem if type(meant) is Refused else meant from None

    async def _call(self, action: str, params: Mapping[str, Any], service: str = "cvm") -> dict[str, Any]:
        """One call. Raises `TencentError` or `Unavailable`, or what `_made` raises."""
        used = sdk()

        def call() -> Any:
            if service not in self._clients:
                self._clients[service] = self._made(service)  # ambient credentials are asked for over the network
            return self._clients[service].call_json(action, dict(params))

        try:
            answer = await self._threads.run(call, CALL_SECONDS)
        except used.Failure as problem:
            # Codes of the SDK itself, for whatever happened on the way.
            if problem.code in ("ClientNetworkError", "ServerNetworkError", "ClientError", None):
                raise Unavailable(f"no readable answer from Tencent Cloud ({code_in(problem.code)})") from None
            raise TencentError(problem.code) from None
        except TimeoutError:
            raise Unavailable(f"no answer from Tencent Cloud within {CALL_SECONDS:g}s") from None
        except (ValueError, KeyError, TypeError, OSError):  # no JSON, or one without what each answer has
            raise Unavailable("no readable answer from Tencent Cloud") from None
        response = answer.get("Response") if isinstance(answer, dict) else None
        if not isinstance(response, dict):
            raise Unavailable("no readable answer from Tencent Cloud")
        if "Error" in response:  # the SDK overlooks it where a proxy has touched the content type
            error = response["Error"]
            raise TencentError(error.get("Code") if isinstance(error, dict) else None)
        return response

    def _made(self, service: str) -> Any:
        used, keys, target = sdk(), self._keys, target_of(self._urls[service])
        try:
            credential = (
                used.Ambient().get_credential()
                if keys.ambient
                else used.Credential(keys["secretId"], keys["secretKey"], keys.get("token"))
            )
        except (used.Failure, OSError, ValueError):
            raise BadCredentials("there are no usable keys for Tencent Cloud") from None
        host = target.host if ":" not in target.host else f"[{target.host}]"
        usual = {"https": 443, "http": 80}[target.scheme]
        endpoint = host if target.port == usual else f"{host}:{target.port}"
        http = used.HttpProfile(protocol=target.scheme, endpoint=endpoint, reqTimeout=SOCKET_SECONDS, keepAlive=True)
        profile = used.ClientProfile(httpProfile=http, language="en-US")
        client = used.Client(service, VERSIONS[service], credential, self._region, profile)
        session = client.request.conn._session  # noqa: SLF001 - the SDK has no setting for these two
        session.trust_env, session.max_redirects = False, 0  # no .netrc, and no call to anybody else
        return client
