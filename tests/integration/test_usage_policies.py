"""The finalizer of exact accounting, on a real API server: which pods get it at birth, and who may take it away."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from headroom.api.budget_index import INDEX_NAME
from headroom.api.policies import USAGE_FINALIZER
from tests.api.cases import API_VERSION, manifest
from tests.api.verdicts import Server
from tests.control_plane import ControlPlane, wait_until
from tests.integration.policed import Document

INDEXES = f"/apis/{API_VERSION}/budgetindexes"
OTHER_FINALIZER = "example.com/other"


# --- the finalizer of exact accounting -----------------------------------------------------------------------------------------


def entry(**fields: Any) -> Document:
    base = {"budget": "team-a/a", "namespaces": ["team-a"], "matchLabels": {"team": "a"}}
    return base | {"resources": ["nvidia.com/gpu", "nvidia.com/mig-*"], "exact": True} | fields


def pod(*resources: str, namespace: str = "team-a", labels: Document | None = None, **metadata: Any) -> Document:
    asked = dict.fromkeys(resources, "1")
    main = {"name": "main", "image": "none", "resources": {"requests": asked, "limits": asked}}
    about = {"name": "p", "namespace": namespace, "labels": {"team": "a"} if labels is None else labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": about | metadata, "spec": {"containers": [main]}}


def send_pod(server: Server, document: Document, *, dry: bool = True) -> Document:
    path = f"/api/v1/namespaces/{document['metadata']['namespace']}/pods"
    code, answer = server.send("POST", path + ("?dryRun=All" if dry else ""), json.dumps(document))
    assert code == 201, answer
    return answer


def finalizers(server: Server, document: Document) -> list[str]:
    found: list[str] = send_pod(server, document)["metadata"].get("finalizers", [])
    return found


def set_index(server: Server, entries: list[Document]) -> None:
    """Write the index unless it is there, and wait until the policy knows it: by a resource that no other test asks for."""
    code, current = server.send("GET", f"{INDEXES}/{INDEX_NAME}")
    if code == 200 and current["spec"]["budgets"][:-1] == entries:
        return
    marker = f"example.com/marker-{random.SystemRandom().randrange(10**12)}"
    document = manifest("BudgetIndex", INDEX_NAME, {"budgets": [*entries, entry(resources=[marker])]})
    assert server.send("DELETE", f"{INDEXES}/{INDEX_NAME}")[0] == code
    code, answer = server.send("POST", INDEXES, json.dumps(document))
    assert code == 201, answer
    wait_until(lambda: finalizers(server, pod(marker)) == [USAGE_FINALIZER], "the policy knows the index")


@pytest.fixture
def indexed(policed: dict[str, Server]) -> Server:
    """A server whose index has one budget that is counted exactly, and one that is not."""
    entries = [entry(), entry(matchLabels={"team": "b"}, exact=False), entry(namespaces=["kube-system"])]
    set_index(policed["admin"], entries)
    return policed["admin"]


def _spec(document: Document, **fields: Any) -> Document:
    return document | {"spec": document["spec"] | fields}


_GPU: Document = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
_CONTAINER = {"name": "other", "image": "none"}
_CLAIM = {"name": "gpu", "resourceClaimName": "one"}


@pytest.mark.parametrize(
    "document",
    [
        pod("nvidia.com/gpu"),
        pod("cpu", "nvidia.com/mig-1g.5gb"),
        pod("nvidia.com/gpu", labels={"team": "a", "more": "labels"}),
        _spec(pod(), containers=[_CONTAINER | {"resources": {"limits": {"nvidia.com/gpu": "2"}}}]),
        _spec(pod("cpu"), initContainers=[_CONTAINER | {"resources": _GPU}]),
        _spec(pod("cpu"), initContainers=[_CONTAINER | {"resources": _GPU, "restartPolicy": "Always"}]),
        _spec(pod(), resourceClaims=[_CLAIM]),
    ],
    ids=["gpu", "mig", "labels", "limits", "init", "sidecar", "claim"],
)
def test_a_pod_that_is_counted_exactly_gets_the_finalizer_though_no_operator_runs(
    indexed: Server, document: Document
) -> None:
    assert finalizers(indexed, document) == [USAGE_FINALIZER]


@pytest.mark.parametrize(
    "document",
    [
        pod(),
        pod("cpu", "amd.com/gpu"),
        pod("example.com/nvidia.com-mig"),
        pod("nvidia.com/gpu", labels={}),
        pod("nvidia.com/gpu", labels={"team": "c"}),
        pod("nvidia.com/gpu", labels={"team": "b"}),
        pod("nvidia.com/gpu", namespace="team-b"),
        pod("nvidia.com/gpu", namespace="kube-system"),
        _spec(pod(), resourceClaims=[]),
        _spec(pod(labels={"team": "c"}), resourceClaims=[_CLAIM]),
    ],
    ids=["none", "other", "infix", "no-labels", "team-c", "not-exact", "namespace", "system", "no-claim", "claim"],
)
def test_another_pod_does_not(indexed: Server, document: Document) -> None:
    assert finalizers(indexed, document) == []


def test_a_mirror_pod_does_not(indexed: Server) -> None:
    document = _spec(pod("nvidia.com/gpu"), nodeName="n")
    assert finalizers(indexed, document) == [USAGE_FINALIZER]
    document["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert finalizers(indexed, document) == []


def test_cpu_is_counted_at_the_pod_as_a_whole(indexed: Server) -> None:
    """Of the resources that a pod asks for as a whole, the API server knows cpu, memory and huge pages."""
    whole = _spec(pod(), resources={"requests": {"cpu": "1"}})
    assert finalizers(indexed, whole) == []
    set_index(indexed, [entry(), entry(resources=["cpu"])])
    assert finalizers(indexed, whole) == [USAGE_FINALIZER]
    assert finalizers(indexed, pod("cpu")) == [USAGE_FINALIZER]


def test_other_finalizers_stay_and_ours_comes_once(indexed: Server) -> None:
    assert finalizers(indexed, pod("nvidia.com/gpu", finalizers=[OTHER_FINALIZER])) == [
        OTHER_FINALIZER,
        USAGE_FINALIZER,
    ]
    twice = pod("nvidia.com/gpu", finalizers=[USAGE_FINALIZER, OTHER_FINALIZER])
    assert sorted(finalizers(indexed, twice)) == [OTHER_FINALIZER, USAGE_FINALIZER]
    assert finalizers(indexed, pod("cpu", finalizers=[OTHER_FINALIZER])) == [OTHER_FINALIZER]


def test_a_tenants_pod_gets_it_too(indexed: Server, policed: dict[str, Server]) -> None:
    assert finalizers(policed["editor"], pod("nvidia.com/gpu")) == [USAGE_FINALIZER]


def test_an_index_of_many_budgets_and_namespaces_is_searched_to_its_end(policed: dict[str, Server]) -> None:
    """The server gives up on an expression that costs too much, and then the finalizer would be missing."""
    many = [entry(budget=f"team-a/b{i}", matchLabels={"team": f"t{i}"}) for i in range(1900)]
    wide = [entry(budget=f"team-a/w{i}", namespaces=[f"n{each}" for each in range(1000)]) for i in range(50)]
    set_index(policed["admin"], [*many, *wide, entry()])
    assert finalizers(policed["admin"], pod("nvidia.com/gpu")) == [USAGE_FINALIZER]
    assert finalizers(policed["admin"], pod("nvidia.com/gpu", labels={"team": "t1900"})) == []


def by_labels(**selector: Any) -> Document:
    return entry(namespaces=[], namespaceSelector=selector)


def test_namespaces_are_covered_by_their_labels(policed: dict[str, Server], policed_plane: ControlPlane) -> None:
    """The API server knows a namespace's labels by itself, so the index need not name all that a selector matches."""
    tier = {"key": "tier", "operator": "NotIn", "values": ["free"]}
    set_index(policed["admin"], [by_labels(matchLabels={"org": "x"}, matchExpressions=[tier])])
    assert finalizers(policed["admin"], pod("nvidia.com/gpu")) == []
    for label, found in (("org=x", [USAGE_FINALIZER]), ("tier=free", []), ("tier-", [USAGE_FINALIZER]), ("org-", [])):
        policed_plane.kubectl("label", "namespace", "team-a", label)

        def is_known(found: list[str] = found) -> bool:
            return finalizers(policed["admin"], pod("nvidia.com/gpu")) == found

        wait_until(is_known, label)
    named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-b"]}
    set_index(policed["admin"], [by_labels(matchExpressions=[named])])
    assert finalizers(policed["admin"], pod("nvidia.com/gpu", namespace="team-b")) == [USAGE_FINALIZER]
    assert finalizers(policed["admin"], pod("nvidia.com/gpu")) == []


