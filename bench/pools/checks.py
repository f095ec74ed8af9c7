"""What must hold of a pool whatever happens: checked after everything that is done.

Names are those of the promises: S1 never one too many, S2 one machine for a token, S3 nothing of somebody else's, S4 the intent is durable
before the call, S5 a slot is free only on evidence, S6 the finalizer goes last, S7 purchases and prices within their limits, S8 no machine
is ended under its pods without a drain.
"""

from __future__ import annotations

from typing import Final

from bench.pools.processes import CLUSTER, Process, Violation, Watch
from bench.pools.stage import Stage
from headroom.api.kinds import AnyResource
from headroom.api.marks import CLUSTER_TAG, OWNER_TAG, POOL_FINALIZER
from headroom.model import actions, times
from headroom.model.decisions import Decision
from headroom.model.world import World
from headroom.sim.cloud import SimMachine

UNRESOLVED: Final = ("Launching", "Cancelling")
APART_MS: Final = times.MINUTE
"""By so much clocks may differ."""
AN_HOUR: Final = times.HOUR - APART_MS
STALE_MS: Final = 5 * times.MINUTE


class Checks(Watch):
    """Raises `Violation` at what must not happen."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._allowed: dict[str, int] = {}
        """How many machines and open intents each pool may have: beyond its limit only what it had when that was lowered."""
        self._durable: set[str] = set()
        """Tokens that stood in a status at some time."""
        self.bought: list[int] = []
        """When machines were launched for the pool that there is, or was last."""
        self.ended = 0
        self.retained: set[str] = set()
        """Uids of pools that went and left their machines, as they were told to."""
        self._cap = 0
        self._owner = ""
        self.stands()

    # --- counts ---------------------------------------------------------------------------------------------------------------

    def stands(self) -> None:
        """Never more machines than the limit, those counted of which nobody knows yet."""
        pool = self._stage.pool
        if pool is None:
            return
        if pool.uid != self._owner:
            self._owner, self._cap = pool.uid, 0
            self.bought = []
        limit = pool.spec.maximum + pool.spec.max_surge
        self._cap = max(self._cap, pool.spec.max_purchases_per_hour or max(10, 2 * pool.spec.maximum))
        alive, open_ = len(self._stage.left_by(pool.uid)), len(self.open_tokens(pool))
        allowed = max(limit, self._allowed.get(pool.uid, 0))
        if alive + open_ > allowed:
            raise Violation("S1", f"{alive} machines and {open_} open intents, at most {allowed}")
        self._allowed[pool.uid] = max(limit, min(allowed, alive + open_))

    def open_tokens(self, pool: AnyResource) -> set[str]:
        """Tokens of which a machine may yet come."""
        named = {it.token for it in pool.status.slots if it.state in UNRESOLVED}
        on_their_way = {it.order.token for it in self._stage.sent if it.order.tags[OWNER_TAG] == pool.uid}
        return {token for token in named | on_their_way if self._stage.cloud.machine_of(token) is None}

    # --- decisions ------------------------------------------------------------------------------------------------------------

    def decided(self, process: Process, world: World, decision: Decision) -> None:
        """An intent to launch stands in the status that is written first; nothing is done on an old list."""
        pool = process.view
        assert pool is not None
        self._on_evidence(process, decision)
        has_finalizer = POOL_FINALIZER in pool.finalizers
        for action in decision.actions:
            match action:
                case actions.AddFinalizer():
                    has_finalizer = True
                case actions.LaunchInstance():
                    self._means(action, decision, has_finalizer)
                    self._affordable(action, pool, world)
                case actions.TerminateInstance() | actions.DrainNode():
                    if pool.spec.paused:
                        raise Violation("paused", f"{action} of a pool that is paused")
                case _:
                    pass

    def _on_evidence(self, process: Process, decision: Decision) -> None:
        listing = next(iter(process.clouds.listings.values()), None)
        acts = [it for it in decision.actions if isinstance(it, actions.LaunchInstance | actions.TerminateInstance)]
        if acts and (listing is None or listing.at < process.now() - STALE_MS):
            raise Violation("stale", f"{acts[0]} without a list of late")

    def _means(self, action: actions.LaunchInstance, decision: Decision, has_finalizer: bool) -> None:
        slots = decision.status.slots  # type: ignore[attr-defined]  # a SpotpoolStatus
        if not has_finalizer:
            raise Violation("S4", f"{action} before the finalizer")
        if action.token not in {it.token for it in slots if it.state == "Launching" and it.slot == action.slot}:
            raise Violation("S4", f"{action} is no intent of the status that it comes with")

    def _affordable(self, action: actions.LaunchInstance, pool: AnyResource, world: World) -> None:
        if pool.spec.max_price_per_hour is None:
            return
        token_known = any(it.token == action.token for it in pool.status.slots)
        offer = next((it for it in world.offers.values() if it.zone == action.zone), None)
        if not token_known and (offer is None or offer.price_per_hour is None):
            raise Violation("S7", f"{action} at a price that nobody knows")

    # --- effects --------------------------------------------------------------------------------------------------------------

    def wrote(self, before: AnyResource, after: AnyResource) -> None:
        """A slot is given up only when surely no machine of it is left; nothing foreign is named; an open breaker buys nothing."""
        kept = {it.token for it in after.status.slots}
        named = {it.instance_id for it in after.status.slots if it.instance_id}
        for slot in before.status.slots:
            if slot.token and slot.token not in kept:
                self._gone(slot.token, named)
        for name in named | {it.instance_id for it in after.status.instances}:
            machine = self._stage.cloud.machines.get(name)
            if machine is not None and not _is_of(machine, after.uid):
                raise Violation("S3", f"the status names {name}, which is not the pool's")
        was = {it.instance_id: it for it in before.status.slots}
        for slot in after.status.slots:
            known = was.get(slot.instance_id)
            if slot.state == "Ending" and slot.instance_id and (known is None or known.state != "Ending"):
                draining = known is not None and known.state == "Draining"
                self._drained(slot.instance_id, after, known.since if known is not None and draining else "")
        new = kept - {it.token for it in before.status.slots} - {""}
        fresh = {it.token for it in after.status.slots if it.token in new and it.state == "Launching"}
        if fresh & self._durable:
            raise Violation("S2", f"tokens {fresh & self._durable} are used again")
        soon = self._stage.now + APART_MS
        open_until = [times.moment(it.breaker.until) or 0 for it in (before.status, after.status) if it.breaker]
        if fresh and len(open_until) == 2 and min(open_until) > soon:  # one that has joined closes it
            raise Violation("S7", f"an intent while the breaker is open until {before.status.breaker.until}")
        self._durable |= kept

    def _gone(self, token: str, named: set[str]) -> None:
        machine = self._stage.cloud.machine_of(token)
        if machine is not None and self._stage.cloud.is_alive(machine.id) and machine.id not in named:
            raise Violation("S5", f"the slot of {machine.id}, which is {machine.state(self._stage.now)}, is free again")

    def made(self, machine: SimMachine) -> None:
        """Purchases keep to their limit, and to a price."""
        pool, now = self._stage.pool, self._stage.now
        if machine.order.token not in self._durable:
            raise Violation("S4", f"{machine.id} was launched with a token that stood in no status")
        if pool is None or machine.order.tags[OWNER_TAG] != pool.uid:
            return
        self.bought.append(now)
        lately = sum(at > now - AN_HOUR for at in self.bought)
        if lately > self._cap:
            raise Violation("S7", f"{lately} purchases in an hour, at most {self._cap}")
        if machine.order.max_price is not None and (machine.price is None or machine.price > machine.order.max_price):
            raise Violation("S7", f"{machine.id} costs {machine.price}")

    def ends(self, machine: SimMachine) -> None:
        """Only machines of the pool are ended, and those with pods only after a drain."""
        pool = self._stage.pool
        assert pool is not None
        if not _is_of(machine, pool.uid):
            raise Violation("S3", f"{machine.id} is to be ended, which is not the pool's")
        if machine.state(self._stage.now) == "RUNNING":
            self.ended += 1

    def _drained(self, instance: str, pool: AnyResource, since_text: str) -> None:
        node, now, machine = f"node-{instance}", self._stage.now, self._stage.cloud.machines[instance]
        since = times.moment(since_text) or now
        had_time = now - since >= pool.spec.drain_seconds * times.SECOND - APART_MS
        if machine.reclaim is None and not had_time and any(pod.node == node for pod in self._stage.pods):
            raise Violation("S8", f"{instance} is to be ended under its pods, drained for {(now - since) // 1000} s")

    def drains(self, node: str) -> None:
        """Only nodes of the pool's machines are drained."""
        pool = self._stage.pool
        machine = self._stage.cloud.machines.get(node.removeprefix("node-"))
        if machine is None or pool is None or not _is_of(machine, pool.uid):
            raise Violation("S3", f"{node} is drained, which is not the pool's")

    def released(self, pool: AnyResource) -> None:
        """The finalizer goes when no machine is left and none can come."""
        open_ = self.open_tokens(pool)
        if open_:
            raise Violation("S6", f"the pool goes with {len(open_)} open intents")
        left = self._stage.left_by(pool.uid)
        if pool.spec.deletion_policy == "Retain":
            self.retained.add(pool.uid)
        elif left:
            raise Violation("S6", f"the pool goes and leaves {len(left)} machines behind")


def _is_of(machine: SimMachine, uid: str) -> bool:
    tags = machine.order.tags
    return tags.get(CLUSTER_TAG) == CLUSTER and tags.get(OWNER_TAG) == uid
