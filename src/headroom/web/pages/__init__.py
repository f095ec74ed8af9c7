"""The pages as plain data: each is made from a view, for a scope. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headroom.core.usage import KIND
from headroom.model.decisions import Ref
from headroom.web.pages import decisions, nodes, power
from headroom.web.pages.budget import BudgetPage
from headroom.web.pages.decisions import Search, search
from headroom.web.pages.overview import Overview
from headroom.web.pages.parts import Model, frame, framed
from headroom.web.scope import Scope
from headroom.web.view import View

__all__ = ["ROUTES", "Model", "Page", "Pages", "Search", "decisions", "frame", "framed", "nodes", "search"]

ROUTES: Final = ("overview", "nodes", "decisions", "power", "budgets/{namespace}/{name}", "power/{name}")
"""Where there is a page: its kind, then the names of what it is about."""
Page = Callable[[View, Scope], Model | None]
"""Makes a page without its frame, the same for all who may see the same; None if there is no such page for them."""


class Pages:
    """Makes every page, and remembers for a moment what is dear to work out."""

    def __init__(self) -> None:
        self.overview: Page = Overview().model
        self.nodes: Page = nodes.model
        self.power: Page = power.model
        self._budget = BudgetPage()
        self._plain = {"nodes": self.nodes, "power": self.power}
        self._of_names: dict[str, Callable[..., Page]] = {
            "decisions": self.decisions,
            "budgets": self.budget,
            "power": self.pool,
        }

    def budget(self, namespace: str, name: str) -> Page:
        """The page of one budget."""
        return lambda view, scope: self._budget.model(view, scope, Ref(KIND, namespace, name))

    def pool(self, name: str) -> Page:
        """The page of one power pool."""
        return lambda view, scope: power.pool(view, scope, name)

    def decisions(self, wanted: Search) -> Page:
        """What was decided, searched."""
        return lambda view, scope: decisions.model(view.journal, view.clock.now(), scope, wanted)

    def of(self, address: tuple[Any, ...]) -> Page:
        """The page at an address: its kind, then the names of what it is about, or what is looked for."""
        what, *names = address
        made = self._of_names.get(what) if names else None
        return made(*names) if made else self._plain.get(what, self.overview)
