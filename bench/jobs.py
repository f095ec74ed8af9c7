"""What budgets cost where every Job's pods have labels of their own, as ordinary Jobs do: a part of `make bench NAME=budgets`.

A pass is measured in CPU time, each time at a later moment and after a Job with new labels has begun. The peer is the plain way, in the
same run: every budget looks at the labels of every pod.

    make bench NAME=jobs    this part alone, kept by itself
"""

import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.results import Row
from headroom.api.kinds import AnyResource
from headroom.core import budgets
from headroom.core.usage import Look, around, arrange, budgets_of, label_keys, pods_matching, scope_of
from headroom.core.usage.keeping import Keeper
from headroom.model.changes import EVERYTHING
from headroom.model.facts import Pod, Shape
from headroom.model.selectors import selects
from headroom.model.tables import PodTable
from headroom.model.times import HOUR
from headroom.model.usage_table import UsageTable
from headroom.model.world import World, by_ref

PASSES = 7
NAMESPACES = 20
GOAL_MS = 100.0
"""For 100 budgets and 10,000 pods."""


def a_pod(number: int, now: int) -> Pod:
    """The pod of one Job: the labels that the Job controller gives, and a team."""
    job, uid = f"train-{number:06d}", f"{number:08x}-0000-4000-8000-000000000000"
    labels = {"job-name": job, "controller-uid": uid, "team": f"team-{number % 50:02d}"}
    labels |= {f"batch.kubernetes.io/{key}": labels[key] for key in ("job-name", "controller-uid")}
    return Pod(
        uid=uid,
        namespace=f"lab-{number % NAMESPACES:02d}",
        name=f"{job}-abcde",
        resource_version=str(number + 1),
        labels=tuple(sorted(labels.items())),
        shape=Shape(requests=(("nvidia.com/gpu", 1_000_000),)),
        node=f"node-{number // 8}",
        phase="Running",
        created=now - 3 * HOUR,
        started=now - 2 * HOUR,
    )


class Case:
    """A fleet of Jobs. One budget in two has pods; the others are of teams that run nothing now."""

    def __init__(self, count: int, pods: int, now: int, a_budget: Callable[..., AnyResource]) -> None:
        self.now, self.pods = now, PodTable()
        made = [a_budget(n, f"lab-{n % NAMESPACES:02d}", {"team": f"team-{n % 100:02d}"}) for n in range(count)]
        self.resources = by_ref(made)
        self.keeper, self.around = Keeper(UsageTable()), around(World(now=now, resources=self.resources))
        self.keeper.table.keep(label_keys(made))  # as the recorder does
        for number in range(pods):
            self.start(number)

    def world(self) -> World:
        """The world as it is."""
        return World(now=self.now, resources=self.resources, pods=self.pods, usage=self.keeper.table)

    def start(self, number: int) -> None:
        """One more Job."""
        pod = a_pod(number, self.now)
        self.pods.put(pod)
        self.keeper.see(pod, self.around, Look("default", self.now, self.now))

    def decide(self) -> float:
        """CPU milliseconds of a full pass."""
        world, began = self.world(), time.process_time()
        budgets.PLAN.prepare(world)
        found = list(budgets.PLAN.decide(world, EVERYTHING))
        assert len(found) == len(self.resources)
        return (time.process_time() - began) * 1000

    def looked_at_all(self) -> float:
        """CPU milliseconds of nothing but matching pods, the plain way."""
        world = self.world()
        scopes = [scope_of(world, each) for each in budgets_of(world)]
        began = time.process_time()
        plain = [
            sum(pod.namespace in scope.namespaces for pod in world.pods if selects(scope.selector, pod.labels))
            for scope in scopes
        ]
        took = (time.process_time() - began) * 1000
        arrange(world)
        if plain != [pods_matching(world, scope).pods for scope in scopes]:
            raise SystemExit("the pods that budgets match differ from the plain way's")
        return took


def measured(case: Case, pods: int) -> list[float]:
    """CPU milliseconds of some full passes."""
    case.decide()  # the first pass sorts all rows into groups, once for the life of the process
    gc.collect()
    gc.freeze()  # as the operator does once its first view is complete
    passes = []
    for number in range(PASSES):
        case.now += 250
        case.start(pods + number)
        passes.append(case.decide())
    gc.unfreeze()
    return passes


def rows(now: int, a_budget: Any, say: Callable[[str], None]) -> list[Row]:
    """Two fleets, and the plain way for the first."""
    out: list[Row] = []
    for count, pods in ((100, 10_000), (1_000, 20_000)):
        say(f"{pods:,} pods with labels of their own and {count:,} budgets")
        case = Case(count, pods, now, a_budget)
        passes = measured(case, pods)
        is_first = not out
        out.append(
            Row(
                figure=f"{pods:,} pods whose Jobs have labels of their own, {count:,} budgets: full re-plan, median",
                value=round(statistics.median(passes), 2),
                unit="ms",
                goal=GOAL_MS if is_first else None,
                peer="matching alone, every budget at every pod" if is_first else None,
                peer_value=round(case.looked_at_all(), 1) if is_first else None,
            )
        )
    return out


if __name__ == "__main__":
    from bench import budgets as whole

    sys.exit(whole.main(["--only", "jobs"]))
