"""Pages whose models a test makes up: what a cluster says at a moment that is hard to come by."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable
from typing import Any

from playwright.sync_api import Page, Route

from tests.browser.served import Served

Model = dict[str, Any]


def told(page: Page, served: Served, path: str, change: Callable[[Model], None]) -> None:
    """From now on the page hears the real model of a path, changed."""
    with urllib.request.urlopen(f"{served.url}/api/{path}", timeout=60) as reply:
        model: Model = json.load(reply)
    change(model)
    body = f"retry: 3600000\nevent: state\ndata: {json.dumps(model)}\n\n"

    def answer(route: Route) -> None:
        route.fulfill(content_type="text/event-stream", body=body)

    page.route(f"**/api/live/{path}", answer)
