"""What people see of each capability, by the kind of its resources.

The other half of `Capability` in `core/__init__.py`, which may not know of screens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headroom.cli import face_bandwidth, face_budgets, face_offers, face_power, face_spot
from headroom.cli.face import Face

if TYPE_CHECKING:
    from headroom.cli.face import NamedPart
    from headroom.runtime.metrics import Metrics
    from headroom.web.page import Page

FACES: Final = {
    "GPUWorkloadBudget": face_budgets.FACE,
    "PowerPool": face_power.FACE,
    "Spotpool": face_spot.FACE,
    "LeftoverNodePool": face_offers.FACE,
    "Bandwidth": face_bandwidth.FACE,
}
PARTS: Final[dict[str, NamedPart]] = {part.name: part for face in FACES.values() for part in face.parts}
_PLAIN: Final = Face()


def face_of(kind: str) -> Face:
    """How people see a kind."""
    return FACES.get(kind, _PLAIN)


def pages() -> tuple[Page, ...]:
    """All pages of the dashboard, in the order of the navigation."""
    from headroom.web.pages import FIRST, LAST

    return (*FIRST, *(page for face in FACES.values() for page in face.pages()), *LAST)


def measured(metrics: Metrics) -> Metrics:
    """The metrics of an operator, from now on with those of all capabilities."""
    metrics.add(face.metrics for face in FACES.values() if face.metrics is not None)
    return metrics
