"""The cost of deciding on many pools, and the memory that the facts of their machines take."""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from bench.pools.playing import PLAN
from bench.pools.processes import CLUSTER, KIND, REGION
from bench.pools.stage import BEGIN, TYPE, ZONES
from headroom.api import kinds
from headroom.api.kinds import AnyResource
from headroom.api.marks import CLUSTER_TAG, OWNER_TAG, POOL_FINALIZER, SLOT_TAG
from headroom.api.spot_pools_status import Slot, SpotpoolStatus
from headroom.model import times
from headroom.model.changes import EVERYTHING
from headroom.model.cloud_facts import Instance, Listing
from headroom.model.decisions import Decision
from headroom.model.facts import Pod, Shape
from headroom.model.tables import PodTable
from headroom.model.world import World, by_ref

POOLS: Final = 1000
MACHINES: Final = 20
"""Of each pool."""
TRIES: Final = 5
LAUNCHED: Final = times.text(BEGIN - times.HOUR)


def pools() -> Iterator[AnyResource]:
    """Pools that have all their machines."""
    spec = kinds.spec_of(
        KIND,
        {
            "region": REGION,
            "instanceType": TYPE,
            "zones": list(ZONES),
            "minimum": MACHINES,
            "maximum": MACHINES,
            "join": False,
        },
    )
    for pool in range(POOLS):
        slots = tuple(
            Slot(
                slot=slot,
                state="Running",
                since=LAUNCHED,
                token=f"token-{pool}-{slot}",
                instance_type=TYPE,
                zone=ZONES[0],
                launched_at=LAUNCHED,
                seen_at=LAUNCHED,
                instance_id=machine_id(pool, slot),
            )
            for slot in range(MACHINES)
        )
        yield AnyResource(
            kind=KIND,
            namespace=f"team-{pool % 50}",
            name=f"pool-{pool}",
            uid=_uid(pool),
            finalizers=(POOL_FINALIZER,),
            spec=spec,
            status=SpotpoolStatus(slots=slots),
        )


def _uid(pool: int) -> str:
    return f"00000000-0000-4000-8000-{pool:012d}"


def machine_id(pool: int, slot: int) -> str:
    """As long as clouds make them."""
    return f"ins-{pool:06d}{slot:02d}"


def answers() -> Iterator[bytes]:
    """What a cloud tells of each machine."""
    for pool in range(POOLS):
        for slot in range(MACHINES):
            found: dict[str, Any] = {
                "name": machine_id(pool, slot),
                "provider": "tencent",
                "region": REGION,
                "zone": ZONES[0],
                "instanceType": TYPE,
                "state": "RUNNING",
                "privateIp": f"10.{pool >> 8}.{pool & 255}.{slot}",
                "tags": {CLUSTER_TAG: CLUSTER, OWNER_TAG: _uid(pool), SLOT_TAG: str(slot)},
                "launchedAt": BEGIN - times.HOUR,
            }
            yield msgspec.json.encode(found)


def facts() -> tuple[dict[str, Instance], float]:
    """The machines, and the megabytes that they take."""
    told = list(answers())
    decoder = msgspec.json.Decoder(Instance)
    gc.collect()
    tracemalloc.start()
    found = {each.name: each for each in map(decoder.decode, told)}
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return found, size / 1e6


def world(instances: dict[str, Instance]) -> World:
    """All pools, all machines, listed just now."""
    every = list(pools())
    listed = {f"{it.namespace}/{it.name}": Listing(pool=f"{it.namespace}/{it.name}", at=BEGIN) for it in every}
    return World(
        now=BEGIN,
        cluster=CLUSTER,
        resources=by_ref(every),
        instances=instances,
        listings=listed,
        instances_given=False,
    )


def decided(found: World, tries: int = TRIES) -> tuple[list[Decision], float]:
    """Decisions on everything, and the milliseconds of CPU that they took at best."""
    best, decisions = float("inf"), list[Decision]()
    for _ in range(tries):
        began = time.process_time()
        decisions = list(PLAN.decide(found, EVERYTHING))
        best = min(best, time.process_time() - began)
    return decisions, best * 1000


# --- many pools that pending pods are for ---------------------------------------------------------------------------------------

DEMANDING: Final = 200
PODS: Final = 5000
GPUS: Final = (1, 2, 4, 8)
"""Of the machines of a pool, and of the pods."""
WHOLE: Final = 1_000_000
TOLERATIONS: Final = '[{"key": "headroom.dev/spotpool", "operator": "Exists"}]'


def demanding(namespaces: int) -> World:
    """Pools that launch for pending pods, and pods of which no two ask for the same."""
    pods, every = PodTable(), [_demanding(number, namespaces) for number in range(DEMANDING)]
    for number in range(PODS):
        pods.put(_pending(number, namespaces))
    listed = {f"{it.namespace}/{it.name}": Listing(pool=f"{it.namespace}/{it.name}", at=BEGIN) for it in every}
    return World(
        now=BEGIN,
        cluster=CLUSTER,
        resources=by_ref(every),
        pods=pods,
        listings=listed,
        instances_given=False,
    )


def _demanding(number: int, namespaces: int) -> AnyResource:
    given = {
        "region": REGION,
        "instanceType": TYPE,
        "zones": list(ZONES[:1]),
        "maximum": MACHINES,
        "desired": "Demand",
        "template": {"gpuCount": GPUS[number % len(GPUS)], "resources": {"cpu": "64", "memory": "256Gi"}},
    }
    return AnyResource(
        kind=KIND,
        namespace=f"team-{number % namespaces}",
        name=f"pool-{number}",
        uid=_uid(number),
        finalizers=(POOL_FINALIZER,),
        spec=kinds.spec_of(KIND, given),
        status=SpotpoolStatus(),
    )


def _pending(number: int, namespaces: int) -> Pod:
    asked = (
        ("cpu", (1 + number % 29) * WHOLE),
        ("memory", (1000 + number) * 2**20 * WHOLE),
        ("nvidia.com/gpu", GPUS[number % len(GPUS)] * WHOLE),
    )
    return Pod(
        uid=f"pod-{number}",
        namespace=f"team-{number % namespaces}",
        name=f"pod-{number}",
        created=BEGIN - times.MINUTE,
        unschedulable_since=BEGIN - times.MINUTE,
        unschedulable_message="0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        shape=Shape(requests=asked, tolerations=TOLERATIONS),
    )
