"""The World as a view of what the watches know, and of what is known beside them: usage, prices, machines."""

from __future__ import annotations

import random
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any, Final, Unpack

from msgspec import structs

from headroom.adapters.kube import admission, paths, values
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.karpenter_sinks import REMEMBERED_MS
from headroom.adapters.kube.watching import Options, Watching
from headroom.api.budget_index import INDEX_NAME
from headroom.api.policies import OF_BANDWIDTH
from headroom.model.bandwidth import BandwidthRules
from headroom.model.changes import Topic
from headroom.model.cloud_facts import Experience, PoolWrite, WriteProblem
from headroom.model.facts import Pod, Price
from headroom.model.ports import Beside, Clock, Recording
from headroom.model.usage_table import UsageTable
from headroom.model.world import Caps, LedgerState, World

_NO_LEDGER: Final = LedgerState()
_NEVER: Final = 2**63
_CAPS: Final = Caps()
_NOTHING_BESIDE: Final = Beside()


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
        """`recording` keeps the usage; without it nothing is known of that."""
        self.caps, self._beside, self._recording = (
            more.get("caps", _CAPS),
            more.get("beside", _NOTHING_BESIDE),
            recording,
        )
        self._end_orphans, self._pool_namespaces = more.get("end_orphans", False), more.get("pool_namespaces", {})
        super().__init__(kube, clock=clock, rng=rng, recording=recording, **more)
        self._no_usage = UsageTable()
        self._acting_since = _NEVER
        self._bandwidth = BandwidthRules()
        self._index_problem = ""
        self._more_prices: tuple[Price, ...] = ()
        self._known_prices: tuple[Any, tuple[Price, ...]] = ((), ())
        self._write_problems = self._facts.setdefault("write_problems", {})
        self._pool_writes = self._facts.setdefault("pool_writes", {})
        self._experience = self._facts.setdefault("experience", {})
        self._views: dict[str, Any] = {name: MappingProxyType(found) for name, found in self._facts.items()}

    def regulate(self, bandwidth: BandwidthRules) -> None:
        """What an administrator says of bandwidth; said before anything is watched."""
        values.keep(key.name for key in bandwidth.keys)
        self._bandwidth = bandwidth

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
        recording, index = self._recording, self._indexes.facts.get(INDEX_NAME)
        self._forget_before(now - REMEMBERED_MS)
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
            instances_given=False,
            pool_namespaces=self._pool_namespaces,
            end_orphans=self._end_orphans,
            devices=self._devices,
            prices=self._book,
            usage=recording.table if recording else self._no_usage,
            ledger=ledger,
            index=index.budgets if index else None,
            index_problem=self._index_problem,
            kueue=self._has(paths.owner("Workload")),
            node_overlays_served=self._has(paths.node_overlay()),
            hold_problem=self._policy_problem(admission.OF_HOLDS),
            bandwidth_problem=self._policy_problem(OF_BANDWIDTH),
            caps=self.caps,
            bandwidth=self._bandwidth,
            **self._beside.facts(),
            **self._views,
        )

    def _has(self, path: str) -> bool:
        """Whether a kind that a cluster may lack is served, as far as anybody knows."""
        found = self._reflectors.get(path)
        return found is not None and found.is_served

    def _forget_before(self, moment: int) -> None:
        self._node_claims.forget_before(moment)
        for key in [key for key, each in self._write_problems.items() if each.at < moment]:
            del self._write_problems[key]
        # What the API server made of a write is known for as long as the NodePool stands, or it would be written again every hour.
        standing = self._facts["node_pools"]
        for key in [key for key, each in self._pool_writes.items() if each.at < moment and key not in standing]:
            del self._pool_writes[key]

    def _able_since(self, now: int, *, can_act: bool) -> int:
        # A clock that was set back must not make it a moment that is yet to come.
        self._acting_since = min(self._acting_since, now) if can_act else _NEVER
        return min(self._acting_since, now)

    def _policy_problem(self, of: Container[str]) -> str:
        every = {plural: self._reflectors.get(paths.policies(plural)) for plural in admission.KINDS}
        watched = {plural: each for plural, each in every.items() if each is not None}
        unread = {
            plural: each.cause or admission.unserved(plural) for plural, each in watched.items() if not each.is_served
        }
        return admission.problem({plural: sink.facts for plural, sink in self._policies.items()}, unread, of)

    def note_index(self, problem: str) -> None:
        """Why the index of budgets cannot be written, as a sentence; empty once it is."""
        if problem != self._index_problem:
            self._index_problem = problem
            self.tell(Topic.INDEX)

    def note_write(self, object_: str, action: str, problem: str) -> None:
        """Why an action on one of Karpenter's objects, Kind/name, failed, as a sentence; empty once it is done."""
        before = self._write_problems.pop(object_, None)
        after = WriteProblem(object=object_, action=action, at=self._clock.now(), message=problem) if problem else None
        if after is not None:
            self._write_problems[object_] = after
        # That it failed once more is no news.
        if (before is None) != (after is None) or (before and after and structs.replace(after, at=before.at) != before):
            self.tell(Topic.KARPENTER, object_)

    def note_pool(self, written: PoolWrite) -> None:
        """A NodePool was written. Whoever decides looks anyway, when the watch tells of it or the same is due again."""
        self._pool_writes[written.node_pool] = written

    def learn(self, found: Mapping[str, Experience]) -> None:
        """What is known of offers from their machines, in place of what was."""
        if found != self._experience:
            self._experience.clear()
            self._experience.update(found)
            self.tell(Topic.OFFERS)

    def pod_with_finalizer(self, key: str) -> Pod | None:
        """The pod called `namespace/name`, if it has a finalizer of ours."""
        return self._pod_sink.with_finalizer(key)
