"""Traces as cases: openb, Philly's machines and gavel's arrivals are told apart by what stands in them, and errors name their place."""

from __future__ import annotations

import gzip
import json

import pytest

from headroom.model.errors import Misconfigured
from headroom.model.facts import Node, Shape
from headroom.model.times import HOUR, MINUTE, SECOND
from headroom.sim.whatif import traces
from headroom.sim.whatif.placing import Placer
from headroom.sim.whatif.traces import BEGIN, MODEL, Naming
from headroom.sim.whatif.work import Case

PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
a,4000,1024,1,460,,LS,Running,0,7200,10
b,4000,1024,2,1000,A10|T4,BE,Running,100,3700,100
c,4000,1024,0,0,,BE,Succeeded,200,300,200
d,1000,1024,1,1000,,BE,Pending,400,900,
"""
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn-0,32000,65536,0,\nn-1,32000,65536,2,T4\n"
PHILLY = "time,active,total\n2017-10-03 00:00:00,2,4\n2017-10-03 00:01:00,1,4\n2017-10-03 00:02:00,3,4\n"
GAVEL = "ResNet-18 (batch size 32)\tcd x\t-n\t1\t5\t0.000000\t1\nA3C\tcd y\t-n\t1\t7\t60.000000\t8\n"
GPU = "nvidia.com/gpu"


def read(pods: str = PODS, nodes: str | None = NODES, runtimes: str | None = None, **more: object) -> Case:
    naming = more.pop("naming", Naming(team="{qos}"))
    texts = [None if each is None else ("file.csv", each.encode()) for each in (pods, nodes, runtimes)]
    assert texts[0] is not None
    return traces.read(texts[0], texts[1], texts[2], naming, **more)  # type: ignore[arg-type]  # what a test gives


def test_openb_says_who_asked_for_what_and_when() -> None:
    case = read()
    assert (case.begin, case.end) == (BEGIN, BEGIN + 7200 * SECOND)
    assert [(each.name, each.arrives - BEGIN, each.length) for each in case.works] == [
        ("a", 0, 7190 * SECOND),
        ("b", 100 * SECOND, 3600 * SECOND),
        ("c", 200 * SECOND, 100 * SECOND),
        ("d", 400 * SECOND, 500 * SECOND),
    ]
    assert dict(case.works[0].shape.requests) == {GPU: 460_000, "cpu": 4_000_000, "memory": 1024 * 2**20 * 10**6}
    assert dict(case.works[1].shape.requests)[GPU] == 2_000_000
    assert GPU not in dict(case.works[2].shape.requests)
    assert case.works[1].labels == (("qos", "BE"), ("team", "BE"))
    assert case.team(case.works[1]) == "BE"
    assert [dict(node.labels).get(MODEL) for node in case.nodes] == [None, "T4"]


def test_seconds_may_have_decimals_and_whole_numbers_a_point() -> None:
    case = read(PODS.replace("0,7200,10", "0,7200.5,10").replace(",2,1000,", ",2.0,1e3,"))
    assert case.works[0].length == 7190 * SECOND
    assert dict(case.works[1].shape.requests)[GPU] == 2_000_000


def test_namespaces_have_their_names_as_labels() -> None:
    assert read().namespaces["default"].labels == (("kubernetes.io/metadata.name", "default"),)


def test_the_columns_name_namespaces_and_teams() -> None:
    case = read(naming=Naming("qos-{qos}", "group", "g{num_gpu}"))
    assert {each.namespace for each in case.works} == {"qos-ls", "qos-be"}
    assert dict(case.works[1].labels)["group"] == "g2"
    assert set(case.namespaces) == {"qos-be", "qos-ls", "headroom-system"}
    with pytest.raises(Misconfigured, match=r"may use these columns: \{name\}, .*\{qos\}"):
        read(naming=Naming("{team}"))


def test_only_the_last_days_are_played_and_the_rest_is_history() -> None:
    case = read(days=(7200 - 200) / 86400)
    assert [(row.pod, row.start - BEGIN) for row in case.history] == []
    assert {each.name: each.began for each in case.works} == {
        "a": BEGIN + 10 * SECOND,
        "b": BEGIN + 100 * SECOND,
        "c": None,
        "d": None,
    }
    later = read(days=3400 / 86400)
    assert [row.pod for row in later.history] == ["b", "c"]
    assert [each.name for each in later.works] == ["a"]
    assert later.recorded_gpu_ms == 460_000 * 3400 * SECOND
    assert read(days=5).notes == ["The record is shorter than 5 days; all of its 0.1 days are played."]


def test_each_busy_machine_of_philly_is_a_pod() -> None:
    case = read(PHILLY, None, naming=Naming())
    begin = case.begin
    assert [(each.arrives - begin, each.length) for each in case.works] == [(0, MINUTE), (0, None)]
    assert len(case.nodes) == 4
    assert dict(case.nodes[0].allocatable) == {GPU: 8_000_000}
    assert case.end - begin == 2 * MINUTE


def test_lengths_of_gavels_jobs_are_drawn_by_the_seed() -> None:
    packed = gzip.compress(GAVEL.encode())
    lengths = ("runtimes.csv", b"runtime\n0.0\n60\n3600\n7200.0\n")
    found = [
        traces.read(("x.gz", packed), None, lengths, Naming(team="{type}"), seed=seed).works for seed in (1, 1, 2, 3)
    ]
    assert found[0] == found[1]
    assert {tuple(work.length for work in each) for each in found} > {tuple(work.length for work in found[0])}
    assert {work.length for each in found for work in each} <= {MINUTE, HOUR, 2 * HOUR}
    assert [dict(work.shape.requests)[GPU] for work in found[0]] == [1_000_000, 8_000_000]
    assert found[0][0].labels == (("team", "ResNet-18-batch-size-32"), ("type", "ResNet-18-batch-size-32"))


@pytest.mark.parametrize(
    ("pods", "nodes", "says"),
    [
        (
            PODS.replace("b,4000,1024,2", "b,4000,1024,two"),
            NODES,
            r"file.csv: line 3, column num_gpu: must be a number",
        ),
        (PODS.replace("200,300,200", "200,100,200"), NODES, r"line 4, column deletion_time: is 100, before"),
        (PODS.replace(",400,900,", ",-4,900,"), NODES, r"line 5, column creation_time: .* not '-4'"),
        (PODS + "e,1\n", NODES, r"line 6, column num_gpu: the line ends before it"),
        (PODS, "sn,cpu_milli\nn,1\n", r"line 1: these columns are missing: memory_mib, gpu, model"),
        (PODS, NODES.replace("n-1,32000", "n-1,many"), r"line 3, column cpu_milli: .* not 'many'"),
        (PHILLY.replace("00:02:00", "00:01:00"), None, r"line 4, column time: must be later than on the line before"),
        (PHILLY.replace(",3,4", ",x,4"), None, r"line 4, column active"),
        (GAVEL, None, r"give run times to draw from with --runtimes FILE"),
        ("a,b\n1,2\n", None, r"line 1 is not the header of a known trace"),
        (PODS.splitlines()[0] + "\n", NODES, r"it has no pods"),
        (PODS.replace(",1,460,", ",1.5,460,"), NODES, r"line 2, column num_gpu: must be a whole number, not '1.5'"),
        (PODS.replace(",1,460,", ",99999,460,"), NODES, r"line 2, column num_gpu: .* to 10,000, not '99999'"),
        (PODS.replace(",1,460,", ",1,1001,"), NODES, r"line 2, column gpu_milli: .* to 1,000, not '1001'"),
        (PODS.replace(",1,460,", ",nan,460,"), NODES, r"line 2, column num_gpu: must be a number .* not 'nan'"),
        (PODS.replace("0,7200,10", "0,1e15,10"), NODES, r"line 2, column deletion_time: .* to 10,000,000,000"),
        (
            PODS.replace("200,300,200", "200,400000000,200"),
            NODES,
            r"line 4, column deletion_time: makes the trace longer than 3,650 days",
        ),
        (
            PODS.replace("a,4000", "a0,4000").replace("0,7200,10", "1700000000,1700000060,1700000000"),
            NODES,
            r"line 3, column creation_time: makes the trace longer than 3,650 days",
        ),
        (PODS, NODES.replace(",2,T4", ",999999999999999,T4"), r"line 3, column gpu: .* to 10,000"),
        (
            PODS,
            NODES.replace("n-0,32000,65536", "n-0,32000,5000000"),
            r"line 2, column memory_mib: .* to 4,194,304",
        ),
        (PHILLY.replace(",3,4", ",900000000,4"), None, r"line 4, column active: .* to 4, not '900000000'"),
        (PHILLY.replace(",3,4", ",3,900000000"), None, r"line 4, column total: .* to 100,000"),
        (PHILLY.replace("2017-10-03 00:02", "2217-10-03 00:02"), None, r"line 4, column time: makes the trace longer"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(pods: str, nodes: str | None, says: str) -> None:
    with pytest.raises(Misconfigured, match=says):
        read(pods, nodes, naming=Naming())


@pytest.mark.parametrize(
    ("text", "says"), [(b"\x1f\x8bnot gzip", "cannot be unpacked"), (b"\xff\xfe\x00", "not UTF-8")]
)
def test_what_cannot_be_read_is_said(text: bytes, says: str) -> None:
    with pytest.raises(Misconfigured, match=says):
        traces.read(("x", text), None, None, Naming())


# --- placing ----------------------------------------------------------------------------------------------------------------------


def a_node(name: str, gpus: int, **more: object) -> Node:
    return Node(name=name, ready=True, allocatable=((GPU, gpus * 10**6),), **more)  # type: ignore[arg-type]  # as given


def asks(gpus: float, **more: object) -> Shape:
    return Shape(requests=((GPU, round(gpus * 10**6)),), **more)  # type: ignore[arg-type]  # as given


def placed(placer: Placer) -> dict[str, str]:
    return dict(placer.place())


def test_the_first_node_by_name_with_room_is_taken() -> None:
    shapes = [asks(1), asks(2)]
    placer = Placer([a_node("b", 2), a_node("a", 1)], shapes)
    for number, shape in enumerate((asks(2), asks(1), asks(1))):
        placer.add(f"p{number}", shape)
    assert placed(placer) == {"p0": "b", "p1": "a"}
    assert placer.waiting == 1
    assert placed(placer) == {}
    placer.forget("p0")
    assert placed(placer) == {"p2": "b"}


def test_shares_are_packed_onto_cards_and_whole_cards_stay_whole() -> None:
    shapes = [asks(0.6), asks(0.4), asks(1), asks(0.5)]
    placer = Placer([a_node("a", 2)], shapes)
    placer.add("six", asks(0.6))
    placer.add("four", asks(0.4))
    placer.add("whole", asks(1))
    placer.add("five", asks(0.5))
    # 0.6 and 0.4 share one card, the other is whole; one and a half would be free by the sum alone.
    assert placed(placer) == {"six": "a", "four": "a", "whole": "a"}
    placer.forget("four")
    assert placed(placer) == {}, "0.4 of a card is free, and 0.5 are asked for"
    placer.forget("six")
    assert placed(placer) == {"five": "a"}
    placer.add("next", asks(1))
    assert placed(placer) == {}
    placer.forget("five")
    assert placed(placer) == {"next": "a"}


def test_models_taints_and_cordons_are_heeded() -> None:
    wants = Shape(requests=((GPU, 10**6),), affinity=traces._one_of(["T4", "A10"]))
    nodes = [
        a_node("a", 8),
        a_node("b", 8, labels=((MODEL, "T4"),), unschedulable=True),
        a_node("c", 8, labels=((MODEL, "A10"),)),
    ]
    placer = Placer(nodes, [wants])
    placer.add("p", wants)
    assert placed(placer) == {"p": "c"}


def test_affinity_to_numbers_is_heeded() -> None:
    more = {"key": "gpus", "operator": "Gt", "values": ["4"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [more]}]}
    affinity = json.dumps({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}})
    wants = Shape(requests=((GPU, 10**6),), affinity=affinity)
    placer = Placer([a_node("a", 8, labels=(("gpus", "4"),)), a_node("b", 8, labels=(("gpus", "8"),))], [wants])
    placer.add("p", wants)
    assert placed(placer) == {"p": "b"}
