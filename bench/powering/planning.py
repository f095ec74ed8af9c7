"""How long one decision about a large fleet takes: 5,000 machines in ten pools, 10,000 waiting pods of 200 shapes."""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from msgspec import structs

from bench.powering.demand import BUSY_WATTS, IDLE_WATTS, SEED, pool
from headroom.adapters.kube import sinks
from headroom.adapters.kube.changes import Subscriptions
from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.core import CAPACITY as PLAN
from headroom.model import times
from headroom.model.actions import WakeMachine
from headroom.model.changes import EVERYTHING, Changes
from headroom.model.decisions import Ref
from headroom.model.facts import Machine, Node, Owner, Pairs, Pod, Shape
from headroom.model.tables import NodeTable, PodTable
from headroom.model.world import World, by_ref
from headroom.sim.whatif.placing import WHOLE
from headroom.sim.whatif.traces import MODEL
from headroom.sim.whatif.work import GPU

POOLS, SIZE, PENDING = 10, 500, 10_000
MODELS: Final = ("A100", "H100", "L4", "L40S", "V100")
GPUS, SHARES = (1, 2, 4, 8), (60, 20, 12, 8)
"""What pods ask for, and of a hundred how many do."""
CPUS: Final = tuple(range(1, 11))
NOW: Final = 1_800_000_000_000
PASSES: Final = 7
CHURN_SECONDS, CHANGES_A_SECOND, CHURNING_PODS, FULL_SECONDS = 120, 1000, 2000, 60
WRITTEN_EVERY_MS: Final = 15 * times.SECOND
"""The writer's pace for what moves with the clock alone, where there are ten pools."""
GIB: Final = 2**30
CHURNING: Final = Shape(requests=(("cpu", WHOLE), (GPU, WHOLE)))
CPU_OF_A_MACHINE, MEMORY_OF_A_MACHINE = 128, 1024 * GIB


class Spot(NamedTuple):
    """One machine."""

    name: str
    gpus: int
    model: str
    power: str
    """On, or off: then its node may still be known, or not."""


