"""GPUWorkloadBudget: how many GPU-hours and dollars the pods of a team may use in a rolling window, and what happens beyond."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta

from headroom.api.enforcement import (
    FLEET_ACTIONS,
    LOCAL_ACTIONS,
    Enforcement,
    EnteredStep,
    EvictedOwner,
    QueueStatus,
    RefusedEviction,
    Released,
    Stopped,
    Victim,
)
from headroom.api.quantities import CEL_MATCHES, MAX_LENGTH, PATTERN, InvalidQuantity, nano
from headroom.api.resources import (
    AGE_COLUMN,
    LONGEST_QUALIFIED_NAME,
    PREFIX_LENGTH,
    QUALIFIED_NAME,
    READY_COLUMN,
    SUBDOMAIN,
    ApiType,
    Column,
    Kind,
    LabelSelector,
    Spec,
    Status,
)
from headroom.api.schema import Rule, extra, matches, quantity

LARGEST_GPU_HOURS: Final = 10**9
LARGEST_USD: Final = 10**9
LARGEST_WEIGHT: Final = 1000
LONGEST_WINDOW_HOURS: Final = 24 * 366
DEFAULT_RESOURCE: Final = "nvidia.com/gpu"
MOST_RESOURCES: Final = 16

_DOMAIN: Final = SUBDOMAIN[1:-1]
RESOURCE_PATTERN: Final = (
    rf"^({QUALIFIED_NAME[1:-1]}|({_DOMAIN}/)?[A-Za-z0-9][-A-Za-z0-9_.]{{0,62}}\*|{_DOMAIN}(/\*)?)$"
)
"""A resource name, a prefix of resource names followed by *, or the name of a DRA device class."""
_DOMAIN_LENGTH: Final = Rule(
    cel="(self.contains('/') ? self.indexOf('/') : self.size()) <= 253",
    message="the part before the slash, and a name without one, must have at most 253 characters",
    holds=lambda text: len(text.partition("/")[0]) <= 253,
)


def positive_amount(description: str, largest: int) -> Meta:
    """A quantity above 0."""

    def holds(value: str | int) -> bool:
        if isinstance(value, str) and (len(value) > MAX_LENGTH or not matches(PATTERN, value)):
            return True  # no quantity at all, which is said already
        amount = nano(value, largest=largest)
        return not isinstance(amount, InvalidQuantity) and amount > 0

    cel = (
        f"!{CEL_MATCHES} || (quantity(string(self)).isGreaterThan(quantity('0')) && "
        f"!quantity(string(self)).isGreaterThan(quantity('{largest}')))"
    )
    return quantity(description, Rule(cel=cel, message=f"must be more than 0 and at most {largest}", holds=holds))


class Quota(ApiType, frozen=True, kw_only=True):
    """The caps and the window they hold for."""

    gpu_hours: Annotated[
        str | int | None,
        positive_amount("GPU-hours that may be used inside the window, for example 100 or 2.5.", LARGEST_GPU_HOURS),
    ] = None
    usd: Annotated[
        str | int | None,
        positive_amount("Dollars that may be spent inside the window, for example 500 or 99.50.", LARGEST_USD),
    ] = None
    window_hours: Annotated[
        int, Meta(ge=1, le=LONGEST_WINDOW_HOURS, description="Length of the rolling window that ends now, in hours.")
    ]
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.gpuHours) || has(self.usd)",
            message="must have gpuHours or usd, or both",
            holds=lambda it: "gpuHours" in it or "usd" in it,
        ),
    )


class GpuResource(ApiType, frozen=True, kw_only=True):
    """A resource that counts as GPUs, and how much one unit of it counts."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=LONGEST_QUALIFIED_NAME,
            pattern=RESOURCE_PATTERN,
            description=(
                "A resource name, which may end in * to match a prefix, or a DRA device class. Where several "
                "match one resource, the name without a star counts, then the longest."
            ),
            extra=extra(_DOMAIN_LENGTH, hint="a resource name such as nvidia.com/gpu or nvidia.com/mig-*"),
        ),
    ]
    weight: Annotated[
        str | int | None,
        positive_amount(
            "GPUs that one unit counts as. If absent, a MIG profile counts its compute slices as a part of its GPU "
            "(sevenths, quarters of an A30), and anything else counts 1.",
            LARGEST_WEIGHT,
        ),
    ] = None


def _local_steps(enforcement: dict[str, Any]) -> bool:
    return any(each["action"] in LOCAL_ACTIONS for each in enforcement.get("steps") or [])


