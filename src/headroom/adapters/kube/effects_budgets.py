"""What is done for budgets besides their pods: what the API server's policies read, and requests that are over."""

from __future__ import annotations

from contextlib import suppress

from msgspec import structs

from headroom.adapters.kube import budget_holds, budget_index, errors, paths
from headroom.adapters.kube.changing import split
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.telling import ClusterView, Told
from headroom.api.budget_hold import hold_name
from headroom.api.budgets import GPUWorkloadBudget
from headroom.api.kinds import AnyResource
from headroom.api.releases import ReleaseRequest
from headroom.model import actions
from headroom.model.decisions import Ref
from headroom.model.errors import HeadroomError, Refused
from headroom.model.handlers import carries_out
from headroom.model.ports import Clock


class BudgetEffects:
    """Writes holds and the index, exactly as they were decided."""

    def __init__(self, kube: Kube, clock: Clock, view: ClusterView, told: Told) -> None:
        self._kube, self._clock, self._view, self._told = kube, clock, view, told
        self._index_failures = 0
        """In a row."""

    @carries_out(actions.ApplyBudgetIndex)
    async def apply_index(self, action: actions.ApplyBudgetIndex, _resource: AnyResource) -> None:
        """Make the index say what was decided. No budget's status has what is done for all of them, so the view is told."""
        try:
            await budget_index.apply(self._kube, action.budgets)
        except HeadroomError as error:
            self._index_failures += 1
            if self._index_failures > 1:  # the first may have been a moment's outage, which is no news
                self._view.note_index(str(error))
            raise
        self._index_failures = 0
        self._view.note_index("")

    @carries_out(actions.ApplyBudgetHold)
    async def apply_hold(self, action: actions.ApplyBudgetHold, _resource: AnyResource) -> None:
        """Let the API server gate new pods, if the budget is still the one that was decided on."""
        known = self._view.world(self._clock.now()).resources
        budget = known.get(Ref(GPUWorkloadBudget.kind.name, *split(action.budget)))
        if budget is None or budget.deleting or budget.spec is None or budget.uid != action.spec.uid:
            raise Refused(f"holding new pods of budget {action.budget}: it is gone, or cannot be read")
        spec = structs.replace(action.spec, because=action.because)
        if await budget_holds.apply(self._kube, hold_name(action.budget), spec):
            self._told("Held", budget)

    @carries_out(actions.DeleteBudgetHold)
    async def delete_hold(self, action: actions.DeleteBudgetHold, _resource: AnyResource) -> None:
        """Gate nothing any more."""
        await budget_holds.delete(self._kube, hold_name(action.budget))

    @carries_out(actions.DeleteReleaseRequest)
    async def delete_request(self, action: actions.DeleteReleaseRequest, _resource: AnyResource) -> None:
        """Remove one that is over."""
        path = paths.resource(ReleaseRequest.kind.name, *split(action.request))
        with suppress(errors.NotFound, errors.Conflict):  # it is gone; another one of the same name is none of ours
            await self._kube.delete(path, uid=action.uid)
