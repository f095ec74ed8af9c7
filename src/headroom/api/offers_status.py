"""What Headroom writes of a LeftoverNodePool: its rungs, which offer has the first place and since when, and what it saves."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta, field

from headroom.api.resources import ApiType, Status
from headroom.api.schema import extra

RungState = Literal["Active", "Resting", "Leaving"]
RungCause = Literal["", "LaunchFailed", "NotRanked", "TemplateChanged", "OverQuota", "Superseded"]
MOST_RUNGS: Final = 400
"""Those that leave included; Karpenter knows 100 weights."""


class Rung(ApiType, frozen=True, kw_only=True):
    """One NodePool of the ladder."""

    name: Annotated[str, Meta(description="The NodePool's name.")]
    state: Annotated[
        RungState,
        Meta(
            description="Active: Karpenter may add nodes. Resting: a launch failed, so it adds no nodes for a while. Leaving: it adds no more "
            "nodes, and the NodePool is deleted once it has none."
        ),
    ]
    cause: Annotated[RungCause, Meta(description="Why it is resting or leaving, as one word.")] = ""
    since: Annotated[str, Meta(description="Since when it is in this state.")] = ""
    until: Annotated[str, Meta(description="Until when it is resting.")] = ""
    failures: Annotated[int, Meta(ge=0, description="Failed launches in a row.")] = 0
    failed_at: Annotated[str, Meta(description="The moment of the last failed launch that was counted.")] = ""
    instance_types: Annotated[tuple[str, ...], Meta(max_length=60, description="Its machine types, best first.")] = ()
    zones: Annotated[tuple[str, ...], Meta(max_length=20, description="Its zones, by name.")] = ()
    zone_ids: Annotated[tuple[str, ...], Meta(max_length=20, description="The ids of these zones.")] = ()
    capacity_type: Annotated[str, Meta(description="How it is paid for: spot or on-demand.")] = ""
    weight: Annotated[int | None, Meta(description="Karpenter tries the heaviest first.")] = None
    price_per_hour: Annotated[str, Meta(description="Price per hour of its best machine, in dollars.")] = ""
    cost_per_gpu_hour: Annotated[str, Meta(description="Expected cost of a useful GPU-hour there, in dollars.")] = ""
    interruptions_per_hour: Annotated[str, Meta(description="Expected interruptions per machine and hour.")] = ""
    failed_launches: Annotated[str, Meta(description="Expected share of launches that fail.")] = ""
    score: Annotated[int | None, Meta(description="Placement score of its best machine, if known.")] = None
    nodes: Annotated[int | None, Meta(description="Nodes that it has.")] = None
    uid: Annotated[
        str, Meta(description="The uid of the NodePool, once known: another one of the same name is left alone.")
    ] = ""


class Challenger(ApiType, frozen=True, kw_only=True):
    """The best offer after the one that has the first place."""

    offer: Annotated[str, Meta(description="The offer, as instance type, zone id and capacity type.")]
    since: Annotated[str, Meta(description="Since when it is cheaper by the threshold; empty if it is not.")] = ""
    saving: Annotated[str, Meta(description="What it would save now; negative if it costs more.")] = ""
    saving_needed: Annotated[str, Meta(description="What it must save to become first.")] = ""


class ChosenOffer(ApiType, frozen=True, kw_only=True):
    """Which offer has the first place, and what is remembered so that it changes rarely."""

    offer: Annotated[str, Meta(description="The offer, as instance type, zone id and capacity type.")] = ""
    since: Annotated[str, Meta(description="Since when.")] = ""
    challenger: Annotated[str, Meta(description="The offer that may replace it.")] = ""
    challenger_since: Annotated[str, Meta(description="Since when that one is cheaper by the threshold.")] = ""
    missed: Annotated[
        int,
        Meta(
            description="What staying has cost so far, less an allowance, in millionths of the bill times milliseconds."
        ),
    ] = 0
    saving: Annotated[int, Meta(description="What the cheapest offer would save, in millionths, rounded.")] = 0
    as_of: Annotated[str, Meta(description="The moment that this is true for.")] = ""
    switches: Annotated[
        tuple[str, ...], Meta(max_length=1000, description="When the first offer changed in the last day.")
    ] = ()


class Savings(ApiType, frozen=True, kw_only=True):
    """What the nodes cost less than on-demand machines of the same types."""

    usd: Annotated[str, Meta(description="Dollars saved so far.")] = "0"
    usd_per_hour: Annotated[str, Meta(description="Dollars an hour that the current nodes save.")] = "0"
    as_of: Annotated[str, Meta(description="The moment that this is true for.")] = ""
    since: Annotated[str, Meta(description="Since when it is counted.")] = ""


class LeftoverNodePoolStatus(Status, frozen=True, kw_only=True):
    """What was chosen last."""

    selected_instance_types: Annotated[
        tuple[str, ...], Meta(description="Machine types offered to Karpenter, best first.")
    ] = ()
    selected_zones: Annotated[tuple[str, ...], Meta(description="Zones offered to Karpenter, best first.")] = ()
    last_price_usd: Annotated[str, Meta(description="Price per hour of the first choice, in dollars.")] = field(
        default="", name="lastPriceUSD"
    )
    last_score: Annotated[int | None, Meta(description="Placement score of the first choice.")] = None
    last_score_time: Annotated[str, Meta(description="When that score was read.")] = ""
    last_sync_time: Annotated[
        str, Meta(description="When prices were last read. It is written with other changes, or every ten minutes.")
    ] = ""
    below_score: Annotated[
        bool | None, Meta(description="True if no offer has minSpotScore and the cheapest was chosen anyway.")
    ] = None
    node_class: Annotated[str, Meta(description="The node class of the NodePools.")] = ""
    rungs: Annotated[
        tuple[Rung, ...],
        Meta(max_length=MOST_RUNGS, description="The NodePools, heaviest first.", extra=extra(map_key="name")),
    ] = ()
    chosen: Annotated[ChosenOffer | None, Meta(description="Which offer is first.")] = None
    runner_up: Annotated[Challenger | None, Meta(description="The next best offer, and the saving it would need.")] = (
        None
    )
    switches: Annotated[int | None, Meta(description="How often the first offer changed so far.")] = None
    savings: Annotated[Savings | None, Meta(description="What is saved compared to on-demand machines.")] = None
    offers: Annotated[int | None, Meta(description="Offers that were ranked.")] = None
    passed_over: Annotated[
        dict[str, int], Meta(max_length=16, description="Offers that were not ranked, by reason.")
    ] = {}
    moving: ClassVar[frozenset[str]] = frozenset({"last_sync_time", "savings", "chosen", "runner_up"})
