"""Machines that can be switched on and off: the hardware beside a simulated cluster, and the switches that an operator has to it.

A machine that is switched on boots and becomes a node; one that is switched off goes dark, with all that still runs on it. Each command
is kept, and so is every pod that was lost to one. What goes wrong are faults with the verbs `wake`, `sleep`, `status` and `boot`, and
the path `/power/POOL/MACHINE`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Literal

from msgspec import Struct

from headroom.adapters import outside
from headroom.adapters.kube import parse
from headroom.adapters.kube.transport import Transport
from headroom.adapters.power import status_of
from headroom.api.kinds import AnyResource
from headroom.model import facts, times
from headroom.model.errors import Refused, Unavailable
from headroom.model.gangs import keeps_machine_on
from headroom.model.ports import Clock
from headroom.sim import hardware
from headroom.sim import seen as as_fact
from headroom.sim.answers import Body
from headroom.sim.apiserver import ApiServer
from headroom.sim.apistore import Change
from headroom.sim.catalog import NODE, POD
from headroom.sim.connection import SimTransport
from headroom.sim.faults import Crippled, Fault, Faults, Ignored, Late
from headroom.sim.hardware import POOL, PoolHardware
from headroom.sim.kubelet import PodLifecycle
from headroom.sim.script import Scenario

POLL_SECONDS: Final = 10.0
"""How often a machine is asked for its power."""
PATIENCE: Final = 2
"""After so many questions without an answer nothing is known of it any more."""
_ENDED: Final = ("Succeeded", "Failed")
Command = Literal["Wake", "Sleep"]


class SwitchCommand(Struct, frozen=True, kw_only=True):
    """A command that a machine's switch heard."""

    at: int
    actor: str
    pool: str
    machine: str
    command: Command
    key: str
    """The same for the same intent, whoever sends it and however often."""


class Lost(Struct, frozen=True, kw_only=True):
    """A pod that was on a machine when it went dark."""

    at: int
    machine: str
    pod: str
    by: str
    """Who had sent the machine to sleep; empty where nobody did that through a switch."""


class _Power(Struct):
    on: bool
    since: int
    turn: int = 0
    """How often it was switched over: what an earlier turn set off is void."""
    going: bool = False
    """It shuts down."""


def _nothing() -> None:
    """Nobody listens."""


