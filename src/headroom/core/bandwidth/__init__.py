"""Bandwidth: what each node's links carry and who holds it.

`rates` reads what pods ask for, `groups` says who belongs together, `explaining` what people read of one pod. Extender mode: `asks`,
`holds` and `placement` say where a pod may go, `refusals` why not, `touching` whom to bring back. `rooms` says what machines to come will have
for pods that are pending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headroom.core.bandwidth.asks import ask_of
from headroom.core.bandwidth.capacity import MachineTypes, capacity_of, unreadable_annotations
from headroom.core.bandwidth.configuring import rules_with
from headroom.core.bandwidth.explaining import notes, says_something
from headroom.core.bandwidth.groups import is_together
from headroom.core.bandwidth.holds import FourRates, PodAsk
from headroom.core.bandwidth.native import Attestation, attestation
from headroom.core.bandwidth.placement import FilterAnswer, Placement
from headroom.core.bandwidth.plan import KIND, PLAN
from headroom.core.bandwidth.rates import (
    Malformed,
    asked_by,
    parse_pair,
    parse_rate,
)
from headroom.core.bandwidth.refusals import NodeRefusal, refusal_sentence
from headroom.core.bandwidth.telling import amounts_of, unreadable
from headroom.core.bandwidth.touching import TOUCHED_AT_ONCE, Touch, Touching
from headroom.model.world import World

if TYPE_CHECKING:
    from headroom.core.demand import RoomResources

__all__ = [
    "KIND",
    "PLAN",
    "TOUCHED_AT_ONCE",
    "Attestation",
    "FilterAnswer",
    "FourRates",
    "MachineTypes",
    "Malformed",
    "NodeRefusal",
    "Placement",
    "PodAsk",
    "Touch",
    "Touching",
    "amounts_of",
    "ask_of",
    "asked_by",
    "attestation",
    "capacity_of",
    "is_together",
    "notes",
    "parse_pair",
    "parse_rate",
    "refusal_sentence",
    "room_links",
    "rules_with",
    "says_something",
    "unreadable",
    "unreadable_annotations",
]


def room_links(world: World) -> RoomResources | None:
    """The links of machines as resources of a room; None where pods are not placed by them."""
    if world.bandwidth.mode == "Off":
        return None
    from headroom.core.bandwidth.rooms import RoomLinks  # noqa: PLC0415  loaded once pods are placed by it

    return RoomLinks(world)
