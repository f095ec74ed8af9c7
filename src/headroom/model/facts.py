"""The little we keep of outside things. Amounts are whole millionths, moments whole milliseconds, absent moments None."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from headroom.api import marks
from headroom.api.budget_hold import BudgetHoldSpec

Pairs = tuple[tuple[str, str], ...]
"""A small mapping, sorted by key: equal mappings are equal values, and one shared tuple serves many pods."""

Amounts = tuple[tuple[str, int], ...]
"""Resource name to millionths of its unit, sorted by name."""


UNREADABLE: Final = 10**24
"""Millionths that stand for an amount nobody can read: no node has that much, so the pod fits nowhere."""


class Owner(Struct, frozen=True, gc=False):
    """The controller of a pod."""

    kind: str
    name: str
    uid: str
    group: str = ""
    """The API group of its kind. A kind alone proves nothing: anybody may write `DaemonSet` of a group of their own."""


class Shape(Struct, frozen=True, gc=False, kw_only=True):
    """All that decides where a pod may go. Pods of one template share one shape."""

    requests: Amounts = ()
    """What kube-scheduler reserves: main containers and sidecars, or the largest init container if that is more."""
    node_selector: Pairs = ()
    affinity: str = ""
    """The pod's affinity as its JSON text; empty for none."""
    tolerations: str = ""
    """The pod's tolerations as their JSON text; empty for none."""
    scheduler: str = "default-scheduler"
    host_network: bool = False
    spread: str = ""
    """The pod's topology spread constraints that forbid (DoNotSchedule) as their JSON text."""

    @property
    def spoken_scheduler(self) -> str:
        """Its scheduler, as people call it."""
        return "kube-scheduler" if self.scheduler == "default-scheduler" else self.scheduler


class ExtendedClaim(Struct, frozen=True, gc=False):
    """A ResourceClaim that kube-scheduler made for extended resources of a pod."""

    name: str = ""
    resources: tuple[str, ...] = ()
    """Which of them it is for."""


class Pod(Struct, frozen=True, gc=False, kw_only=True):
    """One pod."""

    uid: str
    namespace: str
    name: str
    resource_version: str = ""
    labels: Pairs = ()
    annotations: Pairs = ()
    """Only those that Headroom reads: its own, and the bandwidth annotations."""
    shape: Shape = Shape()
    node: str = ""
    phase: str = "Pending"
    priority: int = 0
    owner: Owner | None = None
    created: int = 0
    started: int | None = None
    """The earliest start of any container that can be seen, init containers included."""
    started_after: int | None = None
    """Set where earlier starts cannot be seen any more (a container restarted more than once): it began later than this."""
    ended: int | None = None
    ended_by: str = ""
    """The evidence for `ended`: ContainerFinish or FailureKnown."""
    deleting: int | None = None
    evicted: int | None = None
    """When the API server granted an eviction of it, by the condition that it writes then: no label or annotation says so."""
    gates: tuple[str, ...] = ()
    deadline: int | None = None
    """Milliseconds after its start at which the kubelet ends it (activeDeadlineSeconds)."""
    grace_seconds: int = 30
    """How long it may take to end when it is asked to."""
    finalizers: tuple[str, ...] = ()
    """Only Headroom's own."""
    claims: tuple[str, ...] = ()
    """Names of its ResourceClaims, those that were made from a template included."""
    claim_templates: tuple[str, ...] = ()
    """Names of the ResourceClaimTemplates from which no claim was made yet."""
    extended: ExtendedClaim | None = None
    """The ResourceClaim that kube-scheduler made for its extended resources, as kube-scheduler says in its status."""
    nominated_node: str = ""
    nominated_since: int | None = None
    """Since when; preemption is under way there."""
    unschedulable_since: int | None = None
    unschedulable_message: str = ""
    refused_itself: bool = False
    """kube-scheduler refuses the pod without a look at any node: something that it names is missing, and no node could mend that."""

    @property
    def key(self) -> str:
        """How people name it."""
        return f"{self.namespace}/{self.name}"

    @property
    def maker(self) -> str:
        """The uid of the controller that made it, as the API server wrote it; empty if it was never queued, or nobody's."""
        return next((value for key, value in self.annotations if key == marks.CONTROLLER_UID), "")

    @property
    def extended_claim(self) -> str:
        """Name of the claim for its extended resources; empty if there is none."""
        return self.extended.name if self.extended is not None else ""

    @property
    def claim_keys(self) -> frozenset[str]:
        """Its ResourceClaims by namespace/name."""
        return frozenset(f"{self.namespace}/{name}" for name in self.claims)

    @property
    def has_claims(self) -> bool:
        """Whether it has devices through claims, or will."""
        return bool(self.claims or self.claim_templates or (self.extended is not None and self.extended.name))


