"""What people see of power pools and of one machine: what it is doing, what it was told, and which pods are unserved."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from headroom.cli import face_tables, output
from headroom.cli.face import Face, NamedPart
from headroom.cli.face_tables import section

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from headroom.adapters.kube.client import Kube
    from headroom.api.kinds import AnyResource
    from headroom.api.power import MachineSpec
    from headroom.api.power_status import MachineStatus, PowerPoolStatus
    from headroom.api.schema import Problem
    from headroom.cli.face import Line
    from headroom.core.capacity import CapacityRound, PodAnswer
    from headroom.model.decisions import Decision, Ref
    from headroom.model.facts import Pod
    from headroom.model.world import World
    from headroom.runtime.metrics import Measure
    from headroom.runtime.settings import Settings
    from headroom.web.page import Page

_TOLD_OF: Final = ("WakingMachine", "SleepingMachine", "MachineFailed")
"""Turns of machines that a story tells; that one is awake, or asleep, follows."""
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT(\d\d:\d\d):\d\dZ")
_PLAIN: Final = ("On", "Off")
_TONES: Final = {"On": "good", "Failed": "bad", "Unknown": "warn"}


# --- a pool -------------------------------------------------------------------------------------------------------------------


def show(pool: AnyResource, status: PowerPoolStatus) -> None:
    """Print what a pool is doing as sentences and short tables."""
    from headroom.web.pages.machines import remembered

    found = remembered(pool, status)
    output.as_fields(_numbers(status, found))
    _show_machines(found)
    expected = [(each.of, each.due_at) for each in status.expected]
    section("Kept on or woken for announced pods", ("BY", "DUE"), expected)
    unserved = face_tables.unserved_rows(status.unserved)
    section("No machine wakes for", ("POD", "PODS", "REASON", "WHY"), unserved, texts=1)
    trials = [(each.machine, each.at, each.in_vain or "") for each in status.trials]
    title = "On trial, or tried without success, for pods whose requirements Headroom does not fully model"
    section(title, ("MACHINE", "AT", "FAILED TRIALS"), trials)


def _numbers(status: PowerPoolStatus, found: Sequence[tuple[MachineSpec, MachineStatus]]) -> Iterator[tuple[str, str]]:
    from headroom.api.power_status import STATES

    states = [known.state for _, known in found]
    listed = ", ".join(f"{states.count(each)} {each}" for each in STATES if each in states)
    yield "Machines", f"{len(found)}: {listed}"
    on = sum(machine.gpu_count for machine, known in found if known.state == "On")
    yield "GPUs", f"{on} of {sum(machine.gpu_count for machine, _ in found)} on"
    if status.energy is not None:
        energy = status.energy
        yield "Energy", f"{_kwh(energy.used_kwh)} used, {_kwh(energy.saved_kwh)} saved, up to {energy.as_of}"


def _show_machines(found: Sequence[tuple[MachineSpec, MachineStatus]]) -> None:
    shown = face_tables.cut(found, lambda pair: pair[1].state in _PLAIN)
    rows = [
        (
            machine.name,
            output.Toned(known.state, _TONES.get(known.state, "idle")),
            known.since,
            machine.gpu_count,
            "; ".join(filter(None, (known.reason.rstrip("."), *_remarks(known)))),
        )
        for machine, known in shown
    ]
    section("", ("MACHINE", "STATE", "SINCE", "GPUS", "REMARKS"), rows, texts=1)
    face_tables.left_out(len(found) - len(shown))


def _remarks(known: MachineStatus) -> Iterator[str]:
    """What is worth knowing of a machine beside its state."""
    from headroom.web.pages.machines import last_told

    if known.idle_since:
        yield f"idle since {known.idle_since}"
    command, at = last_told(known)
    if command:
        yield f"last {command} command at {at}"
    if known.failures:
        yield f"failed {'once' if known.failures == 1 else f'{known.failures} times'} in a row"
    if known.retry_after:
        yield f"next attempt at {known.retry_after}"


# --- one machine --------------------------------------------------------------------------------------------------------------


class ToldOfMachine(NamedTuple):
    """What there is to say of one machine."""

    pool: Ref
    machine: MachineSpec
    known: MachineStatus
    why: str
    """What was decided on its pool."""
    source: Literal["decided", "written"]
    holding: tuple[str, ...] = ()
    """What keeps it on, or when it goes to sleep."""
    unread: tuple[str, ...] = ()
    """What was not checked for lack of permission."""

    @property
    def is_plan(self) -> bool:
        """Whether it is what would be done, and not from the operator's last status."""
        return self.source == "decided"

    @property
    def is_on(self) -> bool:
        """Whether something may keep it on."""
        return self.known.state in ("On", "Draining")

    def kept_by(self, round_: CapacityRound) -> ToldOfMachine:
        """With what keeps it on, by a round over a world that is complete."""
        from headroom.core.power import holding

        return self._replace(holding=holding(round_, self.machine.name) if self.is_on else ())

    def wire(self) -> dict[str, Any]:
        """The form for machines."""
        import msgspec

        return {
            "pool": self.pool.name,
            "source": self.source,
            "sentence": self._sentence(),
            "machine": msgspec.to_builtins(self.known),
            "gpuCount": self.machine.gpu_count,
            "holding": list(self.holding),
            "decision": self.why,
            "unread": list(self.unread),
        }

    def show(self) -> None:
        """Print the form for people."""
        output.line(self._sentence())
        for each in self._details():
            output.line(f"- {each}", hang=2)

    def _sentence(self) -> str:
        since = f" since {self.known.since}" if self.known.since else ""
        reason = f" {self.known.reason}" if self.known.reason else ""
        gpus = output.counted(self.machine.gpu_count, "GPU")
        return f"Machine {self.machine.name} ({gpus}) of {self.pool} is {self.known.state}{since}.{reason}"

    def _details(self) -> Iterator[str]:
        yield from self.holding
        yield from _remarks(self.known)
        count = len(self.known.toggles)
        if count:
            yield f"switched {'once' if count == 1 else f'{count} times'} in the last hour"
        yield f"{self.pool}: {self.why}"
        if self.unread:
            yield f"not checked for lack of permission: {', '.join(self.unread)}"


