"""Reads an object and changes that very version of it, so that no write ever hits another object of the same name."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Final, TypeVar

from headroom.adapters.kube import errors, raw, values
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.values import OURS

TRIES: Final = 4
"""How often a change is worked out anew when somebody else changes the object at the same moment."""

Wire = TypeVar("Wire", bound=raw.Object)
Patch = dict[str, Any]


class ChangeOutcome(Enum):
    """What became of a change."""

    GONE = "gone"
    SAME = "same"
    """It was so already."""
    CHANGED = "changed"


async def read(kube: Kube, path: str, kind: type[Wire]) -> Wire | None:
    """The object as it is now; None if there is none."""
    try:
        return raw.read(await kube.get(path), kind)
    except errors.NotFound:
        return None


async def change(
    kube: Kube, path: str, kind: type[Wire], patch_of: Callable[[Wire], Patch | None], *, uid: str = "", part: str = ""
) -> tuple[ChangeOutcome, Wire | None]:
    """Read the object, work out a merge patch for it or a part of it, and send that for this version only; None is no change.

    What was read is handed back too.
    """
    for left in reversed(range(TRIES)):
        found = await read(kube, path, kind)
        if found is None or (uid and meta(found).uid != uid):
            return ChangeOutcome.GONE, None
        patch = patch_of(found)
        if patch is None:
            return ChangeOutcome.SAME, found
        tie = {"uid": meta(found).uid, "resourceVersion": meta(found).resource_version}
        try:
            await kube.merge_patch(
                f"{path}/{part}" if part else path, patch | {"metadata": patch.get("metadata", {}) | tie}
            )
        except errors.NotFound:
            return ChangeOutcome.GONE, None
        except errors.Conflict:
            if not left:
                raise
        else:
            return ChangeOutcome.CHANGED, found
    raise AssertionError("the last try returns or raises")


async def remove_finalizers(kube: Kube, path: str, *, uid: str = "") -> None:
    """Ours go, all others stay, whoever else changes the object at the same moment."""

    def without(found: raw.Object) -> Patch | None:
        there = meta(found).finalizers or []
        kept = [each for each in there if not each.startswith(OURS)]
        return {"metadata": {"finalizers": kept}} if len(kept) < len(there) else None

    await change(kube, path, raw.Object, without, uid=uid)


def meta(found: raw.Object) -> raw.RawObjectMeta:
    """Its metadata."""
    return found.metadata or raw.RawObjectMeta()


def labels(found: raw.Object) -> dict[str, str]:
    """Its labels."""
    return dict(values.pairs(meta(found).labels))


def notes(found: raw.Object) -> dict[str, str]:
    """Its annotations."""
    return meta(found).annotations or {}


def annotated(changes: dict[str, Any]) -> Patch:
    """The patch that sets annotations; None removes one."""
    return {"metadata": {"annotations": changes}}


def split(key: str) -> tuple[str, str]:
    """Namespace and name."""
    namespace, _, name = key.partition("/")
    return namespace, name
