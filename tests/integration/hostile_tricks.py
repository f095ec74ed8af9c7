"""What a hostile tenant tries with the ways in which Kubernetes lets objects be written, and with everything else that `edit` grants."""

from typing import Any

from headroom.api.marks import GATE, HELD_BECAUSE, HELD_BY, RELEASED_AT
from tests.integration.accounts import GPU, OWN_NAMESPACE
from tests.integration.enforced import OPERATOR, TEAM, is_gated, template
from tests.integration.hostile import (
    APPLY,
    GANG,
    JOBS,
    JSON,
    MERGE,
    NEIGHBOUR,
    PATHS,
    PODS,
    SPACE,
    STRATEGIC,
    THEIRS,
    Tenant,
    job,
    many,
    own_job,
    owner,
    runs,
    waits,
)

HERE = f"namespaces/{SPACE}"
LEASE = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {"holderIdentity": "tenant"}}

# --- other ways to write a pod ------------------------------------------------------------------------------------------------------


def write_gates_otherwise(tenant: Tenant) -> None:
    """The gate taken away in each form that a write can have."""
    ours = [each for each in tenant.pods() if is_gated(each)]
    if not ours:
        return
    pod = tenant.chance.choice(ours)
    path = f"{PODS}/{pod['metadata']['name']}"
    tenant.never("PATCH", path, [{"op": "remove", "path": "/spec/schedulingGates"}], JSON)
    tenant.never("PATCH", path, [{"op": "replace", "path": "/spec/schedulingGates", "value": []}], JSON)
    tenant.never("PATCH", path, {"spec": {"schedulingGates": [{"$patch": "delete", "name": GATE}]}}, STRATEGIC)
    tenant.never("PATCH", path, {"spec": {"schedulingGates": [{"$patch": "replace"}]}}, STRATEGIC)
    tenant.never("PUT", path, pod | {"spec": pod["spec"] | {"schedulingGates": []}})
    foreign = [{"name": "example.com/mine"}]
    tenant.never("PUT", path, pod | {"spec": pod["spec"] | {"schedulingGates": foreign}})
    tenant.never("PATCH", path, {"spec": {"schedulingGates": foreign}})
    lost = {"schedulingGates": [], "containers": pod["spec"]["containers"]}
    tenant.never("PATCH", f"{path}/resize", {"spec": lost}, STRATEGIC)
    tenant.never("PUT", f"{path}/status", pod | {"spec": pod["spec"] | {"schedulingGates": []}})


def apply_as_others(tenant: Tenant) -> None:
    """Server-side apply in the name of other field managers: ours, the scheduler's, one that set the gate itself."""
    gated = tenant.a_pod(is_gated).rpartition("/")[2]
    about: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": gated, "labels": TEAM}}
    for manager in ("headroom", "kube-scheduler"):
        marked = about | {"metadata": about["metadata"] | {"annotations": {RELEASED_AT: "2020-01-01T00:00:00Z"}}}
        tenant.never("PATCH", f"{PODS}/{gated}?fieldManager={manager}&force=true", marked, APPLY)
    name, made = tenant.name("applied"), template()
    whole = about | {"metadata": {"name": name, "labels": TEAM}, "spec": made["spec"]}
    own = whole | {"spec": made["spec"] | {"schedulingGates": [{"name": GATE}]}}
    where = f"{PODS}/{name}?fieldManager=kubectl&force=true"
    for each in (own, whole, whole | {"metadata": {"name": name}}):
        tenant.ask("PATCH", where, each, APPLY)


def name_pods_otherwise(tenant: Tenant) -> None:
    """Names that the server makes, names of the released Job's pods, and the Job itself as an owner that is real."""
    made = template()
    for prefix in ("any-", "freed-"):
        tenant.ask("POST", PODS, {"metadata": made["metadata"] | {"generateName": prefix}, "spec": made["spec"]})
    code, found = tenant.ask("GET", f"{JOBS}/freed")
    if code == 200:
        uid = found["metadata"]["uid"]
        labels = {"batch.kubernetes.io/job-name": "freed", "batch.kubernetes.io/controller-uid": uid}
        tenant.pod("freed-mine", ownerReferences=owner("Job", "freed", uid, "batch/v1"), labels=labels)
        tenant.pod("freed-mine", labels=labels, finalizers=["batch.kubernetes.io/job-tracking"])


