"""GPUs through claims, templates and extended resources, allocated by the real kube-scheduler: counted, queued and released like plain ones."""

from collections.abc import Iterator

import pytest

from tests.integration.accounts import Document, Operator
from tests.integration.enforced import (
    TEAM,
    Cluster,
    Team,
    enforced_cluster,
    enforcing_operator,
    is_gated,
    is_running,
    wait_for,
)

API = "resource.k8s.io/v1"
DRIVER = "gpu.nvidia.com"
NODE = "early"
IMPLICIT = "deviceclass.resource.kubernetes.io/"
MADE_FOR_EXTENDED = "resource.kubernetes.io/extended-resource-claim"


def a_class(name: str, driver: str, extended: str = "", kind: str = "gpu") -> Document:
    expression = f"device.driver == '{driver}' && device.attributes['{driver}'].type == '{kind}'"
    spec: Document = {"selectors": [{"cel": {"expression": expression}}]}
    spec |= {"extendedResourceName": extended} if extended else {}
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def a_slice(driver: str, count: int, kind: str, **attributes: str) -> Document:
    told = {name: {"string": value} for name, value in {"type": kind, **attributes}.items()}
    spec = {
        "driver": driver,
        "nodeName": NODE,
        "pool": {"name": f"{NODE}-{kind}", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"{kind}-{number}", "attributes": told} for number in range(count)],
    }
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": f"{NODE}-{kind}"}, "spec": spec}


DEVICES = (
    a_class("gpu.nvidia.com", DRIVER),
    a_class("mig.nvidia.com", DRIVER, kind="mig"),
    a_class("h100", DRIVER, "example.com/h100"),
    a_class("nic.example.com", "nic.example.com", "example.com/nic", "nic"),
    a_slice(DRIVER, 32, "gpu", productName="NVIDIA A100-SXM4-80GB"),
    a_slice(DRIVER, 7, "mig", productName="NVIDIA A100-SXM4-80GB", profile="2g.20gb"),
    a_slice("nic.example.com", 32, "nic"),
)


def requests(device_class: str, count: int) -> Document:
    return {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": device_class, "count": count}}]}}


class DeviceTeam(Team):
    """A team whose pods ask for devices."""

    def claim(self, name: str, device_class: str, count: int, **metadata: Document) -> None:
        self.api.send(
            "POST",
            self.collection("resourceclaims"),
            self.named("ResourceClaim", name, requests(device_class, count), metadata),
        )

    def template(self, name: str, device_class: str, count: int) -> None:
        body = self.named("ResourceClaimTemplate", name, {"spec": requests(device_class, count)}, {})
        self.api.send("POST", self.collection("resourceclaimtemplates"), body)

    def named(self, kind: str, name: str, spec: Document, metadata: Document) -> Document:
        return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}

    def collection(self, plural: str) -> str:
        return f"apis/{API}/namespaces/{self.namespace}/{plural}"

    def claims(self) -> list[Document]:
        return self.api.items(self.collection("resourceclaims"))

    def with_claim(self, name: str, claim: str = "", template: str = "", **labels: str) -> None:
        """A pod with a claim of its own name, or with one that is named, or made from a template."""
        one = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim or name}
        main = {"name": "main", "image": "example.com/train:1", "resources": {"claims": [{"name": "c"}]}}
        spec = {"containers": [main], "resourceClaims": [{"name": "c", **one}]}
        self.send("Pod", name, spec, labels=labels or TEAM)

    def with_resource(self, name: str, resource: str, count: int = 1) -> None:
        main = {"name": "main", "image": "example.com/train:1", "resources": {"limits": {resource: str(count)}}}
        self.send("Pod", name, {"containers": [main]}, labels=TEAM)

    def all_kinds(self, prefix: str) -> set[str]:
        """Pods that ask for seven GPUs and two sevenths of one, in every way; and two that ask for NICs."""
        self.claim(f"{prefix}-claim", "gpu.nvidia.com", 2, annotations={MADE_FOR_EXTENDED: "true"})
        self.with_claim(f"{prefix}-claim")
        self.with_claim(f"{prefix}-template", template="two")
        self.with_resource(f"{prefix}-implicit", IMPLICIT + "gpu.nvidia.com", 2)
        self.with_resource(f"{prefix}-explicit", "example.com/h100")
        self.claim(f"{prefix}-mig", "mig.nvidia.com", 1)
        self.with_claim(f"{prefix}-mig")
        self.claim(f"{prefix}-nic", "nic.example.com", 1)
        self.with_claim(f"{prefix}-nic")
        self.with_resource(f"{prefix}-extended-nic", "example.com/nic")
        return {f"{prefix}-{kind}" for kind in ("claim", "template", "implicit", "explicit", "mig")}


