"""What accounting for bandwidth costs: 5,000 nodes, 100,000 pods that all ask for some.

make bench NAME=accounting                      a quarter of a minute
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable

from msgspec import structs

from bench import results
from bench.results import Row
from headroom.adapters.kube.changes import Subscriptions
from headroom.adapters.kube.sinks import NodeSink, PodSink
from headroom.api.bandwidth import BandwidthSpec, LinkQuantities
from headroom.api.kinds import AnyResource
from headroom.core.bandwidth import PLAN
from headroom.model.changes import EVERYTHING, Changes
from headroom.model.decisions import Decision
from headroom.model.facts import Node, Owner, Pairs, Pod
from headroom.model.tables import NodeTable, PodTable
from headroom.model.world import World, by_ref

NODES, PODS, GROUP = 5_000, 100_000, 10
NOW = 1_800_000_000_000
PASSES, CHANGES = 7, 300
UP, DOWN, TRAFFIC = "kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth", "headroom.dev/traffic"


def notes_of(number: int, up: int) -> Pairs:
    """A third of all pods talk only to their siblings, whose group is on one node."""
    siblings = ((TRAFFIC, "siblings"),) if number // GROUP % 3 == 0 else ()
    return tuple(sorted((*siblings, (UP, f"{up}M"), (DOWN, f"{number % 40 + 1}M"))))


def a_pod(number: int, up: int = 10) -> Pod:
    """One of 20 on its node; ten are a group."""
    group = number // GROUP
    return Pod(
        uid=f"uid-{number}",
        namespace=f"team-{group % 50}",
        name=f"ranks-{group}-{number % GROUP}",
        node=f"node-{number * NODES // PODS:04d}",
        phase="Running",
        owner=Owner("StatefulSet", f"ranks-{group}", f"owner-{group}", "apps"),
        annotations=notes_of(number, up),
        created=NOW,
    )


class Fleet:
    """Tables behind the sinks of the watches, and the objects with the statuses that were written."""

    def __init__(self) -> None:
        self.pods, nodes, self.changes = PodTable(), NodeTable(), Subscriptions()
        self.sink = PodSink(self.pods, self.changes)
        machines = NodeSink(nodes, self.changes, lambda: NOW)
        for number in range(NODES):
            machines.put(Node(name=f"node-{number:04d}", uid=f"node-uid-{number}"))
        for number in range(PODS):
            self.sink.put(a_pod(number))
        self.changes.subscribe("bandwidth", PLAN.parts)
        self.changes.take("bandwidth")
        self.world = World(now=NOW, pods=self.pods, nodes=nodes)

    def write(self, decisions: list[Decision]) -> None:
        """Every object is there, with the status that was decided."""
        made = [
            AnyResource(
                kind="Bandwidth",
                namespace="",
                name=each.resource.name,
                uid=f"bw-{each.resource.name}",
                spec=BandwidthSpec(capacity=LinkQuantities()),
                status=each.status,
            )
            for each in decisions
        ]
        self.world = structs.replace(self.world, resources=by_ref(made))


def cpu(work: Callable[[], object], times: int) -> list[float]:
    """Milliseconds of CPU, once for each time."""
    found = []
    for _ in range(times):
        began = time.process_time()
        work()
        found.append((time.process_time() - began) * 1000)
    return found


def main(_arguments: list[str]) -> int:
    """Measure, and write the results."""
    fleet = Fleet()
    gc.collect()
    gc.freeze()

    def full() -> list[Decision]:
        return list(PLAN.decide(fleet.world, EVERYTHING))

    new = cpu(full, PASSES)
    fleet.write(full())
    fleet.write(full())
    still = cpu(full, PASSES)
    assert all(each.status == fleet.world.resources[each.resource].status for each in full())

    def one(number: int) -> None:
        fleet.sink.put(structs.replace(a_pod(number), phase="Pending"))
        found = list(PLAN.decide(fleet.world, fleet.changes.take("bandwidth")))
        assert len(found) == 1

    turns = iter(range(0, PODS, PODS // CHANGES))
    changed = cpu(lambda: one(next(turns)), CHANGES)

    def burst() -> None:
        changes = Changes(nodes={f"node-{number:04d}" for number in range(0, NODES, NODES // 1000)})
        assert len(list(PLAN.decide(fleet.world, changes))) == 1000

    what = f"{NODES:,} nodes, {PODS:,} pods that ask"
    rows = [
        Row(figure=f"{what}: CPU of a full pass, objects missing", value=_short(new), unit="ms", goal=1000),
        Row(figure="the same, everything written", value=_short(still), unit="ms", goal=1000),
        Row(figure="the same: CPU of one changed pod, from its event on", value=_short(changed), unit="ms", goal=1),
        Row(
            figure="the same: CPU of a pass over 1,000 changed nodes",
            value=_short(cpu(burst, PASSES)),
            unit="ms",
            goal=250,
        ),
    ]
    return 1 if results.write("accounting", rows) else 0


def _short(found: list[float]) -> float:
    return round(statistics.median(found), 2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
