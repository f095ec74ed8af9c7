"""The clouds of the tests behind one face: a Tencent server, moto, and a webhook service, each with machines that are not ours."""

from __future__ import annotations

import itertools
import uuid
from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, Self

from headroom.adapters.clouds.aws import Aws
from headroom.adapters.clouds.aws_sdk import Clients
from headroom.adapters.clouds.providers import Keys, LaunchRequest, Provider
from headroom.adapters.clouds.tencent import Tencent
from headroom.adapters.clouds.threads import Threads
from headroom.adapters.clouds.webhook import WebhookProvider
from headroom.adapters.egress import Guard, entries
from headroom.api.marks import CLUSTER_TAG, OWNER_TAG, SLOT_TAG
from tests.cloud_faults import CloudMachine, Faults
from tests.tencent_service import TencentService
from tests.webhook_service import WebhookService

if TYPE_CHECKING:
    from tests.aws_service import AwsService

CANARY: Final = "canary-7f3a"
"""In every key, and in the user data: what no message may ever say."""
KEY_ID, KEY = f"AKID{CANARY}", f"secret{CANARY}"
SIDES: Final = ("tencent", "aws", "webhook")
_NUMBERS: Final = itertools.count(1)


class CloudSide(ABC):
    """A cloud with machines of somebody else, and a cluster that nobody else has."""

    name: str
    region: str
    zone: str
    kind: str
    image: str = "img-1"
    account: str = ""
    """Whose keys these are, as it says itself."""
    secret: dict[str, str]
    """The keys that are right."""

    def __init__(self) -> None:
        self.cluster = f"cluster-{uuid.uuid4().hex[:8]}"
        self.owner = f"uid-{next(_NUMBERS)}"
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self.start()
        self.foreign = [
            self.add(),
            self.add(team="b"),
            self.add(**{CLUSTER_TAG: "another", OWNER_TAG: self.owner, SLOT_TAG: "0"}),
        ]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def request(self, **more: Any) -> LaunchRequest:
        """A machine as a pool asks for it."""
        given: dict[str, Any] = {"token": f"token-{uuid.uuid4().hex}", "cluster": self.cluster, "owner": self.owner}
        given |= {"slot": 0, "name": "headroom-team-a-one", "instance_type": self.kind, "zone": self.zone}
        given |= {"image": self.image, "user_data": Keys({"userData": f"#!/bin/sh\necho {CANARY}"})}
        return LaunchRequest(**given | more)

    def ours(self, count: int) -> list[str]:
        """So many machines of the pool, launched by somebody before; their ids."""
        return [
            self.add(**{CLUSTER_TAG: self.cluster, OWNER_TAG: self.owner, SLOT_TAG: str(slot)}) for slot in range(count)
        ]

    @property
    def untouched(self) -> bool:
        """Whether nothing happened to the machines of others."""
        return all(self.states()[each] == "RUNNING" for each in self.foreign)

    @property
    @abstractmethod
    def faults(self) -> Faults:
        """What goes wrong."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Where it answers."""

    @abstractmethod
    async def start(self) -> None:
        """Begin to answer."""

    @abstractmethod
    def provider(self, *, page: int = 20, wrong_key: bool = False, unknown_key: bool = False) -> Provider:
        """Whoever speaks to it."""

    @abstractmethod
    def add(self, **tags: str) -> str:
        """A machine that runs; its id."""

    @abstractmethod
    def states(self) -> dict[str, str]:
        """What it knows of all machines, by id."""

    @abstractmethod
    def owners(self) -> dict[str, str]:
        """The uid that the tag of each machine names, by id."""

    @abstractmethod
    def user_data(self, machine: str) -> str:
        """With what a machine started."""

    @abstractmethod
    def settle(self) -> None:
        """Let what is beginning have begun, and what is ending have ended."""

    @abstractmethod
    def lag(self, seconds: float) -> None:
        """From now on it shows machines only so long after they were launched."""

    @abstractmethod
    def pass_time(self, seconds: float) -> None:
        """Let its machines be so much older."""

    @abstractmethod
    def offer(self, zone: str, price: float, there: bool = True) -> None:
        """What its type costs in a zone, and whether it can be had."""

    def echo(self) -> None:
        """From now on its errors repeat all that was sent."""
        self.service.echo = True

    service: Any

    def keys(self, wrong_key: bool, unknown_key: bool) -> Keys:
        first, second = list(self.secret)[:2]
        changed = {second: f"not-{KEY}"} if wrong_key else {first: f"not-{KEY_ID}"} if unknown_key else {}
        return Keys(self.secret | changed)


