"""Which pool may send a Secret where: the Secret itself says so, in an annotation.

Whoever writes a pool names Secrets and hosts. Without this, they could have the operator send any Secret that it may read to any
host that it may call. So each Secret names its users, as `KIND/NAME@HOST` or `KIND/NAMESPACE/NAME@HOST`, with commas or spaces
between them. A host is written as in --allow-egress: https and its usual port unless others are written. Nothing stands for many.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from msgspec import Struct

from headroom.adapters.egress import EgressTarget, target_of
from headroom.api.marks import USABLE_BY
from headroom.model.errors import Refused

AUTHORITY: Final = "ca.crt"
"""The key of a Secret that says who signs the certificate of its host."""
_BETWEEN: Final = re.compile(r"[\s,]+", re.ASCII)


class Secret(dict[str, str]):
    """The values of a Secret, and who may use it: nobody, unless it says so."""

    usable_by: str = ""
    place: str = ""
    """Namespace and name."""


class Use(Struct, frozen=True, kw_only=True):
    """Who wants to send a Secret where."""

    kind: str
    namespace: str = ""
    """Empty for a kind that has none."""
    name: str
    url: str
    """Any address of the host."""
    field: str
    """The field of the resource that names the Secret."""

    @property
    def user(self) -> str:
        """The resource, as a Secret names it."""
        return "/".join(part for part in (self.kind, self.namespace, self.name) if part)

    def __str__(self) -> str:
        return f"{self.user}@{target_of(self.url).entry}"


def is_usable(usable_by: str, user: str, target: EgressTarget) -> bool:
    """Whether an annotation names this user and this host. What cannot be read names nobody."""
    return (user, target.scheme, target.host, target.port) in _users(usable_by)


@lru_cache(maxsize=64)
def _users(usable_by: str) -> frozenset[tuple[str, str, str, int]]:
    """All that an annotation names; a thousand pools of a namespace may ask for one Secret in turn."""
    return frozenset(found for each in _BETWEEN.split(usable_by) if each and (found := _read(each)) is not None)


def _read(entry: str) -> tuple[str, str, str, int] | None:
    user, _, place = entry.partition("@")
    try:
        found = target_of(place if "://" in place else f"https://{place}")
    except Refused:
        return None
    # More than a host would look as if it were a limit.
    return (user, found.scheme, found.host, found.port) if (found.path, found.query) == ("/", "") else None


def check_usable(secret: Secret, name: str, use: Use) -> None:
    """Raise `Refused`, with what to write where, unless the Secret names its user and where it would be sent."""
    # Somebody who says nothing about who may use a Secret lends it to nobody.
    if is_usable(getattr(secret, "usable_by", ""), use.user, target_of(use.url)):
        return
    namespace = getattr(secret, "place", "").partition("/")[0]
    where = f" -n {namespace}" if namespace else ""
    raise Refused(
        f"{use.field}: Secret {name} does not allow {use}; to allow it, its owner annotates it: "
        f"kubectl annotate secret{where} {name} {USABLE_BY}={use}"
    )
