"""The operator on a real API server: killed, doubled, cut off, and left alone. Nothing is done twice, and nothing is lost."""

import asyncio
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from headroom.adapters.kube import config
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.http import HttpTransport
from headroom.adapters.kube.store import KubePort
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS, KINDS
from headroom.cli.preflight import needs
from headroom.model.changes import Changes
from headroom.runtime.clock import RealClock
from headroom.runtime.leader import Always
from headroom.runtime.operator import Operator
from headroom.runtime.settings import Settings
from headroom.runtime.surroundings import Runtime
from tests.builders import a_document
from tests.control_plane import ControlPlane, wait_until
from tests.integration.replicas import ROOT, Replicas, audited
from tests.processes import PATIENCE_SECONDS

MakePlane = Callable[..., ControlPlane]
PODS = 40
NOT_ASKED_FOR = {("headroom.dev", "releaserequests", verb, "") for verb in ("get", "list", "watch", "delete")} | {
    ("headroom.dev", "releaserequests/status", "patch", ""),
    ("apiextensions.k8s.io", "customresourcedefinitions", "get", "releaserequests.headroom.dev"),
    ("", "services", "get", "kubernetes"),
    ("discovery.k8s.io", "endpointslices", "get", "kubernetes"),
    ("", "pods", "delete", ""),
    ("apiextensions.k8s.io", "customresourcedefinitions", "get", "bandwidthconfigs.headroom.dev"),
}
"""Before the start: without them everything goes on but releases, what is known of the API server's numbers, and `afterDeadline`."""
WRITTEN = [kind for kind, each in KINDS.items() if each.needed]
"""Requests come and go; what becomes of them has tests of its own."""
NOT_READY = 3
"""The Spotpool, the LeftoverNodePool and the Bandwidth among them: neither a cloud, nor Karpenter, nor the node is there."""
WRITES = re.compile(
    r'^apiserver_request_total\{.*resource="(?!leases)([a-z]+)".*verb="(POST|PUT|PATCH|DELETE|APPLY)".*\} (\d+)',
    re.MULTILINE,
)


