"""Writes the one BudgetIndex, from which the API server's own policies know the budgets."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headroom.adapters.kube import decode, errors, paths
from headroom.adapters.kube.changing import TRIES
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.operator_kinds import RawBudgetIndex
from headroom.api.budget_index import INDEX_NAME, IndexEntry
from headroom.api.resources import API_VERSION

_PAGES: Final = decode.indexes()


async def apply(kube: Kube, wanted: tuple[IndexEntry, ...]) -> None:
    """Make the index say this; nothing is written if it does already."""
    for left in reversed(range(TRIES)):
        found = await _read(kube)
        if found is not None and found.budgets == wanted:
            return
        try:
            if found is None:
                await kube.create(paths.budget_index(), _document({"name": INDEX_NAME}, wanted))
            else:
                metadata = {"name": INDEX_NAME, "uid": found.uid, "resourceVersion": found.resource_version}
                await kube.replace(paths.budget_index(INDEX_NAME), _document(metadata, wanted))
        except (errors.Conflict, errors.AlreadyExists, errors.NotFound):
            if not left:
                raise
        else:
            return


async def _read(kube: Kube) -> RawBudgetIndex | None:
    """The index as it is now, with no other right than to list."""
    body = await kube.page(paths.budget_index(), query={"fieldSelector": f"metadata.name={INDEX_NAME}"})
    return next(iter(_PAGES.page(body).items), None)


def _document(metadata: dict[str, str], budgets: tuple[IndexEntry, ...]) -> dict[str, Any]:
    spec = {"budgets": msgspec.to_builtins(budgets)}
    return {"apiVersion": API_VERSION, "kind": "BudgetIndex", "metadata": metadata, "spec": spec}
