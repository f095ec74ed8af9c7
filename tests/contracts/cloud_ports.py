"""The port `Clouds` as the contract tests see it, whoever is behind it: the simulator, or the real adapter on a cloud's own protocol."""

from __future__ import annotations

import asyncio
import random
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final, Self

from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.api.marks import CLUSTER_TAG, OWNER_TAG, SLOT_TAG
from headroom.api.spot_pools_status import Slot, SpotpoolStatus
from headroom.model import times
from headroom.model.actions import LaunchInstance
from headroom.model.decisions import status_wire
from headroom.model.ports import Clouds
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock
from headroom.sim.cloud import Cloud, RequestedLaunch, Verb, Wrong
from headroom.sim.clouds import Regions, SimClouds
from headroom.sim.faults import Faults
from tests.builders import a_document
from tests.cloud_faults import Call, How
from tests.cloud_sides import CloudSide
from tests.cloud_stage import Stage, a_launch, a_spotpool, an_intent
from tests.processes import PATIENCE_SECONDS

START_MS: Final = 1_767_225_600_000
SPEED: Final = 20.0


class PortSide(ABC):
    """A Spotpool in a cloud that has machines of others too, and the port to it."""

    clouds: Clouds
    pool: AnyResource
    cluster: str
    foreign: list[str]

    def __init__(self) -> None:
        self.clock = SimClock(START_MS, SPEED)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self.start()
        self._running = asyncio.create_task(self.watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await self._stack.aclose()

    @property
    def key(self) -> str:
        return f"{self.pool.namespace}/{self.pool.name}"

    def intend(self, slot: int = 0) -> LaunchInstance:
        """Put the intent of a launch into the pool's status; the call for it."""
        token = f"token-{uuid.uuid4().hex}"
        self.slots(an_intent(self.clock, slot, token))
        return a_launch(self.pool, slot, token)

    def named(self, machine: str, action: LaunchInstance) -> None:
        """The machine stands in the pool's status."""
        self.slots(an_intent(self.clock, action.slot, action.token, state="Running", instance_id=machine))

    def slots(self, *slots: Slot) -> None:
        self.put(structs.replace(self.pool, status=SpotpoolStatus(slots=slots)))

    def state(self, machine: str) -> str:
        """What is known of a machine."""
        found = self.clouds.instances.get(machine)
        return found.state if found else ""

    async def until(self, what: Callable[[], bool], said: str) -> None:
        """Wait in real time."""
        for _ in range(round(PATIENCE_SECONDS / 0.02)):
            if what():
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"not within {PATIENCE_SECONDS:g} s: {said}")

    async def listed(self) -> None:
        """Wait for a list that begins after now."""
        now = self.clock.now()
        await self.until(lambda: self.clouds.listings[self.key].at >= now, "it is listed")

    @abstractmethod
    async def start(self) -> None:
        """Make the cloud, the pool and the port."""

    @abstractmethod
    async def watch(self) -> None:
        """List machines until cancelled."""

    @abstractmethod
    def put(self, pool: AnyResource) -> None:
        """The pool stands like this from now on."""

    @abstractmethod
    def go_wrong(self, call: Call, how: How | None, *, once: bool = True) -> None:
        """The next such call goes wrong, or every one, or with None no one any more."""

    @abstractmethod
    def alive(self) -> dict[str, str]:
        """Tags of machines that are, in truth, by id: the owner's uid."""

    @abstractmethod
    def settle(self) -> None:
        """Let what is beginning have begun."""

    @abstractmethod
    def lag(self, seconds: float) -> None:
        """From now on machines are shown only so long after they were launched."""

    @abstractmethod
    def add(self, **tags: str) -> str:
        """A machine that runs; its id."""

    def ours(self, slot: int = 0) -> str:
        """A machine of the pool, launched by somebody before."""
        return self.add(**{CLUSTER_TAG: self.cluster, OWNER_TAG: self.pool.uid, SLOT_TAG: str(slot)})


