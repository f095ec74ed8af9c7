"""What the API server's policies are told of an administrator's rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from headroom.api.bandwidth_config import CONFIG_NAME, RateKey
from headroom.core.bandwidth.configuring import config_of, due, problem
from headroom.core.bandwidth.rates import asked_in, parse_rate
from headroom.model.actions import ApplyBandwidthConfig
from headroom.model.bandwidth import LEAST_BITS, MEGABIT, MOST_BITS, AnnotationKey, BandwidthRules, Rates
from headroom.model.bandwidth_facts import KnownBandwidthConfig
from headroom.model.world import World

NATIVE = BandwidthRules(mode="Native", defaults=Rates(20 * MEGABIT, 1500))


def known(spec: Any) -> World:
    configs = {CONFIG_NAME: KnownBandwidthConfig(name=CONFIG_NAME, spec=spec)}
    return World(now=0, bandwidth_problem="", bandwidth=NATIVE, bandwidth_configs=configs)


def test_the_rules_become_the_words_of_the_policies() -> None:
    found = config_of(NATIVE)
    assert (found.mode, found.default_egress, found.default_ingress) == ("Native", "20M", "1500")
    assert found.egress[1] == RateKey(annotation="ovn.kubernetes.io/egress_rate", unit="Mbps")
    assert config_of(BandwidthRules()).default_egress == ""


@given(st.integers(LEAST_BITS, MOST_BITS), st.sampled_from(["bits", "Mbps"]))
def test_a_default_is_read_as_it_was_meant(bits: int, unit: Any) -> None:
    keys = (AnnotationKey("a/b", unit),)
    rules = BandwidthRules(egress=keys, ingress=keys, defaults=Rates(bits, bits))
    text = config_of(rules).default_egress
    assert parse_rate(text, unit) == bits
    assert asked_in((("a/b", text),), structs.replace(rules, defaults=None)).rates == Rates(bits, bits)


def test_the_policies_are_told_once() -> None:
    wanted = ApplyBandwidthConfig(spec=config_of(NATIVE))
    world = World(now=0, bandwidth_problem="", bandwidth=NATIVE)
    assert [*due(world)] == [wanted]
    assert "does not say what the settings say yet" in problem(world)
    assert [*due(known(config_of(NATIVE)))] == []
    assert problem(known(config_of(NATIVE))) == ""


@pytest.mark.parametrize("spec", [None, config_of(BandwidthRules())])
def test_what_says_something_else_or_cannot_be_read_is_written_anew(spec: Any) -> None:
    assert [*due(known(spec))] == [ApplyBandwidthConfig(spec=config_of(NATIVE))]


def test_nobody_is_told_where_the_policies_are_not_installed() -> None:
    world = structs.replace(
        World(now=0, bandwidth_problem="", bandwidth=NATIVE), bandwidth_problem="They are not installed."
    )
    assert [*due(world)] == []
    assert problem(world) == "They are not installed."
