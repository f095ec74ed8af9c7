"""The clouds beside a simulated cluster: their prices and stock are the Offer documents, and machines of Spotpools become nodes.

A machine that runs joins, as its user data would make it; one that has ended loses its node. The annotation
`sim.headroom.dev/reclaims-after: 40m` of a Spotpool says how long after its launch the cloud takes a machine back, with a notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headroom.adapters import outside
from headroom.api.kinds import AnyResource
from headroom.api.marks import INSTANCE, OWNER_TAG, POOL_FINALIZER
from headroom.model import times
from headroom.sim.answers import Body
from headroom.sim.apiserver import ApiServer
from headroom.sim.apistore import Change
from headroom.sim.catalog import NODE
from headroom.sim.cloud import ALIVE, Cloud, SimMachine
from headroom.sim.clouds import KIND, Regions
from headroom.sim.faults import Faults
from headroom.sim.kubelet import ANNOTATION, PodLifecycle
from headroom.sim.script import Scenario

LOOK_SECONDS: Final = 5.0
NOTICE_MS: Final = 2 * times.MINUTE
RECLAIMS: Final = f"{ANNOTATION}reclaims-after"
TAINT: Final = POOL_FINALIZER
"""The taint of a pool's nodes has the finalizer's name."""
_ALWAYS: Final = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
_USUAL: Final = {"cpu": "48", "memory": "192Gi", "pods": "110"}
"""What a machine offers beside GPUs, whether its pool says so or not."""


def _nothing() -> None:
    """Nobody listens."""


class CloudNodes:
    """Lets machines join and leave, for as long as there is a Spotpool or a machine."""

    def __init__(self, server: ApiServer, cluster: PodLifecycle) -> None:
        self._server, self._cluster, self._clock = server, cluster, server.clock
        self._regions = Regions(server)
        self._joined: dict[str, tuple[Cloud, SimMachine]] = {}
        """By the name of the node."""
        self._turn = 0
        self._looking = False
        self._unsubscribe: Callable[[], None] = _nothing

    @classmethod
    def of(cls, server: ApiServer, cluster: PodLifecycle, _faults: Faults, _scenario: Scenario) -> CloudNodes:
        """Those of a scenario."""
        return cls(server, cluster)

    def begin(self) -> None:
        """Take stock, and look after machines from the first Spotpool on."""
        for body in self._server.objects("Offer"):
            self._offer(body)
        self._unsubscribe = self._server.store.subscribe(self._notice)
        if self._server.objects(KIND):
            self._later()

    def stop(self) -> None:
        """Let nothing more come of what was set off."""
        self._unsubscribe()
        self._unsubscribe = _nothing
        self._turn += 1

    def _notice(self, change: Change) -> None:
        if change.type.kind == KIND and change.after is not None:
            self._later()
        if change.type.kind == "Offer" and change.after is not None:
            self._offer(change.after.body)

    def _offer(self, body: Body) -> None:
        offer = outside.fact("Offer", body)[0]
        if not offer.region:
            return
        cloud = self._regions.found.setdefault(offer.region, Cloud(self._clock.now, offer.region, offer.provider))
        key = offer.instance_type, offer.zone
        if offer.price_per_hour is not None:
            cloud.prices[key] = offer.price_per_hour
        if offer.available is False:
            cloud.stock[key] = 0
        elif cloud.stock.get(key) == 0:
            del cloud.stock[key]

    # --- machines -------------------------------------------------------------------------------------------------------------

    def _later(self) -> None:
        if not self._looking:
            self._looking, turn = True, self._turn
            self._clock.call_later(LOOK_SECONDS, lambda: self._look() if turn == self._turn else None)

    def _look(self) -> None:
        self._looking = False
        pools = self._regions.pools()
        for pool in pools:
            cloud = self._regions[pool.spec.region]
            for machine in cloud.alive({OWNER_TAG: pool.uid}):
                self._age(cloud, pool, machine)
                if pool.spec.join and machine.state(self._clock.now()) == "RUNNING":
                    self._join(cloud, pool, machine)
        for name, (_, machine) in list(self._joined.items()):
            if machine.state(self._clock.now()) not in ALIVE:
                self._leave(name)
        if pools or self._joined:
            self._later()

    def _age(self, cloud: Cloud, pool: AnyResource, machine: SimMachine) -> None:
        body = self._server.object(KIND, pool.namespace, pool.name)
        after = times.duration(str(((body or {}).get("metadata") or {}).get("annotations", {}).get(RECLAIMS, "")))
        if after and machine.reclaim is None and self._clock.now() >= machine.made + after:
            cloud.reclaim(machine.id, NOTICE_MS)

    def _join(self, cloud: Cloud, pool: AnyResource, machine: SimMachine) -> None:
        name = f"{pool.name}-{machine.id.removeprefix('ins-').lstrip('0')}"
        if name not in self._joined and self._server.object("Node", "", name) is None:
            self._joined[name] = cloud, machine
            self._server.put(_node(name, cloud, pool, machine))
            self._cluster.light(name)

    def _leave(self, name: str) -> None:
        del self._joined[name]
        self._cluster.darken(name, at_once=True)
        if self._server.object("Node", "", name) is not None:
            self._server.do("DELETE", NODE.url("", name))


def _node(name: str, cloud: Cloud, pool: AnyResource, machine: SimMachine) -> Body:
    """The node that a machine becomes, as its user data would register it."""
    template, order = pool.spec.template, machine.order
    labels = _ALWAYS | template.labels
    labels |= {
        "kubernetes.io/hostname": name,
        "node.kubernetes.io/instance-type": order.instance_type,
        "topology.kubernetes.io/zone": order.zone,
        "topology.kubernetes.io/region": cloud.region,
        "headroom.dev/capacity-type": "spot" if pool.spec.instance_charge_type == "SPOTPAID" else "on-demand",
        INSTANCE: machine.id,
    }
    amounts = {**_USUAL, **template.resources, template.gpu_resource_name: template.gpu_count or 0}
    room = {resource: str(amount) for resource, amount in sorted(amounts.items())}
    taints = [{"key": each.key, "value": each.value, "effect": each.effect} for each in template.taints]
    taints.append({"key": TAINT, "value": pool.namespace, "effect": "NoSchedule"})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints, "providerID": f"{cloud.provider}:///{order.zone}/{machine.id}"},
        "status": {"capacity": room, "allocatable": room},
    }
