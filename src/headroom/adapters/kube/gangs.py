"""A gang is evicted as a whole or not at all: before its first pod goes, its disruption budgets must allow all of them."""

from __future__ import annotations

from typing import Final

from headroom.adapters.kube import decode, paths
from headroom.adapters.kube.changing import split
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.disruptions import Disruption
from headroom.adapters.kube.telling import View
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.enforcement import Victim
from headroom.api.kinds import AnyResource
from headroom.model import actions, facts
from headroom.model.decisions import Ref
from headroom.model.errors import Refused
from headroom.model.ports import Clock
from headroom.model.world import ref_of

_PAGES: Final = decode.disruption_budgets()


class Gangs:
    """Knows which gangs have begun to go. A budget evicts one pod after another, so its first is told from the others."""

    def __init__(self, kube: Kube, clock: Clock, view: View) -> None:
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
        why = _stuck([pod for pod in pods if pod.phase == "Running"], await self._disruptions(action))
        if why:
            raise Refused(f"evicting pod {action.pod}: its gang {gang.unit} would be torn apart: {why}")

    def begun(self, action: actions.EvictPod, resource: AnyResource) -> None:
        """A pod was evicted; if it was of a gang, the others follow it."""
        if gang := self._gang(action, resource):
            self._begun[ref_of(resource)] = gang

    def _gang(self, action: actions.EvictPod, resource: AnyResource) -> Victim | None:
        """The gang of a pod that is being stopped: it stands in the budget's status before the first pod is asked to go."""
        status = self._view.world(self._clock.now()).resources.get(ref_of(resource), resource).status
        victim = status.victim if isinstance(status, GPUWorkloadBudgetStatus) else None
        return victim if victim is not None and action.uid in victim.uids and len(victim.uids) > 1 else None

    async def _disruptions(self, action: actions.EvictPod) -> list[Disruption]:
        namespace, _ = split(action.pod)
        found: list[Disruption] = []
        async for body in self._kube.pages(paths.disruption_budgets(namespace)):
            found += _PAGES.page(body).items
        return found


def _stuck(pods: list[facts.Pod], disruptions: list[Disruption]) -> str:
    """Why not all of these pods would go; empty if they would."""
    selected: dict[str, int] = {}
    for each in disruptions:
        chosen = [pod for pod in pods if each.selects(pod)]
        if len(chosen) > each.allowed:
            return f"PodDisruptionBudget {each.name} allows {each.allowed} of {len(chosen)} now"
        for pod in chosen:
            selected[pod.key] = selected.get(pod.key, 0) + 1
    # The API server evicts none that more than one of them selects.
    twice = next((key for key, count in selected.items() if count > 1), "")
    return f"more than one PodDisruptionBudget selects pod {twice}" if twice else ""
