"""Energy by the watts that machines are said to draw: whole milliwatt-hours, so that nothing is lost by rounding.

A watt over 3.6 seconds is exactly a milliwatt-hour, so what is counted moves on a grid of 3.6 seconds.
"""

from __future__ import annotations

from typing import Final

from headroom.api.power import Hardware, MachineSpec
from headroom.api.power_status import Energy, MachineStatus
from headroom.api.quantities import InvalidQuantity, nano
from headroom.core.power.members import PowerPoolState, told, when
from headroom.model import times

GRID_MS: Final = 3600
KWH: Final = 1_000_000
"""Milliwatt-hours."""
_RUNNING: Final = ("Booting", "Draining", "Sleeping")


def watts(machine: MachineSpec, template: Hardware) -> tuple[int | None, int | None]:
    """What a machine draws idle and busy; None where nobody said."""
    idle = template.idle_watts if machine.idle_watts is None else machine.idle_watts
    busy = template.busy_watts if machine.busy_watts is None else machine.busy_watts
    return idle, idle if busy is None else busy


def counted(pool: PowerPoolState) -> Energy | None:
    """The energy up to now: each machine by what it was doing since the last count."""
    spec, now, before = pool.spec, pool.now, pool.before.energy
    known = {each.name: watts(each, spec.template) for each in spec.machines}
    if all(idle is None and busy is None for idle, busy in known.values()):
        return None
    used, saved = (
        (_milliwatt_hours(before.used_kwh) or 0, _milliwatt_hours(before.saved_kwh) or 0) if before else (0, 0)
    )
    since = when(before.as_of, now) if before else None
    since = now - now % GRID_MS if since is None else since
    steps = (now - since) // GRID_MS
    if steps:
        for each in pool.before.machines:
            takes, spares = _share(each, *known.get(each.name, (None, None)))
            used, saved = used + takes * steps, saved + spares * steps
    return Energy(used_kwh=_kwh(used), saved_kwh=_kwh(saved), as_of=told(since + steps * GRID_MS))


def lost(before: Energy | None) -> str:
    """What of the last count cannot be read, and so begins anew, as a sentence; empty if all of it can."""
    if before is None:
        return ""
    amounts = {"usedKwh": before.used_kwh, "savedKwh": before.saved_kwh}
    found = [f"{name} {text!r}" for name, text in amounts.items() if _milliwatt_hours(text) is None]
    found += [] if times.moment(before.as_of) is not None else [f"asOf {before.as_of!r}"]
    if not found:
        return ""
    return f"Of the energy in the status {' and '.join(found)} cannot be read, so it is counted from zero again."


def _share(machine: MachineStatus, idle: int | None, busy: int | None) -> tuple[int, int]:
    """Watts that a machine takes, and watts that it would take idle and does not."""
    if machine.state == "Off":
        return 0, idle or 0
    if machine.state == "On" and not machine.idle_since:
        return busy or 0, 0
    # One that was woken and never joined, or did not go off, draws power all the same.
    is_useless = machine.state == "Failed" and machine.cause in ("NeverJoined", "StillOn")
    draws = machine.state in ("On", *_RUNNING) or is_useless
    return (idle or 0, 0) if draws else (0, 0)


def _milliwatt_hours(text: str) -> int | None:
    amount = nano(text)
    return None if isinstance(amount, InvalidQuantity) or amount < 0 else amount // 1000


def _kwh(milliwatt_hours: int) -> str:
    whole, rest = divmod(milliwatt_hours, KWH)
    return f"{whole}.{rest:06d}".rstrip("0").rstrip(".")
