"""The outcome of one policy as data: hours, dollars, waits, evictions and suspensions, and the lines of the charts."""

from __future__ import annotations

from msgspec import Struct


class ReportPart(Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the result in the form for programs."""


class Waits(ReportPart, frozen=True, kw_only=True):
    """Waits of work for its first machine, in seconds; work that never got one is left out."""

    median: float | None = None
    p95: float | None = None
    longest: float | None = None


class Sums(ReportPart, frozen=True, kw_only=True):
    """The sums of some work."""

    gpu_hours: float
    usd: float | None
    """None where some of it has no price."""
    unpriced_gpu_hours: float
    asked: int
    """Requested pods."""
    never_started: int
    finished: int
    queued: int
    """Pods queued by any budget."""
    waits: Waits
    evictions: int
    suspended_pods: int
    lost_gpu_hours: float
    """Work lost in this period with pods that were stopped before they were done."""
    counted_gpu_hours: float
    """Usage that was not lost: the work that counted."""


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
    """Whether it counted, queued or stopped any pod."""
    gpu_hours: float
    """Its usage in the whole period."""
    recorded_gpu_hours: float
    """The same in the record."""
    peak_share: float | None
    """The peak share of its quota, 1 being all of it; with two quotas, of the fuller one."""
    hours_over: float
    """How long usage was over the quota, or over one of both."""
    held: int
    released: int
    evictions: int
    suspensions: int
    pauses: int


class ChartLines(ReportPart, frozen=True, kw_only=True):
    """The lines of the charts: a value for each moment, in seconds since 1970."""

    moments: list[float]
    gpus_held: list[float]
    waiting: list[float]
    machines_on: list[float]
    budgets: dict[str, list[float]]
    """Usage in the window of each budget with a quota in GPU-hours."""
    budgets_usd: dict[str, list[float]]
    """The same for budgets with a quota in dollars."""


class PolicyOutcome(ReportPart, frozen=True, kw_only=True):
    """Everything about one policy."""

    total: Sums
    mean_gpus: float
    peak_gpus: float
    held: int
    """Pods queued by budgets."""
    released: int
    suspensions: int
    evictions: int
    pauses: int
    wakes: int
    sleeps: int
    machine_hours: float | None
    """Machine-hours powered on; None without machines."""
    energy_kwh: float | None
    """Energy used by PowerPool machines of known wattage."""
    saved_kwh: float | None
    """Energy they would have used idle while they were off."""
    switches: int
    """Switches of machines and node pools: sleeps, wakes, and writes of node pools."""
    actions: dict[str, int]
    teams: list[OfTeam]
    budgets: list[OfBudget]
    lines: ChartLines
    passes: int
    """How often the plans were asked."""
