"""The operator as a process, before a region of AWS: what it reads becomes NodePools, what becomes of machines is learnt."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headroom.adapters.kube import paths
from headroom.adapters.kube.client import Kube
from headroom.cli import output
from headroom.cli.serving import Process
from headroom.core import PLANS
from headroom.model import times
from headroom.runtime.settings import Settings
from headroom.runtime.surroundings import Runtime
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock
from tests.aws_region import product
from tests.aws_service import AwsService
from tests.builders import NOON
from tests.cli.test_serving import CONFIG
from tests.cloud_sides import CANARY, KEY, KEY_ID
from tests.cloud_stage import until

A, B = "use1-az6", "use1-az1"
OURS = "headroom.dev/v1alpha1"


def settings(service: AwsService, folder: Path) -> Settings:
    return Settings(
        identity="me",
        elect_leader=False,
        metrics_address="",
        health_address="",
        state_dir=str(folder),
        cloud_endpoints=f"aws-ec2={service.url},aws-pricing={service.url}",
    )


@asynccontextmanager
async def operating(server: ApiServer, settings: Settings, clock: SimClock) -> AsyncIterator[Process]:
    kube = Kube(server.transport("operator"), clock)
    process = Process(settings, Runtime(clock=clock), kube, CONFIG, PLANS)
    running = asyncio.create_task(process.run())
    try:
        yield process
    finally:
        process._ends.set()
        assert await asyncio.wait_for(running, 120) == output.OK


def put(server: ApiServer, kind: str, name: str, api: str, **body: Any) -> None:
    server.put({"apiVersion": api, "kind": kind, "metadata": {"name": name} | body.pop("metadata", {})} | body)


def status(server: ApiServer) -> dict[str, Any]:
    found = server.object("LeftoverNodePool", "", "cheap") or {}
    return dict(found.get("status") or {})


def prices(service: AwsService) -> None:
    since = NOON - times.HOUR
    service.region.history = [("g5.xlarge", A, "0.40", since), ("g5.xlarge", B, "0.43", since)]
    service.region.products = [product("g5.xlarge", "1.006")]
    service.region.scores = lambda _kinds, _count: {A: 9, B: 9}


def claim(server: ApiServer, pool: str, name: str) -> None:
    """A spot machine of a rung in the first zone, launched by Karpenter, that has joined."""
    labels = {
        "karpenter.sh/nodepool": pool,
        "karpenter.sh/capacity-type": "spot",
        "node.kubernetes.io/instance-type": "g5.xlarge",
        "topology.kubernetes.io/zone": "us-east-1a",
    }
    at = "2026-11-15T11:00:00Z"
    done = [
        {"type": each, "status": "True", "reason": each, "lastTransitionTime": at}
        for each in ("Launched", "Registered")
    ]
    metadata = {"labels": labels, "finalizers": ["karpenter.sh/termination"]}
    put(server, "NodeClaim", name, "karpenter.sh/v1", metadata=metadata, spec={}, status={"conditions": done})


async def test_what_aws_tells_becomes_nodepools_and_what_becomes_of_machines_is_learnt(
    aws_service: AwsService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws_service.forget()
    prices(aws_service)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    clock = SimClock(NOON, 20.0)
    server = ApiServer(clock, random.Random(1))
    async with operating(server, settings(aws_service, tmp_path), clock) as process:
        put(server, "EC2NodeClass", "gpu", "karpenter.k8s.aws/v1", spec={"role": "nodes"})
        spec = {"region": "us-east-1", "nodeClassName": "gpu", "families": ["g5"]}
        put(server, "LeftoverNodePool", "cheap", OURS, spec=spec)
        await until(lambda: status(server).get("lastPriceUSD") == "0.4000", "the first price is in the status")
        await until(lambda: len(server.objects("NodePool")) >= 2, "the rungs stand")
        seen = process._port.world(clock.now())
        assert seen.offer_feeds["cheap"].problem == ""
        first = max(server.objects("NodePool"), key=lambda each: each["spec"]["weight"])["metadata"]["name"]
        for number in range(12):
            claim(server, first, f"{first}-{number}")
        await until(lambda: len(process._port.world(clock.now()).node_claims) == 12, "the machines are seen")
        await until(lambda: bool(process._learning._written), "the ledger knows them")
        for number in range(12):
            server.do("DELETE", paths.karpenter("nodeclaims", f"{first}-{number}"))
        offer = "g5.xlarge/us-east-1a/spot"
        await until(
            lambda: getattr(process._port.world(clock.now()).experience.get(offer), "interruptions", 0) == 12,
            "what became of them is known",
        )
        assert CANARY not in repr(server.objects("LeftoverNodePool"))
