"""What tells one action from another, and what each is done to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headroom.model.actions import BY_NAME, Action


def identity_of(action: Action) -> bytes:
    """What tells one action from another, less what moves by itself. Some carry specs, so they cannot be keys themselves."""
    if not action.moving:
        return msgspec.json.encode(action)
    fixed = (getattr(action, name) for name in action.__struct_fields__ if name not in action.moving)
    return msgspec.json.encode((type(action).__name__, *fixed))


def occurrence_of(action: Action) -> bytes:
    """What tells one try from another: two commands, or two events, are two although only something that moves tells them apart."""
    return msgspec.json.encode(action) if action.once else identity_of(action)


def target_of(action: Mapping[str, Any]) -> str:
    """What an action as it stands on the wire is done to; empty where that is nothing with a name."""
    known = BY_NAME.get(str(action.get("type")), Action)
    named = dict(zip(known.__struct_fields__, known.__struct_encode_fields__, strict=True))
    target = str(action.get(named.get(known.target, ""), ""))
    return f"{action['kind']}/{target}" if target and "kind" in action else target
