"""A cluster in which budgets are enforced: all of Kubernetes but the kubelets, which KWOK plays, and the operator with just its rights.

The API server's audit log tells which pods were bound to a node, which were evicted, and what the operator wrote, in which order.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headroom.adapters.ledger import open_ledger
from headroom.api import generate
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from headroom.api.marks import GATE
from headroom.model.usage import Evidence, UsageRow
from tests.control_plane import ControlPlane, find_assets, lacking, wait_until
from tests.integration.accounts import GPU, OWN_NAMESPACE, Account, Api, Document, Operator, condition, moment
from tests.processes import PATIENCE_SECONDS

USERS = ("editor", "releaser")
OPERATOR = f"system:serviceaccount:{OWN_NAMESPACE}:headroom"
"""The operator's account, as deploy/rbac.yaml makes it."""
TEAM = {"team": "a"}
HOLDS = "apis/headroom.dev/v1alpha1/budgetholds"
STAYS = ["example.com/stay"]
"""Finalizers of a pod that does not vanish when it is evicted, so that a second eviction of it would be seen."""
RUNS_ON = {"pod-complete.stage.kwok.x-k8s.io/delay": "24h"}
"""Annotations of a Job's pod that does not end at once."""
COLLECTIONS = {
    "Pod": "api/v1/namespaces/{}/pods",
    "Job": "apis/batch/v1/namespaces/{}/jobs",
    "Deployment": "apis/apps/v1/namespaces/{}/deployments",
    "ReplicaSet": "apis/apps/v1/namespaces/{}/replicasets",
    "PodDisruptionBudget": "apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "JobSet": "apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets",
    "Workload": "apis/kueue.x-k8s.io/v1beta1/namespaces/{}/workloads",
}
_WRITES = ["create", "update", "patch", "delete"]
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "resources": [{"group": "", "resources": ["pods/eviction", "pods/binding"]}]},
        {
            "level": "Metadata",
            "users": [OPERATOR],
            "verbs": _WRITES,
            "resources": [{"group": "", "resources": ["pods"]}, {"group": "batch", "resources": ["jobs"]}],
        },
        # With what was written, which tells a cordon from its end.
        {
            "level": "Request",
            "users": [OPERATOR],
            "verbs": _WRITES,
            "resources": [{"group": "", "resources": ["nodes"]}],
        },
        {"level": "None"},
    ],
}


@contextlib.contextmanager
def enforced_cluster(
    folder: Path, *definitions: Document, own_accounts: bool = False, scheduler: Mapping[str, Any] | None = None
) -> Iterator["Cluster"]:
    """A control plane with our kinds, policies and roles, the operator's account, and further kinds as asked for."""
    assets = find_assets()
    if why := lacking(assets):
        pytest.skip(why)
    (folder / "audit-policy.json").write_text(json.dumps(_AUDIT))
    flags = [f"--audit-policy-file={folder / 'audit-policy.json'}", f"--audit-log-path={folder / 'audit.log'}"]
    made = ControlPlane(assets, apiserver_flags=flags, own_accounts=own_accounts, scheduler=scheduler)
    for user in USERS:
        made.add_token_user(user)
    with made as plane:
        plane.apply(*(crd(kind) for kind in DEFINITIONS.values()), *definitions)
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=300s")
        for file in ("rbac.yaml", "roles.yaml", "policies.yaml"):
            plane.kubectl("apply", "-f", str(generate.ROOT / "deploy" / file))
        plane.grant("releaser", "headroom-releaser")
        add_node(plane, "early")
        cluster = Cluster(plane, folder)
        yield cluster
        cluster.api.close()


