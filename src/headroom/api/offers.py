"""LeftoverNodePool: the cheapest GPU capacity by price and risk, kept as Karpenter NodePools."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, field

from headroom.api import durations
from headroom.api.budgets import positive_amount
from headroom.api.offers_status import LeftoverNodePoolStatus
from headroom.api.resources import (
    AGE_COLUMN,
    PREFIX_LENGTH,
    QUALIFIED_NAME,
    READY_COLUMN,
    ApiType,
    Column,
    Kind,
    Labels,
    Spec,
    object_name,
)
from headroom.api.schema import Rule, extra
from headroom.api.spot_pools import Amount, Region, SecretReference

NODE_CLASSES: Final = {"EC2NodeClass": "karpenter.k8s.aws", "KWOKNodeClass": "karpenter.kwok.sh"}
"""The node classes that can be named, each with its API group."""
GPU_RESOURCES: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""By which resource pods ask for the GPUs of a vendor."""
HEAVIEST: Final = 100

TAG_KEYS: Final = Rule(
    cel="self.all(key, key.size() >= 1 && key.size() <= 128)",
    message="every key must have from 1 to 128 characters",
    holds=lambda tags: all(1 <= len(key) <= 128 for key in tags),
)
Tags = Annotated[dict[str, Annotated[str, Meta(max_length=256)]], Meta(max_length=50, extra=extra(TAG_KEYS))]
Family = Annotated[
    str,
    Meta(
        min_length=1, max_length=64, pattern=r"^[a-z0-9-]+$", extra=extra(hint="an instance family such as g5 or p4d")
    ),
]
Taint = Annotated[
    str,
    Meta(
        max_length=512,
        pattern=(
            QUALIFIED_NAME[:-1]
            + r"(=([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?)?:(NoSchedule|PreferNoSchedule|NoExecute)$"
        ),
        extra=extra(
            PREFIX_LENGTH, hint="key[=value]:Effect with Effect one of NoSchedule, PreferNoSchedule, NoExecute"
        ),
    ),
]
NodeClassName = Annotated[str, object_name("The node class to use, by name.", hint="the name of a node class")]


class Weights(ApiType, frozen=True, kw_only=True):
    """The weights that the NodePools may have. Karpenter tries the heaviest first."""

    min: Annotated[int, Meta(ge=1, le=HEAVIEST, description="The weight of the last rung at least.")] = 1
    max: Annotated[int, Meta(ge=1, le=HEAVIEST, description="The weight of the first rung.")] = HEAVIEST
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.min < self.max",
            message="must be more than min",
            field="max",
            numbers=("min", "max"),
            holds=lambda it: bool(it["min"] < it["max"]),
        ),
    )

    @property
    def count(self) -> int:
        """How many there are."""
        return self.max - self.min + 1


class BudgetReference(ApiType, frozen=True, kw_only=True):
    """A GPUWorkloadBudget."""

    namespace: Annotated[str, object_name("Its namespace.", hint="the name of a namespace")]
    name: Annotated[str, object_name("Its name.", hint="the name of a GPUWorkloadBudget")]


def _has_one_node_class(spec: dict[str, Any]) -> bool:
    return ("nodeClassName" in spec) != bool(spec.get("nodeClassSelector"))


