"""AWS (EC2), through aiobotocore. Warnings before a spot machine is taken back come through a queue that an administrator names."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any, Final, Self

from headroom.adapters.clouds.aws_sdk import PRODUCT, AwsError, Clients, spot_price, told, within
from headroom.adapters.clouds.providers import (
    CALL_SECONDS,
    SPOT,
    BadCredentials,
    Keys,
    LaunchRequest,
    NotLaunched,
    NotPermitted,
    Outcome,
    QuoteRequest,
    ReclaimNotice,
    Unusable,
    batches,
    checked_region,
    dollars,
    is_id,
    own_tags,
    unknown_ids,
)
from headroom.api.marks import CLUSTER_TAG
from headroom.model import times
from headroom.model.cloud_facts import Instance, Offer
from headroom.model.errors import HeadroomError, Refused, Unavailable

NAME: Final = "aws"
PAGE: Final = 1000
LIST_SECONDS: Final = 120.0
"""For all pages of a list."""
MOST_IDS: Final = 200
MOST_MACHINES: Final = 100_000
MOST_PRICES: Final = 20_000
WARNING: Final = "EC2 Spot Instance Interruption Warning"
WARNED_MS: Final = 2 * times.MINUTE
"""So long before EC2 takes a machine back it says so."""
MOST_ROUNDS: Final = 20
"""Of ten messages each, whenever the queue is read."""
STATES: Final = {
    "pending": "PENDING",
    "running": "RUNNING",
    "stopping": "STOPPING",
    "stopped": "STOPPED",
    "shutting-down": "TERMINATING",
    "terminated": "SHUTDOWN",
}
_SOLD_OUT: Final = frozenset(
    {
        "InsufficientCapacity",
        "InsufficientFreeAddressesInSubnet",
        "InsufficientHostCapacity",
        "InsufficientInstanceCapacity",
        "InsufficientReservedInstanceCapacity",
        "UnfulfillableCapacity",
        "Unsupported",  # this type is not offered in this zone
    }
)
_QUOTAS: Final = frozenset({"InstanceLimitExceeded", "MaxSpotInstanceCountExceeded", "VcpuLimitExceeded"})
_GONE: Final = "IdempotentInstanceTerminated"
"""The machine of this token has been ended: surely there is none."""


def usual_url(region: str, service: str = "ec2") -> str:
    """Where AWS answers for a region."""
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://{service}.{checked_region(region)}.{suffix}"


class Aws:
    """A region of AWS."""

    def __init__(
        self,
        region: str,
        keys: Keys,
        clients: Clients,
        *,
        urls: Mapping[str, str] | None = None,
        queue: str = "",
        page: int = PAGE,
    ) -> None:
        """`urls` are other addresses than the usual ones, of ec2, sqs and sts; `queue` is the URL of a queue with EC2's warnings."""
        self._region, self._keys, self._clients = checked_region(region), keys, clients
        self._urls, self._queue, self._page = dict(urls or {}), queue, page

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Clients are kept for others."""

    # The provider

    async def identity(self) -> str:
        """As STS tells, which needs no right; empty where EC2 is somewhere else and STS is not given."""
        if "ec2" in self._urls and "sts" not in self._urls:
            return ""
        return await self._clients.accounts.of(NAME, self._keys, self._caller)

    async def _caller(self) -> str:
        async with self._plain(service="sts") as sts:
            found = (await sts.get_caller_identity()).get("Account")
        if not is_id(found):
            raise Unavailable("AWS answered without the account that the keys are of")
        return str(found)

    async def machines(self, cluster: str) -> list[Instance]:
        """Every machine with the cluster's tag."""
        found: dict[str, Instance] = {}
        async with self._plain(LIST_SECONDS) as ec2:
            pages = ec2.get_paginator("describe_instances").paginate(
                Filters=[{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster]}], PaginationConfig={"PageSize": self._page}
            )
            async for page in pages:
                for each in self._instances(page):
                    if each.name in found:
                        raise Unavailable("AWS answered with a machine on two pages")
                    found[each.name] = each
                if len(found) > MOST_MACHINES:
                    raise Unavailable("AWS answered with an impossible number of machines")
        return [each for each in found.values() if each.tags.get(CLUSTER_TAG) == cluster]

    async def describe(self, ids: Sequence[str]) -> dict[str, Instance]:
        """Machines by id. As a filter, so that one that is not known does not spoil the answer for the others."""
        found: dict[str, Instance] = {}
        async with self._plain() as ec2:
            for part in batches(ids, MOST_IDS):
                pages = ec2.get_paginator("describe_instances").paginate(
                    Filters=[{"Name": "instance-id", "Values": list(part)}], PaginationConfig={"PageSize": self._page}
                )
                async for page in pages:
                    found |= {each.name: each for each in self._instances(page) if each.name in part}
        return found | unknown_ids(ids, found, NAME, self._region)

    async def launch(self, request: LaunchRequest) -> Instance:
        """Launch a machine, or learn which one the token has launched."""
        try:
            async with within(CALL_SECONDS), self._client("ec2") as ec2:
                wanted = await self._wanted(ec2, request)
                answer = await ec2.run_instances(**wanted)
                found = [*self._instances({"Reservations": [answer]})]
        except AwsError as problem:
            raise _not_launched(problem.code) from None
        except HeadroomError as problem:
            refused = isinstance(problem, Refused)
            raise NotLaunched("Refused" if refused else "Unknown", str(problem), before_token=refused) from None
        if len(found) != 1:
            raise NotLaunched("Unknown", "AWS answered without the id of one machine")
        return found[0]

    async def terminate(self, ids: Sequence[str]) -> None:
        """End machines, one call for each: one that is gone must not keep the others."""
        async with within():
            for each in ids:
                try:
                    async with self._client("ec2") as ec2:
                        await ec2.terminate_instances(InstanceIds=[each])
                except AwsError as problem:
                    if problem.code != "InvalidInstanceID.NotFound":
                        raise told(problem.code) from None

    async def offers(self, question: QuoteRequest) -> list[Offer]:
        """Spot prices of now. What on-demand machines cost, EC2 does not say."""
        if not question.spot:
            return []
        newest: dict[tuple[str, str], tuple[tuple[int, int], Mapping[str, Any]]] = {}
        begin = datetime.fromtimestamp(question.now / times.SECOND, UTC)
        async with self._plain(LIST_SECONDS) as ec2:
            pages = ec2.get_paginator("describe_spot_price_history").paginate(
                InstanceTypes=list(question.types),
                ProductDescriptions=[PRODUCT],
                StartTime=begin,
                PaginationConfig={"MaxItems": MOST_PRICES},
            )
            async for page in pages:
                for each in page.get("SpotPriceHistory") or ():
                    place = str(each.get("InstanceType") or ""), str(each.get("AvailabilityZone") or "")
                    price = spot_price(each, question.now)
                    if price is not None and (place not in newest or price > newest[place][0]):
                        newest[place] = price, each
        found = (self._offer(each, price, question) for (_, price), each in newest.values())
        return [each for each in found if not any(question.zones) or each.zone in question.zones]

    async def notices(self) -> list[ReclaimNotice] | None:
        """Interruption warnings that have come into the queue; they are taken out of it."""
        if not self._queue:
            return None
        found: list[ReclaimNotice] = []
        async with self._plain(service="sqs") as sqs:
            for _ in range(MOST_ROUNDS):
                answer = await sqs.receive_message(QueueUrl=self._queue, MaxNumberOfMessages=10, WaitTimeSeconds=0)
                messages = answer.get("Messages") or []
                if not messages:
                    break
                found += [notice for each in messages if (notice := warning_in(each.get("Body"))) is not None]
                entries = [
                    {"Id": str(number), "ReceiptHandle": each["ReceiptHandle"]} for number, each in enumerate(messages)
                ]
                await sqs.delete_message_batch(QueueUrl=self._queue, Entries=entries)
        return found

    # What is sent, and what comes back

    async def _wanted(self, ec2: Any, request: LaunchRequest) -> dict[str, Any]:
        network: dict[str, Any] = {"DeviceIndex": 0, "AssociatePublicIpAddress": request.public_ip}
        if request.subnet not in ("", "DEFAULT"):
            network["SubnetId"] = request.subnet
        if request.security_groups:
            network["Groups"] = list(request.security_groups)
        tags = [{"Key": key, "Value": value} for key, value in {**request.tags, "Name": request.name}.items()]
        wanted: dict[str, Any] = {
            "ImageId": request.image,
            "InstanceType": request.instance_type,
            "MinCount": 1,
            "MaxCount": 1,
            "ClientToken": request.token,
            "NetworkInterfaces": [network],
            "TagSpecifications": [{"ResourceType": "instance", "Tags": tags}],
        }
        if request.zone:
            wanted["Placement"] = {"AvailabilityZone": request.zone}
        if request.key_ids:
            wanted["KeyName"] = request.key_ids[0]
        if request.disk_gib:
            disk: dict[str, Any] = {"VolumeSize": request.disk_gib, "DeleteOnTermination": True}
            if request.disk_type and not request.disk_type.startswith("CLOUD_"):  # that is another cloud's word
                disk["VolumeType"] = request.disk_type
            device = await self._root_device(ec2, request.image)
            wanted["BlockDeviceMappings"] = [{"DeviceName": device, "Ebs": disk}]
        if request.spot:
            options = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
            if request.max_price is not None:
                options["MaxPrice"] = dollars(request.max_price)
            wanted["InstanceMarketOptions"] = {"MarketType": "spot", "SpotOptions": options}
        if "userData" in request.user_data:
            wanted["UserData"] = request.user_data["userData"]  # the SDK encodes it
        return wanted

    async def _root_device(self, ec2: Any, image: str) -> str:
        known = self._clients.root_devices
        if image not in known:
            answer = await ec2.describe_images(ImageIds=[image])
            name = next((each.get("RootDeviceName") for each in answer.get("Images") or ()), None)
            if not name:
                raise Refused("spec.imageId is not an image that boots from a disk")
            known[image] = str(name)
        return known[image]

    def _instances(self, page: Mapping[str, Any]) -> list[Instance]:
        found = [each for one in page.get("Reservations") or () for each in one.get("Instances") or ()]
        if any(not is_id(each.get("InstanceId")) for each in found):
            raise Unavailable("AWS answered with a machine that has no id")
        return [self._instance(each) for each in found]

    def _instance(self, found: Mapping[str, Any]) -> Instance:
        state, launched = str((found.get("State") or {}).get("Name") or ""), found.get("LaunchTime")
        return Instance(
            name=found["InstanceId"],
            provider=NAME,
            region=self._region,
            zone=(found.get("Placement") or {}).get("AvailabilityZone") or "",
            instance_type=found.get("InstanceType") or "",
            state=STATES.get(state, state),
            public_ip=found.get("PublicIpAddress") or "",
            private_ip=found.get("PrivateIpAddress") or "",
            tags=own_tags((each.get("Key"), each.get("Value")) for each in found.get("Tags") or ()),
            launched_at=int(launched.timestamp() * times.SECOND) if isinstance(launched, datetime) else None,
        )

    def _offer(self, found: Mapping[str, Any], price: int, question: QuoteRequest) -> Offer:
        zone, kind = found.get("AvailabilityZone") or "", found.get("InstanceType") or ""
        return Offer(
            name=f"{NAME}/{self._region}/{zone}/{kind}/{SPOT}",
            provider=NAME,
            region=self._region,
            zone=zone,
            zone_id=found.get("AvailabilityZoneId") or "",
            instance_type=kind,
            capacity_type=SPOT,
            price_per_hour=price or None,
            at=question.now,
        )

    # The SDK

    @asynccontextmanager
    async def _plain(self, seconds: float = CALL_SECONDS, service: str = "ec2") -> AsyncIterator[Any]:
        """A client for calls whose failures mean the same whatever was asked."""
        try:
            async with within(seconds), self._client(service) as client:
                yield client
        except AwsError as problem:
            raise told(problem.code) from None

    @asynccontextmanager
    async def _client(self, service: str) -> AsyncIterator[Any]:
        async with self._clients.client(service, self._region, self._urls.get(service, ""), self._keys) as client:
            yield client