class EvictionRefusal(Struct, frozen=True, gc=False):
    """The API server refused an eviction, for the sake of PodDisruptionBudgets."""

    at: int
    by: tuple[str, ...] = ()
    """The PodDisruptionBudgets, namespace/name, as far as they are known."""


class Taint(Struct, frozen=True, gc=False):
    """One taint of a node."""

    key: str
    value: str
    effect: str


class Node(Struct, frozen=True, gc=False, kw_only=True):
    """One node."""

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Pairs = ()
    annotations: Pairs = ()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = False
    ready_since: int | None = None
    unready_since: int | None = None
    """Since when it is not ready; None while it is, or if nobody said."""
    created: int = 0
    deleting: int | None = None
    provider_id: str = ""
    addresses: tuple[str, ...] = ()
    """Internal and external ones."""
    allocatable: Amounts = ()
    published: Amounts = ()
    """What it offers of bandwidth for kube-scheduler to count, nothing included: a kubelet may have set it to that."""
    published_capacity: Amounts = ()
    """The same in its capacity, from which a kubelet works out what it offers."""


class Hold(Struct, frozen=True, gc=False, kw_only=True):
    """A BudgetHold: the API server lets no new pods of the budget start."""

    name: str
    uid: str = ""
    resource_version: str = ""
    created: int = 0
    spec: BudgetHoldSpec | None = None
    """What it says; None if that cannot be read."""


class WorkloadPart(Struct, frozen=True, gc=False, kw_only=True):
    """Equal pods that an owner makes."""

    labels: Pairs = ()
    requests: Amounts = ()
    """Of one pod."""
    claims: tuple[str, ...] = ()
    """Names of ResourceClaims that all these pods share."""
    claim_templates: tuple[str, ...] = ()
    """Names of ResourceClaimTemplates from which each pod gets a claim of its own."""
    count: int = 1
    deadline: int | None = None
    """Milliseconds after its start at which each of them is over, with a grace period that is longer than usual."""
    left: int | None = None
    """How many are still to come to an end, where that is known; no more than so many are made."""
    shape: Shape | None = None
    """Where they may go; kept only of those that may ask for GPUs."""
    annotations: Pairs = ()
    """Those that say what is a gang; kept with the shape, as all below."""
    priority_class: str = ""
    is_gated: bool = False
    """Somebody's scheduling gate is in the template."""
    flavors: tuple[str, ...] = ()
    """The ResourceFlavors from which Kueue has given them quota."""


class Workload(Struct, frozen=True, gc=False, kw_only=True):
    """An owner of pods that can be suspended: a Job or JobSet that Headroom has suspended, or any Workload of Kueue."""

    kind: str
    """Job, JobSet or Workload."""
    uid: str
    namespace: str
    name: str
    resource_version: str = ""
    created: int = 0
    parts: tuple[WorkloadPart, ...] = ()
    priority: int = 0
    suspended: bool = False
    """It makes no pods now: `suspend`, or not `active`."""
    suspended_by: str = ""
    """The budget that suspended it, `GPUWorkloadBudget/namespace/name`; empty if it was not Headroom."""
    admitted: bool = False
    """Kueue has let it start; or it is finished."""
    reserved_at: int | None = None
    """When Kueue last reserved its quota or admitted it; None if it has not, or if it is over or evicted."""
    released_at: int | None = None
    """When Headroom let it go, after it had suspended it."""
    is_as_released: bool = False
    """Its spec is still the one that was released."""
    generation: int = 0
    """The version of its spec."""
    owner: str = ""
    """Whose Workload it is, as Kind/namespace/name."""
    owner_uids: tuple[str, ...] = ()
    """The uids of all that a Workload is for: one owner, or each pod of a group."""

    @property
    def key(self) -> str:
        """How people name it."""
        return f"{self.kind}/{self.namespace}/{self.name}"