def spots() -> list[Spot]:
    """Of ten machines three are on, two are off and known to the cluster, and five are off and not known to it."""
    return [
        Spot(
            name=f"m-{number // SIZE}-{number % SIZE:03d}",
            gpus=8 if number // SIZE < 6 else 4,
            model=MODELS[number // SIZE % len(MODELS)],
            power=("On", "On", "On", "Known", "Known", "Off", "Off", "Off", "Off", "Off")[number % 10],
        )
        for number in range(POOLS * SIZE)
    ]


def shapes() -> list[Shape]:
    """200 of them: GPUs, CPUs and the model of the GPUs."""
    return [
        Shape(
            requests=(("cpu", cpus * WHOLE), ("memory", 4 * GIB * WHOLE), (GPU, gpus * WHOLE)),
            node_selector=((MODEL, model),),
        )
        for gpus in GPUS
        for model in MODELS
        for cpus in CPUS
    ]


class Fleet:
    """The fleet, and what waits for it."""

    def __init__(self) -> None:
        self._rng = random.Random(SEED)
        self.spots = spots()
        self.resources = by_ref(self._pools())
        self.nodes, self.pods = NodeTable(), PodTable()
        self._shapes = shapes()
        for spot in self.spots:
            if spot.power != "Off":
                self.nodes.put(_node(spot))
        self._fill()
        self.machines = {
            spot.name: Machine(name=spot.name, power="On" if spot.power == "On" else "Off", since=NOW - times.HOUR)
            for spot in self.spots
        }

    def _pools(self) -> Iterator[AnyResource]:
        for number in range(POOLS):
            own = self.spots[number * SIZE : (number + 1) * SIZE]
            template = {
                "labels": {MODEL: own[0].model},
                "resources": {"cpu": CPU_OF_A_MACHINE, "memory": MEMORY_OF_A_MACHINE},
                "idleWatts": IDLE_WATTS * own[0].gpus // 8,
                "busyWatts": BUSY_WATTS * own[0].gpus // 8,
            }
            yield pool(f"pool-{number}", {"machines": [_machine(spot) for spot in own], "template": template})

    def _fill(self) -> None:
        """Four of five machines that are on have pods, and from none to three GPUs left."""
        for number, spot in enumerate(spot for spot in self.spots if spot.power == "On"):
            if number % 5:
                for place in range(spot.gpus - number % 4):
                    shape = Shape(requests=(("cpu", WHOLE), (GPU, WHOLE)), node_selector=((MODEL, spot.model),))
                    self.pods.put(_pod(f"runs-{spot.name}-{place}", shape, spot.name))

    def wait(self, count: int) -> None:
        """So many more pods wait."""
        first = len(self.pods)
        for number in range(first, first + count):
            gpus = self._rng.choices(range(len(GPUS)), SHARES)[0]
            kinds = len(MODELS) * len(CPUS)
            shape = self._shapes[gpus * kinds + self._rng.randrange(kinds)]
            self.pods.put(_pod(f"waits-{number:05d}", shape, ""))

    def world(self, now: int) -> World:
        """The world at a moment."""
        return World(now=now, resources=self.resources, pods=self.pods, nodes=self.nodes, machines=self.machines)

    def remember(self) -> None:
        """Write down what a first pass finds, as a fleet that has been looked after for long has it."""
        for decision in PLAN.decide(self.world(NOW - times.MINUTE), EVERYTHING):
            kept = structs.replace(self.resources[decision.resource], status=decision.status)
            self.resources.put(decision.resource, kept)

    def waiting(self) -> list[Pod]:
        """Who waits, in order."""
        found = (self.pods.get(uid) for uid in self.pods.unbound)
        return sorted((pod for pod in found if pod), key=lambda pod: (pod.created, pod.name))


def _machine(spot: Spot) -> dict[str, Any]:
    address = f"https://power.example.com/{spot.name}"
    return {
        "name": spot.name,
        "gpuCount": spot.gpus,
        "scaleUpEndpoint": f"{address}/on",
        "scaleDownEndpoint": f"{address}/off",
    }


def _labels(spot: Spot) -> Pairs:
    return (("kubernetes.io/hostname", spot.name), (MODEL, spot.model))


def _node(spot: Spot, **more: Any) -> Node:
    is_on, since = spot.power == "On", NOW - times.HOUR
    room = {"cpu": CPU_OF_A_MACHINE, "memory": MEMORY_OF_A_MACHINE, GPU: spot.gpus, "pods": 110}
    return Node(
        name=spot.name,
        labels=_labels(spot),
        ready=is_on,
        ready_since=since if is_on else None,
        unready_since=None if is_on else since,
        allocatable=tuple(sorted((name, amount * WHOLE) for name, amount in room.items())),
        **more,
    )


def _pod(name: str, shape: Shape, node: str) -> Pod:
    since = NOW - times.HOUR if node else NOW - 20 * times.SECOND
    return Pod(
        uid=name,
        namespace="lab",
        name=name,
        shape=shape,
        node=node,
        phase="Running" if node else "Pending",
        owner=Owner("Job", name, name),
        created=since,
        started=since if node else None,
        unschedulable_since=None if node else since,
        unschedulable_message="" if node else "0/1500 nodes are available: 1500 Insufficient nvidia.com/gpu.",
    )


class Took(NamedTuple):
    """CPU milliseconds."""

    median: float
    worst: float
    woken: int
    """Machines, in the last pass."""


def decided(fleet: Fleet) -> Took:
    """Several full passes, each at a later moment and with one pod more."""
    found, woken = [], 0
    for number in range(PASSES):
        fleet.wait(1)
        world = fleet.world(NOW + number * times.SECOND)
        began = time.process_time()
        decisions = list(PLAN.decide(world, EVERYTHING))
        found.append((time.process_time() - began) * 1000)
        woken = sum(isinstance(action, WakeMachine) for each in decisions for action in each.actions)
    return Took(statistics.median(found), max(found), woken)


def changed(fleet: Fleet) -> Took:
    """Passes over one node that changed, while nobody waits; chores are due as in every pass."""
    found = []
    for number in range(PASSES):
        fleet.nodes.put(_node(fleet.spots[number * POOLS], annotations=((marks.PROTECTED, f"no-{number}"),)))
        world = fleet.world(NOW + number * times.SECOND)
        began = time.process_time()
        decisions = list(PLAN.decide(world, Changes(nodes={fleet.spots[number * POOLS].name})))
        list(PLAN.chores(world))
        found.append((time.process_time() - began) * 1000)
        assert len(decisions) == 1, "one pool has that node"
    return Took(statistics.median(found), max(found), 0)


class Churn:
    """The plan as the loop asks it, while pods come and go that no scheduler refuses: once a second, and all of it once a minute."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet, self._told, self._now = fleet, Subscriptions(), NOW
        self._pods = sinks.PodSink(fleet.pods, self._told, now=lambda: self._now)
        self._nodes = [spot.name for spot in fleet.spots if spot.power == "On"]
        self._live: deque[str] = deque()
        self._look_at: dict[Ref, int] = {}
        self._written_at: dict[Ref, int] = {}
        self._told.subscribe(PLAN.name, PLAN.parts)

    def share(self, seconds: int) -> float:
        """Of how much of one core deciding takes, in percent."""
        self._ask(EVERYTHING)  # as it has been for long: the first look is not measured
        used = 0.0
        for second in range(seconds):
            self._now += times.SECOND
            self._change(second)
            used += self._ask(EVERYTHING) if second % FULL_SECONDS == FULL_SECONDS - 1 else 0.0
            used += self._ask(self._told.take(PLAN.name))
        return used / seconds * 100

    def _change(self, second: int) -> None:
        """A thousand changes in a second: pods are made, bound, begin to run, and others go."""
        for number in range(CHANGES_A_SECOND // 4):
            uid, node = f"churn-{second}-{number}", self._nodes[(second * 251 + number) % len(self._nodes)]
            made = structs.replace(_pod(uid, CHURNING, ""), unschedulable_since=None, unschedulable_message="")
            bound = structs.replace(made, node=node)
            for pod in (made, bound, structs.replace(bound, phase="Running", started=self._now)):
                self._pods.put(pod)
            self._live.append(uid)
            if len(self._live) > CHURNING_PODS:
                self._pods.remove(self._live.popleft(), None, self._now)

    def _ask(self, changes: Changes) -> float:
        """CPU seconds of one pass, and what is written after it."""
        world = self._fleet.world(self._now)
        changes = structs.replace(changes, resources={*changes.resources, *self._due()})
        began = time.process_time()
        decisions = list(PLAN.decide(world, changes)) if changes else []
        list(PLAN.chores(world))
        used = time.process_time() - began
        for decision in decisions:
            ref = decision.resource
            self._look_at[ref] = self._now + decision.look_again_ms
            if self._now - self._written_at.get(ref, 0) >= WRITTEN_EVERY_MS:
                self._written_at[ref] = self._now
                kept = structs.replace(self._fleet.resources[ref], status=decision.status)
                self._fleet.resources.put(ref, kept)
                self._told.resource(ref)
        return used

    def _due(self) -> set[Ref]:
        return {ref for ref, at in self._look_at.items() if at <= self._now}


def first_fit(fleet: Fleet) -> tuple[float, int]:
    """The peer: each pod in its order to the first machine with room, those that are on first; CPU milliseconds and machines woken.

    Plain loops over plain data that stands ready: no gangs, no affinity, no taints, no choice between machines, no status.
    """
    free = {spot.name: [spot.gpus, CPU_OF_A_MACHINE, MEMORY_OF_A_MACHINE] for spot in fleet.spots}
    for pod in fleet.pods:
        if pod.node:
            free[pod.node] = [have - ask for have, ask in zip(free[pod.node], _wish(pod), strict=True)]
    rooms = [(free[spot.name], spot) for spot in sorted(fleet.spots, key=lambda spot: spot.power != "On")]
    waiting = [(*_wish(pod), dict(pod.shape.node_selector)[MODEL]) for pod in fleet.waiting()]
    woken = set()
    began = time.process_time()
    for gpus, cpus, memory, model in waiting:
        for room, spot in rooms:
            if spot.model == model and room[0] >= gpus and room[1] >= cpus and room[2] >= memory:
                room[0], room[1], room[2] = room[0] - gpus, room[1] - cpus, room[2] - memory
                if spot.power != "On":
                    woken.add(spot.name)
                break
    return (time.process_time() - began) * 1000, len(woken)


def _wish(pod: Pod) -> tuple[int, int, int]:
    asked = dict(pod.shape.requests)
    return asked[GPU] // WHOLE, asked["cpu"] // WHOLE, asked.get("memory", 0) // WHOLE


class Planned(NamedTuple):
    """Everything that is measured of deciding."""

    quiet: Took
    changed: Took
    churn: float
    """Percent of a core."""
    busy: Took
    peer: float
    peer_woken: int


def planned() -> Planned:
    """First with nothing that waits, then with everything; as in `headroom run`, the collector passes over what lives long."""
    fleet = Fleet()
    fleet.remember()
    gc.collect()
    gc.freeze()
    one, churn = changed(fleet), Churn(fleet).share(CHURN_SECONDS)
    fleet = Fleet()
    fleet.remember()
    gc.collect()
    gc.freeze()
    quiet = decided(fleet)
    fleet.wait(PENDING - PASSES)
    gc.collect()
    gc.freeze()
    busy = decided(fleet)
    peer, woken = first_fit(fleet)
    gc.unfreeze()
    return Planned(quiet, one, churn, busy, peer, woken)
