"""Plays a scenario: a simulated cluster, operators over it, the timeline with its faults, and the verdict at the end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextvars import ContextVar, copy_context
from typing import Any, Final, Protocol

from msgspec import Struct

from headroom.adapters import documents
from headroom.adapters.kube.transport import Transport
from headroom.model import times
from headroom.model.errors import Misconfigured
from headroom.model.ports import Clock
from headroom.sim import ledger, script
from headroom.sim.answers import ErrorAnswer
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock, run_virtual
from headroom.sim.cloud_nodes import CloudNodes
from headroom.sim.connection import SimTransport
from headroom.sim.faults import Crash, Expire, Fault, Faults, SecondLeader, split
from headroom.sim.karpenter import Karpenter
from headroom.sim.kubelet import PodLifecycle
from headroom.sim.market import WanderingMarket
from headroom.sim.outside import MakesOutside
from headroom.sim.power import SimulatedMachines
from headroom.sim.script import Scenario, ScenarioStep
from headroom.sim.trace import Trace

__all__ = ["Report", "Runnable", "Scenario", "Simulation", "run", "simulate"]

_STOP_SECONDS: Final = 30.0
OUTSIDE: Final[tuple[MakesOutside, ...]] = (SimulatedMachines.of, CloudNodes.of, WanderingMarket.of, Karpenter.of)
"""What stands beside the cluster of every scenario."""


class Runnable(Protocol):
    """An operator, as a scenario needs it."""

    async def run(self) -> None:
        """Run until stopped."""
        ...

    async def stop(self) -> None:
        """End in good order."""
        ...


MakeOperator = Callable[[Transport, Clock, random.Random, str], Runnable]
"""Makes an operator from its connection, clock, randomness and identity."""


class Report(Struct, frozen=True, kw_only=True):
    """What came of a scenario."""

    name: str
    passed: bool
    failures: list[str]
    trace: Trace
    happened: list[tuple[int, str, str]]
    """Every fault that struck: when, whom, what."""
    server: ApiServer
    """The world as it was left, for whoever wants to look closer."""


Tasks = dict[asyncio.Task[Any], None]
"""All tasks that an operator has started, in order, itself and through others."""

_OWNER: ContextVar[Tasks | None] = ContextVar("owner", default=None)


class _Instance(Struct):
    """One operator process."""

    name: str
    transport: SimTransport
    operator: Runnable
    task: asyncio.Task[None]
    tasks: Tasks


class Simulation:
    """A scenario in progress. `play` does it all; the demo uses `start` and `stop` and lets it go on."""

    def __init__(self, scenario: Scenario, make_operator: MakeOperator, clock: SimClock | None = None) -> None:
        self.scenario = scenario
        self.clock = clock or SimClock(scenario.start)
        self.server = ApiServer(self.clock, split(scenario.seed, "server"))
        self.faults = Faults(self.clock, scenario.start, scenario.seed)
        self.cluster = PodLifecycle(self.server, pull_seconds=scenario.pull_seconds)
        self._outside = [make(self.server, self.cluster, self.faults, scenario) for make in OUTSIDE]
        self.failures: list[str] = []
        self.on_failure: Callable[[str], None] = lambda _: None
        """Told of each failure the moment it is found."""
        self.judged = self.held = 0
        """Expectations that were reached, and those of them that held."""
        self._make = make_operator
        self._instances: dict[str, _Instance] = {}
        self._starts: dict[str, int] = {}
        self._stopping = False

    @property
    def machines(self) -> SimulatedMachines:
        """Those that pools switch."""
        found: SimulatedMachines = self.server.beside[SimulatedMachines]
        return found

    async def play(self) -> Report:
        """The whole scenario, from its start to its verdict."""
        self.start()
        moments: list[tuple[int, int, Any]] = [(at, 0, step) for at, step in self.scenario.timeline]
        moments += [(at, 1, expected) for at, expected in self.scenario.expect]
        for at, kind, what in sorted(moments, key=lambda each: each[:2]):
            await self._until(min(at, self.scenario.duration))
            if kind == 0:
                await self.do(what)
            else:
                self._judge(what)
        await self._until(self.scenario.duration)
        await self.stop()
        return self.report()

    def report(self) -> Report:
        """What came of it so far."""
        return Report(
            name=self.scenario.name,
            passed=not self.failures,
            failures=self.failures,
            trace=self.server.trace,
            happened=self.faults.happened,
            server=self.server,
        )

    def start(self) -> None:
        """Set the stage and start the cluster and the operators."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(_without_crashes)
        loop.set_task_factory(_owned_task)
        past = [each for each in self.scenario.documents if documents.is_usage(each)]
        ledger.remember(self.server, past)
        for document in self.scenario.documents:
            if documents.is_usage(document):
                continue
            try:
                self.server.put(document)
            except ErrorAnswer as refused:
                name = (document.get("metadata") or {}).get("name")
                raise Misconfigured(f"setting the stage: {document.get('kind')} {name}: {refused.message}") from None
        for each in self._outside:
            each.begin()
        self.cluster.start()
        for number in range(1, self.scenario.operators + 1):
            self.start_operator(f"operator-{number}")

    async def stop(self) -> None:
        """End the operators in good order, and the cluster."""
        self._stopping = True
        for name in list(self._instances):
            await self.stop_operator(name)
        for each in self._outside:
            each.stop()
        self.cluster.stop()

    async def _until(self, elapsed: int) -> None:
        wait = self.scenario.start + elapsed - self.clock.now()
        if wait > 0:
            await self.clock.sleep(wait / times.SECOND)

    # --- operators --------------------------------------------------------------------------------------------------------

    def operator(self, name: str) -> Runnable | None:
        """The operator of that name, if it runs."""
        instance = self._instances.get(name)
        return instance.operator if instance else None

    def start_operator(self, name: str) -> None:
        """Start an operator process of that name, unless it runs already."""
        if name in self._instances or self._stopping:
            return
        count = self._starts[name] = self._starts.get(name, 0) + 1
        transport = self.server.transport("headroom", actor=name, faults=self.faults)
        rng = split(self.scenario.seed, f"{name}/{count}")
        tasks: Tasks = {}
        context = copy_context()
        context.run(_OWNER.set, tasks)
        operator = context.run(self._make, transport, self.clock, rng, f"{name}-{count}")
        task = asyncio.get_running_loop().create_task(operator.run(), name=name, context=context)
        instance = _Instance(name, transport, operator, task, tasks)
        transport.on_crash = lambda: self._died(instance)
        task.add_done_callback(lambda _: self._ended(instance))
        self._instances[name] = instance

    async def stop_operator(self, name: str) -> None:
        """Tell an operator to stop and wait until it has."""
        instance = self._instances.pop(name, None)
        if instance is None:
            return
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await instance.operator.stop()
        except TimeoutError:
            self._fail(f"{name} did not stop within {_STOP_SECONDS:g} s")
        except Crash:
            pass  # it died on the way
        left = list(instance.tasks)
        _cancel(instance)
        if left:
            await asyncio.wait(left)
        await instance.transport.close()

    def kill_operator(self, name: str) -> None:
        """End an operator from one moment to the next."""
        instance = self._instances.get(name)
        if instance is not None:
            instance.transport.kill()
            self._died(instance)

    def _died(self, instance: _Instance) -> None:
        if self._instances.get(instance.name) is instance:
            del self._instances[instance.name]
        _cancel(instance)
        self.clock.call_later(self.scenario.restart_after / times.SECOND, lambda: self.start_operator(instance.name))

    def _ended(self, instance: _Instance) -> None:
        """An operator that ended by itself is a finding, unless it was killed or told to."""
        failure = None if instance.task.cancelled() else instance.task.exception()
        if self._instances.get(instance.name) is not instance or not instance.transport.actor.alive:
            return
        del self._instances[instance.name]
        self._fail(f"{instance.name} ended by itself: {failure!r}")

    # --- the timeline -----------------------------------------------------------------------------------------------------

    async def do(self, step: ScenarioStep) -> None:
        """Let one thing happen."""
        try:
            await self._do(step)
        except ErrorAnswer as refused:
            self._fail(f"the step at {step.at}: {refused.message}")

    async def _do(self, step: ScenarioStep) -> None:
        if step.apply is not None:
            self.server.put(step.apply)
        elif step.patch is not None:
            path = self._path(step.patch.resource, "status" if step.patch.status else "")
            self.server.do("PATCH", path, step.patch.merge)
        elif step.delete:
            self.server.do("DELETE", self._path(step.delete))
        elif step.fault is not None:
            self._strike(script.fault_of(step))
        elif step.heal:
            self.faults.clear()
        elif step.start_operator:
            self.start_operator(step.start_operator)
        elif step.stop_operator:
            await self.stop_operator(step.stop_operator)
        else:
            self.kill_operator(step.kill_operator)

    def _strike(self, fault: Fault) -> None:
        if isinstance(fault, Expire) and fault.nth is None and fault.probability is None:
            self.server.compact()
        elif isinstance(fault, SecondLeader):
            self._second_leader(fault)
        else:
            self.faults.add(fault)

    def _second_leader(self, fault: SecondLeader) -> None:
        begin, end = self.faults.window(fault)
        name = f"second-{len(self._starts)}"
        now = self.clock.now()
        self.clock.call_later((begin - now) / times.SECOND, lambda: self.start_operator(name))
        if end is not None:
            self.clock.call_later((end - now) / times.SECOND, lambda: self._send_home(name))

    def _send_home(self, name: str) -> None:
        asyncio.get_running_loop().create_task(self.stop_operator(name), name=f"stop {name}")

    def _path(self, resource: str, subresource: str = "") -> str:
        kind, namespace, name = script.place(resource)
        type_ = self.server.catalog.of_kind(kind)
        if type_ is None:
            raise Misconfigured(f"naming an object: there is no kind {kind}")
        return type_.url(namespace or "default" if type_.namespaced else "", name, subresource)

    def _judge(self, expected: script.Expectation) -> None:
        body = None
        if expected.resource:
            kind, namespace, name = script.place(expected.resource)
            body = self.server.object(kind, namespace, name)
        why = script.failure(expected, body, self.server.trace)
        self.judged += 1
        self.held += not why
        if why:
            what = expected.resource or f"writes {expected.writes}"
            self._fail(f"at {expected.at}, {what}: {why}")

    def _fail(self, why: str) -> None:
        self.failures.append(why)
        self.on_failure(why)


def _owned_task(loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
    """Makes tasks as the loop does, and notes to which operator each belongs: a process takes all of its own with it."""
    context = more.get("context")
    tasks = context.get(_OWNER) if context is not None else _OWNER.get()
    task = asyncio.Task(coro, loop=loop, **more)
    if tasks is not None:
        tasks[task] = None
        task.add_done_callback(lambda done: tasks.pop(done, None))
    return task


def _cancel(instance: _Instance) -> None:
    for task in list(instance.tasks):
        task.cancel()


def _without_crashes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What a killed operator leaves behind is no news."""
    failure = context.get("exception")
    if isinstance(failure, Crash) or (isinstance(failure, BaseExceptionGroup) and failure.split(Crash)[1] is None):
        return
    loop.default_exception_handler(context)


async def run(scenario: Scenario, make_operator: MakeOperator) -> Report:
    """Play a scenario on the running loop, which should be a `VirtualLoop`."""
    return await Simulation(scenario, make_operator).play()


def simulate(scenario: Scenario, make_operator: MakeOperator) -> Report:
    """Play a scenario on a loop of its own, as fast as it goes."""
    return run_virtual(lambda: run(scenario, make_operator))
