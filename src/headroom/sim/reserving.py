"""The policies on bandwidth as the simulated API server applies them: the rules of `api/policies/bandwidth`, in Python."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from headroom.api.bandwidth import MARKER, SIBLINGS, TRAFFIC
from headroom.api.bandwidth_config import (
    EXAMPLES,
    EXTENDED_RATES,
    EXTENDER,
    LOCALITY,
    NATIVE,
    BandwidthConfigSpec,
    RateKey,
)
from headroom.api.policies.bandwidth import EDITED, LONGEST_SHOWN, MALFORMED, NO_LABEL, NO_TRAFFIC, NOT_ASKED
from headroom.api.quantities import InvalidQuantity, nano
from headroom.core.bandwidth import parse_rate
from headroom.model.bandwidth import mbps
from headroom.sim.answers import Body

Wrong = tuple[str, dict[str, str]]
"""A sentence with places, and what goes there."""
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


class _Way(NamedTuple):
    """One direction of a pod."""

    said: list[RateKey]
    default: str
    """What it gets if it says nothing; empty for nothing."""
    key: RateKey | None

    def mbps(self, annotations: Mapping[str, str]) -> int:
        """Whole Mbps; 0 for nothing that can be read."""
        if self.key is None:
            return 0
        text = annotations[self.key.annotation] if self.said else self.default
        found = parse_rate(text, self.key.unit)
        return 0 if isinstance(found, InvalidQuantity) else mbps(found)


def config_of(stored: Body | None) -> BandwidthConfigSpec | None:
    """The parameter of the policies; None where there is none."""
    return msgspec.convert(stored["spec"], BandwidthConfigSpec) if stored else None


def reserved(config: BandwidthConfigSpec, pod: Body) -> Body:
    """A new pod with what its mode needs."""
    annotations, ways = _annotations(pod), _ways(config, pod)
    added = {way.key.annotation: way.default for way in ways.values() if way.key and not way.said and way.default}
    if _on_host(pod) or not (added or any(way.said for way in ways.values())):
        return pod
    if added:
        pod = pod | {"metadata": pod["metadata"] | {"annotations": annotations | added}}
    if amounts := _wanted(config, pod):
        first, *others = pod["spec"]["containers"]
        resources = dict(first.get("resources") or {})
        resources |= {part: (resources.get(part) or {}) | amounts for part in ("requests", "limits")}
        pod = pod | {"spec": pod["spec"] | {"containers": [first | {"resources": resources}, *others]}}
    return _near_siblings(pod) if config.mode == NATIVE else pod


def wrong(config: BandwidthConfigSpec, old: Body | None, new: Body, is_exempt: Callable[[], bool]) -> Wrong | None:
    """Why a new pod, or a change of one, is refused."""
    if old is None:
        return next(_wrong_in(config, new), None)
    before, after = _annotations(old), _annotations(new)
    keys = [*(key.annotation for key in (*config.egress, *config.ingress)), TRAFFIC, LOCALITY]
    edited = [key for key in keys if before.get(key) != after.get(key)]
    if config.mode == "Off" or not edited or is_exempt():
        return None
    return EDITED, {"key": " and ".join(edited)}


def _wrong_in(config: BandwidthConfigSpec, pod: Body) -> Iterator[Wrong]:
    annotations, ways = _annotations(pod), _ways(config, pod)
    for key in (key for way in ways.values() for key in way.said):
        value = annotations[key.annotation]
        if isinstance(parse_rate(value, key.unit), InvalidQuantity):
            yield MALFORMED, {"key": key.annotation, "value": _shown(value), "example": EXAMPLES[key.unit]}
    if annotations.get(TRAFFIC, SIBLINGS) != SIBLINGS:
        yield NO_TRAFFIC, {"key": TRAFFIC, "value": _shown(annotations[TRAFFIC])}
    label = annotations.get(LOCALITY)
    if label is not None and label not in (pod["metadata"].get("labels") or {}):
        yield NO_LABEL, {"key": LOCALITY, "value": _shown(label)}
    if not any(way.said for way in ways.values()) and not {TRAFFIC, LOCALITY} & annotations.keys():
        return
    asked = ((pod["spec"]["containers"][0].get("resources") or {}).get("requests")) or {}
    missing = [
        f"{amount} {name}"
        for name, amount in _wanted(config, pod).items()
        if name not in asked or nano(str(asked[name])) != nano(amount)
    ]
    if missing:
        yield NOT_ASKED, {"missing": " and ".join(missing)}


def _wanted(config: BandwidthConfigSpec, pod: Body) -> dict[str, str]:
    """What the first container has to ask for."""
    annotations = _annotations(pod)
    asked = {name: way.mbps(annotations) for name, way in _ways(config, pod).items()}
    if _on_host(pod) or not any(asked.values()) or config.mode == "Off":
        return {}
    if config.mode == EXTENDER:
        return {MARKER: "1"}
    return {names[0]: str(asked[way]) for way, names in EXTENDED_RATES.items() if asked[way]}


def _ways(config: BandwidthConfigSpec, pod: Body) -> dict[str, _Way]:
    annotations, found = _annotations(pod), {}
    for way, keys, default in (
        ("egress", config.egress, config.default_egress),
        ("ingress", config.ingress, config.default_ingress),
    ):
        said = [key for key in keys if key.annotation in annotations]
        found[way] = _Way(said, default, next(iter(said or keys), None))
    return found


def _near_siblings(pod: Body) -> Body:
    label = _annotations(pod).get(LOCALITY)
    labels = pod["metadata"].get("labels") or {}
    affinity = pod["spec"].get("affinity") or {}
    near = affinity.get("podAffinity") or {}
    if label is None or label not in labels or _PREFERRED in near:
        return pod
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {label: labels[label]}}}
    near |= {_PREFERRED: [{"weight": 100, "podAffinityTerm": term}]}
    return pod | {"spec": pod["spec"] | {"affinity": affinity | {"podAffinity": near}}}


def _annotations(pod: Body) -> dict[str, str]:
    found: dict[str, Any] = pod["metadata"].get("annotations") or {}
    return found


def _on_host(pod: Body) -> bool:
    return bool(pod["spec"].get("hostNetwork"))


def _shown(text: str) -> str:
    return (text[:LONGEST_SHOWN] + "..." if len(text) > LONGEST_SHOWN else text).replace("\n", " ")