def test_1000_budgets_over_any_number_of_namespaces_fit_into_the_index(policed: dict[str, Server]) -> None:
    named = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["team-a"]}
    not_here = [{"key": f"group-{i:04}", "operator": "Exists"} for i in range(1000)]
    many = [by_labels(matchLabels={"org": "x" * 63}, matchExpressions=[each]) for each in not_here]
    set_index(policed["admin"], [*many, by_labels(matchExpressions=[named])])
    assert finalizers(policed["admin"], pod("nvidia.com/gpu")) == [USAGE_FINALIZER]
    assert finalizers(policed["admin"], pod("nvidia.com/gpu", namespace="team-b")) == []


# --- selectors, as Kubernetes has them -----------------------------------------------------------------------------------------

KEYS, VALUES = ("team", "tier", "example.com/x"), ("a", "b", "")


def selects(selector: Document, labels: dict[str, str]) -> bool:
    """The rules of label selectors in a few plain lines."""
    tests = {
        "In": lambda each: labels.get(each["key"]) in each["values"],
        "NotIn": lambda each: labels.get(each["key"]) not in each["values"],
        "Exists": lambda each: each["key"] in labels,
        "DoesNotExist": lambda each: each["key"] not in labels,
    }
    plain = selector.get("matchLabels", {}).items()
    return plain <= labels.items() and all(
        tests[each["operator"]](each) for each in selector.get("matchExpressions", ())
    )


