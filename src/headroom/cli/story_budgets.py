"""What happens to budgets, in words: one line for each turn, taken from their decisions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.api.enforcement import HARMLESS, EnteredStep, QueuedUnit
from headroom.api.kinds import AnyResource
from headroom.cli.face import Line
from headroom.model import times
from headroom.model.actions import EvictPod, ReleasePod, ResumeOwner, SuspendOwner
from headroom.model.decisions import Decision, Ref

SOON_MS: Final = 3 * times.HOUR
"""A forecast is told when it is no further away than this."""
AGAIN_MS: Final = 30 * times.MINUTE
"""And told anew when it has moved by more than this."""
NOISE_MS: Final = times.MINUTE
"""What comes within so long of a forecast came as forecast."""
MOST_REMEMBERED: Final = 1000

Doing = EvictPod | ReleasePod | ResumeOwner | SuspendOwner


class BudgetStory:
    """Remembers what it has told."""

    def __init__(self) -> None:
        self._steps: dict[Ref, dict[tuple[str, str], EnteredStep]] = {}
        self._forecasts: dict[Ref, tuple[int, int]] = {}
        """Of each budget: the moment that was told, and when that was."""
        self._queued: dict[str, QueuedUnit] = {}
        self._done: dict[str, None] = {}
        """Pods and owners that something was done to, so that it is told once."""

    def decided(self, decision: Decision, now: int) -> Iterator[Line]:
        """What is done for a budget."""
        return ((now, said) for said in self._deeds(decision, now))

    def news(self, ref: Ref, decision: Decision, resource: AnyResource, now: int) -> Iterator[Line]:
        """Steps, forecasts and queued pods."""
        status = decision.status
        if isinstance(status, GPUWorkloadBudgetStatus) and status.as_of:
            yield from self._turns(ref, status, resource)
            yield from ((now, said) for said in self._newly_held(status))
            yield from ((now, said) for said in self._foreseen(ref, status, now))

    # --- deeds ----------------------------------------------------------------------------------------------------------------

    def _deeds(self, decision: Decision, now: int) -> Iterator[str]:
        team, units = decision.resource.name, dict[str, tuple[str, int]]()
        for action in decision.actions:
            if isinstance(action, Doing) and self._is_new(action):
                unit, verb = self._unit(action), _VERBS[type(action)]
                units[unit] = verb, units.get(unit, (verb, 0))[1] + 1
        for unit, (verb, pods) in units.items():
            known = self._queued.pop(unit, None) if verb == "released" else None
            since = times.moment(known.since) if known else None
            waited = f", after {_length(now - since)}" if since is not None else ""
            why = f", to bring {team} back under quota" if verb in ("evicted", "suspended") else ""
            yield f"{verb}: {_short(unit)}{_size(known, pods)}{waited}{why}"

    def _is_new(self, action: Doing) -> bool:
        mark = f"{type(action).__name__} {getattr(action, 'uid', '') or getattr(action, 'object', '')}"
        is_new = mark not in self._done
        self._done[mark] = None
        if len(self._done) > MOST_REMEMBERED:
            del self._done[next(iter(self._done))]
        if isinstance(action, SuspendOwner):
            self._done.pop(f"ResumeOwner {action.object}", None)
        elif isinstance(action, ResumeOwner):
            self._done.pop(f"SuspendOwner {action.object}", None)
        return is_new

    def _unit(self, action: Doing) -> str:
        """What an action is about, as the queue called it; a pod by its own name if it did not wait."""
        if isinstance(action, SuspendOwner | ResumeOwner):
            return f"{action.kind}/{action.object}"
        for unit in self._queued:
            _, _, name = unit.partition("/")
            if action.pod == name or action.pod.rpartition("-")[0] == name:
                return unit
        return f"Pod/{action.pod}"

    # --- what a status says ---------------------------------------------------------------------------------------------------

    def _turns(self, ref: Ref, status: GPUWorkloadBudgetStatus, resource: AnyResource) -> Iterator[Line]:
        before, now = self._steps.get(ref, {}), {(each.at, each.action): each for each in status.steps}
        self._steps[ref] = now
        at = times.moment(status.as_of) or 0
        for key, step in now.items():
            if key not in before:
                yield times.moment(step.since) or at, self._reached(ref, step, _used(status, resource))
        for _, action in before.keys() - now.keys():
            if action == "Hold":
                yield at, f"{ref.name}: no pods are queued any more, new pods start as always"

    def _reached(self, ref: Ref, step: EnteredStep, used: str) -> str:
        is_full = step.at == "100%"
        much = "is over quota" if is_full else f"has used {step.at} of its quota"
        foreseen, told = self._forecasts.get(ref, (0, 0))
        came = is_full and abs((times.moment(step.since) or 0) - foreseen) <= NOISE_MS
        as_told = f", as forecast at {_clock(told)}" if came else ""
        then = {HARMLESS: "", "Hold": "; new pods are queued", "Pause": "; running pods are marked as paused"}.get(
            step.action, "; running pods are evicted" if step.action == "Evict" else "; running jobs are suspended"
        )
        return f"{ref.name} {much} ({used}){as_told}{then}"

    def _newly_held(self, status: GPUWorkloadBudgetStatus) -> Iterator[str]:
        for each in status.held.queue if status.held else ():
            is_new = each.unit not in self._queued
            self._queued[each.unit] = each
            if is_new and each.state == "NeverFits":
                yield f"queued: {_short(each.unit)}{_size(each)}: larger than the quota, so it never starts"
            elif is_new and each.state != "Releasing":
                begin = times.moment(each.starts_at)
                until = f", estimated start {_clock(begin)}" if begin is not None else ""
                yield f"queued: {_short(each.unit)}{_size(each)}{until}"
        while len(self._queued) > MOST_REMEMBERED:
            del self._queued[next(iter(self._queued))]

    def _foreseen(self, ref: Ref, status: GPUWorkloadBudgetStatus, now: int) -> Iterator[str]:
        at = times.moment(status.forecast.exhausted_at) if status.forecast else None
        told = self._forecasts.get(ref)
        is_news = at is not None and (told is None or abs(told[0] - at) > AGAIN_MS)
        holds = any(step.action == "Hold" for step in status.steps)
        if at is not None and is_news and at - now < SOON_MS and not holds:
            self._forecasts[ref] = at, now
            yield f"forecast: {ref.name} goes over quota at {_clock(at)}"


_VERBS: Final[dict[type[Doing], str]] = {
    EvictPod: "evicted",
    ReleasePod: "released",
    ResumeOwner: "released",
    SuspendOwner: "suspended",
}


def _used(status: GPUWorkloadBudgetStatus, resource: AnyResource) -> str:
    """Such as `192 of 240 GPU-hours in 24h`."""
    quota = resource.spec.quota if resource.spec is not None else None
    if quota is None:
        return "all"
    of_gpus = quota.gpu_hours is not None
    amount, whole = (status.consumed_gpu_hours, quota.gpu_hours) if of_gpus else (status.consumed_usd, quota.usd)
    unit = "GPU-hours" if of_gpus else "dollars"
    return f"{float(amount or 0):.0f} of {whole} {unit} in {quota.window_hours}h"


def _short(unit: str) -> str:
    """A unit without its kind."""
    return unit.partition("/")[2]


def _size(unit: QueuedUnit | None, pods: int = 0) -> str:
    if unit is None:
        return f" ({pods} pods)" if pods > 1 else ""
    return f" ({unit.gpus} GPU{'' if unit.gpus == '1' else 's'})"


def _length(ms: int) -> str:
    hours, minutes = divmod(max(0, ms) // times.MINUTE, 60)
    return f"{hours}h {minutes}m" if hours else f"{minutes}m"


def _clock(at: int) -> str:
    """The time of day."""
    return times.text(at)[11:16]
