"""Devices as resources that budgets count: by class, driver and part, for whoever shares them, at the price of their node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headroom.core import usage
from headroom.core.usage import BudgetUsage, Keeper, Look, around, names, prices
from headroom.core.usage.names import CountedResource, Sharers
from headroom.model.device_facts import AllocatedDevice, Claim, Device, DeviceClass, DeviceSlice
from headroom.model.devices import WHOLE, DeviceTable, profile_part
from headroom.model.facts import ExtendedClaim, Pod, Price, Shape
from headroom.model.snapshots import load, save
from headroom.model.tables import PodTable
from headroom.model.times import HOUR
from headroom.model.world import World
from tests.builders import NOON, a_claim, a_node, a_resource, a_used_world
from tests.core.stage import running

IMPLICIT = "deviceclass.resource.kubernetes.io/"
GPU = "nvidia.com/gpu"
NIC = DeviceClass(name="nic.example.com", extended_resource="example.com/nic", selectors=('device.driver == "nic"',))
TEAM_GPUS = DeviceClass(name="team-gpus", selectors=("device.driver == 'gpu.nvidia.com' && device.attributes[x]",))
CUSTOM = DeviceClass(
    name="h100", extended_resource="example.com/h100", selectors=('device.driver == "gpu.nvidia.com"',)
)


def asking(resource: str, amount: int = 8, **fields: Any) -> Pod:
    shape = Shape(requests=((resource, amount * 1_000_000),))
    return running("p", HOUR, shape=shape, **fields)


def claiming(name: str = "p", claim: str = "claim", **fields: Any) -> Pod:
    base: dict[str, Any] = {"claims": (claim,)}
    return running(name, HOUR, gpus=0, **base | fields)


def burn(world: World, **spec: Any) -> float:
    """GPUs that a budget for team a counts now."""
    return reckoned(world, **spec).burn / 1_000_000


def reckoned(world: World, **spec: Any) -> usage.Reckoning:
    budget = a_resource(**{"quota": {"usd": "1000", "windowHours": 24}} | spec)
    usage.arrange(world, [budget])
    return BudgetUsage(world, usage.scope_of(world, budget), 24 * HOUR).summarize(usage.quota_of(budget.spec))


def a_cluster(*pods: Pod, claims: tuple[Claim, ...] = (), **more: Any) -> World:
    """A cluster with a budget, as the told labels need one."""
    budgets = more.pop("budgets", (a_resource(),))
    table = DeviceTable(more.pop("classes", ()), more.pop("templates", ()), more.pop("slices", ()))
    return a_used_world(*budgets, pods=pods, claims={each.key: each for each in claims}, devices=table, **more)


# --- what counts as what ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resource", "counted", "gpus"),
    [
        (GPU, GPU, 8),
        (IMPLICIT + "gpu.nvidia.com", GPU, 8),
        (IMPLICIT + "mig.nvidia.com", GPU, 8),  # of a part that nobody knows yet, a whole is counted
        (IMPLICIT + "gpu.amd.com", "amd.com/gpu", 8),
        (IMPLICIT + "gpu.amd.com", GPU, 0),
        (IMPLICIT + "team-gpus", GPU, 8),
        (IMPLICIT + "team-gpus", "team-gpus", 8),
        (IMPLICIT + "team-gpus", IMPLICIT + "team-gpus", 8),
        ("example.com/h100", GPU, 8),
        ("example.com/h100", "example.com/h100", 8),
        ("example.com/h100", "h100", 8),
        ("example.com/nic", GPU, 0),
        (IMPLICIT + "nic.example.com", GPU, 0),
        (IMPLICIT + "nic.example.com", "nic.example.com", 8),
        (IMPLICIT + "unknown.example.com", GPU, 0),
        ("example.com/other", GPU, 0),
    ],
)
def test_an_extended_resource_is_what_its_device_class_gives(resource: str, counted: str, gpus: int) -> None:
    world = a_cluster(asking(resource), classes=(NIC, TEAM_GPUS, CUSTOM))
    assert burn(world, gpuResources=[{"name": counted}]) == gpus


def test_a_class_that_selects_nothing_may_give_the_gpus_that_there_are() -> None:
    anything = DeviceClass(name="anything")
    gpus = DeviceSlice(name="s", driver="gpu.nvidia.com", pool="n", node="n", devices=(Device(name="gpu-0"),))
    assert burn(a_cluster(asking(IMPLICIT + "anything"), classes=(anything,))) == 0
    assert burn(a_cluster(asking(IMPLICIT + "anything"), classes=(anything,), slices=(gpus,))) == 8


def test_a_class_that_rules_a_driver_out_is_none_of_its() -> None:
    rest = DeviceClass(name="rest", selectors=('device.driver != "gpu.nvidia.com"',))
    assert burn(a_cluster(asking(IMPLICIT + "rest"), classes=(rest,))) == 0


def test_of_two_classes_with_one_name_the_newer_one_counts() -> None:
    old = DeviceClass(name="a-nic", created=1, extended_resource="example.com/x", selectors=NIC.selectors)
    new = DeviceClass(name="gpus", created=2, extended_resource="example.com/x", selectors=TEAM_GPUS.selectors)
    assert burn(a_cluster(asking("example.com/x"), classes=(new, old))) == 8
    assert burn(a_cluster(asking("example.com/x"), classes=(structs.replace(new, created=0), old))) == 0


@pytest.mark.parametrize("annotated", [True, False])
def test_the_claim_of_an_extended_resource_is_known_by_the_pods_status_alone(annotated: bool) -> None:
    """A claim that says so of itself is the tenant's, and counts."""
    special = {"extended": ExtendedClaim("claim", (GPU,))} if annotated else {"claims": ("claim",)}
    pod = asking(GPU, 2, uid="u", **special)
    world = a_cluster(pod, claims=(a_claim(devices=2, reserved_for=("u",)),))
    assert burn(world) == (2 if annotated else 4)