class SimulatedMachines:
    """All machines: one hardware for all operators of a simulation."""

    def __init__(
        self,
        server: ApiServer,
        cluster: PodLifecycle,
        faults: Faults,
        *,
        boot_seconds: float = hardware.BOOT_SECONDS,
        shutdown_seconds: float = hardware.SHUTDOWN_SECONDS,
    ) -> None:
        self._server, self._cluster, self._faults, self._clock = server, cluster, faults, server.clock
        self._boot, self._shutdown = boot_seconds, shutdown_seconds
        self._power: dict[str, _Power] = {}
        self._pools: dict[str, tuple[tuple[str, int], AnyResource]] = {}
        """Each pool as it was last read, with its uid and generation."""
        self.sent: list[SwitchCommand] = []
        """Every command that a switch heard, whether it said yes or no."""
        self.told: list[SwitchCommand] = []
        """Those to which it did not say no."""
        self.lost: list[Lost] = []
        self.on_told: list[Callable[[SwitchCommand], None]] = []
        """Told of each command the moment it arrives, before anything comes of it."""
        self._unsubscribe: Callable[[], None] = _nothing
        server.beside[SimulatedMachines] = self

    @classmethod
    def of(cls, server: ApiServer, cluster: PodLifecycle, faults: Faults, scenario: Scenario) -> SimulatedMachines:
        """Those of a scenario."""
        seconds = {"boot_seconds": scenario.boot_seconds, "shutdown_seconds": scenario.shutdown_seconds}
        return cls(server, cluster, faults, **seconds)

    def begin(self) -> None:
        """Take stock: a machine is what its document says, else on if it has a node; those that are off send no heartbeat."""
        for owned in self.owned():
            power = self._of(owned.machine.name)
            if not power.on:
                self._cluster.darken(owned.machine.name, at_once=True)
            elif self._server.object("Node", "", owned.machine.name) is None:
                self._start(owned.machine.name, power)
        self._unsubscribe = self._server.store.subscribe(self._notice)

    def stop(self) -> None:
        """Let nothing more come of what was set off."""
        self._unsubscribe()
        self._unsubscribe = _nothing
        for power in self._power.values():
            power.turn += 1

    def owned(self) -> Iterator[PoolHardware]:
        """Every machine of every PowerPool there is."""
        return hardware.machines(self._read(body) for body in self._server.objects(POOL))

    def _read(self, body: Body) -> AnyResource:
        """A pool as it stands; one that did not change is not read again."""
        name, version = body["metadata"]["name"], (body["metadata"]["uid"], body["metadata"]["generation"])
        known = self._pools.get(name)
        if known is None or known[0] != version:
            known = self._pools[name] = version, parse.resource(body)
        return known[1]

    def power(self, name: str) -> facts.Machine:
        """The truth about a machine."""
        power = self._of(name)
        return facts.Machine(name=name, power="On" if power.on else "Off", since=power.since)

    def _of(self, name: str) -> _Power:
        if name not in self._power:
            document = self._server.object("Machine", "", name)
            told: facts.Machine | None = outside.fact("Machine", document)[0] if document else None
            if told is not None and told.power != "Unknown":
                is_on = told.power != "Off"  # one that is shutting down is still on
            else:
                node = self._server.store.get(NODE, "", name)
                is_on = node is not None and name not in self._cluster.dark
            since = told.since if told is not None and told.since is not None else self._clock.now()
            self._power[name] = _Power(is_on, since)
        return self._power[name]

    # --- switching --------------------------------------------------------------------------------------------------------

    def tell(self, told: SwitchCommand, due: list[Fault]) -> None:
        """A command reaches a machine's switch, which does not refuse it."""
        self.sent.append(told)
        self.told.append(told)
        for listener in self.on_told:
            listener(told)
        if any(isinstance(each, Ignored) for each in due):
            return
        late = sum(each.ms for each in due if isinstance(each, Late))
        act = partial(self._obey, told.machine, told.command, told.actor)
        if late:
            self._clock.call_later(late / times.SECOND, act)
        else:
            act()

    def _obey(self, name: str, command: Command, actor: str) -> None:
        power = self._of(name)
        if command == "Wake" and not power.on:
            self._start(name, power)
        elif command == "Sleep" and power.on and not power.going:
            power.going = True
            self._later(power, self._shutdown, partial(self._go_dark, name, actor))

    def _start(self, name: str, power: _Power) -> None:
        power.on, power.since, power.going = True, self._clock.now(), False
        self._write(name)
        owned = self._find(name)
        path = path_of(owned.pool.name if owned else "", name)
        due = self._faults.on_request("machines", "boot", path)
        late = sum(each.ms for each in due if isinstance(each, Late)) / times.SECOND
        if not any(isinstance(each, Ignored) for each in due):
            gpus = next((each.gpus for each in due if isinstance(each, Crippled)), None)
            self._later(power, self._boot + late, partial(self._booted, name, gpus))

    def _booted(self, name: str, gpus: int | None) -> None:
        owned = self._find(name)
        if owned is not None:
            spec, machine = owned.pool.spec, owned.machine
            made = hardware.node(spec, machine)
            if gpus is not None:
                made["status"] = {
                    part: room | {spec.gpu_resource_name: str(gpus)} for part, room in made["status"].items()
                }
            if self._server.object("Node", "", name) is None:
                self._server.put(made)
            elif gpus is not None:
                self._server.do("PATCH", NODE.url("", name, "status"), {"status": made["status"]})
        self._cluster.light(name)

    def _go_dark(self, name: str, by: str) -> None:
        power, now = self._of(name), self._clock.now()
        power.on, power.since, power.going = False, now, False
        owned = self._find(name)
        gpus = owned.pool.spec.gpu_resource_name if owned else ""
        for record in self._server.store.all(POD):
            pod = as_fact.pod(record)
            if pod.node == name and pod.phase not in _ENDED and keeps_machine_on(pod, gpus):
                self.lost.append(Lost(at=now, machine=name, pod=pod.key, by=by))
        self._cluster.darken(name)
        self._write(name)

    def _later(self, power: _Power, seconds: float, do: Callable[[], None]) -> None:
        power.turn += 1
        turn = power.turn
        self._clock.call_later(seconds, lambda: do() if power.turn == turn else None)

    def _find(self, name: str) -> PoolHardware | None:
        return next((each for each in self.owned() if each.machine.name == name), None)

    # --- by hand ----------------------------------------------------------------------------------------------------------

    def _notice(self, change: Change) -> None:
        """Somebody changed a machine's document: they pulled its plug, or pressed its button."""
        if change.type.kind != "Machine" or change.after is None:
            return
        told = outside.fact("Machine", change.after.body)[0]
        power = self._of(told.name)
        if told.power == "On" and not power.on:
            self._start(told.name, power)
        elif told.power == "Off" and power.on:
            power.turn += 1
            self._go_dark(told.name, "")

    def _write(self, name: str) -> None:
        """Let the machine's document say what is true, where it has one."""
        document = self._server.object("Machine", "", name)
        power = self.power(name)
        if document is not None and (document.get("spec") or {}).get("power") != power.power:
            spec = {"power": power.power, "since": times.text(power.since or 0)}
            type_ = self._server.catalog.of_kind("Machine")
            assert type_ is not None
            self._server.do("PATCH", type_.url("", name), {"spec": spec})


