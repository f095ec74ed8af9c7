"""A gang is evicted as a whole or not at all: before its first pod goes, its disruption budgets must allow all of them."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from headroom.adapters.kube import decode, errors, paths
from headroom.adapters.kube.changing import split
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.disruptions import Disruption
from headroom.adapters.kube.telling import ClusterView
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.enforcement import Victim
from headroom.api.kinds import AnyResource
from headroom.model import actions, facts
from headroom.model.decisions import Ref
from headroom.model.errors import HeadroomError, Refused
from headroom.model.ports import Clock
from headroom.model.world import ref_of

_PAGES: Final = decode.disruption_budgets()
_NAMED: Final = re.compile(r"[Tt]he disruption budget (\S+) ")
"""How the API server names the one that refuses."""
Stops = actions.EvictPod | actions.DeletePod


class Blocked(Refused):
    """Disruption budgets refuse an eviction: `by`, namespace/name."""

    def __init__(self, message: str, by: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.by = by


Refusing = errors.DisruptionBlocked | errors.EvictionImpossible | Blocked
REFUSALS: Final = (errors.DisruptionBlocked, errors.EvictionImpossible, Blocked)
"""Disruption budgets refuse. That the server has too much to do is none of their doing."""


class Gangs:
    """Knows which gangs have begun to go. A budget evicts one pod after another, so its first is told from the others."""

    def __init__(self, kube: Kube, clock: Clock, view: ClusterView) -> None:
        self._kube, self._clock, self._view = kube, clock, view
        self._begun: dict[Ref, Victim] = {}
        """The gang of each budget that began to go last: the view may show that only a moment later."""

    async def check(self, action: actions.EvictPod, resource: AnyResource) -> None:
        """Raise `Refused` before the first pod of a gang goes if another one could not follow it."""
        gang = self._gang(action, resource)
        if gang is None or gang == self._begun.get(ref_of(resource)):
            return
        table = self._view.world(self._clock.now()).pods
        pods = [pod for uid in gang.uids if (pod := table.get(uid)) is not None]
        if any(pod.deleting is not None for pod in pods):
            return
        namespace, _ = split(action.pod)
        why, names = _stuck([pod for pod in pods if pod.phase == "Running"], await self._disruptions(namespace))
        if why:
            by = tuple(f"{namespace}/{name}" for name in names)
            raise Blocked(f"evicting pod {action.pod}: its gang {gang.unit} could not be evicted as a whole: {why}", by)

    async def refusing(self, action: Stops, pod: facts.Pod, problem: Refusing) -> tuple[str, ...]:
        """The disruption budgets that refused an eviction, namespace/name: as the API server says, or all that select the pod."""
        if isinstance(problem, Blocked):
            return problem.by
        namespace, _ = split(action.pod)
        said = (_NAMED.search(message) for _, message in problem.causes)
        names = {found[1] for found in said if found}
        with suppress(HeadroomError):  # that it was refused is known without their names
            names = names or {each.name for each in await self._disruptions(namespace) if each.selects(pod)}
        return tuple(sorted(f"{namespace}/{name}" for name in names))

    def begun(self, action: Stops, resource: AnyResource) -> None:
        """A pod was evicted; if it was of a gang, the others follow it."""
        if gang := self._gang(action, resource):
            self._begun[ref_of(resource)] = gang

    def _gang(self, action: Stops, resource: AnyResource) -> Victim | None:
        """The gang of a pod that is being stopped: it stands in the budget's status before the first pod is asked to go."""
        status = self._view.world(self._clock.now()).resources.get(ref_of(resource), resource).status
        victim = status.victim if isinstance(status, GPUWorkloadBudgetStatus) else None
        return victim if victim is not None and action.uid in victim.uids and len(victim.uids) > 1 else None

    async def _disruptions(self, namespace: str) -> list[Disruption]:
        found: list[Disruption] = []
        async for body in self._kube.pages(paths.disruption_budgets(namespace)):
            found += _PAGES.page(body).items
        return found


def _stuck(pods: list[facts.Pod], disruptions: list[Disruption]) -> tuple[str, tuple[str, ...]]:
    """Why not all of these pods would go, and by which disruption budgets; empty if they would."""
    selected: dict[str, list[str]] = {}
    for each in disruptions:
        chosen = [pod for pod in pods if each.selects(pod)]
        if len(chosen) > each.allowed:
            return f"PodDisruptionBudget {each.name} allows {each.allowed} of {len(chosen)} now", (each.name,)
        for pod in chosen:
            selected.setdefault(pod.key, []).append(each.name)
    # The API server evicts none that more than one of them selects.
    twice = next((key for key, names in selected.items() if len(names) > 1), "")
    if not twice:
        return "", ()
    return f"more than one PodDisruptionBudget selects pod {twice}", tuple(sorted(selected[twice]))


def in_our_words(pod: str, problem: Refusing, by: tuple[str, ...]) -> Refusing:
    """The same refusal, said as people say it."""
    if isinstance(problem, Blocked):
        return problem
    not_now = isinstance(problem, errors.DisruptionBlocked)
    why = (
        "its PodDisruptionBudget allows no eviction now" if not_now else "more than one PodDisruptionBudget selects it"
    )
    said = "; ".join(message for _, message in problem.causes if message) or ", ".join(by)
    message = f"evicting pod {pod}: {why}" + (f" ({said})" if said else "")
    return type(problem)(problem.status, problem.reason, message, problem.causes)
