"""What-if with cheapest capacity: what would be written is counted once, and no node comes of it."""

from __future__ import annotations

from headroom.model.times import HOUR
from headroom.model.world import by_ref
from headroom.sim.whatif.replay import replay
from tests.builders import NOON
from tests.core.offer_stage import a_class, a_leftover, an_offer, on_demand
from tests.sim.test_whatif import a_case, a_work

OFFERS = (
    an_offer("g5.xlarge", "us-east-1a", 0.4, at=NOON + 24 * HOUR),
    an_offer("g6.xlarge", "us-east-1b", 0.5, at=NOON + 24 * HOUR),
    on_demand("g5.xlarge", 1.0, at=NOON + 24 * HOUR),
)
FACTS = {
    "offers": {each.name: each for each in OFFERS},
    "node_classes": {each.key: each for each in (a_class(),)},
    "node_pools": {},
}


def test_each_write_is_counted_once_and_no_node_comes_of_it() -> None:
    works = [a_work(at=60 * each, hours=1) for each in range(40)]
    case = a_case(*works, nodes=1, facts=FACTS)
    log = replay(case, by_ref([a_leftover()]), every=1000)
    assert log.done["ApplyNodePool", "/cheap"] == 3
    assert {name for name, _ in log.done} == {"ApplyNodePool"}
    assert {life.node for life in log.lives} <= {"worker-0", ""}


def test_what_stands_already_is_not_written_again() -> None:
    case = a_case(a_work(), nodes=1, facts=FACTS)
    first = replay(case, by_ref([a_leftover(subnetSelectorTags={"team": "a"})]), every=1000)
    assert first.done["ApplyNodeClass", "/cheap"] == 1
    assert first.done["ApplyNodePool", "/cheap"] == 3
    assert FACTS["node_pools"] == {}, "the record stays as it is"
