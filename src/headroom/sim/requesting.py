"""Our policies on ReleaseRequests as the simulated API server applies them: who may ask for a release, and in whose name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from headroom.api.policies import requesting
from headroom.api.releases import ReleaseRequest
from headroom.sim.answers import Body
from headroom.sim.calls import ApiCall

_PLURAL: Final = ReleaseRequest.kind.plural


def is_request(call: ApiCall) -> bool:
    """Whether the policies are asked at all."""
    return call.target.type.plural == _PLURAL and not call.target.subresource


def named(call: ApiCall, request: Body) -> Body:
    """A new request with the name of who makes it, unless it has one."""
    spec = request.get("spec") or {}
    return request if spec.get("requestedBy") else request | {"spec": spec | {"requestedBy": call.user}}


def wrong(
    call: ApiCall, old: Body | None, new: Body, may_release: Callable[[ApiCall, str], bool]
) -> tuple[str, dict[str, str]] | None:
    """What is wrong with a request, as words with places for values; `may_release` is asked about all holds, or the one of a name."""
    only = (new["spec"].get("budget") or "").replace("/", ".", 1)
    by = call.user if old is None else (old.get("spec") or {}).get("requestedBy", "")
    values = {"user": call.user, "only": f" {only}" if only else "", "named": new["spec"].get("requestedBy", "")}
    if not may_release(call, "") and not (only and may_release(call, only)):
        return requesting.NOT_RELEASER, values
    return None if values["named"] == by else (requesting.FORGED, values)
