"""What a list-watch reads, and where it puts it: pages, events, the decoder that makes them and the sink that keeps them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, NamedTuple, Protocol, TypeVar

from msgspec import Struct

Fact = TypeVar("Fact")
FactIn_contra = TypeVar("FactIn_contra", contravariant=True)


class ListPage(Struct, Generic[Fact], frozen=True, gc=False):
    """One page of a list."""

    items: list[Fact]
    version: str
    cont: str = ""
    """Where the next page begins; empty on the last one."""


class Event(Struct, Generic[Fact], frozen=True, gc=False):
    """One line of a watch."""

    type: str
    """ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""
    fact: Fact | None = None
    version: str = ""
    initial_end: bool = False
    """True for the bookmark with the annotation k8s.io/initial-events-end."""
    status_code: int = 0
    """The code of an ERROR."""
    message: str = ""
    """The words of an ERROR."""


class Identity(NamedTuple):
    """Which object a fact was read from."""

    namespace: str
    """Empty for objects that are in no namespace."""
    name: str
    uid: str


class Decoder(Protocol[Fact]):
    """Turns the server's JSON into facts.

    An object that cannot be understood must not raise, since the same object would come again for ever: its event has no
    fact, and its page leaves it out. Only what is no event or list at all raises `msgspec.MsgspecError`.
    """

    def page(self, body: bytes) -> ListPage[Fact]:
        """A page of a list."""
        ...

    def event(self, line: bytes) -> Event[Fact]:
        """A line of a watch."""
        ...


class Sink(Protocol[FactIn_contra]):
    """Holds the facts."""

    def key(self, fact: FactIn_contra) -> str:
        """What tells this fact from all others."""
        ...

    def keys(self) -> Iterable[str]:
        """The keys of all facts held."""
        ...

    def identity(self, key: str, /) -> Identity | None:
        """Which object the fact of that key was read from; None if there is no such fact."""
        ...

    def put(self, fact: FactIn_contra, *, listed: bool = False) -> None:
        """Hold a fact, in place of one with the same key.

        One that was `listed` is the truth, however old it looks: a cluster restored from a backup counts from lower versions.
        """
        ...

    def remove(self, key: str, last: FactIn_contra | None, seen_until: int, /) -> None:
        """Forget a fact; there may be none.

        `last` is its final state, None where nobody told. Up to `seen_until`, in milliseconds since 1970, it was surely there.
        """
        ...

    def listed(self) -> None:
        """A complete list has been taken in: the sink is now what the server has."""
        ...