def test_a_special_claim_that_is_somebody_elses_replaces_nothing() -> None:
    pod = asking(GPU, 2, uid="u", extended=ExtendedClaim("claim", (GPU,)))
    for claim in (a_claim(devices=1, reserved_for=("v",)), a_claim(reserved_for=("u",))):
        assert burn(a_cluster(pod, claims=(claim,))) == 2


def test_only_what_the_special_claim_is_for_is_taken_from_it() -> None:
    shape = Shape(requests=(("amd.com/gpu", 1_000_000), (IMPLICIT + "gpu.nvidia.com", 1_000_000)))
    resources = (IMPLICIT + "gpu.nvidia.com",)
    pod = running("p", HOUR, uid="u", shape=shape, extended=ExtendedClaim("claim", resources))
    world = a_cluster(pod, claims=(a_claim(devices=1, reserved_for=("u",)),))
    assert burn(world, gpuResources=[{"name": GPU}, {"name": "amd.com/gpu"}]) == 2


@pytest.mark.parametrize(
    ("claim", "gpus"),
    [
        (a_claim(devices=8, reserved_for=("uid-p",)), 8),
        (a_claim(devices=8, reserved_for=("uid-q",)), 0),
        (a_claim(devices=8, device_class="anything", reserved_for=("uid-p",)), 8),
        (a_claim(devices=8, device_class="team-gpus", reserved_for=("uid-p",)), 8),
        (a_claim(devices=8, device_class="gpu.nvidia.com", driver="nic", reserved_for=("uid-p",)), 8),
        (a_claim(devices=8, device_class="nic.example.com", driver="nic", reserved_for=("uid-p",)), 0),
        (a_claim(devices=8, device_class="", driver="gpu.nvidia.com", reserved_for=("uid-p",)), 8),
        (a_claim(reserved_for=("uid-p",)), 0),
    ],
)
def test_devices_of_a_claim_count_by_their_driver_and_class(claim: Claim, gpus: int) -> None:
    assert burn(a_cluster(claiming(), claims=(claim,), classes=(NIC, TEAM_GPUS))) == gpus


