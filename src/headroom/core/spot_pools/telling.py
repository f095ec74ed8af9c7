"""What people read about a pool: its conditions, its events, and the sentences of the decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from headroom.api.power_status import Unserved
from headroom.api.resources import Condition
from headroom.core.spot_pools import announced, breaking, resting
from headroom.core.spot_pools.places import PoolSlot, SpotPoolState, told
from headroom.core.spot_pools.unserved import HALTED
from headroom.core.spot_pools.wording import few, of_machines, where
from headroom.model import conditions
from headroom.model.actions import Action, EmitEvent

MOST_EVENTS: Final = 10
"""Of one reason in one decision."""


class SpotMessages(NamedTuple):
    """The reason and the sentences of a decision."""

    reason: str
    message: str


class PoolVerdict(NamedTuple):
    """One standing judgement."""

    type: str
    holds: bool
    reason: str
    message: str


def sentence(pool: SpotPoolState) -> SpotMessages:
    """What happens in a pool and why: how many machines there are, and then the most important."""
    state = how_many(pool)
    if pool.halted in ("Stopped", "Paused"):
        deleted = _deleted_meanwhile(pool) if pool.resource.deleting else ""
        return SpotMessages(pool.halted, f"{state}. {HALTED[pool.halted]}{deleted}")
    found = list(_sentences(pool))
    if not found:
        return SpotMessages("Steady", f"{state}.")
    more = f" {found[1].message}" if len(found) > 1 else ""
    return SpotMessages(found[0].reason, f"{state}. {found[0].message}{more}")


def _deleted_meanwhile(pool: SpotPoolState) -> str:
    """What becomes of a pool that is deleted while it is halted."""
    end = "the pause ends" if pool.halted == "Paused" else "the stop ends"
    if pool.spec.deletion_policy == "Retain" or not pool.places:
        return f" It is being deleted; its machines stay until {end}."
    count = len(pool.places)
    return f" It is being deleted; {of_machines(count)} {'stays' if count == 1 else 'stay'} until {end}."


def how_many(pool: SpotPoolState) -> str:
    """How many machines there are: `3 of 2 to 4 machines run`."""
    running = len(pool.are("Running"))
    span = str(pool.least) if pool.least == pool.most else f"{pool.least} to {pool.most}"
    return f"{running} of {span} machines {'runs' if running == 1 else 'run'}"


def _sentences(pool: SpotPoolState) -> Iterator[SpotMessages]:
    if pool.unlisted:
        yield SpotMessages(pool.unlisted, pool.unlisted_says)
    if pool.braked:
        yield SpotMessages("Braked", pool.braked)
    if pool.halted == "Deleting":
        yield SpotMessages("Deleting", _deleting(pool))
    yield from _coming(pool)
    if pool.wants:
        yield SpotMessages(pool.wants_why, f"{of_machines(pool.wants)} missing: {pool.wants_says}")
    if pool.unserved:
        first = pool.unserved[0]
        yield SpotMessages(first.reason, _unserved(first))
    yield from _leaving(pool)
    if pool.orphan_count:
        yield SpotMessages("Orphans", _orphans(pool))


def _coming(pool: SpotPoolState) -> Iterator[SpotMessages]:
    launching = pool.are("Launching")
    new = [each for each in launching if each.is_new]
    under_way = [each for each in launching if not each.is_new]
    if new:
        yield SpotMessages("Launching", f"Launching {of_machines(len(new))} ({_kinds(new)}).")
    if under_way:
        since = min(each.slot.launched_at for each in under_way)
        yield SpotMessages("Launching", f"Launching {of_machines(len(under_way))} since {since} ({_kinds(under_way)}).")


def _leaving(pool: SpotPoolState) -> Iterator[SpotMessages]:
    leaving, cancelled = pool.are("Draining", "Ending"), len(pool.are("Cancelling"))
    if leaving:
        yield SpotMessages("Ending", f"Ending {few([each.name for each in leaving])}.")
    if cancelled:
        says = f"{cancelled} launch{'' if cancelled == 1 else 'es'} cancelled; the cloud may still start a machine."
        yield SpotMessages("Cancelling", says)


def _unserved(first: Unserved) -> str:
    how = "left to Karpenter" if first.reason == "SharedWithKarpenter" else "unserved"
    return f"Pod {first.pod} is {how}: {first.message}"


def _kinds(places: list[PoolSlot]) -> str:
    return few(sorted({where(each.slot.instance_type, each.slot.zone) for each in places}))


def _deleting(pool: SpotPoolState) -> str:
    unresolved = len(pool.are("Launching", "Cancelling"))
    if pool.spec.deletion_policy == "Retain":
        kept = f"{of_machines(pool.alive)} kept (deletionPolicy Retain); no Spotpool owns them after this."
        return (
            f"Waiting for {unresolved} launches with an unknown outcome. {kept}"
            if unresolved
            else f"Being deleted: {kept}"
        )
    if pool.closing and not pool.places:
        are = "1 node is" if pool.closing == 1 else f"{pool.closing} nodes are"
        return f"Being deleted: its machines have ended; {are} still ready."
    return f"Being deleted: {of_machines(len(pool.places))} left to end, {unresolved} launches with an unknown outcome."


def _orphans(pool: SpotPoolState) -> str:
    names = few([each.instance_id for each in pool.orphans])
    count = pool.orphan_count
    says = f"{of_machines(count)} of this cluster {'belongs' if count == 1 else 'belong'} to no Spotpool: {names}"
    return f"{says}. {'They are ended an hour after they were found.' if pool.world.end_orphans else 'Headroom does not end them.'}"


# --- conditions and events ------------------------------------------------------------------------------------------------------


def verdicts(pool: SpotPoolState) -> Iterator[PoolVerdict]:
    """All that may hold beside `Ready`."""
    resting_now = list(resting.standing(pool))
    says = few([f"{where(each.instance_type, each.zone)} until {each.until} ({each.reason})" for each in resting_now])
    yield PoolVerdict(
        "SoldOut",
        bool(resting_now),
        resting_now[0].reason if resting_now else "Available",
        f"Not tried for now: {says}." if resting_now else "Every machine type is tried.",
    )
    yield PoolVerdict(
        "MachinesMissing",
        bool(pool.wants),
        pool.wants_why or "AllLaunched",
        f"{of_machines(pool.wants)} missing: {pool.wants_says}" if pool.wants else "No machine is missing.",
    )
    failing = pool.never_joined >= breaking.IN_A_ROW
    tries = (
        f"none is launched before {told(pool.breaker_until)}" if breaking.is_open(pool) else "one is launched at a time"
    )
    yield PoolVerdict(
        "JoinFailing",
        failing,
        "NeverJoined" if failing else "MachinesJoin",
        f"The last {pool.never_joined} machines did not join, so {tries}."
        if failing
        else "Machines join after they launch.",
    )
    yield PoolVerdict(
        "Braked",
        bool(pool.braked),
        "MachinesMissing" if pool.braked else "NotBraked",
        pool.braked or "Launches are not braked.",
    )
    yield PoolVerdict(
        "Orphans",
        bool(pool.orphan_count),
        "NoOwner" if pool.orphan_count else "NoOrphans",
        _orphans(pool) if pool.orphan_count else "Every machine of this cluster has an owner.",
    )
    first = next(iter(pool.unserved), None)
    yield PoolVerdict(
        "Unserved",
        first is not None,
        first.reason if first else "AllServed",
        _unserved(first) if first else "No pod is unserved.",
    )
    yield _missed(pool)
    yield _gateway(pool)


def _missed(pool: SpotPoolState) -> PoolVerdict:
    """Whether the word of a namespace on runs to come is not believed."""
    barred = {name: end for name in sorted(pool.missed) if (end := announced.until(pool, name)) is not None}
    says = few(
        [f"{name} until {told(end)} ({len(pool.missed[name])} runs brought no pods)" for name, end in barred.items()]
    )
    return PoolVerdict(
        "RunsMissed",
        bool(barred),
        "NoPods" if barred else "RunsCome",
        f"No machine is launched or kept for announced runs of {says}."
        if barred
        else "Announced runs bring their pods.",
    )


def _gateway(pool: SpotPoolState) -> PoolVerdict:
    known = pool.world.gateways.get(pool.key) if pool.spec.gateway is not None else None
    problem = known.problem if known is not None else ""
    return PoolVerdict(
        "GatewayFailing",
        bool(problem),
        "Unreachable" if problem else "GatewayServes",
        f"The gateway's targets stay as they are: {problem}" if problem else "The gateway's targets are up to date.",
    )


def judged(pool: SpotPoolState, ready: Condition) -> tuple[Condition, ...]:
    """The conditions: those beside `Ready` only once they hold, and from then on."""
    known = pool.before.conditions
    found = [
        conditions.judged(pool.resource, each.type, each.holds, each.reason, each.message, pool.now)
        for each in verdicts(pool)
        if each.holds or (known and conditions.find(known, each.type) is not None)
    ]
    found += _notices(pool)
    ours = {"Ready", *(each.type for each in found)}
    return (ready, *(each for each in known if each.type not in ours), *found)


def _notices(pool: SpotPoolState) -> Iterator[Condition]:
    """Whether the cloud tells beforehand that it takes a machine back."""
    if pool.listing is None or not pool.listing.at:
        return
    holds = pool.listing.notices or any(each.is_reclaimed for each in pool.places)
    yield conditions.judged(
        pool.resource,
        "InterruptionNotice",
        holds,
        "Available" if holds else "Unavailable",
        "The cloud gives notice before it reclaims a machine."
        if holds
        else "The cloud gives no notice before it reclaims a machine; a reclaimed machine is replaced once it is gone.",
        pool.now,
    )


def events(pool: SpotPoolState) -> Iterator[Action]:
    """One for each turn; of many turns of a kind the first, and how many more there are: each event is a write."""
    turns = Counter(news.reason for news in pool.news)
    told = Counter[str]()
    for news in pool.news:
        told[news.reason] += 1
        more = turns[news.reason] - MOST_EVENTS if told[news.reason] == MOST_EVENTS else 0
        if told[news.reason] <= MOST_EVENTS:
            yield EmitEvent(
                object=str(pool.ref),
                event_type=news.kind,
                reason=news.reason,
                message=f"{news.message} The same applies to {more} more." if more else news.message,
                machine=news.machine,
            )
