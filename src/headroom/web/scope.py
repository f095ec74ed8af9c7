"""What one viewer may see. The guard decides it, and every page is made for a scope."""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct


class Scope(Struct, frozen=True, kw_only=True):
    """What a viewer may see: everything, or some namespaces."""

    everything: bool = False
    namespaces: frozenset[str] = frozenset()
    nodes: bool = False
    """Nodes are cluster-scoped, so seeing them is a separate right."""

    def __bool__(self) -> bool:
        return self.everything or self.nodes or bool(self.namespaces)

    def sees(self, namespace: str) -> bool:
        """Whether objects of a namespace may be shown; an empty one stands for cluster-scoped objects."""
        return self.everything or (bool(namespace) and namespace in self.namespaces)


EVERYTHING: Final = Scope(everything=True, nodes=True)


class Access(Protocol):
    """An authorized viewer."""

    name: str
    """Their name on the API server; empty without authentication."""
    tenant: str
    """The tenant whose fair share they use."""

    async def scope(self) -> Scope:
        """What they may see now. Live pages ask before every message, so answers are cached for a while."""
        ...


class Anybody:
    """Any viewer of a server without a guard, on the loopback of their own machine."""

    name = tenant = ""

    async def scope(self) -> Scope:
        """Everything."""
        return EVERYTHING
