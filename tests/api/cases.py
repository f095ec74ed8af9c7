"""What a case is, and the cases that many fields share.

A number is given as `number("24.0")` where the way it is written matters.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

API_VERSION = "headroom.dev/v1alpha1"
LEFT_OUT = "@left out"
MEGABYTE = "9" * 2**20


def number(text: str) -> str:
    """A JSON number written exactly so; `documents.as_json` puts it in place."""
    return f"@number:{text}"


@dataclass(frozen=True)
class At:
    """A value of one field that makes another field wrong."""

    value: Any
    field: str


@dataclass(frozen=True)
class Cases:
    """What one field may hold and may not; `beside` are other fields that must change with it."""

    valid: Sequence[Any]
    invalid: Sequence[Any]
    beside: dict[str, Any] = field(default_factory=dict)


def manifest(kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


NOT_TEXT = (3, True, ["a"], {"a": "b"}, number("1.5"))
BOOL = Cases(valid=(True, False, None), invalid=("true", "", 0, 1, [], {}, number("1.0")))


def whole(least: int, most: int, **more: Any) -> Cases:
    valid = (least, most, number(f"{least}.0"), number(f"{most}.0"), number("1e0"), number("10e-1"))
    absurd = (2**63, -(2**63) - 1, number("1e400"), number("1.5"), number(f"{least}.00000001"))
    return Cases(valid=valid, invalid=(least - 1, most + 1, f"{least}", "", True, [], {}, *absurd), **more)


def word(longest: int, *valid: str) -> Cases:
    """An id of a cloud."""
    bad = ("", " ", "a b", "-a", "a\n", "ä", "ａ", "a/b", "a" * (longest + 1), MEGABYTE)
    return Cases(valid=(*valid, "a" * longest, "A.b_c-D"), invalid=(*bad, *NOT_TEXT))


def object_name(*valid: str, **more: Any) -> Cases:
    bad = ("", "A", "a_b", "a..b", "-a", "a-", "a.", "a b", "a\n", "ä", "a" * 254)
    return Cases(valid=(*valid, "a" * 253, "a.b-c.9"), invalid=(*bad, *NOT_TEXT), **more)


def free_text(longest: int, *valid: str, empty: bool = True) -> Cases:
    # The API server counts characters, not bytes.
    return Cases(
        valid=(*valid, "ä" * longest, "𝒜" * longest, *([""] if empty else [])),
        invalid=("a" * (longest + 1), "ä" * (longest + 1), MEGABYTE, *([] if empty else [""]), *NOT_TEXT),
    )


LABELS = Cases(
    valid=(
        {"team": "a"},
        {"example.com/team": ""},
        {"a" * 63: "b" * 63},
        {"a" * 253 + "/" + "b" * 63: "x"},
        {"a": "b", "none": None},
        {f"k{i}": "x" for i in range(32)},
    ),
    invalid=(
        {"a b": "x"},
        {"": "x"},
        {"/a": "x"},
        {"a/": "x"},
        {"a/b/c": "x"},
        {"A.com/b": "x"},
        {"a\n": "x"},
        {"ä": "x"},
        {"a" * 64: "x"},
        {"a" * 254 + "/b": "x"},
        {"a" * 400 + "/b": "x"},
        {"a": "x y"},
        {"a": "x\n"},
        {"a": "-x"},
        {"a": "ä"},
        {"a": "b" * 64},
        {"a": 1},
        {"a": True},
        {"a": ["b"]},
        {"a": {"b": "c"}},
        {f"k{i}": "x" for i in range(33)},
        ["a"],
        "a=b",
    ),
)
