"""Names for shapes: the same for each try of a Job, in every process, however its pods are called."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Any, Final

import msgspec
from msgspec import structs

from headroom.model.facts import Shape

_PLAIN: Final = Shape()
_OF_ONE_TRY: Final = frozenset(
    {
        "batch.kubernetes.io/controller-uid",
        "batch.kubernetes.io/job-name",
        "controller-revision-hash",
        "controller-uid",
        "job-name",
        "jobset.sigs.k8s.io/job-key",
        "pod-template-hash",
    }
)
"""Labels whose values are new whenever somebody makes the same pods again."""
_FROM_THE_POD: Final = ("matchLabelKeys", "mismatchLabelKeys")
"""The API server copies the values of these labels from the pod into the selector beside them."""


@lru_cache(maxsize=8192)
def digest_of(shape: Shape) -> str:
    """A name for a shape that is the same in every process. What is left at its default does not enter it."""
    lasting = structs.replace(shape, affinity=_lasting(shape.affinity), spread=_lasting(shape.spread))
    told = {name: value for name, value in structs.asdict(lasting).items() if value != getattr(_PLAIN, name)}
    return hashlib.sha256(msgspec.json.encode(told, order="deterministic")).hexdigest()[:12]


def _lasting(text: str) -> str:
    """JSON text without what its selectors say of one try; only pods are selected by labels, nodes are not."""
    if "labelSelector" not in text:
        return text
    try:
        return msgspec.json.encode(_without_values(msgspec.json.decode(text)), order="deterministic").decode()
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


def _without_values(given: Any) -> Any:
    if isinstance(given, list):
        return [_without_values(each) for each in given]
    if not isinstance(given, dict):
        return given
    kept = {key: _without_values(each) for key, each in given.items()}
    selector = kept.get("labelSelector")
    if isinstance(selector, dict):
        copied = {key for name in _FROM_THE_POD for key in _listed(kept.get(name)) if isinstance(key, str)}
        kept["labelSelector"] = _selector(selector, _OF_ONE_TRY | copied)
    return kept


def _selector(given: dict[str, Any], passing: frozenset[str]) -> dict[str, Any]:
    labels, expressions = given.get("matchLabels"), _listed(given.get("matchExpressions"))
    if isinstance(labels, dict):
        labels = {key: "" if key in passing else value for key, value in labels.items()}
    asks = [{**each, "values": []} if _is_on(each, passing) else each for each in expressions]
    return {**given, "matchLabels": labels, "matchExpressions": asks}


def _is_on(expression: Any, keys: frozenset[str]) -> bool:
    return isinstance(expression, dict) and str(expression.get("key")) in keys


def _listed(given: Any) -> list[Any]:
    return given if isinstance(given, list) else []
