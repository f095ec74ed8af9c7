"""Machines whose GPUs are there for ResourceClaims (DRA): they wake for pods that the real kube-scheduler can then give those GPUs."""

from collections.abc import Iterator

import pytest

from tests.integration.accounts import Api, Document, Operator
from tests.integration.enforced import enforced_cluster, wait_for
from tests.integration.powered import Pool, Site, assert_all_was_allowed, is_refused, site_of
from tests.integration.test_devices import API, DRIVER, a_class, requests

CLASS = "gpu.nvidia.com"
SLICES = f"apis/{API}/resourceslices"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("powered")
    with enforced_cluster(folder) as cluster, site_of(cluster, folder) as made:
        made.plane.apply(a_class(CLASS, DRIVER))
        yield made


@pytest.fixture(scope="module")
def operator(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    made = site.operator(tmp_path_factory.mktemp("operator"), site.service.url)
    made.start()
    yield made
    made.close()


def publish(api: Api, node: str, gpus: int) -> None:
    """What a driver does once it runs on a node; its slice stays there while the machine sleeps."""
    if any(each["metadata"]["name"] == node for each in api.items(SLICES)):
        return
    devices = [{"name": f"gpu-{number}", "attributes": {"type": {"string": "gpu"}}} for number in range(gpus)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    api.send("POST", SLICES, {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec})


class ClaimPool(Pool):
    """Machines with a driver, and pods that ask by claims."""

    def __init__(self, site: Site, name: str, *gpus: int) -> None:
        super().__init__(site, name, gpus)
        site.rack.drivers |= dict.fromkeys(self.machines, publish)

    def claim(self, name: str, gpus: int) -> Document:
        """A claim that is there before its pod."""
        body = {"apiVersion": API, "kind": "ResourceClaim", "metadata": {"name": name}, "spec": requests(CLASS, gpus)}
        self.api.send("POST", self._collection("resourceclaims"), body)
        return {"resourceClaimName": name}

    def claim_template(self, name: str, gpus: int) -> Document:
        """From which each pod gets a claim of its own."""
        body = {"apiVersion": API, "kind": "ResourceClaimTemplate", "metadata": {"name": name}}
        body["spec"] = {"spec": requests(CLASS, gpus)}
        self.api.send("POST", self._collection("resourceclaimtemplates"), body)
        return {"resourceClaimTemplateName": name}

    def claiming(self, name: str, of: Document) -> None:
        """A pod that asks for GPUs by a claim alone."""
        main = {"name": "main", "image": "example.com/train:1", "resources": {"claims": [{"name": "gpus"}]}}
        self.work(name, 0, {"containers": [main], "resourceClaims": [{"name": "gpus", **of}]})

    def given(self, pod: str) -> list[tuple[str, str]]:
        """The devices that kube-scheduler has given a pod, each with its node."""
        mine = [each for each in self.api.items(self._collection("resourceclaims")) if _is_for(each, pod)]
        results = [one for each in mine for one in each["status"]["allocation"]["devices"]["results"]]
        return sorted((each["pool"], each["device"]) for each in results)

    def place(self, pod: str) -> str:
        """The node of a pod; empty while it has none."""
        return str(self.get("Pod", pod)["spec"].get("nodeName", ""))

    def _collection(self, plural: str) -> str:
        return f"apis/{API}/namespaces/{self.namespace}/{plural}"


def _is_for(claim: Document, pod: str) -> bool:
    return any(each["name"] == pod for each in claim.get("status", {}).get("reservedFor", ()))


@pytest.fixture(scope="module")
def pool(site: Site, operator: Operator) -> ClaimPool:
    """A pod wants six GPUs, and nobody has said yet that the machines have such devices."""
    made = ClaimPool(site, "claims", 4, 8)
    made.create()
    made.claiming("train", made.claim_template("six", 6))
    return made


def test_machines_wake_for_claims_once_their_class_is_named_and_stay_on_while_those_pods_run(
    site: Site, operator: Operator, pool: ClaimPool
) -> None:
    wait_for(lambda: pool.names(is_refused) == {"train"}, "kube-scheduler finds no place")
    wait_for(lambda: pool.unserved().get("claims/train", ("",))[0] == "DeviceClaims", "the pool says what it lacks")
    assert pool.commands() == []

    pool.edit(deviceClasses=[CLASS])
    wait_for(lambda: pool.runs("train"), "the pod runs")
    assert pool.commands() == [("claims-2", "start")], "the only machine that is large enough"
    assert pool.place("train") == "claims-2"
    given = pool.given("train")
    assert {node for node, _ in given} == {"claims-2"}
    assert len(set(given)) == 6

    # What is left of that machine is room for others.
    pool.claiming("small", pool.claim("two", 2))
    wait_for(lambda: pool.runs("train", "small"), "both run")
    assert pool.place("small") == "claims-2"
    assert not set(pool.given("small")) & set(given)

    # One that is idle goes to sleep meanwhile, so the busy one was looked at for as long.
    pool.turn_on("claims-1")
    wait_for(lambda: pool.commands("claims-1") == [("claims-1", "stop")], "the idle machine is sent to sleep")
    assert pool.runs("train", "small")
    assert pool.commands("claims-2") == [("claims-2", "start")]
    assert pool.state("claims-2") == "On"


def test_and_sleep_once_those_pods_are_gone_and_wake_again(site: Site, operator: Operator, pool: ClaimPool) -> None:
    pool.delete("train")
    pool.delete("small")
    twice = [("claims-2", "start"), ("claims-2", "stop")]
    wait_for(lambda: pool.commands("claims-2") == twice, "the machine is sent to sleep")
    wait_for(lambda: pool.state("claims-2") == "Off", "it sleeps")
    pool.claiming("again", {"resourceClaimTemplateName": "six"})
    wait_for(lambda: pool.runs("again"), "the next pod runs")
    assert pool.place("again") == "claims-2"
    assert pool.commands("claims-2") == [*twice, ("claims-2", "start")]
    assert site.rack.harm == []
    assert_all_was_allowed(site, operator)
