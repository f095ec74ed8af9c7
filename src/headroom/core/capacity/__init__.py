"""Capacity: one round for everything that opens, keeps or closes machines, since all of it competes for the same pending pods.

`supplies` has the words: a capability that brings machines gives a `Supply` for each of its resources. `rounds` places what is pending
in rooms that are ready, `assigning` in those that are coming for it, `opening` opens candidates for the rest, `trials` tries what is
refused, `refusing` tells which rooms are kept for that. `plan` asks all supplies and has each of them settle.
"""

from headroom.core.capacity.opening import may_hold
from headroom.core.capacity.plan import Source, plan_of, round_of
from headroom.core.capacity.refusing import refused_beside, trials_if_closed
from headroom.core.capacity.rounds import Round, declined, guarded, reason, without
from headroom.core.capacity.supplies import (
    Opened,
    Outcome,
    PodAnswer,
    Ration,
    Stage,
    Supply,
    SupplyFailed,
    Terms,
    Trial,
    Why,
)
from headroom.core.capacity.trials import Standing, newest_trials, next_trial_at

__all__ = [
    "Opened",
    "Outcome",
    "PodAnswer",
    "Ration",
    "Round",
    "Source",
    "Stage",
    "Standing",
    "Supply",
    "SupplyFailed",
    "Terms",
    "Trial",
    "Why",
    "declined",
    "guarded",
    "may_hold",
    "newest_trials",
    "next_trial_at",
    "plan_of",
    "reason",
    "refused_beside",
    "round_of",
    "trials_if_closed",
    "without",
]
