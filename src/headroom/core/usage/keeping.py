"""Keeps the table of usage equal to what is seen of pods: the one place where observations become rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from headroom.core.usage import devices, finalizers, finding, observing, prices
from headroom.core.usage.coverage import arrange, budgets_of, told_apart, weights_of
from headroom.core.usage.devices import DeviceView
from headroom.core.usage.finding import FoundPod
from headroom.core.usage.observing import Look, PodAllocation
from headroom.model.census import cut
from headroom.model.cloud_facts import Offer
from headroom.model.device_facts import Claim
from headroom.model.devices import DeviceTable
from headroom.model.facts import Amounts, Namespace, Node, Pairs, Pod, Price, Usage
from headroom.model.gpus import ANY
from headroom.model.tables import NodeTable, PodTable
from headroom.model.usage import UsageRow
from headroom.model.usage_table import UsageTable
from headroom.model.world import World

_NO_DEVICES, _NO_PODS = DeviceTable(), PodTable()


class PricingContext(NamedTuple):
    """What decides beside a pod itself what it holds and costs."""

    nodes: NodeTable
    devices: DeviceView | Mapping[str, Claim]
    """Or only the claims, where nothing else is known of devices."""
    prices: tuple[Price, ...]
    offers: Mapping[str, Offer]
    namespaces: Mapping[str, Namespace]
    counted: Collection[str]
    """Resources that some budget counts, beside those that are always recorded."""

    @property
    def decisive(self) -> tuple[object, ...]:
        """What concerns every pod when it changes; offers concern those on nodes that they price."""
        return self.prices, self.counted, self.view.told_apart, self.view.is_whole

    @property
    def view(self) -> DeviceView:
        """What decides which devices pods have."""
        if isinstance(self.devices, DeviceView):
            return self.devices
        return DeviceView(self.devices, _NO_DEVICES, _NO_PODS, self.nodes)


class Keeper:
    """Brings rows up to date with pods; what it returns is new and belongs into the ledger."""

    def __init__(self, table: UsageTable, shortest: int = 0) -> None:
        self.table = table
        self._shortest = shortest
        """How long a row that tells of a change lasts at least: who changes again sooner, has changed from then on."""
        self._node_prices = NodePrices()
        self._later: dict[str, tuple[Pod, PodAllocation]] = {}
        """Pods that changed again too soon, as they were last seen."""
        self._relabelled: dict[str, int] = {}
        """Pods that hold something under other labels than before, and since when: their sharers are seen once for all of them."""
        self._holding: dict[str, Pairs] = {}
        """Pods with claims that hold something, each with the labels that decide who bears a claim that it shares."""
        self._found: dict[str, FoundPod] = {}
        """Pods that were found before the ledger was read, and are what they were."""
        self._parted: dict[str, tuple[FoundPod, int]] = {}
        """Those that are not, or had ended; what each was then is a row that begins at that moment."""

    def find(self, pod: Pod, around: PricingContext, look: Look) -> list[UsageRow]:
        """A pod is in view, and the ledger was not read: what is known of the pod is not known here, until `join`."""
        self._note(pod, around)
        found = FoundPod(pod, self._held(pod, around), look)
        rows = finding.first_rows(found)
        if rows and pod.phase in devices.ENDED_PHASES:
            self._parted[pod.uid] = found, rows[-1].start
        elif pod.started is not None:
            self._found[pod.uid] = found
        return self._put(rows, pod, around)

    def join(self, around: PricingContext, since: int) -> list[UsageRow]:
        """The ledger was read; up to `since` it misses nothing. Found pods are what it and their rows say together."""
        rows = [row for uid, found in self._found.items() for row in self._observe(uid, found, around, since)]
        rows += [row for uid, each in self._parted.items() for row in self._join(uid, *each, around, since)]
        self._found, self._parted = {}, {}
        return rows

    def _observe(self, uid: str, found: FoundPod, around: PricingContext, since: int) -> list[UsageRow]:
        """A found pod as if it was found just now."""
        known, pod, look = self.table.of_pod(uid), found.pod, found.look._replace(since=since)
        is_blank = len(known) == 1 and finding.is_blank(known[0])
        rows = observing.observed(known, pod, found.held, look, is_unread=self.table.is_unread(uid))
        return self._put(rows, pod, around, is_whole=is_blank)

    def _join(self, uid: str, found: FoundPod, start: int, around: PricingContext, since: int) -> list[UsageRow]:
        rows, known = [], [row for row in self.table.of_pod(uid) if row.start <= start]
        if len(known) == 2 and finding.is_blank(known[0]):  # the ledger knows nothing of it
            first = observing.observed((), found.pod, found.held, found.look._replace(since=since))
            rows = self._put(first, found.pod, around, is_whole=True)
            known = [row for row in self.table.of_pod(uid) if row.start <= start]
        if len(known) > 1:
            before, own = known[-2:]
            is_same = (before.labels, before.amounts) == (own.labels, own.amounts) and not self.table.unread
            rows += self._put(finding.joined(before, own, since, is_same=is_same))
        return rows

    def _part(self, uid: str, around: PricingContext) -> list[UsageRow]:
        """A found pod is about to be something else: what it was is a row of its own."""
        found, known = self._found.pop(uid, None), self.table.of_pod(uid)
        if found is None or not known:
            return []
        rows = finding.split_found(known[0], found)
        self._parted[uid] = found, rows[-1].start
        return self._put(rows, found.pod, around)

    def see(self, pod: Pod, around: PricingContext, look: Look, *, is_news: bool = False) -> list[UsageRow]:
        """A pod is in view; `is_news` says that it may have changed itself."""
        self._note(pod, around)
        held = self._held(pod, around)
        if (known_as := self._found.get(pod.uid)) is not None:
            if not known_as.held.amounts:
                return self.find(pod, around, look)
            if known_as.is_still(pod, held):
                return []
        # What is seen at the very moment at which an earlier change would count is what counts from then on.
        before = look._replace(since=min(look.since, look.at - 1))
        found = self._part(pod.uid, around) + self._settled(pod.uid, around, before)
        self._later.pop(pod.uid, None)
        known = self.table.of_pod(pod.uid)
        is_unread = self.table.is_unread(pod.uid)
        if is_unread and not is_news and self._is_known(known, held):
            return found
        is_too_soon = not is_unread and observing.is_too_soon(known, held, look, self._shortest)
        if pod.phase not in devices.ENDED_PHASES and is_too_soon:
            self._later[pod.uid] = pod, held
            return found
        return found + self._put(observing.observed(known, pod, held, look, is_unread=is_unread), pod, around)

    def _note(self, pod: Pod, around: PricingContext) -> None:
        self.table.set_alive(pod.uid, True)
        (self.table.kept.add if finalizers.is_kept(pod) else self.table.kept.discard)(pod.uid)
        self._holding.pop(pod.uid, None)
        if (holds := devices.holds_under(pod, around.view)) is not None:
            self._holding[pod.uid] = holds

    def _is_known(self, known: Sequence[UsageRow], held: PodAllocation) -> bool:
        """Whether the last row says just this, as far as its labels were read."""
        keys = self.table.known_keys
        return keys is not None and held._replace(labels=cut(held.labels, keys)).is_in(known[-1])

    def settle(self, around: PricingContext, look: Look) -> list[UsageRow]:
        """Pods that changed again too soon, and for which the time has come since; and who shares claims with relabelled ones."""
        found = [row for uid in list(self._later) for row in self._settled(uid, around, look)]
        relabelled, self._relabelled, seen = self._relabelled, {}, set[str]()
        for uid, at in relabelled.items():
            if (pod := around.view.pods.get(uid)) is not None:
                found += self._see_sharers(pod, around, look, at, seen)
        return found

    def _settled(self, uid: str, around: PricingContext, look: Look) -> list[UsageRow]:
        if uid not in self._later:
            return []
        known = self.table.of_pod(uid)
        due = known[-1].start + self._shortest
        if due > look.since:
            return []
        pod, held = self._later.pop(uid)
        return self._put(observing.observed(known, pod, held, Look(look.cluster, due, due)), pod, around)

    def lose(self, pod: Pod, around: PricingContext, look: Look) -> list[UsageRow]:
        """A pod was deleted; `look.since` is the last moment at which it was surely there."""
        found = self._part(pod.uid, around) + self._settled(pod.uid, around, look)
        self._later.pop(pod.uid, None)
        lost = around.nodes.lost.get(pod.node)
        if lost is not None:
            # The pod was there to the last, as an object; that it still held its GPUs only its node could tell.
            look = look._replace(since=min(look.since, lost.alive_until))
        if pod.phase in devices.ENDED_PHASES or not self.table.has_end(pod.uid):
            gone = observing.gone(self.table.of_pod(pod.uid), pod, self._held(pod, around), look)
            found += self._put(gone, pod, around)
        self.table.set_alive(pod.uid, False)
        self.table.kept.discard(pod.uid)
        self._holding.pop(pod.uid, None)
        return [*found, *self._see_sharers(pod, around, look)]

    def hear(self, pod: Pod, around: PricingContext, look: Look) -> list[UsageRow]:
        """A pod came or changed, and nothing else did: pods that share a claim with it may hold another part of that now."""
        before = self._holding.get(pod.uid)
        found = self.see(pod, around, look, is_news=True)
        holds = self._holding.get(pod.uid)
        if before == holds:
            return found
        # A pod tells itself when it began or ended; that it has other labels is known from now on.
        moment = pod.started if before is None else pod.ended if holds is None else None
        if self._shortest and before is not None and holds is not None:
            self._relabelled.setdefault(pod.uid, look.at)
            return found
        return [*found, *self._see_sharers(pod, around, look, moment)]

    def _see_sharers(
        self, pod: Pod, around: PricingContext, look: Look, moment: int | None = None, seen: set[str] | None = None
    ) -> Iterator[UsageRow]:
        """Those with whom a pod shares claims, but for those that were `seen` already."""
        around = around._replace(devices=around.view._replace(sharing={}))
        uids = [uid for uid in devices.sharers_of(pod, around.view) if seen is None or uid not in seen]
        if seen is not None:
            seen.update(uids)
        for uid in uids:
            other, rows = around.view.pods.get(uid), self.table.of_pod(uid)[-1:]
            if other is None:
                continue
            # No two rows of a pod begin together, so where both pods began at once, the other's part changes just after.
            at = max(moment, rows[0].start + 1) if rows and moment is not None and moment >= rows[0].start else look.at
            yield from self.see(other, around, Look(look.cluster, at, at) if at < look.at else look)

    def miss(self, seen_until: int, at: int, uids: Collection[str] | None = None) -> list[UsageRow]:
        """All pods, or those of `uids`, that the ledger has open and that are not in view: they went while nobody looked."""
        found = self.table.unresolved()
        lasts = (self.table.of_pod(uid)[-1] for uid in found if uids is None or uid in uids)
        return self._put(observing.missed(last, seen_until, at) for last in lasts)

    def _put(
        self,
        rows: Iterable[UsageRow],
        pod: Pod | None = None,
        around: PricingContext | None = None,
        *,
        is_whole: bool = False,
    ) -> list[UsageRow]:
        """Rows that say something new, as they belong into the ledger: with all labels where they are new, or all told anew."""
        found, keys = [], self.table.keys
        for row in rows:
            whole, is_new = row, is_whole or not self.table.has(row)
            if keys is not None and pod is not None and around is not None and is_new:
                whole = observing.filled(row, observing.labels_of(pod, around.namespaces), keys)
            if pod is not None and around is not None:
                whole = _detailed(whole, pod, around)
            if (put := self.table.put(whole)) is not None:
                found.append(put)
        return found

    def _held(self, pod: Pod, around: PricingContext) -> PodAllocation:
        labels = observing.labels_of(pod, around.namespaces, self.table.keys)
        if pod.has_claims and not devices.are_seen(pod, around.view):
            # A claim or a device that is not seen now, or not any more, is not given back.
            for last in self.table.of_pod(pod.uid)[-1:]:
                return PodAllocation(last.amounts, last.price, labels)
        amounts = observing.amounts_of(pod, around.view, around.counted)
        price = self._price(pod, amounts, around) if amounts and pod.node else None
        return PodAllocation(amounts, price, labels)

    def _price(self, pod: Pod, amounts: Amounts, around: PricingContext) -> int | None:
        if not around.prices and not around.offers:
            return None
        node = around.nodes.get(pod.node)
        if node is None:
            return None
        return prices.pod_price(self._node_prices.of(node, around), amounts, node, around.view.devices)


def _detailed(row: UsageRow, pod: Pod, around: PricingContext) -> UsageRow:
    """A row with what a what-if needs of its pod; where it is over for good, with the reason."""
    ending = observing.ending_of(pod) if row.ended is not None else row.ending
    return structs.replace(row, ending=ending, details=observing.details_of(pod, around.nodes.get(pod.node)))


class NodePrices:
    """Remembers what each node costs an hour, for as long as the node and everything that prices it stay the same."""

    def __init__(self) -> None:
        self._priced_by: tuple[tuple[Price, ...], dict[str, Offer]] = ((), {})
        self._known: dict[str, tuple[Node, int | None]] = {}
        self._by_type: dict[str, dict[str, Offer]] = {}
        self._around: PricingContext | None = None

    def __len__(self) -> int:
        return len(self._known)

    def of(self, node: Node, around: PricingContext) -> int | None:
        """Millionths of a dollar an hour; None if nobody says."""
        # Pods by the hundred thousand come with the same surroundings, and comparing thousands of offers takes a while.
        is_same, self._around = around is self._around, around
        if not is_same and (around.prices, around.offers) != self._priced_by:
            # A copy: the mapping may be a view of one that changes.
            self._priced_by, self._known = (around.prices, dict(around.offers)), {}
            self._by_type = prices.by_type(self._priced_by[1])
        known = self._known.get(node.name)
        if known is None or known[0] is not node:
            offers = self._by_type.get(prices.type_of(node), {})
            known = self._known[node.name] = node, prices.node_price(node, around.prices, offers)
            if len(self._known) > len(around.nodes):
                # Nodes come and go under new names; only those that are there are worth remembering.
                self._known = {name: each for name, each in self._known.items() if name in around.nodes.names()}
        return known[1]


def repriced(before: PricingContext, after: PricingContext) -> set[str]:
    """The nodes that cost something else by now. Offers are told anew every few minutes, mostly at the same prices."""
    if before.offers == after.offers:
        return set()
    old, new = NodePrices(), NodePrices()
    return {node.name for node in after.nodes if old.of(node, before) != new.of(node, after)}


def counted_resources(world: World) -> frozenset[str]:
    """The resources that budgets count although they are not recorded by themselves, such as cpu."""
    names = {name for each in budgets_of(world) for name, _ in weights_of(each.spec)}
    return frozenset(name for name in names if "*" not in name and not observing.is_accounted(name))


def around(world: World) -> PricingContext:
    """What a world says around its pods."""
    counted = counted_resources(world)
    view = devices.view_of(world, told_apart(world))
    return PricingContext(world.nodes, view, world.prices, world.offers, world.namespaces, counted)


def table_of(world: World, rows: Iterable[UsageRow]) -> UsageTable:
    """The rows of a ledger united with what a complete view shows of its pods."""
    keeper, look, beside = Keeper(UsageTable(world.cluster)), Look(world.cluster, world.now, world.now), around(world)
    for row in rows:
        keeper.table.put(_fitted(row, world, beside))
    for pod in sorted(world.pods, key=lambda each: each.uid):
        keeper.see(pod, beside, look)
    arrange(structs.replace(world, usage=keeper.table))
    return keeper.table


def _fitted(row: UsageRow, world: World, beside: PricingContext) -> UsageRow:
    """A row that only says how many GPUs, of a pod in view that has just as many, is a row of that pod's resources."""
    pod = world.pods.get(row.uid) if row.cluster == world.cluster else None
    if pod is None or [name for name, _ in row.amounts] != [ANY]:
        return row
    amounts = observing.amounts_of(pod, beside.view, beside.counted)
    total = row.amounts[0][1]
    same = prices.gpus(amounts) == total or any(amount == total for _, amount in amounts)
    return structs.replace(row, amounts=amounts) if same else row


def row_of(usage: Usage, cluster: str) -> UsageRow | None:
    """A row of the ledger, as documents write it; None if it has no begin."""
    if usage.start is None:
        return None
    labels: Pairs = tuple(sorted(usage.labels.items()))
    namespace = usage.namespace or "default"
    end = None if usage.end is None else max(usage.end, usage.start)
    return UsageRow(
        cluster=usage.cluster or cluster,
        uid=usage.uid or f"{namespace}/{usage.pod or usage.name}",
        start=usage.start,
        namespace=namespace,
        pod=usage.pod or usage.name,
        earliest=usage.start,
        # The end of the row; its pod may go on in another one.
        seen_until=usage.start if end is None else end,
        gone_by=end,
        amounts=((ANY, usage.gpus),) if usage.gpus else (),
        labels=labels,
        price=usage.price_per_hour,
    )
