"""Who makes a request."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from headroom.web.scope import Access

ACCESS: Final = web.RequestKey[Access]("access")
"""Under this key a request carries the `Access` of whoever makes it."""
