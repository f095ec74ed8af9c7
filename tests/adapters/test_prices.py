"""The price book: exact prices, and one bad entry costs no other."""

from __future__ import annotations

import pytest

from headroom.adapters.prices import of_config_map, parse_book
from headroom.model.facts import Price

BOOK = """
- {instanceType: p5.48xlarge, zone: us-east-1a, capacityType: spot, pricePerHour: "31.464"}
- node: metal-7
  pricePerHour: 2.1
- labels: {rack: "7", gpu: h100}
  pricePerHour: 500m
- pricePerHour: 0
"""


def test_a_book() -> None:
    assert parse_book(BOOK) == (
        (
            Price(price_per_hour=31_464_000, instance_type="p5.48xlarge", zone="us-east-1a", capacity_type="spot"),
            Price(price_per_hour=2_100_000, node="metal-7"),
            Price(price_per_hour=500_000, labels=(("gpu", "h100"), ("rack", "7"))),
            Price(price_per_hour=0),
        ),
        [],
    )


def test_json_is_yaml_too() -> None:
    assert parse_book('[{"node": "a", "pricePerHour": "0.000001"}]') == ((Price(price_per_hour=1, node="a"),), [])


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "[]", "null"])
def test_an_empty_book(text: str) -> None:
    assert parse_book(text) == ((), [])


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("seven", "it is not a mapping"),
        ("{node: a}", "pricePerHour is required"),
        ("{pricePerHour: -1}", "must not be negative"),
        ("{pricePerHour: 0.0000001}", "at most 6 decimals"),
        ("{pricePerHour: 1e309}", "pricePerHour must be"),
        ("{pricePerHour: .inf}", "pricePerHour must be"),
        ("{pricePerHour: yes}", "pricePerHour must be a number of dollars"),
        ("{pricePerHour: [1]}", "pricePerHour must be a number of dollars"),
        ("{pricePerHour: 1, node: 7}", "node must be text; put it in quotes"),
        ("{pricePerHour: 1, zone: no}", "zone must be text"),
        ("{pricePerHour: 1, capacityType: sopt}", "capacityType must be one of spot, on-demand, reserved, not 'sopt'"),
        ("{pricePerHour: 1, labels: {rack: 7}}", "labels must be a mapping of text to text"),
        ("{pricePerHour: 1, labels: [a]}", "labels must be a mapping of text to text"),
        ("{pricePerHour: 1, instancetype: x}", "instancetype is not a field here; the fields are pricePerHour, node"),
    ],
)
def test_a_bad_entry_is_left_out_with_a_sentence_and_the_others_stay(entry: str, words: str) -> None:
    prices, [problem] = parse_book(f"- {{node: a, pricePerHour: 1}}\n- {entry}\n- {{node: b, pricePerHour: 2}}\n")
    assert [each.node for each in prices] == ["a", "b"]
    assert problem.startswith("entry 2 is left out: ")
    assert words in problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{a: 1}", "it is not a list"),
        ("just words", "it is not a list"),
        ("- {a", "it is not YAML"),
        ("- !!int ''", "it is not YAML"),
        ("[" * 100_000, "levels deep"),
        ("x" * 2_000_000, "characters"),
        ("- &a [*a]", ""),
    ],
)
def test_what_is_no_book_is_one_sentence(text: str, words: str) -> None:
    prices, [problem] = parse_book(text)
    assert prices == ()
    assert words in problem
    assert len(problem) < 400


def test_every_key_of_a_config_map_is_a_book_in_the_order_of_the_keys() -> None:
    data = {"b.yaml": "[{node: b, pricePerHour: 2}]", "a.yaml": "[{node: a, pricePerHour: 1}, 7]"}
    prices, problems = of_config_map(data)
    assert [each.node for each in prices] == ["a", "b"]
    assert problems == ["reading the price book, key a.yaml: entry 2 is left out: it is not a mapping"]
