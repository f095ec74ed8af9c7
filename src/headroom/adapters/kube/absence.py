"""Whether a kind or an object is really not there: a 404 alone proves neither, since anything on the way can answer one.

A kind is absent when discovery lists the other kinds and not this one, and for a kind of our own when its definition is gone
too. An object is gone when the API server says so by its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.listwatch import Identity
from headroom.api.resources import GROUP
from headroom.model.errors import HeadroomError, Unavailable

PROOF_SECONDS: Final = 120.0
"""For so long every answer must say that a kind is not there: a definition that is being replaced is not served for a moment."""
ASK_SECONDS: Final = 5.0
_EVERY_CLUSTER_HAS: Final = "batch"
"""A list of groups without this one is no list of groups."""


class _Version(Struct):
    version: str


class _Group(Struct):
    name: str
    versions: list[_Version]


class _Groups(Struct):
    kind: str
    groups: list[_Group]


class _Resource(Struct):
    name: str


class _Resources(Struct, rename="camel"):
    kind: str
    group_version: str
    resources: list[_Resource]


class _Metadata(Struct):
    name: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None


class _Object(Struct):
    metadata: _Metadata


_GROUPS: Final = msgspec.json.Decoder(_Groups)
_RESOURCES: Final = msgspec.json.Decoder(_Resources)
_OBJECT: Final = msgspec.json.Decoder(_Object)


def is_ours(path: str) -> bool:
    """Whether an address is that of a kind of Headroom's own."""
    return path.startswith(f"/apis/{GROUP}/")


class AbsentKind:
    """Collects the proof that one kind is not served."""

    def __init__(self, kube: Kube, path: str) -> None:
        self._kube, self._path = kube, path
        self._since: float | None = None
        self._is_proven = False

    def refute(self) -> None:
        """The kind was seen."""
        self._since, self._is_proven = None, False

    async def is_proven(self, *, at_once: bool) -> bool:
        """Ask again, and say whether every answer for `PROOF_SECONDS` was that it is not there; with `at_once` one is enough.

        What was proven stays so while nothing can be learnt.
        """
        said = await self._is_missing()
        if said is None:
            return self._is_proven
        now = self._kube.clock.monotonic()
        if not said:
            self.refute()
        elif self._since is None:
            self._since = now
        self._is_proven = self._since is not None and (at_once or now - self._since >= PROOF_SECONDS)
        return self._is_proven

    async def _is_missing(self) -> bool | None:
        """Whether the API server says that the kind is not there; None if it says nothing that can be relied on."""
        _, group, version, plural = self._path.strip("/").split("/")[:4]
        try:
            groups = _GROUPS.decode(await self._kube.get("/apis", timeout=ASK_SECONDS))
            served = {each.name: {one.version for one in each.versions} for each in groups.groups}
            if groups.kind != "APIGroupList" or _EVERY_CLUSTER_HAS not in served:
                return None
            if version in served.get(group, ()):
                found = _RESOURCES.decode(await self._kube.get(f"/apis/{group}/{version}", timeout=ASK_SECONDS))
                if found.kind != "APIResourceList" or found.group_version != f"{group}/{version}":
                    return None
                if any(each.name == plural for each in found.resources):
                    return False
            return not is_ours(self._path) or await self._is_undefined(f"{plural}.{group}")
        except (HeadroomError, msgspec.MsgspecError, UnicodeDecodeError):
            return None

    async def _is_undefined(self, name: str) -> bool:
        """Whether there is no CustomResourceDefinition of that name."""
        path = paths.of("apiextensions.k8s.io", "v1", "customresourcedefinitions", name=name)
        try:
            await self._kube.get(path, timeout=ASK_SECONDS)
        except errors.NotFound as problem:
            return errors.says_gone(problem, name)
        return False


async def is_gone(kube: Kube, path: str, query: Mapping[str, str], known: Identity) -> bool:
    """Whether an object that a list lacks is really gone, or no longer what the list asks for: it is read by its name.

    Raises `Unavailable` if the answer says neither.
    """
    try:
        found = _OBJECT.decode(await kube.get(paths.object_of(path, known.namespace, known.name))).metadata
    except errors.NotFound as problem:
        if not errors.says_gone(problem, known.name):
            raise Unavailable(f"{problem}; that does not say that {known.name} is gone") from problem
        return True
    except (msgspec.MsgspecError, UnicodeDecodeError) as problem:
        raise Unavailable(f"reading {known.name} of {paths.spoken(path)}: {problem}") from problem
    if found.name != known.name or not found.uid:
        raise Unavailable(f"reading {known.name} of {paths.spoken(path)}: the answer is not that object")
    return found.uid != known.uid or not _selects(query.get("labelSelector", ""), found.labels or {})


def _selects(selector: str, labels: Mapping[str, str]) -> bool:
    """By the two forms of selectors that we watch with: a key, or a key with its value."""
    key, has_value, value = selector.partition("=")
    return not key or (labels.get(key) == value if has_value else key in labels)
