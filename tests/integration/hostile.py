"""A hostile tenant: everything that an account with the ClusterRole `edit` in one namespace can try against a budget at its limit.

The script is seeded and goes through the tenant's own token; what became of it is told by the API server to an administrator, and by
its audit log. Nothing of Headroom is used to find the truth.
"""

import itertools
import json
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headroom.api.marks import PROTECTED
from tests.control_plane import ControlPlane
from tests.integration.accounts import BUDGETS, GPU, Api, Document
from tests.integration.enforced import COLLECTIONS, RUNS_ON, TEAM, is_gated, template

SPACE = "hostile"
NEIGHBOUR = "neighbour"
GANG = "scheduling.x-k8s.io/pod-group"
THEIRS = "theirs"
"""The neighbours' gang and Job, which the tenant names as its own."""
OWN_GATE = "example.com/later"
DEVICES = "resource.k8s.io/v1"
MERGE, JSON = "application/merge-patch+json", "application/json-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
MORE = {
    "DaemonSet": "apis/apps/v1/namespaces/{}/daemonsets",
    "StatefulSet": "apis/apps/v1/namespaces/{}/statefulsets",
    "CronJob": "apis/batch/v1/namespaces/{}/cronjobs",
    "ReplicationController": "api/v1/namespaces/{}/replicationcontrollers",
    "ResourceClaim": f"apis/{DEVICES}/namespaces/{{}}/resourceclaims",
    "ResourceClaimTemplate": f"apis/{DEVICES}/namespaces/{{}}/resourceclaimtemplates",
}
PATHS = COLLECTIONS | MORE
IDLE = 20
"""Seconds after which a connection is not used again."""


class Tenant(Api):
    """A service account that may `edit` one namespace, and what it tried."""

    def __init__(self, plane: ControlPlane, seed: int = 1) -> None:
        super().__init__(plane)
        config = Path(plane.account_kubeconfig("tenant", SPACE)).read_text()
        self._token = re.findall(r'"?token"?: "?([\w.-]+)', config)[0]
        plane.kubectl(
            "create", "rolebinding", "tenant", "-n", SPACE, "--clusterrole=edit", f"--serviceaccount={SPACE}:tenant"
        )
        self.chance, self._numbers = random.Random(seed), itertools.count(1)
        self.tried = self.refused = self.rounds = 0
        self._asked = time.monotonic()
        self.breaches: list[str] = []
        """What must be refused and was not."""

    def ask(
        self, method: str, path: str, body: Any = None, kind: str = "application/json", **headers: str
    ) -> tuple[int, Document]:
        """The server's answer, whatever it is; `headers` may say that somebody else asks."""
        if time.monotonic() - self._asked > IDLE:
            self._connection.close()  # before the server does; the next request opens it anew
        self._asked = time.monotonic()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind} | headers
        self._connection.request(method, f"/{path}", json.dumps(body) if body is not None else None, headers)
        answer = self._connection.getresponse()
        said = answer.read() or b"{}"
        found: Document = json.loads(said) if said.startswith(b"{") else {"message": said.decode(errors="replace")}
        if method != "GET":
            self.tried += 1
            self.refused += answer.status >= 400
        return answer.status, found

    def never(self, method: str, path: str, body: Any = None, kind: str = MERGE, **headers: str) -> None:
        """What nobody with `edit` may do: whatever the answer is, it is a no."""
        code, _ = self.ask(method, path, body, kind if method == "PATCH" else "application/json", **headers)
        if code < 400:
            self.breaches.append(f"{method} {path}: {json.dumps(body)}")

    def forbidden(self, method: str, path: str, body: Any = None) -> None:
        """What RBAC alone must refuse: a complaint about the document would mean that the right is there."""
        code, _ = self.ask(method, path, body, MERGE if method == "PATCH" else "application/json")
        if code not in (403, 404, 405):
            self.breaches.append(f"{method} {path}: {code}")

    def name(self, prefix: str) -> str:
        """One that was never used."""
        return f"{prefix}-{next(self._numbers)}"

    def make(self, kind: str, prefix: str, spec: Document, **metadata: Any) -> str:
        """Try to create something; its name."""
        name, path = self.name(prefix), PATHS[kind].format(SPACE)
        group = path.removeprefix("apis/").removeprefix("api/").partition("/namespaces")[0]
        body = {"apiVersion": group, "kind": kind, "metadata": {"name": name} | metadata, "spec": spec}
        self.ask("POST", path, body)
        return name

    def pod(self, prefix: str = "new", spec: Document | None = None, **metadata: Any) -> str:
        """Try to create a pod of its team with a GPU."""
        made = template(**metadata)
        return self.make("Pod", prefix, made["spec"] | (spec or {}), **made["metadata"])

    def spares(self) -> bool:
        """Whether it keeps what it has this time: a tenant that gives all of it away soon has nothing left to try with."""
        return self.rounds > 0 and self.chance.random() > 0.2

    def patch(self, path: str, body: Any, kind: str = MERGE) -> int:
        """Try to change something."""
        return self.ask("PATCH", path, body, kind)[0]

    def items(self, path: str) -> list[Document]:
        """All objects of a collection; none if the server does not say."""
        found: list[Document] = self.ask("GET", path)[1].get("items", [])
        return found

    def pods(self) -> list[Document]:
        """Its own pods; those of the team that shares its namespace are not."""
        return self.items(f"{PODS}?labelSelector=team%3Da")

    def a_pod(self, chosen: Callable[[Document], bool] = bool) -> str:
        """The path of one of them; of none if there is none, which the server then refuses."""
        found = [each["metadata"]["name"] for each in self.pods() if chosen(each)]
        return f"{PODS}/{self.chance.choice(found) if found else 'none'}"


