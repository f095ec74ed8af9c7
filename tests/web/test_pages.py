"""The pages as data: what they say of a world, and what they keep from whoever may not see it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import structs

from headroom.api.budgets import Following
from headroom.api.enforcement import RefusedEviction, Released
from headroom.api.kinds import AnyResource
from headroom.api.marks import EXPECTED_DURATION
from headroom.model.errors import Misconfigured
from headroom.model.facts import UNREADABLE, Shape
from headroom.model.resource_table import ResourceTable
from headroom.model.times import HOUR, MINUTE, SECOND, moment
from headroom.model.world import World, ref_of
from headroom.web.pages import Maker, Model, frame, framed, nodes, search
from headroom.web.pages.budget import BudgetPage
from headroom.web.scope import EVERYTHING, Scope
from headroom.web.view import OperatorView
from tests.builders import NOON, a_claim, a_node, a_pod, a_resource, a_used_world
from tests.core.stage import a_budget, gated, running
from tests.web.showing import Made, page_at

LAB = Scope(namespaces=frozenset({"team-a"}), nodes=True)
OTHERS = Scope(namespaces=frozenset({"elsewhere"}))


def elsewhere(resource: AnyResource) -> AnyResource:
    return structs.replace(resource, namespace="elsewhere")


def a_fleet(**more: Any) -> World:
    pods = [
        running("train", 3 * HOUR, gpus=4),
        running("secret", 2 * HOUR, gpus=2, namespace="elsewhere"),
        running("loose", HOUR, labels=()),
        gated("waits", gpus=8),
        a_pod("late", gpus=1, unschedulable_since=NOON - MINUTE, unschedulable_message="0/2 nodes have room"),
        a_pod("web", gpus=0, node="n", phase="Running"),
    ]
    nodes = [a_node("n"), a_node("m", ready=False, unschedulable=True, labels=(("topology.kubernetes.io/zone", "z1"),))]
    budgets = [a_budget(hours="10", enforce=["50% AlertOnly", "100% Hold"]), elsewhere(a_budget("two"))]
    pool = a_resource("PowerPool", "basement")
    return a_used_world(*budgets, pool, pods=pods, nodes=nodes, **more)


def whole(page: Maker, view: OperatorView, scope: Scope, name: str = "") -> Model:
    """A page with its frame, as it is sent."""
    body = page(view, scope)
    assert body is not None
    return framed(frame(view), scope, name) | body


@pytest.fixture
def made() -> Made:
    return Made(a_fleet())


def test_the_overview_counts_what_is_held_and_free(made: Made) -> None:
    page = whole(page_at("overview"), made.view(), EVERYTHING)
    assert page["fleet"] == {
        "gpus": "16",
        "held": "7",
        "starting": "0",
        "free": "1",
        "nodes": 2,
        "nodesReady": 1,
        "running": 4,
        "waiting": 2,
        "heldPods": 1,
    }
    assert page["uncovered"] == {"gpuHours": "1.000", "burnRateGpus": "1"}
    assert page["gpus"]["capacity"] == 16
    assert page["gpus"]["held"][-1] == 7
    assert len(page["gpus"]["t"]) == len(page["gpus"]["held"])


def test_devices_of_claims_are_held_too() -> None:
    claim = a_claim("four", devices=4, reserved_for=("uid-dra",))
    pod = running("dra", HOUR, gpus=0, claims=("four",))
    made = Made(a_used_world(a_budget(), pods=[pod], nodes=[a_node("n")], claims={claim.key: claim}))
    page = whole(page_at("overview"), made.view(), EVERYTHING)
    assert (page["fleet"]["held"], page["fleet"]["free"]) == ("4", "4")
    assert page["gpus"]["held"][-1] == 4
    node = whole(page_at("nodes"), made.view(), EVERYTHING)["nodes"]["n"]
    assert (node["held"], node["pods"][0]["pod"], node["pods"][0]["budgets"]) == ("4", "team-a/dra", ["team-a/one"])


def test_only_pods_that_ask_for_gpus_wait_and_only_budgets_hold() -> None:
    pods = [
        a_pod("web", gpus=0),
        a_pod("queued", gates=("kueue.x-k8s.io/admission",)),
        gated("held"),
        a_pod("lost", gpus=2, node="gone", phase="Running"),
        a_pod("unknown", gpus=2, node="n", phase="Unknown"),
        a_pod("over", gpus=2, node="n", phase="Failed"),
    ]
    made = Made(a_used_world(pods=pods, nodes=[a_node("n")]))
    fleet = whole(page_at("overview"), made.view(), EVERYTHING)["fleet"]
    page = whole(page_at("nodes"), made.view(), EVERYTHING)
    assert (fleet["waiting"], fleet["heldPods"]) == (2, 1)
    assert page["waitingCount"] == 2
    assert (fleet["held"], fleet["free"]) == (page["nodes"]["n"]["held"], page["nodes"]["n"]["free"]) == ("2", "6")


@pytest.mark.parametrize("amount", [UNREADABLE, 10**20, 2**62])
def test_an_amount_beyond_all_reason_spoils_no_page(amount: int) -> None:
    shape = Shape(requests=(("nvidia.com/gpu", amount), ("nvidia.com/mig-1g.5gb", amount)))
    odd = structs.replace(running("odd", HOUR), shape=shape)
    made = Made(a_used_world(a_budget(), pods=[odd, running("p", HOUR)], nodes=[a_node("n")]))
    assert whole(page_at("overview"), made.view(), EVERYTHING)["fleet"]["held"] == "1"
    assert whole(page_at("nodes"), made.view(), EVERYTHING)["nodes"]["n"]["held"] == "1"
    assert whole(page_at("budgets", "team-a", "one"), made.view(), EVERYTHING)["curve"]["used"]


def test_a_status_that_somebody_else_wrote_spoils_no_page() -> None:
    budget = a_budget()
    odd = structs.replace(budget, status=structs.replace(budget.status, as_of="x", consumed_usd="abc"))
    made = Made(a_used_world(odd))
    made.decisions.clear()
    assert whole(page_at("overview"), made.view(), EVERYTHING)["budgets"]["team-a/one"]["percent"] == 0


def test_almost_all_is_not_all() -> None:
    made = Made(a_used_world(a_budget(hours="10"), pods=[running("p", 10 * HOUR - SECOND)]))
    assert whole(page_at("overview"), made.view(), EVERYTHING)["budgets"]["team-a/one"]["percent"] == 99.9


def test_a_budget_is_told_in_numbers_and_in_words(made: Made) -> None:
    row = whole(page_at("overview"), made.view(), EVERYTHING)["budgets"]["team-a/one"]
    assert row["consumedGpuHours"] == "12"
    assert row["quotaGpuHours"] == "10"
    assert row["percent"] == 120.0
    assert (row["burnRateGpus"], row["trackedPods"], row["windowHours"]) == ("4", 1, 24)
    assert row["tone"] == "bad"
    assert "12.0 of 10 GPU-hours in" in row["message"]
    assert "consumedUsd" not in row, "nobody asked for dollars, and none are known"


def test_news_is_shown_at_once_and_moving_numbers_at_a_readable_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [100.0]
    monkeypatch.setattr("headroom.web.pages.overview.time.monotonic", lambda: moment[0])
    world = a_used_world(a_budget(hours="10"), pods=[running("p", HOUR)])
    made, page = Made(world), page_at("overview")

    def row(at: float) -> tuple[str, str]:
        moment[0] = at
        found = page(made.view(), LAB)
        assert found is not None
        shown: Model = found["budgets"]["team-a/one"]
        return shown["consumedGpuHours"], shown["burnRateGpus"]

    assert row(100.0) == ("1", "1")
    made.become(structs.replace(world, now=NOON + 36 * SECOND))
    assert row(100.3) == ("1", "1"), "only time has passed"
    assert row(103.0) == ("1.01", "1")
    made.become(a_used_world(a_budget(hours="10"), pods=[running("p", HOUR), running("q", HOUR)]))
    assert row(103.1) == ("2", "2")


def test_other_kinds_are_listed_with_their_verdict(made: Made) -> None:
    other = whole(page_at("overview"), made.view(), EVERYTHING)["others"]["PowerPool/basement"]
    assert (other["kind"], other["name"], other["ready"]) == ("PowerPool", "basement", "True")
    assert other["message"]


@pytest.mark.parametrize(
    ("enforce", "paused", "hours", "state", "tone"),
    [
        ("AlertOnly", False, "100", "Ok", "good"),
        (["10% AlertOnly", "90% Hold"], False, "100", "Alerting", "warn"),
        ("AlertOnly", False, "10", "Exceeded", "bad"),
        ("Pause", False, "10", "Pausing", "bad"),
        ("Evict", False, "10", "Stopping", "bad"),
        ("Evict", True, "10", "Paused", "idle"),
    ],
)
def test_the_state_is_one_word(enforce: Any, paused: bool, hours: str, state: str, tone: str) -> None:
    more: dict[str, Any] = {"paused": True} if paused else {}
    budget = a_budget(hours=hours, enforce=enforce, **more)
    made = Made(a_used_world(budget, pods=[running("p", 3 * HOUR, gpus=4)]))
    known = made.world(NOON)
    kept = {ref: structs.replace(each, status=made.decisions[ref].status) for ref, each in known.resources.items()}
    made.become(structs.replace(known, resources=ResourceTable(kept)))
    row = whole(page_at("overview"), made.view(), EVERYTHING)["budgets"]["team-a/one"]
    assert (row["state"], row["tone"]) == (state, tone)


def test_an_invalid_budget_says_what_is_wrong_with_it() -> None:
    made = Made(a_used_world(a_resource(quota={"gpuHours": "-1", "windowHours": 24})))
    row = whole(page_at("overview"), made.view(), EVERYTHING)["budgets"]["team-a/one"]
    assert row["state"] == "Invalid"
    assert "spec.quota.gpuHours" in row["message"]
    page = whole(page_at("budgets", "team-a", "one"), made.view(), EVERYTHING)
    assert page["budget"]["problems"]
    assert "curve" not in page


def test_an_empty_cluster_has_a_page() -> None:
    made = Made(a_used_world())
    page = whole(page_at("overview"), made.view(), EVERYTHING)
    assert (page["budgets"], page["others"], page["decidedInHour"]) == ({}, {}, 0)
    assert page["fleet"]["gpus"] == "0"
    assert whole(page_at("nodes"), made.view(), EVERYTHING)["nodes"] == {}


def test_a_team_sees_its_own_and_nothing_else(made: Made) -> None:
    made.why = ["watching /api/v1/namespaces/elsewhere/pods: refused"]
    view = made.view()
    for model in (
        whole(page_at("overview"), view, LAB, "alice"),
        whole(page_at("nodes"), view, LAB, "alice"),
        whole(page_at("budgets", "team-a", "one"), view, LAB, "alice"),
        whole(page_at("decisions", search({})), view, LAB, "alice"),
    ):
        text = json.dumps(model)
        assert "elsewhere" not in text
        assert "secret" not in text
        assert model["viewer"] == {"everything": False, "name": "alice", "namespaces": ["team-a"]}
        assert "basement" not in text, "what is in no namespace is for those who see everything"
    first = whole(page_at("overview"), view, LAB, "alice")
    assert list(first["budgets"]) == ["team-a/one"]
    assert not {"fleet", "uncovered", "gpus"} & first.keys()
    assert first["decidedInHour"] == 1
    assert page_at("budgets", "elsewhere", "two")(view, LAB) is None
    assert page_at("budgets", "team-a", "none")(view, EVERYTHING) is None


def test_nodes_are_a_right_of_their_own(made: Made) -> None:
    page = whole(page_at("nodes"), made.view(), OTHERS, "bob")
    assert (page["nodes"], page["mayList"], page["waiting"]) == ({}, False, [])


def test_nodes_say_who_holds_their_gpus(made: Made) -> None:
    everything, lab = (
        whole(page_at("nodes"), made.view(), EVERYTHING),
        whole(page_at("nodes"), made.view(), LAB, "alice"),
    )
    node = everything["nodes"]["n"]
    assert (node["gpus"], node["held"], node["free"], node["ready"]) == ("8", "7", "1", True)
    assert [(each["pod"], each["gpus"], each["budgets"]) for each in node["pods"]] == [
        ("team-a/train", "4", ["team-a/one"]),
        ("elsewhere/secret", "2", ["elsewhere/two"]),
        ("team-a/loose", "1", []),
    ]
    hidden = lab["nodes"]["n"]["pods"][1]
    assert hidden == {"gpus": "2", "budgets": [], "state": "Running"}
    assert everything["nodes"]["m"]["cordoned"]
    assert everything["nodes"]["m"]["zone"] == "z1"


def test_namespaces_of_gpu_pods_are_something_to_see() -> None:
    pods = [running("a", HOUR), running("b", HOUR, namespace="elsewhere"), a_pod("c", gpus=0, namespace="web")]
    assert nodes.namespaces(a_used_world(pods=pods)) == {"team-a", "elsewhere"}
    assert nodes.namespaces(a_used_world()) == set()


def test_waiting_pods_say_why(made: Made) -> None:
    page = whole(page_at("nodes"), made.view(), EVERYTHING)
    assert page["waitingCount"] == 2
    assert {each["pod"]: each["why"] for each in page["waiting"]} == {
        "team-a/waits": "queued by budget team-a/one",
        "team-a/late": "0/2 nodes have room",
    }


def test_the_page_of_a_budget_has_its_curve_and_its_ladder(made: Made) -> None:
    page = whole(page_at("budgets", "team-a", "one"), made.view(), EVERYTHING)
    curve = page["curve"]
    assert (curve["unit"], curve["quota"]) == ("GPU-hours", 10)
    assert curve["used"][-1] == curve["ahead"]["used"][0] == 12
    assert curve["t"][-1] == curve["ahead"]["t"][0] == NOON // SECOND
    assert curve["marks"][0]["kind"] == "now"
    assert "usdCurve" not in page
    assert page["budget"]["selector"] == "team=a"
    assert [each["at"] for each in page["budget"]["ladder"]] == ["50%", "100%"]
    assert all(each["since"] for each in page["budget"]["ladder"]), "both steps are entered"
    assert [each["endsBelow"] for each in page["budget"]["ladder"]] == ["45%", "95%"]
    assert page["topPods"][0]["pod"] == "team-a/train"
    assert [each["resource"] for each in page["history"].values()] == ["GPUWorkloadBudget/team-a/one"]


def test_the_forecast_is_marked() -> None:
    made = Made(a_used_world(a_budget(hours="10"), pods=[running("p", HOUR, gpus=4)]))
    page = whole(page_at("budgets", "team-a", "one"), made.view(), EVERYTHING)
    mark = page["curve"]["marks"][1]
    assert (mark["kind"], mark["t"]) == ("exhausted", (NOON + 90 * MINUTE) // SECOND)
    assert moment(page["budget"]["exhaustedAt"]) == mark["t"] * SECOND


def test_a_forecast_by_declared_ends_says_what_differs_without_them() -> None:
    ends = running("p", HOUR, gpus=4, annotations=((EXPECTED_DURATION, "2h"),))
    made = Made(a_used_world(a_budget(hours="10"), pods=[ends]))
    budget = whole(page_at("budgets", "team-a", "one"), made.view(), EVERYTHING)["budget"]
    assert "exhaustedAt" not in budget
    assert moment(budget["exhaustedAtIfNothingEnds"]) == NOON + 90 * MINUTE


def test_what_was_released_what_is_refused_and_whose_verdict_it_is_are_told() -> None:
    budget = a_budget()
    released = Released(owner="Job/team-a/fit", uid="u", at="a", until="b", gpus="8", used_gpus="4")
    refused = RefusedEviction(unit="Pod/team-a/p", since="c", by=("team-a/pdb",), uids=("u",), pods=("team-a/p",))
    made, ref = Made(a_used_world(budget)), ref_of(budget)
    view, decision, following = made.view(), made.decisions[ref], Following(cluster="home", holding=True, since="d")
    status = structs.replace(decision.status, released=(released,), refused=(refused,), following=following)
    made.decisions[ref] = structs.replace(decision, status=status)
    page = BudgetPage().model(view, EVERYTHING, ref.namespace, ref.name) or {}
    (told,) = page["released"]
    assert (told["owner"], told["gpus"], told["usedGpus"], told["until"]) == ("Job/team-a/fit", "8", "4", "b")
    (told,) = page["refused"]
    assert (told["unit"], told["by"], "uids" in told) == ("Pod/team-a/p", ["team-a/pdb"], False)
    assert page["following"]["cluster"] == "home"


def test_decisions_are_searched_by_every_word(made: Made) -> None:
    view = made.view()

    def found(**query: str) -> list[str]:
        entries = whole(page_at("decisions", search(query)), view, EVERYTHING)
        return [each["resource"] for each in entries["entries"].values()]

    assert len(found()) == 3
    assert found(q="GPU-hours TEAM-A") == ["GPUWorkloadBudget/team-a/one"]
    assert found(q="nothing of the kind") == []
    assert len(found(limit="1")) == 1
    made.become(structs.replace(made.world(NOON), now=NOON + 2 * HOUR))
    assert len(found(since="1h")) == 3, "those of before are older"
    assert len(found(since="24h")) > 3


def test_decisions_are_told_apart_by_type() -> None:
    budget = a_budget(hours="10", enforce="Evict")
    known = structs.replace(Made(a_used_world(budget, pods=[running("p", 3 * HOUR, gpus=4)])).world(NOON))
    made = Made(known)
    status = made.decisions[ref_of(budget)].status
    made.become(
        structs.replace(known, resources=ResourceTable({ref_of(budget): structs.replace(budget, status=status)}))
    )

    def types(**query: str) -> set[str]:
        page = whole(page_at("decisions", search(query)), made.view(), EVERYTHING)
        return {each["type"] for each in page["entries"].values()}

    assert "stops" in types()
    assert types(type="stops") == {"stops"}
    assert types(type="machines") == set()
    with pytest.raises(Misconfigured, match="reading type"):
        search({"type": "nonsense"})


def test_ids_of_entries_sort_by_time(made: Made) -> None:
    made.become(structs.replace(made.world(NOON), now=NOON + HOUR))
    page = whole(page_at("decisions", search({})), made.view(), EVERYTHING)
    newest_first = [each["at"] for _, each in sorted(page["entries"].items(), reverse=True)]
    assert newest_first == sorted(newest_first, reverse=True)
    assert page["more"] is False


def test_actions_are_told_in_words() -> None:
    budget = a_budget(hours="10", enforce="Evict")
    made = Made(a_used_world(budget, pods=[running("p", 3 * HOUR, gpus=4)]))
    page = whole(page_at("decisions", search({"q": "Evict"})), made.view(), EVERYTHING)
    [entry] = page["entries"].values()
    assert entry["actions"] == [] or entry["actions"][0].startswith("EvictPod team-a/p")
    assert not any(each.startswith("EmitEvent") for each in entry["actions"])


def test_no_page_holds_a_null(made: Made) -> None:
    """Null in a patch means that something is gone, so no page may say it."""

    def nulls(value: Any) -> bool:
        if isinstance(value, dict):
            return any(nulls(each) for each in value.values())
        return any(nulls(each) for each in value) if isinstance(value, list) else value is None

    view = made.view(speed=lambda: 60.0)
    for model in (
        whole(page_at("overview"), view, EVERYTHING),
        whole(page_at("nodes"), view, EVERYTHING),
        whole(page_at("budgets", "team-a", "one"), view, EVERYTHING),
        whole(page_at("decisions", search({})), view, EVERYTHING),
    ):
        assert not nulls(model)
        json.dumps(model)


def test_what_has_no_effects_is_not_at_work() -> None:
    pools = [a_resource("PowerPool", "on"), a_resource("PowerPool", "off", paused=True)]
    links = a_resource("Bandwidth", "n")
    made = Made(a_used_world(*pools, links, nodes=[a_node("m")]))
    others = whole(page_at("overview"), made.view(), EVERYTHING)["others"]
    assert {name: each["acts"] for name, each in others.items()} == {
        "PowerPool/on": True,
        "PowerPool/off": False,
        "Bandwidth/n": False,
    }
    made.become(structs.replace(made.world(NOON), stopped=True))
    others = whole(page_at("overview"), made.view(), EVERYTHING)["others"]
    assert not any(each["acts"] for each in others.values())
