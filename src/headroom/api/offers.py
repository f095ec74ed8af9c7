"""LeftoverNodePool: the cheapest GPU capacity by price and risk, kept as Karpenter NodePools."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, field

from headroom.api.resources import (
    AGE_COLUMN,
    PREFIX_LENGTH,
    QUALIFIED_NAME,
    READY_COLUMN,
    Column,
    Kind,
    Labels,
    Spec,
    Status,
    object_name,
)
from headroom.api.schema import Rule, extra
from headroom.api.spot_pools import Region

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
NodeClassName = Annotated[str, object_name("The EC2NodeClass to use, by name.", hint="the name of a node class")]


def _has_one_node_class(spec: dict[str, Any]) -> bool:
    return ("nodeClassName" in spec) != bool(spec.get("nodeClassSelector"))


class LeftoverNodePoolSpec(Spec, frozen=True, kw_only=True):
    """Which GPU machines may be offered, and how they are presented to Karpenter."""

    region: Annotated[Region, Meta(description="The cloud's region.")]
    families: Annotated[tuple[Family, ...], Meta(max_length=64, description="Instance families; none means any.")] = ()
    node_class_name: NodeClassName | None = None
    node_class_selector: Annotated[
        Labels, Meta(description="The EC2NodeClass to use, by labels; exactly one must match.")
    ] = {}
    min_gpus: Annotated[int, Meta(ge=1, le=64, description="GPUs that a machine must have at least.")] = field(
        default=1, name="minGPUs"
    )
    target_count: Annotated[int, Meta(ge=1, le=2000, description="Machines to ask placement scores for.")] = 2
    min_spot_score: Annotated[int, Meta(ge=0, le=10, description="Placement score that is good enough.")] = 5
    max_instance_types: Annotated[int, Meta(ge=1, le=60, description="Machine types offered to Karpenter at once.")] = 5
    max_zones: Annotated[int, Meta(ge=1, le=20, description="Zones offered to Karpenter at once.")] = 2
    capacity_type: Annotated[Literal["spot", "on-demand"], Meta(description="How the machines are paid for.")] = "spot"
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
    labels: Annotated[Labels, Meta(description="Labels of the nodes.")] = {}
    taints: Annotated[tuple[Taint, ...], Meta(max_length=32, description="Taints of the nodes.")] = ()
    requeue_minutes: Annotated[int, Meta(ge=1, le=1440, description="Minutes between two looks at the offers.")] = 7
    on_demand_fallback: Annotated[
        bool | None, Meta(description="Fall back to on-demand machines; unless said otherwise, yes for spot.")
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


class LeftoverNodePoolStatus(Status, frozen=True, kw_only=True):
    """What was chosen last."""

    selected_instance_types: Annotated[tuple[str, ...], Meta(description="Machine types offered to Karpenter.")] = ()
    selected_zones: Annotated[tuple[str, ...], Meta(description="Zones offered to Karpenter.")] = ()
    last_price_usd: Annotated[str, Meta(description="Price per hour of the first choice, in dollars.")] = field(
        default="", name="lastPriceUSD"
    )
    last_score: Annotated[int | None, Meta(description="Placement score of the first choice.")] = None
    last_sync_time: Annotated[str, Meta(description="When the choice, its price or its score last changed.")] = ""


class LeftoverNodePool:
    """The kind as a whole."""

    kind: ClassVar[Kind] = Kind(
        name="LeftoverNodePool",
        plural="leftovernodepools",
        short_names=("lonp",),
        namespaced=False,
        spec=LeftoverNodePoolSpec,
        status=LeftoverNodePoolStatus,
        # NodePools are named leftover-<name>, and that name becomes the value of a label.
        longest_name=54,
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
