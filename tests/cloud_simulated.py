"""The simulator's cloud as the contract tests see it."""

from __future__ import annotations

from typing import Any, Final

from headroom.adapters.clouds.providers import Provider
from headroom.api.marks import OWNER_TAG
from headroom.model import times
from headroom.sim.cloud import Cloud, RequestedLaunch, Verb, Wrong
from headroom.sim.cloud_provider import SimProvider
from tests.builders import NOON
from tests.cloud_faults import Faults, How
from tests.cloud_sides import KEY, CloudSide

WORDS: Final[dict[How, Wrong]] = {
    "cut": "Lost",
    "drop": "Unreached",
    "garbage": "Unreached",
    "hang": "Unreached",
    "throttled": "Throttled",
    "denied": "Denied",
    "sold out": "SoldOut",
    "too dear": "PriceTooLow",
    "quota": "QuotaReached",
    "refused": "Refused",
}


class OnSimulator(CloudSide):
    """Machines in memory, on a clock that stands still until it is moved."""

    name, region, zone, kind, url = "sim", "sim-1", "zone-a", "GN7", "http://sim"
    service: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.secret = {"secretId": KEY, "secretKey": KEY}
        self._now, self._faults = NOON, Faults()
        self.cloud = Cloud(lambda: self._now, self.region, self.name)
        self.cloud.wrong = self._wrong

    def _wrong(self, verb: Verb) -> Wrong:
        how = self._faults.take(verb)
        return WORDS[how] if how is not None else ""

    @property
    def faults(self) -> Faults:
        return self._faults

    async def start(self) -> None:
        """There is nothing to start."""

    def provider(self, *, page: int = 20, wrong_key: bool = False, unknown_key: bool = False) -> Provider:
        self.cloud.page_size = page
        return SimProvider(self.cloud, known=not (wrong_key or unknown_key))

    def add(self, **tags: str) -> str:
        return self.cloud.add(
            RequestedLaunch(token="", instance_type=self.kind, zone=self.zone, tags=tags), "RUNNING"
        ).id

    def states(self) -> dict[str, str]:
        return {name: each.state(self._now) for name, each in self.cloud.machines.items()}

    def owners(self) -> dict[str, str]:
        return {name: each.order.tags.get(OWNER_TAG, "") for name, each in self.cloud.machines.items()}

    def user_data(self, machine: str) -> str:
        return self.cloud.machines[machine].order.user_data

    def settle(self) -> None:
        self._now += self.cloud.boot_ms

    def lag(self, seconds: float) -> None:
        self.cloud.lag = lambda: round(seconds * times.SECOND)

    def pass_time(self, seconds: float) -> None:
        self._now += round(seconds * times.SECOND)

    def offer(self, zone: str, price: float, there: bool = True) -> None:
        self.cloud.prices[self.kind, zone] = round(price * 1_000_000)
        self.cloud.stock[self.kind, zone] = int(there)

    def echo(self) -> None:
        """Its errors never repeat what was sent."""
