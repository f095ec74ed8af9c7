"""Which method carries out which action: told at the method, found by the action's class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from headroom.model.actions import Action

Method = TypeVar("Method", bound=Callable[..., Any])
_MARK: Final = "_carries_out"


def carries_out(*kinds: type[Action]) -> Callable[[Method], Method]:
    """Mark a method as the one that carries these actions out."""

    def marked(method: Method) -> Method:
        setattr(method, _MARK, kinds)
        return method

    return marked


def handlers_of(*parts: object) -> dict[type[Action], Callable[..., Any]]:
    """The marked methods of some objects, by action class; one action has one handler."""
    found: dict[type[Action], Callable[..., Any]] = {}
    for part in parts:
        for name in dir(type(part)):
            for kind in getattr(getattr(type(part), name), _MARK, ()):
                if kind in found:
                    raise TypeError(f"{kind.__name__} has two handlers: {found[kind].__qualname__} and {name}")
                found[kind] = getattr(part, name)
    return found
