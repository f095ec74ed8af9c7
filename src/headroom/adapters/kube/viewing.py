"""The World as a view of what the watches know, and of what is known beside them: usage, prices, machines."""

from __future__ import annotations

import random
from types import MappingProxyType
from typing import Any, Final, Unpack

from headroom.adapters.kube import admission, paths
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.watching import Options, Watching
from headroom.api.budget_index import INDEX_NAME
from headroom.model.changes import Topic
from headroom.model.facts import Pod, Price
from headroom.model.ports import Clock, Recording
from headroom.model.usage_table import UsageTable
from headroom.model.world import Caps, LedgerState, World

_NO_LEDGER: Final = LedgerState()
_NEVER: Final = 2**63
_CAPS: Final = Caps()


class Viewing(Watching):
    """A cluster that is watched, as the World that plans decide on."""

    def __init__(
        self,
        kube: Kube,
        *,
        clock: Clock,
        rng: random.Random,
        recording: Recording | None = None,
        **more: Unpack[Options],
    ) -> None:
        """`recording` keeps the usage, and `switches` knows the power of machines; without them nothing is known of either."""
        self.caps, self._switches, self._recording = more.get("caps", _CAPS), more.get("switches"), recording
        self._clouds, self._end_orphans = more.get("clouds"), more.get("end_orphans", False)
        self._pool_namespaces = more.get("pool_namespaces", {})
        super().__init__(kube, clock=clock, rng=rng, recording=recording, **more)
        self._no_usage = UsageTable()
        self._acting_since = _NEVER
        self._index_problem = ""
        self._more_prices: tuple[Price, ...] = ()
        self._known_prices: tuple[Any, tuple[Price, ...]] = ((), ())
        self._views: dict[str, Any] = {name: MappingProxyType(found) for name, found in self._facts.items()}

    def add_prices(self, prices: tuple[Price, ...]) -> None:
        """Prices from elsewhere, in place of those given before; where the ConfigMap says as much of a node, it counts."""
        if prices != self._more_prices:
            self._more_prices = prices
            self.tell(Topic.PRICES)

    @property
    def _book(self) -> tuple[Price, ...]:
        """One object for as long as it says the same: whoever looks prices up remembers it."""
        known = (self._prices.book, self._more_prices)
        if known != self._known_prices[0]:
            self._known_prices = known, known[0] + known[1]
        return self._known_prices[1]

    @property
    def price_problems(self) -> list[str]:
        """Why entries of the price book are left out, one sentence for each."""
        return self._prices.problems

    def world(self, now: int) -> World:
        """The view at this instant; good until the next `await`."""
        recording, index, switches = self._recording, self._indexes.facts.get(INDEX_NAME), self._switches
        clouds = self._clouds
        complete, ledger = self.complete, recording.state() if recording else _NO_LEDGER
        return World(
            now=now,
            settled=self.settled(now),
            cluster=self._cluster,
            own_namespace=self._namespace,
            stopped=self._settings.stopped,
            complete=complete,
            acting_since=self._able_since(now, can_act=complete and ledger.trusted and not self._settings.stopped),
            unseen=self.unseen(),
            resources=self._resources,
            pods=self._pods,
            nodes=self._nodes,
            machines=switches.machines if switches else {},
            calls=switches.calls if switches else {},
            instances=clouds.instances if clouds else {},
            offers=clouds.offers if clouds else {},
            listings=clouds.listings if clouds else {},
            launches=clouds.launches if clouds else {},
            gateways=clouds.gateways if clouds else {},
            instances_given=False,
            pool_namespaces=self._pool_namespaces,
            end_orphans=self._end_orphans,
            devices=self._devices,
            prices=self._book,
            usage=recording.table if recording else self._no_usage,
            ledger=ledger,
            index=index.budgets if index else None,
            index_problem=self._index_problem,
            kueue=(kueue := self._reflectors.get(paths.owner("Workload"))) is not None and kueue.is_served,
            hold_problem=self._hold_problem(),
            caps=self.caps,
            **self._views,
        )

    def _able_since(self, now: int, *, can_act: bool) -> int:
        # A clock that was set back must not make it a moment that is yet to come.
        self._acting_since = min(self._acting_since, now) if can_act else _NEVER
        return min(self._acting_since, now)

    def _hold_problem(self) -> str:
        every = {plural: self._reflectors.get(paths.policies(plural)) for plural in admission.KINDS}
        watched = {plural: each for plural, each in every.items() if each is not None}
        unread = {
            plural: each.cause or admission.unserved(plural) for plural, each in watched.items() if not each.is_served
        }
        return admission.problem({plural: sink.facts for plural, sink in self._policies.items()}, unread)

    def note_index(self, problem: str) -> None:
        """Why the index of budgets cannot be written, as a sentence; empty once it is."""
        if problem != self._index_problem:
            self._index_problem = problem
            self.tell(Topic.INDEX)

    def pod_with_finalizer(self, key: str) -> Pod | None:
        """The pod called `namespace/name`, if it has a finalizer of ours."""
        return self._pod_sink.with_finalizer(key)
