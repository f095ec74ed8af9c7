"""One pool in a tiny API server, one cloud, and operator processes that decide on views of their own: all of it moves only by events.

The API server knows one Spotpool: its resource version, status writes that conflict, finalizers, deletion. Effects do what those of
adapters/kube/effects_clouds.py do: they read the pool as it stands, and the machine's tags, just before the call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct, structs

from bench.pools.processes import CLUSTER, KIND, REF, REGION, Process, Violation, Watch
from headroom.api import kinds
from headroom.api.kinds import KINDS, AnyResource
from headroom.api.marks import CLUSTER_TAG, CORDONED_BY, OWNER_TAG, POOL_FINALIZER, SLOT_TAG
from headroom.api.resources import Status
from headroom.model import actions, times
from headroom.model.decisions import status_wire
from headroom.model.errors import HeadroomError
from headroom.model.facts import Node, Pod, Shape
from headroom.model.tables import NodeTable, PodTable
from headroom.sim.cloud import Cloud, RequestedLaunch, SimMachine, Verb, Wrong

TYPE: Final = "GN7"
ZONES: Final = ("a", "b", "c")
BEGIN: Final = times.moment("2026-11-02T08:00:00Z") or 0
GPU: Final = "nvidia.com/gpu"
WHOLE: Final = 1_000_000
BY: Final = "by"
"""A tag of machines that somebody else launched."""
TOLERATES: Final = '[{"key":"headroom.dev/spotpool","operator":"Exists"}]'


class Sent(Struct):
    """A launch on its way to the cloud, of which nobody will hear."""

    arrives: int
    order: RequestedLaunch


class Stage:
    """All there is."""

    def __init__(self, spec: dict[str, Any], skews: tuple[int, ...] = (0,), *, wire: bool = False) -> None:
        """With `wire` each status goes over the wire and back."""
        self.now, self.stopped, self.over_wire = BEGIN, False, wire
        self.cloud = Cloud(lambda: self.now, REGION)
        self.cloud.wrong = self._wrong
        self.cloud.lag = self._lag
        self.lags: deque[int] = deque()
        self.wrongs: dict[Verb, Wrong] = {}
        self.nodes, self.pods = NodeTable(), PodTable()
        self.sent: list[Sent] = []
        self.spec = spec
        self.version, self.births = 1, 0
        self.pool: AnyResource | None = None
        self.forced: set[str] = set()
        """Uids of pools whose finalizer was taken away by force: what they leave behind is nobody's fault."""
        self.watch = Watch()
        self.create()
        self.processes = [Process(self, skew) for skew in skews]

    def _wrong(self, verb: Verb) -> Wrong:
        return self.wrongs.get(verb, "")

    def _lag(self) -> int:
        return self.lags.popleft() if self.lags else 0

    # --- the API server -------------------------------------------------------------------------------------------------------

    def create(self) -> None:
        """Somebody makes the pool, if there is none."""
        if self.pool is None:
            self.births += 1
            self.version += 1
            self.pool = AnyResource(
                kind=KIND,
                namespace=REF.namespace,
                name=REF.name,
                uid=f"uid-{self.births}",
                resource_version=str(self.version),
                created=self.now,
                spec=kinds.spec_of(KIND, self.spec),
                status=KINDS[KIND].status(),
            )

    def change(self, **fields: Any) -> None:
        """The pool is written."""
        assert self.pool is not None
        self.version += 1
        self.pool = structs.replace(self.pool, resource_version=str(self.version), **fields)

    def edit(self, fields: dict[str, Any]) -> None:
        """Somebody edits the spec; None takes a field away."""
        self.spec = {name: value for name, value in (self.spec | fields).items() if value is not None}
        self.spec["minimum"] = min(self.spec["minimum"], self.spec["maximum"])
        if self.pool is not None:
            self.change(spec=kinds.spec_of(KIND, self.spec), generation=self.pool.generation + 1)

    def delete(self) -> None:
        """Somebody deletes the pool."""
        if self.pool is not None and not self.pool.deleting:
            if self.pool.finalizers:
                self.change(deleting=True)
            else:
                self.pool = None

    def force(self) -> None:
        """Somebody takes the finalizer of a pool that is being deleted away."""
        if self.pool is not None and self.pool.deleting:
            self.forced.add(self.pool.uid)
            self.pool = None

    def write_status(self, basis: AnyResource, status: Status) -> bool:
        """Write a status on top of what it was decided on; False if that is no longer there."""
        live = self.pool
        if live is None or (live.uid, live.resource_version) != (basis.uid, basis.resource_version):
            return False
        if self.over_wire:
            status = kinds.status_of(KIND, status_wire(status))
        before = live
        self.change(status=status)
        assert self.pool is not None
        self.watch.wrote(before, self.pool)
        return True

    # --- time -----------------------------------------------------------------------------------------------------------------

    def pass_time(self, ms: int) -> None:
        """Let time pass; what is on its way arrives."""
        end = self.now + ms
        for each in sorted((one for one in self.sent if one.arrives <= end), key=lambda one: one.arrives):
            self.now = max(self.now, each.arrives)
            self.sent.remove(each)
            self._arrive(each.order)
        self.now = end
        self.watch.stands()

    def _arrive(self, order: RequestedLaunch) -> None:
        try:
            self.launch(order)
        except Exception as refused:  # nobody hears of it
            if isinstance(refused, Violation):
                raise

    def launch(self, order: RequestedLaunch) -> None:
        """A launch reaches the cloud."""
        known = len(self.cloud.machines)
        self.cloud.launch(order)
        self.noted(known)

    def noted(self, known: int) -> None:
        """Tell of machines beyond the first so many."""
        for made in list(self.cloud.machines.values())[known:]:
            self.watch.made(made)

    # --- effects --------------------------------------------------------------------------------------------------------------

    def act(self, process: Process, wrong: str) -> None:
        """One process does the next thing that it has decided on."""
        if not (process.alive and process.work):
            return
        if wrong == "CrashBefore":
            process.alive = False
            return
        item = process.work.popleft()
        try:
            if isinstance(item, Status):
                self._written(process, item, wrong)
            else:
                self._done(process, item, wrong)
        except HeadroomError:
            pass
        if wrong == "CrashAfter":
            process.alive = False
        self.watch.stands()

    def _written(self, process: Process, status: Status, wrong: str) -> None:
        basis = process.basis
        assert basis is not None
        if wrong == "Unreached" or not self.write_status(basis, status) or wrong == "Lost":
            process.work.clear()  # an action rests on what the status remembers of it
            return
        process.view = self.pool  # the answer to a write is known at once

    def _done(self, process: Process, action: actions.Action, wrong: str) -> None:
        match action:
            case actions.LaunchInstance():
                self._launch(process, action, wrong)
            case actions.TerminateInstance():
                self._terminate(process, action, wrong)
            case actions.AddFinalizer() if wrong != "Unreached":
                live = self._live(process)
                if live is not None and not live.deleting and POOL_FINALIZER not in live.finalizers:
                    self.change(finalizers=(*live.finalizers, POOL_FINALIZER))
            case actions.RemoveFinalizer() if wrong != "Unreached":
                live = self._live(process)
                if live is not None and live.deleting and POOL_FINALIZER in live.finalizers and _may_go(live):
                    self.watch.released(live)
                    self.pool = None
            case actions.DrainNode() | actions.CordonNode() if wrong != "Unreached":
                self.watch.drains(action.node)
                self._cordon(action.node, drain=isinstance(action, actions.DrainNode))
            case actions.UncordonNode() if (node := self.nodes.get(action.node)) is not None:
                self.nodes.put(structs.replace(node, unschedulable=False, annotations=()))
            case _:
                pass

    def _cordon(self, name: str, *, drain: bool) -> None:
        node = self.nodes.get(name)
        if node is None:
            return
        by = ((CORDONED_BY, str(REF)),)
        self.nodes.put(structs.replace(node, unschedulable=True, annotations=by))
        if drain:
            for pod in list(self.pods):
                if pod.node == name and not pod.labels:
                    self.pods.remove(pod.uid)

    def _live(self, process: Process) -> AnyResource | None:
        assert process.basis is not None
        return self.pool if self.pool is not None and self.pool.uid == process.basis.uid else None

    def _launch(self, process: Process, action: actions.LaunchInstance, wrong: str) -> None:
        live = self._live(process)
        if live is None or live.deleting or live.spec.paused or POOL_FINALIZER not in live.finalizers:
            return
        if action.zone not in live.spec.all_zones:
            return  # the adapter asks for nothing that the pool does not list any more
        meant = (action.slot, action.token, action.instance_type, action.zone)
        if meant not in (
            (it.slot, it.token, it.instance_type, it.zone) for it in live.status.slots if it.state == "Launching"
        ):
            return
        if wrong.startswith("Late"):
            self.sent.append(Sent(self.now + int(wrong[4:]) * times.SECOND, process.clouds.order(live, action)))
            process.clouds.unheard(live, action, process.now())
            return
        known = len(self.cloud.machines)
        try:
            self._calling("launch", wrong, lambda: process.clouds.launch(live, action))
        finally:
            self.noted(known)

    def _terminate(self, process: Process, action: actions.TerminateInstance, wrong: str) -> None:
        live = self._live(process)
        if live is None or live.spec.paused:
            return
        slots = {it.instance_id: it.state for it in live.status.slots}
        if slots.get(action.instance, "Ending") != "Ending":
            return
        claim = live.status.claim_on(action.instance)
        if action.instance in self.cloud.machines and wrong != "Unreached":
            self.watch.ends(self.cloud.machines[action.instance])
        self._calling("terminate", wrong, lambda: process.clouds.terminate(live, action.instance, claim))

    def _calling(self, verb: Verb, wrong: str, call: Callable[[], None]) -> None:
        self.wrongs = {verb: wrong} if wrong in ("Lost", "Unreached", "Throttled", "Denied") else {}  # type: ignore[dict-item]
        try:
            call()
        finally:
            self.wrongs = {}

    # --- the cloud ------------------------------------------------------------------------------------------------------------

    def ours(self, uid: str | None = None) -> list[SimMachine]:
        """The machines of a pool that are alive; of the pool that there is, unless another is named."""
        owner = uid or (self.pool.uid if self.pool is not None else f"uid-{self.births}")
        return self.cloud.alive({CLUSTER_TAG: CLUSTER, OWNER_TAG: owner})

    def left_by(self, uid: str) -> list[SimMachine]:
        """Machines that were launched for a pool and are alive."""
        return [machine for machine in self.ours(uid) if BY not in machine.order.tags]

    def foreign(self, tags: dict[str, str]) -> None:
        """Somebody else launches a machine."""
        self.cloud.add(RequestedLaunch(token="", instance_type=TYPE, zone="a", tags={BY: "others", **tags}), "RUNNING")

    def join(self, machine: SimMachine, ready: bool) -> None:
        """The kubelet of a machine reports."""
        self.nodes.put(
            Node(
                name=f"node-{machine.id}",
                uid=machine.id,
                ready=ready,
                ready_since=self.now if ready else None,
                unready_since=None if ready else self.now,
                created=self.now,
                provider_id=f"qcloud:///{machine.order.zone}/{machine.id}",
                allocatable=((GPU, WHOLE),),
            )
        )

    def busy(self, machine: SimMachine, stubborn: bool) -> None:
        """A pod runs on a machine; a stubborn one is kept there by its disruption budget."""
        name = f"node-{machine.id}"
        if self.nodes.get(name) is not None:
            self.pods.put(
                Pod(
                    uid=f"pod-{machine.id}",
                    namespace=REF.namespace,
                    name=f"pod-{machine.id}",
                    shape=Shape(requests=((GPU, WHOLE),)),
                    labels=(("stubborn", "true"),) if stubborn else (),
                    node=name,
                    phase="Running",
                    created=self.now,
                    started=self.now,
                )
            )

    def pending(self, count: int) -> None:
        """Pods that nobody can place come to the pool's namespace."""
        for number in range(count):
            name = f"waits-{self.now}-{number}"
            self.pods.put(
                Pod(
                    uid=name,
                    namespace=REF.namespace,
                    name=name,
                    shape=Shape(requests=((GPU, WHOLE),), tolerations=TOLERATES),
                    created=self.now,
                    unschedulable_since=self.now,
                    unschedulable_message=f"0/1 nodes are available: 1 Insufficient {GPU}.",
                )
            )

    def schedule(self) -> None:
        """kube-scheduler places what is pending on nodes that are ready and have no pod yet."""
        taken = {pod.node for pod in self.pods}
        free = [node for node in self.nodes if node.ready and not node.unschedulable and node.name not in taken]
        waiting = [pod for pod in self.pods if not pod.node]
        for pod, node in zip(waiting, free, strict=False):
            self.pods.put(structs.replace(pod, node=node.name, phase="Running", started=self.now))

    def done(self) -> None:
        """All pods have done their work."""
        for pod in list(self.pods):
            self.pods.remove(pod.uid)

    def clone(self) -> None:
        """Somebody launches one more like ours by hand, tags and all, for a pool that has our finalizer."""
        if self.pool is not None and self.pool.finalizers:
            alive = self.ours()
            tags = alive[0].order.tags if alive else tags_of(0, self.pool.uid)
            self.cloud.add(RequestedLaunch(token="", instance_type=TYPE, zone="a", tags={**tags, BY: "hand"}))


def _may_go(pool: AnyResource) -> bool:
    """Whether a pool may lose its finalizer."""
    if pool.spec.deletion_policy == "Retain":
        return all(it.state not in ("Launching", "Cancelling") for it in pool.status.slots)
    return not pool.status.slots


def tags_of(slot: int, uid: str) -> dict[str, str]:
    """The tags of a machine of ours."""
    return {CLUSTER_TAG: CLUSTER, OWNER_TAG: uid, SLOT_TAG: str(slot)}
