"""The kinds that only the operator writes become facts here. One that nobody can read has no content, and is written anew."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from headroom.adapters.kube import raw, values
from headroom.api.budget_hold import BudgetHoldSpec
from headroom.api.budget_index import BudgetIndexSpec, IndexEntry
from headroom.model import facts

Spec = TypeVar("Spec", BudgetHoldSpec, BudgetIndexSpec)


class RawBudgetIndex(Struct, frozen=True, kw_only=True):
    """A BudgetIndex."""

    name: str
    uid: str
    resource_version: str = ""
    budgets: tuple[IndexEntry, ...] | None = None
    """What it says; None if that cannot be read."""


def index_of(document: dict[str, Any]) -> RawBudgetIndex:
    """A BudgetIndex."""
    meta = _meta(document)
    name, spec = meta.name or "", _spec(document, BudgetIndexSpec)
    return RawBudgetIndex(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        budgets=spec.budgets if spec else None,
    )


def hold_of(document: dict[str, Any]) -> facts.Hold:
    """A BudgetHold."""
    meta = _meta(document)
    name = meta.name or ""
    return facts.Hold(
        name=name,
        uid=meta.uid or name,
        resource_version=meta.resource_version or "",
        created=values.moment(meta.creation_timestamp) or 0,
        spec=_spec(document, BudgetHoldSpec),
    )


def _meta(document: dict[str, Any]) -> raw.RawObjectMeta:
    return raw.fitted(document, raw.Object).metadata or raw.RawObjectMeta()


def _spec(document: dict[str, Any], kind: type[Spec]) -> Spec | None:
    try:
        return msgspec.convert(document.get("spec"), kind)
    except (msgspec.ValidationError, ValueError):  # the latter for text that is none
        return None
