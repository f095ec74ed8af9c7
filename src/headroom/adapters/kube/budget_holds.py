"""Writes and deletes BudgetHolds: while there is one, the API server lets no new pods of its budget start."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import msgspec
from msgspec import structs

from headroom.adapters.kube import decode, errors, paths
from headroom.adapters.kube.changing import TRIES
from headroom.adapters.kube.client import Kube
from headroom.api.budget_hold import BudgetHoldSpec
from headroom.api.resources import API_VERSION
from headroom.model.facts import Hold

_PAGES: Final = decode.holds()


async def apply(kube: Kube, name: str, wanted: BudgetHoldSpec) -> bool:
    """Make the hold say this; whether anything had to be written. One that differs only in its reason stays: the numbers in it move all the time."""
    for left in reversed(range(TRIES)):
        found = await _read(kube, name)
        if found is not None and found.spec is not None and _covers_the_same(found.spec, wanted):
            return False
        try:
            if found is None:
                await kube.create(paths.budget_hold(), _document({"name": name}, wanted))
            else:
                metadata = {"name": name, "uid": found.uid, "resourceVersion": found.resource_version}
                await kube.replace(paths.budget_hold(name), _document(metadata, wanted))
        except (errors.Conflict, errors.AlreadyExists, errors.NotFound):
            if not left:
                raise
        else:
            return True
    return False


async def delete(kube: Kube, name: str) -> None:
    """Hold nothing any more under that name."""
    with suppress(errors.NotFound):  # it is gone, or was never there
        await kube.delete(paths.budget_hold(name))


async def _read(kube: Kube, name: str) -> Hold | None:
    """The hold as it is now, with no other right than to list."""
    body = await kube.page(paths.budget_hold(), query={"fieldSelector": f"metadata.name={name}"})
    return next(iter(_PAGES.page(body).items), None)


def _covers_the_same(one: BudgetHoldSpec, other: BudgetHoldSpec) -> bool:
    return structs.replace(one, because="") == structs.replace(other, because="")


def _document(metadata: dict[str, str], spec: BudgetHoldSpec) -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": "BudgetHold",
        "metadata": metadata,
        "spec": msgspec.to_builtins(spec),
    }
