"""Machines that wake for pending pods and sleep when idle, on a real control plane and behind real power services.

What wakes and sleeps takes its time, and what kube-scheduler refuses is believed after a minute, so all pools begin at once, and each
test then looks at one of them.
"""

from base64 import b64encode
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.integration.accounts import Document, Operator
from tests.integration.enforced import enforced_cluster, is_running, template, wait_for
from tests.integration.powered import (
    ENDS_SOON,
    BmcFollower,
    Ear,
    Pool,
    Site,
    assert_all_was_allowed,
    busy,
    is_refused,
    served_badly,
    site_of,
    was_tried,
)
from tests.integration.test_cli_live import headroom
from tests.power_service import Bmcs

MAC = "0a:1b:2c:3d:4e:5f"
POOL: Document = {"key": "pool", "operator": "In"}
BMC_MACHINES = ("bmc-1", "bmc-2")
TOKEN = "open sesame"
SECRETS = (TOKEN, Bmcs.PASSWORD, b64encode(f"{Bmcs.USER}:{Bmcs.PASSWORD}".encode()).decode())
SLOWEST = ("spread", "choosy", "bmc")
SETTLE_MS = 10_000
"""For so long a node is cordoned before its machine is switched off."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("powered")
    with enforced_cluster(folder) as cluster, site_of(cluster, folder) as made:
        yield made


@pytest.fixture(scope="module")
def bmcs(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bmcs]:
    """A BMC for each of two machines, which do what it says."""
    certificate, authority = site.plane.serving_certificate, site.plane.ca_file
    with Bmcs(tmp_path_factory.mktemp("bmcs"), BMC_MACHINES, certificate, authority) as made:
        follower = BmcFollower(made, site.rack)
        yield made
        follower.close()


@pytest.fixture(scope="module")
def operator(site: Site, bmcs: Bmcs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    made = site.operator(tmp_path_factory.mktemp("operator"), site.service.url, bmcs.url, "wol://127.0.0.1")
    made.start()
    yield made
    made.close()


# --- the pools --------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cycle(site: Site) -> Pool:
    """A pod that ends by itself, and machines that can be asked whether they are on."""
    pool = site.pool("cycle", 8, 4, 4)
    site.secret("power-token", f"PowerPool/cycle@{site.service.url}", token=TOKEN)
    machines = [each | {"statusEndpoint": pool.url(each["name"], "")} for each in pool.documents()]
    webhook = {"tokenSecretRef": {"name": "power-token"}, "body": '{"turn": "${action}", "what": "${machine}"}'}
    pool.create(machines=machines, webhook=webhook)
    pool.work("first", 3, annotations=ENDS_SOON)
    return pool


@pytest.fixture(scope="module")
def bmc(site: Site, bmcs: Bmcs) -> Pool:
    """The same with machines behind BMCs."""
    pool = site.pool("bmc", 4, 8)
    authority = {"ca.crt": site.plane.ca_file.read_text()}
    site.secret("bmc", f"PowerPool/bmc@{bmcs.url}", username=bmcs.USER, password=bmcs.PASSWORD, **authority)
    base = {"address": bmcs.url, "credentialsSecretRef": {"name": "bmc"}}
    machines = [
        {"name": name, "gpuCount": count, "redfish": base | {"system": bmcs.systems[name]}}
        for name, count in pool.machines.items()
    ]
    pool.create(machines=machines)
    pool.work("train", 8, annotations=ENDS_SOON)
    return pool


@pytest.fixture(scope="module")
def ear(site: Site) -> Iterator[Ear]:
    made = Ear(MAC, lambda: site.rack.switch("lan-1", True))
    yield made
    made.close()


@pytest.fixture(scope="module")
def lan(site: Site, ear: Ear) -> Pool:
    """A machine that wakes by a magic packet."""
    pool = site.pool("lan", 4)
    packet = {"mac": MAC, "address": "127.0.0.1", "port": ear.port}
    pool.create(machines=[{"name": "lan-1", "gpuCount": 4, "wakeOnLan": packet} | pool.stops("lan-1")])
    pool.work("train", 4, annotations=ENDS_SOON)
    return pool


@pytest.fixture(scope="module")
def six(site: Site) -> Pool:
    """Six small pods, and one that no machine can hold."""
    pool = site.pool("six", 4, 8)
    pool.work("huge", 16)
    for number in range(6):
        pool.work(f"small-{number}")
    wait_for(lambda: len(pool.names(is_refused)) == 7, "kube-scheduler has seen them all")
    pool.create()
    return pool


@pytest.fixture(scope="module")
def crowd(site: Site) -> Pool:
    """As many pods as machines."""
    pool = site.pool("crowd", 1, 1, 1, 1, 1)
    for number in range(5):
        pool.work(f"p-{number}")
    pool.create({"idleSeconds": 5, "maxConcurrentSleeps": 5, "warmPercent": 0})
    return pool


@pytest.fixture(scope="module")
def closed(site: Site) -> Pool:
    """An idle machine that somebody keeps pods away from, for reasons of their own."""
    pool = site.pool("closed", 4)
    pool.turn_on("closed-1")
    site.plane.kubectl("cordon", "closed-1")
    pool.create()
    return pool


@pytest.fixture(scope="module")
def pieces(site: Site) -> Pool:
    """Two GPUs are free, on two machines, and a pod wants two."""
    pool = site.pool("pieces", 4, 4, 4)
    pool.turn_on("pieces-1", "pieces-2")
    for name in ("left", "right"):
        pool.work(name, 3)
    wait_for(lambda: pool.runs("left", "right"), "two pods run")
    pool.create()
    pool.work("pair", 2)
    return pool


@pytest.fixture(scope="module")
def failing(site: Site) -> Pool:
    return served_badly(site, "failing", "fail")


@pytest.fixture(scope="module")
def redirecting(site: Site) -> Pool:
    return served_badly(site, "redirecting", "redirect")


@pytest.fixture(scope="module")
def slow(site: Site) -> Pool:
    """No answer comes in time, and the machine comes later still."""
    site.rack.boot_seconds["slow-1"] = 5
    return served_badly(site, "slow", "slow", webhook={"timeoutSeconds": 1})


@pytest.fixture(scope="module")
def lying(site: Site) -> Pool:
    return served_badly(site, "lying", "lie", policy={"bootTimeoutSeconds": 6})


@pytest.fixture(scope="module")
def paused(site: Site) -> Pool:
    """Nothing may happen."""
    pool = site.pool("paused", 4)
    pool.create(paused=True)
    pool.work("train", 4)
    return pool


@pytest.fixture(scope="module")
def intruded(site: Site) -> Pool:
    return busy(site, "intruded", 4)


@pytest.fixture(scope="module")
def removed(site: Site) -> Pool:
    return busy(site, "removed", 4)


@pytest.fixture(scope="module")
def drained(site: Site) -> Pool:
    """An idle machine with a pod of a DaemonSet, and one without GPUs that its owner makes anew elsewhere."""
    pool = site.pool("drained", 4)
    pool.turn_on("drained-1")
    pool.daemon("agent", "drained-1")
    here, anywhere = ({"matchExpressions": [POOL | {"values": names}]} for names in (["drained"], ["drained", "early"]))
    affinity = {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": here}],
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [anywhere]},
    }
    pod = template(0, labels={"app": "web"})
    pod["spec"] |= {"nodeSelector": {}, "affinity": {"nodeAffinity": affinity}}
    pool.replicas("ReplicaSet", "web", 1, pod)
    wait_for(lambda: [each["spec"].get("nodeName") for each in pool.pods("web")] == ["drained-1"], "it is there")
    pool.create({"drain": "NonGpuPods"})
    return pool


@pytest.fixture(scope="module")
def spread(site: Site) -> Pool:
    """A pod that must not go beside another one, onto the only machine with room."""
    pool = site.pool("spread", 8, 8, 8)
    pool.turn_on("spread-1", "spread-2")
    pool.work("other", 8)
    pool.work("mate", 4, labels={"app": "spread"})
    wait_for(lambda: pool.runs("other", "mate"), "two pods run")
    pool.create()
    selector = {"matchLabels": {"app": "spread"}}
    rule = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    spec = {"topologySpreadConstraints": [rule | {"labelSelector": selector}]}
    pool.work("next", 4, spec, labels={"app": "spread"})
    return pool


@pytest.fixture(scope="module")
def ranks(site: Site) -> Pool:
    """A gang of three, each on a host of its own, and four machines that would hold them all."""
    pool = site.pool("ranks", 8, 8, 8, 8)
    apart = {"labelSelector": {"matchLabels": {"app": "ranks"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    labels = {"app": "ranks", "scheduling.x-k8s.io/pod-group": "ranks"}
    for number in range(3):
        pool.work(f"r-{number}", 1, {"affinity": affinity}, labels=labels)
    pool.create()
    return pool


@pytest.fixture(scope="module")
def choosy(site: Site) -> Pool:
    """Pods that must be beside one that is nowhere; to Headroom all fit beside the busy one, and one onto each other machine."""
    pool = busy(site, "choosy", 8, 2, 2)
    beside = {"labelSelector": {"matchLabels": {"app": "nobody"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [beside]}}
    for number in range(3):
        pool.work(f"picky-{number}", 2, {"affinity": affinity})
    return pool


@pytest.fixture(scope="module", autouse=True)
def all_at_once(request: pytest.FixtureRequest, operator: Operator) -> None:
    """Every pool begins."""
    for each in (*SLOWEST, "cycle", "lan", "failing", "redirecting", "slow", "lying", "drained", "six", "pieces"):
        request.getfixturevalue(each)
    for each in ("ranks", "crowd", "closed", "paused", "intruded", "removed"):
        request.getfixturevalue(each)


# --- while they begin -------------------------------------------------------------------------------------------------------------


def drain(pool: Pool, machine: str) -> None:
    """Its pod goes, and the machine is about to be switched off."""
    pool.delete("busy")
    wait_for(lambda: pool.is_cordoned(machine), "the machine is cordoned")
    assert pool.state(machine) == "Draining"


def test_a_pod_that_comes_to_a_cordoned_machine_keeps_it_on(intruded: Pool) -> None:
    """Whoever names a node passes the scheduler by."""
    drain(intruded, "intruded-1")
    intruded.work("intruder", 1, {"nodeName": "intruded-1"})
    wait_for(lambda: intruded.is_free("intruded-1"), "the machine is uncordoned")
    wait_for(lambda: intruded.runs("intruder") and intruded.state("intruded-1") == "On", "all is as before")
    assert intruded.commands() == []


def test_a_pool_that_is_deleted_lets_go_of_its_machines(removed: Pool) -> None:
    drain(removed, "removed-1")
    removed.remove()
    wait_for(lambda: removed.is_free("removed-1"), "the machine is uncordoned")
    removed.work("next")
    wait_for(lambda: removed.runs("next"), "pods run there as ever")
    assert removed.commands() == []


def test_a_paused_pool_does_nothing_until_it_goes_on(paused: Pool) -> None:
    wait_for(lambda: paused.state("paused-1") == "Off", "the pool is looked at")
    wait_for(lambda: paused.says("Ready")[1] == "Paused", "the pool says so")
    assert paused.commands() == []
    paused.edit(paused=False)
    wait_for(lambda: paused.runs("train"), "the pod runs")
    assert paused.commands() == [("paused-1", "start")]


def test_when_many_turn_idle_at_once_only_a_few_are_switched_off(crowd: Pool) -> None:
    """It may be the view that is wrong."""
    wait_for(lambda: len(crowd.names(is_running)) == 5, "all run")
    assert sorted(crowd.commands()) == [(f"crowd-{number}", "start") for number in range(1, 6)]
    crowd.api.send("DELETE", f"{crowd.path('Pod')}?gracePeriodSeconds=0")
    wait_for(lambda: crowd.says("Braked")[:2] == ("True", "ManyTurnedIdle"), "the pool brakes")
    assert sum(crowd.state(name) == "On" for name in crowd.machines) == 2


# --- services that do not do as they are told -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "words"), [("failing", "500"), ("redirecting", "307")])
def test_a_refused_call_passes_on_to_the_next_machine(request: pytest.FixtureRequest, name: str, words: str) -> None:
    pool: Pool = request.getfixturevalue(name)
    wait_for(lambda: pool.runs("train"), "the pod runs")
    assert pool.commands() == [(f"{name}-1", "start"), (f"{name}-2", "start")]
    known = pool.known(f"{name}-1")
    assert (known["state"], known["failures"]) == ("Failed", 1)
    assert words in known["reason"]
    assert pool.says("MachinesFailed")[0] == "True"
    assert f"{name}-1" in pool.says("MachinesFailed")[2]


def test_a_redirect_is_never_followed(site: Site, redirecting: Pool) -> None:
    """Not even to an address that is allowed."""
    wait_for(lambda: redirecting.runs("train"), "the pod runs")
    assert site.service.trapped() == []


def test_a_call_without_an_answer_is_not_made_again(slow: Pool) -> None:
    """The machine itself tells what came of it."""
    wait_for(lambda: slow.runs("train"), "the pod runs")
    assert slow.state("slow-1") == "On"
    assert slow.commands() == [("slow-1", "start")]


def test_a_machine_that_does_not_come_is_passed_over_and_sleeps_again_when_it_comes_late(lying: Pool) -> None:
    wait_for(lambda: lying.runs("train"), "the pod runs")
    assert lying.get("Pod", "train")["spec"]["nodeName"] == "lying-2"
    assert lying.commands()[:2] == [("lying-1", "start"), ("lying-2", "start")]
    wait_for(lambda: lying.commands("lying-1")[1:] == [("lying-1", "stop")], "what never joined is sent to sleep again")
    wait_for(lambda: lying.state("lying-1") == "Off", "it counts as off")
    lying.service.modes.pop("lying-1")
    lying.rack.switch("lying-1", True)
    wait_for(lambda: lying.state("lying-1") == "On", "the late machine counts")
    wait_for(lambda: lying.commands("lying-1")[2:] == [("lying-1", "stop")], "the late machine is sent to sleep")
    wait_for(lambda: lying.state("lying-1") == "Off", "it sleeps")


# --- on and off -------------------------------------------------------------------------------------------------------------------


def assert_cordoned_before(pool: Pool, machine: str) -> None:
    """New pods were kept away long before the machine was told to sleep, and for no other reason."""
    [stopped] = [each.at for each in pool.service.asked if (each.machine, each.command) == (machine, "stop")]
    [cordoned] = [at for at, on in pool.site.cordons(machine) if on]
    assert stopped - cordoned >= SETTLE_MS - 1000


def test_a_machine_wakes_for_a_pod_and_sleeps_once_idle_and_wakes_again(cycle: Pool) -> None:
    once = [("cycle-2", "start"), ("cycle-2", "stop")]
    wait_for(lambda: cycle.commands() == once, "the smallest machine that is enough was woken, and sent to sleep")
    wait_for(lambda: not cycle.is_ready("cycle-2") and cycle.state("cycle-2") == "Off", "it is off")
    first = cycle.get("Pod", "first")
    assert (first["spec"]["nodeName"], first["status"]["phase"]) == ("cycle-2", "Succeeded")
    assert_cordoned_before(cycle, "cycle-2")

    cycle.work("second", 4)
    wait_for(lambda: cycle.runs("second") and cycle.is_free("cycle-2"), "the same machine serves the next pod")
    assert cycle.commands() == [*once, ("cycle-2", "start")]
    whole = ["Booting", "On", "Draining", "Sleeping", "Off", "Booting", "On"]
    wait_for(lambda: cycle.states("cycle-2")[-7:] == whole, "the pool has told all of it")
    assert cycle.states("cycle-1") == cycle.states("cycle-3") == ["Off"]


def test_calls_carry_what_the_pool_says(site: Site, cycle: Pool) -> None:
    wait_for(lambda: len(cycle.commands()) >= 2, "it was woken, and sent to sleep")
    calls = [each for each in site.service.asked if each.machine == "cycle-2" and each.method == "POST"]
    assert {each.headers["authorization"] for each in calls} == {f"Bearer {TOKEN}"}
    assert [each.body for each in calls[:2]] == [
        '{"turn": "wake", "what": "cycle-2"}',
        '{"turn": "sleep", "what": "cycle-2"}',
    ]
    assert len({each.headers["idempotency-key"] for each in calls}) == len(calls)


def test_people_can_read_what_happened(site: Site, cycle: Pool, six: Pool) -> None:
    wait_for(
        lambda: cycle.states("cycle-2")[-2:] == ["Sleeping", "Off"] or len(cycle.commands()) > 2, "it was off again"
    )
    shown = site.plane.kubectl("describe", "powerpool", "cycle")
    for reason in ("WakingMachine", "MachineOn", "DrainingMachine", "SleepingMachine", "MachineOff"):
        assert reason in shown
    told = headroom("explain", "pod/six/huge", "--kubeconfig", site.plane.kubeconfig()).stdout
    assert "it needs 16 nvidia.com/gpu and 8 are there" in told
    told = headroom("explain", "powerpool/cycle", "--kubeconfig", site.plane.kubeconfig()).stdout
    assert "cycle-2" in told


def test_secrets_are_told_to_nobody_else(site: Site, cycle: Pool, bmc: Pool, operator: Operator) -> None:
    everything = [operator.log, site.plane.kubectl("get", "powerpools,events", "--all-namespaces", "-o", "json")]
    assert [secret for secret in SECRETS for text in everything if secret in text] == []


def test_a_machine_behind_a_bmc_wakes_and_sleeps(bmc: Pool, bmcs: Bmcs) -> None:
    wait_for(lambda: bmc.state("bmc-2") == "Off" and bmcs.resets("bmc-2") == [204, 204], "it is off again")
    train = bmc.get("Pod", "train")
    assert (train["spec"]["nodeName"], train["status"]["phase"]) == ("bmc-2", "Succeeded")
    assert not bmcs.is_on("bmc-2")
    assert bmcs.resets("bmc-1") == []
    assert [on for _, on in bmc.site.cordons("bmc-2")] == [True]


def test_a_machine_wakes_by_a_magic_packet(lan: Pool, ear: Ear) -> None:
    wait_for(lambda: lan.commands() == [("lan-1", "stop")], "it was woken, and sent to sleep")
    assert ear.packets == [b"\xff" * 6 + bytes.fromhex(MAC.replace(":", "")) * 16]
    assert lan.get("Pod", "train")["status"]["phase"] == "Succeeded"


def test_six_small_pods_wake_one_large_machine_and_a_huge_one_wakes_nothing(six: Pool) -> None:
    wait_for(lambda: six.runs(*(f"small-{number}" for number in range(6))), "the small ones run")
    wait_for(lambda: list(six.unserved()) == ["six/huge"], "it is said that the huge one cannot be served")
    reason, words = six.unserved()["six/huge"]
    assert (reason, "it needs 16 nvidia.com/gpu and 8 are there" in words) == ("NoMachineFits", True)
    assert six.commands() == [("six-2", "start")]


def test_free_gpus_in_pieces_are_no_room_and_the_machine_that_is_needed_wakes(pieces: Pool) -> None:
    wait_for(lambda: pieces.runs("left", "right", "pair"), "all run")
    assert pieces.commands() == [("pieces-3", "start")]


def test_what_others_make_anew_is_moved_and_what_belongs_to_the_node_stays(drained: Pool) -> None:
    wait_for(lambda: drained.commands() == [("drained-1", "stop")], "the machine was sent to sleep")
    assert len(drained.evicted()) == 1
    [web] = [each for each in drained.pods("web") if is_running(each)]
    assert web["spec"]["nodeName"] != "drained-1"
    assert "deletionTimestamp" not in drained.get("Pod", "agent")["metadata"]
    assert_cordoned_before(drained, "drained-1")


# --- what kube-scheduler knows better ---------------------------------------------------------------------------------------------


def test_a_pod_that_keeps_apart_from_others_gets_a_machine_although_there_is_free_room(spread: Pool) -> None:
    wait_for(lambda: spread.runs("other", "mate", "next"), "all run")
    assert spread.commands() == [("spread-3", "start")]
    assert spread.get("Pod", "next")["spec"]["nodeName"] == "spread-3"
    assert not was_tried(spread)


def test_a_gang_with_one_rank_per_host_gets_its_machines_at_once(ranks: Pool) -> None:
    wait_for(lambda: ranks.runs("r-0", "r-1", "r-2"), "all run")
    assert sorted(ranks.commands()) == [(f"ranks-{number}", "start") for number in (1, 2, 3)]
    assert len({ranks.get("Pod", f"r-{number}")["spec"]["nodeName"] for number in range(3)}) == 3
    assert not was_tried(ranks)


def test_a_machine_that_does_not_help_stays_the_only_one(choosy: Pool) -> None:
    """If they were understood, three pods would wake two machines."""
    wait_for(lambda: choosy.state("choosy-2") == "On", "a machine is tried")
    wait_for(lambda: len(choosy.unserved()) == 1, "it is said that the others are not served")
    [(reason, words)] = choosy.unserved().values()
    assert reason == "Unmodelled"
    assert words.startswith("kube-scheduler does not place it on choosy-1, where it would fit: 0/")
    assert "didn't match pod affinity rules" in words
    assert choosy.names(is_running) == {"busy"}
    assert choosy.commands() == [("choosy-2", "start")]


# --- in the end -------------------------------------------------------------------------------------------------------------------


def test_in_all_this_nobody_was_harmed_or_told_twice(site: Site, choosy: Pool) -> None:
    assert site.rack.harm == []
    machines = {each.machine for each in site.service.asked if each.command}
    told = {machine: [command for _, command in site.service.commands(machine)] for machine in machines}
    twice = {name: each for name, each in told.items() if any(a == b for a, b in pairwise(each))}
    # Only the one that somebody switched on by hand between its two sleeps.
    assert twice == {"lying-1": ["start", "stop", "stop"]}
    assert choosy.commands("choosy-3") == []


def test_a_cordon_of_somebody_else_is_theirs(closed: Pool) -> None:
    """By now the machine has been idle for long."""
    assert closed.state("closed-1") == "On"
    assert closed.node("closed-1")["spec"]["unschedulable"]
    assert (closed.commands(), closed.site.cordons("closed-1")) == ([], [])


def test_the_operator_has_the_rights_it_needs(site: Site, operator: Operator) -> None:
    assert_all_was_allowed(site, operator)
