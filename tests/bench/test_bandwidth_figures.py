"""What the benchmarks of bandwidth tell: ways compared within their round, where siblings are, and the trace as steps, machines and books."""

from pathlib import Path

import pytest

from bench import bandwidth, dlrm
from bench.bandwidth import SIZES, lines, plan, rows, share
from bench.placing import replay, trace, ways
from bench.placing.replay import Replayed
from bench.placing.stage import Bound
from bench.placing.trace import Books, Instance, Machine, Step
from bench.placing.turns import Turn, nodes_per_group
from bench.placing.ways import EXTENDER, NATIVE, NEAR, PLAIN
from headroom.api.bandwidth_config import LOCALITY

HOUR = 3600.0
SMALL = SIZES[0]


def a_turn(way: str, rate: float) -> Turn:
    return Turn(way=way, rate=rate, nodes_per_group=2.5, cores={"kube-scheduler": 1.5, "kube-apiserver": 0.5})


def test_the_speed_is_that_after_the_first_tenth() -> None:
    slow_start = [0.0, 50.0, *(60.0 + number / 10 for number in range(18))]
    bound = Bound(slow_start, {"kube-scheduler": 30.85})
    assert bound.rate == pytest.approx(10)
    assert bound.cores == {"kube-scheduler": pytest.approx(0.5)}


def test_a_way_is_compared_with_plain_in_its_own_round() -> None:
    quiet = [a_turn("plain", 300), a_turn("native", 270), a_turn("plain", 300)]
    busy = [a_turn("plain", 100), a_turn("native", 90), a_turn("plain", 140)]
    assert share([quiet], "native") == pytest.approx(90)
    assert share([quiet, busy, busy], "native") == pytest.approx(75)
    found = {row.figure: row for row in rows(SMALL, [quiet, busy, busy])}
    assert found["500 nodes, plain"].value == 140
    assert found["500 nodes, native: speed of plain"].is_missed
    assert not {row.figure: row for row in rows(SMALL, [quiet])}["500 nodes, native: speed of plain"].is_missed


def test_the_goals_are_those_of_the_sizes() -> None:
    for size, goals in ((SMALL, (85.0, 85.0, 95.0, 95.0)), (SIZES[1], (75.0, 80.0, 95.0, 95.0))):
        names = (NATIVE.name, EXTENDER.name, ways.BESIDE_NATIVE.name, ways.BESIDE_EXTENDER.name)
        assert tuple(size.goals[name] for name in names) == goals


def test_ways_take_turns_in_one_order_and_then_in_the_other() -> None:
    first, second, last = plan(SMALL, 3)
    assert first == [PLAIN, *bandwidth.COMPARED, PLAIN]
    assert second == [PLAIN, *bandwidth.COMPARED[::-1], PLAIN]
    assert last == [PLAIN, *bandwidth.COMPARED, *bandwidth.ONCE, ways.CLAIMED, PLAIN]
    assert list(plan(SMALL, 1, ["native"])) == [[PLAIN, NATIVE, PLAIN]]


def test_a_line_of_the_table_tells_what_a_way_took() -> None:
    [_, native] = lines(SMALL, [[a_turn("plain", 200), a_turn("native", 150)]])
    assert native == ["500", "native", "150", "75%", "2.5", "1.50", "10.00", "3.33", ""]


def test_pods_of_a_way_say_what_they_ask_for() -> None:
    assert ways.pod(NATIVE, 7)["metadata"]["annotations"].keys() == ways.ANNOTATIONS.keys()
    assert ways.pod(NEAR, 7)["metadata"]["annotations"][LOCALITY] in ways.pod(NEAR, 7)["metadata"]["labels"]
    assert "annotations" not in ways.pod(PLAIN, 7)["metadata"]
    owners = [ways.pod(NEAR, number)["metadata"]["ownerReferences"] for number in (3, 7, 10)]
    assert owners[0] == owners[1] != owners[2]


def test_unrelated_pods_are_plain_ones() -> None:
    beside = [ways.pod(ways.BESIDE_EXTENDER, number) for number in range(10)]
    assert [ways.pod(PLAIN, number) for number in range(1, 10)] == beside[1:]
    assert beside[0] == ways.pod(EXTENDER, 0)


