"""One cluster for all tests here: a whole control plane, Kueue, JobSet, and the operator, each with just its own rights."""

from collections.abc import Iterator

import pytest

from tests.integration.accounts import Operator
from tests.integration.enforced import Cluster, enforced_cluster, enforcing_operator
from tests.kueue.controllers import Controllers


@pytest.fixture(scope="session")
def controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Controllers]]:
    folder = tmp_path_factory.mktemp("kueue")
    with enforced_cluster(folder, own_accounts=True) as cluster:
        made = Controllers(cluster.plane, folder / "controllers")
        try:
            made.start()
            yield cluster, made
        finally:
            made.stop()


@pytest.fixture(scope="session")
def cluster(controllers: tuple[Cluster, Controllers]) -> Cluster:
    return controllers[0]


@pytest.fixture(scope="session", autouse=True)
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    made = enforcing_operator(cluster.plane, tmp_path_factory.mktemp("operator"))
    made.start()
    yield made
    made.close()
