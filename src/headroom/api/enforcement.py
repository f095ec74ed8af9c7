"""What a budget does at which share of its quota: its enforcement steps, and what its status remembers of them."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, get_args

from msgspec import Meta

from headroom.api.durations import length
from headroom.api.resources import ApiType
from headroom.api.schema import Rule, extra

Action = Literal["AlertOnly", "Pause", "Hold", "Suspend", "Evict"]
HARMLESS: Final = "AlertOnly"
"""The one action that touches no pod, and that needs no right to enforce."""
FLEET_ACTIONS: Final = (HARMLESS, "Hold")
"""The actions of a budget that is counted over several clusters: neither ends a pod on another cluster's word."""
LOCAL_ACTIONS: Final = [each for each in get_args(Action) if each not in FLEET_ACTIONS]
MOST_STEPS: Final = 8
PERCENT: Final = r"^[1-9][0-9]{0,2}%$"
EVICTIONS_PER_MINUTE: Final = 10
RELEASE_HORIZON: Final = "1h"
PDB_GRACE: Final = "10m"

_ACTIONS: Final = (
    "AlertOnly: only an event. Pause: annotations for a controller that cooperates. Hold: new pods are queued. "
    "Suspend: the owners of the pods are suspended. Evict: pods are evicted. All but AlertOnly need the right to enforce."
)


def percent(at: str) -> int:
    """The number in `80%`."""
    return int(at[:-1])


class EnforcementStep(ApiType, frozen=True, kw_only=True):
    """One step of the ladder."""

    at: Annotated[
        str,
        Meta(
            min_length=2,
            max_length=4,
            pattern=PERCENT,
            description="The share of the quota at which the step becomes active, for example 80%. It is cleared 5 points below.",
            extra=extra(hint="a whole percentage from 1% to 999%, such as 80%"),
        ),
    ]
    action: Annotated[Action, Meta(description=_ACTIONS)]
    after_deadline: (
        Annotated[
            Literal["Delete"],
            Meta(
                description=(
                    "Delete: pods whose evictions PodDisruptionBudgets have refused for graceForDisruptionBudgets are deleted. "
                    "If absent, they keep running and the status names the PodDisruptionBudget. Only for Evict."
                )
            ),
        ]
        | None
    ) = None
    grace_for_disruption_budgets: (
        Annotated[str, length(f"How long evictions must have been refused before deletion; {PDB_GRACE} if absent.")]
        | None
    ) = None
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!has(self.afterDeadline) || self.action == 'Evict'",
            message="is only for a step with the action Evict",
            field="afterDeadline",
            holds=lambda it: it.get("afterDeadline") is None or it.get("action") == "Evict",
        ),
    )


def _ascending(it: dict[str, list[dict[str, str]]]) -> bool:
    shares = [percent(each["at"]) for each in it.get("steps") or []]
    return shares == sorted(shares)


class Enforcement(ApiType, frozen=True, kw_only=True):
    """What happens at which share of the quota."""

    action: Annotated[Action | None, Meta(description=f"What happens at 100% of the quota. {_ACTIONS}")] = None
    steps: Annotated[
        tuple[EnforcementStep, ...],
        Meta(
            max_length=MOST_STEPS,
            description="Several steps, the lowest first; replaces action.",
            extra=extra(map_key="at"),
        ),
    ] = ()
    grace_period_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=7 * 86400,
            description="Grace period: how long the budget must have been over quota, or a step must have been active, before it takes effect.",
        ),
    ] = 30
    release_horizon: Annotated[
        str,
        length("The assumed duration of pods that declare none, used to decide when a queued pod can be released."),
    ] = RELEASE_HORIZON
    recover_within: (
        Annotated[
            str,
            length("How soon usage must fall below a step that suspends or evicts; a tenth of the window if absent."),
        ]
        | None
    ) = None
    order: Annotated[
        Literal["LeastLost", "WorstOffender"],
        Meta(
            description=(
                "Which pods are stopped first. LeastLost: lowest priority, then least work lost, then most GPUs. "
                "WorstOffender: those that used most in the window."
            )
        ),
    ] = "LeastLost"
    evictions_per_minute: Annotated[
        int,
        Meta(
            ge=1,
            le=600,
            description="How many gangs or pods of this budget are suspended or evicted in a minute at most.",
        ),
    ] = EVICTIONS_PER_MINUTE
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="has(self.action) || (has(self.steps) && self.steps.size() > 0)",
            message="must have action, for 100% of the quota, or steps, for several shares of it",
            holds=lambda it: "action" in it or bool(it.get("steps")),
        ),
        Rule(
            cel="!has(self.action) || !has(self.steps) || self.steps.size() == 0",
            message="cannot be combined with steps: add it as a step at 100%",
            field="action",
            holds=lambda it: "action" not in it or not it.get("steps"),
        ),
        Rule(
            cel=(
                f"!has(self.steps) || self.steps.exists(s, !s.at.matches('{PERCENT}')) || "
                "self.steps.map(s, int(s.at.replace('%', ''))).isSorted()"
            ),
            message="must be in order, the lowest first",
            field="steps",
            holds=_ascending,
        ),
    )

    @property
    def ladder(self) -> tuple[EnforcementStep, ...]:
        """The steps, also where there is only one action."""
        return self.steps or (EnforcementStep(at="100%", action=self.action or HARMLESS),)


