"""The README's installation as written: the operator on a workstation, and `headroom dashboard` beside it.

Nothing of Headroom runs in the cluster, and nothing is given but a kubeconfig.
"""

import asyncio
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headroom.api import generate, marks
from tests.control_plane import ControlPlane, find_assets, lacking, wait_until
from tests.integration.test_dashboard_access import (
    ENVIRONMENT,
    PROGRAM,
    SYSTEM,
    browser,
    dashboard,
    json_of,
    refused,
)
from tests.processes import PATIENCE_SECONDS, free_ports

INSTALL = re.findall(r"^## Install\n(.*?)^## ", (generate.ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[0]
STEPS = [re.split(r"\s{2,}#", each)[0] for each in re.findall(r"^ {4}(\S[^\n]*)$", INSTALL, re.MULTILINE)]


class Workstation:
    """The steps of the README, on a cluster in which Headroom has never been."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self._folder = plane, folder
        self.kubeconfig = plane.kubeconfig("admin")
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        path = f"{Path(sys.executable).parent}:{plane.assets}:{os.environ['PATH']}"
        self._environment = ENVIRONMENT | {"KUBECONFIG": str(self.kubeconfig), "PATH": path}
        self._environment["HEADROOM_STATE_DIR"] = str(folder)

    def install(self, step: str) -> str:
        command = ["bash", "-o", "pipefail", "-c", step]
        done = subprocess.run(
            command,
            cwd=generate.ROOT,
            capture_output=True,
            text=True,
            env=self._environment,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{step}: {done.stderr}"
        return done.stdout

    def start(self) -> None:
        self.port, health = free_ports(2)
        # The usual addresses, but for their ports, which other tests may have.
        addresses = {"METRICS": f"0.0.0.0:{self.port}", "HEALTH": f"0.0.0.0:{health}"}
        given = {f"HEADROOM_{name}_ADDRESS": value for name, value in addresses.items()}
        with (self._folder / "operator.log").open("ab") as log:
            environment = self._environment | given
            self._process = subprocess.Popen([*PROGRAM, "run"], stdout=log, stderr=log, env=environment)
        wait_until(lambda: str(self.port) in self.published().values(), "the lease says where the dashboard is")

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_SECONDS)
            self._process = None

    def published(self) -> dict[str, str]:
        found = json.loads(self.plane.kubectl("get", "leases", "--namespace", SYSTEM, "-o", "json"))["items"]
        kept = [each["metadata"].get("annotations", {}) for each in found if each["metadata"]["name"] == "headroom"]
        return kept[0] if kept else {}

    def holder(self, name: str) -> None:
        """Somebody else's name on the lease, once nobody has it."""
        patch = json.dumps({"spec": {"holderIdentity": name}})
        self.plane.kubectl("patch", "lease", "headroom", "--namespace", SYSTEM, "--type=merge", "-p", patch)


@pytest.fixture(scope="module")
def station(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workstation]:
    assets = find_assets()
    if why := lacking(assets, ()):
        pytest.skip(why)  # no control plane is built here; in CI a skip fails
    with ControlPlane(assets) as plane:
        made = Workstation(plane, tmp_path_factory.mktemp("operator"))
        # The last two go on until Ctrl-C, and the first one has been done for this test to run.
        assert [STEPS[0], *STEPS[-2:]] == ["make setup && . .venv/bin/activate", "headroom run", "headroom dashboard"]
        for step in STEPS[1:-2]:
            assert made.install(step)
        made.start()
        try:
            yield made
        finally:
            made.end(signal.SIGKILL)


async def test_the_dashboard_finds_the_operator_beside_it_and_again_after_a_restart(station: Workstation) -> None:
    with dashboard(station.kubeconfig) as address:
        async with browser(address) as client:
            status, overview = await json_of(client, "api/overview")
            assert (status, overview["viewer"]["everything"]) == (200, True)
            await asyncio.to_thread(station.end)
            assert (await json_of(client, "api/overview"))[0] == 502
            # With another port and another certificate.
            await asyncio.to_thread(station.start)
            assert (await json_of(client, "api/overview"))[0] == 200


def test_the_lease_has_the_certificate_that_the_dashboard_shows(station: Workstation) -> None:
    pem = station.published()[marks.DASHBOARD_CERTIFICATE]
    assert "PRIVATE" not in pem
    shown = ssl.get_server_certificate(("127.0.0.1", station.port))
    assert ssl.PEM_cert_to_DER_cert(shown) == ssl.PEM_cert_to_DER_cert(pem)


def test_nobody_else_on_this_host_is_shown_a_token(station: Workstation) -> None:
    """Another user of the host listens where the operator did."""
    station.end()
    assert not {marks.DASHBOARD_PORT, marks.DASHBOARD_CERTIFICATE} & station.published().keys()
    station.start()
    station.end(signal.SIGKILL)  # so that the lease still says where it was
    [other] = free_ports(1)
    with (station._folder / "other.log").open("ab") as log:
        given = {"HEADROOM_STATE_DIR": str(station._folder / "other")}
        flags = [f"--metrics-address=127.0.0.1:{station.port}", f"--health-address=127.0.0.1:{other}"]
        command = [*PROGRAM, "run", *flags, "--no-elect-leader"]
        with subprocess.Popen(command, stdout=log, stderr=log, env=station._environment | given) as thief:
            try:
                wait_until(lambda: _answers(station.port), "somebody answers")
                assert "its certificate is not trusted" in refused(station.kubeconfig)
            finally:
                thief.kill()
    station.holder(f"elsewhere-{os.getpid()}")
    assert "elsewhere" in refused(station.kubeconfig)


def _answers(port: int) -> bool:
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as near, tls.wrap_socket(near) as far:
            return bool(far.version())
    except OSError:
        return False