class _Played(CloudSide):
    """A service that the tests have written."""

    service: TencentService | WebhookService

    @property
    def faults(self) -> Faults:
        return self.service.faults

    @property
    def url(self) -> str:
        return self.service.url

    async def start(self) -> None:
        await self._stack.enter_async_context(self.service)

    def add(self, **tags: str) -> str:
        return self.service.add(**tags).name

    def states(self) -> dict[str, str]:
        return {name: each.state for name, each in self.service.machines.items()}

    def owners(self) -> dict[str, str]:
        return {name: each.tags.get(OWNER_TAG, "") for name, each in self.service.machines.items()}

    def machine(self, name: str) -> CloudMachine:
        return self.service.machines[name]

    def user_data(self, machine: str) -> str:
        return self.machine(machine).user_data

    def settle(self) -> None:
        self.service.settle()

    def lag(self, seconds: float) -> None:
        self.service.lag_seconds = seconds

    def pass_time(self, seconds: float) -> None:
        self.service.ahead_seconds += seconds

    def offer(self, zone: str, price: float, there: bool = True) -> None:
        self.service.stock[(zone, self.kind)] = (price, there)


class OnTencent(_Played):
    """The Tencent server, and the real SDK."""

    name, region, zone, kind = "tencent", "ap-singapore", "ap-singapore-1", "GN7.2XLARGE32"
    service: TencentService

    def __init__(self) -> None:
        super().__init__()
        self.secret = {"secretId": KEY_ID, "secretKey": KEY}
        self.service = TencentService({KEY_ID: KEY})
        self.account = self.service.account
        self.threads = Threads(32)

    @property
    def urls(self) -> dict[str, str]:
        return {"cvm": self.url, "sts": self.url}

    def provider(self, *, page: int = 20, wrong_key: bool = False, unknown_key: bool = False) -> Provider:
        made = Tencent(self.region, self.keys(wrong_key, unknown_key), self.threads, urls=self.urls)
        made.page_size = page
        return made


class OnWebhook(_Played):
    """The webhook service, through the real egress guard."""

    name, region, zone, kind = "webhook", "cellar", "z-1", "gpu-1"
    service: WebhookService

    def __init__(self) -> None:
        super().__init__()
        self.secret = {"token": KEY}
        self.service = WebhookService(KEY)

    async def start(self) -> None:
        await super().start()
        self.guard = Guard(entries(self.url.removesuffix("/v1")))
        self._stack.callback(self.guard.close)

    def provider(self, *, page: int = 20, wrong_key: bool = False, unknown_key: bool = False) -> Provider:
        token = f"not-{KEY}" if wrong_key or unknown_key else KEY
        headers = Keys({"authorization": f"Bearer {token}"})
        return WebhookProvider(self.region, self.url, headers, self.guard, page=page)


class OnAws(CloudSide):
    """moto, and the real SDK."""

    service: AwsService
    name, region, zone, kind = "aws", "us-east-1", "us-east-1b", "g5.xlarge"

    def __init__(self, service: AwsService) -> None:
        super().__init__()
        self.secret = {"accessKeyId": KEY_ID, "secretAccessKey": KEY}
        self.service = service
        self.image, self.account = service.image, service.account

    @property
    def faults(self) -> Faults:
        return self.service.faults

    @property
    def url(self) -> str:
        return self.service.url

    async def start(self) -> None:
        self.service.forget()
        self._before = frozenset(self.service.instances())  # of other tests
        self.clients = Clients()
        self._stack.push_async_callback(self.clients.close)

    def provider(
        self, *, page: int = 20, wrong_key: bool = False, unknown_key: bool = False, queue: str = ""
    ) -> Provider:
        urls = {"ec2": self.url, "sqs": self.url, "sts": self.url}
        keys = self.keys(wrong_key, unknown_key)
        return Aws(self.region, keys, self.clients, urls=urls, queue=queue, page=page)

    def add(self, **tags: str) -> str:
        return self.service.add(self.kind, self.zone, tags)

    def states(self) -> dict[str, str]:
        words = {"pending": "PENDING", "running": "RUNNING", "terminated": "SHUTDOWN", "shutting-down": "TERMINATING"}
        return {
            name: words.get(each._state.name, each._state.name)
            for name, each in self.service.instances().items()
            if name not in self._before
        }

    def owners(self) -> dict[str, str]:
        return {
            name: next((tag["value"] for tag in each.get_tags() if tag["key"] == OWNER_TAG), "")
            for name, each in self.service.instances().items()
        }

    def user_data(self, machine: str) -> str:
        return self.service.user_data(machine)

    def settle(self) -> None:
        """moto does so by itself whenever somebody looks."""

    def lag(self, seconds: float) -> None:
        self.service.lag_seconds = seconds

    def pass_time(self, seconds: float) -> None:
        self.service.ahead_seconds += seconds

    def offer(self, zone: str, price: float, there: bool = True) -> None:
        self.service.prices[(zone, self.kind)] = f"{price:.6f}"
