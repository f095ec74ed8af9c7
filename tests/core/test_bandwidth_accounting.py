"""What each pod of a node holds: every bound pod that has not finished, fixed when it was bound, and attacks on that."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api.bandwidth import Reservation
from headroom.core.bandwidth.accounting import account
from headroom.core.bandwidth.asks import ask_of
from headroom.core.bandwidth.capacity import MachineTypes, capacity_of
from headroom.core.bandwidth.telling import digest_of, reservation
from headroom.model.bandwidth import GIGABIT, MEGABIT, BandwidthRules, Links, Rates
from headroom.model.cloud_facts import Offer
from headroom.model.facts import Node, Owner, Pod, Shape
from headroom.model.tables import PodTable
from headroom.model.world import World
from tests.builders import a_node, a_pod, a_resource, a_world

UP, DOWN, TRAFFIC = "kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth", "headroom.dev/traffic"
SET = Owner("StatefulSet", "ranks", "set-1", "apps")


def asking(name: str = "a", up: str = "100M", *, node: str = "n1", siblings: bool = False, **fields: Any) -> Pod:
    notes = [(UP, up)] if up else []
    notes += [(TRAFFIC, "siblings")] if siblings else []
    return a_pod(name, node=node, gpus=0, **({"annotations": tuple(sorted(notes))} | fields))


def a_scene(*pods: Pod, **more: Any) -> World:
    table = PodTable()
    for pod in pods:
        table.put(pod)
    return a_world(pods=table, **more)


def used(world: World, node: str = "n1", memory: dict[str, Reservation] | None = None) -> Links:
    return account(world, node, memory or {}).used


def megabits(local: int, network: int) -> Links:
    return Links(Rates(local * MEGABIT, 0), Rates(network * MEGABIT, 0))


# --- who counts ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "mbps"),
    [
        ({}, 100),
        ({"phase": "Running"}, 100),
        ({"phase": "Running", "deleting": 5}, 100),
        ({"phase": "Unknown"}, 100),
        ({"phase": "Succeeded"}, 0),
        ({"phase": "Failed", "deleting": 5}, 0),
        ({"node": ""}, 0),
        ({"node": "n2"}, 0),
        ({"shape": Shape(scheduler="someone-else")}, 100),
        ({"annotations": ()}, 0),
        ({"annotations": (("ovn.kubernetes.io/egress_rate", "7"),)}, 7),
    ],
)
def test_every_bound_pod_that_has_not_finished_counts(fields: dict[str, Any], mbps: int) -> None:
    assert used(a_scene(asking(**fields))) == megabits(mbps, mbps)


def test_used_is_summed_in_bits() -> None:
    """A thousand pods that ask for the least there is hold one megabit together, not a thousand."""
    found = account(a_scene(*(asking(str(number), "1k") for number in range(1000))), "n1", {})
    assert (found.used, found.pods) == (megabits(1, 1), 1000)


def test_a_thousand_pods_that_ask_for_one_bit_hold_what_cannot_be_read() -> None:
    found = account(a_scene(*(asking(str(number), "1") for number in range(1000))), "n1", {})
    assert found.used == megabits(20_000, 20_000)
    assert all(each.was_malformed for each in found.held)


def test_defaults_count_for_pods_that_say_nothing() -> None:
    rules = BandwidthRules(defaults=Rates(20 * MEGABIT, 0))
    assert used(a_scene(asking(up=""), asking("b", "5M"), bandwidth=rules)) == megabits(25, 25)


def test_pods_in_the_nodes_network_are_told_and_hold_nothing() -> None:
    rules = BandwidthRules(defaults=Rates(20 * MEGABIT, 0))
    shape = Shape(host_network=True)
    world = a_scene(
        asking("a", shape=shape), asking("b", "", shape=shape), asking("c", "x", shape=shape), bandwidth=rules
    )
    found = account(world, "n1", {})
    assert (found.used, found.pods, found.host_network) == (Links(), 0, 2)


def test_absurd_sums_are_exact() -> None:
    found = account(a_scene(*(asking(str(number), "1P") for number in range(300))), "n1", {})
    assert found.used == Links(Rates(3 * 10**17, 0), Rates(3 * 10**17, 0))


# --- siblings --------------------------------------------------------------------------------------------------------------------


def member(name: str, node: str = "n1", **fields: Any) -> Pod:
    return asking(name, node=node, siblings=True, **({"owner": SET} | fields))


def test_pods_that_talk_only_to_siblings_on_their_node_hold_nothing_of_the_card() -> None:
    world = a_scene(member("a"), member("b"), asking("c"))
    assert used(world) == megabits(300, 100)
    assert {each.pod.name: each.link_local for each in account(world, "n1", {}).held} == {
        "a": True,
        "b": True,
        "c": False,
    }


def test_all_of_them_use_the_card_as_soon_as_one_is_elsewhere() -> None:
    world = a_scene(member("a"), member("b"), asking("c", "", node="n2", owner=SET))
    assert used(world) == megabits(200, 200), "although the third says nothing itself"
    assert used(a_scene(member("a"), member("b"), member("c", "n2", phase="Failed"))) == megabits(200, 0)


def test_one_that_its_siblings_have_left_does_not_come_to_use_the_card() -> None:
    """Where the card is full, nobody could make room for it."""
    assert used(a_scene(member("a"), member("b", phase="Succeeded"))) == megabits(100, 0)


def test_a_pod_without_a_controller_uses_the_card_whatever_it_says() -> None:
    assert used(a_scene(member("a", owner=None), member("b", owner=None))) == megabits(200, 200)


def test_nobody_is_a_sibling_of_another_tenants_pods() -> None:
    """An owner reference is the tenant's own word: it reaches no further than its namespace."""
    assert used(a_scene(member("x"), member("y"), member("z", "n2", namespace="team-b"))) == megabits(200, 0)
    theirs = [member(name, namespace="team-b") for name in "ab"]
    away = member("c", "n2", namespace="team-b")
    assert used(a_scene(member("x"), *theirs, away)) == megabits(300, 200)


