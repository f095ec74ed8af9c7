"""The settings of the dashboard: the cluster's name, links to other tools, and by which label people are told apart."""

from __future__ import annotations

import re
from string import Formatter
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote, urlsplit

from msgspec import Struct

from headroom.api.resources import is_qualified_name
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headroom.runtime.settings import Settings

FIELDS: Final = frozenset({"namespace", "pod"})
MOST_LINKS: Final = 20
LONGEST_NAME: Final = 40
_UNPRINTABLE: Final = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029\u202a-\u202e\u2066-\u2069\"'<>\\^`|]")
"""What no address has as it stands; a template with such a sign is a slip, or an attempt."""


class ToolLink(NamedTuple):
    """A way to another tool."""

    name: str
    template: str
    fields: frozenset[str]
    """What must be known before it leads anywhere."""

    def to(self, names: Mapping[str, str]) -> str:
        """The address for these names, each of which stays one part of it whatever signs it has."""
        return self.template.format_map({each: _part(names[each]) for each in self.fields})


def _part(name: str) -> str:
    # Dots alone are folders to a browser, however they are written, and no name in Kubernetes.
    return "_" if name in (".", "..") else quote(name, safe="")


class Presentation(Struct, frozen=True, kw_only=True):
    """What an administrator says of the pages."""

    cluster: str = ""
    """The cluster's name."""
    links: tuple[ToolLink, ...] = ()
    user_key: str = ""
    """The label or annotation of a pod that names whose it is."""

    def links_for(self, **names: str) -> list[dict[str, str]]:
        """The links that need all of these names and no other."""
        return [{"name": each.name, "href": each.to(names)} for each in self.links if each.fields == names.keys()]


def presentation_of(settings: Settings) -> Presentation:
    """What the settings say of the dashboard. Raises `Misconfigured` for what cannot be read."""
    key = settings.dashboard_user
    if key and not is_qualified_name(key):
        raise _wrong("dashboard_user", f"must be one label or annotation such as example.com/user, not {key!r}")
    return Presentation(
        cluster=settings.cluster_name, links=tuple(_links(settings.dashboard_links.splitlines())), user_key=key
    )


def _links(lines: Iterable[str]) -> Iterable[ToolLink]:
    known: set[str] = set()
    for line in filter(None, (part.strip() for each in lines for part in each.split(" "))):
        name, equals, template = line.partition("=")
        name = name.replace("_", " ").strip()
        if not (name and equals) or len(name) > LONGEST_NAME or name in known or len(known) >= MOST_LINKS:
            raise _wrong(
                "dashboard_links",
                f"must be up to {MOST_LINKS} different NAME=URL with a space between them, such as "
                f"Grafana=https://grafana.example.com/d/gpu?var-pod={{pod}}, not {line!r}",
            )
        known.add(name)
        yield ToolLink(name, template, _fields(name, template))


def _fields(name: str, template: str) -> frozenset[str]:
    """The names that a template asks for. Raises `Misconfigured` if it may lead elsewhere than it looks."""
    try:
        parts = [each for each in Formatter().parse(template) if each[1] is not None]
        plain = template.format_map(dict.fromkeys(FIELDS, "x")) if {each[1] for each in parts} <= FIELDS else ""
        url, other = urlsplit(plain), urlsplit(template.format_map(dict.fromkeys(FIELDS, "y")) if plain else "")
        url.port  # noqa: B018  one that is no number is a mistake
    except (ValueError, KeyError, IndexError, AttributeError) as problem:
        raise _wrong("dashboard_links", f"{name}: the URL cannot be read: {problem}") from None
    if not plain or any(each[2] or each[3] for each in parts):
        raise _wrong("dashboard_links", f"{name}: {{namespace}} and {{pod}} are all that may stand in braces")
    if url.scheme not in ("http", "https") or not url.hostname or _UNPRINTABLE.search(plain):
        raise _wrong("dashboard_links", f"{name}: it must be an http:// or https:// address, not {template!r}")
    if "@" in url.netloc or (url.scheme, url.netloc) != (other.scheme, other.netloc):
        raise _wrong("dashboard_links", f"{name}: the host stands as it is: no user, no password, no braces")
    return frozenset(str(each[1]) for each in parts)


def _wrong(setting: str, why: str) -> Misconfigured:
    return Misconfigured(f"reading the settings: --{setting.replace('_', '-')} (HEADROOM_{setting.upper()}): {why}")
