"""What an answer says of a machine's power. Whoever says it clearly is believed; anything else is Unknown."""

from __future__ import annotations

import json
from typing import Any, Final

from headroom.adapters.power.orders import State

_ON: Final = frozenset({"on", "poweron", "poweredon", "running", "up", "active", "true", "1"})
_OFF: Final = frozenset({"off", "poweroff", "poweredoff", "stopped", "down", "inactive", "shutoff", "false", "0"})
_POWERING_OFF: Final = frozenset(
    {"poweringoff", "poweringdown", "shuttingdown", "turningoff", "stopping", "suspending"}
)
_KEYS: Final = ("power", "powerstate", "state", "status")
"""The first of them that an answer has is the one that counts."""


def power_in(body: bytes) -> State:
    """The power in an answer: a JSON object with power, state or status, or just a word."""
    text = body.decode("utf-8", "replace")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return _word(text)
    if not isinstance(found, dict):
        return _word(found)
    for key in _KEYS:
        said = {_word(value) for name, value in found.items() if _folded(name) == key}
        if said:
            return said.pop() if len(said) == 1 else "Unknown"
    return "Unknown"


def _word(value: Any) -> State:
    # True is "true", 1 is "1"; lists and objects are no words.
    word = _folded(str(value)) if isinstance(value, str | bool | int) else ""
    if word in _POWERING_OFF:
        return "PoweringOff"
    return "On" if word in _ON else "Off" if word in _OFF else "Unknown"


def _folded(text: str) -> str:
    return text.strip().lower().replace("_", "").replace("-", "").replace(" ", "")
