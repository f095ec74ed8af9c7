"""Pods that keep apart by host get their machines at once, and no more than they need."""

from __future__ import annotations

import json
from typing import Any

from msgspec import structs

from headroom.model.facts import Pod, Shape
from headroom.model.times import HOUR, MINUTE, SECOND
from tests.core.power_stage import GPU, Stage, a_pool, status, waiting

HOST = "kubernetes.io/hostname"
SELECTOR = {"matchLabels": {"app": "g"}}
TERM = {"topologyKey": HOST, "labelSelector": SELECTOR}
ALONE = json.dumps({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}})


def ranks(count: int, gang: str = "", **fields: Any) -> list[Pod]:
    """Pods of one GPU, none of them beside another."""
    shape = Shape(requests=((GPU, 1_000_000),), affinity=ALONE)
    labels = (("app", "g"), *((("scheduling.x-k8s.io/pod-group", gang),) if gang else ()))
    return [waiting(f"r{number}", shape=shape, labels=labels, **fields) for number in range(count)]


class Apart(Stage):
    """A scheduler that keeps the pods of the group apart."""

    def _bind(self) -> None:
        taken = {pod.node for pod in self.pods.values() if pod.node and pod.phase == "Running"}
        for uid, pod in sorted(self.pods.items()):
            open_ = [name for name, node in sorted(self.nodes.items()) if node.ready and not node.unschedulable]
            free = [name for name in open_ if name not in taken]
            if not pod.node and free:
                self.pods[uid] = structs.replace(pod, node=free[0], phase="Running", started=self.now)
                taken.add(free[0])


def pool_of(count: int, **spec: Any) -> Any:
    return a_pool(machines={f"w{number}": 8 for number in range(count)}, **spec)


def test_a_gang_with_one_rank_per_host_is_served_within_one_boot() -> None:
    stage = Apart(pool_of(6), pods=ranks(4, "train"))
    stage.pass_time(3 * MINUTE)
    assert [each for _, each in stage.commands()] == [f"wake w{number}" for number in range(4)]
    assert len({pod.node for pod in stage.pods.values()}) == 4
    stage.pass_time(HOUR, every=10 * SECOND)
    assert len(stage.commands()) == 4
    assert status(stage.decisions["one"]).trials == ()


def test_pods_that_come_one_after_the_other_get_a_machine_each_while_the_first_still_boot() -> None:
    stage = Apart(pool_of(6))
    for pod in ranks(4):
        stage.pods[pod.uid] = structs.replace(pod, created=stage.now, unschedulable_since=stage.now)
        stage.pass_time(20 * SECOND)
    assert [each for _, each in stage.commands()] == [f"wake w{number}" for number in range(4)]
    stage.pass_time(3 * MINUTE)
    assert len({pod.node for pod in stage.pods.values()}) == 4
    assert len(stage.commands()) == 4


def test_more_of_them_than_machines_wait_and_wake_nothing_else() -> None:
    stage = Apart(pool_of(3), pods=ranks(5))
    stage.pass_time(HOUR, every=10 * SECOND)
    assert len(stage.commands()) == 3
    [unserved] = status(stage.decisions["one"]).unserved
    assert (unserved.pods, unserved.reason) == (2, "NotEnoughMachines")


def test_a_new_one_takes_the_machine_of_one_that_has_ended() -> None:
    stage = Apart(pool_of(3), pods=ranks(2))
    stage.pass_time(4 * MINUTE)
    stage.end("uid-r0")
    [*_, last] = ranks(3)
    stage.pods[last.uid] = structs.replace(last, created=stage.now, unschedulable_since=stage.now)
    stage.binds = False
    stage.look()
    assert len(stage.commands()) == 2
