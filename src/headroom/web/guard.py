"""Authorization: users of the API server see the namespaces in which they may list budgets."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Final, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from headroom.adapters.kube.reviews import RequiredRight, Who, key_of
from headroom.api.kinds import KINDS
from headroom.api.resources import GROUP
from headroom.model.errors import HeadroomError
from headroom.web import certificate
from headroom.web.access import ACCESS
from headroom.web.rates import tenant_of
from headroom.web.scope import Scope

METRICS: Final = RequiredRight("get", "/metrics")
NODES: Final = RequiredRight("list", "nodes")
SCHEMES: Final = {"WWW-Authenticate": "Bearer"}
EVERY_USER: Final = "system:authenticated"
"""The API server puts everybody whom it knows into this group, and says so of tokens; of certificates it is left to us."""


class Judge(Protocol):
    """Knows who somebody is, and which rights they have. What it says it may have known for a while."""

    async def who(self, token: str) -> Who | None:
        """Whose token this is; None: nobody's."""
        ...

    async def allowed(self, who: Who, needs: Iterable[RequiredRight]) -> frozenset[RequiredRight]:
        """Those of the rights that they have."""
        ...


@lru_cache(maxsize=16_384)
def budgets_in(namespace: str) -> RequiredRight:
    """The right that makes a namespace visible; an empty one stands for all of them."""
    return RequiredRight("list", KINDS["GPUWorkloadBudget"].plural, GROUP, namespace)


class Viewer:
    """One who makes a request, for as long as it lasts: an `Access`. Their token is kept nowhere but in the request itself."""

    def __init__(self, request: web.Request, judge: Judge, namespaces: Callable[[], Collection[str]]) -> None:
        self._request, self._judge, self._namespaces = request, judge, namespaces
        self.name = self.tenant = ""

    async def who(self) -> Who | None:
        """Who they are now: by their token, or, where they show none, by the certificate of their connection."""
        header = self._request.headers.get("Authorization")
        if header is not None:
            scheme, _, token = header.partition(" ")
            known = await self._judge.who(token.strip()) if scheme.lower() == "bearer" else None
        else:
            known = self._certified()
        self.name = known.name if known else ""
        self.tenant = tenant_of(self.name)
        return known

    async def scope(self) -> Scope:
        """What they may see now; nothing, if their credential does not hold any more."""
        who = await self.who()
        if who is None:
            return Scope()
        fleet = await self._judge.allowed(who, (budgets_in(""), NODES))
        nodes = NODES in fleet
        if budgets_in("") in fleet:
            return Scope(everything=True, nodes=nodes)
        mine = await self._judge.allowed(who, map(budgets_in, self._namespaces()))
        return Scope(namespaces=frozenset(each.namespace for each in mine), nodes=nodes)

    async def may(self, need: RequiredRight) -> bool:
        """Whether they have a right."""
        who = await self.who()
        return who is not None and need in await self._judge.allowed(who, (need,))

    def _certified(self) -> Who | None:
        shown = certificate.shown(self._request.get_extra_info("ssl_object"))
        return Who(key_of(shown.der), shown.name, groups=(*shown.groups, EVERY_USER)) if shown else None


def guard(judge: Judge, namespaces: Callable[[], Collection[str]]) -> Middleware:
    """A middleware that lets nothing through without leave, and says whose request it is.

    `namespaces` are those that there is something to see in.
    """

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        # Unknown paths are refused without a call to the API server.
        resource = request.match_info.route.resource
        if request.match_info.http_exception is not None or resource is None:
            return _problem(404, "Not found.")
        viewer = Viewer(request, judge, namespaces)
        try:
            refusal = await _refusal(viewer, resource.canonical)
            if refusal is not None:
                return refusal
            request[ACCESS] = viewer
            # It asks what they may see once more.
            return await handler(request)
        except HeadroomError:
            # The reason goes to the operator's log and metrics, not to a stranger.
            return _problem(503, "The API server could not verify who you are; try again.", {"Retry-After": "5"})

    return guarded


async def _refusal(viewer: Viewer, path: str) -> web.Response | None:
    """The error response if a user may not read a path; None if they may. The page without its data is for every authenticated user."""
    who = await viewer.who()
    if who is None:
        unknown = _problem(
            401,
            "Authentication required: send a token that the API server accepts (Authorization: Bearer TOKEN), or a client "
            "certificate of the cluster. `headroom dashboard` does that for you.",
            SCHEMES,
        )
        # A client presents its certificate once per connection; another certificate needs another connection.
        unknown.force_close()
        return unknown
    if path == "/" or path.startswith("/static"):
        return None
    if path == METRICS.resource:
        if await viewer.may(METRICS):
            return None
        return _problem(403, f"{who.name} may not read /metrics; bind them to the ClusterRole headroom-metrics-reader.")
    if await viewer.scope():
        return None
    return _problem(
        403,
        f"There is no namespace with budgets in which {who.name} may list gpuworkloadbudgets.headroom.dev; bind them to "
        "the ClusterRole headroom-view in the namespaces of their team, or to headroom-viewer in the whole cluster.",
    )


def _problem(status: int, sentence: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response({"problem": sentence}, status=status, headers=headers)
