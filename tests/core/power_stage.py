"""A small stage on which machines are switched: decisions are carried out at once, and time passes only when a test says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import structs

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.api.power_status import MachineStatus, PowerPoolStatus
from headroom.core import CAPACITY as PLAN
from headroom.core import capacity_round, power
from headroom.core.capacity import CapacityRound, PodAnswer
from headroom.model import actions, times
from headroom.model.actions import Action, EmitEvent
from headroom.model.changes import EVERYTHING
from headroom.model.decisions import Decision
from headroom.model.facts import Machine, Node, Owner, Pod, Shape, SwitchCall
from headroom.model.tables import NodeTable, PodTable
from headroom.model.world import World, by_ref, ref_of
from tests.builders import NOON, a_node, a_pod, a_resource

SECOND, MINUTE, HOUR = times.SECOND, times.MINUTE, times.HOUR
GPU = "nvidia.com/gpu"
LONG_AGO = NOON - 5 * HOUR
NO_ROOM = "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def a_machine(name: str, gpus: int = 8, **fields: Any) -> dict[str, Any]:
    """A machine as a pool's spec has it."""
    ends = {"scaleUpEndpoint": f"http://power-api/{name}/up", "scaleDownEndpoint": f"http://power-api/{name}/down"}
    return {"name": name, "gpuCount": gpus} | ends | fields


def a_pool(name: str = "one", machines: Mapping[str, int] | None = None, **spec: Any) -> AnyResource:
    """A pool of machines, w1 with 4 and w2 with 8 GPUs unless others are given; policy fields are given by their names."""
    given = {"w1": 4, "w2": 8} if machines is None else machines
    policy = {key: spec.pop(key) for key in list(spec) if key in POLICY}
    listed = spec.pop("listed", None) or [a_machine(each, gpus) for each, gpus in given.items()]
    pool = a_resource("PowerPool", name, machines=listed, policy=policy, **spec)
    assert not pool.problems, pool.problems
    return pool


POLICY = {
    "idleSeconds",
    "bootTimeoutSeconds",
    "minOn",
    "minOnSeconds",
    "minOffSeconds",
    "togglesPerHour",
    "maxConcurrentWakes",
    "maxConcurrentSleeps",
    "protectedMachines",
    "keepOn",
    "prefer",
    "drain",
    "priorityFloor",
    "shareWithKarpenter",
    "wakeForExhaustedBudgets",
    "warmPercent",
}


def waiting(name: str, gpus: int = 1, *, since: int = NOON - 5 * SECOND, **fields: Any) -> Pod:
    """A pod for which kube-scheduler found no place."""
    base: dict[str, Any] = {"created": since - SECOND, "unschedulable_since": since, "unschedulable_message": NO_ROOM}
    return a_pod(name, gpus=gpus, **base | fields)


def running(name: str, node: str, gpus: int = 1, **fields: Any) -> Pod:
    """A pod that runs on a node."""
    return a_pod(
        name, gpus=gpus, **{"node": node, "phase": "Running", "started": NOON - HOUR, "created": NOON - HOUR} | fields
    )


def finished(name: str, node: str, ended: int, gpus: int = 1, **fields: Any) -> Pod:
    """A pod that is over and still in view."""
    return running(name, node, gpus, **{"phase": "Succeeded", "ended": ended, "ended_by": "ContainerFinish"} | fields)


def of_daemon_set(name: str, node: str) -> Pod:
    """A pod that runs on every node."""
    return running(name, node, 0, owner=Owner("DaemonSet", "agent", "uid-agent"))


def on(name: str, gpus: int = 8, since: int = LONG_AGO, **fields: Any) -> Node:
    """The node of a machine that is on."""
    return a_node(name, gpus=gpus, **{"ready_since": since, "labels": (("kubernetes.io/hostname", name),)} | fields)


def off(name: str, gpus: int = 8, since: int = LONG_AGO, **fields: Any) -> Node:
    """The node of a machine that is not."""
    return on(name, gpus, **{"ready": False, "ready_since": None, "unready_since": since} | fields)


def cordoned(node: Node, by: str = "PowerPool/one") -> Node:
    """A node that gets no new pods."""
    notes = ((marks.CORDONED_BY, by),) if by else ()
    return structs.replace(node, unschedulable=True, annotations=notes)


