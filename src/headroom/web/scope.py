"""What one viewer may see. The guard says so, and every page is made for a scope."""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct


class Scope(Struct, frozen=True, kw_only=True):
    """What may be seen: everything, or some namespaces."""

    everything: bool = False
    namespaces: frozenset[str] = frozenset()
    nodes: bool = False
    """Nodes are of no namespace, so they are a right of their own."""

    def __bool__(self) -> bool:
        return self.everything or self.nodes or bool(self.namespaces)

    def sees(self, namespace: str) -> bool:
        """Whether what is in a namespace may be shown; an empty one stands for what is in none."""
        return self.everything or (bool(namespace) and namespace in self.namespaces)


EVERYTHING: Final = Scope(everything=True, nodes=True)


class Access(Protocol):
    """One who was let in."""

    name: str
    """As the API server knows them; empty where nobody is asked."""
    tenant: str
    """Whose share they take."""

    async def scope(self) -> Scope:
        """What they may see now; asked again before every message of a live page, so answers are kept for a while."""
        ...


class Anybody:
    """Whoever comes to a server without a guard, on the loopback of their own machine."""

    name = tenant = ""

    async def scope(self) -> Scope:
        """All there is."""
        return EVERYTHING
