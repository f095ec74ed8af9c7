"""Switches machines in a replay as their pools decide: they take time to boot, and none is switched off under a pod."""

from __future__ import annotations

from functools import partial

from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.api.marks import CORDONED_BY
from headroom.core import usage
from headroom.model import actions
from headroom.model.facts import Machine, Node, Pod, SwitchCall
from headroom.model.gangs import keeps_machine_on
from headroom.model.handlers import carries_out
from headroom.model.world import ref_of
from headroom.sim.whatif.cluster import BRINGERS, ReplayCluster
from headroom.sim.whatif.lives import EVICTED, Shift
from headroom.sim.whatif.metal import stage, turned


class Switching:
    """What plans decide about machines and their nodes, done to a cluster."""

    def __init__(self, cluster: ReplayCluster) -> None:
        self._cluster = cluster
        self._machines: dict[str, Machine] = {}
        self._calls: dict[str, SwitchCall] = {}
        cluster.facts |= {"machines": self._machines, "calls": self._calls}
        self._coming: dict[str, Node] = {}
        """Nodes that nobody has seen yet."""
        self._shifts: dict[str, Shift] = {}
        self._turn: dict[str, int] = {}
        """How often each machine was switched over: what an earlier turn set off is void."""

    def stage(self, nodes: dict[str, Node]) -> list[Node]:
        """The machines as they are at the begin, and their nodes."""
        cluster = self._cluster
        to_come, machines = stage(cluster.case, cluster.resources.values(), nodes)
        self._machines |= machines
        self._coming = {node.name: node for node in to_come}
        self._shifts = {name: self._begin(name, cluster.now) for name, each in machines.items() if each.power == "On"}
        return to_come

    def has(self, node: str) -> bool:
        """Whether a node is that of a machine."""
        return node in self._machines

    def _begin(self, name: str, at: int) -> Shift:
        shift = Shift(machine=name, begin=at)
        self._cluster.log.shifts.append(shift)
        return shift

    # --- machines ---------------------------------------------------------------------------------------------------------

    @carries_out(actions.WakeMachine)
    def wake(self, action: actions.WakeMachine, _by: AnyResource | None) -> bool:
        """Switch a machine on; its node is ready once it has booted."""
        cluster, name = self._cluster, action.machine
        if name not in self._machines:
            return False
        self._called(name, actions.WakeMachine)
        if self._machines[name].power == "On":
            return False
        self._machines[name] = Machine(name=name, power="On", since=cluster.now)
        self._shifts[name] = self._begin(name, cluster.now)
        cluster.later(cluster.now + cluster.case.boot_ms, partial(self._booted, name, self._next(name)))
        return True

    def _booted(self, name: str, turn: int) -> None:
        node = self._cluster.node(name) or self._coming.pop(name, None)
        if node is not None and turn == self._turn[name]:
            self._show(turned(node, ready=True, at=self._cluster.now))

    @carries_out(actions.SleepMachine)
    def sleep(self, action: actions.SleepMachine, by: AnyResource | None) -> bool:
        """Switch a machine off, unless somebody is there after all or its node is not kept free."""
        cluster, name = self._cluster, action.machine
        if name not in self._machines:
            return False
        node = cluster.node(name)
        if node is not None and node.ready and (self._by(node) != _author(by) or self._pods(name, _gpus(by))):
            self._called(name, actions.SleepMachine, "its node is not empty and kept so")
            return False
        self._called(name, actions.SleepMachine)
        if self._machines[name].power == "Off":
            return False
        cluster.later(cluster.now + cluster.case.shutdown_ms, partial(self._shut_down, name, self._next(name)))
        return True

    def _next(self, name: str) -> int:
        self._turn[name] = self._turn.get(name, 0) + 1
        return self._turn[name]

    def _shut_down(self, name: str, turn: int) -> None:
        cluster, node = self._cluster, self._cluster.node(name)
        if turn != self._turn[name]:
            return
        self._machines[name] = Machine(name=name, power="Off", since=cluster.now)
        self._shifts.pop(name).end = cluster.now
        if node is not None:
            self._show(turned(node, ready=False, at=cluster.now))

    def _called(self, name: str, command: type[actions.OnMachine], failure: str = "") -> None:
        self._calls[name] = SwitchCall(
            machine=name,
            command="Wake" if command is actions.WakeMachine else "Sleep",
            at=self._cluster.now,
            outcome="Failed" if failure else "Accepted",
            message=failure,
        )
        self._cluster.urgent |= BRINGERS

    # --- nodes ------------------------------------------------------------------------------------------------------------

    @carries_out(actions.CordonNode)
    def cordon(self, action: actions.CordonNode, by: AnyResource | None) -> bool:
        """Let no new pod onto a node."""
        node = self._cluster.node(action.node)
        if node is None or node.unschedulable:
            return False
        marked = dict(node.annotations) | {CORDONED_BY: _author(by)}
        return self._show(structs.replace(node, unschedulable=True, annotations=tuple(sorted(marked.items()))))

    @carries_out(actions.UncordonNode)
    def uncordon(self, action: actions.UncordonNode, _by: AnyResource | None) -> bool:
        """Let pods onto a node again that a pool had cordoned."""
        node = self._cluster.node(action.node)
        if node is None or not self._by(node):
            return False
        kept = tuple(pair for pair in node.annotations if pair[0] != CORDONED_BY)
        return self._show(structs.replace(node, unschedulable=False, annotations=kept))

    @carries_out(actions.DrainNode)
    def drain(self, action: actions.DrainNode, by: AnyResource | None) -> bool:
        """Evict the pods of a cordoned node, unless one of them has GPUs."""
        cluster, node = self._cluster, self._cluster.node(action.node)
        if node is None or self._by(node) != _author(by):
            return False
        going = [pod for pod in self._pods(action.node, _gpus(by)) if pod.deleting is None]
        if not going or any(usage.gpus_in(pod.shape.requests) for pod in going):
            return False
        for pod in going:
            work = cluster.living[pod.uid].work
            cluster.stop(pod.uid, EVICTED)
            cluster.make(work)
        cluster.urgent |= BRINGERS
        return True

    def _pods(self, node: str, gpus: str) -> list[Pod]:
        found = (self._cluster.pods.get(uid) for uid in sorted(self._cluster.pods.by_node[node]))
        return [pod for pod in found if pod and keeps_machine_on(pod, gpus)]

    def _show(self, node: Node) -> bool:
        self._cluster.show(node)
        return True

    def _by(self, node: Node) -> str:
        return dict(node.annotations).get(CORDONED_BY, "")


def _gpus(by: AnyResource | None) -> str:
    return by.spec.gpu_resource_name if by is not None else ""


def _author(by: AnyResource | None) -> str:
    return "" if by is None else str(ref_of(by))