def told_of_machine(world: World, name: str, decisions: Sequence[Decision] | None) -> ToldOfMachine:
    """What there is to say of a machine; without decisions, what the operator has written. Raises `Misconfigured` if there is none."""
    known = {each.machine.name: each for each in _machines(world, decisions)}
    return face_tables.only_known(known, name, "machine", "PowerPool")


def _machines(world: World, decisions: Sequence[Decision] | None) -> Iterator[ToldOfMachine]:
    """Every machine of every valid pool; where two pools have one, that of the pool which keeps it comes last."""
    from headroom.core.power import KIND
    from headroom.web.pages.machines import remembered, status_of

    made = {each.resource: each for each in decisions or ()}
    pools = [(ref, pool) for ref, pool in world.of_kind(KIND) if pool.spec is not None]
    for ref, pool in sorted(pools, key=lambda pair: (pair[1].spec.order, pair[0]), reverse=True):
        decision = made.get(ref)
        status = status_of(pool, decision)
        why = face_tables.said_of(pool, decision)
        for machine, known in remembered(pool, status):
            yield ToldOfMachine(ref, machine, known, why, "decided" if decision else "written")


def _decided(world: World, name: str) -> ToldOfMachine:
    from headroom.cli import planning

    return told_of_machine(world, name, planning.decisions(world)).kept_by(planning.capacity_round(world))