def warning_in(body: object) -> ReclaimNotice | None:
    """An interruption warning in a message, as EventBridge writes it; None for anything else."""
    try:
        event = json.loads(body) if isinstance(body, str) else None
        if event["source"] != "aws.ec2" or event["detail-type"] != WARNING:  # type: ignore[index]  # what is none is caught
            return None
        machine, at = event["detail"]["instance-id"], times.moment(event["time"])  # type: ignore[index]  # as above
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return ReclaimNotice(machine, at + WARNED_MS) if is_id(machine) and at is not None else None


def _not_launched(code: str) -> NotLaunched:
    """What a refused launch proves. What is not surely a refusal is Unknown."""
    said, known = f"AWS answered {code}", told(code)
    # Another request had this token: it may have launched a machine.
    mismatch = code.startswith("Idempotent") and code != _GONE
    outcomes: tuple[tuple[bool, Outcome], ...] = (
        (mismatch or isinstance(known, Unavailable), "Unknown"),
        (code in _SOLD_OUT, "SoldOut"),
        (code == "SpotMaxPriceTooLow", "PriceTooLow"),
        (code in _QUOTAS, "QuotaReached"),
        (isinstance(known, BadCredentials | NotPermitted | Unusable) or code == _GONE, "Refused"),
        (code.startswith(("Invalid", "Missing", "Unknown", "Unsupported", "Pending")), "Refused"),
    )
    outcome: Outcome = next((word for is_it, word in outcomes if is_it), "Unknown")
    return NotLaunched(outcome, said, before_token=outcome == "Refused" and code != _GONE)
