"""Spot pools as an operator has left them: slots in every state, what is sold out, and who is unserved."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from headroom.api import kinds
from headroom.api.power_status import Breaker, Unserved
from headroom.api.resources import Condition
from headroom.api.spot_pools_status import Orphan, PoolInstance, Purchases, Slot, SoldOut, SpotpoolStatus
from headroom.model.cloud_facts import Instance, Launch, Listing
from headroom.model.decisions import Decision
from headroom.model.facts import Node
from headroom.model.times import HOUR, MINUTE, SECOND, text
from headroom.model.world import ref_of
from tests.builders import NOON, a_node, a_resource
from tests.web.pools import Left

NAMESPACE = "team-a"
SPEC: dict[str, Any] = {
    "provider": "aws",
    "region": "us-east-1",
    "zones": ["us-east-1a", "us-east-1b"],
    "instanceTypes": ["g5.12xlarge", "g6.12xlarge"],
    "minimum": 1,
    "maximum": 6,
    "desired": "Demand",
    "maxPricePerHour": "3.50",
    "template": {"gpuCount": 4},
    "credentialsSecretRef": {"name": "spot-keys"},
}
SLOTS = (
    Slot(
        slot=0,
        state="Running",
        token="t0",
        since=text(NOON - 2 * HOUR),
        instance_type="g5.12xlarge",
        zone="us-east-1a",
        launched_at=text(NOON - 2 * HOUR),
        instance_id="i-000",
        node="spot-0",
        joined_at=text(NOON - 115 * MINUTE),
        price_per_hour="2.2",
    ),
    Slot(
        slot=1,
        state="Running",
        token="t1",
        since=text(NOON - HOUR),
        instance_type="g6.12xlarge",
        zone="us-east-1b",
        launched_at=text(NOON - HOUR),
        instance_id="i-001",
        node="spot-1",
        joined_at=text(NOON - 55 * MINUTE),
        idle_since=text(NOON - 5 * MINUTE),
        price_per_hour="1.85",
    ),
    Slot(
        slot=2, state="Launching", token="t2", since=text(NOON - MINUTE), instance_type="g5.12xlarge", zone="us-east-1b"
    ),
    Slot(
        slot=3,
        state="Draining",
        token="t3",
        since=text(NOON - 30 * SECOND),
        instance_type="g5.12xlarge",
        zone="us-east-1a",
        instance_id="i-003",
        node="spot-3",
        reclaim_at=text(NOON + 150 * SECOND),
        price_per_hour="2.2",
        cause="Reclaimed",
    ),
    Slot(
        slot=4, state="Cancelling", token="t4", since=text(NOON - MINUTE), instance_type="g6.12xlarge", cause="Surplus"
    ),
    Slot(
        slot=10,
        state="Ending",
        token="t10",
        since=text(NOON - MINUTE),
        instance_type="g6.12xlarge",
        zone="us-east-1b",
        instance_id="i-010",
        not_found_since=text(NOON - MINUTE),
        cause="NeverJoined",
    ),
)
SOLD_OUT = (
    SoldOut(
        instance_type="g5.12xlarge", zone="us-east-1b", failures=2, until=text(NOON + 9 * MINUTE), reason="SoldOut"
    ),
    SoldOut(instance_type="g6.12xlarge", zone="*", failures=1, until=text(NOON + 4 * MINUTE), reason="QuotaReached"),
)
UNSERVED = (
    Unserved(pod="team-a/huge", pods=3, reason="NoMachineFits", message="It needs 16 nvidia.com/gpu and 4 are there."),
)
BREAKER = Breaker(failed=3, until=text(NOON + 20 * MINUTE))


def condition(type_: str, reason: str, message: str, status: str = "True") -> Condition:
    moment = text(NOON - HOUR)
    return Condition(type=type_, status=status, reason=reason, message=message, last_transition_time=moment)  # type: ignore[arg-type]  # of the caller


READY = condition("Ready", "Steady", "All is well.")
BRAKED = condition("Braked", "MachinesMissing", "4 of 6 machines are missing from the list.")
FAILING = condition("JoinFailing", "NeverJoined", "The last 3 machines did not join, so one is launched at a time.")
ORPHANS = condition("Orphans", "NoOwner", "1 machine of this cluster belongs to no Spotpool: i-lost. Nobody ends them.")
NOTICES = condition("InterruptionNotice", "Available", "The cloud tells before it takes a machine back.")
MISSING = condition("MachinesMissing", "SoldOut", "2 machines missing: Nothing can be launched now.")
WITHOUT = condition("Unserved", "NoMachineFits", "Pod team-a/huge is unserved: it needs 16 nvidia.com/gpu.")


def a_spot_pool(
    name: str = "inference", *, namespace: str = NAMESPACE, spec: dict[str, Any] | None = None, **more: Any
) -> Left:
    """A pool that has a bit of everything; `more` is of its status."""
    given = SPEC | (spec or {})
    bare = a_resource("Spotpool", name)
    resource = structs.replace(bare, namespace=namespace, spec=kinds.spec_of("Spotpool", given))
    slots = more.pop("slots", SLOTS)
    status = SpotpoolStatus(
        conditions=more.pop("conditions", (READY,)),
        slots=slots,
        size=more.pop("size", sum(bool(each.instance_id) for each in slots)),
        instances=tuple(PoolInstance(instance_id=each.instance_id) for each in slots if each.instance_id),
        purchases=(Purchases(minute=text(NOON - 2 * MINUTE), count=2), Purchases(minute=text(NOON - MINUTE), count=1)),
        **more,
    )
    said = f"{status.size} machines, 1 launching."
    resource = structs.replace(resource, status=status)
    return Left(resource, Decision(resource=ref_of(resource), status=status, reason="Launching", message=said))


def troubled() -> Left:
    """The pool with everything that can be wrong with it."""
    orphans = (Orphan(instance_id="i-lost", since=text(NOON - HOUR)),)
    return a_spot_pool(
        conditions=(READY, BRAKED, FAILING, ORPHANS, WITHOUT, NOTICES),
        sold_out=SOLD_OUT,
        unserved=UNSERVED,
        breaker=BREAKER,
        orphans=orphans,
        orphan_count=1,
    )


def nodes_of() -> list[Node]:
    """The nodes of its machines."""
    return [a_node("spot-0", gpus=4), a_node("spot-1", gpus=4), a_node("spot-3", gpus=4, unschedulable=True)]


def facts_of() -> dict[str, Any]:
    """What the cloud says, as fields of a World."""
    pool = f"{NAMESPACE}/inference"
    instances = (
        Instance(name="i-000", state="RUNNING", public_ip="203.0.113.7"),
        Instance(name="i-003", state="RUNNING"),
        Instance(name="i-010", state="NOT_FOUND"),
    )
    launches = (
        Launch(token="t0", pool=pool, at=NOON - 2 * HOUR, outcome="Accepted", instance="i-000"),
        Launch(token="t2", pool=pool, at=NOON - MINUTE, outcome="Unknown"),
        Launch(token="t9", pool=pool, at=NOON - MINUTE, outcome="SoldOut"),
    )
    return {
        "instances": {each.name: each for each in instances},
        "launches": {each.token: each for each in launches},
        "listings": {pool: Listing(pool=pool, at=NOON - 12 * SECOND, notices=True)},
        "instances_given": False,
    }
