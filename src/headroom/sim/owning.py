"""Our policies on whose a queued pod is, as the simulated API server applies them: only the controller that makes a pod is its maker."""

from __future__ import annotations

from collections.abc import Callable

from headroom.api.marks import CONTROLLER_UID
from headroom.api.policies.owning import SINGLE_GROUP
from headroom.sim.answers import Body

MayWriteStatus = Callable[[str, str], bool]
"""Whether who asks may write the status of a group's resource in the whole cluster."""


def marked(pod: Body, may_write: MayWriteStatus) -> Body:
    """A new pod that has a gate, with the uid of the controller that makes it."""
    maker = _maker(pod, may_write)
    if not maker or not (pod.get("spec") or {}).get("schedulingGates"):
        return pod
    notes = (pod["metadata"].get("annotations") or {}) | {CONTROLLER_UID: maker}
    return pod | {"metadata": pod["metadata"] | {"annotations": notes}}


def is_forged(old: Body | None, new: Body, may_write: MayWriteStatus) -> bool:
    """Whether somebody says who made a pod, and is not the one who makes it now."""
    said = _said(new)
    if said == (None if old is None else _said(old)):
        return False
    return old is not None or said != _maker(new, may_write)


def _said(pod: Body) -> str | None:
    found: str | None = (pod["metadata"].get("annotations") or {}).get(CONTROLLER_UID)
    return found


def _maker(pod: Body, may_write: MayWriteStatus) -> str:
    for each in pod["metadata"].get("ownerReferences") or ():
        group, slash, _ = each["apiVersion"].partition("/")
        if each.get("controller") and slash and group != SINGLE_GROUP and may_write(group, f"{each['kind'].lower()}s"):
            return str(each["uid"])
    return ""
