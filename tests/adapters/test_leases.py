"""What is taken for a Lease and what is not: an answer that is none is no reason to end, and none to take the lease."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.leases import KubeLeases
from headroom.adapters.kube.transport import Reply
from headroom.model.errors import Unavailable
from tests.runtime.fakes import HandClock

METADATA = {"name": "lease", "namespace": "ours", "uid": "u-1", "resourceVersion": "7"}


class Answering:
    """A transport that answers everything with the same body."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def request(self, method: str, path: str, **_: Any) -> Reply:
        return Reply(200, self._body)


def leases(body: bytes) -> KubeLeases:
    return KubeLeases(Kube(Answering(body), HandClock()), "ours", "lease")  # type: ignore[arg-type]  # only requests


def document(**members: Any) -> bytes:
    return json.dumps(
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": METADATA} | members
    ).encode()


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"Lease","metadata":{"name":"\xff\xfe","uid":"u","resourceVersion":"1"}}',
        b'{"kind":"Lease","metadata":{"uid":"u","resourceVersion":"1","labels":{"a":"\\ud800"}}}',
        b"\xff\xfe\x00",
        b"",
        b"{}",
        b"[]",
        b"null",
        b"<html>not now</html>",
        b"[" * 100_000,
        document(metadata=None),
        document(metadata={}),
        document(metadata={"uid": "u"}),
        document(metadata={"resourceVersion": "1"}),
        document(kind="Status"),
        document(kind="LeaseList"),
        document(kind=None),
        document(spec="mine"),
        document(spec={"leaseDurationSeconds": "long"}),
        document(spec={"holderIdentity": ["me"]}),
    ],
    ids=lambda body: body[:40].decode("latin-1"),
)
async def test_what_is_no_lease_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(Unavailable, match="the answer is not a Lease"):
        await leases(body).read()
    with pytest.raises(Unavailable, match="the answer is not a Lease"):
        await leases(body).write("me", 15, None)


async def test_a_lease_that_says_little_is_one() -> None:
    for body in (document(), document(spec=None), document(spec={}, more={"than": "we know"})):
        found = await leases(body).read()
        assert found is not None
        assert (found.holder, found.duration_seconds, found.version) == ("", 15, "u-1/7")
