"""The spec of a Karpenter NodePool as a digest: what is rendered and what the API server keeps have the same one where they mean the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from headroom.api.quantities import InvalidQuantity, nano

_LENGTH: Final = 16
_DISRUPTION: Final = {"consolidateAfter": "0s", "consolidationPolicy": "WhenEmptyOrUnderutilized"}
_BUDGET: Final = {"nodes": "10%"}
_EXPIRE_AFTER: Final = "720h"
"""What the API server fills in where a NodePool says nothing: the defaults of Karpenter's v1."""


def spec_digest(spec: Mapping[str, Any]) -> str:
    """Of a whole spec."""
    return _digest(_filled(spec))


def template_digest(spec: Mapping[str, Any]) -> str:
    """Of the template in a spec, which Karpenter compares its nodes with."""
    return _digest(_mapping(_filled(spec).get("template")))


def _digest(value: Mapping[str, Any]) -> str:
    text = json.dumps(_without_empty(value), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:_LENGTH]


def _filled(spec: Mapping[str, Any]) -> dict[str, Any]:
    """With the defaults, and with amounts as numbers: 1000, "1000" and "1k" are one limit."""
    disruption = {**_DISRUPTION, **_mapping(spec.get("disruption"))}
    budgets = disruption.get("budgets") or [_BUDGET]
    disruption["budgets"] = [{**_BUDGET, **_mapping(each)} for each in budgets] if isinstance(budgets, list) else []
    outer = dict(_mapping(spec.get("template")))
    template = {**outer, "spec": {"expireAfter": _EXPIRE_AFTER, **_mapping(outer.pop("spec", None))}}
    limits = {name: _amount(each) for name, each in _mapping(spec.get("limits")).items()}
    return {**spec, "disruption": disruption, "template": template, "limits": limits}


def _amount(quantity: object) -> object:
    amount = nano(quantity) if isinstance(quantity, str | int) else quantity
    return str(quantity) if isinstance(amount, InvalidQuantity) else amount


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _without_empty(value: object) -> object:
    """What is empty says nothing, and is left out. A limit of nothing is a number, and stays."""
    if isinstance(value, Mapping):
        return {str(key): kept for key, each in value.items() if (kept := _without_empty(each)) not in _EMPTY}
    if isinstance(value, list | tuple):
        return [_without_empty(each) for each in value]
    return value


_EMPTY: Final[tuple[object, ...]] = (None, "", [], {})
