"""What people are told of a pool: its conditions, its events, and the sentences of the decision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from headroom.api.resources import Condition
from headroom.core.spot_pools import breaking, resting
from headroom.core.spot_pools.places import Place, Pool, told
from headroom.core.spot_pools.unserved import HALTED
from headroom.core.spot_pools.wording import few, of_machines, where
from headroom.model import conditions
from headroom.model.actions import Action, EmitEvent

MOST_EVENTS: Final = 10
"""Of one reason in one decision."""


class Said(NamedTuple):
    """The reason and the sentences of a decision."""

    reason: str
    message: str


class PoolVerdict(NamedTuple):
    """One standing judgement."""

    type: str
    holds: bool
    reason: str
    message: str


def sentence(pool: Pool) -> Said:
    """What happens in a pool and why: how many machines there are, and then the most important."""
    state = how_many(pool)
    if pool.halted in ("Stopped", "Paused"):
        return Said(pool.halted, f"{state}. {HALTED[pool.halted]}")
    found = list(_sentences(pool))
    if not found:
        return Said("Steady", f"{state}.")
    more = f" {found[1].message}" if len(found) > 1 else ""
    return Said(found[0].reason, f"{state}. {found[0].message}{more}")


def how_many(pool: Pool) -> str:
    """How many machines there are: `3 of 2 to 4 machines run`."""
    running = len(pool.are("Running"))
    span = str(pool.least) if pool.least == pool.most else f"{pool.least} to {pool.most}"
    return f"{running} of {span} machines {'runs' if running == 1 else 'run'}"


def _sentences(pool: Pool) -> Iterator[Said]:
    if pool.unlisted:
        yield Said(pool.unlisted, pool.unlisted_says)
    if pool.braked:
        yield Said("Braked", pool.braked)
    if pool.halted == "Deleting":
        yield Said("Deleting", _deleting(pool))
    yield from _coming(pool)
    if pool.wants:
        yield Said(pool.wants_why, f"{of_machines(pool.wants)} missing: {pool.wants_says}")
    if pool.unserved:
        first = pool.unserved[0]
        yield Said(first.reason, f"Pod {first.pod} is unserved: {first.message}")
    yield from _leaving(pool)
    if pool.orphan_count:
        yield Said("Orphans", _orphans(pool))


def _coming(pool: Pool) -> Iterator[Said]:
    launching = pool.are("Launching")
    new = [each for each in launching if each.is_new]
    under_way = [each for each in launching if not each.is_new]
    if new:
        yield Said("Launching", f"Launching {of_machines(len(new))} ({_kinds(new)}).")
    if under_way:
        since = min(each.slot.launched_at for each in under_way)
        yield Said("Launching", f"Launching {of_machines(len(under_way))} since {since} ({_kinds(under_way)}).")


def _leaving(pool: Pool) -> Iterator[Said]:
    leaving, cancelled = pool.are("Draining", "Ending"), len(pool.are("Cancelling"))
    if leaving:
        yield Said("Ending", f"Ending {few([each.name for each in leaving])}.")
    if cancelled:
        says = f"{cancelled} launch{'' if cancelled == 1 else 'es'} cancelled; the cloud may still bring a machine."
        yield Said("Cancelling", says)


def _kinds(places: list[Place]) -> str:
    return few(sorted({where(each.slot.instance_type, each.slot.zone) for each in places}))


def _deleting(pool: Pool) -> str:
    unresolved = len(pool.are("Launching", "Cancelling"))
    if pool.spec.deletion_policy == "Retain":
        kept = f"{of_machines(pool.alive)} kept (deletionPolicy Retain); no Spotpool owns them afterwards."
        return (
            f"Waiting for {unresolved} launches of unknown outcome. {kept}" if unresolved else f"Being deleted: {kept}"
        )
    return f"Being deleted: {of_machines(len(pool.places))} to be ended, {unresolved} launches of unknown outcome."


def _orphans(pool: Pool) -> str:
    names = few([each.instance_id for each in pool.orphans])
    count = pool.orphan_count
    says = f"{of_machines(count)} of this cluster {'belongs' if count == 1 else 'belong'} to no Spotpool: {names}"
    return f"{says}. {'They are ended an hour after first sight.' if pool.world.end_orphans else 'Nobody ends them.'}"


# --- conditions and events ------------------------------------------------------------------------------------------------------


def verdicts(pool: Pool) -> Iterator[PoolVerdict]:
    """All that may hold beside `Ready`."""
    resting_now = list(resting.standing(pool))
    says = few([f"{where(each.instance_type, each.zone)} until {each.until} ({each.reason})" for each in resting_now])
    yield PoolVerdict(
        "SoldOut",
        bool(resting_now),
        resting_now[0].reason if resting_now else "Available",
        f"Not tried again yet: {says}." if resting_now else "Every type is tried.",
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
        f"The last {pool.never_joined} machines did not join, so {tries}." if failing else "Machines join.",
    )
    yield PoolVerdict(
        "Braked", bool(pool.braked), "MachinesMissing" if pool.braked else "NotBraked", pool.braked or "Not braked."
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
        f"Pod {first.pod} is unserved: {first.message}" if first else "No pod is unserved.",
    )
    yield _gateway(pool)


def _gateway(pool: Pool) -> PoolVerdict:
    known = pool.world.gateways.get(pool.key) if pool.spec.gateway is not None else None
    problem = known.problem if known is not None else ""
    return PoolVerdict(
        "GatewayFailing",
        bool(problem),
        "Unreachable" if problem else "GatewayServes",
        f"The gateway's targets stay as they are: {problem}" if problem else "The gateway's targets are up to date.",
    )


def judged(pool: Pool, ready: Condition) -> tuple[Condition, ...]:
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


def _notices(pool: Pool) -> Iterator[Condition]:
    """Whether the cloud tells beforehand that it takes a machine back."""
    if pool.listing is None or not pool.listing.at:
        return
    holds = pool.listing.notices
    yield conditions.judged(
        pool.resource,
        "InterruptionNotice",
        holds,
        "Available" if holds else "Unavailable",
        "The cloud tells before it takes a machine back."
        if holds
        else "The cloud does not tell before it takes a machine back; such a machine is replaced once it is gone.",
        pool.now,
    )


def events(pool: Pool) -> Iterator[Action]:
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
                message=f"{news.message} So it is with {more} more." if more else news.message,
                machine=news.machine,
            )
