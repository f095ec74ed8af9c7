"""Every kubectl command of the pages works as written, on a real API server with our kinds, policies and roles."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from tests.cli.doc_commands import PAGES, commands_of, document_of, parts
from tests.control_plane import ControlPlane, find_assets, lacking

ROOT = Path(__file__).parents[2]
WITH_KUBECTL = [
    page
    for page in PAGES
    if any(words[0] == "kubectl" for each in commands_of(page.read_text()) for words in parts(each))
]
MADE = {"secret": "secret", "role": "role", "rolebinding": "rolebinding", "clusterrolebinding": "clusterrolebinding"}
FILES = {"join.sh": "#!/bin/sh\n", "bmc-ca.pem": "a certificate\n"}


def _objects() -> Iterator[dict[str, Any]]:
    """What the pages take for granted."""
    for name in ("team-a", "lab", "headroom-system"):
        yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    yield {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "net-worker-1"}}
    ours = {"apiVersion": "headroom.dev/v1alpha1"}
    yield ours | {
        "kind": "Bandwidth",
        "metadata": {"name": "net-worker-1"},
        "spec": {"node": "net-worker-1", "capacity": {"network": {"ulMbps": 0, "dlMbps": 0}}},
    }
    budget = {"selector": {"matchLabels": {"team": "a"}}, "quota": {"gpuHours": "1", "windowHours": 24}}
    named = {"name": "team-a", "namespace": "default"}
    yield ours | {
        "kind": "GPUWorkloadBudget",
        "metadata": named,
        "spec": budget | {"enforcement": {"action": "AlertOnly"}},
    }
    pod = {"schedulingGates": [{"name": "headroom.dev/budget"}], "containers": [{"name": "main", "image": "main:1"}]}
    metadata = {"name": "name", "namespace": "default", "finalizers": ["headroom.dev/usage"]}
    yield {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """An API server with our kinds and roles, and what the pages name."""
    assets = find_assets()
    if why := lacking(assets):
        pytest.skip(why)  # no control plane is built here; in CI a skip fails
    with ControlPlane(assets, components=()) as plane:
        plane.apply(*(crd(kind) for kind in DEFINITIONS.values()))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=300s")
        plane.kubectl("apply", "-f", str(ROOT / "deploy" / "roles.yaml"))
        plane.apply(*_objects())
        yield plane


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _printed(words: list[str]) -> str:
    """What our program puts into the pipe."""
    done = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=True, timeout=120)
    return done.stdout


def _forget(cluster: ControlPlane, words: list[str]) -> None:
    """A page may make the same Secret twice, and pages the same role."""
    kind, rest = MADE.get(words[2], ""), [each for each in words[3:] if not each.startswith("--")]
    if words[1] == "create" and kind:
        name = rest[1] if kind == "secret" else rest[0]
        space = words[words.index("-n") + 1] if "-n" in words else "default"
        cluster.kubectl("delete", kind, name, "-n", space, "--ignore-not-found")


@pytest.mark.parametrize("page", WITH_KUBECTL, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_kubectl_commands_of_a_page_work_as_written(cluster: ControlPlane, folder: Path, page: Path) -> None:
    for name in ("pool.yaml", "budget.yaml"):
        (folder / name).write_text(document_of(page))
    for command in commands_of(page.read_text()):
        piped = ""
        for words in parts(command):
            if words[0] == "kubectl":
                _forget(cluster, words)
                given = ["name" if word == "NAME" else word for word in words[1:]]
                piped = cluster.kubectl(*given, input=piped)
            elif "|" in command and command.index(words[0]) == 0:
                piped = _printed(words)


@pytest.mark.parametrize("page", WITH_KUBECTL, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_roles_that_a_page_binds_exist(page: Path) -> None:
    text = page.read_text()
    deployed = "".join(each.read_text() for each in (ROOT / "deploy").glob("*.yaml"))
    bound = {name for each in commands_of(text) for name in re.findall(r"--clusterrole=(\S+)", each)}
    assert [name for name in bound if f"name: {name}\n" not in deployed and f"name: {name}}}" not in text] == []
