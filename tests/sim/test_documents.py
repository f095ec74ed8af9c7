"""Manifests become a World, and whatever is no manifest is refused quickly and in one sentence."""

import json
import time

import pytest

from headroom.adapters import documents, texts
from headroom.api.budget_index import IndexEntry
from headroom.model.errors import Misconfigured
from headroom.model.facts import Price
from headroom.model.times import HOUR

BUDGET = """
apiVersion: headroom.dev/v1alpha1
kind: GPUWorkloadBudget
metadata: {name: lab, namespace: lab}
spec:
  selector: {matchLabels: {team: lab}}
  quota: {gpuHours: "10", windowHours: 24}
  enforcement: {action: AlertOnly}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: train, namespace: lab, uid: u1, labels: {team: lab}, creationTimestamp: 2026-01-31T12:00:00Z}
spec:
  nodeName: n1
  containers: [{name: main, image: none, resources: {limits: {nvidia.com/gpu: "2"}, requests: {nvidia.com/gpu: "2"}}}]
status: {phase: Running}
"""
FACTS = """
apiVersion: sim.headroom.dev/v1
kind: Instance
metadata: {name: i-1}
spec: {provider: aws, zone: us-east-1a, instanceType: g5.xlarge, state: running, tags: {a: b}, launchedAt: 2026-01-31T12:00:00Z}
---
apiVersion: sim.headroom.dev/v1
kind: Offer
metadata: {name: o-1}
spec: {provider: aws, gpus: 1, pricePerHour: 0.4321, score: 7, at: "2026-01-31T12:00:00Z"}
---
apiVersion: sim.headroom.dev/v1
kind: Machine
metadata: {name: m-1}
spec: {power: "Off", since: 2026-01-31T11:00:00Z}
---
apiVersion: sim.headroom.dev/v1
kind: Usage
metadata: {name: row-1}
spec: {cluster: c, namespace: lab, pod: old, uid: u0, start: 2026-01-31T10:00:00Z, end: 2026-01-31T11:00:00Z,
       gpus: "0.5", labels: {team: lab}, pricePerHour: "1.5"}
---
apiVersion: sim.headroom.dev/v1
kind: HomeVerdict
metadata: {name: lab}
spec: {cluster: east, budget: lab/lab, holds: true, since: 2026-01-31T10:00:00Z, at: 2026-01-31T12:00:00Z}
"""


def read(*texts: str) -> documents.Documents:
    return documents.read([(f"file-{number}.yaml", text.encode()) for number, text in enumerate(texts)])


def refusal(text: bytes) -> str:
    with pytest.raises(Misconfigured) as caught:
        documents.read([("bad.yaml", text)])
    return str(caught.value)


def test_resources_pods_nodes_and_facts_become_a_world() -> None:
    node = "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {allocatable: {nvidia.com/gpu: '8'}}\n"
    found = read(BUDGET + "---" + POD, node, FACTS)
    assert found.problems == []
    world = found.world(1000, "here")
    assert (world.now, world.cluster) == (1000, "here")
    [verdict] = world.ledger.verdicts
    assert (verdict.cluster, verdict.budget, verdict.holds, verdict.at - verdict.since) == (
        "east",
        "lab/lab",
        True,
        2 * HOUR,
    )
    assert [str(ref) for ref in world.resources] == ["GPUWorkloadBudget/lab/lab"]
    pod = world.pods.get("u1")
    assert pod is not None
    assert dict(pod.shape.requests)["nvidia.com/gpu"] == 2_000_000
    assert world.nodes.get("n1") is not None
    assert world.instances["i-1"].launched_at == 1_769_860_800_000
    assert world.offers["o-1"].price_per_hour == 432_100
    assert world.offers["o-1"].gpus == 1_000_000
    assert world.machines["m-1"].power == "Off"
    [row] = found.usage
    assert (row.gpus, row.price_per_hour) == (500_000, 1_500_000)


ACCOUNTING = """
apiVersion: v1
kind: Namespace
metadata: {name: lab, labels: {tier: gold}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: headroom-prices, namespace: headroom-system}
data:
  metal.yaml: "[{node: n1, pricePerHour: 2.5}, {node: n2}]"
---
apiVersion: v1
kind: ConfigMap
metadata: {name: headroom-prices, namespace: lab}
data: {metal.yaml: "[{node: n1, pricePerHour: 999}]"}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: gpus, namespace: lab}
spec: {devices: {requests: [{name: all, exactly: {deviceClassName: gpu.example.com}}]}}
status:
  allocation: {devices: {results: [{request: all, driver: d.example.com, pool: p, device: gpu-0}]}}
  reservedFor: [{resource: pods, name: train, uid: u1}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: waiting, namespace: lab}
---
apiVersion: headroom.dev/v1alpha1
kind: BudgetIndex
metadata: {name: headroom}
spec: {budgets: [{budget: lab/lab, namespaces: [lab], exact: true}]}
"""


