"""Label selectors, as Kubernetes means them."""

from __future__ import annotations

from headroom.api.resources import LabelSelector
from headroom.model.facts import Pairs


def selects(selector: LabelSelector, labels: Pairs) -> bool:
    """Whether a selector matches labels, as Kubernetes means it: what is not there is not in, and is not equal."""
    has = dict(labels)
    if any(has.get(key) != value for key, value in selector.match_labels.items()):
        return False
    for each in selector.match_expressions:
        value = has.get(each.key)
        holds = {
            "In": value is not None and value in each.values,
            "NotIn": value is None or value not in each.values,
            "Exists": value is not None,
            "DoesNotExist": value is None,
        }
        if not holds[each.operator]:
            return False
    return True


def may_select(selector: LabelSelector, labels: Pairs) -> bool:
    """Whether a selector may match pods that are made with these labels. Others may be added when a pod is made."""
    has = {key for key, _ in labels}
    known = LabelSelector(
        match_labels={key: value for key, value in selector.match_labels.items() if key in has},
        match_expressions=tuple(each for each in selector.match_expressions if each.key in has),
    )
    return selects(known, labels)


def keys_of(selector: LabelSelector) -> frozenset[str]:
    """The label keys that a selector looks at."""
    return frozenset({*selector.match_labels, *(each.key for each in selector.match_expressions)})
