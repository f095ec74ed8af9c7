"""The policies that ours is compared with, on the same cluster, scheduler and boot time: the seed's own, and two plain ones.

They switch machines by force, as their calls would: whatever runs on a machine that is switched off is lost and begins anew.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import count
from typing import Final, Literal, Protocol

from headroom.api.kinds import AnyResource
from headroom.model import times
from headroom.model.decisions import Ref
from headroom.model.facts import Machine, Node, Pod
from headroom.sim import hardware
from headroom.sim.whatif.cluster import ReplayCluster
from headroom.sim.whatif.lives import ReplayLog, Shift
from headroom.sim.whatif.metal import stage, turned
from headroom.sim.whatif.placing import WHOLE, Placer
from headroom.sim.whatif.work import GPU, Case

LOST: Final = "Lost"
"""How a pod ends whose machine is switched off under it."""
NEVER: Final = 2**62


class Switchboard:
    """Switches the machines of a cluster, and counts how often it is asked to."""

    def __init__(self, cluster: ReplayCluster) -> None:
        self._cluster = cluster
        self._number = count()
        self._command: dict[str, int] = {}
        """The last command to each machine; a boot that an earlier one began is void."""
        self._shifts: dict[str, Shift] = {}
        self.calls, self.wasted = 0, 0
        """All calls, and those to a machine that is already as wanted."""

    def stage(self, nodes: dict[str, Node]) -> list[Node]:
        """The machines as they are at the begin, and their nodes."""
        cluster = self._cluster
        to_come, cluster.facts["machines"] = stage(cluster.case, cluster.resources.values(), nodes)
        for name, machine in cluster.machines.items():
            if machine.power == "On":
                self._begin(name, cluster.now)
        return to_come

    def has(self, node: str) -> bool:
        """Whether a node is that of a machine."""
        return node in self._cluster.machines

    def _begin(self, name: str, at: int) -> None:
        self._shifts[name] = Shift(machine=name, begin=at)
        self._cluster.log.shifts.append(self._shifts[name])

    def is_on(self, name: str) -> bool:
        """Whether a machine is on, if only just."""
        return self._cluster.machines[name].power == "On"

    def is_booting(self, name: str) -> bool:
        """Whether it is on and not there yet."""
        return self.is_on(name) and not self.node(name).ready

    def node(self, name: str) -> Node:
        """What a machine is to the cluster."""
        node = self._cluster.node(name)
        assert node is not None, "these machines are known to their cluster, on or off"
        return node

    def on(self, name: str) -> None:
        """Call a machine's address for waking."""
        self.calls += 1
        if self.is_on(name):
            self.wasted += 1
            return
        cluster, before = self._cluster, self._shifts.get(name)
        self._turn(name, "On")
        # It may still be shutting down, and counts as on only once.
        self._begin(name, max(cluster.now, before.end or 0) if before else cluster.now)
        number = self._command[name]
        cluster.later(cluster.now + cluster.case.boot_ms, lambda: self._booted(name, number))

    def _booted(self, name: str, number: int) -> None:
        if self._command[name] == number:
            self._cluster.show(turned(self.node(name), ready=True, at=self._cluster.now))

    def off(self, name: str) -> None:
        """Call a machine's address for sleeping."""
        self.calls += 1
        if not self.is_on(name):
            self.wasted += 1
            return
        cluster = self._cluster
        self._turn(name, "Off")
        self._shifts[name].end = min(cluster.now + cluster.case.shutdown_ms, cluster.case.end)
        cluster.show(turned(self.node(name), ready=False, at=cluster.now))
        for uid in sorted(cluster.pods.by_node[name]):
            work = cluster.living[uid].work
            cluster.end(uid, LOST)
            cluster.make(work)

    def _turn(self, name: str, power: Literal["On", "Off"]) -> None:
        self._command[name] = next(self._number)
        self._cluster.machines[name] = Machine(name=name, power=power, since=self._cluster.now)


class Rival(Protocol):
    """A policy that looks at the cluster now and then."""

    every: int
    """How often, in milliseconds."""

    def look(self, cluster: ReplayCluster, switches: Switchboard) -> None:
        """Switch what it wants switched."""


class AlwaysOn:
    """Everything stays as it is."""

    every = times.HOUR

    def look(self, cluster: ReplayCluster, switches: Switchboard) -> None:
        """Nothing to do."""


class Seed:
    """The seed's own algorithm, with its ways: sums instead of places, the same calls again and again, off and idle taken for one."""

    every = 10 * times.SECOND

    def __init__(self, gpus: Mapping[str, int]) -> None:
        self._gpus = dict(gpus)
        """Of its machines, in the order in which it found them."""
        self._upwards = sorted(gpus, key=lambda name: gpus[name])
        self._seen = -1
        self._wishes: tuple[list[str], str] = [], ""

    def look(self, cluster: ReplayCluster, switches: Switchboard) -> None:
        """One cycle. It sees nothing but pods: while they stay as they are, it makes the same calls again."""
        if cluster.pods.generation != self._seen:
            self._seen, self._wishes = cluster.pods.generation, self.wishes(cluster.pods)
        up, down = self._wishes
        for name in up:
            switches.on(name)
        if down:
            switches.off(down)

    def wishes(self, pods: Iterable[Pod]) -> tuple[list[str], str]:
        """Which machines it wants on, or else which one off. A machine is active while a pod with GPUs runs on it."""
        pending, used = 0, dict.fromkeys(self._gpus, 0)
        for pod in pods:
            asked = dict(pod.shape.requests).get(GPU, 0) // WHOLE
            if pod.phase == "Pending":
                pending += asked
            elif pod.phase == "Running" and pod.node in used:
                used[pod.node] += asked
        missing = pending - sum(self._gpus[name] - taken for name, taken in used.items() if taken)
        if missing > 0:
            up = []
            for name in (name for name in self._upwards if not used[name]):
                if missing <= 0:
                    break
                up.append(name)
                missing -= self._gpus[name]
            return up, ""
        # The first of the largest.
        return [], max((name for name in self._gpus if not used[name]), key=self._gpus.__getitem__, default="")


