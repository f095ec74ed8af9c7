"""The authority of client certificates is followed as the cluster publishes it, and what is wrong with it is told once."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.client_authority import ClientAuthority
from headroom.adapters.kube.transport import Reply
from headroom.model.errors import Misconfigured, Unavailable
from tests.runtime.fakes import HandClock

PATH = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


class Server:
    """An API server with one ConfigMap."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = {"client-ca-file": "one", "requestheader-client-ca-file": "never"}
        self.status = 200

    async def request(self, method: str, path: str, **_: Any) -> Reply:
        assert (method, path) == ("GET", PATH)
        if self.status == 0:
            raise Unavailable("reading configmaps: cannot reach it")
        body = {"data": self.data} if self.status == 200 else {"message": "no", "reason": "Forbidden"}
        return Reply(self.status, json.dumps(body).encode())

    def stream(self, *_: Any, **__: Any) -> AsyncIterator[bytes]:
        raise AssertionError("nothing is watched here")

    async def close(self) -> None:
        pass


class Following:
    def __init__(self) -> None:
        self.server = Server()
        self.trusted: list[str] = []
        self.told: list[str] = []
        kube = Kube(self.server, HandClock())
        self.authority = ClientAuthority(kube, self._trust, self.told.append)

    def _trust(self, pem: str) -> None:
        if pem == "broken":
            raise Misconfigured("reading the authorities of clients: no PEM certificates in it")
        self.trusted.append(pem)


@pytest.fixture
def following() -> Following:
    return Following()


async def test_changes_are_followed_and_the_same_is_not_trusted_twice(following: Following) -> None:
    for name in ("one", "one", "two", "one"):
        following.server.data = {"client-ca-file": name}
        await following.authority.look()
    assert (following.trusted, following.told) == (["one", "two", "one"], [])


@pytest.mark.parametrize("status", [0, 403, 500])
async def test_what_was_read_stays_while_it_cannot_be_read_and_that_is_told_once(
    following: Following, status: int
) -> None:
    await following.authority.look()
    following.server.status = status
    await following.authority.look()
    await following.authority.look()
    assert (following.trusted, len(following.told)) == (["one"], 1)
    assert "configmaps" in following.told[0]
    following.server.status = 200
    following.server.data = {"client-ca-file": "two"}
    await following.authority.look()
    assert following.trusted == ["one", "two"]
    following.server.status = status
    await following.authority.look()
    assert len(following.told) == 2, "it is told again when it happens again"


@pytest.mark.parametrize(("status", "data"), [(404, None), (200, None), (200, {"other": "x"})])
async def test_an_authority_that_is_gone_is_trusted_no_more(
    following: Following, status: int, data: dict[str, str] | None
) -> None:
    await following.authority.look()
    following.server.status, following.server.data = status, data
    await following.authority.look()
    assert following.trusted == ["one", ""]
    assert following.told[0].endswith("has no client-ca-file; only tokens are accepted")


async def test_one_that_is_broken_changes_nothing_and_is_tried_again(following: Following) -> None:
    await following.authority.look()
    following.server.data = {"client-ca-file": "broken"}
    await following.authority.look()
    assert (following.trusted, len(following.told)) == (["one"], 1)
    following.server.data = {"client-ca-file": "two"}
    await following.authority.look()
    assert following.trusted == ["one", "two"]