class GPUWorkloadBudgetSpec(Spec, frozen=True, kw_only=True):
    """A rolling-window budget for the pods that the selector matches."""

    selector: Annotated[LabelSelector, Meta(description="Which pods the budget counts; must not be empty.")]
    namespace_selector: Annotated[
        LabelSelector | None,
        Meta(
            description=(
                "Which namespaces the budget covers instead of its own; must not be empty. It has an effect only in the "
                "operator's namespace."
            )
        ),
    ] = None
    quota: Annotated[
        Quota,
        Meta(description="The GPU-hours and dollars that these pods may use, and the window they are counted in."),
    ]
    enforcement: Annotated[Enforcement, Meta(description="What the budget does at which share of its quota.")]
    gpu_resource_name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=LONGEST_QUALIFIED_NAME,
            pattern=QUALIFIED_NAME,
            description="The resource that is counted; cpu serves clusters without GPUs.",
            extra=extra(PREFIX_LENGTH, hint="a resource name such as nvidia.com/gpu"),
        ),
    ] = DEFAULT_RESOURCE
    gpu_resources: Annotated[
        tuple[GpuResource, ...],
        Meta(
            max_length=MOST_RESOURCES,
            description="The resources that are counted, each with its weight; replaces gpuResourceName.",
            extra=extra(map_key="name"),
        ),
    ] = ()
    accounting: Annotated[
        Literal["Exact", "BestEffort"],
        Meta(
            description=(
                "Exact: a finalizer keeps each pod until its end is in the ledger. BestEffort: a pod that ends and is "
                "deleted while no operator looks is counted with an upper and a lower bound."
            )
        ),
    ] = "BestEffort"
    home_cluster: Annotated[
        str,
        Meta(
            max_length=253,
            description=(
                "The id of the cluster that decides, for a budget that several clusters share; its action must be "
                "AlertOnly or Hold."
            ),
        ),
    ] = ""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel=(
                "!has(self.homeCluster) || self.homeCluster == '' || "
                f"!has(self.enforcement.action) || !(self.enforcement.action in {LOCAL_ACTIONS})"
            ),
            message=f"must be {' or '.join(FLEET_ACTIONS)} when homeCluster is given",
            field="enforcement.action",
            holds=lambda it: not it.get("homeCluster") or it["enforcement"].get("action") not in LOCAL_ACTIONS,
        ),
        Rule(
            cel=(
                "!has(self.homeCluster) || self.homeCluster == '' || !has(self.enforcement.steps) || "
                f"!self.enforcement.steps.exists(s, s.action in {LOCAL_ACTIONS})"
            ),
            message=f"must have no action but {' and '.join(FLEET_ACTIONS)} when homeCluster is given",
            field="enforcement.steps",
            holds=lambda it: not it.get("homeCluster") or not _local_steps(it["enforcement"]),
        ),
    )


class Forecast(ApiType, frozen=True, kw_only=True):
    """What becomes of the quota if the current pods end when they declare, and all others keep running."""

    exhausted_at: Annotated[str, Meta(description="When the budget goes over quota; absent if it never does.")] = ""
    recovers_at: Annotated[
        str, Meta(description="When the budget is back under quota; absent if it is under quota, or stays over it.")
    ] = ""
    exhausted_at_if_nothing_ends: Annotated[
        str,
        Meta(
            description="When it would go over quota if no current pod ended by itself; absent where that changes nothing."
        ),
    ] = ""
    recovers_at_if_nothing_ends: Annotated[
        str,
        Meta(
            description="When it would be back under quota if no current pod ended by itself; absent where that changes nothing."
        ),
    ] = ""


class TopPod(ApiType, frozen=True, kw_only=True):
    """A pod that used much."""

    pod: Annotated[str, Meta(description="The pod, namespace/name.")]
    gpu_hours: Annotated[str, Meta(description="GPU-hours it used inside the window.")]
    usd: Annotated[str, Meta(description="Dollars it cost; absent if its price is unknown.")] = ""


class Following(ApiType, frozen=True, kw_only=True):
    """Whose verdict a budget follows that spans clusters and is decided in another one."""

    cluster: Annotated[str, Meta(description="The home cluster, which decides.")]
    holding: Annotated[bool, Meta(description="It last reported that new pods are queued.")] = False
    since: Annotated[str, Meta(description="Since when; absent if they do not.")] = ""
    stale: Annotated[
        bool, Meta(description="It has not reported for two minutes, or never: nothing is released meanwhile.")
    ] = False