def test_a_setting_says_it_for_all() -> None:
    pods = [asking(name, owner=SET) for name in "ab"]
    assert used(a_scene(*pods)) == megabits(200, 200)
    assert used(a_scene(*pods, bandwidth=BandwidthRules(siblings=True))) == megabits(200, 0)


def test_a_rolling_update_is_one_group() -> None:
    def of(hash_: str, name: str, node: str = "n1") -> Pod:
        owner = Owner("ReplicaSet", f"web-{hash_}", f"rs-{hash_}", "apps")
        return member(name, node, owner=owner, labels=(("pod-template-hash", hash_),))

    assert used(a_scene(of("aa", "1"), of("bb", "2"))) == megabits(200, 0)
    assert used(a_scene(of("aa", "1"), of("aa", "2"), of("bb", "3", "n2"))) == megabits(200, 200)


# --- fixed at bind ---------------------------------------------------------------------------------------------------------------


def edited(world: World, pod: Pod) -> World:
    world.pods.put(pod)
    return world


@pytest.mark.parametrize("after", ["1M", "900M", "", "-5"])
def test_what_is_edited_after_the_bind_changes_nothing_and_is_told(after: str) -> None:
    world = edited(a_scene(asking()), asking(up=after))
    [held] = account(world, "n1", {}).held
    assert (held.rates, held.edited, held.was_malformed) == (Rates(100 * MEGABIT, 0), True, False)


def test_what_is_added_late_holds_nothing_and_is_told() -> None:
    found = account(edited(a_scene(asking(up="")), asking()), "n1", {})
    assert (found.used, found.pods, [each.edited for each in found.held]) == (Links(), 0, [True])


def test_what_is_edited_before_the_bind_counts() -> None:
    world = edited(edited(a_scene(asking(node="")), asking(up="5M", node="")), asking(up="7M"))
    [held] = account(world, "n1", {}).held
    assert (held.rates, held.edited) == (Rates(7 * MEGABIT, 0), False)


def test_to_be_a_sibling_cannot_be_said_later() -> None:
    plain = [structs.replace(member(name), annotations=((UP, "100M"),)) for name in "ab"]
    world = a_scene(*plain)
    edited(world, member("a"))
    assert used(world) == megabits(200, 200)
    assert [each.edited for each in account(world, "n1", {}).held] == [True, False]


def a_memory(uid: str = "uid-a", **fields: Any) -> dict[str, Reservation]:
    return {uid: Reservation(pod_uid=uid, **({"up_bits": 100 * MEGABIT} | fields))}


def test_our_own_status_remembers_over_a_restart() -> None:
    found = account(a_scene(asking(up="900M")), "n1", a_memory())
    assert (found.used, found.held[0].edited) == (megabits(100, 100), True)
    assert not account(a_scene(asking()), "n1", a_memory()).held[0].edited
    again = account(a_scene(asking()), "n1", a_memory(edited=True))
    assert again.held[0].edited, "edited back, it was edited still"


def test_a_reservation_of_another_pod_says_nothing() -> None:
    assert used(a_scene(asking()), memory=a_memory("uid-gone")) == megabits(100, 100)


def with_native(pod: Pod, up: int, **others: int) -> Pod:
    mbps = {"egress": up} | {name.replace("_", "-"): each for name, each in others.items()}
    requests = tuple((f"headroom.dev/{name}-mbps", each * 1_000_000) for name, each in sorted(mbps.items()))
    return structs.replace(pod, shape=Shape(requests=requests))


NATIVE = BandwidthRules(mode="Native")


def test_native_requests_cannot_be_edited_so_they_win() -> None:
    found = account(a_scene(with_native(asking(up="900M"), 100), bandwidth=NATIVE), "n1", {})
    assert (found.used, found.held[0].edited) == (megabits(100, 100), True)
    exact = account(a_scene(with_native(asking(up="99500k"), 100), bandwidth=NATIVE), "n1", {})
    assert (exact.used.network.up, exact.held[0].edited) == (99_500_000, False), "what they were rounded up from"
    bare = account(a_scene(with_native(asking(up=""), 100), bandwidth=NATIVE), "n1", {})
    assert (bare.used, bare.held[0].edited) == (megabits(100, 100), False)


