"""Budgets beside the real Kueue and JobSet controllers: nothing that they start gets around a hold, and nothing of theirs breaks.

make test-kueue
"""

import subprocess
import sys

import pytest

from headroom.api.marks import GATE, RELEASED_AT
from tests.integration.accounts import Document
from tests.integration.enforced import RUNS_ON, Cluster, is_gated, template, wait_for
from tests.kueue.controllers import KUEUE, Controllers
from tests.kueue.lab import FORGED, PATIENCE, QUEUE, Lab

LIFTED = "kueue.x-k8s.io/admission"


def forged() -> Document:
    """The template of a tenant who writes what Kueue writes."""
    return template(labels=FORGED["labels"], annotations=RUNS_ON | FORGED["annotations"])


def test_what_kueue_writes_into_a_template_starts_nothing_when_a_tenant_writes_it(cluster: Cluster) -> None:
    lab = Lab(cluster, "forged")
    lab.job("early", 1, forged(), suspend=True)
    lab.job("edited", 1, template(annotations=RUNS_ON), suspend=True)
    lab.hold()
    lab.cron_job("cron", forged())
    lab.job("new", 1, forged())
    lab.job_set("set", forged())
    words = {"template": {"metadata": FORGED}}
    lab.api.send("PATCH", lab.path("Job", "edited"), {"spec": words}, "merge")
    for name in ("early", "edited"):
        lab.api.send("PATCH", lab.path("Job", name), {"spec": {"suspend": False}}, "merge")
    lab.pod("alone", labels=FORGED["labels"], annotations=FORGED["annotations"])
    made = {"early": 1, "edited": 1, "new": 1, "set": 2, "alone": 1, "cron": 1}
    wait_for(lambda: all(len(lab.pods(each)) >= count for each, count in made.items()), "all have pods", PATIENCE)
    for prefix in made:
        assert all(is_gated(pod) for pod in lab.pods(prefix)), prefix
        assert not lab.ran(prefix)


def test_what_kueue_starts_under_a_hold_waits_and_comes_back(
    cluster: Cluster,
) -> None:
    """Kueue admits it at once, so its pods are made; the gate is what stops them."""
    lab = Lab(cluster, "started")
    lab.hold()
    lab.queued_job("train", 2)
    lab.job_set("set", template(annotations=RUNS_ON), labels=QUEUE)
    wait_for(lambda: lab.is_inactive("train") and lab.is_inactive("set"), "both wait as a whole", PATIENCE)
    wait_for(lambda: lab.used_of_queue() == 0, "Kueue's quota is free for others")
    wait_for(lambda: not lab.pods("train") and not lab.pods("set"), "its pods are gone", PATIENCE)
    held = lab.status()["held"]["queue"]
    assert {each["unit"].split("/")[0] for each in held} == {"Workload"}
    assert not lab.ran("train")
    assert not lab.ran("set")
    lab.make_room()
    wait_for(
        lambda: lab.running("train") == 2 and lab.running("set") == 2, "both run, though the hold stands", PATIENCE
    )
    assert lab.used_of_queue() == 4


def test_a_job_of_kueues_that_fits_is_released_without_a_detour(cluster: Cluster) -> None:
    lab = Lab(cluster, "fits")
    lab.hold()
    lab.make_room()
    lab.queued_job("train", 2)
    wait_for(lambda: lab.running("train") == 2, "it runs", PATIENCE)
    assert all(RELEASED_AT in pod["metadata"]["annotations"] for pod in lab.pods("train"))
    assert "Evicted" not in str(lab.workload("train")["status"])


def test_without_a_hold_kueue_starts_what_it_likes(cluster: Cluster) -> None:
    lab = Lab(cluster, "free")
    lab.queued_job("train", 2)
    lab.job_set("set", template(annotations=RUNS_ON), labels=QUEUE)
    lab.pod("alone", labels=QUEUE)
    wait_for(lambda: lab.running("") == 5, "all run", PATIENCE)
    labels = lab.get("Job", "train")["spec"]["template"]["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/podset"] == "main", "Kueue writes it into the template when it starts the Job"


def test_a_pod_alone_waits_behind_our_gate_after_kueue_has_lifted_its_own(cluster: Cluster) -> None:
    lab = Lab(cluster, "alone")
    lab.hold()
    lab.pod("alone", labels=QUEUE)
    wait_for(lambda: lab.is_admitted("alone") and lab.gates("alone") == [GATE], "Kueue has lifted its gates", PATIENCE)
    lab.make_room()
    wait_for(lambda: lab.running("alone") == 1, "it runs", PATIENCE)


