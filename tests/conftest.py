"""Fixtures for every tier, and the rules of a run."""

import gc
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from tests import postgres as postgres_server
from tests.control_plane import ControlPlane, find_assets, lacking
from tests.postgres import Postgres
from tests.tiers import CI, Tiers

if TYPE_CHECKING:
    from tests.aws_service import AwsService

# No deadline, because a busy machine is not a bug. In CI the same examples each time; elsewhere always new ones.
SLOW = [hypothesis.HealthCheck.too_slow]  # judged by the wall clock
hypothesis.settings.register_profile(
    "headroom", deadline=None, suppress_health_check=SLOW, print_blob=True, derandomize=CI
)
hypothesis.settings.load_profile("headroom")


gc.set_threshold(50_000, 20, 50)
"""The default looks through everything that was ever imported again and again: a tenth of the time of a simulation."""


def pytest_collection_finish() -> None:
    """What was imported stays: it need not be looked through for garbage."""
    gc.collect()
    gc.freeze()


def pytest_configure(config: pytest.Config) -> None:
    # Whatever started us in the background may have had Ctrl-C ignored, which our processes would inherit; tests send it to them.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    config.addinivalue_line("markers", "cluster: needs a real control plane; tests/tiers.py sets it")
    config.pluginmanager.register(Tiers(), "tiers")


@pytest.fixture(scope="session")
def control_plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    """The shared control plane with all its parts. Use a namespace of your own, clean up nodes, and do not restart it."""
    assets = find_assets()
    if why := lacking(assets):
        pytest.skip(why)
    _say(request, "starting the shared control plane")
    with ControlPlane(assets) as plane:
        yield plane


@pytest.fixture
def bare_control_plane(request: pytest.FixtureRequest) -> Iterator[Callable[..., ControlPlane]]:
    """Makes control planes for one test alone: etcd and the API server, other parts and flags as asked for.

    `bare_control_plane(components=("kwok",), apiserver_flags=["--watch-cache=false"])`; `users={"name": ["group"]}` adds users.
    """
    assets = find_assets()
    planes: list[ControlPlane] = []

    def make(
        *, components: tuple[str, ...] = (), users: dict[str, list[str]] | None = None, **more: Any
    ) -> ControlPlane:
        if why := lacking(assets, components):
            pytest.skip(why)
        _say(request, f"starting a control plane for {request.node.name}")
        plane = ControlPlane(assets, components=components, **more)
        for name, groups in (users or {}).items():
            plane.add_token_user(name, groups)
        planes.append(plane)
        plane.start()
        return plane

    yield make
    for plane in planes:
        plane.stop()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The shared PostgreSQL. Use a database of your own, and do not restart it."""
    if why := postgres_server.lacking():
        pytest.skip(why)
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def aws_service() -> "Iterator[AwsService]":
    """AWS on this machine, for all: have a cluster of your own, whose machines nobody else sees."""
    from tests.aws_service import AwsService  # noqa: PLC0415 - moto is loaded only where it is asked for
    from tests.cloud_sides import KEY, KEY_ID  # noqa: PLC0415 - the same

    with AwsService({KEY_ID: KEY}) as service:
        yield service


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A PostgreSQL for one test alone, to be killed and started again."""
    if why := postgres_server.lacking():
        pytest.skip(why)
    with Postgres() as server:
        yield server


def _say(request: pytest.FixtureRequest, text: str) -> None:
    manager = request.config.pluginmanager
    terminal, capture = manager.get_plugin("terminalreporter"), manager.get_plugin("capturemanager")
    if terminal is not None and capture is not None:
        with capture.global_and_fixture_disabled():
            terminal.ensure_newline()
            terminal.write_line(f"{text} ...")
