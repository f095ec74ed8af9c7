"""Every contract test runs twice: once on the simulator, once on a real API server."""

from __future__ import annotations

import itertools
import urllib.error
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from headroom.adapters.kube import paths
from headroom.api.kinds import DEFINITIONS
from headroom.api.resources import GROUP, VERSION
from tests.contracts.cluster import Cluster
from tests.contracts.server import ServerCluster
from tests.contracts.simulated import SimulatedCluster
from tests.control_plane import ControlPlane, find_assets, lacking, wait_until

CRDS = Path(__file__).parents[2] / "deploy" / "crds"
SIDES = ("simulator", "server")
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def plane_with_kinds(control_plane: ControlPlane) -> ControlPlane:
    """The shared control plane with our kinds in it."""
    control_plane.kubectl("apply", "--server-side", "-f", str(CRDS))
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=300s", "-f", str(CRDS))
    # Established is not enough: for about a second more the server says that its storage is initializing.
    wait_until(lambda: all(_is_served(control_plane, kind) for kind in DEFINITIONS), "our kinds are served")
    return control_plane


def _is_served(plane: ControlPlane, kind: str) -> bool:
    try:
        plane.get(paths.of(GROUP, VERSION, DEFINITIONS[kind].plural))
    except urllib.error.HTTPError:
        return False
    return True


@pytest.fixture(scope="session")
def forgetful_plane() -> Iterator[ControlPlane]:
    """An API server without a watch cache: what etcd forgot, it has forgotten too."""
    assets = find_assets()
    if why := lacking(assets, ()):
        pytest.skip(why)
    with ControlPlane(assets, components=(), apiserver_flags=["--watch-cache=false"]) as plane:
        yield plane


@pytest.fixture(params=SIDES)
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """A fresh namespace of a cluster."""
    async with _side(request, "plane_with_kinds") as side:
        yield side


@pytest.fixture(params=SIDES)
async def forgetful(request: pytest.FixtureRequest) -> AsyncIterator[Cluster]:
    """A fresh namespace of a cluster that `compact` makes forget."""
    async with _side(request, "forgetful_plane") as side:
        yield side


def _side(request: pytest.FixtureRequest, plane: str) -> Cluster:
    namespace = f"contract-{next(_NUMBERS)}"
    if request.param == "simulator":
        return SimulatedCluster(namespace)
    return ServerCluster(request.getfixturevalue(plane), namespace)
