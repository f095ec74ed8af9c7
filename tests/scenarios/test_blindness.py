"""Every wrong answer on every path, for ten seconds and for five minutes, while budgets hold, suspend and evict and machines are switched.

Nothing comes of it that would not have come without it, and in the end all is as it would have been.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from headroom.adapters.kube import paths
from tests.scenarios import ladder
from tests.scenarios.ladder import UNHURRIED
from tests.scenarios.power_stage import PowerRun, a_node, a_pool, at, machines, nodes, play
from tests.scenarios.power_stage import a_pod as a_machine_pod
from tests.tiers import DEEP

FAULTS: dict[str, dict[str, Any]] = {
    **{str(code): {"type": "Refusal", "status": code} for code in (404, 403, 410, 429, 500)},
    "html": {"type": "Garbage"},
    "hang": {"type": "Hang"},
    "endless": {"type": "EndlessList"},
    "empty": {"type": "EmptyList"},
}
PATHS = [
    paths.collection("GPUWorkloadBudget"),
    paths.collection("PowerPool"),
    paths.budget_hold(),
    paths.budget_index(),
    "/apis/headroom.dev/*",
    "/api/v1*/pods*",
    "/api/v1/nodes*",
    paths.namespaces(),
    "/apis/batch/*/jobs*",
    "*/configmaps*",
    "*/leases*",
    "/apis/resource.k8s.io/*",
    "*.x-k8s.io/*",
    "/apis/karpenter.sh/*",
    "/apis/admissionregistration.k8s.io/*",
    "/apis",
    "*",
]
DECISIVE = {paths.collection("GPUWorkloadBudget"), "/apis/headroom.dev/*", "/api/v1*/pods*", "/api/v1/nodes*", "*"}
"""What effects hang on: each wrong answer is tried there in every run."""
GRAVEST = ("404", "empty")
"""What looks like absence is tried everywhere in every run; of the rest a third, unless the run is deep."""
CELLS = [
    (fault, path)
    for place, path in enumerate(PATHS)
    for number, fault in enumerate(FAULTS)
    if DEEP or path in DECISIVE or fault in GRAVEST or (place + number) % 3 == 0
]
WINDOWS = (("3m", "3m10s"), ("4m", "9m"))
_NO_EFFECTS = ("/leases", "/events", "reviews", "/status")


def story(*faults: dict[str, Any]) -> PowerRun:
    """By the third minute a budget holds two pods, a Job is suspended, and a machine is woken; pods to evict come all the time."""
    pool = a_pool(gpus=[8, 8], idleSeconds=20, bootTimeoutSeconds=1200)
    asleep, awake = machines(pool, "Off"), nodes(pool)[0]
    asleep[0]["spec"]["power"] = "On"
    budgets = [
        ladder.a_budget("holds", "0.05", "100% Hold", enforcement={"gracePeriodSeconds": 0}),
        ladder.a_budget("stops", "0.05", "100% Suspend", enforcement={"gracePeriodSeconds": 0}),
        ladder.a_budget("evicts", "0.05", "100% Evict", enforcement={"gracePeriodSeconds": 0}),
    ]
    base = [*ladder.stage(*budgets, nodes=1), a_node("plain"), pool, *asleep, awake]
    base += [a_machine_pod("works", 8, "10h"), ladder.a_pod("runs", ladder.a_template({"team": "holds"}, 4, "10h"))]
    timeline = [{"at": "0s", "fault": {"actor": "operator-*"} | fault} for fault in faults]
    timeline += [at("20s", ladder.a_job("train", ladder.a_template({"team": "stops"}, 4, "10h")))]
    for number, moment in enumerate(("70s", "3m2s", "4m30s", "8m")):
        timeline.append(at(moment, ladder.a_pod(f"victim-{number}", ladder.a_template({"team": "evicts"}, 4, "10h"))))
    queued = [ladder.a_pod(f"queued-{each}", ladder.a_template({"team": "holds"}, 1, "10h")) for each in range(2)]
    timeline += [at("2m", each) for each in queued]
    timeline.append(at("2m15s", a_machine_pod("needs-a-machine", 8, "10h")))
    return play(base, timeline, duration="11m", pace=UNHURRIED)


def effects(run: PowerRun) -> Counter[str]:
    """What the operator did and was granted, and what machines were told."""
    trace = [each for each in run.simulation.server.trace.writes if each.actor.startswith("operator")]
    done = [f"{each.method} {each.path.partition('?')[0]}" for each in trace if each.status < 300]
    found = Counter(each for each in done if not any(word in each for word in _NO_EFFECTS))
    return found + Counter(f"{command} {machine}" for command, machine in run.commands())


@cache
def calm() -> PowerRun:
    return story()


def test_without_faults_everything_is_under_way() -> None:
    found = effects(calm())
    text = "\n".join(sorted(found))
    for word in ("budgetholds", "jobs/train", "victim-0/eviction", "victim-3/eviction", "Wake metal-2"):
        assert word in text
    assert "queued" not in text


@pytest.mark.parametrize(("fault", "path"), CELLS)
def test_nothing_comes_of_a_wrong_answer(fault: str, path: str) -> None:
    # What is under way is cut, so that it is asked for again.
    cuts = [{"type": "DroppedStream", "path": path, "from": begins} for begins, _ in WINDOWS]
    wrong = [FAULTS[fault] | {"path": path, "from": begins, "until": ends} for begins, ends in WINDOWS]
    run = story(*cuts, *wrong)
    more = effects(run) - effects(calm())
    assert more == Counter()
    assert run.phases() == calm().phases()
    assert run.states() == calm().states()
