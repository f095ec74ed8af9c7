"""Devices on the besieged cluster, and what a hostile tenant tries with claims, templates and extended resources for them.

kube-scheduler allocates the devices, so that a claim which gets past a hold is a GPU that is used.
"""

from headroom.api.marks import PROTECTED
from tests.integration.accounts import Api, Document
from tests.integration.enforced import TEAM, template
from tests.integration.hostile import DEVICES, PATHS, PODS, SPACE, THEIRS, Tenant, runs, waits

CLASS = "gpu.example.com"
DRIVER = "gpu.nvidia.com"
EXTENDED = ("example.com/gpu", f"deviceclass.resource.kubernetes.io/{CLASS}")
"""The two resources by which containers ask for devices of the class."""
CLAIMS = PATHS["ResourceClaim"].format(SPACE)
NODE, COUNT = "early", 100


def devices() -> tuple[Document, Document]:
    """A class, and a machine's devices of it: enough for everybody, so that only a hold keeps a claim from them."""
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    spec = {"selectors": selectors, "extendedResourceName": EXTENDED[0]}
    a_class = {"apiVersion": DEVICES, "kind": "DeviceClass", "metadata": {"name": CLASS}, "spec": spec}
    pool = {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    there = {"driver": DRIVER, "nodeName": NODE, "pool": pool, "devices": [{"name": f"gpu-{n}"} for n in range(COUNT)]}
    return a_class, {"apiVersion": DEVICES, "kind": "ResourceSlice", "metadata": {"name": NODE}, "spec": there}


def wants(count: int = 1) -> Document:
    """The spec of a claim."""
    return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": CLASS, "count": count}}]}}


def by_claim(**by: str) -> Document:
    """The spec of a pod without a GPU in its limits, and with a claim."""
    main = {"name": "main", "image": "example.com/train:1", "resources": {"claims": [{"name": "gpu"}]}}
    return {"containers": [main], "resourceClaims": [{"name": "gpu", **by}]}


def by_resource(name: str, count: int = 1) -> Document:
    """The spec of a pod whose container asks for devices as a resource."""
    main = {"name": "main", "image": "example.com/train:1", "resources": {"limits": {name: str(count)}}}
    return {"containers": [main]}


class HeldDevices:
    """Devices that pods have reserved through claims, by the scheduler's word.

    A tenant can delete a claim, finalizers and all, under a pod that goes on with its devices: so what was seen once is remembered.
    """

    def __init__(self, api: Api, namespace: str) -> None:
        self._api, self._path = api, f"apis/{DEVICES}/namespaces/{namespace}/resourceclaims"
        self._seen: dict[str, tuple[int, set[str]]] = {}
        """By uid of the claim: how many devices, and the uids of the pods that ever held it."""

    def look(self) -> None:
        """See what is given now."""
        for each in self._api.items(self._path):
            status, uid = each.get("status", {}), each["metadata"]["uid"]
            devices = len(status.get("allocation", {}).get("devices", {}).get("results", ()))
            before, holders = self._seen.get(uid, (0, set()))
            new = {one["uid"] for one in status.get("reservedFor", ())}
            self._seen[uid] = max(before, devices), holders | new

    def of(self, uids: set[str]) -> int:
        """How many some pods have; those of a claim that they share count once."""
        return sum(devices for devices, holders in self._seen.values() if holders & uids)


# --- before the hold ----------------------------------------------------------------------------------------------------------------

PODS_BEFORE, GPUS_BEFORE = 8, 7
"""What `lay_by` starts: two pods share a claim of their own."""


def lay_by(tenant: Tenant) -> None:
    """Claims in every form that hold devices when the hold begins, one that a neighbour holds as well, and some that wait."""
    for name in ("mine", "shared", "left", "later"):
        _claim(tenant, name)
    for name in ("mine", "shared", "shared", THEIRS, "left"):
        tenant.pod("claims", by_claim(resourceClaimName=name), labels={"keep": "yes"})
    spec = {"spec": wants()}
    body = {"apiVersion": DEVICES, "kind": "ResourceClaimTemplate", "metadata": {"name": "each"}, "spec": spec}
    tenant.ask("POST", PATHS["ResourceClaimTemplate"].format(SPACE), body)
    tenant.pod("claims", by_claim(resourceClaimTemplateName="each"))
    for resource in EXTENDED:
        tenant.pod("claims", by_resource(resource))
    stocked = {"schedulingGates": [{"name": "example.com/later"}]}
    for name in ("later", "shared"):
        tenant.pod("stock", by_claim(resourceClaimName=name) | stocked)
    tenant.pod("stock", by_resource(EXTENDED[0], 4) | stocked)


def _claim(tenant: Tenant, name: str, count: int = 1) -> None:
    body = {"apiVersion": DEVICES, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": wants(count)}
    tenant.ask("POST", CLAIMS, body)


# --- moves --------------------------------------------------------------------------------------------------------------------------


def claim(tenant: Tenant) -> None:
    """Devices by claims: one that several pods share, one of a template, one under our annotation; and pods that swap them."""
    name = tenant.make("ResourceClaim", "new", wants(), annotations={PROTECTED: "true"}, labels=TEAM)
    for by in ({"resourceClaimName": name}, {"resourceClaimName": name}, {"resourceClaimTemplateName": "each"}):
        tenant.pod("claims", by_claim(**by))
    beside = template()["spec"] | {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}
    tenant.pod("beside", beside)
    without = tenant.a_pod(lambda pod: not pod["spec"].get("resourceClaims"))
    tenant.never("PATCH", without, {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}})
    tenant.ask("DELETE", f"{CLAIMS}/{name}")


def reuse_claims(tenant: Tenant) -> None:
    """New pods take claims that were given before the hold: beside the pod that has them, and after it is gone."""
    for name in ("mine", "shared", "left", THEIRS):
        tenant.pod("reuse", by_claim(resourceClaimName=name))
    holders = [each for each in tenant.pods() if runs(each) and each["spec"].get("resourceClaims")]
    if not holders or tenant.spares():
        return
    holder = tenant.chance.choice(holders)
    tenant.ask("DELETE", f"{PODS}/{holder['metadata']['name']}?gracePeriodSeconds=0")
    for one in holder["spec"]["resourceClaims"]:
        if "resourceClaimName" in one:
            tenant.pod("reuse", by_claim(resourceClaimName=one["resourceClaimName"]))


def swap_claims(tenant: Tenant) -> None:
    """A claim that queued pods name becomes a larger one, and the template that makes them too."""
    name = tenant.make("ResourceClaim", "grows", wants())
    tenant.pod("grows", by_claim(resourceClaimName=name))
    tenant.ask("DELETE", f"{CLAIMS}/{name}")
    _claim(tenant, name, 8)
    templates = PATHS["ResourceClaimTemplate"].format(SPACE)
    tenant.never("PATCH", f"{templates}/each", {"spec": {"spec": wants(8)}})
    first = {"devices": {"requests": [{"name": "gpu", "firstAvailable": [_choice(8), _choice(1)]}]}}
    tenant.pod("grows", by_claim(resourceClaimName=tenant.make("ResourceClaim", "either", first)))
    every = {"exactly": {"deviceClassName": CLASS, "allocationMode": "All"}}
    name = tenant.make("ResourceClaim", "all", {"devices": {"requests": [{"name": "gpu", **every}]}})
    tenant.pod("grows", by_claim(resourceClaimName=name))


def _choice(count: int) -> Document:
    return {"name": f"with-{count}", "deviceClassName": CLASS, "count": count}


def write_claims(tenant: Tenant) -> None:
    """Allocation and reservation are the scheduler's; admin access, slices and classes an administrator's."""
    pod = next((each for each in tenant.pods() if waits(each)), None)
    if pod is not None:
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        tenant.forbidden("PATCH", f"{CLAIMS}/mine/status", {"status": {"reservedFor": [user]}})
    tenant.patch(f"{CLAIMS}/mine", {"status": {"reservedFor": None, "allocation": None}})
    tenant.patch(f"{CLAIMS}/mine", {"metadata": {"finalizers": None}})
    extended = {"resource.kubernetes.io/extended-resource-claim": "true", "resource.kubernetes.io/pod-claim-name": "x"}
    for name in ("mine", "shared"):
        tenant.patch(f"{CLAIMS}/{name}", {"metadata": {"annotations": extended}})
    admin = {"exactly": {"deviceClassName": CLASS, "adminAccess": True}}
    body = {"metadata": {"name": tenant.name("admin")}, "spec": {"devices": {"requests": [{"name": "gpu", **admin}]}}}
    tenant.never("POST", CLAIMS, body)
    for document, plural in zip(devices(), ("deviceclasses", "resourceslices"), strict=True):
        tenant.forbidden("POST", f"apis/{DEVICES}/{plural}", document | {"metadata": {"name": "mine"}})
        tenant.forbidden("DELETE", f"apis/{DEVICES}/{plural}/{document['metadata']['name']}")


def ask_for_resources(tenant: Tenant) -> None:
    """Devices as extended resources, under each name, in a container that only begins, and beside a claim."""
    for resource in EXTENDED:
        tenant.pod("resource", by_resource(resource, tenant.chance.randint(1, 4)))
    first = {"name": "first", "image": "none", "resources": {"limits": {EXTENDED[0]: "2"}}}
    plain = [{"name": "main", "image": "none"}]
    tenant.pod("begins", {"initContainers": [first], "containers": plain})
    tenant.pod("begins", {"initContainers": [first | {"restartPolicy": "Always"}], "containers": plain})
    tenant.pod("beside", by_claim(resourceClaimName="mine") | by_resource(EXTENDED[1]))
    body = {"metadata": {"name": tenant.name("status"), "labels": TEAM}, "spec": by_resource(EXTENDED[1])}
    held = {"extendedResourceClaimStatus": {"resourceClaimName": "mine", "requestMappings": []}}
    tenant.ask("POST", PODS, body | {"status": held})