@pytest.fixture
def replicas(bare_control_plane: MakePlane, tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(bare_control_plane(apiserver_flags=audited(tmp_path)), tmp_path)
    yield made
    made.end_all()


def test_killed_at_any_moment_with_a_second_replica_and_a_restarted_server_it_evicts_each_pod_once(
    replicas: Replicas,
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    replicas.prepare(PODS)
    replicas.start()
    replicas.start()

    for progress in (5, 15):
        replicas.wait_for(progress)
        time.sleep(rng.uniform(0, 0.5))
        replicas.end(replicas.leading(), signal.SIGKILL)
        replicas.start()
    replicas.wait_for(20)
    replicas.plane.restart_apiserver(kill=True)
    replicas.wait_for(PODS)
    time.sleep(2)  # for an eviction too many to show itself

    assert max(replicas.evictions().values()) == 1
    assert not [log for identity in replicas.running if '"level": "error"' in (log := replicas.log(identity))]


def test_a_graceful_stop_hands_the_lease_over_and_ends_well(replicas: Replicas) -> None:
    replicas.prepare(2)
    first = replicas.start()
    replicas.wait_for(2)
    second = replicas.start()
    wait_until(lambda: "the view is complete" in replicas.log(second), "the second operator watches")

    assert replicas.end(first, signal.SIGTERM) == 0
    replicas.add_pods(2, prefix="later")
    replicas.wait_for(4)
    assert replicas.leader() == second
    assert list(replicas.evictions().values()) == [1, 1, 1, 1]


async def test_an_unchanged_world_is_not_written_to_in_a_thousand_ticks(bare_control_plane: MakePlane) -> None:
    """Counted by the API server itself."""
    plane = bare_control_plane()
    plane.apply(*(crd(kind) for kind in DEFINITIONS.values()))
    for namespace in ("team-a", "headroom-system"):
        plane.kubectl("create", "namespace", namespace)
    wait_until(lambda: "leftovernodepools" in plane.kubectl("api-resources"), "the kinds are served")
    plane.apply(*(a_document(kind) for kind in WRITTEN))
    clock = RealClock()
    transport = HttpTransport(config.load(str(plane.kubeconfig()), None), clock)
    kube = Kube(transport, clock)
    port = KubePort(kube, Events(kube, clock), clock=clock, rng=random.Random(1))
    operator = Operator(port, Always(), Settings(), Runtime(clock=clock))
    await port.start()
    assert await port.synced(PATIENCE_SECONDS)
    running = asyncio.create_task(operator.run())
    try:
        await _until_ready(plane)
        before = await _at_rest(plane)
        for _ in range(1000):
            for state in operator.loop._states:
                state.pending.add(Changes(everything=True))
                state.asked_at = -1e9
            operator.loop.tick()
            await asyncio.sleep(0)
        await asyncio.sleep(1)
        assert operator.loop.ticks >= 1000
        assert _writes(plane) == before
    finally:
        await operator.stop()
        await asyncio.wait_for(running, PATIENCE_SECONDS)
        await port.stop()
        await transport.close()


async def _until_ready(plane: ControlPlane) -> None:
    """All resources have a status."""
    for _ in range(600):
        shown = await asyncio.to_thread(plane.kubectl, "get", "gwb,sp,pp,bw,lonp", "-A", "-o", "name")
        ready = await asyncio.to_thread(
            plane.kubectl,
            "get",
            "gwb,sp,pp,bw,lonp",
            "-A",
            "-o",
            "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}",
        )
        verdicts = ready.split()
        if len(shown.split()) == len(verdicts) == len(WRITTEN) and verdicts.count("True") == len(WRITTEN) - NOT_READY:
            return
        await asyncio.sleep(0.1)
    raise AssertionError("the resources did not get Ready")


async def _at_rest(plane: ControlPlane) -> Counter[tuple[str, str]]:
    """What was written by the time that nothing has been for two seconds: events follow their status."""
    for _ in range(60):
        before = _writes(plane)
        await asyncio.sleep(2)
        if _writes(plane) == before:
            return before
    raise AssertionError("the writer did not come to rest")


def _writes(plane: ControlPlane) -> Counter[tuple[str, str]]:
    """How many there were of each resource and verb."""
    found: Counter[tuple[str, str]] = Counter()
    for resource, verb, count in WRITES.findall(plane.metrics()):
        found[resource, verb] += int(count)
    return found


def test_every_kind_shows_its_columns_and_its_verdict(replicas: Replicas) -> None:
    plane = replicas.plane
    replicas.prepare(0)
    plane.apply(*(a_document(kind) for kind in WRITTEN))
    replicas.start()
    get = ("get", "gwb,sp,pp,bw,lonp", "-A")
    wait_until(lambda: plane.kubectl(*get).count(" True ") == len(WRITTEN) + 1 - NOT_READY, "they are Ready")
    wait_until(lambda: " False " in plane.kubectl("get", "sp", "-A"), "the Spotpool has its verdict")

    shown = set(plane.kubectl(*get).split())
    assert {"CONSUMED", "REMAINING", "MIN", "MAX", "UUL", "STATE", "REGION", "PRICE", "READY", "AGE"} <= shown
    assert {"ON", "OFF", "CHANGING"} <= shown


def test_the_rights_in_deploy_are_all_it_uses_and_enough(bare_control_plane: MakePlane, tmp_path: Path) -> None:
    """A user who has just those rights runs it; nothing is refused, and nothing is granted that preflight does not ask for."""
    plane = bare_control_plane(users={"headroom": []}, apiserver_flags=audited(tmp_path))
    replicas = Replicas(plane, tmp_path)
    roles = (ROOT / "deploy" / "rbac.yaml").read_text()
    plane.kubectl("apply", "-f", "-", input=roles)
    plane.grant("headroom", "headroom-operator")
    own = ("--role=headroom-operator", "--user=headroom", "--namespace=headroom-system")
    plane.kubectl("create", "rolebinding", "headroom-user", *own)
    try:
        replicas.prepare(0)
        identity = replicas.start(user="headroom")
        ready = ("get", "gwb", "-A", "-o", "jsonpath={.items[*].status.conditions[?(@.type=='Ready')].status}")
        ended = replicas.running[identity].poll
        wait_until(lambda: plane.kubectl(*ready) == "True" or ended() is not None, "the budget is Ready")
        log = replicas.log(identity)
        assert ended() is None, log
    finally:
        replicas.end_all()
    assert "forbidden" not in log
    # A right for all objects has the right for one in it.
    wanted = {(need.group, need.resource, need.verb, need.name) for need in needs(Settings(bandwidth_mode="Native"))}
    asked_for = {each for each in wanted if not each[3] or (*each[:3], "") not in wanted}
    assert _granted(roles) - NOT_ASKED_FOR == asked_for
    assert _granted(roles) >= NOT_ASKED_FOR


def _granted(roles: str) -> set[tuple[str, str, str, str]]:
    rules = [rule for each in yaml.safe_load_all(roles) for rule in each.get("rules", ()) if "resources" in rule]
    return {
        (group, resource, verb, name)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }
