"""What people see of spot pools and of one cloud machine: its slot, its node, what it costs, and which pods are unserved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from headroom.cli import output
from headroom.cli.face import Face, Part
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from headroom.adapters.kube.client import Kube
    from headroom.api.kinds import AnyResource
    from headroom.api.schema import Problem
    from headroom.api.spot_pools_status import Slot, SpotpoolStatus
    from headroom.cli.face import Story
    from headroom.core.capacity import PodAnswer, Round
    from headroom.model.decisions import Decision, Ref
    from headroom.model.facts import Pod
    from headroom.model.world import World
    from headroom.runtime.metrics import Measure
    from headroom.runtime.settings import Settings
    from headroom.web.page import Page

MOST_POOLS: Final = 10
MOST_ON_A_SCREEN: Final = 40
_URGENCY: Final = ("bad", "warn", "good", "idle")
"""What needs a look comes first."""
_TONES: Final = {"Running": "good"}
CAUSES: Final = {
    "Surplus": "more machines than needed",
    "Idle": "idle",
    "Reclaimed": "the cloud takes it back",
    "NeverJoined": "its node never became ready",
    "Failed": "the cloud reports that it failed",
    "Deleted": "the pool was deleted",
    "Paused": "the pool is paused",
}
"""Why a slot is cancelled, drained or ended."""


# --- a pool -------------------------------------------------------------------------------------------------------------------


def show(pool: AnyResource, status: SpotpoolStatus) -> None:
    """Print what a pool is doing as sentences and short tables."""
    output.as_fields(_numbers(pool, status))
    _show_slots(status)
    resting = [
        (each.instance_type, "all zones" if each.zone == "*" else each.zone, each.reason, each.failures, each.until)
        for each in status.sold_out
    ]
    _table("Resting", ("TYPE", "ZONE", "REASON", "FAILURES", "UNTIL"), resting)
    unserved = [(each.pod, each.pods, each.reason, each.message) for each in status.unserved]
    _table("No machine is launched for", ("POD", "PODS", "REASON", "WHY"), unserved, texts=1)
    orphans = [(each.instance_id, each.since) for each in status.orphans]
    _table("Machines of this cluster that no Spotpool owns", ("INSTANCE", "SINCE"), orphans)


def _numbers(pool: AnyResource, status: SpotpoolStatus) -> Iterator[tuple[str, str]]:
    from headroom.api.spot_pools_status import SLOT_STATES
    from headroom.web.pages.spot_pools import price_per_hour

    spec, states = pool.spec, [each.state for each in status.slots]
    listed = ", ".join(f"{states.count(each)} {each}" for each in SLOT_STATES if each in states)
    yield "Machines", f"{status.size or 0} of {spec.minimum} to {spec.maximum}" + (f": {listed}" if listed else "")
    where = ", ".join(each for each in spec.all_zones if each) or spec.region
    yield "Offers", f"{', '.join(spec.types)} in {where} ({spec.provider})"
    price = price_per_hour(status)
    if price is not None:
        yield "Cost", f"${float(price):.2f} an hour, as far as prices are known"
    bought = sum(each.count for each in status.purchases)
    if bought:
        yield "Bought", f"{output.counted(bought, 'machine')} in the last hour"
    if status.breaker is not None and status.breaker.failed:
        until = f"; nothing is launched before {status.breaker.until}" if status.breaker.until else ""
        yield "Never joined", f"{output.counted(status.breaker.failed, 'machine')} in a row{until}"


def _show_slots(status: SpotpoolStatus) -> None:
    most = MOST_ON_A_SCREEN if output.is_terminal() else len(status.slots)
    slots = sorted(status.slots, key=lambda each: each.state == "Running") if len(status.slots) > most else status.slots
    rows = [
        (
            each.slot,
            output.Toned(each.state, _TONES.get(each.state, "idle")),
            each.since,
            each.instance_id,
            each.instance_type,
            each.zone,
            each.node,
            f"${each.price_per_hour}/h" if each.price_per_hour else "",
            "; ".join(_remarks(each)),
        )
        for each in slots[:most]
    ]
    columns = ("SLOT", "STATE", "SINCE", "INSTANCE", "TYPE", "ZONE", "NODE", "COST", "REMARKS")
    _table("", columns, rows, texts=1)
    if len(slots) > most:
        output.line(f"and {len(slots) - most} more; -o json has them all", indent=2)


def _remarks(slot: Slot) -> Iterator[str]:
    """What is worth knowing of a slot beside its state."""
    if slot.cause and not (slot.reclaim_at and slot.cause == "Reclaimed"):
        yield CAUSES.get(slot.cause, slot.cause)
    if slot.reclaim_at:
        yield f"the cloud takes it back at {slot.reclaim_at}"
    if slot.idle_since:
        yield f"idle since {slot.idle_since}"
    if slot.not_found_since:
        yield f"unknown to the cloud since {slot.not_found_since}"


def _table(title: str, columns: tuple[str, ...], rows: Sequence[Sequence[object]], *, texts: int = 0) -> None:
    if rows:
        output.line()
        if title:
            output.line(title)
        output.as_table(columns, rows, texts=texts, indent=2)


# --- one machine --------------------------------------------------------------------------------------------------------------


class ToldOfInstance(NamedTuple):
    """What there is to say of one cloud machine."""

    pool: Ref
    slot: Slot
    why: str
    """What was decided on its pool."""
    source: Literal["decided", "written"]

    @property
    def is_plan(self) -> bool:
        """Whether it is what would be done, and not what an operator has written down."""
        return self.source == "decided"

    def wire(self) -> dict[str, Any]:
        """The form for machines."""
        import msgspec

        return {
            "pool": f"{self.pool.namespace}/{self.pool.name}",
            "source": self.source,
            "sentence": self._sentence(),
            "slot": msgspec.to_builtins(self.slot),
            "decision": self.why,
        }

    def show(self) -> None:
        """Print the form for people."""
        output.line(self._sentence())
        for each in self._details():
            output.line(f"- {each}", hang=2)

    def _sentence(self) -> str:
        slot = self.slot
        what = " ".join(filter(None, (slot.instance_type, f"in {slot.zone}" if slot.zone else "")))
        since = f" since {slot.since}" if slot.since else ""
        return f"Instance {slot.instance_id} ({what}), slot {slot.slot} of {self.pool}, is {slot.state}{since}."

    def _details(self) -> Iterator[str]:
        slot = self.slot
        if slot.launched_at:
            yield f"launched at {slot.launched_at}"
        if slot.node:
            yield f"node {slot.node}" + (f", joined at {slot.joined_at}" if slot.joined_at else ", not ready yet")
        if slot.price_per_hour:
            yield f"costs ${slot.price_per_hour} an hour"
        yield from _remarks(slot)
        yield f"{self.pool}: {self.why}"


def _told(world: World, name: str, decisions: Sequence[Decision] | None) -> ToldOfInstance:
    """What there is to say of a machine; without decisions, what the operator has written. Raises `Misconfigured` if there is none."""
    from headroom.cli.explain import listed, offered

    known = {each.slot.instance_id: each for each in _instances(world, decisions)}
    if name in known:
        return known[name]
    near = offered(name, {each: each for each in known})
    others = f"; known are {listed(sorted(known))}" if known and not near else ""
    raise Misconfigured(f"looking for instance {name}: no Spotpool has it{near}{others}")


def _instances(world: World, decisions: Sequence[Decision] | None) -> Iterator[ToldOfInstance]:
    """Every machine of every valid pool."""
    from headroom.core.spot_pools import KIND
    from headroom.model import conditions
    from headroom.web.pages.spot_pools import status_of

    made = {each.resource: each for each in decisions or ()}
    for ref, pool in world.of_kind(KIND):
        decision = made.get(ref)
        status = status_of(pool, decision)
        ready = conditions.find(status.conditions, "Ready")
        why = decision.message if decision else ready.message if ready else "Nothing has been decided yet."
        for slot in status.slots:
            if slot.instance_id:
                yield ToldOfInstance(ref, slot, why, "decided" if decision else "written")


def _decided(world: World, name: str) -> ToldOfInstance:
    from headroom.cli import planning

    return _told(world, name, planning.decisions(world))


async def _written(kube: Kube, settings: Settings, name: str) -> ToldOfInstance:
    from headroom.cli import nearby

    return _told((await nearby.ours(kube, settings, "Spotpool", "")).world, name, None)


# --- one pod ------------------------------------------------------------------------------------------------------------------


def _answers(round_: Round, pod: Pod) -> PodAnswer | None:
    from headroom.core.spot_pools import explained

    return explained(round_, pod)


def _answers_written(world: World, key: str) -> str:
    from headroom.core.spot_pools import KIND

    said = ((ref, each) for ref, pool in world.of_kind(KIND) for each in pool.status.unserved if each.pod == key)
    return next((f"{ref} launches no machine for it: {each.message}" for ref, each in said), "")


# --- in `headroom status` -----------------------------------------------------------------------------------------------------


def _row(_world: World, resource: AnyResource, decision: Decision | None) -> dict[str, Any]:
    from headroom.model import conditions
    from headroom.web.pages.spot_pools import pool_row

    row = pool_row(resource, decision)
    ready = conditions.find(resource.status.conditions, "Ready")
    if decision is None and ready is not None and not resource.problems:
        row |= {"reason": ready.reason, "message": ready.message}
    return row


def _rows(found: dict[str, Any], everything: bool) -> None:
    """The spot pools: those that need a look first."""
    if not found["spotPools"]:
        return
    rows = sorted(found["spotPools"], key=lambda each: (_URGENCY.index(each["tone"]), each["namespace"], each["name"]))
    most = len(rows) if everything or not output.is_terminal() else MOST_POOLS
    table = []
    for each in rows[:most]:
        states = each.get("states", {})
        leaving = sum(states.get(state, 0) for state in ("Cancelling", "Draining", "Ending"))
        span = f"{each['minimum']}..{each['maximum']}" if "maximum" in each else ""
        price = f"${float(each['pricePerHour']):.2f}/h" if "pricePerHour" in each else ""
        numbers = (states.get("Running", 0), states.get("Launching", 0), leaving, span, price)
        state = output.Toned(each["state"], each["tone"])
        table.append((f"{each['namespace']}/{each['name']}", *numbers, state, each["message"]))
    output.line()
    output.as_table(("SPOT POOL", "RUNNING", "LAUNCHING", "LEAVING", "RANGE", "COST", "STATE", "WHY"), table)
    if len(rows) > most:
        output.line(f"and {output.counted(len(rows) - most, 'pool')} more; --all lists them")


# --- elsewhere ----------------------------------------------------------------------------------------------------------------


def _advice(pool: AnyResource, _given: Collection[str], _others: Iterable[AnyResource]) -> list[Problem]:
    from headroom.api import spot_advice
    from headroom.cli import addresses

    return [*spot_advice.of_pool(pool), *addresses.dubious(pool)]


def _pages() -> tuple[Page, ...]:
    from headroom.web.page import Page
    from headroom.web.pages import spot_pools

    path = "spot/{namespace}/{name}"
    return (
        Page("spot", "spot", lambda: spot_pools.model, link="Spot"),
        Page(path, "spot_pool", lambda: spot_pools.pool, kind="Spotpool", noun="spot pool"),
    )


def _metrics(registry: CollectorRegistry) -> Measure:
    from headroom.runtime.spot_metrics import SpotMetrics

    return SpotMetrics(registry)


def _story() -> Story:
    from headroom.cli.story_spot import SpotStory

    return SpotStory()


FACE: Final = Face(
    show=show,
    advice=_advice,
    pages=_pages,
    section="spotPools",
    row=_row,
    table=_rows,
    metrics=_metrics,
    story=_story,
    parts=(
        Part("Instance", ("instance", "instances"), "A machine of a Spotpool, by its cloud's id.", _decided, _written),
    ),
    answers=_answers,
    answers_written=_answers_written,
)
