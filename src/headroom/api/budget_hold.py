"""BudgetHold: there is one for each budget that lets no new pods start now. Only the operator writes it."""

from __future__ import annotations

import hashlib
from typing import Annotated, ClassVar

from msgspec import Meta

from headroom.api.budget_index import Covered
from headroom.api.resources import AGE_COLUMN, Column, Definition

LONGEST_NAME = 253


class BudgetHoldSpec(Covered, frozen=True, kw_only=True):
    """Whose new pods wait, and why; the policies of the API server read it."""

    uid: Annotated[str, Meta(max_length=64, description="The budget's uid.")] = ""
    because: Annotated[
        str, Meta(max_length=1024, description="Why, as a sentence; it is copied to an annotation of the pods.")
    ] = ""


def hold_name(budget: str) -> str:
    """The name of the hold of a budget `namespace/name`."""
    plain = budget.replace("/", ".", 1)
    if len(plain) <= LONGEST_NAME:
        return plain
    return f"{plain[: LONGEST_NAME - 17]}-{hashlib.blake2b(plain.encode(), digest_size=8).hexdigest()}"


class BudgetHold:
    """The kind as a whole."""

    kind: ClassVar[Definition] = Definition(
        name="BudgetHold",
        plural="budgetholds",
        short_names=("bgh",),
        namespaced=False,
        spec=BudgetHoldSpec,
        columns=(Column("Budget", ".spec.budget"), Column("Because", ".spec.because"), AGE_COLUMN),
    )
