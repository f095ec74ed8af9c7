"""The settings of bandwidth as rules: lists of annotations, amounts and labels, each mistake named by its setting."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headroom.api.quantities import InvalidQuantity
from headroom.api.resources import is_qualified_name
from headroom.core.bandwidth import parse_pair
from headroom.model.bandwidth import AnnotationKey, BandwidthRules, Links, Rates
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.model.facts import Pairs
    from headroom.runtime.settings import Settings


def rules_of(settings: Settings) -> BandwidthRules:
    """What the settings say of bandwidth. Raises `Misconfigured` for what cannot be read."""
    egress = _keys("bandwidth_egress_annotations", settings.bandwidth_egress_annotations)
    ingress = _keys("bandwidth_ingress_annotations", settings.bandwidth_ingress_annotations)
    if both := {each.name for each in egress} & {each.name for each in ingress}:
        raise _wrong("bandwidth_ingress_annotations", f"must not name {min(both)}, which is for egress")
    return BandwidthRules(
        mode=settings.bandwidth_mode,
        egress=egress,
        ingress=ingress,
        defaults=_rates("bandwidth_defaults", settings.bandwidth_defaults) if settings.bandwidth_defaults else None,
        default_capacity=Links(
            _rates("bandwidth_local", settings.bandwidth_local),
            _rates("bandwidth_network", settings.bandwidth_network),
        ),
        siblings=settings.bandwidth_siblings,
        device_plugin_labels=_labels("bandwidth_device_plugin_labels", settings.bandwidth_device_plugin_labels),
    )


def _keys(setting: str, text: str) -> tuple[AnnotationKey, ...]:
    """`key,key=Mbps`."""
    found: dict[str, AnnotationKey] = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        name, equals, unit = (part.strip() for part in each.partition("="))
        if not is_qualified_name(name) or name in found or (equals and unit not in ("bits", "Mbps")):
            raise _wrong(setting, f"must be annotations such as example.com/rate,example.com/mbit=Mbps, not {text!r}")
        found[name] = AnnotationKey(name, "Mbps" if unit == "Mbps" else "bits")
    if not found:
        raise _wrong(setting, "must name at least one annotation")
    return tuple(found.values())


def _rates(setting: str, text: str) -> Rates:
    found = parse_pair(text)
    if isinstance(found, InvalidQuantity):
        raise _wrong(
            setting, f"must be up/down such as 25G/10G, or one value for both, not {text!r}: it {found.reason}"
        )
    return found


def _labels(setting: str, text: str) -> Pairs:
    """`key=value,key=value`; one key may have several values."""
    parts = [each.partition("=") for each in filter(None, (part.strip() for part in text.split(",")))]
    if any(not (key and equals) for key, equals, _ in parts):
        raise _wrong(setting, f"must be labels such as key=value,key=value, not {text!r}")
    return tuple(sorted({(key.strip(), value.strip()) for key, _, value in parts}))


def _wrong(setting: str, what: str) -> Misconfigured:
    name = f"--{setting.replace('_', '-')} (HEADROOM_{setting.upper()})"
    return Misconfigured(f"reading the settings: {name} {what}")
