"""A small stage for cheapest capacity: offers at prices, a node class, and NodePools that stand as they were written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import structs

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.api.offers_status import LeftoverNodePoolStatus, Rung
from headroom.api.quantities import nano
from headroom.core.offers import PLAN
from headroom.model import times
from headroom.model.actions import Action, ApplyNodeClass, ApplyNodePool, DeleteNodeClass, DeleteNodePool
from headroom.model.changes import EVERYTHING
from headroom.model.cloud_facts import LaunchFailure, Offer, PoolWrite, WriteProblem
from headroom.model.decisions import Decision
from headroom.model.facts import Amounts, NodeClaim, NodeClass, NodePool, Requirement
from headroom.model.node_pool_specs import spec_digest, template_digest
from headroom.model.world import World, by_ref, ref_of
from tests.builders import NOON, a_resource

MINUTE, HOUR = times.MINUTE, times.HOUR
GPU = "nvidia.com/gpu"
ZONE_IDS = {"us-east-1a": "use1-az6", "us-east-1b": "use1-az1", "us-east-1c": "use1-az2"}
TYPE, ZONE, CAPACITY = "node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"


def a_leftover(name: str = "cheap", **spec: Any) -> AnyResource:
    """One that takes any GPU machine of us-east-1."""
    found = a_resource("LeftoverNodePool", name, **spec)
    assert not found.problems, found.problems
    return found


def an_offer(
    kind: str = "g5.xlarge", zone: str = "us-east-1a", dollars: float | None = 0.5, gpus: float = 1, **fields: Any
) -> Offer:
    """A spot offer, amd64 and nvidia unless said otherwise."""
    capacity = fields.get("capacity_type", "spot")
    base: dict[str, Any] = {
        "name": f"{kind}-{zone}-{capacity}",
        "provider": "aws",
        "region": "us-east-1",
        "zone": zone,
        "zone_id": ZONE_IDS.get(zone, ""),
        "instance_type": kind,
        "arch": "amd64",
        "vendor": "nvidia",
        "gpus": int(gpus * 1_000_000),
        "capacity_type": capacity,
        "price_per_hour": None if dollars is None else round(dollars * 1_000_000),
        "at": NOON,
    }
    return Offer(**base | fields)


def on_demand(kind: str = "g5.xlarge", dollars: float = 1.0, zone: str = "us-east-1a", **fields: Any) -> Offer:
    """The same machine on demand."""
    return an_offer(kind, zone, dollars, capacity_type="on-demand", **fields)


def a_class(name: str = "gpu", **fields: Any) -> NodeClass:
    """A node class that says nothing of its zones."""
    spec = {
        "role": "nodes",
        "subnetSelectorTerms": [{"tags": {"a": "b"}}],
        "securityGroupSelectorTerms": [{"id": "sg"}],
    }
    return NodeClass(**{"kind": "EC2NodeClass", "name": name, "uid": f"uid-{name}", "spec": spec} | fields)


def amount_of(text: str) -> int:
    """An amount as it is written, in millionths."""
    found = nano(text)
    assert isinstance(found, int), found
    return found // 1000


def _left(spec: dict[str, Any], used: Amounts) -> Amounts:
    """What a NodePool may still add."""
    amounts = dict(used)
    most = {name: amount_of(text) for name, text in spec["limits"].items()}
    return tuple((name, max(0, amount - amounts.get(name, 0))) for name, amount in sorted(most.items()))


class Stage:
    """A cluster with one or more LeftoverNodePools: what is decided is written down and carried out, as far as Karpenter lets it."""

    def __init__(self, *resources: AnyResource, offers: Iterable[Offer] = (), **more: Any) -> None:
        self.now = NOON
        self.resources = {ref_of(each): each for each in resources or (a_leftover(),)}
        self.offers = {each.name: each for each in offers}
        self.pools: dict[str, NodePool] = {}
        self.specs: dict[str, dict[str, Any]] = {}
        self.claims: dict[str, NodeClaim] = {}
        self.classes = {each.key: each for each in more.pop("classes", (a_class(),))}
        self.failures: dict[str, LaunchFailure] = {}
        self.writes: dict[str, PoolWrite] = {}
        """What this process remembers of its writes."""
        self.keeps: Callable[[dict[str, Any]], dict[str, Any]] = lambda spec: spec
        """What the API server keeps of a spec."""
        self.more = more
        self.performed: list[Action] = []
        self.refused: dict[str, WriteProblem] = {}
        """NodePools that cannot be written now, because others manage their fields, and what was said when it was tried."""
        self._serial = 0

    def world(self) -> World:
        """As it stands; prices are of now unless a test took that away."""
        return World(
            now=self.now,
            resources=by_ref(self.resources.values()),
            offers=self.offers,
            node_pools=self.pools,
            node_claims=self.claims,
            node_classes=self.classes,
            launch_failures=self.failures,
            pool_writes=self.writes,
            write_problems={each.object: each for each in self.refused.values() if each.at <= self.now},
            **self.more,
        )

    def price(self, name: str, dollars: float | None) -> None:
        """An offer costs something else from now on."""
        price = None if dollars is None else round(dollars * 1_000_000)
        self.offers[name] = structs.replace(self.offers[name], price_per_hour=price, at=self.now)

    def tick(self, minutes: float = 0) -> list[Decision]:
        """Let time pass, decide on everything, and carry it out. Prices are read anew."""
        self.now += int(minutes * MINUTE)
        self.offers = {name: structs.replace(each, at=self.now) for name, each in self.offers.items()}
        return self.decide()

    def decide(self) -> list[Decision]:
        """Decide on everything and carry it out."""
        decisions = list(PLAN.decide(self.world(), EVERYTHING))
        for each in decisions:
            self.resources[each.resource] = structs.replace(self.resources[each.resource], status=each.status)
            for action in each.actions:
                self.performed.append(action)
                self._perform(action, each.resource.name)
        return decisions

    def settle(self, ticks: int = 4) -> Decision:
        """Decide until nothing is due any more."""
        for _ in range(ticks):
            found = self.decide()
        return found[0]

    def _perform(self, action: Action, owner: str) -> None:
        match action:
            case ApplyNodePool(node_pool=name, uid="", spec=spec):
                assert name not in self.pools, f"{name} exists"
                self._serial += 1
                self._put(name, spec, f"uid-{self._serial}", owner)
            case ApplyNodePool(node_pool=name) if name in self.refused:
                self.refused[name] = structs.replace(self.refused[name], at=self.now)
            case ApplyNodePool(node_pool=name, spec=spec, uid=uid, only=only):
                assert self.pools[name].uid == uid
                self._put(name, {**self.specs[name], **spec} if only else spec, uid, owner)
            case DeleteNodePool(node_pool=name, uid=uid, with_nodes=with_nodes):
                assert self.pools[name].uid == uid
                assert with_nodes or not any(each.node_pool == name for each in self.claims.values())
                del self.pools[name], self.specs[name]
            case ApplyNodeClass(kind=kind, node_class=name, spec=spec):
                made = NodeClass(kind=kind, name=name, uid=f"uid-{name}", labels=((marks.LEFTOVER, owner),), spec=spec)
                self.classes[made.key] = made
            case DeleteNodeClass(kind=kind, node_class=name):
                del self.classes[f"{kind}/{name}"]

    def _put(self, name: str, spec: dict[str, Any], uid: str, owner: str) -> None:
        self.specs[name] = {"limits": {}, **spec}
        inner = spec["template"]["spec"]
        before = self.pools.get(name)
        self.pools[name] = NodePool(
            name=name,
            uid=uid,
            marks=((marks.LEFTOVER, owner),),
            weight=spec["weight"],
            requirements=tuple(
                Requirement(key=each["key"], operator=each["operator"], values=tuple(each["values"]))
                for each in inner["requirements"]
            ),
            used=before.used if before else (),
            limits=_left(spec, before.used if before else ()),
            digest=spec_digest(self.keeps(spec)),
            template=template_digest(self.keeps(spec)),
        )
        self.writes[name] = PoolWrite(
            node_pool=name, uid=uid, at=self.now, asked=spec_digest(spec), made=self.pools[name].digest
        )

    def refuse(self, pool: str) -> None:
        """From now on, writes to a NodePool fail."""
        never = 2**63
        self.refused[pool] = WriteProblem(
            object=f"NodePool/{pool}", action="ApplyNodePool", at=never, message="somebody else manages its weight"
        )

    def launch(self, pool: str, name: str = "node-1", *, gpus: int = 1, **fields: Any) -> None:
        """Karpenter brings a node."""
        step = {each.key: each.values for each in self.pools[pool].requirements}
        labels = tuple((key, step[key][0]) for key in (TYPE, ZONE, CAPACITY) if key in step)
        base: dict[str, Any] = {
            "name": name,
            "created": self.now,
            "labels": labels,
            "node_pool": pool,
            "launched": True,
            "registered": True,
        }
        self.claims[name] = NodeClaim(**base | fields)
        self._use(pool, gpus)

    def end(self, name: str, gpus: int = 1) -> None:
        """A node is gone."""
        self._use(self.claims.pop(name).node_pool, -gpus)

    def _use(self, pool: str, gpus: int) -> None:
        used = dict(self.pools[pool].used)
        used[GPU] = used.get(GPU, 0) + gpus * 1_000_000
        amounts = tuple(sorted(used.items()))
        self.pools[pool] = structs.replace(self.pools[pool], used=amounts, limits=_left(self.specs[pool], amounts))

    def fail(self, pool: str, reason: str = "InsufficientCapacityError") -> None:
        """A launch fails, and its claim is gone at once."""
        self._serial += 1
        claim = f"{pool}-{self._serial}"
        self.failures[claim] = LaunchFailure(claim=claim, node_pool=pool, at=self.now, reason=reason)

    # What there is to see

    def status(self, name: str = "cheap") -> LeftoverNodePoolStatus:
        """As it was written last."""
        found = next(each.status for each in self.resources.values() if each.name == name)
        assert isinstance(found, LeftoverNodePoolStatus)
        return found

    def rungs(self, state: str = "Active") -> list[Rung]:
        """In their order."""
        return [each for each in self.status().rungs if each.state == state]

    def by_weight(self) -> list[str]:
        """The NodePools that can add nodes, heaviest first."""
        able = {each.name for each in self.rungs()}
        return sorted(able, key=lambda name: -self.pools[name].weight)

    def what(self, name: str) -> tuple[list[str], list[str]]:
        """The machine types and zones of a NodePool."""
        step = {each.key: each.values for each in self.pools[name].requirements}
        return list(step[TYPE]), list(step.get(ZONE, ()))
