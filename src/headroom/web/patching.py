"""What changed between two states of a page, as a JSON Merge Patch (RFC 7396)."""

from __future__ import annotations

from typing import Any


def patch(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What to merge into `before` to get `after`. Pages hold no null, so null can say that something is gone."""
    found: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if old == value and name in before:
            continue
        if isinstance(old, dict) and isinstance(value, dict):
            # A new object is merged into the old one by whoever applies this, so what went must be said.
            found[name] = patch(old, value)
        else:
            found[name] = value
    return found