class Cluster:
    """A control plane, one connection to it that is never idle for long, and its audit log."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.api, self.audit = plane, Api(plane), Audit(folder)

    def team(self, namespace: str) -> "Team":
        """A new namespace."""
        return Team(self, namespace)


def add_node(plane: ControlPlane, pool: str, gpus: int = 600) -> None:
    """A machine with room for everybody who chooses its pool."""
    plane.add_node(pool, {GPU: str(gpus), "pods": "1000", "cpu": "1000"}, {"pool": pool})


def enforcing_operator(plane: ControlPlane, folder: Path, made: type[Operator] = Operator, **settings: str) -> Operator:
    """The operator with the account and the rights of deploy/rbac.yaml, and with caps so high that teams do not wait for one another."""
    caps = {"evictions_per_minute": "200", "namespace_evictions_per_minute": "200"}
    return made(plane, folder, kubeconfig=str(plane.account_kubeconfig("headroom", OWN_NAMESPACE)), **caps, **settings)


# --- the ledger and the audit log -------------------------------------------------------------------------------------------------


def used(plane: ControlPlane, namespace: str, gpus: int, start: int, end: int) -> UsageRow:
    """What a pod of team a used that is long gone."""
    cluster = json.loads(plane.get("/api/v1/namespaces/kube-system"))["metadata"]["uid"]
    return UsageRow(
        cluster=cluster,
        uid=f"{namespace}-{start}",
        namespace=namespace,
        pod=f"old-{start}",
        created=start,
        start=start,
        earliest=start,
        observed=start,
        seen_until=end,
        ended=end,
        evidence=Evidence.CONTAINER_FINISH,
        amounts=((GPU, gpus * 1_000_000),),
        labels=tuple(TEAM.items()),
    )


def fill_ledger(operator: Operator, rows: Sequence[UsageRow]) -> None:
    """Write rows into the ledger of an operator that does not run."""

    async def work() -> None:
        ledger = open_ledger(str(operator.folder / "state" / "ledger.db"))
        await ledger.write(rows)
        await ledger.close()

    (operator.folder / "state").mkdir(exist_ok=True)
    asyncio.run(work())


class Request(NamedTuple):
    """One that the API server granted."""

    at: int
    """Milliseconds since 1970."""
    verb: str
    what: str
    name: str


class Audit:
    """What the API server granted, in its own order."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "audit.log"

    def requests(self, namespace: str, what: str, verb: str = "create") -> list[Request]:
        """Of one kind, such as `pods/eviction`, in one namespace."""
        found = []
        for line in self._file.read_text().splitlines():
            if line.endswith("}") and f'"namespace":"{namespace}"' in line:
                event = json.loads(line)
                target = event["objectRef"]
                asked = "/".join(part for part in (target["resource"], target.get("subresource")) if part)
                if (asked, event["verb"]) == (what, verb) and event["responseStatus"]["code"] < 300:
                    at = moment(event["requestReceivedTimestamp"])
                    found.append(Request(at, verb, asked, target.get("name", "")))
        return sorted(found)

    def evicted(self, namespace: str) -> list[str]:
        """The pods that were evicted, in order; one that was evicted twice is there twice."""
        return [each.name for each in self.requests(namespace, "pods/eviction")]

    def bound(self, namespace: str) -> set[str]:
        """The pods that ever got a node. No container of another one can have started."""
        return {each.name for each in self.requests(namespace, "pods/binding")}


# --- teams ------------------------------------------------------------------------------------------------------------------------