def test_a_claim_that_is_gone_and_given_again_counts_what_it_has() -> None:
    world = a_cluster(claiming(), claims=(a_claim(devices=2, reserved_for=("uid-p",)),))
    again = a_claim(devices=5, reserved_for=("uid-p",))
    for claims, gpus in (({}, 2), ({again.key: again}, 5)):
        changed = structs.replace(world, claims=claims, usage=world.usage, now=world.now + HOUR)
        table = usage.table_of(changed, list(world.usage))
        assert burn(structs.replace(changed, usage=table)) == gpus


# --- parts of devices -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("profile", "product", "part"),
    [
        ("1g.5gb", "", (1, 7)),
        ("3g.20gb", "", (3, 7)),
        ("7g.80gb", "", (1, 1)),
        ("4g.24gb", "", (1, 1)),
        ("2g.12gb", "", (1, 2)),
        ("1g.6gb+me", "", (1, 4)),
        ("1g.10gb.me", "NVIDIA-A100-SXM4-80GB", (1, 7)),
        ("1g.24gb", "", (1, 4)),
        ("1g.24gb", "NVIDIA-H100-96GB", (1, 7)),
        ("1g.24gb", "NVIDIA RTX PRO 6000 Blackwell Server Edition", (1, 4)),
        ("4g.24gb", "NVIDIA-A30", (1, 1)),
        ("4g.40gb", "NVIDIA-A100-SXM4-80GB", (4, 7)),
        ("1g.18gb", "NVIDIA-H200", (1, 7)),
    ],
)
def test_mig_profiles_are_parts_of_their_gpu(profile: str, product: str, part: tuple[int, int]) -> None:
    assert profile_part(profile, product) == WHOLE * part[0] // part[1]


@pytest.mark.parametrize("profile", ["", "x", "1g", "g.5gb", "1c.1g.5gb"])
def test_what_is_no_profile_is_no_part(profile: str) -> None:
    assert profile_part(profile) is None


def test_the_gpu_model_of_a_node_tells_what_a_mig_resource_is() -> None:
    pod = asking("nvidia.com/mig-1g.24gb", 4)
    for product, gpus in (("NVIDIA-H100-96GB", 0.571428), ("NVIDIA-RTX-PRO-6000-Blackwell", 1.0), ("", 1.0)):
        labels = (("nvidia.com/gpu.product", product),) if product else ()
        world = a_cluster(pod, nodes=[a_node("n", labels=labels)])
        assert burn(world, gpuResources=[{"name": "nvidia.com/mig-*"}]) == gpus
        assert burn(world, gpuResources=[{"name": "nvidia.com/mig-*", "weight": "0.5"}]) == 2


def mig(name: str, profile: str, product: str = "NVIDIA A100-SXM4-80GB") -> Device:
    return Device(name=name, profile=profile, product=product, capacity=(("memory", 10),))


A_SLICE = DeviceSlice(name="s", driver="gpu.nvidia.com", pool="n", node="n")
SETS = (("gpu-0", (("memory", 80), ("slices", 7))),)


