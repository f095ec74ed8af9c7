"""Our policies on ReleaseRequests as the simulated API server applies them: who may ask for a release, and in whose name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headroom.api.policies import requesting
from headroom.api.releases import ReleaseRequest
from headroom.sim.answers import Body
from headroom.sim.calls import Call

_PLURAL: Final = ReleaseRequest.kind.plural


def is_request(call: Call) -> bool:
    """Whether the policies are asked at all."""
    return call.target.type.plural == _PLURAL and not call.target.subresource


def named(call: Call, request: Body) -> Body:
    """A new request with the name of who makes it, unless it has one."""
    spec = request.get("spec") or {}
    return request if spec.get("requestedBy") else request | {"spec": spec | {"requestedBy": call.user}}


def wrong(
    call: Call, old: Body | None, new: Body, may_release: Callable[[Call, str], bool]
) -> tuple[str, dict[str, str]] | None:
    """What is wrong with a request, as words with places for values; `may_release` is asked about all holds, or the one of a name."""
    only = (new["spec"].get("budget") or "").replace("/", ".", 1)
    by = call.user if old is None else (old.get("spec") or {}).get("requestedBy", "")
    values = {"user": call.user, "only": f" {only}" if only else "", "named": new["spec"].get("requestedBy", "")}
    if not may_release(call, "") and not (only and may_release(call, only)):
        return requesting.NOT_RELEASER, values
    return None if values["named"] == by else (requesting.FORGED, values)
