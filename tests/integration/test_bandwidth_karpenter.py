"""The real Karpenter buys machines for pods that request bandwidth, once the operator has told it what they will publish."""

from collections.abc import Iterator

import pytest

from headroom.api.bandwidth import EGRESS_MBPS
from headroom.api.bandwidth_config import EXTENDED
from headroom.api.quantities import nano
from tests.integration.accounts import GPU, Api, Document, condition
from tests.integration.enforced import (
    Cluster,
    Team,
    enforced_cluster,
    enforcing_operator,
    is_running,
    template,
    wait_for,
)
from tests.integration.karpented import NODE_CLAIMS, NODE_POOLS
from tests.integration.powered import is_refused
from tests.karpenter_lab import REGION, KarpenterLab, Market, definitions, lab_is_lacking

OVERLAYS = "apis/karpenter.sh/v1alpha1/nodeoverlays"
WAYS = ("kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := lab_is_lacking():
        pytest.skip(why)  # no Karpenter is built here; in CI a skip fails
    with enforced_cluster(tmp_path_factory.mktemp("bandwidth"), *definitions()) as made:
        node_class = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass"}
        made.plane.apply(node_class | {"metadata": {"name": "default"}, "spec": {}})
        yield made


def node_pool(api: Api, name: str, **labels: str) -> None:
    """A NodePool for the pods of a namespace of the same name."""
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    kinds = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
    spec = {
        "template": {
            "metadata": {"labels": {"pool": name, **labels}},
            "spec": {"nodeClassRef": reference, "requirements": [kinds]},
        },
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s"},
    }
    body = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}
    api.send("POST", NODE_POOLS, body)


def claims(api: Api, pool: str) -> list[Document]:
    return [each for each in api.items(NODE_CLAIMS) if each["metadata"]["labels"]["karpenter.sh/nodepool"] == pool]


def test_karpenter_buys_for_pods_that_request_bandwidth_and_lets_the_node_go_again(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    api, folder = cluster.api, tmp_path_factory.mktemp("parts")
    market = Market(folder)
    market.put("own.large", f"{REGION}a", 0.4)
    karpenter = KarpenterLab(cluster.plane, folder, market)
    karpenter.gates = "NodeOverlay=true"
    karpenter.start()
    operator = enforcing_operator(cluster.plane, folder, bandwidth_mode="Native")
    operator.start()
    node_pool(api, "rated", **{"headroom.dev/device-plugin": "true"})
    team = Team(cluster, "rated")
    wait_for(
        lambda: [condition(each.get("status", {}), "Ready")[0] for each in api.items(OVERLAYS)] == ["True"], "told"
    )
    [told] = api.items(OVERLAYS)
    assert told["metadata"]["name"] == "headroom-bandwidth"
    assert told["spec"]["capacity"][EGRESS_MBPS] == "1000"

    def ask(name: str, mbps: int) -> None:
        made = template(1, "rated", annotations=dict.fromkeys(WAYS, f"{mbps}M"))
        team.send("Pod", name, made["spec"], **made["metadata"])

    def is_known() -> bool:
        made = template(1, "rated", annotations=dict.fromkeys(WAYS, "1M"))
        body = {"metadata": {"name": "probe", **made["metadata"]}, "spec": made["spec"]}
        answer = api.send("POST", "api/v1/namespaces/rated/pods?dryRun=All", body)
        return EGRESS_MBPS in answer["spec"]["containers"][0]["resources"].get("requests", {})

    wait_for(is_known, "the policies know the mode")
    ask("fits", 600)
    wait_for(lambda: team.names(is_running) == {"fits"}, "it runs on a machine that was bought for it")
    node = next(each for each in api.items("api/v1/nodes") if each["metadata"]["labels"].get("pool") == "rated")
    assert node["status"]["allocatable"][GPU] == "1"
    shown = {name: nano(node["status"]["allocatable"][name]) for name in EXTENDED}
    assert shown == {name: nano(mbps) for name, mbps in told["spec"]["capacity"].items()}
    assert len(claims(api, "rated")) == 1
    # Karpenter counts a node only once it shows all that was requested, and takes away only what counts.
    wait_for(
        lambda: [condition(each["status"], "Initialized")[0] for each in claims(api, "rated")] == ["True"],
        "the node counts",
    )
    ask("huge", 1_500)
    api.send("DELETE", "api/v1/namespaces/rated/pods/fits?gracePeriodSeconds=0")
    wait_for(lambda: claims(api, "rated") == [], "the empty node goes, and none comes for what no machine carries")
    assert team.names(is_refused) == {"huge"}
    operator.close()
    karpenter.close()
