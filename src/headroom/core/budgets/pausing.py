"""Pause: annotations on every pod that runs on a budget over quota, for controllers that heed them."""

from __future__ import annotations

from collections.abc import Iterator

from headroom.api import marks
from headroom.core import usage
from headroom.core.budgets.accounts import BudgetAccount, has_ladder, is_frozen
from headroom.core.budgets.units import is_alive, is_protected, note
from headroom.core.budgets.waiting import Matcher
from headroom.model import times
from headroom.model.actions import Action, PausePod, ResumePod
from headroom.model.decisions import Ref
from headroom.model.facts import Pod
from headroom.model.world import World


def paused(world: World) -> dict[str, list[Pod]]:
    """The pods that are paused, by who paused them."""
    found: dict[str, list[Pod]] = {}
    for uid in world.pods.annotated:
        pod = world.pods.get(uid)
        if pod is not None and (by := note(pod, marks.PAUSED_BY)):
            found.setdefault(by, []).append(pod)
    return {by: sorted(pods, key=lambda pod: pod.key) for by, pods in found.items()}


def pauses(account: BudgetAccount, *, stands: bool, marked: dict[str, list[Pod]]) -> Iterator[Action]:
    """What is due for a budget whose Pause step is active or not."""
    if not stands:
        yield from (ResumePod(pod=pod.key, uid=pod.uid) for pod in marked.get(str(account.ref), ()))
        return
    for each in account.running:
        pod = account.world.pods.get(each.uid)
        if (
            pod is not None
            and is_alive(pod)
            and not is_protected(account.world, pod)
            and not note(pod, marks.PAUSED_AT)
        ):
            yield PausePod(pod=pod.key, uid=pod.uid)


def left_over(world: World) -> Iterator[Action]:
    """Pods that were paused by a budget that is gone, or that pauses no more and decides on nothing itself."""
    for by, pods in sorted(paused(world).items()):
        if not is_frozen(world, by) and not _is_decided(world, by):
            yield from (ResumePod(pod=pod.key, uid=pod.uid) for pod in pods)


def _is_decided(world: World, by: str) -> bool:
    parts = by.split("/")
    budget = world.resources.get(Ref(*parts)) if len(parts) == 3 and parts[0] == usage.KIND else None
    return budget is not None and has_ladder(world, budget)


def unmarked(world: World, matcher: Matcher) -> Iterator[Action]:
    """Pods that were released so long ago that the mark of it is of no use any more."""
    for uid in sorted(world.pods.annotated):
        pod = world.pods.get(uid)
        released = times.moment(note(pod, marks.RELEASED_AT)) if pod is not None else None
        if pod is None or released is None or not is_alive(pod) or note(pod, marks.PAUSED_BY):
            continue  # one that is paused is resumed first, by who paused it
        if pod.has_claims and pod.started is None:
            continue  # its claims may still grow beyond what was judged
        horizon = max((account.horizon for account, _ in matcher.of_pod(pod)), default=0)
        if world.now - released >= horizon:
            yield ResumePod(pod=pod.key, uid=pod.uid)