def test_native_requests_hold_of_each_link_what_kube_scheduler_counts_there() -> None:
    """What a pod requests of the card passes the virtual switch too; what it requests of that comes on top, and never leaves the node."""
    both = account(a_scene(with_native(asking(), 100, local_egress=900), bandwidth=NATIVE), "n1", {})
    assert (both.used, both.held[0].edited) == (megabits(1000, 100), False)
    inside = account(a_scene(with_native(asking(up=""), 0, local_egress=900), bandwidth=NATIVE), "n1", {})
    assert (inside.used, inside.held[0].link_local) == (megabits(900, 0), True)
    crossed = account(a_scene(with_native(asking(up=""), 5, local_ingress=900), bandwidth=NATIVE), "n1", {})
    assert crossed.used == Links(Rates(5 * MEGABIT, 900 * MEGABIT), Rates(5 * MEGABIT, 0))


def test_what_native_requests_hold_is_not_remembered_as_asked_for() -> None:
    """Where the mode is another one, they are what anybody wrote, also after a restart."""
    [held] = account(a_scene(with_native(asking(), 100, local_egress=900), bandwidth=NATIVE), "n1", {}).held
    assert used(a_scene(held.pod), memory={held.pod.uid: reservation(held)}) == megabits(100, 100)


def test_in_other_modes_they_are_what_anybody_wrote() -> None:
    """No policy compares them with the annotations there, and whoever names its node passes by kube-scheduler."""
    for mode in ("Off", "Extender"):
        rules = BandwidthRules(mode=mode)
        small = with_native(asking(up="900M"), 1)
        assert used(a_scene(small, bandwidth=rules)) == megabits(900, 900)
        assert ask_of(small, rules).up == 900 * MEGABIT


def test_those_that_were_edited_are_listed_first_then_the_largest() -> None:
    world = a_scene(asking("a", "1M"), asking("b", "9M"), asking("c", "9M"), asking("d", "x"), asking("e", "2M"))
    edited(world, asking("e", "3M"))
    assert [each.pod.name for each in account(world, "n1", {}).held] == ["e", "d", "b", "c", "a"]


def test_the_memory_is_of_the_settings_that_made_it() -> None:
    assert digest_of(BandwidthRules()) != digest_of(BandwidthRules(defaults=Rates(1, 1)))
    assert digest_of(BandwidthRules()) == digest_of(BandwidthRules(mode="Native", siblings=True))


# --- capacity --------------------------------------------------------------------------------------------------------------------

OBJECT: dict[str, Any] = {"network": {"ulMbps": 5, "dlMbps": 0}}


def links_of(node: Node, *, offers: tuple[Offer, ...] = (), **capacity: Any) -> tuple[Links, str, str, int]:
    world = a_world(offers={each.name: each for each in offers})
    spec = a_resource("Bandwidth", capacity=capacity).spec if capacity else None
    found = capacity_of(world, node, spec, MachineTypes(world))
    return found.links, found.network_from, found.local_from, len(found.malformed)


def noted(**notes: str) -> Node:
    keys = {"network": "headroom.dev/network-bandwidth", "local": "headroom.dev/local-bandwidth"}
    labels = (("node.kubernetes.io/instance-type", "p5.48xlarge"),)
    return a_node("n1", labels=labels, annotations=tuple((keys[key], value) for key, value in sorted(notes.items())))


def both(gigabits: int) -> Rates:
    return Rates(gigabits * GIGABIT, gigabits * GIGABIT)


def test_the_settings_stand_for_what_nobody_says() -> None:
    assert links_of(a_node("n1")) == (Links(both(20), both(1)), "Settings", "Settings", 0)
    assert links_of(a_node("n1", labels=(("node.kubernetes.io/instance-type", "m5.large"),)))[1] == "Settings"


def test_a_machine_type_says_what_its_card_carries() -> None:
    assert links_of(noted()) == (Links(both(20), both(3200)), "InstanceType", "Settings", 0)


def test_an_offer_of_its_type_goes_before_the_table() -> None:
    offers = tuple(Offer(name=str(mbps), instance_type="p5.48xlarge", network_mbps=mbps) for mbps in (0, 9000, 7000))
    assert links_of(noted(), offers=offers)[:2] == (Links(both(20), both(7)), "Offer")


def test_a_node_says_it_before_its_type() -> None:
    found = links_of(noted(network="25G/10G", local="40G"))
    assert found == (Links(both(40), Rates(25 * GIGABIT, 10 * GIGABIT)), "Annotation", "Annotation", 0)
    assert links_of(noted(network="fast"))[1:] == ("InstanceType", "Settings", 1)


def test_the_object_goes_before_all_and_zero_is_not_said() -> None:
    found = links_of(noted(network="25G/10G"), **OBJECT)
    assert found == (Links(both(20), Rates(5 * MEGABIT, 10 * GIGABIT)), "Object", "Settings", 0)
    assert links_of(noted(network="25G"), network={"ulMbps": 0})[1] == "Annotation"