PODS = PATHS["Pod"].format(SPACE)
JOBS = PATHS["Job"].format(SPACE)


def runs(pod: Document) -> bool:
    """It has started."""
    return bool(pod["status"].get("phase") == "Running")


def waits(pod: Document) -> bool:
    """It is behind a gate, whoever set it."""
    return bool(pod["spec"].get("schedulingGates"))


def owner(kind: str, name: str, uid: str, group: str = "apps/v1") -> list[Document]:
    """What a pod says of its controller."""
    return [{"apiVersion": group, "kind": kind, "name": name, "uid": uid, "controller": True}]


def job(pods: int, **metadata: Any) -> Document:
    """The spec of a Job that makes pods for as long as it is there."""
    made = template(annotations=RUNS_ON, **metadata)
    made["spec"]["restartPolicy"] = "Never"
    return {"parallelism": pods, "completions": 100, "backoffLimit": 100, "template": made}


def many(count: int = 3) -> Document:
    """The spec of whatever keeps so many pods."""
    made = template(labels={"app": "many"})
    return {"replicas": count, "selector": {"matchLabels": {"app": "many"}}, "template": made}


# --- moves --------------------------------------------------------------------------------------------------------------------------


def relabel(tenant: Tenant) -> None:
    """Running and queued pods leave the budget, or come into it."""
    for chosen in (runs, waits):
        tenant.patch(
            tenant.a_pod(chosen), {"metadata": {"labels": {"team": tenant.chance.choice(["b", "none", None])}}}
        )
    name = tenant.make(
        "Pod", "plain", {"containers": [{"name": "main", "image": "none"}], "nodeSelector": {"pool": "early"}}
    )
    tenant.patch(f"{PODS}/{name}", {"metadata": {"labels": TEAM}})


def forge_owners(tenant: Tenant) -> None:
    """Owners that are not there, that are another's, or that exist but made nothing."""
    made_up = "00000000-0000-4000-8000-00000000000%d"
    tenant.pod("daemon", ownerReferences=owner("DaemonSet", "agent", made_up % 1))
    tenant.pod("mirror", ownerReferences=owner("Node", "early", made_up % 2, "v1"))
    code, found = tenant.ask("GET", f"{JOBS}/{THEIRS}")
    if code == 200:
        tenant.pod("theirs", ownerReferences=owner("Job", THEIRS, found["metadata"]["uid"], "batch/v1"))
        tenant.patch(
            tenant.a_pod(runs),
            {"metadata": {"ownerReferences": owner("Job", THEIRS, found["metadata"]["uid"], "batch/v1")}},
        )
    tenant.pod("static", annotations={"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"})


def real_daemons(tenant: Tenant) -> None:
    """A DaemonSet of its own is real, and so are the GPUs of its pods."""
    made = many()
    made.pop("replicas")
    name = tenant.make("DaemonSet", "agent", made)
    code, found = tenant.ask("GET", f"{PATHS['DaemonSet'].format(SPACE)}/{name}")
    if code == 200:
        tenant.pod("adopted", ownerReferences=owner("DaemonSet", name, found["metadata"]["uid"]))


def join_gangs(tenant: Tenant) -> None:
    """Labels by which pods of others would be its gang."""
    for key in (
        GANG,
        "kueue.x-k8s.io/pod-group-name",
        "jobset.sigs.k8s.io/jobset-name",
        "batch.kubernetes.io/job-name",
    ):
        tenant.pod("gang", labels={key: THEIRS})
        tenant.patch(tenant.a_pod(runs), {"metadata": {"labels": {key: THEIRS}}})


