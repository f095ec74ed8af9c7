"""The verdict on one resource: what is true of it, what is due, why, and when to look again."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import Struct, structs

from headroom.api.resources import Status
from headroom.model.action_names import identity_of
from headroom.model.actions import Action, RemoveFinalizer

_NOTHING: Final[tuple[Any, ...]] = (None, "", [], {})
_VERDICTS: Final = ("Ready", "QuotaExceeded", "Holding", "Unserved", "NativePlacement")
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
    routine: bool = False
    """All is well with one of very many resources: the history leaves it out, or it would hold nothing else."""

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
    """Those that remove finalizers, of which there may be very many, and all others."""
    every = tuple(actions)
    return (
        tuple(action for action in every if isinstance(action, RemoveFinalizer)),
        tuple(action for action in every if not isinstance(action, RemoveFinalizer)),
    )


def status_wire(status: Status) -> dict[str, Any]:
    """A status as it is written to the API server: what is not known is left out, not written as nothing, unless the API asks for it."""
    return _known(status)


def _known(found: Struct) -> dict[str, Any]:
    out = {}
    for name, wire, is_required in _fields(type(found)):
        value = _inner(name, getattr(found, name))
        if is_required or value not in _NOTHING:
            out[wire] = value
    return out


@cache
def _fields(kind: type[Struct]) -> tuple[tuple[str, str, bool], ...]:
    return tuple((each.name, each.encode_name, each.required) for each in structs.fields(kind))


def _inner(name: str, value: Any) -> Any:
    if isinstance(value, tuple):
        if name == "conditions":  # a condition is written whole, as Kubernetes wants it
            return [msgspec.to_builtins(each) for each in value]
        return [_inner("", each) for each in value]
    if isinstance(value, Struct):
        return _known(value)
    if isinstance(value, dict):
        return {key: told for key, each in value.items() if (told := _inner("", each)) not in _NOTHING}
    return value
