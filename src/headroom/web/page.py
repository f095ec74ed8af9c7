"""What the dashboard must know of a page: all routes, links and scripts come from such records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Page(NamedTuple):
    """One page: its route, its link, who makes its data and who draws them."""

    path: str
    """Where it is, in the browser and under `/api/`: `power/{name}`, with the names of what it is about."""
    script: str
    """The module of `static/app/pages` that draws it."""
    maker: Callable[[], Callable[..., dict[str, Any] | None]] | None = None
    """Called once: gives what makes the page from a view, a scope and the names in its path. None for one that is drawn from another page's data."""
    reads: Callable[[Mapping[str, str]], Any] | None = None
    """What its query string asks for, which follows the names. May raise `Misconfigured`."""
    link: str = ""
    """What the navigation calls it; empty for one that others lead to."""
    kind: str = ""
    """The kind of the resource that it is about, if it is about one."""
    noun: str = ""
    """What people call such a resource."""
