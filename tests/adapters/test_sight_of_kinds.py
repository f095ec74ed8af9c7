"""Which kinds the whole view needs, which limit only what needs them, and what is said of those that are not seen."""

import pytest

from headroom.adapters.kube import devices, paths
from headroom.api.kinds import KINDS
from headroom.model import sight
from headroom.model.decisions import Ref
from headroom.model.world import World
from headroom.sim import faults as wrong
from tests.adapters.simulated import Cluster, virtual
from tests.builders import NOON, a_ref

NEEDED = [
    paths.pods(),
    paths.nodes(),
    paths.namespaces(),
    paths.owner("Job"),
    paths.budget_index(),
    paths.budget_hold(),
    *(paths.collection(kind) for kind, each in KINDS.items() if each.needed),
]
THEIRS = [
    paths.collection("ReleaseRequest"),
    *(paths.devices(plural) for plural in devices.KINDS.values()),
    paths.owner("JobSet"),
    paths.owner("Workload"),
    paths.karpenter("nodepools"),
    paths.karpenter("nodeclaims"),
    paths.of("karpenter.k8s.aws", "v1", "ec2nodeclasses"),
    paths.policies("validatingadmissionpolicies"),
    paths.policies("mutatingadmissionpolicybindings"),
]


def broken(cluster: Cluster, path: str, **fault: object) -> None:
    cluster.transport._faults.add(wrong.DroppedStream(path=path))
    cluster.transport._faults.add(wrong.Refusal(path=path, **fault))  # type: ignore[arg-type]  # as each test gives it


@virtual
async def test_a_404_on_our_own_kind_lets_nothing_go_and_heals() -> None:
    async with Cluster() as cluster:
        cluster.resource()
        cluster.resource("PowerPool", "rack")
        await cluster.settle()
        broken(cluster, paths.collection("GPUWorkloadBudget"), status=404, until="5m")
        for _ in range(28):
            await cluster.settle(10)
            world = cluster.port.world(NOON)
            assert set(world.resources) == {a_ref(), Ref("PowerPool", "", "rack")}
            assert not world.complete
            assert list(world.unseen) == ["gpuworkloadbudgets.headroom.dev"]
        await cluster.settle(60)
        assert cluster.port.world(NOON).unseen == {}
        assert cluster.port.complete


@virtual
async def test_it_says_since_when_it_could_act_without_a_break() -> None:
    async with Cluster() as cluster:
        begun = cluster.clock.now()
        assert cluster.port.world(begun).acting_since == begun
        await cluster.settle(60)
        assert cluster.port.world(cluster.clock.now()).acting_since == begun
        broken(cluster, paths.nodes(), status=500, until="6m")
        for _ in range(40):
            await cluster.settle(10)
            world = cluster.port.world(cluster.clock.now())
            if not world.complete:
                blind_at = world.now
        assert world.complete
        assert blind_at < world.acting_since <= blind_at + 20_000
        assert cluster.port.world(begun).acting_since == begun, "a clock that was set back"


@pytest.mark.parametrize("status", [404, 403, 410, 429, 500, 503])
@pytest.mark.parametrize("path", NEEDED)
@virtual
async def test_without_what_every_decision_needs_the_view_is_not_complete(path: str, status: int) -> None:
    async with Cluster() as cluster:
        broken(cluster, path, status=status, message="not today", until="30s")
        await cluster.settle(10)
        kind = paths.spoken(path)
        assert not cluster.port.complete
        assert [each for each in cluster.port.problems() if kind in each and "not today" in each]
        assert list(cluster.port.unseen()) == [kind]
        assert [each for each, seen in cluster.port.watched().items() if not seen] == [kind]
        await cluster.settle(60)
        assert cluster.port.complete


@pytest.mark.parametrize("status", [403, 404, 500, 503])
@pytest.mark.parametrize("path", THEIRS)
@virtual
async def test_what_others_made_keeps_nothing_else_waiting(path: str, status: int) -> None:
    async with Cluster() as cluster:
        is_there = cluster.port._reflectors[path].is_served
        broken(cluster, path, status=status, message="not today", until="10m")
        await cluster.settle(200)
        assert cluster.port.complete
        assert cluster.port.problems() == []
        assert list(cluster.port.world(NOON).unseen) == ([paths.spoken(path)] if is_there else [])
        await cluster.settle(450)
        assert cluster.port.world(NOON).unseen == {}


@virtual
async def test_the_core_knows_every_kind_by_the_name_that_it_has_here() -> None:
    watched = {paths.spoken(path): each for path, each in Cluster().port._reflectors.items()}
    assert {*sight.DRA, *sight.POLICIES, *sight.OWNERS.values()} <= watched.keys()
    everything = World(now=NOON, unseen=dict.fromkeys(watched, "not now"))
    assert set(sight.blinding(everything)) == {kind for kind, each in watched.items() if each.is_needed}
