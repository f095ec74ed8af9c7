"""`headroom check` warns of a Spotpool that no GPU pod beside it tolerates, since `plan` would launch nothing."""

import pytest

from tests.cli.conftest import Headroom
from tests.cli.stage import ROOT

POOL = ROOT / "docs" / "examples" / "spotpool-demand.yaml"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: %s}
spec:
  nodeName: %s
  containers: [{name: main, image: "main:1", resources: {limits: {%s: 1}}}]
  tolerations: [%s]
---
"""
TOLERANT = "{key: headroom.dev/spotpool, value: team-a, effect: NoSchedule}"


def a_pod(
    name: str = "a", tolerations: str = "", namespace: str = "team-a", node: str = "''", gpu: str = "nvidia.com/gpu"
) -> str:
    return POD % (name, namespace, node, gpu, tolerations)


def warned(headroom: Headroom, *pods: str) -> list[str]:
    done = headroom("check", POOL, "-", stdin="".join(pods).encode())
    assert done.code == 0, done.err
    return [line for line in done.out.split("warning: ")[1:] if "toler" in line]


def test_a_pool_that_no_pod_tolerates_is_a_warning_with_the_toleration(headroom: Headroom) -> None:
    [said] = warned(headroom, a_pod(), a_pod("b"))
    spoken = " ".join(said.split())
    assert spoken.startswith(
        "spec.desired is Demand, and none of the given pods with nvidia.com/gpu tolerates the taint"
    )
    assert TOLERANT in spoken


@pytest.mark.parametrize(
    "pods",
    [
        pytest.param([a_pod(), a_pod("b", TOLERANT)], id="one of them does"),
        pytest.param([a_pod(namespace="team-b")], id="another namespace's"),
        pytest.param([a_pod(node="worker-1")], id="it runs"),
        pytest.param([a_pod(gpu="cpu")], id="it needs no GPU"),
        pytest.param(["{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}"], id="none is given"),
    ],
)
def test_nothing_is_said_where_it_may_be_right(headroom: Headroom, pods: list[str]) -> None:
    assert warned(headroom, *pods) == []


def test_a_namespace_that_an_administrator_lists_counts(headroom: Headroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADROOM_POOL_NAMESPACES", "team-a/training=team-b")
    assert len(warned(headroom, a_pod(namespace="team-b"))) == 1


def test_a_pool_for_all_namespaces_has_no_taint(headroom: Headroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADROOM_POOL_NAMESPACES", "team-a/training=*")
    assert warned(headroom, a_pod()) == []
