"""A namespace with a queue of Kueue and a budget that holds."""

import json
from typing import Any

from tests.integration.accounts import GPU, Document
from tests.integration.enforced import RUNS_ON, Cluster, Team, is_gated, is_running, template, wait_for

KUEUE_API = "kueue.x-k8s.io/v1beta2"
QUEUE = {"kueue.x-k8s.io/queue-name": "q"}
FORGED: dict[str, Document] = {
    "labels": {"kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/managed": "true"},
    "annotations": {"kueue.x-k8s.io/workload": "job-forged-12345"},
}
"""What Kueue writes into the templates of what it starts."""
PATIENCE = 120
"""Seconds for steps that several controllers take one after the other."""


class Lab(Team):
    """A team that submits to Kueue."""

    def __init__(self, cluster: Cluster, namespace: str, quota: int = 100) -> None:
        super().__init__(cluster, namespace)
        flavor = {"name": "default", "resources": [{"name": GPU, "nominalQuota": str(quota)}]}
        groups = [{"coveredResources": [GPU], "flavors": [flavor]}]
        queues = {"namespaceSelector": {}, "resourceGroups": groups}
        self.plane.apply(
            {"apiVersion": KUEUE_API, "kind": "ResourceFlavor", "metadata": {"name": "default"}},
            {"apiVersion": KUEUE_API, "kind": "ClusterQueue", "metadata": {"name": namespace}, "spec": queues},
            {
                "apiVersion": KUEUE_API,
                "kind": "LocalQueue",
                "metadata": {"name": "q", "namespace": namespace},
                "spec": {"clusterQueue": namespace},
            },
        )

    # --- what it submits --------------------------------------------------------------------------------------------------

    def queued_job(self, name: str, pods: int = 1) -> Document:
        made = template(annotations=RUNS_ON)
        spec = {"parallelism": pods, "completions": pods, "template": _never(made)}
        return self.send("Job", name, spec, labels=QUEUE)

    def job_set(self, name: str, made: Document, **metadata: Any) -> Document:
        job = {"spec": {"parallelism": 1, "completions": 1, "template": _never(made)}}
        return self.send(
            "JobSet", name, {"replicatedJobs": [{"name": "r", "replicas": 2, "template": job}]}, **metadata
        )

    def cron_job(self, name: str, made: Document) -> None:
        """One that is due every minute."""
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": _never(made)}}}
        metadata = {"name": name, "namespace": self.namespace}
        self.plane.apply({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec})

    # --- its budget -------------------------------------------------------------------------------------------------------

    def hold(self, *steps: str) -> None:
        """A budget without room, and steps such as `110% Evict` beside the hold; new pods wait from now on."""
        self.pod("burner")
        wait_for(lambda: "burner" in self.names(is_running), "something uses the budget")
        ladder = [dict(zip(("at", "action"), each.split(), strict=True)) for each in ("1% Hold", *steps)]
        enforcement = {"gracePeriodSeconds": 0, "releaseHorizon": "1m", "steps": ladder}
        self.budget(quota={"gpuHours": "0.0001", "windowHours": 1}, enforcement=enforcement)
        self.await_hold()

    def await_hold(self) -> None:
        probe = template() | {"apiVersion": "v1", "kind": "Pod"}
        probe["metadata"] = probe["metadata"] | {"name": "probe"}
        path = f"{self.path('Pod')}?dryRun=All"
        wait_for(lambda: is_gated(self.api.send("POST", path, probe)), "new pods are queued", PATIENCE)

    def make_room(self) -> None:
        """There is room for some minutes, and the hold goes on."""
        self.change("team", quota={"gpuHours": "1"})
        wait_for(lambda: self.holds() != [], "the hold stands")

    # --- what became of it ------------------------------------------------------------------------------------------------

    def workload(self, owner: str) -> Document:
        """Kueue's Workload of an owner; empty while there is none."""
        found = self.api.items(self.path("Workload"))
        mine = (each for each in found if each["metadata"]["ownerReferences"][0]["name"] == owner)
        return next(mine, {})

    def is_inactive(self, owner: str) -> bool:
        """Whether Headroom has set its Workload inactive, and Kueue has given its quota back."""
        found = self.workload(owner)
        return bool(found) and found["spec"]["active"] is False and not _is(found, "QuotaReserved")

    def is_admitted(self, owner: str) -> bool:
        found = self.workload(owner)
        return bool(found) and _is(found, "Admitted")

    def used_of_queue(self) -> int:
        """GPUs of Kueue's quota that are taken."""
        path = f"/apis/{KUEUE_API}/clusterqueues/{self.namespace}"
        flavors = json.loads(self.plane.get(path)).get("status", {}).get("flavorsReservation", [])
        return sum(int(each["total"]) for flavor in flavors for each in flavor["resources"])

    def ran(self, prefix: str) -> bool:
        """Whether any such pod ever got a node."""
        return any(name.startswith(prefix) for name in self.audit.bound(self.namespace))

    def running(self, prefix: str) -> int:
        return len(self.names(is_running, prefix))

    def gates(self, name: str) -> list[str]:
        return [each["name"] for each in self.get("Pod", name)["spec"].get("schedulingGates", ())]


def _never(made: Document) -> Document:
    return made | {"spec": made["spec"] | {"restartPolicy": "Never"}}


def _is(document: Document, condition: str) -> bool:
    found = document.get("status", {}).get("conditions", [])
    return any(each["type"] == condition and each["status"] == "True" for each in found)
