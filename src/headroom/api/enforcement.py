"""What a budget does as its quota is used up: the steps of the ladder, and what its status remembers of them."""

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
    "AlertOnly: only an event. Pause: annotations for a controller that cooperates. Hold: new pods wait. "
    "Suspend: the owners of the pods are suspended. Evict: pods are evicted. All but AlertOnly need the right to enforce."
)


def percent(at: str) -> int:
    """The number in `80%`."""
    return int(at[:-1])


class Step(ApiType, frozen=True, kw_only=True):
    """One step of the ladder."""

    at: Annotated[
        str,
        Meta(
            min_length=2,
            max_length=4,
            pattern=PERCENT,
            description="How much of the quota must be used for the step to begin, for example 80%. It ends 5 points below.",
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
                    "If absent they stay, and the status names the PodDisruptionBudget. Only for Evict."
                )
            ),
        ]
        | None
    ) = None
    grace_for_disruption_budgets: (
        Annotated[str, length(f"How long evictions must have been refused before that; {PDB_GRACE} if absent.")] | None
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
    """What happens as the quota is used up."""

    action: Annotated[Action | None, Meta(description=f"What happens at 100% of the quota. {_ACTIONS}")] = None
    steps: Annotated[
        tuple[Step, ...],
        Meta(
            max_length=MOST_STEPS,
            description="Several steps, the lowest first; they stand instead of action.",
            extra=extra(map_key="at"),
        ),
    ] = ()
    grace_period_seconds: Annotated[
        int,
        Meta(
            ge=0,
            le=7 * 86400,
            description="How long the quota must have been exceeded, or a step below it have stood, before anything is done.",
        ),
    ] = 30
    release_horizon: Annotated[
        str,
        length("How long a pod that declares no length is taken to run when it is asked whether it may start."),
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
                "Who goes first. LeastLost: lowest priority, then least work lost, then most GPUs. "
                "WorstOffender: who used most in the window."
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
            message="must have action, for 100% of the quota alone, or steps, for several shares of it",
            holds=lambda it: "action" in it or bool(it.get("steps")),
        ),
        Rule(
            cel="!has(self.action) || !has(self.steps) || self.steps.size() == 0",
            message="must be left out where there are steps: write it as one of them, at 100%",
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
    def ladder(self) -> tuple[Step, ...]:
        """The steps, also where there is only one action."""
        return self.steps or (Step(at="100%", action=self.action or HARMLESS),)


# --- what the status remembers ------------------------------------------------------------------------------------------------


class EnteredStep(ApiType, frozen=True, kw_only=True):
    """A step that has begun and has not ended."""

    at: Annotated[str, Meta(description="Where it begins.")]
    action: Annotated[str, Meta(description="What it does.")]
    since: Annotated[str, Meta(description="When it began.")]


class QueuedUnit(ApiType, frozen=True, kw_only=True):
    """A gang or a pod that waits."""

    unit: Annotated[str, Meta(description="Kind/namespace/name of the gang or the pod.")]
    gpus: Annotated[str, Meta(description="GPUs that it asks for.")]
    pods: Annotated[int, Meta(description="Its pods that wait.")] = 0
    since: Annotated[str, Meta(description="Since when it waits.")] = ""
    starts_at: Annotated[
        str, Meta(description="When it may start, if what runs goes on; absent if that is not known.")
    ] = ""
    state: Annotated[
        Literal["Waiting", "Reserved", "NeverFits", "Releasing"],
        Meta(description="Reserved: its start is kept free. NeverFits: alone it exceeds the quota."),
    ] = "Waiting"


class Held(ApiType, frozen=True, kw_only=True):
    """What waits for this budget."""

    units: Annotated[int, Meta(description="Gangs and single pods that wait.")] = 0
    pods: Annotated[int, Meta(description="Pods that wait.")] = 0
    queue: Annotated[tuple[QueuedUnit, ...], Meta(description="The first of them, the oldest first.")] = ()


class Released(ApiType, frozen=True, kw_only=True):
    """An owner or a pod that was released, and what was judged then: so much of it starts without waiting again, and no more."""

    owner: Annotated[str, Meta(description="Kind/namespace/name of the owner, or of the pod.")]
    uid: Annotated[str, Meta(description="Its uid.")]
    at: Annotated[str, Meta(description="When it was released.")]
    until: Annotated[str, Meta(description="When what was judged is over; what comes later is new demand.")]
    declared: Annotated[
        bool,
        Meta(description="Its pods declare how long they run, and only those that end by then start without waiting."),
    ] = False
    gpus: Annotated[str, Meta(description="GPUs that it may have at once.")]
    usd_per_hour: Annotated[
        str, Meta(description="Dollars an hour that it may cost; absent without a quota of dollars.")
    ] = ""
    used_gpus: Annotated[str, Meta(description="GPUs of its pods that were let start and have not ended.")] = ""
    request: Annotated[
        str, Meta(description="The ReleaseRequest that asked for it, namespace/name; absent if it was its turn.")
    ] = ""


class Victim(ApiType, frozen=True, kw_only=True):
    """The gang or pod that is being stopped. No other one is taken before it is seen to go."""

    unit: Annotated[str, Meta(description="Kind/namespace/name of the gang or the pod.")]
    action: Annotated[str, Meta(description="Suspend or Evict.")]
    at: Annotated[str, Meta(description="When it was chosen.")]
    uids: Annotated[tuple[str, ...], Meta(description="Uids of its pods.")] = ()
    pods: Annotated[tuple[str, ...], Meta(description="The first of its pods, namespace/name.")] = ()
    owner: Annotated[str, Meta(description="Who would make it anew, Kind/namespace/name.")] = ""
    by: Annotated[str, Meta(description="The budget that stops it, where it is another one that counts it too.")] = ""


class RefusedEviction(ApiType, frozen=True, kw_only=True):
    """Pods whose evictions PodDisruptionBudgets refuse."""

    unit: Annotated[str, Meta(description="Kind/namespace/name of the gang or the pod.")]
    since: Annotated[str, Meta(description="Since when.")]
    by: Annotated[tuple[str, ...], Meta(description="The PodDisruptionBudgets, namespace/name.")] = ()
    uids: Annotated[tuple[str, ...], Meta(description="Uids of the pods.")] = ()
    pods: Annotated[tuple[str, ...], Meta(description="The first of these pods, namespace/name.")] = ()
    deleted_at: Annotated[
        str, Meta(description="When they are deleted, if evictions are refused until then; absent if they are not.")
    ] = ""


class EvictedOwner(ApiType, frozen=True, kw_only=True):
    """An owner of pods that were evicted, and that may make them anew."""

    owner: Annotated[str, Meta(description="Kind/namespace/name.")]
    count: Annotated[int, Meta(description="How often inside the window.")]
    last: Annotated[str, Meta(description="When last.")]
    moments: Annotated[tuple[str, ...], Meta(description="When, each time inside the window; the last ten.")] = ()


class Stopped(ApiType, frozen=True, kw_only=True):
    """A gang or pod that was stopped, or that could not be."""

    unit: Annotated[str, Meta(description="Kind/namespace/name of the gang or the pod.")]
    action: Annotated[str, Meta(description="Suspend or Evict.")]
    at: Annotated[str, Meta(description="When.")]
    pods: Annotated[tuple[str, ...], Meta(description="The first of its pods, namespace/name.")] = ()
    by: Annotated[str, Meta(description="The budget that stopped it, where it is another one that counts it too.")] = ""
    owner: Annotated[str, Meta(description="Who would make it anew, Kind/namespace/name.")] = ""
    outcome: Annotated[
        str, Meta(description="Stopped, Blocked if it would not go, or Unknown if nobody saw why it went.")
    ] = "Stopped"
