"""Extender mode with the real kube-scheduler: no link is given out twice, and whoever is refused is bound once there is room."""

import asyncio
import base64
import json
import ssl
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from headroom.api.bandwidth import MARKER
from tests.integration.extended import (
    CARD,
    OWN,
    PODS,
    Document,
    ExtenderProcess,
    Site,
    extended_cluster,
    given_out,
    pod,
)

CROWD = 2_000
SIZES = (20, 50, 100)
SOON = 10
"""Seconds in which a refused pod is bound once there is room: what is promised."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with extended_cluster(tmp_path_factory.mktemp("extended")) as made:
        yield made


def crowd(site: Site, pool: str, nodes: int, pods: int) -> list[Document]:
    """Pods of three sizes, and so few nodes that not all of them find room."""
    site.nodes(*(f"{pool}-{number:03d}" for number in range(nodes)), labels={"pool": pool})
    made = [pod(f"{pool}-{number}", SIZES[number % 3], pool=pool) for number in range(pods)]
    site.create(made)
    return made


def assert_given_out_once(site: Site, nodes: int, pods: list[Document]) -> None:
    """Once every pod is bound or refused; and only for lack of room is anybody refused: the smallest would find none either."""
    mine = {each["metadata"]["name"] for each in pods}

    def all_tried() -> bool:
        found = [each for name, each in site.pods().items() if name in mine]
        return len(found) == len(mine) and all(each["spec"].get("nodeName") or is_refused(each) for each in found)

    site.until(all_tried, "every pod is bound or refused", timeout=300)
    site.until(lambda: site.extender.metrics()["headroom_extender_holds"] == 0, "every bind is seen")
    taken = given_out(each for name, each in site.pods().items() if name in mine)
    assert taken.pop("")
    assert {name: mbps for name, mbps in taken.items() if mbps > CARD} == {}
    assert (len(taken), min(taken.values()) > CARD - SIZES[-1]) == (nodes, True)
    assert site.extender.metrics()['headroom_extender_binds{kind="elsewhere"}'] == 0
    site.delete(*mine)


def test_no_link_is_given_out_twice_to_two_thousand_pods_at_full_speed(site: Site) -> None:
    assert_given_out_once(site, 105, crowd(site, "crowd", 105, CROWD))


def test_nor_by_an_extender_that_starts_anew_amid_them(site: Site) -> None:
    pods = crowd(site, "rush", 26, CROWD // 4)
    names = [each["metadata"]["name"] for each in pods]
    site.until(lambda: len(site.bound(names)) > len(names) // 5, "some are bound, and others are on their way")
    site.extender.kill()
    site.extender.start(site.plane)
    assert_given_out_once(site, 26, pods)


def test_pods_of_one_controller_land_together_while_a_node_holds_them(site: Site) -> None:
    site.nodes("t-1", "t-2", "t-3", labels={"pool": "together"})
    pods = [pod(f"set-{number}", 200, pool="together", owner="set") for number in range(8)]
    site.create(pods)
    names = [each["metadata"]["name"] for each in pods]
    site.until(lambda: len(site.bound(names)) == len(names), "all are bound")
    assert sorted(Counter(site.bound(names).values()).values()) == [3, 5]


def test_siblings_join_where_the_card_is_full(site: Site) -> None:
    site.nodes("quiet", "empty", labels={"pool": "siblings"})
    site.create([pod("loud", 700, pool="siblings")])
    site.until(lambda: bool(site.bound(["loud"])), "it is bound")
    home = site.bound(["loud"])["loud"]
    for number in range(4):
        # One after the other, as a StatefulSet makes them.
        one = pod(f"sib-{number}", 300, pool="siblings", owner="sib", siblings=True)
        if not number:
            one["spec"]["nodeSelector"] = {"kubernetes.io/hostname": home}
        site.create([one])
        site.until(lambda name=f"sib-{number}": bool(site.bound([name])), "it is bound")  # type: ignore[misc]  # bound early
    assert set(site.bound([f"sib-{number}" for number in range(4)]).values()) == {home}


def test_a_pod_is_refused_with_the_reason_and_bound_soon_after_there_is_room(site: Site) -> None:
    site.nodes("full")
    site.create([pod("first", 900, pool="full")])
    site.until(lambda: bool(site.bound(["first"])), "the first pod is bound")
    site.create([pod("second", 600, pool="full")])
    site.until(lambda: bool(site.refusal("second")), "the second pod is refused")
    assert "1 Insufficient network ingress bandwidth (the pod requests 600 Mbps)" in site.refusal("second")
    site.delete("first")
    site.until(lambda: bool(site.bound(["second"])), "the second pod is bound", timeout=SOON)


def test_room_that_kube_scheduler_hears_nothing_of_is_told_to_it(site: Site) -> None:
    site.nodes("small")
    site.create([pod("large", 1_500, pool="small")])
    site.until(lambda: bool(site.refusal("large")), "it is refused")
    capacity = {"network": {"ulMbps": 2_000, "dlMbps": 2_000}}
    site.plane.apply(
        {
            "apiVersion": "headroom.dev/v1alpha1",
            "kind": "Bandwidth",
            "metadata": {"name": "small"},
            "spec": {"capacity": capacity},
        }
    )
    site.until(lambda: bool(site.bound(["large"])), "it is bound", timeout=SOON)
    touched = site.pods()["large"]["metadata"]["annotations"]
    assert "headroom.dev/touched-at" in touched


def test_nobody_is_evicted_for_a_pod_whose_bandwidth_is_not_there(site: Site) -> None:
    names = ["busy-1", "busy-2"]
    site.nodes(*names, labels={"pool": "busy"})
    whole = [pod(f"low-{name}", 0, pool="busy", marker=False) for name in names]
    for each in whole:
        each["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "640"}}
    site.create(whole)
    low = [each["metadata"]["name"] for each in whole]
    site.until(lambda: len(site.bound(low)) == len(low), "no node has a CPU left")
    high = {"metadata": {"name": "high"}, "value": 1000}
    site.plane.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", **high})
    large, small = pod("urgent-large", 1_500, pool="busy"), pod("urgent-small", 500, pool="busy")
    for each in (large, small):
        each["spec"]["priorityClassName"] = "high"
    site.create([large])
    site.until(lambda: "no candidate node for preemption" in site.refusal("urgent-large"), "nobody is preempted for it")
    assert len(site.bound(low)) == len(low)
    site.create([small])
    site.until(lambda: bool(site.bound(["urgent-small"])), "it is bound in place of another pod")
    site.delete("urgent-large", "urgent-small", *site.bound(low))


def test_an_extender_that_was_killed_holds_up_nobody_else_and_recovers(site: Site) -> None:
    site.nodes("again")
    site.create([pod("kept", 300, pool="again"), pod("early", 800, pool="again")])
    site.until(lambda: bool(site.refusal("early")) or bool(site.refusal("kept")), "one of them is refused")
    site.extender.kill()
    site.create([pod("plain", 0, pool="again", marker=False), pod("late", 600, pool="again")])
    site.until(lambda: bool(site.bound(["plain"])), "a pod that asks for no bandwidth is bound")
    assert "late" not in site.bound(["late"])
    site.extender.start(site.plane)
    # What was bound before the new process began still counts: only one more can be had.
    first = next(iter(site.bound(["kept", "early"])))
    others = [name for name in ("kept", "early", "late") if name != first]
    if first == "kept":
        site.until(lambda: bool(site.bound(others)), "one of them is bound")
    total = sum(given_out([site.pods()[name] for name in site.bound(["kept", "early", "late"])]).values())
    assert total <= CARD
    site.delete(first)
    site.until(lambda: bool(site.bound(others)), "one that was refused by the first process is bound")


def test_who_shows_no_certificate_or_sends_no_names_is_not_answered(site: Site) -> None:
    url = f"https://127.0.0.1:{site.extender.port}"

    async def send(path: str, body: bytes, *, known: bool) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.post(url + path, data=body, ssl=site.extender.tls(known=known)) as answer,
        ):
            return answer.status, await answer.text()

    site.nodes("fresh")
    asked: Document = {"Pod": pod("stranger", 900), "NodeNames": ["fresh", "gone"]}
    asked["Pod"]["metadata"]["uid"] = "nobody"
    body = json.dumps(asked).encode()
    assert asyncio.run(send("/filter", body, known=False))[0] == 401
    status, text = asyncio.run(
        send("/filter", json.dumps(asked | {"NodeNames": None, "Nodes": {}}).encode(), known=True)
    )
    assert (status, json.loads(text)["NodeNames"]) == (200, None)
    assert "nodeCacheCapable: true" in json.loads(text)["Error"]
    # Twice, late, and for a node that is gone: the second answer takes the place of the first.
    for _ in range(2):
        status, text = asyncio.run(send("/filter", body, known=True))
        found = json.loads(text)
        refused = found["FailedNodes"] | found["FailedAndUnresolvableNodes"]
        assert (found["NodeNames"], [*refused]) == (["fresh"], ["gone"])

    def is_over() -> bool:
        site.stir()
        return site.extender.metrics()["headroom_extender_holds"] == 0

    assert site.extender.metrics()["headroom_extender_holds"] == 1
    site.until(is_over, "nobody has seen such a pod, so nothing stays reserved for it")
    assert site.plane.get(PODS)


def test_a_standby_takes_over_and_shows_a_certificate_of_its_own_making(site: Site, tmp_path: Path) -> None:
    standby = ExtenderProcess(tmp_path)
    unset = dict.fromkeys(("certificate", "key", "client_authority", "client_names"), "")
    given = {f"extender_{name}": value for name, value in unset.items()}
    standby.start(site.plane, waits=False, **given, extender_hold_seconds="5")

    def has_taken_over() -> bool:
        site.stir()
        return standby.is_ready()

    try:
        site.until(lambda: "Another extender holds the lease" in standby.log, "it stands by")
        assert (standby.is_ready(), site.extender.is_ready()) == (False, True)
        site.extender.kill()
        # Nobody asks it about the pods that wait, so it waits for the end of what the other one may have answered.
        site.until(has_taken_over, "it has taken over")
        kept = json.loads(site.plane.get(f"/api/v1/namespaces/{OWN}/secrets/headroom-extender-tls"))["data"]
        trusted = ssl.create_default_context(cadata=base64.b64decode(kept["ca.crt"]).decode())

        async def ask() -> int:
            url = f"https://localhost:{standby.port}/filter"
            async with aiohttp.ClientSession() as session, session.post(url, data=b"{}", ssl=trusted) as answer:
                return answer.status

        assert asyncio.run(ask()) == 200
    finally:
        standby.close()
        site.extender.start(site.plane)


def is_refused(found: Document) -> bool:
    conditions = found.get("status", {}).get("conditions", [])
    return any(each["type"] == "PodScheduled" and each["reason"] == "Unschedulable" for each in conditions)


def test_the_marker_alone_asks_for_nothing(site: Site) -> None:
    site.nodes("marked")
    one = pod("marked", 0, pool="marked")
    assert MARKER in one["spec"]["containers"][0]["resources"]["requests"]
    site.create([one])
    site.until(lambda: bool(site.bound(["marked"])), "it is bound")