class OnCloud(PortSide):
    """The real adapter."""

    def __init__(self, side: CloudSide) -> None:
        super().__init__()
        self.side, self.cluster = side, side.cluster

    async def start(self) -> None:
        await self._stack.enter_async_context(self.side)
        self.stage = Stage(self.cluster, self.clock, self.side)
        self._stack.callback(self.stage.close)
        self.clouds, self.pool, self.foreign = self.stage.fleet, self.stage.pool(self.side), self.side.foreign

    async def watch(self) -> None:
        await self.stage.fleet.run()

    def put(self, pool: AnyResource) -> None:
        self.pool = self.stage.view.put(pool)

    def go_wrong(self, call: Call, how: How | None, *, once: bool = True) -> None:
        if once and how is not None:
            self.side.faults.next(call, how)
        else:
            self.side.faults.always(call, how)

    def alive(self) -> dict[str, str]:
        owners = self.side.owners()
        return {name: owners[name] for name, state in self.side.states().items() if state in ("PENDING", "RUNNING")}

    def settle(self) -> None:
        self.side.settle()

    def lag(self, seconds: float) -> None:
        self.side.lag(seconds / SPEED)

    def add(self, **tags: str) -> str:
        return self.side.add(**tags)


class Simulated(PortSide):
    """The simulator's cloud."""

    async def start(self) -> None:
        server, self.cluster = ApiServer(self.clock, random.Random(1)), "cluster-sim"
        regions = Regions(server)
        self.pool = a_spotpool(region="sim-1", availabilityZone="sim-1a", instanceType="GN7")
        self._server, self._cloud, self._wrong = server, regions["sim-1"], dict[str, tuple[Wrong, bool]]()
        self._shortage: How | None = None
        self._cloud.wrong = self._goes_wrong
        server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
        self.put(self.pool)
        self.foreign = [self.add(), self.add(**{CLUSTER_TAG: "another", OWNER_TAG: self.pool.uid, SLOT_TAG: "0"})]
        transport = server.transport("headroom", actor="operator-1", faults=Faults(self.clock, START_MS, 1, []))
        self.clouds = self._clouds = SimClouds(regions, transport, self.clock, self.cluster)

    async def watch(self) -> None:
        await self._clouds.run()

    def put(self, pool: AnyResource) -> None:
        self.pool = pool
        spec = {"region": "sim-1", "availabilityZone": "sim-1a", "instanceType": "GN7", "minimum": 0, "maximum": 3}
        document = a_document("Spotpool", pool.name) | {"spec": spec}
        document["metadata"] |= {"uid": pool.uid}
        document["status"] = {"slots": []} | status_wire(pool.status)
        self._server.put(document)

    def _goes_wrong(self, verb: Verb) -> Wrong:
        how, once = self._wrong.get(verb, ("", True))
        if how and once:
            del self._wrong[verb]
        return how

    def go_wrong(self, call: Call, how: How | None, *, once: bool = True) -> None:
        shortages: dict[How, Callable[[Cloud], None]] = {
            "sold out": lambda cloud: cloud.stock.__setitem__(("GN7", "sim-1a"), 0),
            "quota": lambda cloud: setattr(cloud, "quota", 0),
            "refused": lambda cloud: setattr(cloud, "refused_types", frozenset({"GN7"})),
        }
        if how in shortages:
            shortages[how](self._cloud)
            return
        words: dict[How, Wrong] = {"cut": "Lost", "drop": "Unreached", "throttled": "Throttled", "denied": "Denied"}
        if how is None:
            self._wrong.pop(call, None)
            self._cloud.stock.clear()
            self._cloud.quota, self._cloud.refused_types = None, frozenset()
        else:
            self._wrong[call] = words[how], once

    def alive(self) -> dict[str, str]:
        return {
            name: each.order.tags.get(OWNER_TAG, "")
            for name, each in self._cloud.machines.items()
            if self._cloud.is_alive(name)
        }

    def settle(self) -> None:
        """They boot by themselves."""

    def lag(self, seconds: float) -> None:
        self._cloud.lag = lambda: round(seconds * times.SECOND)

    def add(self, **tags: str) -> str:
        return self._cloud.add(RequestedLaunch(token="", instance_type="GN7", zone="sim-1a", tags=tags), "RUNNING").id