@pytest.mark.parametrize(
    ("devices", "counters", "gpus"),
    [
        ((mig("gpu-0", "1g.10gb"),), (), 0.142857),
        ((mig("gpu-0", "4g.24gb", "NVIDIA A30"),), (), 1),
        ((Device(name="gpu-0", counters=(("gpu-0", (("memory", 20), ("slices", 1))),)),), SETS, 0.25),
        ((Device(name="gpu-0", counters=(("gpu-0", (("slices", 3),)),)),), SETS, 0.428571),
        ((Device(name="gpu-0", counters=(("gone", (("slices", 3),)),)),), SETS, 1),
        (
            (
                Device(name="gpu-0", product="X", capacity=(("memory", 20),)),
                Device(name="gpu-1", product="X", capacity=(("memory", 80),)),
            ),
            (),
            0.25,
        ),
        ((Device(name="gpu-0", capacity=(("memory", 20),)),), (), 1),
        ((), (), 1),
    ],
    ids=["mig", "a30", "by-memory", "by-counter", "unknown-counter", "beside-its-whole", "whole", "not-published"],
)
def test_a_part_of_a_device_counts_as_a_part(devices: Any, counters: Any, gpus: float) -> None:
    """What a slice says beside the device may stand in another slice of the same pool."""
    first = structs.replace(A_SLICE, devices=devices)
    second = structs.replace(A_SLICE, name="t", counters=counters)
    old = structs.replace(A_SLICE, name="u", generation=-1, devices=(mig("gpu-0", "7g.80gb"),))
    world = a_cluster(claiming(), claims=(a_claim(devices=1, reserved_for=("uid-p",)),), slices=(first, second, old))
    assert burn(world) == gpus


def test_a_budget_may_count_mig_devices_by_their_class_or_profile() -> None:
    part = structs.replace(A_SLICE, devices=(mig("gpu-0", "1g.10gb"),))
    claim = a_claim(devices=1, device_class="mig.nvidia.com", reserved_for=("uid-p",))
    world = a_cluster(claiming(), claims=(claim,), slices=(part,))
    assert burn(world, gpuResources=[{"name": "mig.nvidia.com", "weight": "0.5"}]) == 0.5
    assert burn(world, gpuResources=[{"name": "nvidia.com/mig-1g.10gb", "weight": "0.2"}]) == 0.2
    assert burn(world, gpuResources=[{"name": "nvidia.com/mig-*"}]) == 0.142857
    assert burn(world, gpuResources=[{"name": GPU, "weight": 2}]) == 0.285714


def test_a_share_of_a_device_that_several_claims_have_counts_as_a_share() -> None:
    device = structs.replace(A_SLICE, devices=(Device(name="gpu-0", capacity=(("memory", 80), ("cores", 10))),))
    for consumed, gpus in (((("memory", 20),), 0.25), ((("cores", 5),), 0.5), ((("other", 1),), 1), ((), 1)):
        given = AllocatedDevice(driver="gpu.nvidia.com", pool="n", device="gpu-0", consumed=consumed)
        claim = a_claim(allocated=(given,), is_allocated=True, reserved_for=("uid-p",))
        assert burn(a_cluster(claiming(), claims=(claim,), slices=(device,))) == gpus


# --- shared claims ----------------------------------------------------------------------------------------------------------------

OTHERS = (("nobody", "x"),)


def shared(*pods: Pod, devices: int = 8) -> Claim:
    return a_claim(devices=devices, reserved_for=tuple(sorted(pod.uid for pod in pods)))


def test_a_claim_shared_with_idle_pods_outside_the_budget_is_charged_as_a_whole() -> None:
    pods = [claiming("x"), *(claiming(f"s{number}", labels=OTHERS) for number in range(31))]
    assert burn(a_cluster(*pods, claims=(shared(*pods),))) == 8


@pytest.mark.parametrize("count", [1, 2, 3, 7, 31])
def test_pods_of_a_budget_that_share_a_claim_bear_it_together(count: int) -> None:
    pods = [claiming(f"x{number}", labels=(("job", str(number)), ("team", "a"))) for number in range(count)]
    world = a_cluster(*pods, claiming("other", labels=OTHERS), claims=(shared(*pods, devices=1),))
    assert burn(world) == 1
    assert burn(world, selector={"matchLabels": {"team": "b"}}) == 0


def test_pods_that_never_started_or_are_over_bear_nothing() -> None:
    idle = claiming("idle", started=None, phase="Pending")
    over = claiming("over", phase="Succeeded", ended=NOON - 1, ended_by="ContainerFinish")
    pod = claiming("x")
    claim = a_claim(devices=8, reserved_for=("gone", "uid-idle", "uid-over", "uid-x"))
    assert burn(a_cluster(pod, idle, over, claims=(claim,))) == 8


