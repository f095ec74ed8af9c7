"""What the commands say of bandwidth in a cluster: by the operator's statuses, by its settings, and with few rights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headroom.adapters import documents
from headroom.cli import planning
from headroom.cli.face_bandwidth import BandwidthStory
from headroom.model.decisions import Ref, status_wire
from headroom.runtime.clock import RealClock
from headroom.sim.rights import Right
from tests.cli.conftest import Headroom
from tests.cli.served import Served
from tests.cli.stage import NOON, NOON_MS, ROOT, fleet_behind_a_port
from tests.web import links

EXAMPLE = ROOT / "docs" / "examples" / "bandwidth-pods.yaml"
OFFLINE = ("-f", str(EXAMPLE), "--now", NOON)
TENANT = (Right(verbs=("*",), resources=("pods", "gpuworkloadbudgets"), namespaces=("team-b",)),)
CONFIG = {
    "apiVersion": "headroom.dev/v1alpha1",
    "kind": "BandwidthConfig",
    "metadata": {"name": "headroom"},
    "spec": {"mode": "Extender", "egress": [{"annotation": "example.com/up", "unit": "Mbps"}], "ingress": []},
}
N1 = Ref("Bandwidth", "", "n1")


@pytest.fixture(autouse=True)
def _noon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RealClock, "now", lambda _: NOON_MS)


def written() -> list[dict[str, Any]]:
    """The example with what an operator has written down of it."""
    text = EXAMPLE.read_bytes()
    decided = {each.resource.name: each for each in planning.decisions(documents.read([("it", text)]).world(NOON_MS))}
    found: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    for each in found:
        if each["kind"] == "Bandwidth":
            each["status"] = status_wire(decided[each["metadata"]["name"]].status)
    return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Served]:
    with fleet_behind_a_port(tmp_path, empty=True) as made:
        made.put(*written())
        yield made


def test_a_pod_says_what_is_reserved_by_its_node_and_its_siblings(headroom: Headroom, cluster: Served) -> None:
    done = headroom("explain", "pod/team-b/ring-0", "--kubeconfig", cluster.kubeconfig())
    assert "8000/8000 Mbps up/down are reserved on node net-worker-1, of its virtual switch only" in done.out
    assert "not looked at" not in done.out


def test_what_the_status_remembers_counts_before_what_the_pod_says_now(headroom: Headroom, cluster: Served) -> None:
    cluster.put(
        next(each for each in written() if each["metadata"]["name"] == "loader")
        | {"metadata": {"name": "loader", "namespace": "team-a", "uid": "7b01", "annotations": NOW}}
    )
    done = headroom("explain", "pod/team-a/loader", "--kubeconfig", cluster.kubeconfig())
    assert "2000/6000 Mbps up/down are reserved on node net-worker-1, of its virtual switch" in done.out
    assert "its request was edited after it was bound, without effect" in done.out


NOW = {"kubernetes.io/egress-bandwidth": "1M", "kubernetes.io/ingress-bandwidth": "1M"}


def test_a_tenant_is_told_of_the_own_pod_by_what_stands_on_it(headroom: Headroom, cluster: Served) -> None:
    done = headroom("explain", "pod/team-b/ring-0", "--kubeconfig", cluster.kubeconfig("tenant", TENANT))
    assert "8000/8000 Mbps up/down are reserved on node net-worker-1, of its virtual switch" in done.out
    assert "bandwidths" in next(line for line in done.out.splitlines() if "not checked for lack of permission" in line)
    assert "team-a" not in done.out


def test_settings_come_from_what_the_operator_told_the_policies(headroom: Headroom, cluster: Served) -> None:
    waits = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "waits", "namespace": "team-a", "uid": "w", "annotations": {"example.com/up": "300"}},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    cluster.put(waits, CONFIG)
    done = headroom("explain", "pod/team-a/waits", "--kubeconfig", cluster.kubeconfig())
    assert "- bandwidth: it requests 300/0 Mbps up/down (example.com/up)" in done.out.splitlines()
    assert "bandwidth_mode is Extender, but the pod was created before its policies" in " ".join(done.out.split())


def test_status_has_the_nodes_that_operators_wrote_down(headroom: Headroom, cluster: Served) -> None:
    done = headroom("status", "--kubeconfig", cluster.kubeconfig())
    assert "Bandwidth: 4 pods on 1 node, 1 pod unreadable" in done.out.splitlines()
    assert any(line.split()[:2] == ["net-worker-1", "60%"] for line in done.out.splitlines())


def test_in_native_mode_status_says_on_how_many_nodes_bandwidth_is_placed(headroom: Headroom, cluster: Served) -> None:
    for name, placed in (("a", "True"), ("b", "True"), ("c", "False")):
        condition = {"type": "NativePlacement", "status": placed, "reason": "Any", "message": ""}
        condition |= {"lastTransitionTime": NOON}
        cluster.put(
            {
                "apiVersion": "headroom.dev/v1alpha1",
                "kind": "Bandwidth",
                "metadata": {"name": f"net-native-{name}"},
                "spec": {"capacity": {}},
                "status": {"conditions": [condition]},
            }
        )
    lines = headroom("status", "--kubeconfig", cluster.kubeconfig()).out.splitlines()
    assert "Bandwidth: 4 pods on 4 nodes, 1 pod unreadable; native placement on 2 of 4 nodes" in lines


def test_of_a_large_fleet_status_shows_the_worst_nodes_and_a_count(headroom: Headroom, tmp_path: Path) -> None:
    many = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{each}", "namespace": "a", "uid": f"u{each}", "annotations": asks(each)},
            "spec": {"nodeName": f"n{each}", "containers": [{"name": "main", "image": "x"}]},
            "status": {"phase": "Running"},
        }
        for each in range(1, 13)
    ]
    many += [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{each}"}} for each in range(1, 13)]
    many += [
        {
            "apiVersion": "headroom.dev/v1alpha1",
            "kind": "Bandwidth",
            "metadata": {"name": f"n{each}"},
            "spec": {"capacity": {}},
        }
        for each in range(1, 13)
    ]
    file = tmp_path / "many.yaml"
    file.write_text(yaml.safe_dump_all(many))
    lines = headroom("status", "-f", file, "--now", NOON).out.splitlines()
    assert "Bandwidth: 12 pods on 12 nodes, 2 overcommitted" in lines
    shown = [line.split()[:2] for line in lines if line.startswith("n") and line[1].isdigit()]
    assert shown == [["n12", "120%"], ["n11", "110%"], ["n10", "100%"], ["n9", "90%"], ["n8", "80%"]]
    assert "and 7 nodes more; --all lists them" in lines
    whole = headroom("status", "-f", file, "--now", NOON, "--all").out
    assert "--all lists them" not in whole
    assert "\nn1 " in whole


def asks(hundreds: int) -> dict[str, str]:
    return {"kubernetes.io/egress-bandwidth": f"{hundreds}00M"}


def test_check_reads_what_pods_and_nodes_say(headroom: Headroom, tmp_path: Path) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "annotations": {NETWORK: "fast"}}}
    file = tmp_path / "node.yaml"
    file.write_text(yaml.safe_dump(node))
    done = headroom("check", file)
    assert f"Node/n: warning: metadata.annotations {NETWORK} 'fast' must be bits per second" in done.out
    assert done.code == 0


NETWORK = "headroom.dev/network-bandwidth"


def test_the_story_tells_once_that_a_node_is_overcommitted_and_when_it_is_over() -> None:
    story = BandwidthStory()
    full, calm = (links.a_node_with("n1", links.holds("a/b", mbps)) for mbps in (1500, 500))
    told = [
        list(story.news(N1, each.decision, each.resource, number))
        for number, each in enumerate((calm, full, full, calm, calm))
    ]
    assert told == [
        [],
        [(1, "bandwidth: n1 is overcommitted, 150% of a link is reserved")],
        [],
        [(3, "bandwidth: n1 is within its capacity again")],
        [],
    ]


def test_explain_without_a_terminal_shows_every_reservation(headroom: Headroom) -> None:
    lines = headroom("explain", "bw/net-worker-1", *OFFLINE).out.splitlines()
    assert sum("team-" in line for line in lines) == 4