def any_selector(dice: random.Random) -> Document:
    expressions: list[Document] = []
    for _ in range(dice.randint(0, 3)):
        operator = dice.choice(("In", "NotIn", "Exists", "DoesNotExist"))
        needs_values = operator in ("In", "NotIn")
        values = {"values": dice.choices(VALUES, k=dice.randint(1, 2))} if needs_values else {}
        expressions.append({"key": dice.choice(KEYS), "operator": operator, **values})
    plain = {"matchLabels": any_labels(dice)} if dice.random() < 0.4 or not expressions else {}
    return plain | ({"matchExpressions": expressions} if expressions else {})


def any_labels(dice: random.Random) -> dict[str, str]:
    return {key: dice.choice(VALUES) for key in KEYS if dice.random() < 0.5}


def test_a_selector_means_what_it_means_everywhere_in_kubernetes(policed: dict[str, Server]) -> None:
    """Each selector counts a resource of its own, so that one index holds them all and a pod asks about one."""
    dice = random.Random("headroom selectors")
    table: list[Document] = [{"operator": "Exists"}, {"operator": "DoesNotExist"}]
    table += [{"operator": each, "values": ["a", "b"]} for each in ("In", "NotIn")]
    selectors = [{"matchExpressions": [{"key": "team", **each}]} for each in table]
    selectors += [any_selector(dice) for _ in range(36)]
    bare = {key: value for key, value in entry().items() if key != "matchLabels"}
    entries = [bare | each | {"resources": [f"example.com/s{i}"]} for i, each in enumerate(selectors)]
    set_index(policed["admin"], entries)
    verdicts = set()
    for i, selector in enumerate(selectors):
        for labels in ({}, {"team": "a"}, {"team": "c"}, *(any_labels(dice) for _ in range(15))):
            found = finalizers(policed["admin"], pod(f"example.com/s{i}", labels=labels))
            assert bool(found) == selects(selector, labels), (selector, labels)
            verdicts.add(bool(found))
    assert verdicts == {True, False}


# --- and it stays --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(indexed: Server) -> Iterator[Document]:
    """A stored pod with our finalizer and another one."""
    document = send_pod(indexed, pod("nvidia.com/gpu", name="kept", finalizers=[OTHER_FINALIZER]), dry=False)
    yield document
    path = _path(document)
    code, current = indexed.send("GET", path)
    assert code == 200, current
    current["metadata"]["finalizers"] = []
    assert indexed.send("PUT", path, json.dumps(current))[0] == 200
    indexed.send("DELETE", path + "?gracePeriodSeconds=0")