class Team(Account):
    """One namespace with its budget and its workloads."""

    def __init__(self, cluster: "Cluster", namespace: str) -> None:
        super().__init__(cluster.api, namespace)
        self.plane, self.audit = cluster.plane, cluster.audit
        self.plane.grant("editor", "edit", namespace)

    # What there is

    def send(self, kind: str, name: str, spec: Document, **metadata: Any) -> Document:
        """Make an object."""
        body = {"kind": kind, "metadata": {"name": name} | metadata, "spec": spec}
        group = self.path(kind).removeprefix("apis/").partition("/namespaces")[0]
        body["apiVersion"] = group.removeprefix("api/")
        return self.api.send("POST", self.path(kind), body)

    def path(self, kind: str, name: str = "") -> str:
        """Where the API has them."""
        base = COLLECTIONS[kind].format(self.namespace)
        return f"{base}/{name}" if name else base

    def get(self, kind: str, name: str) -> Document:
        """An object as it is now."""
        return self.api.send("GET", self.path(kind, name))

    def pods(self, prefix: str = "") -> list[Document]:
        """All pods whose names begin so."""
        return [each for each in self.api.items(self.path("Pod")) if each["metadata"]["name"].startswith(prefix)]

    def names(self, chosen: Callable[[Document], bool], prefix: str = "") -> set[str]:
        """The names of some pods."""
        return {each["metadata"]["name"] for each in self.pods(prefix) if chosen(each)}

    # Making it

    def pod(self, name: str, gpus: int = 1, pool: str = "early", **metadata: Any) -> Document:
        """A pod that nobody owns."""
        made = template(gpus, pool, **metadata)
        return self.send("Pod", name, made["spec"], **made["metadata"])

    def job(self, name: str, pods: int, made: Document, **spec: Any) -> Document:
        """A Job with so many pods at once."""
        made = made | {"spec": made["spec"] | {"restartPolicy": "Never"}}
        return self.send("Job", name, {"parallelism": pods, "completions": pods, "template": made} | spec)

    def replicas(self, kind: str, name: str, count: int, made: Document) -> Document:
        """A Deployment or a ReplicaSet."""
        labels = {"app": name}
        made = made | {"metadata": made["metadata"] | {"labels": made["metadata"]["labels"] | labels}}
        return self.send(kind, name, {"replicas": count, "selector": {"matchLabels": labels}, "template": made})

    def limit(self, gpu_hours: str, action: str, **enforcement: Any) -> None:
        """A budget of the last hour that acts at once."""
        self.budget(quota=last_hour(gpu_hours), enforcement=at_once(action, **enforcement))

    def raise_quota(self, name: str = "team") -> None:
        """There is room for everything."""
        self.change(name, quota={"gpuHours": "100000"})

    # Looking at it

    def is_so(self, kind: str, reason: str = "", status: str = "True", name: str = "team") -> bool:
        """Whether a condition of the budget holds, for that reason if one is given."""
        found = condition(self.status(name), kind)
        return found[0] == status and reason in ("", found[1])

    def message(self, kind: str, name: str = "team") -> str:
        """The words of a condition."""
        return next((str(each["message"]) for each in self.status(name)["conditions"] if each["type"] == kind), "")

    def told(self, name: str, reason: str) -> list[str]:
        """What was said on an object, for one reason."""
        found = self.api.items(f"api/v1/namespaces/{self.namespace}/events?fieldSelector=involvedObject.name={name}")
        return [str(each["message"]) for each in found if each["reason"] == reason]

    def holds(self) -> list[str]:
        """The budgets of this namespace that hold new pods."""
        found = (each["spec"]["budget"] for each in self.api.items(HOLDS))
        return [each for each in found if each.startswith(f"{self.namespace}/")]

    def evicted(self) -> list[str]:
        """Its pods that were evicted, in order."""
        return self.audit.evicted(self.namespace)


def last_hour(gpu_hours: str) -> Document:
    """A quota with the shortest window there is."""
    return {"gpuHours": gpu_hours, "windowHours": 1}


def at_once(action: str, **more: Any) -> Document:
    """One action, without grace."""
    return {"action": action, "gracePeriodSeconds": 0, **more}


def template(gpus: int = 1, pool: str = "early", **metadata: Any) -> Document:
    """A pod of team a, for itself or for an owner."""
    main = {"name": "main", "image": "example.com/train:1", "resources": {"limits": {GPU: str(gpus)}}}
    labels = TEAM | metadata.pop("labels", {})
    return {
        "metadata": {"labels": labels} | metadata,
        "spec": {"nodeSelector": {"pool": pool}, "containers": [main]},
    }


def is_running(pod: Document) -> bool:
    """Its containers run, and it is not on its way out."""
    return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]


def is_gated(pod: Document) -> bool:
    """It waits behind our gate."""
    return any(each["name"] == GATE for each in pod["spec"].get("schedulingGates", ()))


def marks(document: Mapping[str, Any]) -> list[str]:
    """Everything of ours on an object of somebody else."""
    metadata, spec = document["metadata"], document.get("spec", {})
    found = [*metadata.get("annotations", {}), *metadata.get("labels", {}), *metadata.get("finalizers", ())]
    found += [each["name"] for each in spec.get("schedulingGates", ())]
    return sorted(each for each in found if each.startswith("headroom.dev/"))


def wait_for(condition: Callable[[], bool], what: str, timeout: float = PATIENCE_SECONDS) -> None:
    """Wait for something that takes a while on a busy machine."""
    wait_until(condition, what, timeout)
