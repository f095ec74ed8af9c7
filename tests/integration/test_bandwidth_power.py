"""Machines that sleep wake for pods that ask for bandwidth, which the real kube-scheduler then places there, in both modes."""

from collections.abc import Iterator

import pytest

from headroom.api import generate
from headroom.api.bandwidth import EGRESS_MBPS, INGRESS_MBPS, MARKER
from headroom.api.bandwidth_config import EXTENDED
from tests.integration.accounts import Document, Operator
from tests.integration.enforced import enforced_cluster, enforcing_operator, template, wait_for
from tests.integration.extended import ExtenderProcess
from tests.integration.powered import Pool, Site, assert_all_was_allowed, is_refused, site_of

WAYS = ("kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth")
ATTESTED = {"headroom.dev/device-plugin": "true"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A machine room, and a kube-scheduler that asks the extender of pods with the marker."""
    extender = ExtenderProcess(tmp_path_factory.mktemp("extender"))
    folder = tmp_path_factory.mktemp("powered")
    with enforced_cluster(folder, scheduler=extender.configuration()) as cluster, site_of(cluster, folder) as made:
        cluster.plane.kubectl("apply", "-f", str(generate.ROOT / "deploy" / "extender.yaml"))
        extender.start(cluster.plane)
        yield made
        extender.close()


class BandwidthPool(Pool):
    """Machines, and pods that say how much bandwidth they need."""

    def ask(self, name: str, mbps: int) -> None:
        """A pod with one GPU and as much bandwidth in both directions."""
        self.work(name, annotations=dict.fromkeys(WAYS, f"{mbps}M"))

    def place(self, pod: str) -> str:
        """The node of a pod; empty while it has none."""
        return str(self.get("Pod", pod)["spec"].get("nodeName", ""))

    def requests(self, pod: str) -> Document:
        """What the policy made of it."""
        found: Document = self.get("Pod", pod)["spec"]["containers"][0]["resources"].get("requests", {})
        return found


def operator_in(site: Site, folder_factory: pytest.TempPathFactory, mode: str) -> Operator:
    """One that has told the API server's policies of its mode."""
    made = enforcing_operator(
        site.plane, folder_factory.mktemp(mode), allow_egress=site.service.url, bandwidth_mode=mode
    )
    made.start()
    probe = template(0, annotations=dict.fromkeys(WAYS, "1M"))
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", **probe["metadata"]},
        "spec": probe["spec"],
    }
    wanted = MARKER if mode == "Extender" else EGRESS_MBPS

    def is_told() -> bool:
        answer = site.api.send("POST", "api/v1/namespaces/default/pods?dryRun=All", body)
        return wanted in answer["spec"]["containers"][0]["resources"].get("requests", {})

    wait_for(is_told, f"the policies know mode {mode}")
    return made


def test_in_extender_mode_a_machine_wakes_for_each_pod_that_no_card_has_left_room_for(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    operator = operator_in(site, tmp_path_factory, "Extender")
    pool = BandwidthPool(site, "marked", (8, 8, 8))
    pool.create({"idleSeconds": 3600})
    pool.ask("first", 600)
    wait_for(lambda: pool.runs("first"), "it runs")
    assert pool.requests("first")[MARKER] == "1"
    assert len(pool.commands()) == 1, "one machine is enough for one pod"
    home = pool.place("first")

    # There are GPUs left where it is, and no bandwidth: only the extender refuses that node.
    pool.ask("second", 600)
    wait_for(lambda: pool.runs("first", "second"), "both run")
    assert pool.place("second") not in ("", home)
    # What is left of both cards is room for others.
    pool.ask("third", 300)
    wait_for(lambda: pool.runs("first", "second", "third"), "all run")
    assert [what for _, what in pool.commands()] == ["start", "start"]

    # More than any link carries: nothing wakes, and whoever asks is told.
    pool.ask("huge", 1_500)
    wait_for(lambda: pool.unserved().get("marked/huge", ("",))[0] == "BandwidthTooLarge", "it is told")
    assert "at most 1000 Mbps" in pool.unserved()["marked/huge"][1]
    assert len(pool.commands()) == 2
    assert_all_was_allowed(site, operator)
    operator.close()
    assert site.rack.harm == []


def test_in_native_mode_only_a_machine_with_a_device_plugin_wakes(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    operator = operator_in(site, tmp_path_factory, "Native")
    pool = BandwidthPool(site, "native", (8, 8))
    site.rack.labels["native-2"] = ATTESTED
    bare, attested = pool.documents()
    pool.create({"idleSeconds": 3600}, machines=[bare])
    pool.ask("first", 600)
    wait_for(lambda: pool.names(is_refused) == {"first"}, "kube-scheduler finds no place")
    wait_for(lambda: pool.unserved().get("native/first", ("",))[0] == "NoDevicePlugin", "it is told")
    assert pool.commands() == []

    pool.edit(machines=[bare, attested | {"labels": ATTESTED}])
    wait_for(lambda: pool.is_ready("native-2"), "the other machine joins")
    wait_for(lambda: pool.runs("first"), "it runs")
    requested = {name: each for name, each in pool.requests("first").items() if name in EXTENDED}
    assert requested == dict.fromkeys((EGRESS_MBPS, INGRESS_MBPS), "600")
    assert pool.place("first") == "native-2"
    assert pool.commands() == [("native-2", "start")], "what has just come is awaited"

    # kube-scheduler itself counts now: this one finds no machine that could hold it.
    pool.ask("second", 600)
    wait_for(lambda: "native/second" in pool.unserved(), "it is told")
    assert len(pool.commands()) == 1
    assert_all_was_allowed(site, operator)
    operator.close()
