"""Namespaces in which every GPU pod needs a budget, on a real API server."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from headroom.api.budget_index import INDEX_NAME
from headroom.api.marks import REQUIRE_BUDGET
from tests.api.cases import manifest
from tests.api.verdicts import Server
from tests.control_plane import ControlPlane, wait_until
from tests.integration.holds import INDEXES, create, plain, pod
from tests.integration.policed import Document

HERE = "hold-required"


def entry(**fields: Any) -> Document:
    base = {"budget": "x/team-a", "namespaces": ["elsewhere", HERE], "matchLabels": {"team": "a"}}
    return base | {"resources": ["nvidia.com/gpu", "nvidia.com/mig-*"]} | fields


def set_index(users: dict[str, Server], entries: list[Document]) -> None:
    """Write the index, and wait until the policy knows it: by a resource that only the last entry counts."""
    marker = entry(budget="x/marker", matchLabels={"marker": "yes"}, resources=["example.com/marker"])
    found = manifest("BudgetIndex", INDEX_NAME, {"budgets": [*entries, marker]})
    users["admin"].send("DELETE", f"{INDEXES}/{INDEX_NAME}")
    wait_until(lambda: create(users["editor"], marked)[0] == 201, "the policy knows that there is no index")
    code, answer = users["admin"].send("POST", INDEXES, json.dumps(found))
    assert code == 201, answer
    wait_until(lambda: create(users["editor"], marked)[0] == 403, "the policy knows the index")


marked = pod("marked", HERE, "example.com/marker")


@pytest.fixture(scope="module")
def required(policed_plane: ControlPlane, hold_users: dict[str, Server]) -> Iterator[dict[str, Server]]:
    policed_plane.kubectl("label", "namespace", HERE, f"{REQUIRE_BUDGET}=")
    not_here = entry(budget="x/cpu", namespaces=["elsewhere"], matchLabels={"team": "z"}, resources=["cpu"])
    tiers = [{"key": "tier", "operator": "In", "values": ["a", "b"]}, {"key": "free", "operator": "DoesNotExist"}]
    odd = entry(budget="x/odd", matchLabels={}, matchExpressions=tiers, resources=["example.com/fpga"])
    set_index(hold_users, [not_here, entry(), odd])
    yield hold_users
    hold_users["admin"].send("DELETE", f"{INDEXES}/{INDEX_NAME}")
    policed_plane.kubectl("label", "namespace", HERE, f"{REQUIRE_BUDGET}-")


def there(*resources: str, **more: Any) -> Document:
    return pod("p", HERE, *resources, **more)


CLAIM = [{"name": "gpu", "resourceClaimName": "one"}]


@pytest.mark.parametrize(
    "document",
    [
        there(),
        there("nvidia.com/mig-3g.20gb"),
        there("example.com/fpga", labels={"tier": "b"}),
        plain(there(labels={})),
        there("cpu", "memory", labels={}),
        plain(there(resourceClaims=CLAIM)),
        pod(namespace="hold-b", labels={}),
        there(labels={}, nodeName="n", annotations={"kubernetes.io/config.mirror": "x"}),
    ],
    ids=["gpu", "mig", "odd", "none", "cpu", "claim", "other-namespace", "mirror"],
)
def test_a_pod_with_a_budget_or_without_gpus_is_created(required: dict[str, Server], document: Document) -> None:
    code, answer = create(required["editor"], document)
    assert code == 201, answer


@pytest.mark.parametrize(
    "document",
    [
        there(labels={}),
        there(labels={"team": "b"}),
        there("amd.com/gpu"),
        there("gpu.intel.com/i915", labels={}),
        there("nvidia.com/mig-1g.5gb", labels={}),
        there("example.com/fpga", labels={}),
        there("example.com/fpga", labels={"tier": "a", "free": "yes"}),
        plain(there(resourceClaims=CLAIM, labels={})),
        plain(there(labels={}, initContainers=[there()["spec"]["containers"][0] | {"name": "init"}])),
    ],
    ids=["no-labels", "team-b", "amd", "intel", "mig", "odd", "free", "claim", "init"],
)
def test_a_gpu_pod_that_no_budget_counts_is_refused(required: dict[str, Server], document: Document) -> None:
    for user in ("editor", "admin"):
        code, answer = create(required[user], document)
        assert (code, answer["reason"]) == (403, "Forbidden")
        assert answer["message"].endswith(
            "denied request: pod hold-required/p requests GPUs and no budget counts it, which namespace hold-required requires "
            "by its label headroom.dev/require-budget: give it the labels and the GPUs that one of these budgets counts: "
            "x/team-a (team=a); x/odd (tier In a|b, free DoesNotExist); x/marker (marker=yes)"
        )


def test_a_namespace_without_any_budget_says_so(required: dict[str, Server], policed_plane: ControlPlane) -> None:
    policed_plane.kubectl("label", "namespace", "hold-b", f"{REQUIRE_BUDGET}=true")
    wait_until(lambda: create(required["editor"], pod(namespace="hold-b"))[0] == 403, "the label is known")
    words = create(required["editor"], pod(namespace="hold-b"))[1]["message"]
    assert words.endswith("require-budget: no budget covers this namespace; have an administrator create one")
    assert create(required["editor"], plain(pod(namespace="hold-b")))[0] == 201
    policed_plane.kubectl("label", "namespace", "hold-b", f"{REQUIRE_BUDGET}-")
    wait_until(lambda: create(required["editor"], pod(namespace="hold-b"))[0] == 201, "the label is known to be gone")


def test_a_budget_counts_in_namespaces_that_its_selector_matches(
    required: dict[str, Server], policed_plane: ControlPlane
) -> None:
    set_index(required, [entry(namespaces=[], namespaceSelector={"matchLabels": {"org": "x"}})])
    words = create(required["editor"], there())[1]["message"]
    assert words.endswith("one of these budgets counts: x/marker (marker=yes)")
    policed_plane.kubectl("label", "namespace", HERE, "org=x")
    wait_until(lambda: create(required["editor"], there())[0] == 201, "the label is known")
    words = create(required["editor"], there(labels={}))[1]["message"]
    assert words.endswith("counts: x/team-a (team=a); x/marker (marker=yes)")
    policed_plane.kubectl("label", "namespace", HERE, "org-")
    wait_until(lambda: create(required["editor"], there())[0] == 403, "the label is known to be gone")


def test_2000_budgets_are_searched_to_their_end(required: dict[str, Server]) -> None:
    """The server gives up on an expression that costs too much; then every pod there would be refused."""
    many = [
        entry(budget=f"x/b{i}", matchLabels={"team": f"t{i}", "tier": "x"}, resources=["example.com/fpga"])
        for i in range(1948)
    ]
    wide = [entry(budget=f"x/w{i}", namespaces=[f"n{each}" for each in range(2000)]) for i in range(50)]
    set_index(required, [*many, *wide, entry()])
    assert create(required["editor"], there())[0] == 201
    crowd = [{"name": f"c{i}", "image": "none", "resources": {"limits": {"cpu": "1"}}} for i in range(20)]
    assert create(required["editor"], there(labels={}, containers=crowd))[0] == 201
    code, answer = create(required["editor"], there(labels={}))
    assert code == 403
    assert answer["message"].endswith("..."), "too many budgets to name"
    assert len(answer["message"]) < 2000
