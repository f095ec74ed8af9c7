"""Who may read: whoever shows a token that the API server knows and that has the right to get the path."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from headroom.model.errors import HeadroomError


class Judge(Protocol):
    """Knows who may read what."""

    async def may(self, token: str, path: str) -> bool:
        """Whether the bearer of the token may get the path."""
        ...


def guard(judge: Judge) -> Middleware:
    """A middleware that lets nothing through without leave."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        # A path that is not ours is no reason to ask the API server.
        resource = request.match_info.route.resource
        if request.match_info.http_exception is not None or resource is None:
            return _plain(404, "There is nothing here.")
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return _plain(401, "Send a token: Authorization: Bearer TOKEN.", {"WWW-Authenticate": "Bearer"})
        # All files of a folder are one right.
        path = resource.canonical
        try:
            allowed = await judge.may(token.strip(), path)
        except HeadroomError:
            # The reason is for the operator's log and metrics, not for a stranger.
            return _plain(503, "The API server cannot be asked who you are; try again.", {"Retry-After": "5"})
        if not allowed:
            return _plain(403, f"This token has no right to get {path}; bind it to a ClusterRole with nonResourceURLs.")
        return await handler(request)

    return guarded


def _plain(status: int, text: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(status=status, text=text + "\n", headers=headers)
