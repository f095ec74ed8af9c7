"""Who used how much of a window: by pod, and by the value of a label. For pages: nothing is decided by it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from headroom.api.kinds import AnyResource
from headroom.core.usage import coverage
from headroom.core.usage.prices import by_type, node_price, pod_price, type_of
from headroom.core.usage.reckoning import BudgetUsage, ByRow
from headroom.core.usage.summary import gpus_in
from headroom.core.usage.windows import WindowSpan, largest, overlaps
from headroom.model.cloud_facts import Offer
from headroom.model.facts import Pairs, Pod
from headroom.model.times import HOUR
from headroom.model.usage_table import UsageTable
from headroom.model.world import World

MOST_PODS: Final = 5000
"""Pods that are named, those that used most; the others are added up."""


class UsageShare(NamedTuple):
    """What one pod used inside a window, in millionths x milliseconds."""

    uid: str
    namespace: str
    pod: str
    gpu_ms: int
    usd_ms: int | None
    """None if some of its price is not known."""
    labels: Pairs
    """Those in force last, as far as rows keep labels."""
    begun: int


class Shares(NamedTuple):
    """Everybody who used something inside a window."""

    as_of: int
    length: int
    pods: tuple[UsageShare, ...]
    """The largest first."""
    others: int
    """Pods beyond those that are named."""
    others_gpu_ms: int
    gpu_ms: int
    """Of all of them."""


def of_budget(world: World, budget: AnyResource) -> Shares:
    """Who used what a valid budget counts."""
    coverage.arrange(world)
    length = budget.spec.quota.window_hours * HOUR
    rows = BudgetUsage(world, coverage.scope_of(world, budget), length)
    return _shares(world.usage, rows.by_row(), rows.span)


def of_namespace(world: World, namespace: str, hours: int, most: int = MOST_PODS) -> Shares:
    """Who used GPUs in a namespace of this cluster, whether a budget counts them or not."""
    span = WindowSpan(world.as_of, hours * HOUR)
    return _shares(world.usage, _rows_in(world, namespace, span), span, most)


def of_pod(world: World, namespace: str, name: str) -> UsageShare | None:
    """What pods of this name used in all that is remembered; None if nothing is."""
    span = WindowSpan(world.as_of, max(world.as_of, 0))
    shares = _shares(world.usage, _rows_in(world, namespace, span, name), span)
    if not shares.pods:
        return None
    spent = [each.usd_ms for each in shares.pods]
    usd = None if None in spent else sum(each or 0 for each in spent)
    newest = max(shares.pods, key=lambda each: each.begun)
    return newest._replace(gpu_ms=shares.gpu_ms, usd_ms=usd)


def _rows_in(world: World, namespace: str, span: WindowSpan, name: str | None = None) -> ByRow:
    """The rows of a namespace, or of those of its pods that have this name."""
    table = world.usage
    rates, prices = np.zeros(len(table.groups), np.int64), np.zeros(len(table.groups), np.int64)
    is_priced = np.zeros(len(table.groups), np.bool_)
    wanted = []
    for number in table.postings.candidates(0, {namespace}, ()):
        terms = table.groups[number].terms
        rate = gpus_in(terms.amounts) if (terms.cluster, terms.namespace) == (world.cluster, namespace) else 0
        if rate:
            rates[number], prices[number], is_priced[number] = rate, terms.price or 0, terms.price is not None
            wanted.append(number)
    rows = table.rows_of(wanted)
    if name is not None:
        key = f"{namespace}/{name}"
        rows = rows[[table.pod(number) == key for number in rows.tolist()]]
    group = table.column("group")[rows]
    held = overlaps(table.column("start")[rows], table.column("low_end")[rows], span)
    wide = held.astype(object)  # no product of these is cut off
    return ByRow(rows, wide * rates[group], wide * prices[group], is_priced[group])


def _shares(table: UsageTable, found: ByRow, span: WindowSpan, most: int = MOST_PODS) -> Shares:
    used = np.flatnonzero(found.gpus > 0)
    firsts, where = np.unique(table.column("first")[found.rows[used]], return_inverse=True)
    gpus, usd = np.zeros(len(firsts), object), np.zeros(len(firsts), object)
    np.add.at(gpus, where, found.gpus[used])
    np.add.at(usd, where, found.usd[used])
    unpriced = np.zeros(len(firsts), np.bool_)
    np.logical_or.at(unpriced, where, ~found.is_priced[used])
    last = np.zeros(len(firsts), np.int64)
    last[where] = found.rows[used]
    chosen = largest(gpus, most, lambda place: table.pod(int(firsts[place])))
    pods = tuple(_use(table, int(last[at]), int(gpus[at]), None if unpriced[at] else int(usd[at])) for at in chosen)
    total, named = int(gpus.sum()), sum(each.gpu_ms for each in pods)
    return Shares(span.as_of, span.length, pods, len(firsts) - len(pods), total - named, total)


def _use(table: UsageTable, number: int, gpu_ms: int, usd_ms: int | None) -> UsageShare:
    row = table.row(number)
    return UsageShare(row.uid, row.namespace, row.pod, gpu_ms, usd_ms, row.labels, row.created or row.start)


def saved_now(world: World, pods: Iterable[Pod]) -> int | None:
    """Millionths of a dollar an hour by which running pods are cheaper than on on-demand machines of the same type.

    None where no such price is known for any of them.
    """
    on_demand = by_type({name: each for name, each in world.offers.items() if _is_on_demand(each)})
    found: list[int] = []
    for pod in pods:
        node, number = world.nodes.get(pod.node), world.usage.last_of(pod.uid)
        if node is None or number is None or not on_demand:
            continue
        row = world.usage.row(number)
        there = pod_price(node_price(node, (), on_demand.get(type_of(node), {})), row.amounts, node, world.devices)
        if there is not None and row.price is not None:
            found.append(max(there - row.price, 0))
    return sum(found) if found else None


def _is_on_demand(offer: Offer) -> bool:
    return offer.capacity_type.lower().replace("_", "-") == "on-demand"
