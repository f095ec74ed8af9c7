"""The chart values of vaclab-bandwidth-operator as settings of the operator: the capacity of every node's links, and the annotations of pods."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

Json = Any

_LINKS: Final = {
    "local": ("HEADROOM_BANDWIDTH_LOCAL", 20_000),
    "network": ("HEADROOM_BANDWIDTH_NETWORK", 1_000),
}
"""The setting of each link, and what the chart gave both directions of it unless told otherwise, in Mbps."""
_DIRECTIONS: Final = ("uplink", "downlink")
_ANNOTATIONS: Final = {
    "egress": "HEADROOM_BANDWIDTH_EGRESS_ANNOTATIONS",
    "ingress": "HEADROOM_BANDWIDTH_INGRESS_ANNOTATIONS",
}
_STANDARD: Final = ("kubernetes.io/egress-bandwidth", "kubernetes.io/ingress-bandwidth")
"""Which the CNI reads in bits per second; the older system read a plain number under any key as Mbps."""
_MOST: Final = 10**9
HEADING: Final = "manager.bandwidth and manager.annotations are settings of the operator now; give it this environment:"


def is_of_chart(document: Json) -> bool:
    """Whether these are chart values with something about bandwidth."""
    manager = _mapping(document, "manager")
    return bool(_mapping(manager, "bandwidth") or _mapping(manager, "annotations"))


def settings(document: Json) -> dict[str, str]:
    """The settings that they become, by the name of their variable."""
    manager = _mapping(document, "manager")
    capacity, keys = _mapping(manager, "bandwidth"), _mapping(manager, "annotations")
    return dict([*_capacities(capacity), *_annotations(keys)])


def refused(document: Json) -> Iterator[str]:
    """What cannot be taken over."""
    capacity = _mapping(_mapping(document, "manager"), "bandwidth")
    for link in _LINKS:
        for direction, value in _mapping(capacity, link).items():
            if direction in _DIRECTIONS and _mbps(value) is None:
                yield f"manager.bandwidth.{link}.{direction} must be whole Mbps, such as 10000, not {value!r}; it is left out"


def remarks(document: Json) -> Iterator[str]:
    """What is read in another way here."""
    keys = _mapping(_mapping(document, "manager"), "annotations").values()
    if standard := [key for key in keys if key in _STANDARD]:
        yield (
            f"{', '.join(standard)}: a plain number was Mbps in the older system; it is bits per second here and for the "
            "CNI, so write 100M and not 100"
        )


def _capacities(capacity: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    for link, (name, usual) in _LINKS.items():
        given = {key: _mbps(value) for key, value in _mapping(capacity, link).items() if key in _DIRECTIONS}
        if any(given.values()):
            # There, 0 stood for the default.
            yield name, "/".join(_spoken(given.get(direction) or usual) for direction in _DIRECTIONS)


def _annotations(keys: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    for direction, name in _ANNOTATIONS.items():
        key = keys.get(direction)
        if isinstance(key, str) and key:
            yield name, key if key in _STANDARD else f"{key}=Mbps"


def _mbps(value: Json) -> int | None:
    """Whole Mbps, as a chart has them: a number, or its text."""
    text = str(value).strip()
    if isinstance(value, bool) or not (text.isascii() and text.isdigit()) or len(text) > len(str(_MOST)):
        return None
    return int(text)


def _spoken(mbps: int) -> str:
    return f"{mbps // 1000}G" if mbps % 1000 == 0 else f"{mbps}M"


def _mapping(document: Json, key: str) -> dict[str, Json]:
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}