def test_a_group_is_spread_over_as_many_nodes_as_its_pods_are_on() -> None:
    pods = [ways.pod(PLAIN, number, node_name=f"n-{number % 3 if number < 10 else 0}") for number in range(20)]
    residents = [ways.pod(PLAIN, number, "r", f"n-{number}") for number in range(10)]
    assert nodes_per_group([*pods, *residents]) == 2


# The trace


def an_instance(name: str, since: float = 0, until: float = trace.END, rdma: int = 60, role: str = "HN") -> Instance:
    needs = {"cpu": 8, "memory": 40, "gpu": 1, "rdma": rdma}
    return Instance(name=name, app="app-1", role=role, needs=needs, since=since, until=until)


def names(step: Step) -> tuple[list[str], list[str]]:
    return [each.name for each in step.goes], [each.name for each in step.comes]


def test_nothing_goes_in_the_step_in_which_it_came() -> None:
    played = [
        an_instance("a", until=HOUR),
        an_instance("b", since=0.5 * HOUR, until=0.75 * HOUR),
        an_instance("c", since=0.7 * HOUR),
        an_instance("d", since=30 * HOUR),
    ]
    found = trace.steps(played)
    assert [*map(names, found)] == [([], ["a", "b", "c"]), (["b", "a"], []), ([], ["d"])]
    assert [step.begins for step in found] == [0, 0.75 * HOUR, 30 * HOUR]
    assert sum(step.seconds for step in found) == trace.END


def test_there_are_as_many_machines_as_the_scarcest_resource_needs() -> None:
    plan = trace.steps(an_instance(f"i-{number}", until=HOUR + number) for number in range(9))
    assert trace.peaks(plan)["HN", "rdma"] == 540
    assert [kind.role for _, kind in trace.machines(plan)] == ["HN"] * 6
    assert trace.peaks(plan)["CN", "rdma"] == 0


def test_books_weigh_what_is_beyond_a_nic_by_time() -> None:
    plan = [Step(goes=[], comes=[], begins=0, seconds=30), Step(goes=[], comes=[], begins=30, seconds=10)]
    books = Books(plan)
    books.note(plan[0], {"a": ("n", 60), "b": ("m", 60)})
    books.note(plan[1], {"a": ("n", 60), "b": ("n", 60), "c": ("m", 80)})
    assert (books.placed, books.crowded) == ({"a", "b", "c"}, {"a", "b"})
    assert (books.most_nics, books.most_percent, books.mean_nics) == (1, 20, 0.25)
    assert books.beyond == pytest.approx(100 * 20 * 10 / (120 * 30 + 200 * 10))


def test_oversubscription_of_ours_misses_the_goal_and_that_of_plain_is_told() -> None:
    plan = trace.steps([an_instance("a"), an_instance("b")])
    books = Books(plan)
    books.note(plan[0], {"a": ("n", 60), "b": ("n", 60)})
    found = {way: Replayed(books, 1.0, 0) for way in ("plain", "native")}
    missed = [row.figure for row in dlrm.rows(plan, found) if row.is_missed]
    assert missed == ["native: oversubscribed NICs, most at once"]


def test_a_row_of_the_trace_is_read_with_what_it_needs(tmp_path: Path) -> None:
    columns = (
        "instance_sn,role,app_name,cpu_request,gpu_request,rdma_request,memory_request,creation_time,deletion_time"
    )
    (tmp_path / trace.FILE).parent.mkdir()
    told = ["i_1,HN,app_4,8,1,25,39.5,,90.0", "i_2,CN,app_5,8,0,1,40.0,1.0,2.0", "i_3,CN,app_8,8,0,1,40.0,2.0,2.0"]
    (tmp_path / trace.FILE).write_text("\n".join([columns, *told]))
    [found] = trace.read(tmp_path, 4)
    assert (found.name, found.app, found.since, found.until) == ("i-1", "app-4", 0, 90)
    assert found.needs == {"cpu": 8, "memory": 40, "gpu": 1, "rdma": 25}


def test_an_instance_asks_for_its_part_of_a_nic_of_its_node() -> None:
    metadata = replay.pod(an_instance("a"))["metadata"]
    assert metadata["annotations"]["kubernetes.io/egress-bandwidth"] == "60G"
    assert metadata["labels"]["rdma"] == "60"
    has = replay.node("n", Machine(role="HN", has={"cpu": 1, "memory": 1, "gpu": 4, "rdma": 100}))
    assert has["metadata"]["annotations"]["headroom.dev/network-bandwidth"] == "100G"
