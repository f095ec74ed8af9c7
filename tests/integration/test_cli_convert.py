"""What five older systems were told, through `convert`, `check` and `plan`, onto a real API server, with our own client."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.config import load
from headroom.adapters.kube.http import HttpTransport
from headroom.api.kinds import KINDS
from headroom.runtime.clock import RealClock
from tests.cli import samples
from tests.control_plane import ControlPlane, wait_until
from tests.integration.test_cli_live import headroom

NAMESPACE = "converted"
NODES = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: gpu-node-manager, namespace: autoprovision}
spec:
  template:
    spec:
      containers:
      - name: main
        env:
        - {name: RACK_A_NAME, value: rack-a}
        - {name: RACK_A_GPU_COUNT, value: "2"}
        - {name: RACK_A_SCALE_UP_ENDPOINT, value: "https://power.example.com/rack-a/on"}
        - {name: RACK_A_SCALE_DOWN_ENDPOINT, value: "https://power.example.com/rack-a/off"}
"""
# What is given, and the kinds that come of it.
FORMS: dict[str, tuple[str, list[str]]] = {
    "budget": (samples.BUDGET, ["GPUWorkloadBudget"]),
    "spotpool": (samples.SPOTPOOL, ["Secret", "Spotpool"]),
    "environment": (samples.ENVIRONMENT, ["PowerPool"]),
    "exported": (samples.ENVIRONMENT.replace("GPU_NODE", "export GPU_NODE"), ["PowerPool"]),
    "docker": (samples.DOCKER, ["PowerPool"]),
    "chart values": (samples.VALUES, ["PowerPool"]),
    "deployment": (NODES, ["PowerPool"]),
    "bandwidth": (samples.BANDWIDTH, ["Bandwidth"]),
    "leftover": (samples.LEFTOVER, ["LeftoverNodePool"]),
}


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    control_plane.kubectl("apply", "--server-side", "-f", "-", input=headroom("crds").stdout)
    control_plane.kubectl("create", "namespace", NAMESPACE)
    names = [f"{kind.plural}.headroom.dev" for kind in KINDS.values()]
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=300s", "crd", *names)
    wait_until(lambda: "lonp" in control_plane.kubectl("api-resources", "--api-group=headroom.dev"), "kinds are served")
    yield control_plane
    # Others use the same plane, and would find two budgets of one name.
    control_plane.kubectl("delete", "gwb,spotpool,secret", "-n", NAMESPACE, "--all")
    for made in ("powerpool/gpu-machines", "bandwidth/node-name", "leftovernodepool/quick-test"):
        control_plane.kubectl("delete", made)


def collection(document: dict[str, Any]) -> str:
    kind = document["kind"]
    if kind == "Secret":
        return paths.of("", "v1", "secrets", NAMESPACE)
    return paths.collection(kind, NAMESPACE if KINDS[kind].namespaced else "")


def created(plane: ControlPlane, documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Create every object, as `kubectl create -n converted` would, and say what the server made of it."""

    async def work() -> list[dict[str, Any]]:
        clock, found = RealClock(), []
        kube = Kube(HttpTransport(load(str(plane.kubeconfig()), ""), clock), clock)
        try:
            for each in documents:
                path = collection(each)
                if "namespaces" in path:
                    each["metadata"]["namespace"] = NAMESPACE
                with contextlib.suppress(errors.NotFound):  # nothing was left by another form
                    await kube.delete(f"{path}/{each['metadata']['name']}")
                found.append(json.loads(await kube.create(path, each)))
        finally:
            await kube.close()
        return found

    return asyncio.run(work())


def is_part(part: Any, whole: Any) -> bool:
    """Whether all that one value says stands in the other, which may say more."""
    if isinstance(part, dict):
        return all(key in whole and is_part(each, whole[key]) for key, each in part.items())
    if isinstance(part, list):
        return len(part) == len(whole) and all(map(is_part, part, whole))
    return bool(part == whole)


@pytest.mark.parametrize("form", FORMS)
def test_every_form_ends_on_the_api_server(plane: ControlPlane, tmp_path: Path, form: str) -> None:
    text, kinds = FORMS[form]
    old, new = tmp_path / "old", tmp_path / "new.yaml"
    old.write_text(text)
    new.write_text(headroom("convert", old).stdout)
    documents = list(yaml.safe_load_all(new.read_text()))
    assert [each["kind"] for each in documents] == kinds
    assert "no problems" in headroom("check", new).stdout
    planned = json.loads(headroom("plan", "-f", new, "-o", "json").stdout)
    assert planned["problems"] == []
    assert [each["resource"]["kind"] for each in planned["decisions"]] == [each for each in kinds if each in KINDS]
    stored = created(plane, documents)
    for before, after in zip(documents, stored, strict=True):
        if before["kind"] == "Secret":
            assert set(after["data"]) == set(before["stringData"])
        else:
            assert is_part(before["spec"], after["spec"]), "the server keeps every field that was given"


def test_the_list_as_json_is_taken_by_kubectl(plane: ControlPlane, tmp_path: Path) -> None:
    old = tmp_path / "old.yaml"
    old.write_text(samples.SPOTPOOL.replace("spotpool-sample", "as-json"))
    made = headroom("convert", old, "-o", "json").stdout
    plane.kubectl("apply", "-n", NAMESPACE, "-f", "-", input=made)
    kept = plane.kubectl("get", "spotpool,secret", "-n", NAMESPACE, "-o", "name").split()
    assert {"spotpool.headroom.dev/as-json", "secret/as-json-credentials"} <= set(kept)