async def _written(kube: Kube, settings: Settings, name: str) -> ToldOfMachine:
    """What the operator's last status says of a machine; what keeps it on takes sight of the whole cluster."""
    from headroom.cli import nearby, planning

    near = await nearby.ours(kube, settings, "PowerPool", "")
    told = told_of_machine(near.world, name, None)
    if not told.is_on:
        return told
    seen = await nearby.machines(kube, settings)
    if nearby.is_enough(seen):
        return told.kept_by(planning.capacity_round(seen.world, by_status=True))
    return told._replace(unread=seen.unread)


# --- one pod ------------------------------------------------------------------------------------------------------------------


def _answers(round_: CapacityRound, pod: Pod) -> PodAnswer | None:
    from headroom.core.power import explained

    return explained(round_, pod)


def _answers_written(world: World, key: str) -> str:
    from headroom.core.power import KIND

    said = ((ref, each) for ref, pool in world.of_kind(KIND) for each in pool.status.unserved if each.pod == key)
    return next((f"{ref} wakes no machine for it: {each.message}" for ref, each in said), "")


# --- in `headroom status` -----------------------------------------------------------------------------------------------------


def _row(world: World, resource: AnyResource, decision: Decision | None) -> dict[str, Any]:
    from headroom.web.pages.power import pool_row

    return face_tables.as_written(pool_row(world, resource, decision), resource, decision)


def _rows(found: dict[str, Any], everything: bool) -> None:
    """The power pools."""
    columns = ("POOL", "ON", "OFF", "CHANGING", "FAILED", "GPUS FREE", "SAVED")
    face_tables.overview(found["pools"], columns, _cells, everything)


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    states, free = row.get("states", {}), row.get("gpusFree", "")
    changing = sum(states.get(state, 0) for state in ("Booting", "Draining", "Sleeping"))
    free_of = f"{free} of {row['gpusOn']}" if free else ""
    counts = (states.get("On", 0), states.get("Off", 0), changing, states.get("Failed", 0))
    return (*counts, free_of, _kwh(row.get("savedKwh", "")))


def _kwh(text: str) -> str:
    from headroom.api.quantities import NANO, InvalidQuantity, nano

    amount = nano(text) if text else None
    return "" if amount is None or isinstance(amount, InvalidQuantity) else f"{amount / NANO:.1f} kWh"


# --- elsewhere ----------------------------------------------------------------------------------------------------------------


def _advice(pool: AnyResource, _given: Collection[str], others: Iterable[AnyResource]) -> list[Problem]:
    from headroom.api import advice
    from headroom.cli import addresses

    return [*advice.of_pool(pool), *advice.between(pool, others), *addresses.dubious(pool)]


def _pages() -> tuple[Page, ...]:
    from headroom.web.page import Page
    from headroom.web.pages import power

    return (
        Page("power", "power", lambda: power.model, link="Power"),
        Page("power/{name}", "pool", lambda: power.pool, kind="PowerPool", noun="power pool"),
    )


def _metrics(registry: CollectorRegistry) -> Measure:
    from headroom.runtime.power_metrics import PowerMetrics

    return PowerMetrics(registry)


class PowerStory:
    """Machines that wake, go to sleep or fail, as their pool says it."""

    def decided(self, decision: Decision, now: int) -> Iterator[Line]:
        """What the events of a decision say."""
        from headroom.model.actions import EmitEvent

        for action in decision.actions:
            if isinstance(action, EmitEvent) and action.reason in _TOLD_OF:
                said = _MOMENT.sub(r"\1", action.message).rstrip(".")
                yield now, f"power: {said}"

    def news(self, _ref: Ref, _decision: Decision, _resource: AnyResource, _now: int) -> Iterable[Line]:
        """Nothing: every turn is an event."""
        return ()


FACE: Final = Face(
    show=show,
    advice=_advice,
    pages=_pages,
    section="pools",
    row=_row,
    table=_rows,
    metrics=_metrics,
    story=PowerStory,
    parts=(NamedPart("Machine", ("machine", "machines"), "A machine of a PowerPool.", _decided, _written),),
    answers=_answers,
    answers_written=_answers_written,
)
