"""Machines and an operator that is killed, stopped, not allowed to call anybody, or not alone: on a real control plane."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headroom.sim.catalog import bare_definition
from tests.integration.accounts import HOUR, Document, Operator, now
from tests.integration.enforced import enforced_cluster, fill_ledger, template, used, wait_for
from tests.integration.powered import ENDS_SOON, Pool, Site, assert_all_was_allowed, is_refused, site_of
from tests.integration.test_cli_live import headroom

KARPENTER = [
    bare_definition("karpenter.sh", "v1", plural, kind)
    for plural, kind in (("nodepools", "NodePool"), ("nodeclaims", "NodeClaim"))
]
MINUTE = 60_000
STALE = "2026-01-01T00:00:00Z"
NODE_POOLS = "apis/karpenter.sh/v1/nodepools"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("powered")
    with enforced_cluster(folder, *KARPENTER) as cluster, site_of(cluster, folder) as made:
        yield made


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("operators")


@pytest.fixture(scope="module")
def operator(site: Site, folder: Path) -> Iterator[Operator]:
    made = site.operator(folder, site.service.url)
    fill_ledger(made, [used(site.plane, "poor", 10, now() - HOUR, now())])
    made.start()
    yield made
    made.close()


def is_placed(pod: Document) -> bool:
    """KWOK lets pods of Jobs succeed at once."""
    return bool(pod["spec"].get("nodeName"))


def waiting(site: Site, name: str, *gpus: int, **metadata: Document) -> Pool:
    """Machines that are off, and a pod."""
    pool = site.pool(name, *gpus)
    pool.create()
    pool.work("train", 4, **metadata)
    return pool


def test_without_an_allow_list_nobody_is_called_and_it_is_said_what_to_do(site: Site, folder: Path) -> None:
    pool = waiting(site, "closed", 4)
    operator = site.operator(folder / "closed")
    operator.start()
    try:
        wait_for(lambda: pool.state("closed-1") == "Failed", "the machine cannot be woken")
        wait_for(lambda: pool.says("MachinesFailed")[0] == "True", "the pool says so")
        assert "--allow-egress" in pool.says("MachinesFailed")[2]
        assert site.service.url in pool.says("MachinesFailed")[2]
        assert site.service.asked == []
    finally:
        operator.close()
        pool.remove()


def test_killed_while_a_machine_boots_the_operator_does_not_wake_it_again(site: Site, operator: Operator) -> None:
    pool = site.pool("booting", 4, 4)
    site.rack.boot_seconds["booting-1"] = 8
    pool.create()
    pool.work("train", 4)
    wait_for(lambda: pool.commands() == [("booting-1", "start")], "a machine is woken")
    operator.kill()
    assert not site.rack.is_on("booting-1")
    operator.start()
    wait_for(lambda: pool.runs("train"), "the pod runs")
    wait_for(lambda: pool.state("booting-1") == "On", "the machine is known to be on")
    assert pool.commands() == [("booting-1", "start")]


def test_killed_between_cordon_and_sleep_the_operator_ends_what_it_began(site: Site, operator: Operator) -> None:
    pool = waiting(site, "emptied", 4, annotations=ENDS_SOON)
    wait_for(lambda: pool.state("emptied-1") == "Draining" and pool.is_cordoned("emptied-1"), "the machine is cordoned")
    operator.kill()
    assert pool.commands("emptied-1") == [("emptied-1", "start")]
    operator.start()
    wait_for(lambda: not pool.is_ready("emptied-1"), "the machine is off")
    assert pool.commands() == [("emptied-1", "start"), ("emptied-1", "stop")]


def test_stop_ends_all_calls_until_people_let_them_go_on(site: Site, operator: Operator) -> None:
    to = ("--kubeconfig", site.plane.kubeconfig())
    headroom("stop", *to)
    try:
        pool = waiting(site, "stopped", 4)
        wait_for(lambda: pool.says("Ready")[1] == "Stopped", "the pool says so")
        wait_for(lambda: pool.state("stopped-1") == "Off", "the pool is looked at")
        assert pool.commands() == []
    finally:
        headroom("resume", *to)
    wait_for(lambda: pool.runs("train"), "the pod runs")
    assert pool.commands() == [("stopped-1", "start")]


def test_pods_that_karpenter_could_serve_are_left_to_it(site: Site, operator: Operator) -> None:
    requirement = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}
    template = {"metadata": {"labels": {"pool": "shared"}}, "spec": {"requirements": [requirement]}}
    node_pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "cloud"}}
    site.api.send("POST", NODE_POOLS, node_pool | {"spec": {"template": template}})
    pool = waiting(site, "shared", 4)
    wait_for(lambda: pool.says("SharedWithKarpenter")[0] == "True", "the pool says so")
    assert "cloud" in pool.says("SharedWithKarpenter")[2]
    assert pool.commands() == []
    site.api.send("DELETE", f"{NODE_POOLS}/cloud")
    wait_for(lambda: pool.runs("train"), "without Karpenter's pool, ours wakes a machine")
    assert pool.commands() == [("shared-1", "start")]


def test_pods_of_a_budget_that_is_used_up_wake_nothing(site: Site, operator: Operator) -> None:
    pool = site.pool("poor", 4, 8)
    pool.budget(quota={"gpuHours": "1", "windowHours": 24})
    wait_for(lambda: pool.is_so("QuotaExceeded"), "the budget is used up")
    pool.work("train", 8)
    wait_for(lambda: pool.names(is_refused) == {"train"}, "kube-scheduler has seen it")
    pool.create()
    pool.work("of-another-team", 4, labels={"team": "b"})
    wait_for(lambda: pool.runs("of-another-team"), "the pod of another team runs")
    assert pool.commands() == [("poor-1", "start")]
    told = headroom("explain", "pod/poor/train", "--kubeconfig", site.plane.kubeconfig()).stdout
    assert "No machine wakes for it: its budget poor/team is over quota." in told


def test_a_budget_that_an_operator_finds_over_quota_wakes_nothing_whatever_its_status_says(
    site: Site, operator: Operator
) -> None:
    pool = site.pool("spent", 4, 8)
    operator.stop()
    pool.create()
    pool.budget(quota={"gpuHours": "1", "windowHours": 24})
    pool.work("train", 8)
    wait_for(lambda: pool.names(is_refused) == {"train"}, "kube-scheduler has seen it")
    told = {"type": "QuotaExceeded", "status": "False", "reason": "Within", "message": "", "lastTransitionTime": STALE}
    body = json.dumps({"status": {"conditions": [told]}})
    at = ("--subresource=status", "--type=merge", "-p", body)
    site.plane.kubectl("patch", "gpuworkloadbudgets.headroom.dev", "team", "-n", "spent", *at)
    assert pool.is_so("QuotaExceeded", "Within", "False")
    fill_ledger(operator, [used(site.plane, "spent", 10, now() - HOUR, now())])
    operator.start()
    wait_for(lambda: pool.is_so("QuotaExceeded"), "the budget is found over quota")
    pool.work("of-another-team", 4, labels={"team": "b"})
    wait_for(lambda: pool.runs("of-another-team"), "the pod of another team runs")
    assert pool.commands() == [("spent-1", "start")]


def test_the_machine_of_a_cron_job_is_awake_when_the_cronjob_controller_makes_its_pods(
    site: Site, operator: Operator
) -> None:
    pool = site.pool("cron", 4)
    pool.create({"bootTimeoutSeconds": 120})
    due = (now() + 40_000) // MINUTE * MINUTE + MINUTE
    made = template(4, "cron")
    made["spec"] |= {"restartPolicy": "Never"}
    at_minute = f"{due // MINUTE % 60} * * * *"
    spec = {"schedule": at_minute, "timeZone": "Etc/UTC", "jobTemplate": {"spec": {"template": made}}}
    body = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly"}, "spec": spec}
    site.api.send("POST", "apis/batch/v1/namespaces/cron/cronjobs", body)
    wait_for(lambda: pool.state("cron-1") == "On", "the machine is awake")
    assert pool.pods() == []
    assert now() < due
    to = ("--kubeconfig", site.plane.kubeconfig())
    # What else the pool says depends on who else is pending in the cluster.
    assert "CronJob/cron/nightly" in headroom("explain", "powerpool/cron", *to).stdout
    assert [each["of"] for each in pool.pool_status()["expected"]] == ["CronJob/cron/nightly"]
    wait_for(lambda: len(pool.names(is_placed)) == 1, "its pod has a node")
    [pod] = pool.pods()

    def happened() -> set[str]:
        events = site.api.items("api/v1/namespaces/cron/events")
        return {each["reason"] for each in events if each["involvedObject"]["name"] == pod["metadata"]["name"]}

    wait_for(lambda: "Scheduled" in happened(), "kube-scheduler says so")
    assert "FailedScheduling" not in happened(), "it had a place at once"
    wait_for(lambda: "expected" not in pool.pool_status(), "it is known to have come")
    assert "fruitless" not in pool.pool_status()
    assert pool.commands() == [("cron-1", "start")]


def test_uninstall_lifts_our_cordons_and_only_ours(site: Site, operator: Operator) -> None:
    pool = waiting(site, "left", 4, annotations=ENDS_SOON)
    site.plane.kubectl("cordon", "early")
    wait_for(lambda: pool.state("left-1") == "Draining" and pool.is_cordoned("left-1"), "the machine is cordoned")
    operator.stop()
    headroom("uninstall", "--yes", "--kubeconfig", site.plane.kubeconfig())
    assert pool.is_free("left-1")
    assert pool.node("early")["spec"]["unschedulable"]
    assert pool.commands() == [("left-1", "start")]


def test_in_all_this_nobody_was_harmed_and_nothing_forbidden_was_asked(site: Site, operator: Operator) -> None:
    assert site.rack.harm == []
    assert_all_was_allowed(site, operator)