def touch_metadata(tenant: Tenant) -> None:
    """Nothing but metadata is written: labels, owners, managed fields, marks; and only metadata is asked for."""
    running, queued = tenant.a_pod(runs), tenant.a_pod(is_gated)
    partial = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
    for path in (running, queued):
        tenant.ask("PATCH", path, {"metadata": {"labels": {"team": None}}}, MERGE, **partial)
        tenant.ask("PATCH", path, [{"op": "remove", "path": "/metadata/labels"}], JSON)
        tenant.ask("PATCH", path, [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}], JSON)
        tenant.ask("PATCH", path, {"metadata": {"annotations": {HELD_BY: None, HELD_BECAUSE: "nothing"}}})
        tenant.ask("PATCH", path, {"metadata": {"labels": {GANG: THEIRS, "extra": tenant.name("x")}}})
    tenant.ask("PATCH", running, {"metadata": {"ownerReferences": None}})


def begin_with_gpus(tenant: Tenant) -> None:
    """GPUs that only a container which ends soon asks for, or one that stays beside; and lengths that are not true."""
    first = {"name": "first", "image": "none", "resources": {"limits": {GPU: "2"}}}
    plain = [{"name": "main", "image": "none"}]
    for each in (first, first | {"restartPolicy": "Always"}):
        tenant.pod("begins", {"initContainers": [each], "containers": plain})
    tenant.pod("short", {"activeDeadlineSeconds": 1}, annotations={"headroom.dev/expected-duration": "1s"})
    tenant.pod("short", annotations={"headroom.dev/expected-duration": "1ms"})


# --- other ways to have pods made ---------------------------------------------------------------------------------------------------


def toggle_jobs(tenant: Tenant) -> None:
    """Jobs stopped and let go in turns."""
    for name in ("later", own_job(tenant)):
        for suspend in (True, False, True, False):
            tenant.patch(f"{JOBS}/{name}", {"spec": {"suspend": suspend}})


def tune_jobs(tenant: Tenant) -> None:
    """Jobs that replace pods early, or count no failure, or are left to another controller."""
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    tenant.make("Job", "tuned", job(2) | {"podFailurePolicy": {"rules": rules}, "podReplacementPolicy": "Failed"})
    each = {"completionMode": "Indexed", "backoffLimitPerIndex": 3}
    tenant.make("Job", "tuned", {key: value for key, value in job(2).items() if key != "backoffLimit"} | each)
    tenant.make("Job", "tuned", job(1) | {"ttlSecondsAfterFinished": 0, "activeDeadlineSeconds": 1})
    tenant.make("Job", "tuned", job(1) | {"managedBy": "example.com/nobody"})
    tenant.ask("PATCH", f"{JOBS}/{own_job(tenant)}/status", {"status": {"ready": 0, "active": 0}}, MERGE)


def roll_out(tenant: Tenant) -> None:
    """A Deployment goes over to new pods, all of them before the first old one goes; and back; and is scaled as an autoscaler does."""
    path = PATHS["Deployment"].format(SPACE)
    surge = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "200%", "maxUnavailable": 0}}
    for each in tenant.items(path)[:2]:
        name = each["metadata"]["name"]
        rolled = {"metadata": {"annotations": {"rolled": tenant.name("r")}}}
        tenant.patch(f"{path}/{name}", {"spec": {"strategy": surge, "template": rolled}})
        tenant.patch(f"{path}/{name}/scale", {"spec": {"replicas": tenant.chance.randint(2, 8)}})
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
        spec = {"minReplicas": 9, "maxReplicas": 99, "scaleTargetRef": target}
        scaler = {"metadata": {"name": tenant.name("hpa")}, "spec": spec}
        tenant.ask("POST", f"apis/autoscaling/v2/{HERE}/horizontalpodautoscalers", scaler)
    tenant.ask("DELETE", f"apis/autoscaling/v2/{HERE}/horizontalpodautoscalers")


def orphan_and_adopt(tenant: Tenant) -> None:
    """Owners go and leave their pods behind, and new owners take those; collections go at once."""
    path = PATHS["ReplicaSet"].format(SPACE)
    tenant.ask("DELETE", f"{path}?labelSelector=app%3Dmany&propagationPolicy=Orphan")
    tenant.make("ReplicaSet", "adopts", many(6))
    code, found = tenant.ask("GET", f"{JOBS}/{own_job(tenant)}")
    if code == 200:
        tenant.ask("DELETE", f"{JOBS}/{found['metadata']['name']}?propagationPolicy=Orphan")
        selector = {"matchLabels": {"batch.kubernetes.io/job-name": found["metadata"]["name"]}}
        tenant.make("Job", "adopts", job(3) | {"manualSelector": True, "selector": selector})
    tenant.ask("DELETE", f"{PODS}?labelSelector=team%3Da,app%3Dmany&fieldSelector=status.phase%3DPending")