class LeftoverNodePoolSpec(Spec, frozen=True, kw_only=True):
    """Which GPU machines may be offered, and how they are presented to Karpenter."""

    region: Annotated[Region, Meta(description="The cloud's region.")]
    families: Annotated[tuple[Family, ...], Meta(max_length=64, description="Instance families; none means any.")] = ()
    node_class_kind: Annotated[
        Literal["EC2NodeClass", "KWOKNodeClass"], Meta(description="The kind of the node class.")
    ] = "EC2NodeClass"
    node_class_name: NodeClassName | None = None
    node_class_selector: Annotated[
        Labels, Meta(description="The node class to use, by labels; exactly one must match.")
    ] = {}
    architecture: Annotated[Literal["amd64", "arm64"], Meta(description="The CPU architecture of the machines.")] = (
        "amd64"
    )
    gpu_vendor: Annotated[
        Literal["nvidia", "amd"], Meta(description="Who made the GPUs; pods ask for them by the vendor's resource.")
    ] = "nvidia"
    min_gpus: Annotated[
        int,
        Meta(
            ge=1,
            le=64,
            description="GPUs that a machine must have at least. Types with a part of a GPU are taken only where families names theirs.",
        ),
    ] = field(default=1, name="minGPUs")
    target_count: Annotated[
        int, Meta(ge=1, le=2000, description="The number of machines to request placement scores for.")
    ] = 2
    min_spot_score: Annotated[int, Meta(ge=0, le=10, description="The lowest acceptable placement score.")] = 5
    max_instance_types: Annotated[int, Meta(ge=1, le=60, description="Machine types offered to Karpenter at once.")] = 5
    max_zones: Annotated[int, Meta(ge=1, le=20, description="Zones offered to Karpenter at once.")] = 2
    capacity_type: Annotated[Literal["spot", "on-demand"], Meta(description="How the machines are paid for.")] = "spot"
    strategy: Annotated[
        Literal["CostAndRisk", "CheapestAboveScore"],
        Meta(
            description="How offers are ranked. CostAndRisk: by the expected cost of a useful GPU-hour. CheapestAboveScore: by the price of "
            "the machine, among those with at least minSpotScore."
        ),
    ] = "CostAndRisk"
    restart_hours: Annotated[
        str | int,
        positive_amount("Hours of work that an interruption costs, for CostAndRisk.", 168),
    ] = "0.5"
    switch_threshold: Annotated[
        str,
        Meta(
            max_length=6,
            pattern=r"^[0-9]{1,2}([.][0-9]{1,2})?%$",
            description="How much cheaper another offer must be to become first.",
            extra=extra(hint="a percentage below 100%, such as 5%"),
        ),
    ] = "5%"
    switch_after: Annotated[str, durations.length("How long it must be that much cheaper.")] = "30m"
    min_dwell: Annotated[str, durations.length("How long an offer stays first at least, unless it fails.")] = "2h"
    max_switches_per_day: Annotated[
        int,
        Meta(ge=1, le=1000, description="How often the first offer changes in a day at most, not counting failures."),
    ] = 6
    subnet_selector_tags: Annotated[Tags, Meta(description="Tags of the subnets.")] = {}
    security_group_selector_tags: Annotated[Tags, Meta(description="Tags of the security groups.")] = {}
    budgets_nodes: Annotated[
        str,
        Meta(
            max_length=8,
            pattern=r"^((100|[0-9]{1,2})%|[0-9]{1,6})$",
            description="Nodes that may be disrupted at once, as a number or a percentage.",
            extra=extra(hint="a percentage up to 100% or a number of nodes"),
        ),
    ] = "10%"
    consolidate_after: Annotated[
        str,
        Meta(
            max_length=32,
            pattern=r"^(Never|([0-9]+(s|m|h))+)$",
            description="Idle time before Karpenter may consolidate a node.",
            extra=extra(hint="a duration such as 2m or 1h30m, or Never"),
        ),
    ] = "2m"
    consolidation_policy: Annotated[
        Literal["WhenEmpty", "WhenEmptyOrUnderutilized"],
        Meta(
            description="Which nodes Karpenter may consolidate. WhenEmptyOrUnderutilized moves running pods to a cheaper NodePool when "
            "weights change."
        ),
    ] = "WhenEmpty"
    expire_after: Annotated[
        str,
        Meta(
            max_length=32,
            pattern=r"^(Never|([0-9]+(s|m|h))+)$",
            description="Age at which Karpenter replaces a node.",
            extra=extra(hint="a duration such as 720h, or Never"),
        ),
    ] = "Never"
    weights: Annotated[Weights, Meta(description="The weights that the NodePools may have.")] = Weights()
    limits: Annotated[
        dict[str, Amount],
        Meta(
            max_length=16,
            description="What all NodePools together may have of each resource; 1000 GPUs by default.",
        ),
    ] = {}
    budget_ref: Annotated[
        BudgetReference | None, Meta(description="While this budget is over quota, no machines are added.")
    ] = None
    rollout: Annotated[
        Literal["Keep", "Replace"],
        Meta(
            description="What happens to running nodes when the template changes. Keep: they stay until they are empty, and new nodes come "
            "from a new NodePool. Replace: their NodePool is rewritten, and Karpenter replaces them."
        ),
    ] = "Keep"
    deletion_policy: Annotated[
        Literal["Retain", "Delete"],
        Meta(
            description="What happens to the NodePools when this object is deleted. Retain: they are kept unchanged. Delete: they are deleted, "
            "and Karpenter drains their nodes."
        ),
    ] = "Retain"
    credentials_secret_ref: Annotated[
        SecretReference | None,
        Meta(
            description="A Secret of the operator's namespace with the keys accessKeyId and secretAccessKey; if absent, the operator's own "
            "credentials are used."
        ),
    ] = None
    labels: Annotated[Labels, Meta(description="Labels of the nodes.")] = {}
    taints: Annotated[tuple[Taint, ...], Meta(max_length=32, description="Taints of the nodes.")] = ()
    requeue_minutes: Annotated[
        int, Meta(ge=1, le=1440, description="Minutes between two evaluations of the offers.")
    ] = 7
    on_demand_fallback: Annotated[
        bool | None, Meta(description="Fall back to on-demand machines; the default for spot.")
    ] = None
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.nodeClassName) != (has(self.nodeClassSelector) && self.nodeClassSelector.size() > 0)",
            message="give exactly one of nodeClassName and nodeClassSelector",
            field="nodeClassName",
            holds=_has_one_node_class,
        ),
        Rule(
            cel="self.capacityType != 'on-demand' || !has(self.onDemandFallback) || !self.onDemandFallback",
            message="must not be true when capacityType is on-demand already",
            field="onDemandFallback",
            holds=lambda it: it["capacityType"] != "on-demand" or not it.get("onDemandFallback"),
        ),
    )

    @property
    def falls_back(self) -> bool:
        """Whether on-demand machines are the last rung."""
        return self.capacity_type == "spot" and self.on_demand_fallback is not False

    @property
    def gpu_resource(self) -> str:
        """By which resource pods ask for its GPUs."""
        return GPU_RESOURCES[self.gpu_vendor]


class LeftoverNodePool:
    """The kind as a whole."""

    kind: ClassVar[Kind] = Kind(
        name="LeftoverNodePool",
        plural="leftovernodepools",
        short_names=("lonp",),
        namespaced=False,
        spec=LeftoverNodePoolSpec,
        status=LeftoverNodePoolStatus,
        # NodePools are named leftover-<name>-<hash>, and that name becomes the value of a label.
        longest_name=45,
        columns=(
            Column("Region", ".spec.region"),
            Column("Capacity", ".spec.capacityType"),
            Column("Types", ".status.selectedInstanceTypes"),
            Column("Zones", ".status.selectedZones"),
            Column("Price", ".status.lastPriceUSD"),
            Column("Score", ".status.lastScore", "integer"),
            READY_COLUMN,
            AGE_COLUMN,
        ),
    )
