"""A budget with what it counts and what it has counted: what every step of the ladder looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import cached_property
from typing import Final, NamedTuple

from headroom.api import durations, marks
from headroom.api.budgets import GPUWorkloadBudgetSpec, GPUWorkloadBudgetStatus
from headroom.api.enforcement import HARMLESS, percent
from headroom.api.kinds import AnyResource
from headroom.api.quantities import InvalidQuantity, nano
from headroom.core import usage
from headroom.core.budgets.following import Followed, followed, is_elsewhere
from headroom.core.budgets.units import Queued, note
from headroom.core.usage import BudgetScope, BudgetUsage, Outlook, QuotaLimits, Reckoning, Running, turns_of
from headroom.model import times
from headroom.model.decisions import Ref
from headroom.model.facts import Pairs, Pod
from headroom.model.world import World, ref_of

STOPPING: Final = ("Suspend", "Evict")
USD: Final = "usd"
OVERDUE_MS: Final = 5 * times.MINUTE
"""A pod that runs on for so long after its end has nobody who ends it, such as the kubelet of a lost node."""
MOST_UNPRICED: Final = 1
"""Per cent of the GPU time in the window that may lack a price while pods are stopped for dollars."""


class Used(NamedTuple):
    """One of the quotas: what was used of it."""

    name: str
    used: int
    quota: int


class BudgetAccount:
    """One budget, added up."""

    def __init__(self, world: World, budget: AnyResource) -> None:
        self.world, self.budget = world, budget
        self.ref: Ref = ref_of(budget)
        self.key = f"{budget.namespace}/{budget.name}"
        self.spec: GPUWorkloadBudgetSpec = budget.spec
        self.status: GPUWorkloadBudgetStatus = budget.status
        self.scope: BudgetScope = usage.scope_of(world, budget)
        self.window = self.spec.quota.window_hours * times.HOUR
        self.quota: QuotaLimits = usage.quota_of(self.spec)

    @cached_property
    def rows(self) -> BudgetUsage:
        """The rows of usage that it counts."""
        return BudgetUsage(self.world, self.scope, self.window)

    @cached_property
    def found(self) -> Reckoning:
        """What they come to."""
        return self.rows.summarize(self.quota)

    @cached_property
    def outlook(self) -> Outlook:
        """What comes, with pods that run ending when they declare: the one forecast that status, pages, events and metrics tell.

        Holds need no part in it: a queued pod is released only if usage stays below the quota for as long as it runs.
        """
        ends = self.ends()
        if not ends:
            return self.found.if_nothing_ends
        pairs = zip(self.rows.forecasts(ends), (self.quota.gpu_ms, self.quota.usd_ms), strict=True)
        courses = [(course, limit) for course, limit in pairs if limit is not None]
        return turns_of(courses, exceeded=bool(self.found.exceeded))

    @property
    def used(self) -> list[Used]:
        """What was used of each quota that it has."""
        both = (("gpuHours", self.found.gpu_ms, self.quota.gpu_ms), (USD, self.found.usd_ms, self.quota.usd_ms))
        return [Used(name, used, quota) for name, used, quota in both if quota is not None]

    def has_reached(self, share: int) -> bool:
        """Whether so many per cent of some quota are used."""
        return any(_is_reached(each, share) for each in self.used)

    def may_stop(self, share: int) -> bool:
        """Whether so many per cent are used of some quota for which pods may be suspended or evicted."""
        return any(_is_reached(each, share) for each in self.used if each.name != USD or self.is_priced)

    @property
    def is_priced(self) -> bool:
        """Whether dollars are known well enough to stop pods for them: at most so much of the window's GPU time has no price."""
        return 100 * self.found.unpriced_gpu_ms <= MOST_UNPRICED * self.found.gpu_ms

    @property
    def limit_share(self) -> int:
        """How many per cent of the quota what is released may lead to: never so much that it would be stopped again."""
        stopping = [percent(step.at) for step in self.spec.enforcement.ladder if step.action in STOPPING]
        return min([100, *stopping])

    @property
    def horizon(self) -> int:
        """How long what declares no length is taken to run, when it is asked whether it may start."""
        return durations.milliseconds(self.spec.enforcement.release_horizon) or times.HOUR

    @property
    def recover_within(self) -> int:
        """How soon usage must fall below a step that stops what runs."""
        return durations.milliseconds(self.spec.enforcement.recover_within) or self.window // 10

    def has_step(self, *actions: str) -> bool:
        """Whether the ladder has such a step."""
        return any(step.action in actions for step in self.spec.enforcement.ladder)

    @cached_property
    def judged(self) -> Counter[str]:
        """What was judged at releases, by uid of the owner: millionths of a GPU."""
        found = Counter[str]()
        for each in self.status.released:
            gpus = nano(each.gpus)
            found[each.uid] += 0 if isinstance(gpus, InvalidQuantity) else gpus // 1000
        return found

    @cached_property
    def followed(self) -> Followed | None:
        """The verdict of another cluster that it goes by; None if it is decided here."""
        return followed(self.world, self.budget)

    @cached_property
    def queued(self) -> Queued:
        """What Kueue decides on."""
        return Queued(self.world)

    @cached_property
    def running(self) -> list[Running]:
        """The pods in view that hold something now."""
        return self.rows.running(self.world)

    def ends(self, going: Collection[str] = frozenset()) -> dict[int, int]:
        """When rows that are held on now will be over, by their place, where that is known; those of `going` are over now."""
        return self._ends | {place: self.found.as_of for _, place in self.rows.places(sorted(going))}

    @cached_property
    def _ends(self) -> dict[int, int]:
        pods, as_of = self.world.pods, self.found.as_of
        found: dict[int, int] = {}
        if not pods.limited and not pods.annotated:
            return found
        for uid, place in self.rows.open_pods():
            pod = pods.get(uid) if uid in pods.limited or uid in pods.annotated else None
            end = end_of(self.world, pod, self.rows.begun_at(place), as_of) if pod is not None else None
            if end is not None:
                found[place] = end
        return found

    def covers(self, namespace: str, labels: Pairs) -> bool:
        """Whether pods with these labels are among those it is for."""
        return self.scope.covers(namespace, labels)

    def rate(self, pod: Pod) -> int:
        """Millionths of a GPU that a pod holds or would hold, claims as a whole; 0 if it is none of this budget's."""
        if not self.covers(pod.namespace, pod.labels):
            return 0
        return usage.asked_rate(usage.asked_by(pod, usage.view_of(self.world)), self.scope.weights)

    def price(self, rate: int) -> int:
        """What such a pod may cost an hour, by the dearest that is paid in the window; 0 where dollars do not matter."""
        if self.quota.usd_ms is None:
            return 0
        dollars, gpus = self.rows.dearest
        return -(-rate * dollars // gpus)


def _is_reached(each: Used, share: int) -> bool:
    return 100 * each.used >= share * each.quota


def is_acting(world: World, budget: AnyResource) -> bool:
    """Whether a budget does more than alert, here and now."""
    return has_ladder(world, budget) and not budget.spec.paused


def has_ladder(world: World, budget: AnyResource) -> bool:
    """Whether a budget is one that does more than alert, in this cluster."""
    spec = budget.spec
    if spec is None or budget.deleting:
        return False
    if is_elsewhere(world, spec):
        # Of what another cluster decides, new pods wait here too; nothing else is done on its word.
        return any(step.action == "Hold" for step in spec.enforcement.ladder)
    return any(step.action != HARMLESS for step in spec.enforcement.ladder)


def budget_named(world: World, key: str) -> AnyResource | None:
    """A budget as marks name it: `namespace/name` or `Kind/namespace/name`."""
    namespace, name = key.split("/")[-2:] if "/" in key else ("", "")
    return world.resources.get(Ref(usage.KIND, namespace, name))


def is_frozen(world: World, key: str) -> bool:
    """Whether a budget is there but does nothing: what it did stays as it is."""
    budget = budget_named(world, key)
    if budget is None or budget.deleting:
        return False
    if budget.spec is None:
        return True
    return has_ladder(world, budget) and not (is_acting(world, budget) and usage.is_read(world, budget))


def declared_length(world: World, pod: Pod) -> int | None:
    """For how long a pod runs at most, by its deadline or its own word; None if it does not say.

    Its word counts where the API server makes a deadline of it. Elsewhere it could lie, and a long grace period makes any deadline one.
    """
    told = None if world.hold_problem else durations.milliseconds(note(pod, marks.EXPECTED_DURATION))
    both = [each for each in (told, pod.deadline) if each is not None]
    return min(both) + times.overtime(pod.grace_seconds) if both else None


def end_of(world: World, pod: Pod, begun: int, as_of: int) -> int | None:
    """When a pod that runs, or is about to, will be over at the latest; None if it may run on for ever.

    Its length counts from its start, of which the ledger knows, `begun`, or the pod itself, or the kubelet where containers restarted.
    """
    if pod.deleting is not None:
        return max(as_of, pod.deleting)
    length = declared_length(world, pod)
    start = min(each for each in (begun, pod.started, pod.started_after) if each is not None)
    if length is None or start + length < as_of - OVERDUE_MS:
        return None
    return max(as_of, start + length)
