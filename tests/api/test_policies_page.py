"""docs/policies.md quotes the refusals that users read, in their present words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headroom.api.policies import guarding, holding, owning, requiring, resizing

PAGE = " ".join((Path(__file__).parents[2] / "docs" / "policies.md").read_text().split())
REFUSALS = (
    holding.NAMES_ITS_NODE,
    holding.NOT_GATED,
    holding.RELABELLED,
    holding.LAST_GATE,
    resizing.GROWN,
    owning.FORGED,
    guarding.GATE_LIFTED,
    guarding.MARKED,
    guarding.LABELS_BY_PART,
    guarding.LENGTH_CHANGED,
    guarding.LENGTH_UNREADABLE,
    requiring.NO_BUDGET,
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal[:40])
def test_the_page_quotes_a_refusal_as_it_is(refusal: str) -> None:
    pattern = re.sub(r"\\\{\w+\\\}", ".+?", re.escape(refusal))
    assert re.search(f"`{pattern}`", PAGE), refusal