def evict_own(tenant: Tenant) -> None:
    """Evictions of its own pods, for show and for real; of the neighbours' none."""
    for chosen, options in ((waits, {}), (runs, {"dryRun": ["All"]})):
        path = tenant.a_pod(chosen)
        about = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": path.rpartition("/")[2]}}
        tenant.ask("POST", f"{path}/eviction", about | {"deleteOptions": options})
    name = {"metadata": {"name": "other-0"}}
    tenant.forbidden("POST", f"api/v1/namespaces/{NEIGHBOUR}/pods/other-0/eviction", name)
    spec = {"maxUnavailable": 0, "unhealthyPodEvictionPolicy": "IfHealthyBudget"}
    tenant.make("PodDisruptionBudget", "more", spec | {"selector": {"matchLabels": {"keep": "yes"}}})


# --- everything else ----------------------------------------------------------------------------------------------------------------


def write_beside(tenant: Tenant) -> None:
    """What surrounds pods: quotas, limits, priorities, leases, endpoints, configuration; here as far as `edit` goes, elsewhere not."""
    for plural, spec in (("resourcequotas", {"hard": {"pods": "1"}}), ("limitranges", {"limits": []})):
        tenant.forbidden("POST", f"api/v1/{HERE}/{plural}", {"metadata": {"name": "mine"}, "spec": spec})
    priority = {"metadata": {"name": "mine"}, "value": 1000, "globalDefault": True}
    tenant.forbidden("POST", "apis/scheduling.k8s.io/v1/priorityclasses", priority)
    tenant.pod("urgent", {"priorityClassName": "system-cluster-critical"})
    leases = "apis/coordination.k8s.io/v1/namespaces/{}/leases"
    tenant.ask("POST", leases.format(SPACE), LEASE | {"metadata": {"name": "headroom"}})
    taken = {"spec": {"holderIdentity": "tenant"}}
    for name in ("headroom", "headroom-lead"):
        tenant.forbidden("PATCH", f"{leases.format(OWN_NAMESPACE)}/{name}", taken)
        tenant.forbidden("DELETE", f"{leases.format('kube-node-lease')}/early")
    for plural in ("configmaps", "secrets"):
        body = {"metadata": {"name": "headroom", "labels": {"headroom.dev/prices": "true"}}}
        tenant.ask("POST", f"api/v1/{HERE}/{plural}", body)
        tenant.forbidden("POST", f"api/v1/namespaces/{OWN_NAMESPACE}/{plural}", body)
    for group in (
        "admissionregistration.k8s.io/v1/validatingadmissionpolicies",
        "apiextensions.k8s.io/v1/customresourcedefinitions",
    ):
        tenant.forbidden("DELETE", f"apis/{group}")
    grant = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "headroom-releaser"}}
    tenant.forbidden(
        "POST", f"apis/rbac.authorization.k8s.io/v1/{HERE}/rolebindings", {"metadata": {"name": "mine"}} | grant
    )
    tenant.forbidden("PATCH", "api/v1/nodes/early", {"spec": {"unschedulable": True, "taints": None}})


def borrow_accounts(tenant: Tenant) -> None:
    """Other accounts of its namespace, by their tokens and by impersonation, start nothing either; those of others it cannot be."""
    account = {"metadata": {"name": "builder"}}
    tenant.ask("POST", f"api/v1/{HERE}/serviceaccounts", account)
    code, answer = tenant.ask("POST", f"api/v1/{HERE}/serviceaccounts/builder/token", {"spec": {}})
    made = template()
    body = {"metadata": made["metadata"] | {"name": tenant.name("borrowed")}, "spec": made["spec"]}
    if code < 300:
        tenant.never("POST", PODS, body, Authorization=f"Bearer {answer['status']['token']}")
    same = {"Impersonate-User": f"system:serviceaccount:{SPACE}:tenant"}
    tenant.ask("POST", PODS, body, **same)
    path = tenant.a_pod(is_gated)
    for user in (OPERATOR, "releaser", "system:kube-scheduler", "admin", f"system:serviceaccount:{SPACE}:tenant"):
        headers = {"Impersonate-User": user}
        tenant.never("PATCH", path, {"spec": {"schedulingGates": None}}, **headers)
    tenant.never(
        "POST",
        PODS,
        body,
        **{"Impersonate-User": f"system:serviceaccount:{SPACE}:x", "Impersonate-Group": "system:masters"},
    )
