"""Secrets are read from the operator's own namespace unless another is named, when they are needed, and nothing of them is told."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from headroom.adapters.kube import paths
from headroom.adapters.kube.secrets import Secrets
from headroom.model.errors import Refused, Unavailable
from headroom.sim import faults as wrong
from tests.adapters.simulated import Cluster, virtual

CANARY = "canary-7f3a"


def put(cluster: Cluster, namespace: str, name: str, usable_by: str = "", **data: Any) -> None:
    cluster.server.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    annotations = {"headroom.dev/usable-by": usable_by} if usable_by else {}
    metadata = {"name": name, "namespace": namespace, "annotations": annotations}
    cluster.server.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded})


@virtual
async def test_the_values_of_a_secret_of_our_own_namespace() -> None:
    cluster = Cluster()
    put(cluster, "headroom-system", "bmc", username=b"admin", password=CANARY.encode())
    put(cluster, "team-a", "theirs", token=CANARY.encode())
    secrets = Secrets(cluster.kube, "headroom-system")
    assert await secrets.read("bmc") == {"username": "admin", "password": CANARY}
    for name in ("theirs", "../team-a/theirs", "../../team-a/secrets/theirs"):
        with pytest.raises(Refused):
            await secrets.read(name)


@virtual
async def test_another_namespace_is_read_only_where_it_is_named() -> None:
    cluster = Cluster()
    put(cluster, "headroom-system", "keys", secretId=b"ours")
    put(cluster, "team-a", "keys", usable_by="Spotpool/team-a/one@cvm.example.com", secretId=b"theirs")
    secrets = Secrets(cluster.kube, "headroom-system")
    found = await secrets.read("keys", "team-a")
    assert (found, found.place) == ({"secretId": "theirs"}, "team-a/keys")
    assert (await secrets.read("keys"))["secretId"] == "ours"
    with pytest.raises(Refused, match="team-b/keys"):
        await secrets.read("keys", "team-b")
    cluster.transport._faults.add(wrong.Refusal(path="*/team-a/secrets/*", status=403, reason="Forbidden"))
    with pytest.raises(Refused, match="kubectl create role -n team-a headroom-secret-keys"):
        await secrets.read("keys", "team-a")


@virtual
async def test_it_says_itself_who_may_use_it() -> None:
    cluster = Cluster()
    put(cluster, "headroom-system", "bmc", usable_by="PowerPool/rack@bmc.example.com", username=b"admin")
    put(cluster, "headroom-system", "mute", token=CANARY.encode())
    secrets = Secrets(cluster.kube, "headroom-system")
    assert [(await secrets.read(name)).usable_by for name in ("bmc", "mute")] == ["PowerPool/rack@bmc.example.com", ""]


@virtual
async def test_what_cannot_be_read_is_told_without_what_it_holds() -> None:
    cluster = Cluster()
    put(cluster, "headroom-system", "odd", token=b"\xff\xfe" + CANARY.encode())
    secrets = Secrets(cluster.kube, "headroom-system")
    with pytest.raises(Refused, match="reading Secret headroom-system/odd: not all of its values are text") as caught:
        await secrets.read("odd")
    assert CANARY not in repr(caught.value) + repr(caught.value.__cause__)
    put(cluster, "headroom-system", "fine", token=CANARY.encode())
    cluster.transport._faults.add(wrong.Slow(path="*/secrets/*", ms=10_000))
    with pytest.raises(Unavailable, match="reading Secret headroom-system/fine: no answer within 2s"):
        await secrets.read("fine")


@virtual
async def test_we_may_lack_the_right() -> None:
    cluster = Cluster()
    put(cluster, "headroom-system", "fine", token=CANARY.encode())
    cluster.transport._faults.add(wrong.Refusal(path="*/secrets/*", status=403, reason="Forbidden"))
    remedy = "--verb=get --resource=secrets --resource-name=fine, and bind it to the operator's service account"
    with pytest.raises(Refused, match=f"reading secrets headroom-system/fine.*{remedy}"):
        await Secrets(cluster.kube, "headroom-system").read("fine")
    assert paths.secret("a/b", "..") == "/api/v1/namespaces/a%2Fb/secrets/%2E%2E"
