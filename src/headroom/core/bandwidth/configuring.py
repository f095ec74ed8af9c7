"""What the API server's policies must know of an administrator's rules, and when they are told."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import structs

from headroom.api.bandwidth_config import CONFIG_NAME, BandwidthConfigSpec, RateKey
from headroom.api.quantities import InvalidQuantity
from headroom.core.bandwidth.rates import parse_rate
from headroom.model.actions import Action, ApplyBandwidthConfig
from headroom.model.bandwidth import MEGABIT, AnnotationKey, BandwidthRules, Rates, exact_mbps
from headroom.model.world import World


def config_of(rules: BandwidthRules) -> BandwidthConfigSpec:
    """The rules in the words of the policies."""
    defaults = rules.defaults
    return BandwidthConfigSpec(
        mode=rules.mode,
        egress=tuple(map(_key, rules.egress)),
        ingress=tuple(map(_key, rules.ingress)),
        default_egress=_text(defaults.up, rules.egress) if defaults else "",
        default_ingress=_text(defaults.down, rules.ingress) if defaults else "",
    )


def _key(key: AnnotationKey) -> RateKey:
    return RateKey(annotation=key.name, unit=key.unit)


def _text(bits: int, keys: tuple[AnnotationKey, ...]) -> str:
    """A default as a pod says it: in the unit of the first annotation."""
    if not (bits and keys):
        return ""
    if keys[0].unit == "Mbps":
        return exact_mbps(bits)
    return str(bits) if bits % MEGABIT else f"{bits // MEGABIT}M"


def rules_with(rules: BandwidthRules, config: BandwidthConfigSpec | None) -> BandwidthRules:
    """Rules with what the policies were told of them: for who has other settings than the operator."""
    if config is None:
        return rules
    egress, ingress = (
        tuple(AnnotationKey(each.annotation, each.unit) for each in keys) for keys in (config.egress, config.ingress)
    )
    found = structs.replace(rules, mode=config.mode, egress=egress, ingress=ingress, defaults=None)
    up, down = _bits(config.default_egress, egress), _bits(config.default_ingress, ingress)
    return structs.replace(found, defaults=Rates(up, down)) if up or down else found


def _bits(text: str, keys: tuple[AnnotationKey, ...]) -> int:
    found = parse_rate(text, keys[0].unit) if text and keys else 0
    return 0 if isinstance(found, InvalidQuantity) else found


def due(world: World) -> Iterator[Action]:
    """Have the policies told where they are installed and know something else."""
    found, wanted = world.bandwidth_configs.get(CONFIG_NAME), config_of(world.bandwidth)
    if not world.bandwidth_problem and (found is None or found.spec != wanted):
        yield ApplyBandwidthConfig(spec=wanted)


def problem(world: World) -> str:
    """Why rates of new pods are neither refused nor reserved at the API server, as a sentence; empty while all is well."""
    if world.bandwidth_problem:
        return world.bandwidth_problem
    return "The BandwidthConfig headroom does not say what the settings say yet." if [*due(world)] else ""
