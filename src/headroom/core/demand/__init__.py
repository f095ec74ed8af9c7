"""Demand: which waiting pods really need a machine. One model for every capability that makes capacity.

`wanted` says which pods are pending, `rooms` what there is, `place` who fits where and who is left, `choose` what to open for them.
"""

from __future__ import annotations

from headroom.core.demand.announcing import LATE_MS, Presence
from headroom.core.demand.choosing import by_urgency, cheapest_alike, choose, expand, impossible
from headroom.core.demand.claims import devices_on, with_devices
from headroom.core.demand.constraints import constraints_of, unmatched, untolerated
from headroom.core.demand.cron import first_run, problem_of
from headroom.core.demand.digests import digest_of
from headroom.core.demand.existing import coming_claim, reopened, returning, rooms, started
from headroom.core.demand.fitting import why_not
from headroom.core.demand.karpenter import served_by_karpenter, served_words
from headroom.core.demand.placing import place
from headroom.core.demand.resources import RoomResources
from headroom.core.demand.units import (
    OF_GANGS,
    VERDICT_MS,
    Announcer,
    Candidate,
    Chosen,
    LeftOut,
    PendingPods,
    Placed,
    Room,
    SchedulerVerdict,
    Unit,
    Wanted,
)
from headroom.core.demand.waiting import may_be_wanted, wanted

__all__ = [
    "LATE_MS",
    "OF_GANGS",
    "VERDICT_MS",
    "Announcer",
    "Candidate",
    "Chosen",
    "LeftOut",
    "PendingPods",
    "Placed",
    "Presence",
    "Room",
    "RoomResources",
    "SchedulerVerdict",
    "Unit",
    "Wanted",
    "by_urgency",
    "cheapest_alike",
    "choose",
    "coming_claim",
    "constraints_of",
    "devices_on",
    "digest_of",
    "expand",
    "first_run",
    "impossible",
    "may_be_wanted",
    "place",
    "problem_of",
    "reopened",
    "returning",
    "rooms",
    "served_by_karpenter",
    "served_words",
    "started",
    "unmatched",
    "untolerated",
    "wanted",
    "why_not",
    "with_devices",
]
