"""Every scenario in this folder holds for the production operator, and the same seed plays it the same to the byte."""

import asyncio
import os
import random
import subprocess
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headroom.adapters.kube.transport import MERGE_PATCH, Transport
from headroom.model.errors import HeadroomError, Misconfigured
from headroom.model.ports import Clock
from headroom.sim.operators import production
from headroom.sim.scenario import Scenario, simulate
from headroom.sim.script import lookup

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.yaml"))


class StandIn:
    """An operator that does one thing: it counts up in the status of every budget, now and then."""

    def __init__(self, transport: Transport, clock: Clock, rng: random.Random, identity: str) -> None:
        self._transport, self._clock, self._rng, self._identity = transport, clock, rng, identity
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        count = 0
        while not self._stopped.is_set():
            count += 1
            body = msgspec.json.encode({"status": {"trackedPods": count}})
            path = "/apis/headroom.dev/v1alpha1/namespaces/lab/gpuworkloadbudgets/lab/status"
            with suppress(HeadroomError):
                await self._transport.request("PATCH", path, body=body, content_type=MERGE_PATCH)
            await self._clock.sleep(self._rng.uniform(5, 15))

    async def stop(self) -> None:
        self._stopped.set()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_scenario_holds(path: Path) -> None:
    report = simulate(Scenario.load(path), production)
    assert report.passed, "\n".join(report.failures)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_same_seed_gives_the_same_trace_and_another_seed_another(path: Path) -> None:
    scenario = Scenario.load(path)
    first, second = simulate(scenario, StandIn), simulate(scenario, StandIn)
    assert first.trace.text() == second.trace.text()
    assert first.happened == second.happened
    other = msgspec.structs.replace(scenario, seed=scenario.seed + 1)
    assert simulate(other, StandIn).trace.digest() != first.trace.digest()


def test_the_trace_does_not_depend_on_the_process() -> None:
    code = (
        "from pathlib import Path\n"
        "from headroom.sim.operators import production\n"
        "from headroom.sim.scenario import Scenario, simulate\n"
        f"print(simulate(Scenario.load(Path({str(FOLDER / 'everything-goes-wrong.yaml')!r})), production).trace.digest())"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert digests[0] == digests[1]


def scenario(**spec: Any) -> Scenario:
    budget = {
        "apiVersion": "headroom.dev/v1alpha1",
        "kind": "GPUWorkloadBudget",
        "metadata": {"name": "lab", "namespace": "lab"},
        "spec": {
            "selector": {"matchLabels": {"team": "lab"}},
            "quota": {"gpuHours": "1", "windowHours": 1},
            "enforcement": {"action": "AlertOnly"},
        },
    }
    return Scenario.of(
        [{"apiVersion": "sim.headroom.dev/v1", "kind": "Scenario", "spec": {"duration": "5m"} | spec}, budget]
    )


def test_what_does_not_hold_is_told() -> None:
    budget = "GPUWorkloadBudget/lab/lab"
    expect = [
        {"resource": budget, "path": "status.trackedPods", "equals": 1000},
        {"resource": budget, "path": "status.trackedPods", "atLeast": 1000},
        {"at": "1m", "resource": "Pod/lab/none", "path": "status.phase", "equals": "Running"},
        {"resource": budget, "exists": False},
        {"writes": {"actor": "operator-1", "method": "PATCH"}, "atMost": 3},
        {"resource": budget, "path": "status.trackedPods", "atLeast": 10},
    ]
    report = simulate(scenario(expect=expect), StandIn)
    assert not report.passed
    assert len(report.failures) == 5
    assert "at 1m, Pod/lab/none: it is not there" in report.failures


def test_an_operator_that_crashes_comes_back_and_one_that_ends_is_a_finding() -> None:
    crash = {"at": "1m", "fault": {"type": "CrashAfter", "verb": "patch"}}
    report = simulate(scenario(timeline=[crash], restartAfter="30s"), StandIn)
    assert report.passed
    assert [word for _, _, word in report.happened] == ["CrashAfter"]
    times = [each.at for each in report.trace.by("operator-1")]
    assert max(after - before for before, after in pairwise(times)) >= 30_000

    class Quitter(StandIn):
        async def run(self) -> None:
            raise ValueError("enough")

    assert simulate(scenario(), Quitter).failures == ["operator-1 ended by itself: ValueError('enough')"]


def test_operators_are_started_stopped_and_killed_by_name() -> None:
    timeline = [
        {"at": "1m", "startOperator": "extra"},
        {"at": "2m", "stopOperator": "operator-1"},
        {"at": "3m", "killOperator": "extra"},
        {"at": "3m", "fault": {"type": "SecondLeader", "until": "4m"}},
    ]
    report = simulate(scenario(timeline=timeline, restartAfter="1h"), StandIn)
    assert report.passed
    spans = {}
    for name in ("operator-1", "extra", "second-2"):
        at = [each.at - 1_767_225_600_000 for each in report.trace.by(name)]
        spans[name] = (min(at) // 60_000, max(at) // 60_000)
    assert spans == {"operator-1": (0, 1), "extra": (1, 2), "second-2": (3, 3)}


@pytest.mark.parametrize(
    "spec",
    [
        {"duration": "long"},
        {"start": "today"},
        {"timeline": [{"at": "1m"}]},
        {"timeline": [{"at": "1m", "delete": "Pod/a/b", "heal": True}]},
        {"timeline": [{"at": "1m", "fault": {"type": "Nonsense"}}]},
        {"wrong": 1},
    ],
)
def test_a_wrong_scenario_is_refused_with_a_reason(spec: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured, match="reading"):
        scenario(**spec)


def test_a_field_is_found_by_its_path() -> None:
    body = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}, "metadata": {"labels": {"a.b/c": "d"}}}
    assert lookup(body, "status.conditions[Ready].status") == "True"
    assert lookup(body, "status.conditions[0].type") == "Ready"
    assert lookup(body, 'metadata.labels["a.b/c"]') == "d"
    assert lookup(body, "status.conditions[Other].status") is None
    assert lookup(body, "spec.nothing[3].here") is None
