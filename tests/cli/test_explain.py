"""`headroom explain` of pods and their owners: one sentence says why, the numbers and until when; details follow."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Headroom

NOW = "2026-11-15T12:00:00Z"
USED = "240.0 of 239.5 GPU-hours in the last 24h"
BUDGET = """\
apiVersion: headroom.dev/v1alpha1
kind: GPUWorkloadBudget
metadata: {name: team-a, namespace: lab}
spec:
  selector: {matchLabels: {team: a}}
  quota: {gpuHours: "239.5", windowHours: 24}
  enforcement: {action: Hold, gracePeriodSeconds: 0}
---
apiVersion: headroom.dev/v1alpha1
kind: BudgetHold
metadata: {name: lab.team-a}
spec: {budget: lab/team-a, namespaces: [lab], matchLabels: {team: a}, resources: [nvidia.com/gpu]}
"""


def pod(name: str, gpus: int, *, spec: str = "", notes: str = "", status: str = "", team: str = "a") -> str:
    created = "2026-11-14T12:00:00Z" if "Running" in status else "2026-11-15T11:30:00Z"
    return f"""\
apiVersion: v1
kind: Pod
metadata:
  {{name: {name}, namespace: lab, creationTimestamp: "{created}", labels: {{team: {team}}}, annotations: {{{notes}}}}}
spec: {{{spec} containers: [{{name: main, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]}}
status: {{{status}}}
"""


def held(name: str, gpus: int, *, notes: str = "") -> str:
    gate = "schedulingGates: [{name: headroom.dev/budget}],"
    return pod(name, gpus, spec=gate, notes=f"headroom.dev/held-by: lab/team-a, {notes}")


RUNNING = 'phase: Running, containerStatuses: [{name: main, state: {running: {startedAt: "2026-11-14T12:00:00Z"}}}]'
UNSCHEDULABLE = (
    "phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: Unschedulable, message: "
    "'0/3 nodes are available.', lastTransitionTime: '2026-11-15T11:32:01Z'}]"
)
JOB = """\
apiVersion: batch/v1
kind: Job
metadata:
  name: fit
  namespace: lab
  uid: j1
  creationTimestamp: "2026-11-15T11:50:00Z"
  labels: {headroom.dev/suspended: "true"}
  annotations: {headroom.dev/suspended-by: GPUWorkloadBudget/lab/team-a}
spec:
  suspend: true
  parallelism: 2
  template:
    metadata: {labels: {team: a}}
    spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""
CLUSTER = "---\n".join(
    [
        BUDGET,
        # It ends at 13:00, and has run for the whole window until then.
        pod("old", 10, spec="nodeName: n1, activeDeadlineSeconds: 90000,", status=RUNNING),
        held("first", 2),
        held("second", 4, notes="headroom.dev/expected-duration: 30m"),
        held("big", 640),
        held("huge", 5000, notes="headroom.dev/expected-duration: 3m"),
        pod("stuck", 1, team="b", status=UNSCHEDULABLE),
        JOB,
    ]
).encode()
# Without an end of its own, it has to be ended.
EVICTS = CLUSTER.replace(b"action: Hold", b"action: Evict").replace(b"activeDeadlineSeconds: 90000,", b"")
STARTS = "2026-11-15T13:03:00.001Z"
SUSPENDED = f"is suspended by budget lab/team-a: {USED}; estimated start {STARTS}, third of 3 in the queue."
LENGTH = "headroom.dev/expected-duration"
NEVER = (
    "more than the quota of 239.5 GPU-hours of budget lab/team-a allows on its own; "
    "it never starts unless the quota is raised"
)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            "pod/lab/first",
            f"Pod lab/first is queued by budget lab/team-a: {USED}; estimated start {STARTS}, first of 3 in the queue.",
        ),
        (
            "po/second",
            f"Pod lab/second is queued by budget lab/team-a: {USED}; estimated start {STARTS}, second of 3 in the queue.",
        ),
        (
            "pods/big",
            f"Pod lab/big requests 640 GPUs for 1h, {NEVER} or it declares a duration ({LENGTH}).",
        ),
        (
            "pod/huge",
            f"Pod lab/huge requests 5000 GPUs for 3m, {NEVER} or it declares a shorter duration ({LENGTH}).",
        ),
        (
            "pod/stuck",
            "Pod lab/stuck is pending, and no budget queues it: kube-scheduler says: 0/3 nodes are available.",
        ),
        ("pod/old", f"Pod lab/old has been running since 2026-11-14T12:00:00Z; budget lab/team-a counts it: {USED}."),
        (
            "job/lab/fit",
            f"Job lab/fit {SUSPENDED}",
        ),
        (
            "pod/lab/fit-x7z2k",
            f"Pod lab/fit-x7z2k is gone; by its name it belonged to Job lab/fit, which {SUSPENDED}",
        ),
    ],
)
def test_the_first_line_says_why(headroom: Headroom, asked: str, sentence: str) -> None:
    done = headroom("explain", asked, "-f", "-", "--now", NOW, stdin=CLUSTER)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[0] == sentence


