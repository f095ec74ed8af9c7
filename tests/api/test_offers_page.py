"""The page of cheapest capacity says what the code does: risks, defaults, reasons and rights."""

from __future__ import annotations

import json
import re
from pathlib import Path

from headroom.api import kinds
from headroom.api.crd import crd
from headroom.core import offers

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "cheapest-capacity.md").read_text()
CHOSEN_BY_THE_OPERATOR = {"onDemandFallback", "limits", "budgetRef", "weights", "credentialsSecretRef", "families"}
"""Fields whose default is told in words."""


def rows(*heads: str) -> list[list[str]]:
    """The rows of the table with these heads."""
    found = re.search(rf"^\| {re.escape(' | '.join(heads))} \|\n\|[-|]+\n((?:\|.*\n)+)", PAGE, re.MULTILINE)
    assert found is not None, heads
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]


def test_the_risks_are_those_of_the_code() -> None:
    told = rows("score", "interruptions in 1,000 machine-hours", "launches that fail")
    wanted = [
        [f"{score}, or unknown" if score == offers.UNKNOWN_SCORE else str(score), f"{often / 1000:g}", f"{failed / 10_000:g}%"]
        for score, (often, failed) in enumerate(zip(offers.INTERRUPTIONS, offers.FAILED, strict=True), start=1)
    ]  # fmt: skip
    assert told == [*wanted, ["on-demand", "0", f"{offers.ON_DEMAND_FAILED / 10_000:g}%"]]
    weights = f"After {offers.PRIOR_LAUNCHES} launches, or {offers.PRIOR_MACHINE_MS // 3_600_000}"
    assert weights in PAGE


def test_every_field_is_there_with_its_default() -> None:
    told = {
        name: default.strip("`")
        for names, default, _ in rows("field", "default", "meaning")
        for name in re.findall(r"`(\w+)`", names)
    }
    root = crd(kinds.KINDS["LeftoverNodePool"])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    properties = root["properties"]["spec"]["properties"]
    assert set(told) == set(properties) - {"paused"}
    given = {
        name: str(each["default"]) for name, each in properties.items() if each.get("default") not in (None, {}, [])
    }
    assert {name: told[name] for name in given if name not in CHOSEN_BY_THE_OPERATOR | {"paused"}} == {
        name: text for name, text in given.items() if name not in CHOSEN_BY_THE_OPERATOR | {"paused"}
    }


def test_the_rights_are_those_of_the_calls_and_only_read() -> None:
    [block] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    [statement] = json.loads(block)["Statement"]
    verbs = {action.partition(":")[2] for action in statement["Action"]}
    assert all(verb.startswith(("Describe", "Get")) for verb in verbs)
    source = (ROOT / "src/headroom/adapters/clouds/aws_market.py").read_text()
    calls = set(re.findall(r"\b((?:describe|get)_(?:instance|availability|spot|products)\w*)\b", source))
    assert {"".join(word.title() for word in call.split("_")) for call in calls} == verbs


def test_the_reasons_are_those_of_the_code() -> None:
    told = set(re.findall(r"`(\w+)`", PAGE[PAGE.index("Reasons of `Ready`:") + 18 :].partition("\n\n")[0]))
    source = "".join(path.read_text() for path in (ROOT / "src/headroom/core/offers").glob("*.py"))
    assert [reason for reason in told if f'"{reason}"' not in source] == []
