"""GPUWorkloadBudget: how many GPU-hours the pods of a team may use in a rolling window, and what happens beyond."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from headroom.api.quantities import CEL_MATCHES, MAX_LENGTH, PATTERN, Invalid, nano
from headroom.api.resources import (
    AGE_COLUMN,
    PREFIX_LENGTH,
    QUALIFIED_NAME,
    READY_COLUMN,
    ApiType,
    Column,
    Kind,
    LabelSelector,
    Spec,
    Status,
)
from headroom.api.schema import Rule, extra, matches, quantity

LARGEST_GPU_HOURS: Final = 10**9
LONGEST_WINDOW_HOURS: Final = 24 * 366


def _is_positive_amount(value: str | int) -> bool:
    if isinstance(value, str) and (len(value) > MAX_LENGTH or not matches(PATTERN, value)):
        return True  # no quantity at all, which is said already
    amount = nano(value, largest=LARGEST_GPU_HOURS)
    return not isinstance(amount, Invalid) and amount > 0


class Quota(ApiType, frozen=True, kw_only=True):
    """The cap and the window it holds for."""

    gpu_hours: Annotated[
        str | int,
        quantity(
            "GPU-hours that may be used inside the window, for example 100 or 2.5.",
            Rule(
                cel=(
                    f"!{CEL_MATCHES} || (quantity(string(self)).isGreaterThan(quantity('0')) && "
                    f"!quantity(string(self)).isGreaterThan(quantity('{LARGEST_GPU_HOURS}')))"
                ),
                message=f"must be more than 0 and at most {LARGEST_GPU_HOURS}",
                holds=_is_positive_amount,
            ),
        ),
    ]
    window_hours: Annotated[
        int, Meta(ge=1, le=LONGEST_WINDOW_HOURS, description="Length of the rolling window that ends now, in hours.")
    ]


class Enforcement(ApiType, frozen=True, kw_only=True):
    """What happens when the quota is reached."""

    action: Annotated[
        Literal["AlertOnly", "Pause", "Evict"],
        Meta(
            description="AlertOnly: only an event. Pause: annotations for a controller that cooperates. Evict: pods are evicted."
        ),
    ]
    grace_period_seconds: Annotated[
        int, Meta(ge=0, le=7 * 86400, description="How long the quota must have been exceeded before anything is done.")
    ] = 30


class GPUWorkloadBudgetSpec(Spec, frozen=True, kw_only=True):
    """A rolling-window budget for the pods of one namespace that the selector matches."""

    selector: Annotated[LabelSelector, Meta(description="Which pods of the namespace the budget counts; never empty.")]
    quota: Annotated[
        Quota, Meta(description="The GPU-hours that these pods may use, and the window they are counted in.")
    ]
    enforcement: Annotated[Enforcement, Meta(description="What happens once the quota is used up.")]
    gpu_resource_name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=317,
            pattern=QUALIFIED_NAME,
            description="The resource that is counted; cpu serves clusters without GPUs.",
            extra=extra(PREFIX_LENGTH, hint="a resource name such as nvidia.com/gpu"),
        ),
    ] = "nvidia.com/gpu"


class GPUWorkloadBudgetStatus(Status, frozen=True, kw_only=True):
    """What the budget's pods have used."""

    consumed_gpu_hours: Annotated[str, Meta(description="GPU-hours used inside the window, exact.")] = ""
    remaining_gpu_hours: Annotated[str, Meta(description="What is left of the quota, never below 0.")] = ""
    tracked_pods: Annotated[
        int | None, Meta(description="Pods that the selector matches and that use the resource.")
    ] = None
    last_enforcement_at: Annotated[str, Meta(description="When the action was last really taken.")] = ""


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
            Column("Consumed", ".status.consumedGpuHours"),
            Column("Remaining", ".status.remainingGpuHours"),
            Column("Window", ".spec.quota.windowHours", "integer"),
            Column("Action", ".spec.enforcement.action"),
            Column("Pods", ".status.trackedPods", "integer"),
            READY_COLUMN,
            AGE_COLUMN,
        ),
    )
