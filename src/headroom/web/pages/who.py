"""Usage in a window by job, by user and by pod. Other namespaces appear as a sum without names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from headroom.core import usage
from headroom.core.budgets import owner_of
from headroom.core.usage import Shares, UsageShare
from headroom.model.facts import Pod
from headroom.model.times import HOUR
from headroom.model.world import World
from headroom.web.pages import parts
from headroom.web.pages.parts import Model
from headroom.web.scope import Scope

MOST: Final = 10
TOGETHER_MS: Final = 60_000
"""Pods of one Job are created within this time of each other."""
_MADE: Final = re.compile(r"(.+)-[bcdfghjklmnpqrstvwxz2456789]{5}")
"""A generated name ends in five of these letters."""
_INDEXED: Final = re.compile(r"(.+)-([0-9]+)")
Key = tuple[str, str]
"""Namespace and name; both empty if the viewer may not see them."""
HIDDEN: Final[Key] = "", ""


class Sum(NamedTuple):
    """What several pods used together."""

    gpu_ms: int = 0
    usd_ms: int | None = 0
    pods: int = 0

    def plus(self, each: UsageShare) -> Sum:
        """With one more."""
        usd = None if self.usd_ms is None or each.usd_ms is None else self.usd_ms + each.usd_ms
        return Sum(self.gpu_ms + each.gpu_ms, usd, self.pods + 1)


def model(world: World, scope: Scope, found: Shares, user_key: str) -> Model:
    """All users of GPUs, largest first."""
    there = {use.uid: pod for use in found.pods if (pod := world.pods.get(use.uid)) is not None}
    made = {(use.namespace, _base(use.pod)): use.begun for use in reversed(found.pods)}
    owners = {(pod.namespace, owner_of(pod).rpartition("/")[2]) for pod in there.values() if pod.owner is not None}
    seen = [use if scope.sees(use.namespace) else None for use in found.pods]

    def job(use: UsageShare) -> Key:
        return use.namespace, _job(use, there.get(use.uid), owners, made)

    def user(use: UsageShare) -> Key:
        return use.namespace, user_of(use, there.get(use.uid), user_key)

    pairs = list(zip(found.pods, seen, strict=True))
    page: Model = {
        "asOf": found.as_of // 1000,
        "hours": found.length // HOUR,
        "gpuHours": parts.amount(found.gpu_ms, usage.GPU_HOUR),
        "byJob": _rows(pairs, job),
        "byPod": _rows(pairs, lambda use: (use.namespace, use.pod)),
        "pods": len(found.pods) + found.others,
    }
    if user_key:
        page |= {"byUser": _rows(pairs, lambda use: ("", user(use)[1])), "userKey": user_key}
    if found.others:
        page |= {"others": found.others, "othersGpuHours": parts.amount(found.others_gpu_ms, usage.GPU_HOUR)}
    return page


def user_of(use: UsageShare | None, pod: Pod | None, key: str) -> str:
    """The user of a pod, from its label, or from its annotation while the pod exists; empty if neither is set."""
    known = dict(use.labels).get(key, "") if use is not None else ""
    if not known and pod is not None:
        known = dict(pod.labels).get(key, "") or dict(pod.annotations).get(key, "")
    return known


def _base(name: str) -> str:
    """The name of a pod without its generated suffix."""
    made = _MADE.fullmatch(name)
    return made[1] if made else name


def _job(use: UsageShare, pod: Pod | None, owners: set[Key], made: Mapping[Key, int]) -> str:
    """The owner of a pod: from the pod while it exists, else guessed from its name and from when pods of similar names were created."""
    if pod is not None and pod.owner is not None:
        return owner_of(pod).rpartition("/")[2]
    base = _base(use.pod)
    indexed = _INDEXED.fullmatch(base)
    if (use.namespace, base) in owners or indexed is None:
        return base
    # A pod of an indexed Job has its index in its name too, and a pod with index 0 or 1 was created at the same time.
    begun = made.get((use.namespace, f"{indexed[1]}-{0 if int(indexed[2]) else 1}"))
    is_one_of = begun is not None and abs(begun - use.begun) <= TOGETHER_MS
    return indexed[1] if is_one_of or (use.namespace, indexed[1]) in owners else base


def _rows(pairs: Iterable[tuple[UsageShare, UsageShare | None]], key_of: Callable[[UsageShare], Key]) -> list[Model]:
    sums: dict[Key | None, Sum] = {}
    for use, visible in pairs:
        key = key_of(use) if visible is not None else None
        sums[key] = sums.get(key, Sum()).plus(use)
    ordered = sorted(sums.items(), key=lambda each: (-each[1].gpu_ms, each[0] or HIDDEN))
    rows = [_row(key, each) for key, each in ordered[:MOST]]
    left = ordered[MOST:]
    if left:
        more = sum(each.gpu_ms for _, each in left)
        rows.append(
            {"rest": len(left), "gpuHours": parts.amount(more, usage.GPU_HOUR), "pods": sum(s.pods for _, s in left)}
        )
    return rows


def _row(key: Key | None, found: Sum) -> Model:
    numbers: Model = {"gpuHours": parts.amount(found.gpu_ms, usage.GPU_HOUR), "pods": found.pods}
    if found.usd_ms:
        numbers["usd"] = parts.amount(found.usd_ms, usage.DOLLAR, 2)
    if key is None:
        return numbers | {"hidden": True}
    return numbers | {"namespace": key[0], "name": key[1]}
