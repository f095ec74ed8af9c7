"""What is asked now and then: the answer is followed, and a question that nobody answers changes nothing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.looking import RightToDelete
from headroom.adapters.kube.transport import Reply
from headroom.model.errors import Unavailable
from tests.runtime.fakes import HandClock


class Server:
    """An API server that knows whether we may delete pods."""

    def __init__(self) -> None:
        self.allows: bool | None = False

    async def request(self, method: str, path: str, **more: Any) -> Reply:
        assert (method, path) == ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        asked = json.loads(more["body"])["spec"]["resourceAttributes"]
        assert (asked["verb"], asked["resource"], asked.get("namespace", "")) == ("delete", "pods", "")
        if self.allows is None:
            raise Unavailable("asking: cannot reach it")
        return Reply(201, json.dumps({"status": {"allowed": self.allows}}).encode())

    def stream(self, *_: Any, **__: Any) -> AsyncIterator[bytes]:
        raise AssertionError("nothing is watched here")

    async def close(self) -> None:
        pass  # there is nothing to let go of


async def test_the_right_to_delete_is_followed_and_stays_known_while_nobody_answers() -> None:
    server, noted, told = Server(), list[bool](), list[str]()
    right = RightToDelete(Kube(server, HandClock()), noted.append, told.append)
    for allows in (False, None, None, True, None):
        server.allows = allows
        await right.look()
    assert noted == [False, True]
    assert len(told) == 2, "once for each time that it cannot be asked"