def test_two_budgets_that_share_a_claim_are_each_charged_the_whole() -> None:
    pods = claiming("x"), claiming("y", labels=(("team", "b"),))
    budgets = a_resource(), a_resource(name="two", selector={"matchLabels": {"team": "b"}})
    world = a_cluster(*pods, claims=(shared(*pods),), budgets=budgets)
    assert burn(world) == burn(world, selector={"matchLabels": {"team": "b"}}) == 8


def test_a_budget_that_comes_later_divides_what_was_shared_before_among_all() -> None:
    """By which labels it would tell them apart, nobody knew."""
    pods = claiming("x", labels=(("new", "1"),)), claiming("y", labels=(("new", "2"),))
    world = a_cluster(*pods, claims=(shared(*pods),))
    assert burn(world, selector={"matchLabels": {"new": "1"}}) == 4


def test_nobody_makes_rows_long_by_labels_of_their_own() -> None:
    pods = [claiming(f"x{number}", labels=(("team", f"z{number}"),)) for number in range(200)]
    world = a_cluster(*pods, claims=(shared(*pods),))
    longest = max(len(name) for row in world.usage for name, _ in row.amounts)
    assert longest < 200


def test_dollars_follow_what_is_charged() -> None:
    book = (Price(node="n", price_per_hour=16_000_000),)
    node, pods = a_node("n"), [claiming("x"), claiming("y"), claiming("s", labels=OTHERS)]
    world = a_cluster(*pods, claims=(shared(*pods),), nodes=[node], prices=book)
    found = reckoned(world)
    assert (found.usd_ms, found.unpriced_gpu_ms) == (16_000_000 * HOUR, 0)


def test_the_fleet_counts_a_shared_claim_once() -> None:
    pods = [claiming("x"), claiming("y"), claiming("s", labels=OTHERS)]
    world = a_cluster(*pods, claims=(shared(*pods),))
    assert sum(usage.gpus_of(world, pod) for pod in pods) == 8_000_000


@given(
    st.builds(
        CountedResource,
        name=st.sampled_from([GPU, "a"]),
        aliases=st.lists(st.text(max_size=4), max_size=2).map(tuple),
        part=st.integers(0, WHOLE),
        sharers=st.lists(
            st.builds(Sharers, st.integers(1, 9), st.lists(st.tuples(st.text(), st.text()), max_size=2).map(tuple)),
            max_size=2,
        ).map(tuple),
        keys=st.lists(st.text(max_size=4), max_size=2).map(tuple),
        is_first=st.booleans(),
    )
)
def test_a_name_in_a_row_is_read_as_it_was_written(resource: CountedResource) -> None:
    assert names.parsed(names.text_of(resource)) == resource


@pytest.mark.parametrize("text", ["", "a", "a b", "a {", "a 7", 'a {"part": "x"}'])
def test_a_name_of_another_version_is_no_mistake(text: str) -> None:
    assert names.parsed(text).part == 0