class RoundedUsage(ApiType, frozen=True, kw_only=True):
    """The same numbers for people, rounded: what `kubectl get` shows."""

    consumed_gpu_hours: Annotated[str, Meta(description="GPU-hours used inside the window.")] = ""
    remaining_gpu_hours: Annotated[str, Meta(description="What is left of the quota.")] = ""
    burn_rate_gpus: Annotated[str, Meta(description="GPUs allocated now.")] = ""
    consumed_usd: Annotated[str, Meta(description="Dollars spent inside the window.")] = ""


class GPUWorkloadBudgetStatus(Status, frozen=True, kw_only=True):
    """What the budget's pods have used."""

    as_of: Annotated[str, Meta(description="The moment that the numbers are true for.")] = ""
    consumed_gpu_hours: Annotated[str, Meta(description="GPU-hours used inside the window: the lower bound.")] = ""
    upper_gpu_hours: Annotated[
        str, Meta(description="GPU-hours used at most; more than consumedGpuHours where the end of a pod was not seen.")
    ] = ""
    remaining_gpu_hours: Annotated[str, Meta(description="What is left of the quota, never below 0.")] = ""
    burn_rate_gpus: Annotated[
        str, Meta(description="GPUs of the pods that have started, now: the burn rate in GPU-hours per hour.")
    ] = ""
    consumed_usd: Annotated[str, Meta(description="Dollars spent inside the window: the lower bound.")] = ""
    upper_usd: Annotated[str, Meta(description="Dollars spent at most.")] = ""
    remaining_usd: Annotated[str, Meta(description="What is left of the quota in dollars, never below 0.")] = ""
    unpriced_gpu_hours: Annotated[
        str, Meta(description="GPU-hours without a known price; no dollars are counted for them.")
    ] = ""
    rounded: Annotated[
        RoundedUsage | None,
        Meta(description="The same numbers for people, rounded, which is what kubectl's columns show."),
    ] = None
    forecast: Annotated[Forecast | None, Meta(description="When the budget goes over quota, or is back under it.")] = (
        None
    )
    top_pods: Annotated[
        tuple[TopPod, ...], Meta(description="The pods that used most inside the window, the largest first.")
    ] = ()
    tracked_pods: Annotated[int | None, Meta(description="Pods that match the selector and use the resource.")] = None
    last_enforcement_at: Annotated[str, Meta(description="When the budget last suspended or evicted something.")] = ""
    steps: Annotated[
        tuple[EnteredStep, ...],
        Meta(description="The active steps.", extra=extra(map_key="at")),
    ] = ()
    held: Annotated[QueueStatus | None, Meta(description="Pods that are queued until the quota has room for them.")] = (
        None
    )
    released: Annotated[
        tuple[Released, ...],
        Meta(description="What was released recently, with what was judged then, the latest first."),
    ] = ()
    following: Annotated[Following | None, Meta(description="The cluster that decides, where it is another one.")] = (
        None
    )
    victim: Annotated[Victim | None, Meta(description="The gang or pod that is being stopped now.")] = None
    stopped: Annotated[
        tuple[Stopped, ...], Meta(description="What was stopped inside the window, the latest first.")
    ] = ()
    refused: Annotated[
        tuple[RefusedEviction, ...], Meta(description="Pods whose eviction PodDisruptionBudgets refuse.")
    ] = ()
    evictions: Annotated[
        tuple[EvictedOwner, ...], Meta(description="Owners whose pods were evicted, each with how often.")
    ] = ()
    moving: ClassVar[frozenset[str]] = frozenset(
        {
            "as_of",
            "consumed_gpu_hours",
            "upper_gpu_hours",
            "remaining_gpu_hours",
            "consumed_usd",
            "upper_usd",
            "remaining_usd",
            "unpriced_gpu_hours",
            "rounded",
            "forecast",
            "top_pods",
            "held",
        }
    )


class GPUWorkloadBudget:
    """The kind as a whole."""

    kind: ClassVar[Kind] = Kind(
        name="GPUWorkloadBudget",
        plural="gpuworkloadbudgets",
        short_names=("gwb", "gwbs"),
        namespaced=True,
        spec=GPUWorkloadBudgetSpec,
        status=GPUWorkloadBudgetStatus,
        columns=(
            Column("Consumed", ".status.rounded.consumedGpuHours"),
            Column("Remaining", ".status.rounded.remainingGpuHours"),
            Column("Window", ".spec.quota.windowHours", "integer"),
            Column("Action", ".spec.enforcement.action"),
            Column("Pods", ".status.trackedPods", "integer"),
            Column("Burn", ".status.rounded.burnRateGpus", wide=True),
            Column("Exhausted", ".status.forecast.exhaustedAt", wide=True),
            Column("USD", ".status.rounded.consumedUsd", wide=True),
            READY_COLUMN,
            AGE_COLUMN,
        ),
    )