NICS = ("nic", "extended-nic")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with enforced_cluster(tmp_path_factory.mktemp("audit")) as made:
        made.plane.apply(*DEVICES)
        yield made


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    made = enforcing_operator(cluster.plane, tmp_path_factory.mktemp("devices"))
    made.start()
    yield made
    made.close()


def burns(team: Team, gpus: str) -> bool:
    return bool(team.status().get("burnRateGpus") == gpus)


def test_gpus_through_dra_are_counted_queued_and_released_like_plain_ones(cluster: Cluster, operator: Operator) -> None:
    team = DeviceTeam(cluster, "devices")
    team.template("two", "gpu.nvidia.com", 2)
    team.budget(quota={"gpuHours": "100", "windowHours": 1}, enforcement={"action": "Hold", "gracePeriodSeconds": 0})
    first = team.all_kinds("first")
    every = first | {f"first-{each}" for each in NICS}
    wait_for(lambda: team.names(is_running) == every, "all of them run")
    wait_for(lambda: burns(team, "7.285714"), "each GPU and each part of one is counted, and no NIC is")
    made = [each for each in team.claims() if each["metadata"]["name"].startswith("first-implicit-extended-resources-")]
    assert len(made) == 1  # kube-scheduler's, which is not counted beside the request
    team.change("team", quota={"gpuHours": "0.0001"})
    wait_for(lambda: bool(team.holds()), "new pods are queued")
    second = team.all_kinds("second")
    wait_for(lambda: {f"second-{each}" for each in NICS} <= team.names(is_running), "NICs do not wait")
    assert team.names(is_gated) == second
    asked = {each["unit"].rpartition("/")[2]: each["gpus"] for each in team.status()["held"]["queue"]}
    wanted = {"claim": "2", "template": "2", "implicit": "2", "explicit": "1", "mig": "1"}
    assert asked == {f"second-{kind}": gpus for kind, gpus in wanted.items()}
    team.raise_quota()
    wait_for(lambda: second <= team.names(is_running), "all of them are released and run")
    wait_for(lambda: burns(team, "14.571428"), "they are counted as well")


def test_a_shared_claim_is_charged_to_the_budget_that_covers_one_of_its_pods(
    cluster: Cluster, operator: Operator
) -> None:
    team = DeviceTeam(cluster, "sharing")
    team.budget(quota={"gpuHours": "100", "windowHours": 1}, enforcement={"action": "AlertOnly"})
    team.claim("shared", "gpu.nvidia.com", 4)
    team.with_claim("mine", "shared")
    wait_for(lambda: burns(team, "4"), "it is counted")
    for number in range(3):
        team.with_claim(f"idle-{number}", "shared", nobody="x")
    wait_for(lambda: len(team.names(is_running)) == 4, "they share it")
    team.with_claim("mine-too", "shared")
    wait_for(lambda: len(team.names(is_running)) == 5, "they share it")
    # The burn rate is of now, and who shares a claim is looked up once a second.
    wait_for(lambda: team.status().get("trackedPods") == 2 and burns(team, "4"), "both are tracked, and share")
    team.api.send("DELETE", team.path("Pod", "mine") + "?gracePeriodSeconds=0")
    wait_for(lambda: team.status().get("trackedPods") == 1 and burns(team, "4"), "one is gone")
