"""The pages as plain data: each is made from a view, for a scope. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable

from headroom.core.usage import KIND
from headroom.model.decisions import Ref
from headroom.web.pages import decisions, nodes
from headroom.web.pages.budget import BudgetPage
from headroom.web.pages.decisions import Search, search
from headroom.web.pages.overview import Overview
from headroom.web.pages.parts import Model, frame
from headroom.web.scope import Scope
from headroom.web.view import View

__all__ = ["Model", "Page", "Pages", "Search", "search"]

Page = Callable[[View, Scope, str], Model | None]
"""Makes a page for a scope and the viewer's name; None if there is no such page for them."""


class Pages:
    """Makes every page, and remembers for a moment what is dear to work out."""

    def __init__(self) -> None:
        self._overview, self._budget = Overview(), BudgetPage()

    def overview(self, view: View, scope: Scope, name: str) -> Model:
        """The first page."""
        return frame(view, scope, name) | self._overview.model(view, scope)

    def nodes(self, view: View, scope: Scope, name: str) -> Model:
        """The nodes."""
        return frame(view, scope, name) | nodes.model(view, scope)

    def budget(self, namespace: str, budget: str) -> Page:
        """The page of one budget."""

        def page(view: View, scope: Scope, name: str) -> Model | None:
            model = self._budget.model(view, scope, Ref(KIND, namespace, budget))
            return None if model is None else frame(view, scope, name) | model

        return page

    def decisions(self, wanted: Search) -> Page:
        """What was decided, searched."""

        def page(view: View, scope: Scope, name: str) -> Model:
            return frame(view, scope, name) | decisions.model(view, scope, wanted)

        return page
