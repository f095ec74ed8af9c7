"""What came of one policy, as data: hours, dollars, waits, what was done to pods, and the lines to draw."""

from __future__ import annotations

from msgspec import Struct


class ReportPart(Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the result as programs read it."""


class Waits(ReportPart, frozen=True, kw_only=True):
    """How long work waited for its first machine, in seconds; work that never got one is not in it."""

    median: float | None = None
    p95: float | None = None
    longest: float | None = None


class Sums(ReportPart, frozen=True, kw_only=True):
    """What some work came to."""

    gpu_hours: float
    usd: float | None
    """None where some of it has no price."""
    unpriced_gpu_hours: float
    asked: int
    """Pods that somebody asked for."""
    never_started: int
    finished: int
    queued: int
    """Pods that some budget queued."""
    waits: Waits
    evictions: int
    suspended_pods: int
    lost_gpu_hours: float
    """Thrown away in this time, with what was stopped before it was done."""
    counted_gpu_hours: float
    """What was used and not lost: the work that counted."""


class OfTeam(ReportPart, frozen=True, kw_only=True):
    """One team."""

    team: str
    sums: Sums


class OfBudget(ReportPart, frozen=True, kw_only=True):
    """One budget."""

    budget: str
    quota_gpu_hours: float | None
    quota_usd: float | None
    window_hours: int
    counts_pods: bool
    """Whether there was a pod at all that it counted, held or stopped."""
    gpu_hours: float
    """What it counts, in the whole time."""
    recorded_gpu_hours: float
    """The same by the record itself."""
    peak_share: float | None
    """The most of its quota that was used at once, 1 being all of it; of two quotas the one that was used more."""
    hours_over: float
    """For how long its quota was exceeded, or one of both."""
    held: int
    released: int
    evictions: int
    suspensions: int
    pauses: int


class ChartLines(ReportPart, frozen=True, kw_only=True):
    """What to draw: a value for each moment, which are seconds since 1970."""

    moments: list[float]
    gpus_held: list[float]
    waiting: list[float]
    machines_on: list[float]
    budgets: dict[str, list[float]]
    """What the window of each budget with a quota of GPU-hours held."""
    budgets_usd: dict[str, list[float]]
    """And of each with a quota of dollars, in dollars."""


class PolicyOutcome(ReportPart, frozen=True, kw_only=True):
    """Everything about one policy."""

    total: Sums
    mean_gpus: float
    peak_gpus: float
    held: int
    """Pods that had to wait for a budget."""
    released: int
    suspensions: int
    evictions: int
    pauses: int
    wakes: int
    sleeps: int
    machine_hours: float | None
    """Hours that machines were on, all added up; None where there are none."""
    energy_kwh: float | None
    """What those of PowerPools drew whose watts are known."""
    saved_kwh: float | None
    """What they would have drawn idle while they were off."""
    switches: int
    """Machines and node pools switched over: sleeping, waking, and node pools written."""
    actions: dict[str, int]
    teams: list[OfTeam]
    budgets: list[OfBudget]
    lines: ChartLines
    passes: int
    """How often the plans were asked."""
