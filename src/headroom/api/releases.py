"""ReleaseRequest: somebody asks the operator to release what a budget queues, before the quota has room for it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from headroom.api.enforcement import Released
from headroom.api.resources import AGE_COLUMN, IMMUTABLE, READY_COLUMN, ApiType, Column, Kind, Spec, Status
from headroom.api.schema import Rule, extra

LONGEST_REASON: Final = 256
LONGEST_USER: Final = 1024
MOST_TARGETS: Final = 5000
"""Pods of one gang that one request releases at most."""
MOST_RECORDS: Final = 1000
"""Owners and budgets of which one request remembers what was judged."""

Phase = Literal["Pending", "Releasing", "Done", "Refused"]
FINISHED: Final[tuple[Phase, ...]] = ("Done", "Refused")
Why = Literal[
    "",
    "Stopped",
    "Paused",
    "ViewIncomplete",
    "LedgerUntrusted",
    "PoliciesMissing",
    "GangForming",
    "DemandUnknown",
    "Looking",
    "Releasing",
    "Released",
    "NothingQueued",
    "NotQueuedByBudget",
    "QueuedByOthers",
    "RequesterUnknown",
    "SeveralOwners",
    "TooManyPods",
    "TooManyRequests",
    "Expired",
]


BudgetName = Annotated[
    str,
    Meta(
        max_length=317,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
        extra=extra(hint="a budget such as lab/team-a"),
    ),
]


class ReleaseTarget(ApiType, frozen=True, kw_only=True):
    """What is released: a pod, or an owner or gang with all its queued pods."""

    kind: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=63,
            pattern=r"^[A-Z][A-Za-z0-9]*$",
            description=(
                "Pod, Job, JobSet, Workload (of Kueue) or PodGroup; or the kind of another gang, as `status.held.queue` of "
                "its budget names it."
            ),
            extra=extra(hint="a kind such as Pod, Job, JobSet, Workload or PodGroup"),
        ),
    ]
    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$",
            description="Its name, in the namespace of the request.",
            extra=extra(hint="the name of a pod, of an owner of pods or of a gang"),
        ),
    ]
    uid: Annotated[
        str,
        Meta(
            max_length=128,
            description="Only this object, never another one of the same name; empty for any.",
        ),
    ] = ""
    generation: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)] | None,
        Meta(
            description=(
                "Of a Job, JobSet or Workload that Headroom suspended: its `metadata.generation`, so that it is not resumed if it "
                "changed since. Unset for any generation."
            ),
        ),
    ] = None


class ReleaseRequestSpec(Spec, frozen=True, kw_only=True):
    """Release what is queued now, once; the operator carries it out. None of it can be changed later."""

    target: Annotated[
        ReleaseTarget, Meta(description="What is released: a pod, or an owner or gang with all its queued pods.")
    ]
    budget: Annotated[
        BudgetName | None,
        Meta(
            description=(
                "Release only from this budget, namespace/name; refused if another budget queues it too. Unset: from every budget."
            )
        ),
    ] = None
    reason: Annotated[
        str,
        Meta(
            max_length=LONGEST_REASON,
            pattern=r"^[^\x00-\x1f\x7f]*$",
            description="Why it is released, in one line.",
            extra=extra(hint="one line of text"),
        ),
    ] = ""
    requested_by: Annotated[
        str,
        Meta(
            max_length=LONGEST_USER,
            description="The requester. The API server sets it to the user who creates the request.",
        ),
    ] = ""
    rules: ClassVar[tuple[Rule, ...]] = (IMMUTABLE,)


class BudgetRelease(ApiType, frozen=True, kw_only=True):
    """What was judged of a release for one budget."""

    budget: Annotated[str, Meta(description="The budget, namespace/name.")]
    release: Annotated[Released, Meta(description="Whose pods were released, and how much of the budget they take.")]


class ReleaseRequestStatus(Status, frozen=True, kw_only=True):
    """What became of it."""

    phase: Annotated[Phase, Meta(description="The phase of the request. Done and Refused are final.")] = "Pending"
    reason: Annotated[Why, Meta(description="Why, as one word.")] = ""
    message: Annotated[str, Meta(max_length=4096, description="Why, as a sentence.")] = ""
    judged_at: Annotated[
        str, Meta(max_length=64, description="When the set of released pods was fixed; later pods are not included.")
    ] = ""
    finished_at: Annotated[
        str, Meta(max_length=64, description="When it was done or refused; the request is removed an hour later.")
    ] = ""
    pods_released: Annotated[int | None, Meta(description="Queued pods that were released.")] = None
    budgets: Annotated[
        tuple[str, ...], Meta(max_length=64, description="The budgets that queued it, namespace/name.")
    ] = ()
    targets: Annotated[
        tuple[str, ...],
        Meta(max_length=MOST_TARGETS, description="Kind/uid of each pod and owner that is being released."),
    ] = ()
    released: Annotated[
        tuple[BudgetRelease, ...],
        Meta(
            max_length=MOST_RECORDS,
            description="What was judged, for each budget; once it is done, the budget's `status.released` takes it over.",
        ),
    ] = ()


class ReleaseRequest:
    """The kind as a whole."""

    kind: ClassVar[Kind] = Kind(
        name="ReleaseRequest",
        plural="releaserequests",
        short_names=("rr",),
        namespaced=True,
        spec=ReleaseRequestSpec,
        status=ReleaseRequestStatus,
        columns=(
            Column("Kind", ".spec.target.kind"),
            Column("Target", ".spec.target.name"),
            Column("By", ".spec.requestedBy"),
            Column("Phase", ".status.phase"),
            Column("Reason", ".status.reason"),
            Column("Pods", ".status.podsReleased", "integer"),
            READY_COLUMN,
            AGE_COLUMN,
        ),
        needed=False,
    )
