"""A fleet that stands still at noon, behind a real port, and every command run on it as a user would see it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headroom.adapters import documents, texts
from headroom.adapters.ledger import open_ledger
from headroom.cli import planning
from headroom.model.decisions import status_wire
from headroom.model.history import Entry
from headroom.model.times import HOUR, moment
from headroom.model.usage import Heartbeat
from tests.adapters.ledger.rows import CLUSTER, TODAY, row
from tests.cli import samples
from tests.cli.served import Served

ROOT = Path(__file__).parents[2]
FLEET = ROOT / "tests" / "cli" / "fleet.yaml"
NOON = "2026-11-15T12:00:00Z"
NOON_MS = moment(NOON) or 0
LEASE = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "headroom", "namespace": "headroom-system"},
    "spec": {
        "holderIdentity": "headroom-0",
        "leaseDurationSeconds": 15,
        "renewTime": "2026-11-15T11:59:58.000000Z",
        "acquireTime": "2026-11-15T08:00:00.000000Z",
        "leaseTransitions": 3,
    },
}


def objects() -> list[dict[str, Any]]:
    """The fleet with what an operator has written down about it."""
    found = [each.value for each in texts.objects("fleet", FLEET.read_bytes())]
    world = documents.read([("fleet", FLEET.read_bytes())]).world(NOON_MS)
    statuses = {
        (each.resource.kind, each.resource.name): status_wire(each.status) for each in planning.decisions(world)
    }
    for each in found:
        if (status := statuses.get((each["kind"], each["metadata"]["name"]))) is not None:
            each["status"] = status
    return [*found, LEASE]


@contextmanager
def fleet_behind_a_port(folder: Path, *, empty: bool = False) -> Iterator[Served]:
    """The fleet, or a cluster with nothing in it but our kinds; time stands still there."""
    made = Served(folder, NOON_MS, speed=1e-6)
    made.start()
    try:
        if not empty:
            made.put(*objects())
        yield made
    finally:
        made.stop()


def steady(text: str, folder: Path) -> str:
    """What a command said, without what is never the same twice."""
    text = text.replace(str(folder), "FOLDER").replace(f"{ROOT}/", "")
    text = re.sub(r"http://127\.0\.0\.1:\d+", "http://127.0.0.1:PORT", text)
    text = re.sub(r"\bin \d+\.\d s\b", "in N s", text)
    return re.sub(r"\b[\d.,]+ (MB|bytes)\b", r"N \1", text)


def fill(folder: Path) -> None:
    """The files that commands are given: a ledger, old manifests, and a status."""

    async def ledger() -> None:
        made = open_ledger(str(folder / "ledger.db"))
        rows = [row(number, ended=TODAY + number * HOUR, evidence=3) for number in range(1, 4)]
        await made.write(rows, Heartbeat(cluster=CLUSTER, complete_until=TODAY + 4 * HOUR))
        said = {"reason": "QuotaReached", "message": "48.0 of 47.5 GPU-hours in the last 24h."}
        resource = "GPUWorkloadBudget/lab/team-a"
        await made.note([Entry(cluster=CLUSTER, at=NOON_MS - 60_000, resource=resource, actions="[]", **said)])
        await made.close()

    asyncio.run(ledger())
    old = (samples.BUDGET, samples.SPOTPOOL, samples.BANDWIDTH, samples.LEFTOVER)
    (folder / "old.yaml").write_text("---\n".join(old))
    (folder / "nodes.env").write_text(samples.ENVIRONMENT)
    (folder / "status.json").write_text('{"status": {"consumedGpuHours": "0.0165", "trackedPods": 2}}')