class Namespace(Struct, frozen=True, gc=False, kw_only=True):
    """One namespace."""

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Pairs = ()


class Price(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One entry of the price book: what a machine costs an hour. What is empty does not matter."""

    price_per_hour: int
    """Millionths of a dollar."""
    node: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    labels: Pairs = ()


class Machine(Struct, frozen=True, kw_only=True, rename="camel"):
    """A physical machine; `name` is its name in its PowerPool."""

    name: str
    power: Literal["On", "Off", "PoweringOff", "Unknown"] = "Unknown"
    since: int | None = None


class SwitchCall(Struct, frozen=True, kw_only=True, rename="camel"):
    """The last call to a machine's switch that this process made, and what came of it."""

    machine: str
    command: Literal["Wake", "Sleep"]
    at: int
    """When it was sent."""
    outcome: Literal["Accepted", "Failed", "Unknown"]
    """Failed: surely nothing will come of it. Unknown: no answer came, so only the machine itself can tell."""
    message: str = ""


class Requirement(Struct, frozen=True, gc=False, kw_only=True):
    """One condition of a Karpenter NodePool or NodeClaim on the labels of its nodes."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class NodePool(Struct, frozen=True, gc=False, kw_only=True):
    """A Karpenter NodePool: nodes that Karpenter would make."""

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Pairs = ()
    """That its nodes have, from its template."""
    taints: tuple[Taint, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    limits: Amounts = ()
    """What it may still make of each resource that it limits, nothing included."""
    ready: bool = True
    """False only where Karpenter says that it is not, or where it is being deleted."""
    deleting: bool = False
    weight: int = 0
    marks: Pairs = ()
    """Those of its own labels that say who wrote it."""
    used: Amounts = ()
    """What its nodes have, by Karpenter's count."""
    digest: str = ""
    """Of its whole spec; only of those that Headroom wrote."""
    template: str = ""
    """A digest of its template alone, which nodes are compared with."""


class NodeClaim(Struct, frozen=True, gc=False, kw_only=True):
    """A Karpenter NodeClaim: a node that is on its way, until it is registered."""

    name: str
    uid: str = ""
    resource_version: str = ""
    created: int = 0
    labels: Pairs = ()
    """Its own, and those that its requirements with one value promise."""
    taints: tuple[Taint, ...] = ()
    allocatable: Amounts = ()
    """What the node will offer; what was asked for, while Karpenter does not know better."""
    registered: bool = False
    deleting: int | None = None
    node_pool: str = ""
    node: str = ""
    launched: bool = False
    failure: str = ""
    """Why it could not be launched, as Karpenter's one word; empty while nothing says so."""
    failed_at: int | None = None
    disrupted: bool = False
    """Karpenter itself ends it: it is empty, drifted, expired or consolidated."""


class NodeClass(Struct, frozen=True, kw_only=True):
    """A node class: how Karpenter's nodes are made in a cloud."""

    kind: str
    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Pairs = ()
    ready: bool = True
    """False only where its controller says so, or where it is being deleted."""
    zones: tuple[str, ...] = ()
    """Of its subnets, by name; none if it does not list them."""
    spec: dict[str, Any] = {}

    @property
    def key(self) -> str:
        """How it is told from those of other kinds."""
        return f"{self.kind}/{self.name}"


class Usage(Struct, frozen=True, kw_only=True, rename="camel"):
    """A row of the ledger: GPUs that a pod held from `start` to `end`."""

    name: str
    cluster: str = ""
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    start: int | None = None
    end: int | None = None
    gpus: int = 0
    """Millionths of a GPU."""
    labels: dict[str, str] = {}
    price_per_hour: int | None = None
    """Millionths of a dollar."""
