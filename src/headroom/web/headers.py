"""The headers of every answer: nothing that a cluster says can run in a browser, and no data are kept there."""

from __future__ import annotations

from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
FRESH: Final = {"Cache-Control": "no-store"}
ASK_AGAIN: Final = {"Cache-Control": "no-cache"}
"""For files that only change with the program: a browser keeps them and asks whether they still are the same."""
ON_THE_WAY: Final = web.RequestKey[dict[str, str]]("headers")
"""Under this key a request carries the headers of its answer, for one that begins before its handler ends."""


@web.middleware
async def with_headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every answer has the headers, also one that is no page."""
    request[ON_THE_WAY] = HEADERS | (ASK_AGAIN if request.path.startswith("/static/") else FRESH)
    try:
        response = await handler(request)
    except web.HTTPException as answer:
        answer.headers.update(request[ON_THE_WAY])
        raise
    if not response.prepared:
        response.headers.update(request[ON_THE_WAY])
    return response