def _path(document: Document) -> str:
    return f"/api/v1/namespaces/{document['metadata']['namespace']}/pods/{document['metadata']['name']}"


def _with(document: Document, **metadata: Any) -> str:
    return json.dumps(document | {"metadata": document["metadata"] | metadata})


@pytest.mark.parametrize(
    ("user", "allowed"), [("editor", False), ("owner", False), ("operator", True), ("admin", True)]
)
def test_only_the_operator_and_administrators_take_it_away(
    policed: dict[str, Server], kept: Document, user: str, allowed: bool
) -> None:
    for left in ([OTHER_FINALIZER], []):
        code, answer = policed[user].send("PUT", _path(kept) + "?dryRun=All", _with(kept, finalizers=left))
        assert code == (200 if allowed else 403), answer
        assert allowed or answer["message"].endswith(
            "denied request: the finalizer headroom.dev/usage of pod team-a/kept stays until the pod's usage is recorded; "
            "Headroom then removes it, and before that only users who may update budgetindexes.headroom.dev; "
            "if Headroom is gone for good, an administrator runs headroom uninstall"
        )


def test_a_tenant_may_change_all_else_and_delete_the_pod(policed: dict[str, Server], kept: Document) -> None:
    editor = policed["editor"]
    for change in ({"finalizers": [USAGE_FINALIZER]}, {"labels": {"team": "b"}}, {"annotations": {"a": "b"}}):
        assert editor.send("PUT", _path(kept) + "?dryRun=All", _with(kept, **change))[0] == 200, change
    code, _ = editor.send("DELETE", _path(kept) + "?gracePeriodSeconds=0")
    assert code == 200
    code, current = editor.send("GET", _path(kept))
    assert (code, current["metadata"]["finalizers"]) == (200, [OTHER_FINALIZER, USAGE_FINALIZER])
    assert "deletionTimestamp" in current["metadata"]
    assert editor.send("PUT", _path(kept) + "?dryRun=All", _with(current, finalizers=[]))[0] == 403
    assert policed["operator"].send("PUT", _path(kept) + "?dryRun=All", _with(current, finalizers=[]))[0] == 200


@pytest.mark.parametrize("part", ["status", "ephemeralcontainers", "resize"])
def test_no_part_of_the_pod_is_a_way_round(
    policed_plane: ControlPlane, policed: dict[str, Server], kept: Document, part: str
) -> None:
    policed_plane.kubectl("create", "clusterrole", f"pod-{part}", "--verb=update", f"--resource=pods/{part}")
    policed_plane.grant("editor", f"pod-{part}", "team-a")

    def send(**change: Any) -> tuple[int, Document]:
        return policed["editor"].send("PUT", _path(kept) + f"/{part}?dryRun=All", _with(kept, **change))

    wait_until(lambda: send()[0] == 200, "the grant is at work")
    code, answer = send(finalizers=[OTHER_FINALIZER])
    assert code == 403 or answer["metadata"]["finalizers"] == kept["metadata"]["finalizers"]
    assert code == 403 or part != "status", "it is the one that can change the metadata"


def test_a_pod_without_our_finalizer_is_none_of_our_business(indexed: Server, policed: dict[str, Server]) -> None:
    plain = send_pod(indexed, pod("cpu", name="plain", labels={}, finalizers=[OTHER_FINALIZER]), dry=False)
    assert policed["editor"].send("PUT", _path(plain), _with(plain, finalizers=[]))[0] == 200
    assert policed["editor"].send("DELETE", _path(plain) + "?gracePeriodSeconds=0")[0] == 200


def test_without_the_index_pods_are_made_as_ever(indexed: Server) -> None:
    assert indexed.send("DELETE", f"{INDEXES}/{INDEX_NAME}")[0] == 200
    wait_until(lambda: finalizers(indexed, pod("nvidia.com/gpu")) == [], "the policy knows that the index is gone")


def test_there_is_only_one_index(policed: dict[str, Server]) -> None:
    second = json.dumps(manifest("BudgetIndex", "second", {}))
    code, answer = policed["admin"].send("POST", INDEXES + "?dryRun=All", second)
    assert code == 422
    assert "must be called headroom: there can be only one" in answer["message"]
