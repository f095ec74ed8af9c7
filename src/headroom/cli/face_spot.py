"""What people see of spot pools and of one cloud machine: its slot, its node, what it costs, and which pods are unserved."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from headroom.cli import face_tables, output
from headroom.cli.face import Face, NamedPart
from headroom.cli.face_tables import section

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from headroom.adapters.kube.client import Kube
    from headroom.api.kinds import AnyResource
    from headroom.api.schema import Problem
    from headroom.api.spot_pools_status import Slot, SpotpoolStatus
    from headroom.cli.face import Story
    from headroom.core.capacity import CapacityRound, PodAnswer
    from headroom.model.decisions import Decision, Ref
    from headroom.model.facts import Pod
    from headroom.model.world import World
    from headroom.runtime.metrics import Measure
    from headroom.runtime.settings import Settings
    from headroom.web.page import Page

_TONES: Final = {"Running": "good"}
CAUSES: Final = {
    "Surplus": "more machines than needed",
    "Idle": "idle",
    "Reclaimed": "the cloud reclaims it",
    "NeverJoined": "its node never became ready",
    "Failed": "the cloud reports that it failed",
    "Deleted": "the pool was deleted",
    "Paused": "the pool is paused",
    "Unanswered": "one launch call was refused and another got no answer",
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
    section("Resting", ("TYPE", "ZONE", "REASON", "FAILURES", "UNTIL"), resting)
    unserved = face_tables.unserved_rows(status.unserved)
    section("No machine is launched for", ("POD", "PODS", "REASON", "WHY"), unserved, texts=1)
    orphans = [(each.instance_id, each.since) for each in status.orphans]
    section("Machines of this cluster that no Spotpool owns", ("INSTANCE", "SINCE"), orphans)


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
        yield "Cost", f"${float(price):.2f} an hour, for machines with a known price"
    bought = sum(each.count for each in status.purchases)
    if bought:
        yield "Bought", f"{output.counted(bought, 'machine')} in the last hour"
    if status.breaker is not None and status.breaker.failed:
        until = f"; no machine is launched before {status.breaker.until}" if status.breaker.until else ""
        yield "Never joined", f"{output.counted(status.breaker.failed, 'machine')} in a row{until}"


def _show_slots(status: SpotpoolStatus) -> None:
    slots = face_tables.cut(status.slots, lambda each: each.state == "Running")
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
        for each in slots
    ]
    columns = ("SLOT", "STATE", "SINCE", "INSTANCE", "TYPE", "ZONE", "NODE", "COST", "REMARKS")
    section("", columns, rows, texts=1)
    face_tables.left_out(len(status.slots) - len(slots))


def _remarks(slot: Slot) -> Iterator[str]:
    """What is worth knowing of a slot beside its state."""
    if slot.cause and not (slot.reclaim_at and slot.cause == "Reclaimed"):
        yield CAUSES.get(slot.cause, slot.cause)
    if slot.reclaim_at:
        yield f"the cloud reclaims it at {slot.reclaim_at}"
    if slot.idle_since:
        yield f"idle since {slot.idle_since}"
    if slot.not_found_since:
        yield f"unknown to the cloud since {slot.not_found_since}"


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
        """Whether it is what would be done, and not from the operator's last status."""
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
    known = {each.slot.instance_id: each for each in _instances(world, decisions)}
    return face_tables.only_known(known, name, "instance", "Spotpool")


def _instances(world: World, decisions: Sequence[Decision] | None) -> Iterator[ToldOfInstance]:
    """Every machine of every valid pool."""
    from headroom.core.spot_pools import KIND
    from headroom.web.pages.spot_pools import status_of

    made = {each.resource: each for each in decisions or ()}
    for ref, pool in world.of_kind(KIND):
        decision = made.get(ref)
        status = status_of(pool, decision)
        why = face_tables.said_of(pool, decision)
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


def _answers(round_: CapacityRound, pod: Pod) -> PodAnswer | None:
    from headroom.core.spot_pools import explained

    return explained(round_, pod)


def _answers_written(world: World, key: str) -> str:
    from headroom.core.spot_pools import KIND

    said = ((ref, each) for ref, pool in world.of_kind(KIND) for each in pool.status.unserved if each.pod == key)
    return next((f"{ref} launches no machine for it: {each.message}" for ref, each in said), "")


# --- in `headroom status` -----------------------------------------------------------------------------------------------------


def _row(_world: World, resource: AnyResource, decision: Decision | None) -> dict[str, Any]:
    from headroom.web.pages.spot_pools import pool_row

    return face_tables.as_written(pool_row(resource, decision), resource, decision)


def _rows(found: dict[str, Any], everything: bool) -> None:
    """The spot pools."""
    columns = ("SPOT POOL", "RUNNING", "LAUNCHING", "LEAVING", "RANGE", "COST")
    face_tables.overview(found["spotPools"], columns, _cells, everything)


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    states = row.get("states", {})
    leaving = sum(states.get(state, 0) for state in ("Cancelling", "Draining", "Ending"))
    span = f"{row['minimum']}..{row['maximum']}" if "maximum" in row else ""
    price = f"${float(row['pricePerHour']):.2f}/h" if "pricePerHour" in row else ""
    return states.get("Running", 0), states.get("Launching", 0), leaving, span, price


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
        NamedPart(
            "Instance", ("instance", "instances"), "A machine of a Spotpool, by its cloud's id.", _decided, _written
        ),
    ),
    answers=_answers,
    answers_written=_answers_written,
)