def test_rows_are_read_back_as_plain_resources() -> None:
    part = names.text_of(CountedResource(name=GPU, part=WHOLE // 4, aliases=("mig.nvidia.com",)))
    half = names.text_of(CountedResource(name=GPU, sharers=(Sharers(2),)))
    mig_on_node = names.text_of(CountedResource(name="nvidia.com/mig-1g.24gb", part=WHOLE // 7))
    amounts = (("cpu", 5), (GPU, 1_000_000), (part, 2_000_000), (half, 3_000_000), (mig_on_node, 1_000_000))
    plain = (("cpu", 5), (GPU, 3_000_000), ("nvidia.com/mig-1g.24gb", 1_000_000))
    assert usage.plain_amounts(amounts) == plain


# --- prices and the fleet ---------------------------------------------------------------------------------------------------------


def partitionable(count: int = 2) -> tuple[DeviceSlice, ...]:
    """GPUs that can be partitioned, each beside its partitions; the counters stand in a slice of their own."""
    sets = tuple((f"gpu-{number}", (("memory", 80),)) for number in range(count))
    devices = tuple(
        Device(name=f"gpu-{number}{suffix}", profile=profile, counters=((f"gpu-{number}", (("memory", memory),)),))
        for number in range(count)
        for suffix, profile, memory in (("", "", 80), ("-a", "1g.10gb", 10), ("-b", "1g.10gb", 10))
    )
    return structs.replace(A_SLICE, devices=devices), structs.replace(A_SLICE, name="t", counters=sets)


def test_a_pod_with_claims_only_bears_its_part_of_the_node() -> None:
    book = (Price(node="n", price_per_hour=8_000_000),)
    node = a_node("n", gpus=0, allocatable=(("cpu", 64_000_000),))
    claim = a_claim(devices=1, reserved_for=("uid-p",))
    world = a_cluster(claiming(), claims=(claim,), nodes=[node], slices=partitionable(), prices=book)
    assert reckoned(world).usd_ms == 4_000_000 * HOUR
    assert usage.gpus_on(world, node) == 2_000_000
    small = AllocatedDevice(driver="gpu.nvidia.com", pool="n", device="gpu-0-a")
    claim = a_claim(allocated=(small,), is_allocated=True, reserved_for=("uid-p",))
    world = a_cluster(claiming(), claims=(claim,), nodes=[node], slices=partitionable(), prices=book)
    assert reckoned(world).usd_ms == 571_428 * HOUR


def test_a_node_has_what_its_kubelet_offers_and_what_drivers_publish() -> None:
    static = structs.replace(A_SLICE, devices=tuple(mig(f"m{number}", "1g.10gb") for number in range(7)))
    nic = structs.replace(A_SLICE, name="t", driver="nic", devices=(Device(name="nic"),))
    table = DeviceTable(slices=(static, nic))
    assert prices.gpus_on(a_node("n", gpus=1), table) == 1_999_999
    assert prices.gpus_on(a_node("m", gpus=1), table) == 1_000_000
    labels = (("nvidia.com/gpu.product", "NVIDIA-RTX-PRO-6000"),)
    assert prices.gpus_on(a_node("m", allocatable=(("nvidia.com/mig-1g.24gb", 4_000_000),), labels=labels)) == 1_000_000


def test_a_saved_world_keeps_its_devices() -> None:
    world = a_cluster(claiming(), claims=(shared(claiming(), claiming("y")),), classes=(NIC,), slices=partitionable())
    again = load(save(world))
    assert (again.claims, again.devices.classes, again.devices.slices) == (
        world.claims,
        world.devices.classes,
        world.devices.slices,
    )
    assert burn(again) == burn(world)


# --- as it happens ----------------------------------------------------------------------------------------------------------------


class Seen:
    """A keeper that sees pods as they change, one event at a time."""

    def __init__(self, *pods: Pod) -> None:
        self.world = a_cluster(claims=(shared(*pods),))
        self.keeper = Keeper(self.world.usage)

    def see(self, pod: Pod, at: int) -> list[str]:
        """Whose rows are new."""
        self.world.pods.put(pod)
        return [row.pod for row in self.keeper.hear(pod, around(self.world), Look("default", at, at))]

    def lose(self, pod: Pod, at: int) -> list[str]:
        self.world.pods.remove(pod.uid)
        return [row.pod for row in self.keeper.lose(pod, around(self.world), Look("default", at, at))]

    @property
    def burn(self) -> float:
        return burn(structs.replace(self.world, usage=self.keeper.table))


def test_what_becomes_of_one_sharer_is_seen_in_the_rows_of_the_others() -> None:
    first, second = claiming("x"), claiming("y", started=None, phase="Pending", created=NOON - HOUR)
    seen = Seen(first, second)
    assert seen.see(first, NOON - 9000) == ["x"]
    assert (seen.see(second, NOON - 8000), seen.burn) == ([], 8)  # reserved, and not started
    second = structs.replace(second, started=NOON - 7500, phase="Running")
    assert (seen.see(second, NOON - 7000), seen.burn) == (["y", "x", "x"], 8)
    assert seen.see(second, NOON - 6500) == []
    second = structs.replace(second, labels=OTHERS)
    assert (seen.see(second, NOON - 6000), seen.burn) == (["y", "y", "x", "x"], 8)
    second = structs.replace(second, labels=first.labels)
    assert (seen.see(second, NOON - 5000), seen.burn) == (["y", "y", "x", "x"], 8)
    over = structs.replace(second, phase="Succeeded", ended=NOON - 4500, ended_by="ContainerFinish")
    assert (seen.see(over, NOON - 4000), seen.burn) == (["y", "x", "x"], 8)
    assert (seen.lose(over, NOON - 3000), seen.burn) == ([], 8)
    # What both told of themselves decides, and not when it was heard.
    assert reckoned(structs.replace(seen.world, usage=seen.keeper.table)).gpu_ms == 8_000_000 * HOUR


def test_a_sharer_that_is_deleted_leaves_its_part_to_the_others() -> None:
    first, second = claiming("x"), claiming("y")
    seen = Seen(first, second)
    seen.see(first, NOON - 9000)
    seen.see(second, NOON - 8000)
    assert seen.burn == 8
    assert (seen.lose(second, NOON - 4000), seen.burn) == (["y", "x", "x"], 8)


@pytest.mark.parametrize(
    ("claims", "unseen"),
    [
        ((), {"resourceclaims.resource.k8s.io": "403"}),
        ((), {}),  # deleted, with its finalizer
        ((a_claim(),), {}),  # and made anew
        ((a_claim(devices=1, reserved_for=("other",)),), {}),
    ],
)
def test_a_pod_that_runs_gives_no_claim_back(claims: tuple[Claim, ...], unseen: dict[str, str]) -> None:
    pod = claiming("x")
    seen = Seen(pod)
    seen.see(pod, NOON - 9000)
    seen.world = structs.replace(seen.world, claims={each.key: each for each in claims}, unseen=unseen)
    assert (seen.see(pod, NOON - 5000), seen.burn) == ([], 8)


def test_sharers_of_pods_that_are_relabelled_all_the_time_are_seen_once_for_all() -> None:
    pods = [claiming(f"p{number}") for number in range(20)]
    seen = Seen(*pods)
    seen.keeper = Keeper(seen.world.usage, 1000)
    for pod in pods:
        seen.see(pod, NOON - 60_000)
    for at in range(NOON - 30_000, NOON - 29_500, 100):
        for pod in pods[:10]:
            rows = seen.see(structs.replace(pod, labels=OTHERS if at % 200 else pod.labels), at)
            assert set(rows) <= {pod.name}
    looks = [Look("default", at, at) for at in (NOON - 28_000, NOON - 27_000, NOON - 26_000)]
    settled = [row.pod for look in looks for row in seen.keeper.settle(around(seen.world), look)]
    assert max(settled.count(pod.name) for pod in pods) <= 4
    assert seen.burn == 8


class Asked(PodTable):
    asked = 0

    def get(self, uid: str) -> Pod | None:
        self.asked += 1
        return super().get(uid)


def test_who_shares_a_claim_is_found_out_once_for_all_of_them() -> None:
    pods, table = [claiming(f"p{number}") for number in range(50)], Asked()
    seen = Seen(*pods)
    seen.world = structs.replace(seen.world, pods=table)
    for pod in pods:
        seen.see(pod, NOON - 60_000)
    table.asked = 0
    seen.see(structs.replace(pods[0], labels=OTHERS), NOON - 30_000)
    assert 0 < table.asked < 10 * len(pods)
