"""A control plane with our policies and roles, and a connection for each user whose rights matter."""

from collections.abc import Iterator

import pytest

from headroom.api import generate
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from tests.api.verdicts import Server
from tests.control_plane import ControlPlane, find_assets, lacking, wait_until
from tests.integration import accounts, holds
from tests.integration.karpented import Karpented, karpented_cluster
from tests.integration.policed import KUEUE_ROLE, NAMESPACES, SYSTEM_ROLES, USERS, budget, create

PARTS = ("kube-controller-manager",)  # it fills the roles view, edit and admin


@pytest.fixture(scope="session")
def prepared_plane() -> Iterator[ControlPlane]:
    """An API server with our kinds, policies and namespace, where operators account. Leave no budget, pod or operator behind."""
    with accounts.prepared_plane() as plane:
        yield plane


@pytest.fixture(scope="session")
def second_prepared_plane() -> Iterator[ControlPlane]:
    """Another one, for what spans two clusters."""
    with accounts.prepared_plane() as plane:
        yield plane


@pytest.fixture(scope="session")
def karpented(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Karpented]:
    """A cluster with the real Karpenter and one operator. Have a namespace, a range of weights and machine types of your own."""
    with karpented_cluster(tmp_path_factory.mktemp("karpented")) as made:
        yield made


@pytest.fixture(scope="session")
def policed_plane() -> Iterator[ControlPlane]:
    """A control plane of its own: the policies would touch the pods of other tests."""
    assets = find_assets()
    if why := lacking(assets, PARTS):
        pytest.skip(why)
    made = ControlPlane(assets, components=PARTS)
    for user in USERS:
        made.add_token_user(user)
    with made as plane:
        plane.apply(*(crd(kind) for kind in DEFINITIONS.values()))
        for name in NAMESPACES:
            plane.kubectl("create", "namespace", name)
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=300s")
        for file in ("policies.yaml", "roles.yaml"):
            plane.kubectl("apply", "-f", str(generate.ROOT / "deploy" / file))
        _grant_all(plane)
        yield plane


def _grant_all(plane: ControlPlane) -> None:
    for namespace in NAMESPACES:
        for user in ("enforcer", "budgeteer", "only-one"):
            plane.grant(user, "headroom-budget-admin", namespace)
    plane.grant("enforcer", "headroom-budget-enforcer", "team-a")
    for user, role in {"editor": "edit", "owner": "admin", "reader": "view"}.items():
        plane.grant(user, role, "team-a")
    create = ("create", "clusterrole")
    only = ("--verb=enforce", "--resource=gpuworkloadbudgets.headroom.dev", "--resource-name=mine")
    plane.kubectl(*create, "enforce-one", *only)
    plane.grant("only-one", "enforce-one", "team-a")
    plane.kubectl(*create, "keeper", "--verb=update", "--resource=budgetindexes.headroom.dev")
    plane.kubectl(*create, "status-writer", "--verb=update", "--resource=gpuworkloadbudgets.headroom.dev/status")
    for role in ("keeper", "status-writer", "edit"):
        plane.grant("operator", role)


@pytest.fixture(scope="session")
def policed(policed_plane: ControlPlane) -> Iterator[dict[str, Server]]:
    """A connection for each user, once the policies are at work."""
    made = {user: Server(policed_plane, user) for user in ("admin", *USERS)}

    def refused_by_policy() -> bool:
        return "bind the ClusterRole" in create(made["budgeteer"], budget("Evict"))[1].get("message", "")

    wait_until(refused_by_policy, "the policies are at work")
    wait_until(lambda: create(made["enforcer"], budget("Evict"))[0] == 201, "the grants are at work")
    yield made
    for server in made.values():
        server.close()


@pytest.fixture(scope="session")
def hold_users(policed_plane: ControlPlane, policed: dict[str, Server]) -> dict[str, Server]:
    """Namespaces of their own for holds, their editor, an owner of one, somebody who may release, and the parts of Kubernetes and Kueue."""
    for namespace in holds.NAMESPACES:
        policed_plane.kubectl("create", "namespace", namespace)
        policed_plane.grant("editor", "edit", namespace)
    policed_plane.grant("owner", "cluster-admin", "hold-a")
    policed_plane.grant("releaser", "headroom-releaser")
    policed_plane.grant("releaser", "edit", "hold-a")
    for user, role in SYSTEM_ROLES.items():
        policed_plane.grant(user, role)
    policed_plane.apply(KUEUE_ROLE)
    policed_plane.grant("kueue", "kueue")
    wait_until(lambda: holds.create(policed["releaser"], holds.pod())[0] == 201, "the grants are at work")
    last = holds.pod(namespace=holds.NAMESPACES[-1])
    wait_until(lambda: holds.create(policed["editor"], last)[0] == 201, "the grants are at work")
    return policed
