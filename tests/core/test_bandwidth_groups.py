"""Who belongs together: pods of one controller, ReplicaSets of one Deployment, never across namespaces."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headroom.core.bandwidth.groups import is_together, says_siblings
from headroom.core.bandwidth.telling import workload_of
from headroom.model.bandwidth import BandwidthRules, group_of
from headroom.model.facts import Owner, Pod
from headroom.model.tables import PodTable
from tests.builders import a_pod

WEB = Owner("ReplicaSet", "web-5d4f", "rs-1", "apps")


def a_member(name: str, node: str = "n1", owner: Owner | None = WEB, **fields: Any) -> Pod:
    labels = (("pod-template-hash", owner.name.rpartition("-")[2]),) if owner else ()
    return a_pod(name, node=node, owner=owner, **({"labels": labels} | fields))


def a_table(*pods: Pod) -> PodTable:
    table = PodTable()
    for pod in pods:
        table.put(pod)
    return table


def test_replica_sets_of_one_deployment_are_one_group() -> None:
    new = Owner("ReplicaSet", "web-77aa", "rs-2", "apps")
    assert group_of(a_member("a")) == group_of(a_member("b", owner=new)) == "team-a/Deployment.apps/web"


def test_a_hash_that_is_not_in_the_name_proves_nothing() -> None:
    for owner in (WEB, Owner("ReplicaSet", "5d4f", "rs", "apps"), Owner("ReplicaSet", "web-5d4f", "rs", "x.io")):
        labels = (("pod-template-hash", "5d4f" if owner is not WEB else "77aa"),)
        assert group_of(a_pod(owner=owner, labels=labels)).split("/")[1].startswith("ReplicaSet.")
    assert group_of(a_pod(owner=WEB, labels=(("pod-template-hash", ""),))) == "team-a/ReplicaSet.apps/web-5d4f"


def test_another_namespace_is_another_group() -> None:
    """A pod can name any uid as its controller's; it cannot leave its namespace by that."""
    assert group_of(a_member("a")) != group_of(a_member("b", namespace="team-b"))
    table = a_table(a_member("a"), a_member("b", "n2", namespace="team-b"))
    assert is_together(table, a_member("a"))


WORDS = st.sampled_from(
    ["", "a", "a/b", "team-b", "team-b/Deployment.apps", "/", "web", "Deployment", "ReplicaSet", "apps"]
)


@given(WORDS, WORDS, WORDS, WORDS)
def test_no_word_in_a_reference_leads_out_of_the_namespace(kind: str, name: str, group: str, hash_: str) -> None:
    pod = a_pod(owner=Owner(kind, name, "uid", group), labels=(("pod-template-hash", hash_),))
    assert group_of(pod).startswith("team-a/")
    assert workload_of(pod).kind in (kind, "Deployment")


def test_pods_without_a_controller_are_groups_of_their_own() -> None:
    one, two = a_member("a", owner=None), a_member("b", owner=None)
    assert group_of(one) != group_of(two)
    assert not is_together(a_table(one, two), one)


def test_a_group_is_together_while_all_that_are_bound_are_on_one_node() -> None:
    one, two = a_member("a"), a_member("b")
    assert is_together(a_table(one), one), "nobody it could talk to is elsewhere"
    assert is_together(a_table(one, two), one)
    assert not is_together(a_table(one, two, a_member("c", "n2")), one)
    assert is_together(a_table(one, two, a_member("c", "")), one), "who has no node yet is nowhere"
    assert is_together(a_table(one, two, a_member("c", "n2", phase="Succeeded")), one)
    assert not is_together(a_table(one, two, a_member("c", "n2", deleting=5)), one), "who is ending still talks"


def test_siblings_are_said_by_the_pod_or_by_the_setting() -> None:
    rules = BandwidthRules()
    assert says_siblings((("headroom.dev/traffic", "siblings"),), rules)
    assert not says_siblings((("headroom.dev/traffic", "Siblings"),), rules)
    assert not says_siblings((), rules)
    assert says_siblings((), BandwidthRules(siblings=True))
