"""A small Karpenter beside a simulated cluster: of the heaviest NodePool that can, the cheapest machine for each pending pod.

It does what plans rely on, and tests/contracts compares it with the real one: weights, limits, machines that are sold out, nodes that are
replaced when the template of their NodePool changes, and nodes that go when they are empty. What it does not know: nodes that are
consolidated while pods run, disruption budgets, expiry, and startup taints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, NamedTuple

from msgspec import Struct

from headroom.adapters.kube import karpenter, paths, raw
from headroom.api import durations
from headroom.core import demand
from headroom.model import facts, times
from headroom.model.node_pool_specs import template_digest
from headroom.sim import seen as as_fact
from headroom.sim.answers import Body
from headroom.sim.apiserver import ApiServer
from headroom.sim.apistore import Change
from headroom.sim.catalog import NODE, POD
from headroom.sim.faults import Faults
from headroom.sim.karpenter_machines import TYPE, ZONE, InstanceOffering, in_order, node_of, promised, quantities
from headroom.sim.kubelet import PodLifecycle
from headroom.sim.script import Scenario

POOLS: Final = "NodePool"
LOOK_SECONDS: Final = 5.0
BOOT_SECONDS: Final = 60.0
SOLD_OUT_MS: Final = 3 * times.MINUTE
"""So long a machine that was sold out is not tried again."""
NOMINATED_MS: Final = 20 * times.SECOND
_ENDED: Final = ("Succeeded", "Failed")
Why = Literal["Drifted", "Empty", "Deleted"]


class Ended(NamedTuple):
    """A node that Karpenter ended."""

    at: int
    node: str
    pool: str
    why: Why
    pods: tuple[str, ...]
    """Those that still ran there."""


class _Pool(NamedTuple):
    """A NodePool as it was read last."""

    version: str
    fact: facts.NodePool
    template: str


class _Made(Struct, kw_only=True):
    """A claim that was launched, and what is known of it beside what the server has."""

    name: str
    pool: str
    machine: InstanceOffering
    template: str
    """The digest of the template that it was made from."""
    at: int
    """When it was launched."""
    registered_at: int | None = None
    empty_since: int | None = None


def _nothing() -> None:
    """Nobody listens."""


class Karpenter:
    """Makes and ends nodes, for as long as there is a NodePool or a node of one."""

    def __init__(self, server: ApiServer, cluster: PodLifecycle) -> None:
        self._server, self._cluster, self._clock = server, cluster, server.clock
        self._made: dict[str, _Made] = {}
        self._pools: dict[str, _Pool] = {}
        self._pods: dict[str, facts.Pod] | None = None
        """By uid; None while nobody asks."""
        self._for: dict[str, str] = {}
        """Which claim is on its way for a pod, by uid."""
        self._unavailable: dict[tuple[str, str, str], int] = {}
        """Until when machines are not tried that were sold out."""
        self._serial = self._turn = 0
        self._looking = False
        self._unsubscribe: Callable[[], None] = _nothing
        self.ended: list[Ended] = []
        self.launched: list[tuple[int, str, InstanceOffering]] = []
        """When, for which NodePool, and what."""
        self.sold_out: list[tuple[int, str, InstanceOffering]] = []
        """The same of launches that failed."""
        server.beside[Karpenter] = self

    @classmethod
    def of(cls, server: ApiServer, cluster: PodLifecycle, _faults: Faults, _scenario: Scenario) -> Karpenter:
        """That of a scenario."""
        return cls(server, cluster)

    def begin(self) -> None:
        """Look after pods from the first NodePool on."""
        self._unsubscribe = self._server.store.subscribe(self._notice)
        if self._server.objects(POOLS):
            self._later()

    def stop(self) -> None:
        """Let nothing more come of what was set off."""
        self._unsubscribe()
        self._unsubscribe = _nothing
        self._turn += 1

    def _notice(self, change: Change) -> None:
        if change.type.kind == POOLS:
            self._later()
        if change.type == POD and self._pods is not None:
            if change.after is not None:
                self._pods[change.after.uid] = as_fact.pod(change.after)
            elif change.before is not None:
                self._pods.pop(change.before.uid, None)

    def _later(self) -> None:
        if not self._looking:
            self._looking, turn = True, self._turn
            self._clock.call_later(LOOK_SECONDS, lambda: self._look() if turn == self._turn else None)

    def _look(self) -> None:
        self._looking = False
        if self._pods is None:
            self._pods = {record.uid: as_fact.pod(record) for record in self._server.store.all(POD)}
        bodies = {body["metadata"]["name"]: body for body in self._server.objects(POOLS)}
        pools = [self._known(name, body).fact for name, body in bodies.items()]
        for made in list(self._made.values()):
            self._age(made, bodies.get(made.pool))
        self._serve(bodies, sorted(pools, key=lambda each: (-each.weight, each.name)))
        for name, body in bodies.items():
            self._count(name, body)
        if bodies or self._made:
            self._later()
        else:
            self._pods = None

    def _known(self, name: str, body: Body) -> _Pool:
        """A NodePool as it stands; one that did not change is not read again."""
        version, known = str(body["metadata"]["resourceVersion"]), self._pools.get(name)
        if known is None or known.version != version:
            fact = karpenter.node_pool_of(raw.fitted(body, karpenter.NodePoolWire))
            known = self._pools[name] = _Pool(version, fact, template_digest(body.get("spec") or {}))
        return known

    # --- nodes that are there ---------------------------------------------------------------------------------------------

    def _age(self, made: _Made, pool: Body | None) -> None:
        """Let a machine join, or end it."""
        now = self._clock.now()
        if pool is None:
            self._end(made, "Deleted")
        elif made.registered_at is None:
            if now >= made.at + int(BOOT_SECONDS * times.SECOND):
                self._register(made, pool)
        elif made.template != self._known(made.pool, pool).template:
            self._end(made, "Drifted")
        elif self._is_idle(made, pool, now):
            self._end(made, "Empty")

    def _register(self, made: _Made, pool: Body) -> None:
        made.registered_at = self._clock.now()
        self._server.put(node_of(made.name, made.pool, made.machine, pool))
        self._cluster.light(made.name)
        self._condition(made.name, ("Launched", "Registered", "Initialized"), made.name)

    def _is_idle(self, made: _Made, pool: Body, now: int) -> bool:
        disruption = (pool.get("spec") or {}).get("disruption") or {}
        after = str(disruption.get("consolidateAfter", "0s"))
        if self._pods_on(made.name) or after == "Never":
            made.empty_since = None
            return False
        if made.empty_since is None:
            made.empty_since = now
        return now >= made.empty_since + (durations.milliseconds(after) or 0)

    def _pods_on(self, node: str) -> tuple[str, ...]:
        pods = (self._pods or {}).values()
        return tuple(sorted(each.key for each in pods if each.node == node and each.phase not in _ENDED))

    def _end(self, made: _Made, why: Why) -> None:
        self.ended.append(Ended(self._clock.now(), made.name, made.pool, why, self._pods_on(made.name)))
        del self._made[made.name]
        self._for = {pod: claim for pod, claim in self._for.items() if claim != made.name}
        self._cluster.darken(made.name, at_once=True)
        if self._server.object("Node", "", made.name) is not None:
            self._server.do("DELETE", NODE.url("", made.name))
        if self._server.object("NodeClaim", "", made.name) is not None:
            self._condition(made.name, ("DisruptionReason",), made.name)
            self._server.do("DELETE", paths.karpenter("nodeclaims", made.name))

    def _condition(self, claim: str, types: tuple[str, ...], node: str = "") -> None:
        """What is true of a claim from now on."""
        body = self._server.object("NodeClaim", "", claim)
        status = (body or {}).get("status") or {}
        now = times.text(self._clock.now())
        new = [
            {"type": each, "status": "True", "reason": each, "message": "", "lastTransitionTime": now} for each in types
        ]
        others = [each for each in status.get("conditions") or [] if each["type"] not in types]
        said: Body = {"conditions": [*others, *new]} | ({"nodeName": node} if node else {})
        self._server.do("PATCH", _status_of("nodeclaims", claim), {"status": said})

    def _count(self, name: str, body: Body) -> None:
        """What a NodePool has, as its status tells it."""
        told: dict[str, str | None] = dict(quantities(self._used(name)))
        before = ((body.get("status") or {}).get("resources")) or {}
        if told != before:
            told |= dict.fromkeys(before.keys() - told.keys())
            self._server.do("PATCH", _status_of("nodepools", name), {"status": {"resources": told}})

    # --- pods that are pending --------------------------------------------------------------------------------------------

    def _serve(self, bodies: dict[str, Body], pools: list[facts.NodePool]) -> None:
        now = self._clock.now()
        self._unavailable = {key: until for key, until in self._unavailable.items() if until > now}
        for pod in self._pending():
            if self._is_coming(self._made.get(self._for.get(pod.uid, "")), now):
                continue
            claim = self._coming_for(pod) or self._launched_for(pod, bodies, pools)
            if claim:
                self._for[pod.uid] = claim

    def _is_coming(self, made: _Made | None, now: int) -> bool:
        """Whether a machine may still serve the pods that it was launched for: kube-scheduler takes a moment to see it."""
        return made is not None and (made.registered_at is None or now < made.registered_at + NOMINATED_MS)

    def _pending(self) -> Iterator[facts.Pod]:
        for pod in sorted((self._pods or {}).values(), key=lambda each: (each.created, each.key)):
            if not pod.node and pod.phase == "Pending" and pod.unschedulable_since is not None and pod.deleting is None:
                yield pod

    def _coming_for(self, pod: facts.Pod) -> str:
        """A machine on its way that has room for one more pod."""
        for made in self._made.values():
            body = self._server.object(POOLS, "", made.pool)
            if made.registered_at is not None or body is None:
                continue
            others = [each for each in self._pending() if self._for.get(each.uid) == made.name]
            room = dict(made.machine.amounts)
            for each in others:
                for name, amount in each.shape.requests:
                    room[name] = room.get(name, 0) - amount
            if self._takes(pod, made.pool, made.machine, body, room):
                return made.name
        return ""

    def _takes(self, pod: facts.Pod, pool: str, machine: InstanceOffering, body: Body, room: dict[str, int]) -> bool:
        wishes = demand.constraints_of(pod.shape)
        node = promised(pool, machine, body)
        if wishes.problem or demand.unmatched(wishes, node.labels, "") or demand.untolerated(wishes, node.taints):
            return False
        return all(amount <= room.get(name, 0) for name, amount in pod.shape.requests)

    def _launched_for(self, pod: facts.Pod, bodies: dict[str, Body], pools: list[facts.NodePool]) -> str:
        """The claim of the heaviest NodePool that can serve a pod; one that met no capacity leaves it to the next look."""
        for pool in pools:
            body = bodies[pool.name]
            if pool.deleting or not self._has_class(body):
                continue
            left = self._left(pool)
            for machine in in_order(self._server, pool):
                key = machine.kind, machine.zone, machine.capacity_type
                fits = all(amount <= left[name] for name, amount in machine.amounts.items() if name in left)
                if (
                    key in self._unavailable
                    or not fits
                    or not self._takes(pod, pool.name, machine, body, machine.amounts)
                ):
                    continue
                return self._claim(pool.name, body, machine)
        return ""

    def _left(self, pool: facts.NodePool) -> dict[str, int]:
        """What it may still make, by what was launched; its status tells that a look later."""
        told, used = dict(pool.used), self._used(pool.name)
        return {name: left + told.get(name, 0) - used.get(name, 0) for name, left in pool.limits}

    def _used(self, pool: str) -> dict[str, int]:
        used: dict[str, int] = {}
        for made in self._made.values():
            for resource, amount in made.machine.amounts.items() if made.pool == pool else ():
                used[resource] = used.get(resource, 0) + amount
        return used

    def _has_class(self, pool: Body) -> bool:
        ref: Any = (((pool.get("spec") or {}).get("template") or {}).get("spec") or {}).get("nodeClassRef") or {}
        return self._server.object(str(ref.get("kind")), "", str(ref.get("name"))) is not None

    def _claim(self, pool: str, body: Body, machine: InstanceOffering) -> str:
        self._serial += 1
        name, now = f"{pool}-{self._serial:04x}", self._clock.now()
        template = (body.get("spec") or {}).get("template") or {}
        labels = {karpenter.NODE_POOL: pool, TYPE: machine.kind, ZONE: machine.zone}
        labels |= {"karpenter.sh/capacity-type": machine.capacity_type}
        claim = {
            "apiVersion": f"{karpenter.GROUP}/v1",
            "kind": "NodeClaim",
            "metadata": {"name": name, "labels": labels},
            "spec": {key: value for key, value in (template.get("spec") or {}).items() if key != "requirements"},
        }
        self._server.put(claim)
        if machine.sold_out:
            self._unavailable[machine.kind, machine.zone, machine.capacity_type] = now + SOLD_OUT_MS
            self.sold_out.append((now, pool, machine))
            self._server.do("DELETE", paths.karpenter("nodeclaims", name))
            return ""
        room = {"allocatable": quantities(machine.amounts)}
        self._server.do("PATCH", _status_of("nodeclaims", name), {"status": room})
        self._condition(name, ("Launched",))
        digest = self._known(pool, body).template
        self._made[name] = _Made(name=name, pool=pool, machine=machine, template=digest, at=now)
        self.launched.append((now, pool, machine))
        return name


def _status_of(plural: str, name: str) -> str:
    return f"{paths.karpenter(plural, name)}/status"