def mark(tenant: Tenant) -> None:
    """Annotations and labels that are Headroom's to set."""
    for key in (PROTECTED, "headroom.dev/released-at"):
        for chosen in (runs, waits):
            tenant.never("PATCH", tenant.a_pod(chosen), {"metadata": {"annotations": {key: "true"}}})
        made = template(annotations={key: "true"})
        body = {"metadata": made["metadata"] | {"name": tenant.name("marked")}, "spec": made["spec"]}
        tenant.never("POST", PODS, body)
    for key in ("suspended-by", "released-at", "released-generation"):
        tenant.never("PATCH", f"{JOBS}/{own_job(tenant)}", {"metadata": {"annotations": {f"headroom.dev/{key}": "1"}}})
    tenant.make(
        "Job", "protected", job(2) | {"template": job(1)["template"] | template(annotations={PROTECTED: "true"})}
    )


def lift_gates(tenant: Tenant) -> None:
    """Its own gates, laid by before the hold; and ours."""
    ours = [each for each in tenant.pods() if is_gated(each)]
    for pod in tenant.pods():
        for gate in pod["spec"].get("schedulingGates", ()):
            if gate["name"].startswith("example.com/"):
                left = [each for each in pod["spec"]["schedulingGates"] if each != gate]
                tenant.patch(f"{PODS}/{pod['metadata']['name']}", {"spec": {"schedulingGates": left}})
    for pod in ours[:2]:
        tenant.never("PATCH", f"{PODS}/{pod['metadata']['name']}", {"spec": {"schedulingGates": None}})


def own_job(tenant: Tenant) -> str:
    """One of its own Jobs, but for the released one: that is worth more while it runs."""
    found = [str(each["metadata"]["name"]) for each in tenant.items(JOBS)]
    return tenant.chance.choice([each for each in found if each not in (THEIRS, "freed")] or ["none"])


def resize_owners(tenant: Tenant) -> None:
    """More of everything that makes pods, what was released included; and what was suspended goes on."""
    tenant.patch(f"{JOBS}/freed", {"spec": {"parallelism": tenant.chance.randint(3, 20)}})
    tenant.patch(f"{JOBS}/{own_job(tenant)}", {"spec": {"parallelism": tenant.chance.randint(2, 9), "suspend": False}})
    for kind in ("Deployment", "ReplicaSet"):
        for each in tenant.items(PATHS[kind].format(SPACE))[:4]:
            path = f"{PATHS[kind].format(SPACE)}/{each['metadata']['name']}/scale"
            tenant.patch(path, {"spec": {"replicas": tenant.chance.randint(1, 5)}})


def make_owners(tenant: Tenant) -> None:
    """Everything that makes pods."""
    tenant.make("Job", "more", job(2))
    tenant.make("StatefulSet", "state", many(2) | {"serviceName": "state", "podManagementPolicy": "Parallel"})
    tenant.make("CronJob", "each", {"schedule": "* * * * *", "jobTemplate": {"spec": job(1)}})
    tenant.make("ReplicationController", "old", many(1) | {"selector": {"app": "many"}})


def remake(tenant: Tenant) -> None:
    """A pod that runs is deleted and made anew under its name."""
    path = tenant.a_pod(runs)
    if not tenant.spares():
        tenant.ask("DELETE", f"{path}?gracePeriodSeconds=0")
    made = template()
    for _ in range(3):
        tenant.ask(
            "POST", PODS, {"metadata": made["metadata"] | {"name": path.rpartition("/")[2]}, "spec": made["spec"]}
        )
    tenant.ask("DELETE", f"{tenant.a_pod(waits)}?gracePeriodSeconds=0")


def disrupt(tenant: Tenant) -> None:
    """Disruption budgets over its pods, two over one among them; and evictions of its own."""
    for spec in ({"maxUnavailable": 0}, {"minAvailable": "100%"}):
        tenant.make("PodDisruptionBudget", "stay", spec | {"selector": {"matchLabels": TEAM}})
    path = tenant.a_pod()
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": path.rpartition("/")[2]}}
    tenant.ask("POST", f"{path}/eviction", body)
    for each in tenant.items(PATHS["PodDisruptionBudget"].format(SPACE))[2:]:
        tenant.ask("DELETE", f"{PATHS['PodDisruptionBudget'].format(SPACE)}/{each['metadata']['name']}")


