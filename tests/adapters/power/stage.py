"""Switches on a server of the test, with Secrets from a dict, and a view that is as the test says."""

from __future__ import annotations

import random
from typing import Any, Literal

from msgspec import structs

from headroom.adapters.egress import Guard, entries
from headroom.adapters.power import Power
from headroom.adapters.usable_by import Secret
from headroom.api.kinds import AnyResource
from headroom.api.power_status import MachineStatus, PowerPoolStatus
from headroom.model.changes import Topic
from headroom.model.errors import Refused
from headroom.model.facts import Machine, SwitchCall
from headroom.model.ports import Clock
from headroom.model.world import World
from headroom.runtime.clock import RealClock
from tests.builders import a_resource, a_world

CANARY = "canary-7f3a"
"""What no message may ever say."""
WOKEN, SLEPT = "2026-11-15T11:59:00Z", "2026-11-15T11:58:00Z"


class Vault:
    """Secrets of the operator's namespace, which the pool `rack` may send to the server of the test unless they say otherwise."""

    def __init__(self, **secrets: dict[str, str]) -> None:
        self.secrets = secrets
        self.asked: list[str] = []
        self.usable_by = ""

    async def read(self, name: str) -> Secret:
        self.asked.append(name)
        if name not in self.secrets:
            raise Refused(f"reading Secret headroom-system/{name}: there is none")
        found = Secret(self.secrets[name])
        found.usable_by, found.place = self.usable_by, f"headroom-system/{name}"
        return found


class View:
    """The port, as far as switches know it."""

    def __init__(self, *pools: AnyResource) -> None:
        self.pools, self.news = list(pools), list[str]()

    def world(self, now: int) -> World:
        return a_world(*self.pools, now=now)

    def tell(self, topic: Topic, name: str = "") -> None:
        self.news.append(topic)


def a_pool(*machines: dict[str, Any], name: str = "rack", state: str = "Booting", **spec: Any) -> AnyResource:
    """A pool of machines, all in one state."""
    pool = a_resource("PowerPool", name, machines=list(machines), **spec)
    assert not pool.problems, pool.problems
    known = (MachineStatus(name=each["name"], state=state, woken_at=WOKEN, slept_at=SLEPT) for each in machines)  # type: ignore[arg-type]  # the tests know the states
    return structs.replace(pool, status=PowerPoolStatus(machines=tuple(known)))


def by_calls(port: int, name: str = "w1", **more: Any) -> dict[str, Any]:
    """A machine that is switched by calls to a server on this machine."""
    base = f"http://127.0.0.1:{port}/{name}"
    return {"name": name, "gpuCount": 4, "scaleUpEndpoint": f"{base}/up", "scaleDownEndpoint": f"{base}/down"} | more


def by_redfish(port: int, name: str = "w1", **redfish: Any) -> dict[str, Any]:
    """A machine with a BMC on this machine."""
    return {"name": name, "gpuCount": 4, "redfish": {"address": f"http://127.0.0.1:{port}"} | redfish}


def power(
    port: int,
    vault: Vault | None = None,
    *,
    clock: Clock | None = None,
    unread: Any = lambda _machine, _why: None,
    allow_insecure: bool = False,
) -> Power:
    """Switches that may call that server."""
    vault = vault or Vault()
    vault.usable_by = (
        vault.usable_by or f"PowerPool/rack@http://127.0.0.1:{port},PowerPool/rack@https://127.0.0.1:{port}"
    )
    listed = entries(f"http://127.0.0.1:{port},https://127.0.0.1:{port},wol://127.0.0.1:{port}")
    return Power(Guard(listed), vault, clock or RealClock(), random.Random(1), unread, allow_insecure=allow_insecure)


class Noting:
    """Switches that note what they are told."""

    def __init__(self) -> None:
        self.machines: dict[str, Machine] = {}
        self.calls: dict[str, SwitchCall] = {}
        self.told: list[str] = []
        self.uids: list[tuple[str, str]] = []

    async def wake(self, pool: AnyResource, machine: str) -> None:
        self.told.append(f"wake {machine}")
        self.uids.append((pool.uid, pool.status.machines[0].woken_at))

    async def sleep(self, pool: AnyResource, machine: str) -> None:
        self.told.append(f"sleep {machine}")

    def refused(self, machine: str, command: Literal["Wake", "Sleep"], why: str) -> None:
        self.told.append(f"not {command}: {why}")
