"""The pages of a pod and of a namespace: what they say, and that a guessed name of another team's says nothing."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import pytest
from msgspec import structs

from headroom.api import marks
from headroom.api.power_status import PowerPoolStatus, Unserved
from headroom.model.facts import Namespace, NodeClaim, NodePool, Pod, Requirement
from headroom.model.times import HOUR, MINUTE
from headroom.model.world import World
from headroom.runtime.dashboard_settings import presentation_of
from headroom.runtime.settings import Settings
from headroom.web.access import ACCESS
from headroom.web.pages import Model, frame, search
from headroom.web.pages.pod import model
from headroom.web.pages.who import user_of
from headroom.web.scope import EVERYTHING, Scope
from headroom.web.server import main_app
from headroom.web.source import Local
from tests.builders import NOON, a_node, a_pod, a_resource, a_used_world
from tests.core.stage import TEAM, a_budget, gated, of_job, running
from tests.web.showing import Made, Team, page_at, served
from tests.web.test_pages import LAB, OTHERS, elsewhere

USER = "example.com/user"
GPUS = (Requirement(key="karpenter.k8s.aws/instance-gpu-count", operator="Gt", values=("0",)),)


def of_user(name: str, user: str, hours: int, **more: Any) -> Pod:
    return running(name, hours * HOUR, labels=((USER, user), *TEAM), **more)


def a_lab(**more: Any) -> World:
    job = of_job("train")
    pods = [
        of_user("train-0-bcdfg", "ada", 3, gpus=4, owner=job),
        of_user("train-1-zxcvb", "ada", 1, gpus=2, owner=job),
        of_user("notebook", "bob", 2),
        running("secret", 2 * HOUR, gpus=2, namespace="elsewhere"),
        gated("waits", gpus=8),
        a_pod("late", gpus=16, unschedulable_since=NOON - MINUTE, unschedulable_message="0/1 nodes have room"),
    ]
    budgets = [a_budget(hours="20", enforce=["100% Hold"]), elsewhere(a_budget("two"))]
    return a_used_world(*budgets, pods=pods, nodes=[a_node("n", gpus=16)], **more)


@pytest.fixture
def made() -> Made:
    return Made(a_lab())


def told(made: Made, *address: str, scope: Scope = EVERYTHING, links: str = "") -> Model | None:
    """A page as it is sent, without its frame."""
    presentation = presentation_of(Settings(dashboard_user=USER, dashboard_links=links))
    return page_at(*address)(made.view(presentation=presentation), scope)


def page(made: Made, *address: str, scope: Scope = EVERYTHING, links: str = "") -> Model:
    found = told(made, *address, scope=scope, links=links)
    assert found is not None
    return found


# --- a pod ---------------------------------------------------------------------------------------------------------------


def test_a_running_pod_says_since_when_who_counts_it_and_what_it_used(made: Made) -> None:
    found = page(made, "pods", "team-a", "train-0-bcdfg")
    pod = found["pod"]
    assert (pod["state"], pod["tone"], pod["gpus"], pod["node"]) == ("Running", "good", "4", "n")
    assert (pod["owner"], pod["user"], pod["gpuHours"]) == ("Job train", "ada", "12.000")
    assert "team-a/one" in pod["sentence"]
    assert [each["name"] for each in found["siblings"]] == ["train-1-zxcvb"]


def test_a_queued_pod_says_which_budget_keeps_it(made: Made) -> None:
    pod = page(made, "pods", "team-a", "waits")["pod"]
    assert (pod["state"], pod["tone"], pod["budget"]) == ("Held", "warn", "team-a/one")
    assert "gpuHours" not in pod


def test_a_pending_pod_says_what_it_needs(made: Made) -> None:
    found = page(made, "pods", "team-a", "late")
    assert found["pod"]["state"] == "Pending"
    assert found["needs"] == [{"pods": 1, "gpus": "16", "models": ["not named"]}]
    assert found["unserved"] == []


def test_what_karpenter_does_for_a_pod_is_said_once() -> None:
    """However many pools leave it to Karpenter; of a ladder its owner is named, since any of its NodePools may be the one."""
    pod = a_pod("late", gpus=1)
    left = Unserved(pod=pod.key, pods=1, reason="SharedWithKarpenter", message="Karpenter's NodePool x can serve it.")
    small = Unserved(pod=pod.key, pods=1, reason="NoMachineFits", message="No machine of the pool can hold it.")
    pools = [a_resource("PowerPool", name) for name in ("a", "b", "c")]
    said = {"a": left, "b": left, "c": small}
    pools = [structs.replace(each, status=PowerPoolStatus(unserved=(said[each.name],))) for each in pools]
    rung = NodePool(name="leftover-cheap-1", marks=((marks.LEFTOVER, "cheap"),), requirements=GPUS)
    claim = NodeClaim(
        name="claim-1", node_pool=rung.name, allocatable=(("nvidia.com/gpu", 8_000_000), ("pods", 110_000_000))
    )
    world = a_used_world(*pools, pods=[pod], nodes=[a_node("n", gpus=0)], node_pools={rung.name: rung})

    def shown(world: World) -> Model:
        made = Made(world)
        made.decisions.clear()  # so that what the pools said stands
        return page(made, "pods", "team-a", "late")

    found = shown(world)
    assert found["karpenter"] == "Karpenter can serve it with a NodePool of LeftoverNodePool cheap."
    assert [each["name"] for each in found["unserved"]] == ["c"]
    found = shown(structs.replace(world, node_claims={claim.name: claim}))
    coming = "NodeClaim claim-1 of NodePool leftover-cheap-1 is on its way, with room for such a pod."
    assert found["karpenter"].endswith(f"LeftoverNodePool cheap. {coming}")
    failed = structs.replace(claim, failure="InsufficientCapacity")
    assert coming not in shown(structs.replace(world, node_claims={claim.name: failed}))["karpenter"]


def test_a_pod_that_is_gone_still_says_what_it_used(made: Made) -> None:
    world = made.world(NOON)
    gone = a_lab()
    gone.pods.remove("uid-notebook")
    made.become(structs.replace(gone, usage=world.usage))
    found = page(made, "pods", "team-a", "notebook")
    assert (found["pod"]["state"], found["pod"]["user"]) == ("Gone", "bob")
    assert float(found["pod"]["gpuHours"]) == 2
    assert "gpus" not in found["pod"]


def test_links_lead_to_the_pod_and_to_its_namespace(made: Made) -> None:
    links = (
        "Grafana=https://g.example.com/?ns={namespace}&pod={pod} Logs=https://l.example.com/{namespace} "
        "Alerts=https://a.example.com/"
    )
    found = page(made, "pods", "team-a", "waits", links=links)["tools"]
    assert [each["name"] for each in found] == ["Grafana", "Logs"]
    assert found[0]["href"] == "https://g.example.com/?ns=team-a&pod=waits"
    assert page(made, "budgets", "team-a", "one", links=links)["tools"][0]["name"] == "Logs"


def test_no_page_hides_the_frame(made: Made) -> None:
    """What a page says of itself never takes the place of what every page says."""
    view = made.view()
    told_everywhere = frame(view).keys()
    addresses: list[tuple[Any, ...]] = [
        ("overview",),
        ("nodes",),
        ("budgets", "team-a", "one"),
        ("pods", "team-a", "waits"),
        ("namespaces", "team-a"),
        ("power",),
        ("spot",),
        ("offers",),
        ("bandwidth",),
        ("decisions", search({})),
    ]
    for address in addresses:
        body = page_at(*address)(view, EVERYTHING)
        assert body is not None
        assert not told_everywhere & body.keys(), address


def test_who_uses_it_is_told_by_job_by_user_and_by_pod(made: Made) -> None:
    who = page(made, "budgets", "team-a", "one")["who"]
    assert [(each["name"], each["gpuHours"], each["pods"]) for each in who["byJob"]] == [
        ("train", "14.000", 2),
        ("notebook", "2.000", 1),
    ]
    assert [(each["name"], each["gpuHours"]) for each in who["byUser"]] == [("ada", "14.000"), ("bob", "2.000")]
    assert [each["name"] for each in who["byPod"]] == ["train-0-bcdfg", "notebook", "train-1-zxcvb"]
    assert float(who["gpuHours"]) == 16


def test_pods_that_are_gone_count_for_their_job_by_their_names(made: Made) -> None:
    world = made.world(NOON)
    gone = a_lab()
    gone.pods.remove("uid-train-1-zxcvb")
    made.become(structs.replace(gone, usage=world.usage))
    who = page(made, "budgets", "team-a", "one")["who"]
    assert [(each["name"], each["pods"]) for each in who["byJob"]] == [("train", 2), ("notebook", 1)]


def test_pods_of_an_indexed_job_that_is_gone_are_told_together_and_later_runs_apart() -> None:
    names = {"sweep-0-bcdfg": 3, "sweep-1-zxcvb": 3, "sweep-2-22222": 3, "run-1-bcdfg": 2, "run-2-bcdfg": 1}
    world = a_used_world(a_budget(), pods=[running(name, hours * HOUR) for name, hours in names.items()])
    for name in names:
        world.pods.remove(f"uid-{name}")
    who = page(Made(world), "budgets", "team-a", "one")["who"]
    assert [(each["name"], each["pods"]) for each in who["byJob"]] == [("sweep", 3), ("run-1", 1), ("run-2", 1)]


def test_an_annotation_names_the_user_of_a_pod_that_is_there() -> None:
    pod = a_pod("p", annotations=((USER, "eve"),))
    assert user_of(None, pod, USER) == "eve"
    assert user_of(None, None, USER) == ""


# --- a namespace ---------------------------------------------------------------------------------------------------------


def test_a_namespace_shows_its_team_what_it_has_used_and_what_is_left(made: Made) -> None:
    found = page(made, "namespaces", "team-a", scope=LAB)
    assert list(found["budgets"]) == ["team-a/one"]
    assert (found["numbers"]["gpus"], found["numbers"]["running"], found["numbers"]["users"]) == ("7", 3, 2)
    assert [each["name"] for each in found["who"]["byUser"]] == ["ada", "bob"]
    assert [each["pod"] for each in found["pending"]] == ["team-a/late"]
    assert found["pending"][0]["needs"][0]["gpus"] == "16"
    assert "elsewhere" not in json.dumps(found)


def test_what_is_queued_leads_to_one_of_its_pods() -> None:
    job = of_job("sweep")
    pods = [gated(f"sweep-{number}", gpus=8, owner=job) for number in (1, 0)]
    made = Made(a_lab())
    world = made.world(NOON)
    budget = a_budget(hours="1", enforce=["100% Hold"])
    made.become(a_used_world(budget, pods=[*world.pods, *pods], nodes=list(world.nodes)))
    queued = {each["unit"]: each.get("pod") for each in page(made, "budgets", "team-a", "one")["held"]}
    assert queued["Job/team-a/sweep"] == "team-a/sweep-0"
    rows = page(made, "namespaces", "team-a", scope=LAB)["queue"]
    assert {each["budget"] for each in rows} == {"team-a/one"}
    assert "team-a/sweep-0" in [each.get("pod") for each in rows]


def test_a_budget_over_many_namespaces_is_on_the_page_of_each_for_whoever_may_see_it() -> None:
    wide = structs.replace(
        a_budget("all", namespaceSelector={"matchLabels": {"org": "x"}}), namespace="headroom-system"
    )
    spaces = {name: Namespace(name=name, labels=(("org", "x"),)) for name in ("team-a", "elsewhere")}
    made = Made(a_lab(namespaces=spaces))
    world = made.world(NOON)
    made.become(a_used_world(wide, pods=list(world.pods), nodes=list(world.nodes), namespaces=spaces))
    assert list(page(made, "namespaces", "team-a")["budgets"]) == ["headroom-system/all"]
    assert page(made, "namespaces", "team-a", scope=LAB)["budgets"] == {}
    mine = Scope(namespaces=frozenset({"headroom-system"}))
    who = page(made, "budgets", "headroom-system", "all", scope=mine)["who"]
    assert who["byPod"] == [{"gpuHours": "20.000", "pods": 4, "hidden": True}]
    assert who["byUser"] == [{"gpuHours": "20.000", "pods": 4, "hidden": True}]
    pod = page(made, "pods", "team-a", "notebook", scope=LAB)
    assert "headroom-system" not in json.dumps(pod)


# --- what must not be told -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "address",
    [
        ("pods", "elsewhere", "secret"),
        ("pods", "elsewhere", "none"),
        ("pods", "", "secret"),
        ("pods", "team-a", "none"),
        ("pods", "team-a", ""),
        ("pods", "team-a", "../elsewhere/secret"),
        ("pods", "team-a/../elsewhere", "secret"),
        ("namespaces", "elsewhere"),
        ("namespaces", "nowhere"),
        ("namespaces", ""),
    ],
)
def test_what_is_another_teams_is_like_what_is_not_there(made: Made, address: tuple[str, ...]) -> None:
    assert told(made, *address, scope=LAB) is None


async def test_the_answers_for_a_guessed_and_for_a_missing_name_are_the_same() -> None:
    made = Made(a_lab())

    async def answers(path: str) -> tuple[int, str, dict[str, str]]:
        async with client.get(path) as reply:
            kept = {name: value for name, value in reply.headers.items() if name != "Date"}
            return reply.status, await reply.text(), kept

    app = main_app(Local(made.showing()), None)

    @aiohttp.web.middleware
    async def as_lab(request: aiohttp.web.Request, handler: Any) -> Any:
        request[ACCESS] = Team("team-a", nodes=True)
        return await handler(request)

    app.middlewares.append(as_lab)
    async with served(app) as client:
        assert (await answers("/api/pods/team-a/waits"))[0] == 200
        missing = await answers("/api/pods/elsewhere/none")
        assert missing[0] == 404
        assert await answers("/api/pods/elsewhere/secret") == missing
        assert await answers("/api/pods/team-a/none") == missing
        assert await answers("/api/namespaces/elsewhere") == missing
        assert await answers("/api/namespaces/none") == missing


def test_who_may_not_see_a_budget_is_not_told_of_it_by_the_pod_that_it_keeps() -> None:
    notes = ((marks.HELD_BY, "headroom-system/all"), (marks.HELD_BECAUSE, "97 of 100 GPU-hours are used"))
    pod = a_pod("kept", gpus=8, labels=TEAM, gates=(marks.GATE,), annotations=notes)
    wide = structs.replace(a_budget("all"), namespace="headroom-system")
    made = Made(a_used_world(wide, a_budget(), pods=[pod], nodes=[a_node("n")]))
    found = page(made, "pods", "team-a", "kept", scope=LAB)
    text = json.dumps(found)
    assert "headroom-system" not in text
    assert "97" not in text
    assert found["pod"]["state"] == "Held"
    assert "a budget that you may not see" in found["pod"]["sentence"]
    assert "headroom-system/all" in json.dumps(page(made, "pods", "team-a", "kept"))


def test_pools_of_machines_are_not_told_of_to_a_team() -> None:
    pool = a_resource("PowerPool", "basement")
    world = a_used_world(a_budget(), pool, pods=[a_pod("late", gpus=16)], nodes=[a_node("n")])
    assert "basement" not in json.dumps(page(Made(world), "pods", "team-a", "late", scope=LAB))


def test_others_see_their_own(made: Made) -> None:
    found = page(made, "pods", "elsewhere", "secret", scope=OTHERS)
    assert "team-a" not in json.dumps(found)
    assert found["pod"]["mayListNodes"] is False


def test_a_decision_is_told_only_of_the_pod_that_it_names(made: Made) -> None:
    budget = a_budget(hours="10", enforce="Evict")
    pods = [running("train-1", 3 * HOUR, gpus=4), running("train-10", 3 * HOUR, gpus=4)]
    decided = Made(a_used_world(budget, pods=pods, nodes=[a_node("n")]))
    texts = [decided.journal.text(each) for each in decided.journal.newest(0, 100, lambda _: True)]
    found = model(decided.view(), EVERYTHING, "team-a", "train-1")
    assert found is not None
    assert len(found["history"]) == sum("team-a/train-1 " in f"{text} " or "team-a/train-1." in text for text in texts)


def test_who_may_not_list_nodes_is_not_told_which_there_are(made: Made) -> None:
    blind = Scope(namespaces=frozenset({"team-a"}))
    pod = page(made, "pods", "team-a", "late", scope=blind)
    assert not {"needs", "models"} & pod.keys()
    assert "needs" not in page(made, "namespaces", "team-a", scope=blind)["pending"][0]
    assert page(made, "pods", "team-a", "late", scope=LAB)["models"]["not named"]["free"] == "7"
