"""What people may see of a kind: the shape of the record that each capability fills in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from headroom.adapters.kube.client import Kube
    from headroom.api.kinds import AnyResource
    from headroom.api.schema import Problem
    from headroom.core.capacity import CapacityRound, PodAnswer
    from headroom.model.decisions import Decision, Ref
    from headroom.model.facts import Pod
    from headroom.model.world import World
    from headroom.runtime.metrics import Measure
    from headroom.runtime.settings import Settings
    from headroom.web.page import Page

Line = tuple[int, str]
"""A moment, and what happened."""


class Tells(Protocol):
    """An answer of `headroom explain`."""

    @property
    def is_plan(self) -> bool:
        """Whether it is what would be done, and not from the operator's last status."""
        ...

    def wire(self) -> dict[str, Any]:
        """The form for machines."""
        ...

    def show(self) -> None:
        """Print the form for people."""
        ...


class NamedPart(NamedTuple):
    """Something in the resources of a kind that can be asked about by its own name."""

    name: str
    words: tuple[str, ...]
    """By which it can be asked about."""
    meaning: str
    decided: Callable[[World, str], Tells]
    """What is decided on a world that was given. Raises `Misconfigured` if there is none of that name."""
    written: Callable[[Kube, Settings, str], Awaitable[Tells]]
    """What the operator's last status says of it."""


class Story(Protocol):
    """What happens to the resources of a kind, in words; it remembers what it has told."""

    def decided(self, decision: Decision, now: int) -> Iterable[Line]:
        """What a decision tells that differs from the one before it."""
        ...

    def news(self, ref: Ref, decision: Decision, resource: AnyResource, now: int) -> Iterable[Line]:
        """What only moves in a status."""
        ...


class Face(NamedTuple):
    """Of one kind. What is not given is done as for any other kind."""

    show: Callable[[AnyResource, Any], None] | None = None
    """Prints a resource with its status."""
    advice: Callable[[AnyResource, Collection[str], Iterable[AnyResource]], list[Problem]] | None = None
    """What is dubious about a valid resource, by the fields that its spec gives itself, and beside others."""
    pages: Callable[[], tuple[Page, ...]] = tuple
    """Its pages of the dashboard."""
    section: str = ""
    """Under which name `headroom status` has its rows; it has those of other kinds together."""
    row: Callable[[World, AnyResource, Decision | None], dict[str, Any]] | None = None
    """One resource in a few numbers and words: those that are decided, or else written."""
    table: Callable[[dict[str, Any], bool], None] | None = None
    """Prints its section of all that `headroom status` found, whole or as much as a screen takes."""
    metrics: Callable[[CollectorRegistry], Measure] | None = None
    story: Callable[[], Story] | None = None
    """Tells of its resources while a demo runs."""
    parts: tuple[NamedPart, ...] = ()
    answers: Callable[[CapacityRound, Pod], PodAnswer | None] | None = None
    """What its resources do for a pod without a node; None where they have nothing to do with it."""
    answers_written: Callable[[World, str], str] | None = None
    """The same by what their statuses say of that very pod, for who may not see all that decides."""
    notes: Callable[[World, Pod, Mapping[Ref, Any]], Iterable[str]] | None = None
    """What else its resources say of a pod, wherever it is, by the statuses that are known of them."""
