"""What we rely on Karpenter for, as one suite: the simulated one and the real one must do the same.

A module with tests of a side imports `Behaviour` and gives a fixture `side`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

ZONE = "us-east-1a"


class Side(Protocol):
    """A cluster with a Karpenter, in which a test has NodePools, machine types and pods of its own."""

    def sell(self, kind: str, dollars: float, *, sold_out: bool = False) -> None:
        """A machine type with one GPU can be had as spot, in one zone; or it is told of, and launches of it fail."""
        ...

    def pool(self, name: str, kind: str, *, weight: int, gpus: int = 10) -> None:
        """A NodePool for one machine type is there, or says that from now on."""
        ...

    def pod(self, name: str) -> None:
        """Somebody asks for one GPU on a node of the test's own."""
        ...

    def node_of(self, pod: str) -> str:
        """The node on which it runs; empty while it does not."""
        ...

    def pool_of(self, pod: str) -> str:
        """The NodePool of that node, as `pool` named it; empty while there is none."""
        ...

    def until(self, holds: Callable[[], bool], what: str) -> None:
        """Wait for it."""
        ...

    def is_marked(self, node: str) -> bool:
        """Whether Karpenter has said that it replaces this node."""
        ...


class Behaviour:
    """The suite."""

    def test_the_heaviest_pool_that_can_serves_a_pod_whatever_it_costs(self, side: Side) -> None:
        side.sell("dear", 0.9)
        side.sell("cheap", 0.1)
        side.pool("heavy", "dear", weight=20)
        side.pool("light", "cheap", weight=10)
        side.pod("one")
        side.until(lambda: side.pool_of("one") != "", "the pod runs")
        assert side.pool_of("one") == "heavy"

    def test_limits_send_the_next_pod_to_the_next_pool(self, side: Side) -> None:
        side.sell("first", 0.2)
        side.sell("second", 0.3)
        side.pool("heavy", "first", weight=20, gpus=1)
        side.pool("light", "second", weight=10)
        side.pod("one")
        side.until(lambda: side.pool_of("one") != "", "the first pod runs")
        side.pod("two")
        side.until(lambda: side.pool_of("two") != "", "the second pod runs")
        assert (side.pool_of("one"), side.pool_of("two")) == ("heavy", "light")

    def test_what_is_sold_out_is_left_for_the_next_pool(self, side: Side) -> None:
        side.sell("gone", 0.2, sold_out=True)
        side.sell("there", 0.3)
        side.pool("heavy", "gone", weight=20)
        side.pool("light", "there", weight=10)
        side.pod("one")
        side.until(lambda: side.pool_of("one") != "", "the pod runs")
        assert side.pool_of("one") == "light"

    def test_weights_and_limits_touch_no_node_and_another_template_replaces_it(self, side: Side) -> None:
        side.sell("before", 0.2)
        side.sell("after", 0.3)
        side.pool("pool", "before", weight=20)
        side.pod("one")
        side.until(lambda: side.node_of("one") != "", "the pod runs")
        node = side.node_of("one")
        side.pool("pool", "before", weight=3, gpus=2)
        side.pod("two")
        side.until(lambda: side.node_of("two") != "", "Karpenter has taken the change in, and is at work")
        assert (side.node_of("one"), side.is_marked(node)) == (node, False)
        side.pool("pool", "after", weight=3)
        side.until(lambda: side.node_of("one") != node, "another template replaces the node")
