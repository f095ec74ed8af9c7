"""What became of one machine of an offer: what clusters that share a ledger tell one another."""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from headroom.model import times

WEEK: Final = 7 * 24 * times.HOUR
KEPT: Final = WEEK + 24 * times.HOUR
"""So long after it was last seen a machine is forgotten."""


class MachineRecord(Struct, frozen=True, kw_only=True):
    """A machine that was launched, or that could not be launched."""

    cluster: str
    machine: str
    """Any name that no other machine of the cluster has."""
    instance_type: str
    zone: str
    """Its id; its name where the id is not known. Accounts give the same name to different zones."""
    capacity_type: str
    began: int
    seen_until: int
    outcome: Literal["", "Failed", "Interrupted"] = ""
    """Empty while it runs, and where it ended in any other way."""

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What makes two records the same."""
        return self.cluster, self.machine, self.instance_type, self.zone, self.capacity_type