def remembered(pool: AnyResource, *machines: MachineStatus, **status: Any) -> AnyResource:
    """A pool with what is remembered of some machines."""
    return structs.replace(pool, status=structs.replace(pool.status, machines=machines, **status))


def was(name: str, state: str, since: int = NOON - MINUTE, **fields: Any) -> MachineStatus:
    """What is remembered of a machine; moments are given in milliseconds."""
    told = {
        key: times.text(value) if isinstance(value, int) and key not in ("failures", "busy") else value
        for key, value in fields.items()
    }
    if "toggles" in fields:
        told["toggles"] = tuple(times.text(each) for each in fields["toggles"])
    return MachineStatus(name=name, state=state, since=times.text(since), **told)  # type: ignore[arg-type]  # a test says which


def a_view(
    *pools: AnyResource, nodes: Iterable[Node] = (), pods: Iterable[Pod] = (), now: int = NOON, **more: Any
) -> World:
    """A world with these pools, nodes, pods and other facts."""
    pod_table, node_table = PodTable(), NodeTable()
    for pod in pods:
        pod_table.put(structs.replace(pod))
    for node in nodes:
        node_table.put(node)
    for key in ("machines", "calls"):
        more[key] = {getattr(each, "name", "") or each.machine: each for each in more.get(key, ())}
    return World(now=now, resources=by_ref(pools), pods=pod_table, nodes=node_table, **more)


def decided(world: World) -> dict[str, Decision]:
    """What is decided on each pool."""
    return {each.resource.name: each for each in PLAN.decide(world, EVERYTHING)}


def a_round(world: World) -> CapacityRound:
    """Who is pending, and which machine is for whom."""
    return capacity_round(world)


def explained(world: World, pod: Pod) -> PodAnswer | None:
    """What power says of a pod."""
    return power.explained(a_round(world), pod)


def effects(decision: Decision) -> list[Action]:
    """What is due, but for events."""
    return [each for each in decision.actions if not isinstance(each, EmitEvent)]


def told(decision: Decision) -> list[tuple[str, str]]:
    """Its events: reason and message."""
    return [(each.reason, each.message) for each in decision.actions if isinstance(each, EmitEvent)]


def status(decision: Decision) -> PowerPoolStatus:
    """The status of a pool."""
    assert isinstance(decision.status, PowerPoolStatus)
    return decision.status


def machine(decision: Decision, name: str) -> MachineStatus:
    """What is said of a machine."""
    return next(each for each in status(decision).machines if each.name == name)


def wakes(decision: Decision) -> list[str]:
    """The machines that are woken."""
    return [each.machine for each in decision.actions if isinstance(each, actions.WakeMachine)]