def linger(tenant: Tenant) -> None:
    """Pods that are long in going."""
    tenant.patch(tenant.a_pod(runs), {"metadata": {"finalizers": ["example.com/stay"]}})
    tenant.pod("slow", {"terminationGracePeriodSeconds": 3600}, finalizers=["example.com/stay"])
    tenant.ask("DELETE", f"{tenant.a_pod(waits)}?gracePeriodSeconds=3600")
    tenant.patch(tenant.a_pod(lambda pod: "deletionTimestamp" in pod["metadata"]), {"metadata": {"finalizers": None}})


def resize_pods(tenant: Tenant) -> None:
    """More for a pod that runs: in place, or by a container that comes later."""
    more = [{"name": "main", "resources": {"limits": {GPU: "8"}, "requests": {GPU: "8"}}}]
    path = tenant.a_pod(runs)
    tenant.never("PATCH", f"{path}/resize", {"spec": {"containers": more}}, STRATEGIC)
    tenant.never("PATCH", path, {"spec": {"containers": more}}, STRATEGIC)
    extra = {"name": tenant.name("debug"), "image": "none", "resources": {"limits": {GPU: "1"}}}
    tenant.never("PATCH", f"{path}/ephemeralcontainers", {"spec": {"ephemeralContainers": [extra]}})
    tenant.patch(
        f"{path}/ephemeralcontainers", {"spec": {"ephemeralContainers": [{"name": extra["name"], "image": "none"}]}}
    )


def play_kueue(tenant: Tenant) -> None:
    """Kueue's words where there is no Kueue."""
    words: tuple[dict[str, Any], ...] = (
        {"labels": {"kueue.x-k8s.io/queue-name": "free"}},
        {"labels": {"kueue.x-k8s.io/podset": "main"}, "annotations": {"kueue.x-k8s.io/workload": "w"}},
        {"labels": {"kueue.x-k8s.io/managed": "true"}},
    )
    for each in words:
        tenant.pod("queue", **each)
    tenant.pod("kgate", {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]})
    tenant.make("Job", "queued", job(1, labels={"kueue.x-k8s.io/podset": "main"}))


def choose_nodes(tenant: Tenant) -> None:
    """Past the scheduler, or by another one, or bound by hand."""
    tenant.never(
        "POST",
        PODS,
        {"metadata": {"name": tenant.name("node"), "labels": TEAM}, "spec": template()["spec"] | {"nodeName": "early"}},
    )
    tenant.pod(
        "other",
        {"schedulerName": "none", "tolerations": [{"operator": "Exists"}], "priorityClassName": "system-node-critical"},
    )
    target = {"apiVersion": "v1", "kind": "Node", "name": "early"}
    path = tenant.a_pod(waits)
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": path.rpartition("/")[2]}, "target": target}
    tenant.never("POST", f"{path}/binding", binding)
    tenant.never("PATCH", path, {"spec": {"nodeName": "early"}})
    tenant.never("PATCH", f"{tenant.a_pod(runs)}/status", {"status": {"phase": "Succeeded"}})


def write_ours(tenant: Tenant) -> None:
    """Budgets, holds, the index, and everything that Headroom's rights hang on."""
    budgets = f"{BUDGETS}/namespaces/{SPACE}/gpuworkloadbudgets"
    tenant.forbidden("PATCH", f"{budgets}/team", {"spec": {"quota": {"gpuHours": "100000"}}})
    tenant.forbidden("PATCH", f"{budgets}/team/status", {"status": {"consumedGpuHours": "0"}})
    tenant.forbidden("DELETE", f"{budgets}/team")
    for kind in ("GPUWorkloadBudget", "ReleaseRequest", "BudgetHold", "BudgetIndex", "PowerPool"):
        plural = "budgetindexes" if kind == "BudgetIndex" else f"{kind.lower()}s"
        body = {
            "apiVersion": "headroom.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": tenant.name("mine")},
            "spec": {},
        }
        for space in (f"namespaces/{SPACE}/", ""):
            tenant.forbidden("POST", f"{BUDGETS}/{space}{plural}", body)
    tenant.forbidden("DELETE", f"{BUDGETS}/budgetholds")
    tenant.forbidden("DELETE", f"{BUDGETS}/budgetindexes/headroom")
    tenant.forbidden(
        "PATCH", f"api/v1/namespaces/{SPACE}", {"metadata": {"labels": {"headroom.dev/require-budget": None}}}
    )
    tenant.forbidden("POST", "api/v1/namespaces/headroom-system/serviceaccounts/headroom/token", {"spec": {}})
    tenant.forbidden("DELETE", f"api/v1/namespaces/{NEIGHBOUR}/pods")
