"""The pages as plain data: each is made from a view, for a scope. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from headroom.web.page import Page
from headroom.web.pages import decisions, nodes, pod
from headroom.web.pages.decisions import Search, search
from headroom.web.pages.namespace import NamespacePage
from headroom.web.pages.overview import Overview
from headroom.web.pages.parts import Model, frame, framed
from headroom.web.scope import Scope
from headroom.web.view import OperatorView

__all__ = [
    "FIRST",
    "LAST",
    "Maker",
    "Model",
    "Page",
    "Pages",
    "Search",
    "decisions",
    "frame",
    "framed",
    "nodes",
    "search",
]

Maker = Callable[[OperatorView, Scope], Model | None]
"""Makes a page without its frame, the same for all viewers with the same scope; None if they have no such page."""


def _search(view: OperatorView, scope: Scope, wanted: Search) -> Model:
    return decisions.model(view.journal, view.clock.now(), scope, wanted)


FIRST: Final = (
    Page("overview", "overview", lambda: Overview().model, link="Overview"),
    Page("nodes", "nodes", lambda: nodes.model, link="Nodes"),
)
"""The pages before those of the capabilities; the first one is the default."""
LAST: Final = (
    Page("pods/{namespace}/{name}", "pod", lambda: pod.model, kind="Pod", noun="pod"),
    Page("namespaces/{name}", "namespace", lambda: NamespacePage().model, kind="Namespace", noun="namespace"),
    Page("decisions", "decisions", lambda: _search, search, link="Decisions"),
    Page("resources", "resources", link="Resources"),
)


class Pages:
    """Makes all pages, and caches expensive results for a moment."""

    def __init__(self, pages: Iterable[Page]) -> None:
        self._makers: dict[tuple[str, int], Callable[..., Model | None]] = {}
        for each in pages:
            if each.maker is not None:
                what, *names = each.path.split("/")
                self._makers[what, len(names) + bool(each.reads)] = each.maker()

    def of(self, address: tuple[Any, ...]) -> Maker:
        """The page at an address: its kind, then the names of its object or the search; the first page if the address is empty."""
        what, *given = address
        if (maker := self._makers.get((what, len(given)))) is None:
            given, maker = [], next(iter(self._makers.values()))
        return lambda view, scope: maker(view, scope, *given)