class Stage:
    """A world and what has been done to it."""

    def __init__(
        self, *pools: AnyResource, nodes: Iterable[Node] = (), pods: Iterable[Pod] = (), now: int = NOON, **more: Any
    ) -> None:
        self.now, self.more, self.plan = now, more, PLAN
        self.pools = {ref_of(each): each for each in pools}
        self.nodes = {node.name: node for node in nodes}
        self.pods = {pod.uid: pod for pod in pods}
        self.powers: dict[str, Machine] = {}
        self.calls: dict[str, SwitchCall] = {}
        self.boot_ms, self.shutdown_ms = 2 * MINUTE, 30 * SECOND
        self.dead: set[str] = set()
        """Machines that take every command and do nothing."""
        self.refusing: set[str] = set()
        """Machines whose switch answers no."""
        self.binds = True
        """kube-scheduler works."""
        self.never: set[str] = set()
        """Pods that it refuses wherever they would go."""
        self.only: dict[str, str] = {}
        """Pods that it places on one node and nowhere else."""
        self.done: list[tuple[int, Action]] = []
        self.decisions: dict[str, Decision] = {}
        self._later: list[tuple[int, str, str]] = []

    def world(self) -> World:
        """The world as it is."""
        return a_view(
            *self.pools.values(),
            nodes=self.nodes.values(),
            pods=self.pods.values(),
            now=self.now,
            machines=self.powers.values(),
            calls=self.calls.values(),
            **self.more,
        )

    def look(self) -> list[Action]:
        """Decide once, keep the statuses and carry out what is due."""
        world = self.world()
        due: list[Action] = []
        for decision in self.plan.decide(world, EVERYTHING):
            ref = decision.resource
            self.pools[ref] = structs.replace(self.pools[ref], status=decision.status)
            self.decisions[ref.name] = decision
            due += [(action) for action in decision.actions if not isinstance(action, EmitEvent)]
        due += list(self.plan.chores(world))
        for action in due:
            self.done.append((self.now, action))
            self._do(action)
        return due

    def pass_time(self, ms: int, *, every: int = SECOND) -> list[Action]:
        """Let time pass, looking again at every step; all that was done."""
        found: list[Action] = []
        until = self.now + ms
        while self.now < until:
            self.now = min(until, self.now + every)
            for at, name, what in [each for each in self._later if each[0] <= self.now]:
                self._later.remove((at, name, what))
                self._turn(name, ready=what == "up")
            self._bind()
            found += self.look()
        return found

    def _do(self, action: Action) -> None:
        match action:
            case actions.WakeMachine(machine=name):
                self._call(name, "Wake", "up", self.boot_ms)
            case actions.SleepMachine(machine=name):
                self._call(name, "Sleep", "down", self.shutdown_ms)
            case actions.CordonNode(node=name):
                self.nodes[name] = cordoned(self.nodes[name], f"PowerPool/{self._owner(name)}")
            case actions.UncordonNode(node=name):
                self.nodes[name] = structs.replace(self.nodes[name], unschedulable=False, annotations=())
            case actions.DrainNode(node=name):
                for uid in [uid for uid, pod in self.pods.items() if pod.node == name and pod.owner]:
                    del self.pods[uid]

    def _owner(self, machine: str) -> str:
        return next(ref.name for ref, each in self.pools.items() if machine in {it.name for it in each.spec.machines})

    def _call(self, name: str, command: Any, what: str, after: int) -> None:
        outcome: Any = "Failed" if name in self.refusing else "Accepted"
        self.calls[name] = SwitchCall(
            machine=name, command=command, at=self.now, outcome=outcome, message="503 from the switch"
        )
        if name not in self.dead and name not in self.refusing:
            self._later.append((self.now + after, name, what))

    def _turn(self, name: str, *, ready: bool) -> None:
        node = self.nodes.get(name) or on(name, self._gpus(name))
        since = {"ready_since": self.now if ready else None, "unready_since": None if ready else self.now}
        self.nodes[name] = structs.replace(node, ready=ready, **since)

    def _gpus(self, name: str) -> int:
        return next(int(it.gpu_count) for each in self.pools.values() for it in each.spec.machines if it.name == name)

    def _bind(self) -> None:
        """Give pods that wait a node, the first by name with room."""
        for uid, pod in sorted(self.pods.items()):
            if pod.node or not self.binds or pod.gates or uid in self.never:
                continue
            for name, node in sorted(self.nodes.items()):
                if (
                    self.only.get(uid, name) == name
                    and node.ready
                    and not node.unschedulable
                    and gpus_of(pod.shape) <= self._free(node)
                ):
                    self.pods[uid] = structs.replace(
                        pod, node=name, phase="Running", started=self.now, unschedulable_since=None
                    )
                    break
            else:
                if pod.unschedulable_since is None:
                    self.pods[uid] = structs.replace(pod, unschedulable_since=self.now, unschedulable_message=NO_ROOM)

    def _free(self, node: Node) -> int:
        used = sum(gpus_of(pod.shape) for pod in self.pods.values() if pod.node == node.name and pod.phase == "Running")
        return dict(node.allocatable).get(GPU, 0) - used

    def end(self, uid: str, *, gone: bool = False) -> None:
        """A pod ends; unless it is gone, it stays in view."""
        if gone:
            del self.pods[uid]
        else:
            self.pods[uid] = structs.replace(
                self.pods[uid], phase="Succeeded", ended=self.now, ended_by="ContainerFinish"
            )

    def state(self, name: str) -> str:
        """What a machine is doing by its pool's status."""
        known = [it for each in self.pools.values() for it in each.status.machines if it.name == name]
        return str(known[0].state)

    def commands(self) -> list[tuple[int, str]]:
        """Every command that was given, with its moment after noon in seconds."""
        words = {actions.WakeMachine: "wake", actions.SleepMachine: "sleep"}
        return [
            ((at - NOON) // SECOND, f"{words[type(each)]} {each.machine}")
            for at, each in self.done
            if isinstance(each, actions.OnMachine)
        ]


def gpus_of(shape: Shape) -> int:
    """GPUs that a pod asks for, in millionths."""
    return dict(shape.requests).get(GPU, 0)
