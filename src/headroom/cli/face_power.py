"""What people see of power pools and of one machine: what it is doing, what it was told, and which pods are unserved."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from headroom.cli import output
from headroom.cli.face import Face, Part
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from headroom.adapters.kube.client import Kube
    from headroom.api.kinds import AnyResource
    from headroom.api.power import Machine
    from headroom.api.power_status import MachineStatus, PowerPoolStatus
    from headroom.api.schema import Problem
    from headroom.cli.face import Line
    from headroom.core.capacity import PodAnswer, Round
    from headroom.model.decisions import Decision, Ref
    from headroom.model.facts import Pod
    from headroom.model.world import World
    from headroom.runtime.metrics import Measure
    from headroom.runtime.settings import Settings
    from headroom.web.page import Page

MOST_POOLS: Final = 10
MOST_ON_A_SCREEN: Final = 40
_TOLD_OF: Final = ("WakingMachine", "SleepingMachine", "MachineFailed")
"""Turns of machines that a story tells; that one is awake, or asleep, follows."""
_MOMENT: Final = re.compile(r"\d{4}-\d\d-\d\dT(\d\d:\d\d):\d\dZ")
_URGENCY: Final = ("bad", "warn", "good", "idle")
"""What needs a look comes first."""
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
    _table("Kept on or woken for pods that are announced", ("BY", "DUE"), expected)
    unserved = [(each.pod, each.pods, each.reason, each.message) for each in status.unserved]
    _table("No machine is woken for", ("POD", "PODS", "REASON", "WHY"), unserved, texts=1)
    trials = [(each.machine, each.at, each.in_vain or "") for each in status.trials]
    title = "On trial, or tried in vain, for pods whose needs Headroom does not understand wholly"
    _table(title, ("MACHINE", "AT", "TIMES IN VAIN"), trials)


def _numbers(status: PowerPoolStatus, found: Sequence[tuple[Machine, MachineStatus]]) -> Iterator[tuple[str, str]]:
    from headroom.api.power_status import STATES

    states = [known.state for _, known in found]
    listed = ", ".join(f"{states.count(each)} {each}" for each in STATES if each in states)
    yield "Machines", f"{len(found)}: {listed}"
    on = sum(machine.gpu_count for machine, known in found if known.state == "On")
    yield "GPUs", f"{on} of {sum(machine.gpu_count for machine, _ in found)} on"
    if status.energy is not None:
        energy = status.energy
        yield "Energy", f"{energy.used_kwh} kWh used, {energy.saved_kwh} kWh saved, up to {energy.as_of}"


def _show_machines(found: Sequence[tuple[Machine, MachineStatus]]) -> None:
    most = MOST_ON_A_SCREEN if output.is_terminal() else len(found)
    shown = sorted(found, key=lambda pair: pair[1].state in _PLAIN) if len(found) > most else found
    rows = [
        (
            machine.name,
            output.Toned(known.state, _TONES.get(known.state, "idle")),
            known.since,
            machine.gpu_count,
            "; ".join(filter(None, (known.reason.rstrip("."), *_remarks(known)))),
        )
        for machine, known in shown[:most]
    ]
    _table("", ("MACHINE", "STATE", "SINCE", "GPUS", "REMARKS"), rows, texts=1)
    if len(found) > most:
        output.line(f"and {len(found) - most} more; -o json has them all", indent=2)


def _remarks(known: MachineStatus) -> Iterator[str]:
    """What is worth knowing of a machine beside its state."""
    from headroom.web.pages.machines import last_told

    if known.idle_since:
        yield f"idle since {known.idle_since}"
    command, at = last_told(known)
    if command:
        yield f"last told to {command} at {at}"
    if known.failures:
        yield f"failed {'once' if known.failures == 1 else f'{known.failures} times'} in a row"
    if known.retry_after:
        yield f"not told again before {known.retry_after}"


def _table(title: str, columns: tuple[str, ...], rows: Sequence[Sequence[object]], *, texts: int = 0) -> None:
    if rows:
        output.line()
        if title:
            output.line(title)
        output.as_table(columns, rows, texts=texts, indent=2)


# --- one machine --------------------------------------------------------------------------------------------------------------


class ToldOfMachine(NamedTuple):
    """What there is to say of one machine."""

    pool: Ref
    machine: Machine
    known: MachineStatus
    why: str
    """What was decided on its pool."""
    source: Literal["decided", "written"]
    holding: tuple[str, ...] = ()
    """What keeps it on, or when it goes to sleep."""
    unread: tuple[str, ...] = ()
    """What was not looked at, for lack of rights."""

    @property
    def is_plan(self) -> bool:
        """Whether it is what would be done, and not what an operator has written down."""
        return self.source == "decided"

    @property
    def is_on(self) -> bool:
        """Whether something may keep it on."""
        return self.known.state in ("On", "Draining")

    def kept_by(self, round_: Round) -> ToldOfMachine:
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
            yield f"not looked at, for lack of rights: {', '.join(self.unread)}"


def told_of_machine(world: World, name: str, decisions: Sequence[Decision] | None) -> ToldOfMachine:
    """What there is to say of a machine; without decisions, what the operator has written. Raises `Misconfigured` if there is none."""
    from headroom.cli.explain import listed, offered

    known = {each.machine.name: each for each in _machines(world, decisions)}
    if name in known:
        return known[name]
    near = offered(name, {each: each for each in known})
    others = f"; known are {listed(sorted(known))}" if known and not near else ""
    raise Misconfigured(f"looking for machine {name}: no PowerPool has it{near}{others}")


def _machines(world: World, decisions: Sequence[Decision] | None) -> Iterator[ToldOfMachine]:
    """Every machine of every valid pool; where two pools have one, that of the pool which keeps it comes last."""
    from headroom.core.power import KIND
    from headroom.model import conditions
    from headroom.web.pages.machines import remembered, status_of

    made = {each.resource: each for each in decisions or ()}
    pools = [(ref, pool) for ref, pool in world.of_kind(KIND) if pool.spec is not None]
    for ref, pool in sorted(pools, key=lambda pair: (pair[1].spec.order, pair[0]), reverse=True):
        decision = made.get(ref)
        status = status_of(pool, decision)
        ready = conditions.find(status.conditions, "Ready")
        why = decision.message if decision else ready.message if ready else "Nothing has been decided yet."
        for machine, known in remembered(pool, status):
            yield ToldOfMachine(ref, machine, known, why, "decided" if decision else "written")


def _decided(world: World, name: str) -> ToldOfMachine:
    from headroom.cli import planning

    return told_of_machine(world, name, planning.decisions(world)).kept_by(planning.capacity_round(world))


async def _written(kube: Kube, settings: Settings, name: str) -> ToldOfMachine:
    """What the operator has written down of a machine; what keeps it on takes sight of the whole cluster."""
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


def _answers(round_: Round, pod: Pod) -> PodAnswer | None:
    from headroom.core.power import explained

    return explained(round_, pod)


def _answers_written(world: World, key: str) -> str:
    from headroom.core.power import KIND

    said = ((ref, each) for ref, pool in world.of_kind(KIND) for each in pool.status.unserved if each.pod == key)
    return next((f"{ref} wakes no machine for it: {each.message}" for ref, each in said), "")


# --- in `headroom status` -----------------------------------------------------------------------------------------------------


def _row(world: World, resource: AnyResource, decision: Decision | None) -> dict[str, Any]:
    from headroom.model import conditions
    from headroom.web.pages.power import pool_row

    row = pool_row(world, resource, decision)
    ready = conditions.find(resource.status.conditions, "Ready")
    if decision is None and ready is not None and not resource.problems:
        row |= {"reason": ready.reason, "message": ready.message}
    return row


def _rows(found: dict[str, Any], everything: bool) -> None:
    """The power pools: those that need a look first."""
    if not found["pools"]:
        return
    rows = sorted(found["pools"], key=lambda each: (_URGENCY.index(each["tone"]), each["name"]))
    most = len(rows) if everything or not output.is_terminal() else MOST_POOLS
    table = []
    for each in rows[:most]:
        states, free = each.get("states", {}), each.get("gpusFree", "")
        changing = sum(states.get(state, 0) for state in ("Booting", "Draining", "Sleeping"))
        numbers = (states.get("On", 0), states.get("Off", 0), changing, states.get("Failed", 0))
        free_of = f"{free} of {each['gpusOn']}" if free else ""
        state = output.Toned(each["state"], each["tone"])
        table.append((each["name"], *numbers, free_of, _kwh(each.get("savedKwh", "")), state, each["message"]))
    output.line()
    output.as_table(("POOL", "ON", "OFF", "CHANGING", "FAILED", "GPUS FREE", "SAVED", "STATE", "WHY"), table)
    if len(rows) > most:
        output.line(f"and {output.counted(len(rows) - most, 'pool')} more; --all lists them")


def _kwh(text: str) -> str:
    from headroom.api.quantities import NANO, Invalid, nano

    amount = nano(text) if text else None
    return "" if amount is None or isinstance(amount, Invalid) else f"{amount / NANO:.1f} kWh"


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
    parts=(Part("Machine", ("machine", "machines"), "A machine of a PowerPool.", _decided, _written),),
    answers=_answers,
    answers_written=_answers_written,
)