# --- what the status remembers ------------------------------------------------------------------------------------------------


class EnteredStep(ApiType, frozen=True, kw_only=True):
    """A step that has begun and has not ended."""

    at: Annotated[str, Meta(description="The share of the quota at which it is active.")]
    action: Annotated[str, Meta(description="What it does.")]
    since: Annotated[str, Meta(description="When it became active.")]


class QueuedUnit(ApiType, frozen=True, kw_only=True):
    """A queued gang or pod."""

    unit: Annotated[str, Meta(description="Kind/namespace/name of the gang or the pod.")]
    gpus: Annotated[str, Meta(description="GPUs that it requests.")]
    pods: Annotated[int, Meta(description="Its queued pods.")] = 0
    since: Annotated[str, Meta(description="Since when it is queued.")] = ""
    starts_at: Annotated[
        str, Meta(description="Estimated start if the current pods keep running; absent if unknown.")
    ] = ""
    state: Annotated[
        Literal["Waiting", "Reserved", "NeverFits", "Releasing"],
        Meta(description="Reserved: no younger pod may delay its start. NeverFits: it exceeds the quota on its own."),
    ] = "Waiting"


class QueueStatus(ApiType, frozen=True, kw_only=True):
    """What waits for this budget."""

    units: Annotated[int, Meta(description="Queued gangs and single pods.")] = 0
    pods: Annotated[int, Meta(description="Queued pods.")] = 0
    queue: Annotated[tuple[QueuedUnit, ...], Meta(description="The first of them, the oldest first.")] = ()


class Released(ApiType, frozen=True, kw_only=True):
    """An owner or a pod that was released, and what was judged then: so much of it starts without waiting again, and no more."""

    owner: Annotated[str, Meta(description="Kind/namespace/name of the owner, or of the pod.")]
    uid: Annotated[str, Meta(description="Its uid.")]
    at: Annotated[str, Meta(description="When it was released.")]
    until: Annotated[str, Meta(description="When the released demand ends; later pods are new demand.")]
    declared: Annotated[
        bool,
        Meta(description="Its pods declare their duration, and only those that end by then start without queueing."),
    ] = False
    gpus: Annotated[str, Meta(description="GPUs that it may have at a time.")]
    usd_per_hour: Annotated[
        str, Meta(description="Dollars an hour that it may cost; absent without a quota of dollars.")
    ] = ""
    used_gpus: Annotated[str, Meta(description="GPUs of its pods that were released and have not ended.")] = ""
    request: Annotated[
        str, Meta(description="The ReleaseRequest that released it, namespace/name; absent if the budget did.")
    ] = ""


class Victim(ApiType, frozen=True, kw_only=True):
    """The gang or pod that is being stopped. No other one is taken before it is seen to go."""

    unit: Annotated[str, Meta(description="Kind/namespace/name of the gang or the pod.")]
    action: Annotated[str, Meta(description="Suspend or Evict.")]
    at: Annotated[str, Meta(description="When it was chosen.")]
    uids: Annotated[tuple[str, ...], Meta(description="Uids of its pods.")] = ()
    pods: Annotated[tuple[str, ...], Meta(description="The first of its pods, namespace/name.")] = ()
    owner: Annotated[str, Meta(description="The owner that would recreate it, Kind/namespace/name.")] = ""
    by: Annotated[str, Meta(description="The budget that stops it, if it is another one that also counts it.")] = ""


class RefusedEviction(ApiType, frozen=True, kw_only=True):
    """Pods whose evictions PodDisruptionBudgets refuse."""

    unit: Annotated[str, Meta(description="Kind/namespace/name of the gang or the pod.")]
    since: Annotated[str, Meta(description="Since when.")]
    by: Annotated[tuple[str, ...], Meta(description="The PodDisruptionBudgets, namespace/name.")] = ()
    uids: Annotated[tuple[str, ...], Meta(description="Uids of the pods.")] = ()
    pods: Annotated[tuple[str, ...], Meta(description="The first of these pods, namespace/name.")] = ()
    deleted_at: Annotated[
        str,
        Meta(description="When they are deleted if evictions are still refused then; absent if they are not deleted."),
    ] = ""


class EvictedOwner(ApiType, frozen=True, kw_only=True):
    """An owner of pods that were evicted, and that may recreate them."""

    owner: Annotated[str, Meta(description="Kind/namespace/name.")]
    count: Annotated[int, Meta(description="How often inside the window.")]
    last: Annotated[str, Meta(description="When it was last evicted.")]
    moments: Annotated[tuple[str, ...], Meta(description="When, each time inside the window; the last ten.")] = ()


class Stopped(ApiType, frozen=True, kw_only=True):
    """A gang or pod that was stopped, or that could not be."""

    unit: Annotated[str, Meta(description="Kind/namespace/name of the gang or the pod.")]
    action: Annotated[str, Meta(description="Suspend or Evict.")]
    at: Annotated[str, Meta(description="When.")]
    pods: Annotated[tuple[str, ...], Meta(description="The first of its pods, namespace/name.")] = ()
    by: Annotated[str, Meta(description="The budget that stopped it, if it is another one that also counts it.")] = ""
    owner: Annotated[str, Meta(description="The owner that would recreate it, Kind/namespace/name.")] = ""
    outcome: Annotated[
        str, Meta(description="Stopped, Blocked if it kept running, or Unknown if the cause of its end was not seen.")
    ] = "Stopped"