def test_kueues_gate_of_a_pod_made_before_the_hold_stays_until_its_release(
    controllers: tuple[Cluster, Controllers],
) -> None:
    """Nobody can set our gate later. Kueue is refused, and tries again when the pod is released."""
    cluster, real = controllers
    lab = Lab(cluster, "before", quota=1)
    lab.pod("first", labels=QUEUE | {"team": "b"})
    wait_for(lambda: lab.running("first") == 1, "Kueue's quota is taken", PATIENCE)
    lab.pod("early", labels=QUEUE)
    wait_for(lambda: LIFTED in lab.gates("early"), "it waits for Kueue")
    lab.hold()
    lab.delete("first")
    wait_for(lambda: lab.is_admitted("early"), "Kueue admits it", PATIENCE)
    refusal = "pod before/early keeps its last scheduling gate"
    wait_for(lambda: refusal in real.log(KUEUE), "Kueue's attempt is refused", PATIENCE)
    assert lab.gates("early")
    assert not lab.ran("early")
    lab.make_room()
    wait_for(lambda: lab.running("early") == 1, "it runs", PATIENCE)


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_suspend_takes_a_workload_and_gives_it_back(cluster: Cluster, kind: str) -> None:
    lab = Lab(cluster, f"suspended-{kind.lower()}")
    if kind == "Job":
        lab.queued_job("train", 2)
    else:
        lab.job_set("train", template(annotations=RUNS_ON), labels=QUEUE)
    wait_for(lambda: lab.running("train") == 2, "it runs", PATIENCE)
    lab.hold("2% Suspend")
    wait_for(lambda: lab.is_inactive("train"), "its Workload is set inactive", PATIENCE)
    wait_for(lambda: not lab.pods("train"), "its pods are gone", PATIENCE)
    assert lab.get(kind, "train")["spec"]["suspend"], "by Kueue"
    lab.raise_quota()
    wait_for(lambda: lab.running("train") == 2, "it runs again", PATIENCE)


def test_what_is_evicted_comes_back_behind_the_gate(cluster: Cluster) -> None:
    lab = Lab(cluster, "evicted")
    lab.queued_job("train", 1)
    wait_for(lambda: lab.running("train") == 1, "it runs", PATIENCE)
    (first,) = lab.pods("train")
    lab.hold("2% Evict")
    wait_for(lambda: first["metadata"]["name"] in lab.evicted(), "it is evicted", PATIENCE)
    wait_for(lambda: lab.is_inactive("train"), "its Workload waits as a whole", PATIENCE)
    assert lab.audit.bound("evicted") & {pod["metadata"]["name"] for pod in lab.pods("train")} == set()


def test_a_deployment_of_kueues_waits_with_the_pods_that_it_has(cluster: Cluster) -> None:
    """Kueue has a Workload for each of its pods, and stops one by deleting the pod, which the Deployment would make anew for ever."""
    lab = Lab(cluster, "deployed")
    lab.hold()
    labels = {"app": "serve"}
    made = template(labels=labels)
    lab.send(
        "Deployment", "serve", {"replicas": 2, "selector": {"matchLabels": labels}, "template": made}, labels=QUEUE
    )
    wait_for(lambda: len(lab.pods("serve")) == 2, "it has its pods", PATIENCE)
    first = {pod["metadata"]["uid"] for pod in lab.pods("serve")}
    wait_for(lambda: all(_gates(pod) == [GATE] for pod in lab.pods("serve")), "Kueue has lifted its gates", PATIENCE)
    wait_for(lambda: lab.status().get("held", {}).get("pods") == 2, "both are queued", PATIENCE)
    lab.make_room()
    wait_for(lambda: lab.running("serve") == 2, "both run", PATIENCE)
    assert {pod["metadata"]["uid"] for pod in lab.pods("serve")} == first


def _name(document: Document) -> str:
    return str(document["metadata"]["name"])


def _gates(pod: Document) -> list[str]:
    return [each["name"] for each in pod["spec"].get("schedulingGates", ())]


@pytest.mark.parametrize("kind", ["Job", "JobSet"])
def test_a_workload_that_somebody_releases_starts_as_it_was(cluster: Cluster, kind: str) -> None:
    """Its pods come only then, and find the gate of the hold that still stands."""
    lab = Lab(cluster, f"released-{kind.lower()}")
    lab.hold()
    if kind == "Job":
        lab.queued_job("train", 2)
    else:
        lab.job_set("train", template(annotations=RUNS_ON), labels=QUEUE)
    wait_for(lambda: lab.is_inactive("train"), "it waits", PATIENCE)
    config = cluster.plane.kubeconfig("releaser")
    # Kueue's Workload waits in the place of the Job.
    what = f"job/{lab.namespace}/train" if kind == "Job" else f"workload/{lab.namespace}/{_name(lab.workload('train'))}"
    command = [sys.executable, "-m", "headroom", "release", what, "--kubeconfig", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    wait_for(lambda: lab.running("train") == 2, "it runs, and nothing had room", PATIENCE)


def test_kueue_gives_up_on_nothing_that_its_owner_makes_anew(controllers: tuple[Cluster, Controllers]) -> None:
    """Where it waits for pods to be ready, it deletes one that nobody makes anew after the timeout; a Job only waits."""
    cluster, real = controllers
    real.restart_kueue(waitForPodsReady={"timeout": "20s", "requeuingStrategy": {"backoffBaseSeconds": 1}})
    try:
        lab = Lab(cluster, "ready")
        lab.hold()
        lab.queued_job("train")
        lab.pod("alone", labels=QUEUE)
        wait_for(lambda: lab.is_inactive("train"), "the Job waits as a whole", PATIENCE)
        wait_for(lambda: not lab.pods("alone"), "Kueue has given the pod up", PATIENCE)
        assert lab.is_inactive("train")
        assert lab.told("train", "EvictedDueToPodsReadyTimeout") == []
        lab.make_room()
        wait_for(lambda: lab.running("train") == 1, "it runs", PATIENCE)
    finally:
        real.restart_kueue()