def test_details_follow(headroom: Headroom) -> None:
    done = headroom("explain", "pod/first", "-f", "-", "--now", NOW, stdin=CLUSTER)
    assert done.out.splitlines()[1:] == [
        f"- budget lab/team-a: {USED}; Hold at 100%",
        "- queued since 2026-11-15T11:30:00Z; requests 2 GPUs for 1h (releaseHorizon, since it declares no duration): Reserved",
        f"- its start at {STARTS} is reserved: younger pods pass it only if they do not delay it",
    ]


def test_machines_get_the_same(headroom: Headroom) -> None:
    done = headroom("explain", "pod/second", "-f", "-", "--now", NOW, "-o", "json", stdin=CLUSTER)
    found = json.loads(done.out)
    assert list(found) == ["object", "state", "sentence", "budget", "startsAt", "details", "unread"]
    assert found["object"] == {"kind": "Pod", "namespace": "lab", "name": "second"}
    assert (found["state"], found["budget"], found["startsAt"]) == ("Held", "lab/team-a", STARTS)
    assert found["sentence"].startswith("Pod lab/second is queued by budget lab/team-a")
    assert len(found["details"]) == 2


def test_a_pod_that_is_being_evicted_says_so(headroom: Headroom) -> None:
    done = headroom("explain", "pod/old", "-f", "-", "--now", NOW, stdin=EVICTS)
    assert done.out.splitlines()[0] == f"Pod lab/old is being evicted by budget lab/team-a (since {NOW}): {USED}."


def test_a_pod_that_is_gone_says_what_it_used(headroom: Headroom, tmp_path: Path) -> None:
    row = """\
apiVersion: sim.headroom.dev/v1
kind: Usage
metadata: {name: r1}
spec:
  namespace: lab
  pod: past
  uid: u-past
  start: "2026-11-15T08:00:00Z"
  end: "2026-11-15T09:00:00Z"
  gpus: 1
  labels: {team: a}
"""
    (tmp_path / "usage.yaml").write_text(row)
    done = headroom("explain", "pod/past", "-f", "-", "-f", tmp_path / "usage.yaml", "--now", NOW, stdin=CLUSTER)
    assert done.out.splitlines()[0] == (
        "Pod lab/past is gone: it ran from 2026-11-15T08:00:00Z until 2026-11-15T09:00:00Z, and no budget has a record of "
        "stopping it."
    )


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (
            "pod/lab/frist",
            "looking for Pod/lab/frist: not found (did you mean Pod/lab/first",
        ),
        ("pod/lab/seconds", "did you mean Pod/lab/second"),
        ("pod/lab/nope", "looking for Pod/lab/nope: not found; `kubectl get pods -A`"),
        ("job/fitt", "did you mean Job/lab/fit?"),
        ("jobset/any", "looking for JobSet/any: not found; Headroom knows only JobSets"),
        ("pod", "write KIND/[NAMESPACE/]NAME"),
        ("podz/first", "did you mean pod"),
        ("pod/twin", "looking for Pod/twin: several match: lab/twin, other/twin; name one"),
    ],
)
def test_whoever_asks_for_something_else_is_helped(headroom: Headroom, asked: str, says: str) -> None:
    twins = [pod("twin", 1), pod("twin", 1).replace("namespace: lab", "namespace: other")]
    done = headroom("explain", asked, "-f", "-", "--now", NOW, stdin="---\n".join([CLUSTER.decode(), *twins]).encode())
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_help_has_an_example_of_a_pod(headroom: Headroom) -> None:
    assert "\n  headroom explain pod/lab/train-0\n" in headroom("explain", "--help").out


def test_the_queue_of_a_budget_is_spelt_out(headroom: Headroom) -> None:
    done = headroom("explain", "gwb/team-a", "-f", "-", "--now", NOW, stdin=CLUSTER)
    rows = [line.split() for line in done.out.splitlines() if line.startswith("  Pod/lab/")]
    assert rows[0] == ["Pod/lab/big", "640", "1", "2026-11-15T11:30:00Z", "unknown", "NeverFits"]
    assert ["Pod/lab/second", "4", "1", "2026-11-15T11:30:00Z", STARTS, "Waiting"] in rows
    assert "{" not in done.out


def test_a_plan_lists_effects_and_no_events(headroom: Headroom) -> None:
    told = " ".join(headroom("plan", "-f", "-", "--now", NOW, stdin=EVICTS).out.split())
    assert "- lift the hold of lab/team-a - evict lab/old (graceSeconds " in told
    assert "EmitEvent" not in told
    told = " ".join(headroom("plan", "-f", "-", "--now", NOW, stdin=CLUSTER).out.split())
    assert told.count("5 pods or gangs are queued") == 1, "the condition Holding says no more than the message"


def test_what_is_due_is_said_of_the_example(headroom: Headroom) -> None:
    example = ("-f", "docs/examples/budget-used-up.yaml", "--now", "2026-11-15T12:00:00Z")
    assert "due now: EvictPod, by GPUWorkloadBudget/lab/team-a" in headroom("explain", "pod/lab/old-0", *example).out
    assert "is queued by budget lab/team-a" in headroom("explain", "pod/lab/next", *example).out
