"""What an offer costs in the end: its price, corrected for launches that fail and machines that are interrupted."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from headroom.model import times

MILLION: Final = 1_000_000
MOST_FAILED: Final = 900_000
"""The largest share of failed launches that is believed, so that an offer never gets an infinite cost."""

INTERRUPTIONS: Final = (100_000, 50_000, 20_000, 10_000, 5_000, 2_000, 1_000, 500, 200, 100)
"""Assumed interruptions by placement score 1 to 10, in millionths per machine-hour: one in ten hours down to one in 10,000."""
FAILED: Final = (600_000, 450_000, 300_000, 200_000, 120_000, 80_000, 50_000, 30_000, 20_000, 10_000)
"""Assumed share of launches that fail by placement score 1 to 10, in millionths."""
UNKNOWN_SCORE: Final = 5
"""An offer without a score is assumed to be like one with this score."""
ON_DEMAND_FAILED: Final = 20_000

PRIOR_MACHINE_MS: Final = 200 * times.HOUR
"""How much own experience weighs as much as the assumption: 200 machine-hours for interruptions, 10 launches for failures."""
PRIOR_LAUNCHES: Final = 10


class Risk(Struct, frozen=True):
    """What to expect of an offer beyond its price."""

    interruptions: int
    """Millionths per machine-hour."""
    failed: int
    """Millionths of launches that fail, at most 900,000."""


def risk_of(
    score: int | None,
    *,
    spot: bool,
    launches: int = 0,
    failures: int = 0,
    interruptions: int = 0,
    machine_ms: int = 0,
) -> Risk:
    """The assumption for a placement score, corrected by what was seen: launches, failed ones, interruptions and machine time.

    The scores and rates are assumptions of ours: AWS publishes no rates for its scores. With 10 launches or 200 machine-hours, what was
    seen counts as much as what was assumed.
    """
    place = min(max(UNKNOWN_SCORE if score is None else score, 1), 10) - 1
    launches = max(launches, failures)
    assumed = FAILED[place] if spot else ON_DEMAND_FAILED
    failed = (assumed * PRIOR_LAUNCHES + failures * MILLION) // (PRIOR_LAUNCHES + launches)
    if not spot:
        return Risk(interruptions=0, failed=min(failed, MOST_FAILED))
    seen = INTERRUPTIONS[place] * PRIOR_MACHINE_MS + interruptions * MILLION * times.HOUR
    return Risk(interruptions=seen // (PRIOR_MACHINE_MS + machine_ms), failed=min(failed, MOST_FAILED))


def cost_of(price: int, gpus: int, risk: Risk, restart_ms: int) -> int:
    """Millionths of a dollar for each useful GPU-hour, rounded up.

    `price` is in millionths of a dollar per machine-hour, `gpus` in millionths of a GPU. Each interruption loses `restart_ms` of work;
    each failed launch is tried again.
    """
    work = MILLION * times.HOUR
    dividend = price * MILLION * MILLION * (work + risk.interruptions * restart_ms)
    return -(-dividend // (gpus * work * (MILLION - risk.failed)))
