"""The verdict on one resource: what is true of it, what is due, why, and when to look again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from msgspec import Struct

from headroom.api.resources import Status
from headroom.model.actions import Action, RemoveFinalizer, identity_of

_VERDICTS: Final = ("Ready", "QuotaExceeded", "Holding", "Unserved")
"""Conditions whose news the message of a decision has already."""


class Ref(Struct, frozen=True, order=True):
    """Which resource."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(part for part in (self.kind, self.namespace, self.name) if part)


class Decision(Struct, frozen=True, kw_only=True):
    """What a plan says of one resource."""

    resource: Ref
    status: Status
    reason: str
    message: str
    actions: tuple[Action, ...] = ()
    look_again_ms: int = 60_000
    next_turn_ms: int | None = None
    """When the clock alone will change the verdict, if nothing happens; None where only looking again tells."""

    def warnings(self) -> list[str]:
        """What else people should know: conditions that hold and are no verdict on the resource itself."""
        told = (each for each in self.status.conditions if each.status == "True" and each.type not in _VERDICTS)
        return [f"{each.type}: {each.message}" for each in told]

    def wire(self) -> dict[str, Any]:
        """The form that `plan -o json`, logs and the dashboard show."""
        return {
            "resource": msgspec.to_builtins(self.resource),
            "status": status_wire(self.status),
            "actions": [msgspec.to_builtins(action) for action in self.actions],
            "reason": self.reason,
            "message": self.message,
            "lookAgainAfterSeconds": -(-self.look_again_ms // 1000),
        }


def substance(decision: Decision) -> tuple[object, tuple[bytes, ...]]:
    """What makes two decisions different ones: not the numbers and moments in them, which move by themselves."""
    verdicts = [(each.type, each.status, each.reason) for each in decision.status.conditions]
    return (decision.reason, verdicts), tuple(identity_of(each) for each in split_finalizers(decision.actions)[1])


def split_finalizers(actions: Iterable[Action]) -> tuple[tuple[Action, ...], tuple[Action, ...]]:
    """Those that let go of finalizers, of which there may be very many, and all others."""
    every = tuple(actions)
    return (
        tuple(action for action in every if isinstance(action, RemoveFinalizer)),
        tuple(action for action in every if not isinstance(action, RemoveFinalizer)),
    )


def status_wire(status: Status) -> dict[str, Any]:
    """A status as it is written to the API server: what is not known is left out, not written as nothing."""
    found: dict[str, Any] = msgspec.to_builtins(status)
    return _known(found)


def _known(found: dict[str, Any]) -> dict[str, Any]:
    out = {name: _inner(name, value) for name, value in found.items()}
    return {name: value for name, value in out.items() if value not in (None, "", [], (), {})}


def _inner(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return _known(value)
    if isinstance(value, list | tuple) and name != "conditions":  # a condition is written whole, as Kubernetes wants it
        return [_known(each) if isinstance(each, dict) else each for each in value]
    return value
