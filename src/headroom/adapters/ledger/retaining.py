"""What the ledger must keep, as columns of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headroom.adapters.ledger.encoding import Values, identified, identifier
from headroom.model.retention import Reach, Retention


def retention_values(kept: Retention) -> Values:
    """A retention as columns."""
    own, span = kept.own, kept.spanning
    reaches = own.window, own.shorter, own.since, span.window, span.shorter, span.since
    return identifier(kept.cluster), kept.known_since, *reaches, kept.looked_at, kept.prune_from


def retentions_of(stored: Iterable[Sequence[Any]]) -> dict[str, Retention]:
    """Retentions from columns, by cluster."""
    found = {}
    for cluster, known, own, own_shorter, own_since, span, span_shorter, span_since, looked_at, prune_from in stored:
        name = identified(cluster)
        found[name] = Retention(
            cluster=name,
            known_since=known,
            own=Reach(window=own, shorter=own_shorter, since=own_since),
            spanning=Reach(window=span, shorter=span_shorter, since=span_since),
            looked_at=looked_at,
            prune_from=prune_from,
        )
    return found