class EachMinute:
    """Exactly what this minute needs is on: what holds no pod goes off, and what waits gets machines where the scheduler would put it."""

    every = times.MINUTE

    def look(self, cluster: ReplayCluster, switches: Switchboard) -> None:
        """One minute."""
        for name in [name for name in cluster.machines if switches.is_on(name) and switches.node(name).ready]:
            if not cluster.pods.by_node[name]:
                switches.off(name)
        waiting = [pod for uid in cluster.pods.unbound if (pod := cluster.pods.get(uid))]
        if not waiting:
            return
        booting = [switches.node(name) for name in cluster.machines if switches.is_booting(name)]
        asleep = [switches.node(name) for name in cluster.machines if not switches.is_on(name)]
        placed = _placed(waiting, booting)
        for name in sorted(set(_placed([pod for pod in waiting if pod.uid not in placed], asleep).values())):
            switches.on(name)


class Constant:
    """As many machines are on as were in use at most within the last minutes, and so many more."""

    every = times.MINUTE

    def __init__(self, window: int, spares: int) -> None:
        self._window_ms, self._spares = window * times.MINUTE, spares
        self._past: deque[tuple[int, int]] = deque()
        """When so many were in use: the highest first, each lower one later."""

    def look(self, cluster: ReplayCluster, switches: Switchboard) -> None:
        """One minute: what waits is served first."""
        ready = [name for name in cluster.machines if switches.is_on(name) and switches.node(name).ready]
        booting = [name for name in cluster.machines if switches.is_booting(name)]
        asleep = [name for name in cluster.machines if not switches.is_on(name)]
        waiting = [pod for uid in cluster.pods.unbound if (pod := cluster.pods.get(uid))]
        coming = _placed(waiting, [switches.node(name) for name in booting]) if waiting else {}
        more = [pod for pod in waiting if pod.uid not in coming]
        woken = sorted(set(_placed(more, [switches.node(name) for name in asleep]).values()) if more else ())
        empty = [name for name in ready if not cluster.pods.by_node[name]]
        wanted = self._peak(cluster.now, len(ready) - len(empty) + len({*coming.values(), *woken})) + self._spares
        on = len(ready) + len(booting) + len(woken)
        # The scheduler takes the first by name, so the last are idle longest.
        for name in empty[::-1][: max(0, on - wanted)]:
            switches.off(name)
        rest = [name for name in asleep if name not in woken]
        for name in [*woken, *rest[: max(0, wanted - on)]]:
            switches.on(name)

    def _peak(self, now: int, used: int) -> int:
        while self._past and self._past[-1][1] <= used:
            self._past.pop()
        self._past.append((now, used))
        while self._past[0][0] <= now - self._window_ms:
            self._past.popleft()
        return self._past[0][1]


def _placed(pods: list[Pod], nodes: list[Node]) -> dict[str, str]:
    """Where the scheduler would put pods, the oldest first, if these nodes were ready and empty."""
    if not nodes:
        return {}  # a placer without any nodes has room for all
    placer = Placer([turned(node, ready=True, at=None) for node in nodes], {pod.shape for pod in pods})
    for pod in sorted(pods, key=lambda pod: (pod.created, pod.namespace, pod.name)):
        placer.add(pod.uid, pod.shape)
    return dict(placer.place())


def play(case: Case, pools: Mapping[Ref, AnyResource], rival: Rival) -> tuple[ReplayLog, Switchboard]:
    """What becomes of a case's work under a rival."""
    events: list[tuple[int, int, Callable[[], None]]] = []
    number = count()

    def later(at: int, do: Callable[[], None]) -> None:
        heapq.heappush(events, (at, next(number), do))

    boards: list[Switchboard] = []

    def board(cluster: ReplayCluster) -> Switchboard:
        boards.append(Switchboard(cluster))
        return boards[-1]

    cluster = ReplayCluster(case, pools, later, [board])
    switches = boards[0]
    for work in case.works:
        if work.began is not None:
            cluster.resume(work)
        else:
            later(work.arrives, partial(cluster.arrive, work))
    look_at = case.begin + rival.every
    while (at := min(events[0][0] if events else NEVER, look_at)) < case.end:
        cluster.now = max(cluster.now, at)
        while events and events[0][0] <= cluster.now:
            heapq.heappop(events)[2]()
        cluster.place()
        if look_at <= cluster.now:
            look_at += rival.every
            rival.look(cluster, switches)
            cluster.place()
    cluster.now = case.end
    return cluster.log, switches


def seed_of(pools: Mapping[Ref, AnyResource]) -> Seed:
    """The seed, told of the machines of these pools."""
    return Seed({machine.name: machine.gpu_count for _, machine in hardware.machines(pools.values())})
