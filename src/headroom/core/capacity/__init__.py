"""Capacity: one round for everything that opens, keeps or closes machines, since all of it competes for the same pending pods.

`supplies` has the words: a capability that brings machines gives a `Supply` for each of its resources. `rounds` places what is pending
in rooms that are ready, `assigning` in those that are coming for it, `opening` opens candidates for the rest, `trials` tries what is
refused, `refusing` tells which rooms are kept for that. `plan` asks all supplies and has each of them settle.
"""

from headroom.core.capacity.opening import may_hold
from headroom.core.capacity.plan import SupplySource, decide, round_of
from headroom.core.capacity.refusing import refused_beside, trials_if_closed
from headroom.core.capacity.rounds import CapacityRound, guarded, without
from headroom.core.capacity.serving import declined, reason
from headroom.core.capacity.supplies import (
    OpenedRoom,
    PodAnswer,
    Ration,
    RoomStage,
    Supply,
    SupplyFailed,
    SupplyOutcome,
    SupplyTerms,
    Trial,
    Why,
)
from headroom.core.capacity.trials import TrialRecord, newest_trials, next_trial_at

__all__ = [
    "CapacityRound",
    "OpenedRoom",
    "PodAnswer",
    "Ration",
    "RoomStage",
    "Supply",
    "SupplyFailed",
    "SupplyOutcome",
    "SupplySource",
    "SupplyTerms",
    "Trial",
    "TrialRecord",
    "Why",
    "decide",
    "declined",
    "guarded",
    "may_hold",
    "newest_trials",
    "next_trial_at",
    "reason",
    "refused_beside",
    "round_of",
    "trials_if_closed",
    "without",
]
