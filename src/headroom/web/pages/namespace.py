"""The page of one namespace: its budgets, usage by job, user and pod, queued and pending pods, and savings."""

from __future__ import annotations

from typing import Final

from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.spot_pools import Spotpool
from headroom.core import usage
from headroom.core.budgets import of_namespaces
from headroom.core.usage import MICRO, Shares
from headroom.model.decisions import Ref
from headroom.model.facts import Pod
from headroom.model.times import HOUR
from headroom.model.usage import DAY
from headroom.model.world import World
from headroom.web.pages import models, nodes, parts, queue, spot_pools, who
from headroom.web.pages.pace import Paced
from headroom.web.pages.parts import Model
from headroom.web.scope import Scope
from headroom.web.view import OperatorView

USUAL_HOURS: Final = 24
MOST_QUEUED: Final = 100
MOST_HISTORY: Final = 25
SLOW_SECONDS: Final = 5.0
MOST_KEPT: Final = 64
"""Namespaces whose usage shares are cached."""


class NamespacePage:
    """Makes the page of any namespace."""

    def __init__(self) -> None:
        self._shares: dict[str, Paced[Shares]] = {}

    def model(self, view: OperatorView, scope: Scope, name: str) -> Model | None:
        """The page without its frame; None if Headroom knows nothing in the namespace or the viewer may not see it."""
        if not scope.sees(name):
            return None
        world = view.world()
        pods = [pod for pod in of_namespaces(world, {name}) if usage.gpus_of(world, pod)]
        covering = [
            ref for ref, _ in world.of_kind(usage.KIND) if scope.sees(ref.namespace) and _covers(world, ref, name)
        ]
        shares = self._used(view, world, name, _hours(world, covering))
        if not pods and not covering and not shares.pods and not _has_resources(world, name):
            return None
        live = [pod for pod in pods if pod.phase not in models.ENDED]
        running = [pod for pod in live if pod.node]
        key = view.presentation.user_key
        return {
            "namespace": name,
            "numbers": parts.known(
                {
                    "gpus": parts.decimal(sum(usage.gpus_of(world, pod) for pod in running)),
                    "running": len(running),
                    "users": len({user for pod in running if (user := who.user_of(None, pod, key))}) if key else None,
                    "savedUsdPerHour": _dollars(usage.saved_now(world, running)),
                }
            ),
            "budgets": {
                f"{ref.namespace}/{ref.name}": parts.budget_row(world.resources[ref], view.loop.decisions.get(ref))
                for ref in covering
            },
            "who": who.model(world, scope, shares, key),
            "queue": _queue(view, scope, covering, name),
            "pending": _pending(world, scope, live),
            "spot": {
                f"{ref.namespace}/{ref.name}": spot_pools.pool_row(each, view.loop.decisions.get(ref))
                for ref, each in world.of_kind(Spotpool.kind.name)
                if ref.namespace == name
            },
            "history": parts.entries(
                view.journal.newest(world.now - 7 * DAY, MOST_HISTORY, lambda each: each.ref.namespace == name)
            ),
            "tools": view.presentation.links_for(namespace=name),
        }

    def _used(self, view: OperatorView, world: World, name: str, hours: int) -> Shares:
        found = self._shares.pop(name, None) or Paced(SLOW_SECONDS)
        self._shares[name] = found
        while len(self._shares) > MOST_KEPT:
            del self._shares[next(iter(self._shares))]
        if not world.ledger.loaded:
            return Shares(world.as_of, hours * HOUR, (), 0, 0, 0)
        return found.get(view, lambda: usage.of_namespace(world, name, hours))


def _covers(world: World, ref: Ref, name: str) -> bool:
    budget = world.resources[ref]
    return ref.namespace == name or (budget.spec is not None and name in usage.namespaces_of(world, budget))


def _hours(world: World, covering: list[Ref]) -> int:
    """The longest window of its budgets: usage is known for that long."""
    specs = [world.resources[ref].spec for ref in covering]
    return max((each.quota.window_hours for each in specs if each is not None), default=USUAL_HOURS)


def _has_resources(world: World, name: str) -> bool:
    return any(ref.namespace == name for ref in world.resources)


def _dollars(micro: int | None) -> str | None:
    return None if micro is None else parts.amount(micro, MICRO, 2)


def _queue(view: OperatorView, scope: Scope, covering: list[Ref], name: str) -> list[Model]:
    """The queued pods and gangs of this namespace, by estimated start."""
    world, found = view.world(), []
    for ref in covering:
        decision = view.loop.decisions.get(ref)
        status = decision.status if decision else None
        if isinstance(status, GPUWorkloadBudgetStatus) and status.held is not None:
            mine = (each for each in status.held.queue if each.unit.split("/")[1] == name)
            budget = {"budget": f"{ref.namespace}/{ref.name}"}
            found += [budget | row for row in queue.rows(world, scope, mine)]
    return sorted(found, key=lambda each: (each.get("startsAt", "~"), each.get("since", "")))[:MOST_QUEUED]


def _pending(world: World, scope: Scope, live: list[Pod]) -> list[Model]:
    """The pods without a node that no budget queues, oldest first."""
    counting = nodes.Counting(world, scope)
    sorts = models.Sorts(world)
    found = sorted((pod for pod in live if not pod.node and not pod.gates), key=lambda pod: (pod.created, pod.key))
    rows = {pod.key: nodes.waits(pod, counting, {}) for pod in found[:MOST_QUEUED]}
    if scope.nodes:
        rows = {pod.key: rows[pod.key] | {"needs": models.needs(world, [pod], sorts)} for pod in found[:MOST_QUEUED]}
    return list(rows.values())