def test_what_accounting_needs_becomes_a_part_of_the_world() -> None:
    found = read(ACCOUNTING)
    [problem] = found.problems
    assert (problem.field, problem.message) == ("data.metal.yaml", "entry 2 is left out: pricePerHour is required")
    assert found.ignored == {"v1/ConfigMap": 1}  # the one that the operator would not read
    world = found.world(1000)
    assert world.own_namespace == "headroom-system"
    assert world.namespaces["lab"].labels == (("tier", "gold"),)
    assert world.prices == (Price(price_per_hour=2_500_000, node="n1"),)
    assert list(world.claims) == ["lab/gpus", "lab/waiting"]
    assert [each.device_class for each in world.claims["lab/gpus"].allocated] == ["gpu.example.com"]
    assert world.index == (IndexEntry(budget="lab/lab", namespaces=("lab",), exact=True),)
    assert read(BUDGET).world(1000).index is None


def test_an_index_that_cannot_be_read_is_a_problem() -> None:
    [problem] = read(
        ACCOUNTING.replace("budget: lab/lab", "budget: 7").split("ResourceClaim")[-1].split("---")[-1]
    ).problems
    assert (problem.resource["kind"], problem.field) == ("BudgetIndex", "spec")


def test_what_kubectl_prints_is_read_whatever_its_form() -> None:
    item = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "uid": "1"}})
    plain = f'{{"apiVersion": "v1", "kind": "List", "items": [{item}]}}'
    typed = '{"apiVersion": "v1", "kind": "PodList", "items": [{"metadata": {"name": "b", "uid": "2"}}]}'
    assert [pod.name for pod in read(plain, typed).pods] == ["a", "b"]


def test_a_moment_stays_the_text_that_it_is() -> None:
    found = next(iter(texts.objects("x", b"kind: A\nat: 2026-01-31T12:00:00Z\nday: 2026-01-31\nforced: !!timestamp x")))
    assert found.value == {"kind": "A", "at": "2026-01-31T12:00:00Z", "day": "2026-01-31", "forced": "x"}


def test_other_kinds_are_ignored_and_counted() -> None:
    found = read("apiVersion: v1\nkind: Service\n---\napiVersion: v1\nkind: Service\n---\nkind: Odd\n---\n")
    assert found.ignored == {"v1/Service": 2, "Odd": 1}


def test_unknown_kinds_of_our_groups_and_objects_without_a_kind_are_problems() -> None:
    found = read(
        "apiVersion: headroom.dev/v1alpha1\nkind: Odd\n---\napiVersion: sim.headroom.dev/v1\nkind: Odd\n",
        "apiVersion: sim.headroom.dev/v2\nkind: Offer\n---\nkind: null\n---\n"
        "apiVersion: sim.headroom.dev/v1\nkind: Scenario\n",
    )
    assert [each.field for each in found.problems] == ["kind", "kind", "apiVersion", "kind"]
    assert [each.place for each in found.problems] == [
        ("file-0.yaml", 0),
        ("file-0.yaml", 1),
        ("file-1.yaml", 0),
        ("file-1.yaml", 1),
    ]
    assert found.ignored == {"sim.headroom.dev/v1/Scenario": 1}


def test_an_object_that_is_given_twice_is_a_problem() -> None:
    found = read(BUDGET + "---" + POD, FACTS, BUDGET)
    [wrong] = found.problems
    assert (wrong.message, wrong.place, wrong.earlier) == ("is a duplicate", ("file-2.yaml", 0), ("file-0.yaml", 0))


def test_a_key_that_is_given_twice_is_found_wherever_it_stands() -> None:
    text = "kind: A\nx: {a: 1, b: [a, a, {c: 1, c: 2}], a: 3}\ny: &y {a: 1}\nz: {<<: *y, a: 2}\n---\nkind: B\n? [q]\n"
    repeated: list[texts.Repeated] = []
    with pytest.raises(Misconfigured):
        list(texts.objects("x", text.encode(), repeated))  # a list as a key
    assert [(each.line, each.key, each.first_line) for each in repeated] == [(2, "c", 2), (2, "a", 2)]


def test_a_tab_is_named() -> None:
    assert "line 3 begins with a tab, which YAML does not allow" in refusal(b"kind: A\nmetadata:\n\tname: a\n")


def test_problems_of_resources_are_named() -> None:
    found = read(BUDGET.replace("windowHours: 24", "windowHours: 0"))
    [(where, field, message, *_)] = found.problems
    assert where == {"kind": "GPUWorkloadBudget", "namespace": "lab", "name": "lab"}
    assert field == "spec.quota.windowHours"
    assert message