class SimSwitches:
    """The switches as one operator process has them: a `model.ports.Switches`. What it remembers dies with the process."""

    def __init__(self, machines: SimulatedMachines, transport: SimTransport, clock: Clock) -> None:
        self._machines, self._transport, self._clock = machines, transport, clock
        self._known: dict[str, facts.Machine] = {}
        self._calls: dict[str, facts.SwitchCall] = {}
        self._silent: dict[str, int] = {}
        self.changed: Callable[[str], None] = lambda _machine: None
        """Told of which machine something is new."""

    @property
    def machines(self) -> Mapping[str, facts.Machine]:
        """What is known of the power of machines; only of those that can be asked."""
        return self._known

    @property
    def calls(self) -> Mapping[str, facts.SwitchCall]:
        """The last call to each machine's switch that this process made."""
        return self._calls

    async def wake(self, pool: AnyResource, machine: str) -> None:
        """Tell a machine to switch on."""
        await self._call(pool, machine, "Wake")

    async def sleep(self, pool: AnyResource, machine: str) -> None:
        """Tell it to switch off."""
        await self._call(pool, machine, "Sleep")

    def refused(self, machine: str, command: Command, why: str) -> None:
        """Note that a call was not made at all."""
        self._note(machine, command, self._clock.now(), "Failed", why)

    async def _call(self, pool: AnyResource, machine: str, command: Command) -> None:
        sent = self._clock.now()
        doing = f"telling machine {machine} to {command.lower()}"
        told = SwitchCommand(
            at=sent,
            actor=self._transport.actor.name,
            pool=pool.name,
            machine=machine,
            command=command,
            key=_key(pool, machine, command),
        )
        timeout = float(pool.spec.webhook.timeout_seconds)
        try:
            status = await self._transport.call(
                command.lower(), path_of(pool.name, machine), partial(self._machines.tell, told), timeout
            )
        except Unavailable as problem:
            self._note(machine, command, sent, "Failed", str(problem))
            raise
        except asyncio.CancelledError:
            self._note(machine, command, sent, "Unknown", "nobody waited for the answer")
            raise
        if status is None:
            self._note(machine, command, sent, "Unknown", "no answer came")
            raise Unavailable(f"{doing}: no answer came")
        if not 200 <= status < 300:
            self._machines.sent.append(told)
            self._note(machine, command, sent, "Failed", f"it answered {status}")
            raise Refused(f"{doing}: it answered {status}")
        self._note(machine, command, sent, "Accepted", "")

    def _note(self, machine: str, command: Command, at: int, outcome: Any, message: str) -> None:
        self._calls[machine] = facts.SwitchCall(
            machine=machine, command=command, at=at, outcome=outcome, message=message
        )
        self.changed(machine)

    # --- asking -----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ask every machine that can be asked for its power, now and then."""
        while True:
            wanted = {each.machine.name: each for each in self._machines.owned() if _can_be_asked(each)}
            for name in self._known.keys() - wanted.keys():
                del self._known[name]
            for owned in wanted.values():
                await self._ask(owned)
            await self._clock.sleep(POLL_SECONDS)

    async def _ask(self, owned: PoolHardware) -> None:
        name, path = owned.machine.name, path_of(owned.pool.name, owned.machine.name)
        before = self._known.get(name)
        try:
            status = await self._transport.call("status", path, lambda _due: None, 5.0)
        except Unavailable:
            status = None
        if status is not None and 200 <= status < 300:
            self._silent[name] = 0
            power = self._machines.power(name).power
        else:
            self._silent[name] = self._silent.get(name, 0) + 1
            power = before.power if before and self._silent[name] < PATIENCE else "Unknown"
        if before is None or before.power != power:
            # When it turned nobody says: it is known since it was first seen so.
            self._known[name] = facts.Machine(name=name, power=power, since=self._clock.now())
            self.changed(name)


def switches_of(transport: Transport, clock: Clock) -> SimSwitches | None:
    """The switches that a new operator process gets; None where there is nothing to switch."""
    assert isinstance(transport, SimTransport)
    machines = transport.server.beside.get(SimulatedMachines)
    return None if machines is None else SimSwitches(machines, transport, clock)


def path_of(pool: str, machine: str) -> str:
    """What faults call a machine's switch."""
    return f"/power/{pool}/{machine}"


def _can_be_asked(owned: PoolHardware) -> bool:
    return owned.machine.status_endpoint is not None or owned.machine.redfish is not None


def _key(pool: AnyResource, machine: str, command: Command) -> str:
    known = status_of(pool, machine)
    at = "" if known is None else known.woken_at if command == "Wake" else known.slept_at
    return f"{pool.uid}/{machine}/{command}/{at}"
