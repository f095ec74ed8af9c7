"""Our policies on pods: the simulator's twin of them says what the API server says, word for word."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from headroom.adapters.kube.errors import Forbidden
from headroom.adapters.kube.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from headroom.api.marks import (
    EXPECTED_DURATION,
    GATE,
    HELD_BECAUSE,
    HELD_BY,
    PROTECTED,
    RELEASED_AT,
    REQUIRE_BUDGET,
    SUSPENDED,
)
from headroom.api.policies import (
    GUARD,
    HELD,
    MARKS,
    REQUIRE,
    USAGE_FINALIZER,
    USAGE_KEPT,
    guarding,
    holding,
    marking,
    policies,
    requiring,
    usage,
)
from headroom.sim.rights import Right, User
from tests.contracts.cluster import Cluster, refused
from tests.contracts.conftest import SIDES
from tests.contracts.objects import Document, pod
from tests.contracts.server import ServerCluster
from tests.contracts.simulated import SimulatedCluster
from tests.control_plane import ControlPlane, find_assets, lacking, wait_until

PODS = ("create", "get", "update", "patch", "delete")
RULES: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {
    "editor": [("", "pods", PODS), ("", "pods/resize", ("update",)), ("batch", "jobs", PODS)],
    "releaser": [
        ("", "pods", PODS),
        ("", "pods/resize", ("update",)),
        ("batch", "jobs", PODS),
        ("headroom.dev", "budgetholds", ("release",)),
    ],
    "kueue": [("", "pods", PODS), ("kueue.x-k8s.io", "workloads/status", ("update",))],
    "controller": [("", "pods", PODS), ("batch", "jobs/status", ("update",))],
    "kubelet": [("", "pods/status", ("patch",))],
    "stranger": [("", "pods", PODS), ("", "nodes/status", ("update",)), ("apps", "replicasets/status", ("update",))],
}
CHIEF = "chief"
"""Has all rights in the namespace, and none beyond it."""
KUEUE_GATE = "kueue.x-k8s.io/admission"
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "1", "controller": True}
BECAUSE = "101.5 of 100 GPU-hours are used"
_NUMBERS = itertools.count(1)


# --- the two sides -------------------------------------------------------------------------------------------------------------


class PolicedSimulation(SimulatedCluster):
    """A simulated cluster with our policies."""

    def __init__(self, namespace: str) -> None:
        super().__init__(namespace)
        for name, rules in RULES.items():
            rights = [Right(verbs=verbs, resources=(resource,), groups=(group,)) for group, resource, verbs in rules]
            self._users[name] = self.server.users.add(User(name=name, rights=tuple(rights)))
        everything = Right(verbs=("*",), resources=("*",), namespaces=(namespace,))
        self._users[CHIEF] = self.server.users.add(User(name=CHIEF, rights=(everything,)))

    async def __aenter__(self) -> PolicedSimulation:
        for each in policies():
            self.server.put(each)
        await super().__aenter__()
        return self


def role(name: str) -> list[Document]:
    version, kind = "rbac.authorization.k8s.io/v1", "ClusterRole"
    rules = [{"apiGroups": [group], "resources": [of], "verbs": [*verbs]} for group, of, verbs in RULES[name]]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}
    return [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "rules": rules},
        {"apiVersion": version, "kind": f"{kind}Binding", "metadata": {"name": name}, "roleRef": reference}
        | {"subjects": [subject]},
    ]


@pytest.fixture(scope="module")
def policed_server() -> Iterator[ControlPlane]:
    """An API server of its own with our policies, which would slow down what others do."""
    assets = find_assets()
    if why := lacking(assets, ()):
        pytest.skip(why)
    made = ControlPlane(assets, components=())
    for name in (*RULES, CHIEF):
        made.add_token_user(name)
    with made as plane:
        plane.apply(*(crd(kind) for kind in DEFINITIONS.values()))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=300s")
        plane.apply(*policies(), *(each for name in RULES for each in role(name)))
        wait_until(lambda: "budgetholds" in plane.kubectl("api-resources"), "our kinds are served")
        yield plane


@pytest.fixture(params=SIDES)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    namespace = f"hold-{next(_NUMBERS)}"
    if request.param == "simulator":
        side: Cluster = PolicedSimulation(namespace)
    else:
        side = ServerCluster(request.getfixturevalue("policed_server"), namespace)
    async with side:
        yield side
        for kind in ("BudgetHold", "BudgetIndex"):
            await side.ask("DELETE", side.path(kind))


# --- short ways ----------------------------------------------------------------------------------------------------------------


def team_pod(name: str = "p", **metadata: Any) -> Document:
    return pod(name, **{"labels": {"team": "a"}} | metadata)


async def stand(cluster: Cluster, **more: Any) -> Document:
    """A hold of team a, once the policies know it."""
    spec = {"budget": f"{cluster.namespace}/a", "namespaces": [cluster.namespace], "matchLabels": {"team": "a"}}
    spec |= {"resources": ["nvidia.com/gpu"], "because": BECAUSE} | more
    document = {"apiVersion": "headroom.dev/v1alpha1", "kind": "BudgetHold", "metadata": {"name": cluster.namespace}}
    await cluster.create(document | {"spec": spec})

    async def known() -> bool:
        bound = team_pod("probe") | {"spec": team_pod()["spec"] | {"nodeName": "n"}}
        if (await make(cluster, team_pod("probe"), "admin", dry=True))["spec"].get("schedulingGates") is None:
            return False
        query = {"dryRun": "All"}
        return (await cluster.ask("POST", cluster.path("Pod"), bound, query=query, user="editor")).status == 403

    await cluster.until(known, "the hold is known")
    return spec


async def make(cluster: Cluster, document: Document, user: str = "editor", *, dry: bool = False) -> Document:
    return await cluster.do("POST", cluster.path("Pod"), document, user=user, query={"dryRun": "All"} if dry else {})


async def patch(
    cluster: Cluster, document: Document, change: Any, user: str = "editor", kind: str = MERGE_PATCH, part: str = ""
) -> Document:
    query = {"dryRun": "All"} | ({"fieldManager": user, "force": "true"} if kind == APPLY_PATCH else {})
    return await cluster.do("PATCH", cluster.path_of(document, part), change, user=user, query=query, content_type=kind)


async def denied(call: Any, policy: str, template: str, name: str, **values: str) -> None:
    with refused(Forbidden, 403, "Forbidden") as refusal:
        await call
    words = template.format(pod=name, **values)
    what = values.get("what", "pods")
    why = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: {words}"
    assert refusal.value.message.endswith(f'{what} "{name.partition("/")[2]}" is forbidden: {why}'), (
        refusal.value.message
    )


def gates(document: Document) -> list[str]:
    return [each["name"] for each in document["spec"].get("schedulingGates", [])]


def note(**annotations: str | None) -> Document:
    return {
        "metadata": {
            "annotations": {f"headroom.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        }
    }


async def reign(cluster: Cluster) -> None:
    """Let the chief have the namespace."""
    if isinstance(cluster, ServerCluster):
        cluster.plane.grant(CHIEF, "cluster-admin", cluster.namespace)

    async def granted() -> bool:
        return (await cluster.ask("GET", cluster.path("Pod"), user=CHIEF)).status == 200

    await cluster.until(granted, "the chief has the namespace")


# --- new pods ------------------------------------------------------------------------------------------------------------------


async def test_a_new_pod_waits_behind_the_gate_and_says_for_whom(cluster: Cluster) -> None:
    await stand(cluster)
    for user in ("editor", "admin"):
        made = await make(cluster, team_pod(f"p-{user}"), user)
        assert gates(made) == [GATE]
        assert made["metadata"]["annotations"] == {HELD_BY: f"{cluster.namespace}/a", HELD_BECAUSE: BECAUSE}
        assert made["status"]["conditions"][0]["reason"] == "SchedulingGated"
    theirs = await make(cluster, pod("q", labels={"team": "a"}, gates=("example.com/theirs",)))
    assert gates(theirs) == ["example.com/theirs", GATE]


async def test_an_owner_that_comes_with_a_node_lets_no_pod_start(cluster: Cluster) -> None:
    await stand(cluster)
    for kind, group in (("DaemonSet", "apps/v1"), ("DaemonSet", "example.com/v1"), ("Node", "v1")):
        owner = OWNER | {"kind": kind, "apiVersion": group}
        for user in ("editor", "admin", "controller"):
            assert gates(await make(cluster, team_pod(ownerReferences=[owner]), user, dry=True)) == [GATE]


async def test_a_pod_that_is_not_covered_is_made_as_ever(cluster: Cluster) -> None:
    await stand(cluster)
    bare = {"containers": [{"name": "main", "image": "none"}]}
    for document in (team_pod(labels={"team": "b"}), team_pod(labels={}), pod("p", labels={"team": "a"}, spec=bare)):
        made = await make(cluster, document, dry=True)
        assert gates(made) == []
        assert "annotations" not in made["metadata"]


async def test_a_pod_that_names_its_node_is_refused(cluster: Cluster) -> None:
    hold = await stand(cluster)
    bound = pod("p", labels={"team": "a"}, spec={"nodeName": "n"})
    told = {"budget": hold["budget"], "because": BECAUSE}
    await denied(make(cluster, bound), HELD, holding.NAMES_ITS_NODE, f"{cluster.namespace}/p", **told)
    assert (await make(cluster, bound, "releaser", dry=True))["spec"]["nodeName"] == "n"
    mirror = pod("p", labels={"team": "a"}, spec={"nodeName": "n"}, annotations={"kubernetes.io/config.mirror": "x"})
    assert await make(cluster, mirror, dry=True)


@pytest.mark.parametrize("key", [PROTECTED, RELEASED_AT])
async def test_a_new_pod_with_a_mark_of_ours_is_refused(cluster: Cluster, key: str) -> None:
    await stand(cluster)
    marked = team_pod(annotations={key: "x"})
    told = {"key": key, "user": "editor"}
    await denied(make(cluster, marked), GUARD, guarding.MARKED, f"{cluster.namespace}/p", **told)
    made = await make(cluster, marked, "releaser")
    assert gates(made) == ([] if key == PROTECTED else [GATE])


@pytest.mark.parametrize("text", ["", "0s", "1 hour", "1h\n", "x" * 50])
async def test_an_unreadable_length_is_refused(cluster: Cluster, text: str) -> None:
    declared = team_pod(annotations={EXPECTED_DURATION: text})
    shown = text[:40].replace("\n", " ") + ("..." if len(text) > 40 else "")
    template = guarding.LENGTH_UNREADABLE.format(pod="{pod}", value=shown).strip()
    await denied(make(cluster, declared), GUARD, template, f"{cluster.namespace}/p")


@pytest.mark.parametrize(("given", "expected"), [(None, 5400), (60, 60), (5401, 5400)])
async def test_a_declared_length_becomes_the_deadline(cluster: Cluster, given: int | None, expected: int) -> None:
    spec = {"activeDeadlineSeconds": given} if given else {}
    made = await make(cluster, pod("p", annotations={EXPECTED_DURATION: "1h30m"}, spec=spec))
    assert made["spec"]["activeDeadlineSeconds"] == expected


# --- changes -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [MERGE_PATCH, STRATEGIC_PATCH, JSON_PATCH])
async def test_nobody_lifts_the_gate_without_the_right(cluster: Cluster, kind: str) -> None:
    await stand(cluster)
    made = await make(cluster, team_pod())
    lift: Any = {"spec": {"schedulingGates": None}}
    if kind == JSON_PATCH:
        lift = [{"op": "remove", "path": "/spec/schedulingGates/0"}]
    name = f"{cluster.namespace}/p"
    await denied(patch(cluster, made, lift, kind=kind), GUARD, guarding.GATE_LIFTED, name, user="editor")
    assert gates(await patch(cluster, made, lift, "releaser", kind)) == []


@pytest.mark.parametrize("kind", [MERGE_PATCH, APPLY_PATCH])
async def test_a_pod_is_relabelled_neither_out_nor_in(cluster: Cluster, kind: str) -> None:
    hold = await stand(cluster)
    told = {"budget": hold["budget"], "because": BECAUSE, "keys": "team"}
    for name, before, after in (("out", "a", "b"), ("in", "b", "a")):
        made = await make(cluster, team_pod(name, labels={"team": before}))
        change = {"metadata": {"name": name, "labels": {"team": after}}, "apiVersion": "v1", "kind": "Pod"}
        where = f"{cluster.namespace}/{name}"
        await denied(patch(cluster, made, change, kind=kind), HELD, holding.RELABELLED, where, **told)
        assert await patch(cluster, made, change, "releaser", kind)
        other = {"metadata": {"name": name, "labels": {"tier": "x"}}, "apiVersion": "v1", "kind": "Pod"}
        assert await patch(cluster, made, other, kind=kind)


async def test_marks_and_lengths_do_not_change(cluster: Cluster) -> None:
    await stand(cluster)
    made = await make(cluster, team_pod(annotations={EXPECTED_DURATION: "2h"}))
    name = f"{cluster.namespace}/p"
    for change in (note(expected_duration="1h"), note(expected_duration=None)):
        await denied(patch(cluster, made, change), GUARD, guarding.LENGTH_CHANGED, name)
    for key, change in ((PROTECTED, note(protected="")), (RELEASED_AT, note(released_at="now"))):
        await denied(patch(cluster, made, change), GUARD, guarding.MARKED, name, key=key, user="editor")
        assert await patch(cluster, made, change, "releaser")
    assert await patch(cluster, made, note(checkpointed_at="now"))


async def test_the_status_is_no_way_round(cluster: Cluster) -> None:
    await stand(cluster)
    made = await make(cluster, team_pod())
    change = {"metadata": {"labels": {"team": "b"}}}
    told = {"part": "status", "user": "kubelet"}
    call = patch(cluster, made, change, "kubelet", part="status")
    await denied(call, GUARD, guarding.LABELS_BY_PART, f"{cluster.namespace}/p", **told)
    assert await patch(cluster, made, {"status": {"phase": "Pending", "message": "m"}}, "kubelet", part="status")


# --- owners --------------------------------------------------------------------------------------------------------------------


async def test_nobody_says_of_a_job_that_we_let_it_go(cluster: Cluster) -> None:
    """Its pods would start at once; who may release says so, and who takes such a mark away harms only themselves."""
    template = {"spec": team_pod()["spec"] | {"restartPolicy": "Never"}}
    plain: Document = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"template": template},
    }
    label, moment = {SUSPENDED: "released"}, {RELEASED_AT: "2026-11-15T12:00:00Z"}
    marked: Document = {**plain, "metadata": {"name": "j", "annotations": moment}}
    name = f"{cluster.namespace}/j"
    told = {"object": f"jobs {name}", "user": "editor", "what": "jobs.batch"}

    async def known() -> bool:
        asked = await cluster.ask("POST", cluster.path("Job"), marked, query={"dryRun": "All"}, user="editor")
        return asked.status == 403

    await cluster.until(known, "the policies are at work")
    new = cluster.do("POST", cluster.path("Job"), marked, user="editor")
    await denied(new, MARKS, marking.MARKED, name, keys=RELEASED_AT, **told)
    made = await cluster.create(plain)
    both = {"metadata": {"labels": label, "annotations": moment}}
    await denied(patch(cluster, made, both), MARKS, marking.MARKED, name, keys=f"{SUSPENDED}, {RELEASED_AT}", **told)
    assert await patch(cluster, made, both, "releaser")
    made = await cluster.do("PATCH", cluster.path_of(made), both, user="releaser", content_type=MERGE_PATCH)
    assert await patch(cluster, made, {"spec": {"suspend": True}})
    assert await patch(cluster, made, {"metadata": {"labels": {SUSPENDED: None}, "annotations": {RELEASED_AT: None}}})
    assert await patch(cluster, made, {"metadata": {"labels": {"tier": "x"}}})


# --- gates of others -------------------------------------------------------------------------------------------------------------

NO_GATES: Document = {"spec": {"schedulingGates": None}}
BARE = {"name": "main", "image": "none"}


@pytest.mark.parametrize("own", ["example.com/later", KUEUE_GATE])
async def test_nobody_lifts_the_last_gate_of_a_pod_that_was_made_before_the_hold(cluster: Cluster, own: str) -> None:
    made = await make(cluster, pod("p", labels={"team": "a"}, gates=("example.com/first", own)))
    at = {RELEASED_AT: "2026-01-01T00:00:00Z"}
    released = await make(cluster, pod("q", labels={"team": "a"}, gates=(own,), annotations=at), "releaser")
    hold = await stand(cluster)
    told = {"budget": hold["budget"], "because": BECAUSE}
    name = f"{cluster.namespace}/p"
    for user in ("editor", "kueue", "controller"):
        both = {"gates": f"example.com/first and {own}"}
        await denied(patch(cluster, made, NO_GATES, user), HELD, holding.LAST_GATE, name, **told | both)
    assert gates(await patch(cluster, made, {"spec": {"schedulingGates": [{"name": own}]}})) == [own]
    out = NO_GATES | {"metadata": {"labels": {"team": "b"}}}
    await denied(patch(cluster, made, out), HELD, holding.RELABELLED, name, **told | {"keys": "team"})
    with refused(Forbidden, 403, "Forbidden"):
        await patch(cluster, made, NO_GATES | {"metadata": {"annotations": at}})
    assert gates(await patch(cluster, released, NO_GATES, "kueue")) == []


async def test_other_pods_lose_their_last_gate_as_ever(cluster: Cluster) -> None:
    later = ("example.com/later",)
    others = [
        await make(cluster, pod("b", labels={"team": "b"}, gates=later)),
        await make(cluster, pod("c", gates=later)),
        await make(cluster, pod("d", labels={"team": "a"}, gates=later, spec={"containers": [BARE]})),
        await make(cluster, pod("e", labels={"team": "a"}, gates=later, annotations={PROTECTED: "yes"}), "releaser"),
    ]
    mine = await make(cluster, pod("p", labels={"team": "a"}, gates=later))
    await stand(cluster)
    for each in others:
        assert gates(await patch(cluster, each, NO_GATES)) == []
    assert gates(await patch(cluster, mine, NO_GATES, "releaser")) == []


# --- Kueue ---------------------------------------------------------------------------------------------------------------------

PODSET, WORKLOAD = {"kueue.x-k8s.io/podset": "main"}, {"kueue.x-k8s.io/workload": "job-j"}
UNDER_KUEUE: dict[str, Document] = {
    "queue": {"labels": {"kueue.x-k8s.io/queue-name": "q"}},
    "template": {"labels": PODSET, "annotations": WORKLOAD, "ownerReferences": [OWNER]},
    "no owner": {"labels": PODSET, "annotations": WORKLOAD},
    "another owner": {
        "labels": PODSET,
        "ownerReferences": [OWNER | {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob"}],
    },
    "managed": {"labels": {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/prebuilt-workload-name": "w"}},
}


async def test_kueues_words_mean_nothing(cluster: Cluster) -> None:
    """Tenants write pods and templates, so nobody is spared for them: not their controller, not an administrator there, not Kueue."""
    await stand(cluster)
    await reign(cluster)
    for more in UNDER_KUEUE.values():
        words = team_pod(**more | {"labels": {"team": "a"} | more["labels"]})
        for user in ("editor", "controller", "stranger", CHIEF):
            assert gates(await make(cluster, words, user, dry=True)) == [GATE]


@pytest.mark.parametrize("user", ["editor", "controller", CHIEF])
async def test_a_pod_behind_kueues_gate_waits_behind_ours_too(cluster: Cluster, user: str) -> None:
    await stand(cluster)
    await reign(cluster)
    made = await make(cluster, pod("p", labels={"team": "a"}, gates=(KUEUE_GATE,)), user)
    assert gates(made) == [KUEUE_GATE, GATE]
    assert gates(await patch(cluster, made, {"spec": {"schedulingGates": [{"name": GATE}]}}, "kueue")) == [GATE]
    with refused(Forbidden, 403, "Forbidden"):
        await patch(cluster, made, NO_GATES, "kueue")


# --- the index -----------------------------------------------------------------------------------------------------------------


async def index(cluster: Cluster, *budgets: Document) -> None:
    document = {"apiVersion": "headroom.dev/v1alpha1", "kind": "BudgetIndex", "metadata": {"name": "headroom"}}
    await cluster.create(document | {"spec": {"budgets": [*budgets]}})


def entry(cluster: Cluster, **more: Any) -> Document:
    base = {"budget": "x/a", "namespaces": [cluster.namespace], "matchLabels": {"team": "a"}}
    return base | {"resources": ["nvidia.com/gpu"]} | more


async def test_a_pod_that_is_counted_exactly_keeps_its_finalizer(cluster: Cluster) -> None:
    await index(cluster, entry(cluster, exact=True))

    async def known() -> bool:
        made = await make(cluster, team_pod(), dry=True)
        return bool(made["metadata"].get("finalizers") == [USAGE_FINALIZER])

    await cluster.until(known, "the index is known")
    made = await make(cluster, team_pod())
    assert "finalizers" not in (await make(cluster, team_pod("q", labels={}), dry=True))["metadata"]
    change = {"metadata": {"finalizers": None}}
    await denied(patch(cluster, made, change), USAGE_KEPT, usage.KEPT, f"{cluster.namespace}/p")
    assert "finalizers" not in (await patch(cluster, made, change, "admin"))["metadata"]
    assert await cluster.merge(made, change)


async def test_a_gpu_pod_needs_a_budget_where_the_namespace_demands_it(cluster: Cluster) -> None:
    namespace = {"kind": "Namespace", "metadata": {"name": cluster.namespace}}
    await cluster.merge(namespace, {"metadata": {"labels": {REQUIRE_BUDGET: ""}}})
    await index(cluster, entry(cluster))
    free = team_pod("free", labels={})

    async def known() -> bool:
        return (await cluster.ask("POST", cluster.path("Pod"), free, query={"dryRun": "All"})).status == 403

    await cluster.until(known, "the label and the index are known")
    told = {"namespace": cluster.namespace, "advice": requiring.ADVICE_LABELS + "x/a (team=a)"}
    for user in ("editor", "releaser"):
        await denied(make(cluster, free, user), REQUIRE, requiring.NO_BUDGET, f"{cluster.namespace}/free", **told)
    assert await make(cluster, team_pod(), dry=True)