@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("Machine", {"power": "Sleepy"}, "spec.power"),
        ("Machine", {"powre": "On"}, "spec.powre"),
        ("Machine", {"since": "yesterday"}, "spec.since"),
        ("Offer", {"pricePerHour": "cheap"}, "spec.pricePerHour"),
        ("Offer", {"pricePerHour": float("nan")}, "spec.pricePerHour"),
        ("Offer", {"pricePerHour": -1}, "spec.pricePerHour"),
        ("Offer", {"gpus": "0.0000001"}, "spec.gpus"),
        ("Offer", {"score": 1.5}, "spec.score"),
        ("Instance", {"tags": {"a": 1}}, "spec.tags"),
        ("Instance", {"zone": 7}, "spec.zone"),
        ("Usage", [], "spec"),
        ("HomeVerdict", {"holds": "yes"}, "spec.holds"),
        ("HomeVerdict", {"at": 1}, "spec.at"),
    ],
)
def test_problems_of_facts_are_named(kind: str, spec: object, field: str) -> None:
    document = {"apiVersion": "sim.headroom.dev/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    text = json.dumps(document).replace("NaN", '".nan"')
    [(where, found, message, *_)] = read(text).problems
    assert (where["kind"], where["name"], found) == (kind, "x", field)
    assert message


def test_noise_is_refused_in_one_sentence_that_names_the_file_and_the_line() -> None:
    assert "bad.yaml" in refusal(b"\xff\xfe\x00")
    assert "in line 2" in refusal(b"a: b\n]: c\n")
    assert "not a Kubernetes object" in refusal(b"just a sentence")
    assert "not a Kubernetes object" in refusal(b"- a\n- b\n")
    for text in (b'a: !!int ""', b"a: !!bool x", b"? [a]\n: b", b"a: !unknown b", b"a: " + b"1" * 5000):
        assert refusal(text).count("\n") == 0


def test_a_megabyte_of_noise_a_bomb_and_a_pit_are_refused_quickly() -> None:
    began = time.process_time()
    bomb = b"a: &a [x, x, x, x, x, x, x, x, x, x]\n"
    for letter, before in zip("bcdefghij", "abcdefghi", strict=True):
        bomb += f"{letter}: &{letter} [{', '.join([f'*{before}'] * 10)}]\n".encode()
    assert "too many values" in refusal(bomb)
    assert "too many values" in refusal(b"a: &a [*a]")
    assert "levels deep" in refusal(b"a: " + b"[" * 50_000)
    assert "levels deep" in refusal(b'{"a":' + b"[" * 50_000)
    assert refusal(bytes(range(33, 127)) * 11_000)
    assert "larger than 64 MiB" in refusal(b" " * (texts.LARGEST_BYTES + 1))
    assert time.process_time() - began < 5


OWNERS = """
apiVersion: headroom.dev/v1alpha1
kind: BudgetHold
metadata: {name: lab.lab, uid: h1}
spec: {budget: lab/lab, namespaces: [lab], because: all is used}
---
apiVersion: batch/v1
kind: Job
metadata: {name: ours, namespace: lab, labels: {headroom.dev/suspended: "true"},
           annotations: {headroom.dev/suspended-by: GPUWorkloadBudget/lab/lab}}
spec: {suspend: true, parallelism: 2, template: {metadata: {labels: {team: lab}}, spec: {containers: []}}}
---
apiVersion: batch/v1
kind: Job
metadata: {name: theirs, namespace: lab}
spec: {suspend: true}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: ours, namespace: lab, labels: {headroom.dev/suspended: "true"}}
spec: {suspend: true, replicatedJobs: [{name: a, replicas: 3, template: {spec: {parallelism: 4}}}]}
"""
WORKLOAD = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: Workload
metadata: {name: queued, namespace: lab}
spec: {podSets: [{name: main, count: 8}]}
"""


def test_holds_and_suspended_owners_are_facts() -> None:
    found = read(OWNERS)
    world = found.world(0)
    assert {name: hold.spec and hold.spec.because for name, hold in world.holds.items()} == {"lab.lab": "all is used"}
    assert {key: [part.count for part in each.parts] for key, each in world.workloads.items()} == {
        "Job/lab/ours": [2],
        "JobSet/lab/ours": [12],
    }
    assert world.workloads["Job/lab/ours"].suspended_by == "GPUWorkloadBudget/lab/lab"
    assert found.ignored == {"batch/v1/Job": 1}
    assert found.problems == []
    assert not world.kueue


def test_every_workload_of_kueue_is_a_fact_and_shows_that_there_is_kueue() -> None:
    world = read(WORKLOAD).world(0)
    assert list(world.workloads) == ["Workload/lab/queued"]
    assert world.kueue
    other = WORKLOAD.replace("v1beta1", "v1alpha1")
    assert read(other).ignored == {"kueue.x-k8s.io/v1alpha1/Workload": 1}


def test_what_only_the_operator_writes_is_read_and_wrong_ones_are_told_of() -> None:
    twice = read(OWNERS, OWNERS)
    assert {each.message for each in twice.problems} == {"is a duplicate"}
    wrong = OWNERS.partition("---")[0].replace("namespaces: [lab]", "namespaces: all")
    [problem] = read(wrong).problems
    assert (problem.field, problem.message) == ("spec", "must be what the operator writes")
    [unknown] = read(wrong.replace("kind: BudgetHold", "kind: BudgetHolding")).problems
    assert "BudgetIndex, BudgetHold, BandwidthConfig, not 'BudgetHolding'" in unknown.message
