"""Where the watch of NodeClaims puts what it hears, and what is remembered of those that could not be launched.

Karpenter deletes a claim that meets no capacity within a blink, so what counts is the events of the watch, not what is there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from headroom.adapters.kube.changes import Subscriptions
from headroom.adapters.kube.sinks import FactSink
from headroom.model.changes import Topic
from headroom.model.cloud_facts import LaunchFailure
from headroom.model.facts import NodeClaim

REMEMBERED_MS: Final = 3_600_000
MOST: Final = 2000
"""Of all failures that are remembered at a time; the oldest go first."""
NOT_LAUNCHED: Final = "NotLaunched"
"""The reason of a claim that was gone before it was launched: Karpenter gives none."""


class NodeClaimSink(FactSink[NodeClaim]):
    """Keeps the claims, and for an hour the failures of those that were not launched."""

    def __init__(self, changes: Subscriptions, every: dict[str, dict[str, Any]], now: Callable[[], int]) -> None:
        super().__init__(lambda fact: fact.name, self._told, facts=every.setdefault("node_claims", {}))
        self._changes, self._now = changes, now
        self._failures: dict[str, LaunchFailure] = every.setdefault("launch_failures", {})

    def put(self, fact: NodeClaim, *, listed: bool = False) -> None:
        """Take in a claim."""
        super().put(fact, listed=listed)
        if fact.failure:
            self._note(fact, fact.failure, fact.failed_at)

    def remove(self, key: str, last: NodeClaim | None, seen_until: int) -> None:
        """The claim is gone. Where nobody told its last state, it may have been launched meanwhile."""
        before = self.facts.get(key)
        if last is not None and not last.launched and not (before and before.launched):
            self._note(last, last.failure or NOT_LAUNCHED, last.failed_at)
        super().remove(key, last, seen_until)

    def forget_before(self, moment: int) -> None:
        """Forget failures from before a moment."""
        for key in [key for key, each in self._failures.items() if each.at < moment]:
            del self._failures[key]

    def _note(self, claim: NodeClaim, reason: str, at: int | None) -> None:
        known = self._failures.get(claim.name)
        if known is not None and known.reason == reason:
            return
        now = self._now()
        since = known.at if known else min(now, at) if at else now
        found = LaunchFailure(claim=claim.name, node_pool=claim.node_pool, at=since, reason=reason)
        if now - since > REMEMBERED_MS:
            return
        self._failures[claim.name] = found
        while len(self._failures) > MOST:
            del self._failures[next(iter(self._failures))]
        self._changes.fact(Topic.KARPENTER, claim.name)

    def _told(self, key: str, _before: NodeClaim | None, _after: NodeClaim | None) -> None:
        self._changes.fact(Topic.KARPENTER, key)
