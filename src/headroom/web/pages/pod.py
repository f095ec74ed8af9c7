"""The page of one pod: its state, why and since when, its estimated start, and its usage."""

from __future__ import annotations

import re
from typing import Final

from msgspec import structs

from headroom.api import marks
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.core import usage
from headroom.core.budgets import Explained, explained, of_namespaces, owner_of
from headroom.core.usage import UsageShare
from headroom.model import times
from headroom.model.decisions import Ref
from headroom.model.facts import Pod
from headroom.model.resource_table import ResourceTable
from headroom.model.usage import DAY
from headroom.model.world import World
from headroom.runtime.journal import Noted
from headroom.web.pages import models, parts, who
from headroom.web.pages.parts import Model
from headroom.web.scope import Scope
from headroom.web.view import OperatorView

MOST_SIBLINGS: Final = 50
MOST_HISTORY: Final = 25
LEFT: Final = "SharedWithKarpenter"
TONES: Final = {"Running": "good", "Held": "warn", "Pending": "warn", "Ended": "idle", "Gone": "idle"}
_WORD: Final = re.compile(r"[\w./-]+")


def model(view: OperatorView, scope: Scope, namespace: str, name: str) -> Model | None:
    """The page without its frame; None if the pod is unknown or the viewer may not see its namespace."""
    if not (scope.sees(namespace) and name):
        return None
    world = view.world()
    mine = sorted(_named(world, namespace, name), key=lambda pod: pod.created, reverse=True)
    pod, used = next(iter(mine), None), usage.of_pod(world, namespace, name)
    what = Ref("Pod", namespace, name)
    statuses = {
        ref: each.status
        for ref, each in view.loop.decisions.items()
        if isinstance(each.status, GPUWorkloadBudgetStatus) and scope.sees(ref.namespace)
    }
    found = _explained(world, scope, statuses, what, pod)
    if found is None:
        return None
    page: Model = {
        "pod": parts.known(
            {
                "namespace": namespace,
                "name": name,
                "state": found.state,
                "tone": TONES.get(found.state, "bad"),
                "sentence": found.sentence,
                "budget": found.budget,
                "startsAt": found.starts_at,
            }
        )
        | _facts(view, world, pod, used, scope),
        "details": list(found.details),
        "siblings": _siblings(world, pod),
        "history": parts.entries(_history(view, world.now, scope, f"{namespace}/{name}")),
        "tools": view.presentation.links_for(namespace=namespace, pod=name)
        + view.presentation.links_for(pod=name)
        + view.presentation.links_for(namespace=namespace),
    }
    if pod is not None and found.state == "Pending" and not pod.node:
        unserved = _unserved(view, world, scope, pod)
        page["unserved"] = [each for each in unserved if each["reason"] != LEFT]
        if scope.nodes and world.node_pools:
            page |= _karpenter(world, pod, is_left=page["unserved"] != unserved)
        if scope.nodes:
            page |= {"needs": models.needs(world, [pod]), "models": models.of(view, world)}
    return page


def _named(world: World, namespace: str, name: str) -> list[Pod]:
    return [pod for pod in of_namespaces(world, {namespace}) if pod.name == name]


def _explained(
    world: World, scope: Scope, statuses: dict[Ref, GPUWorkloadBudgetStatus], what: Ref, pod: Pod | None
) -> Explained | None:
    """Why the pod is in its state, by the visible budgets; other budgets are not named."""
    if scope.everything:
        return explained(world, statuses, what)
    seen = {ref: each for ref, each in world.resources.items() if scope.sees(ref.namespace)}
    found = explained(structs.replace(world, resources=ResourceTable(seen)), statuses, what)
    if found is None:
        return None
    notes = dict(pod.annotations) if pod is not None else {}
    by = [notes.get(marks.HELD_BY, ""), notes.get(marks.PAUSED_BY, "").partition("/")[2], found.budget]
    if all(scope.sees(each.partition("/")[0]) for each in by if each):
        return found
    sentence = f"Pod {what.namespace}/{what.name} is kept by a budget that you may not see."
    return Explained(what, found.state, sentence)


def _facts(view: OperatorView, world: World, pod: Pod | None, used: UsageShare | None, scope: Scope) -> Model:
    key = view.presentation.user_key
    facts: Model = {"user": who.user_of(used, pod, key) if key else ""}
    if used is not None:
        facts |= {
            "gpuHours": parts.amount(used.gpu_ms, usage.GPU_HOUR),
            "usd": parts.amount(used.usd_ms, usage.DOLLAR, 2) if used.usd_ms else "",
        }
    if pod is None:
        return parts.known(facts)
    owner = owner_of(pod)
    facts |= {
        "gpus": parts.decimal(usage.gpus_of(world, pod)),
        "phase": "Ending" if pod.deleting is not None else pod.phase,
        "node": pod.node,
        "mayListNodes": scope.nodes,
        "owner": f"{owner.partition('/')[0]} {owner.rpartition('/')[2]}" if owner else "",
        "priority": pod.priority or None,
        "created": times.text(pod.created) if pod.created else "",
        "started": times.text(pod.started) if pod.started is not None else "",
        "ended": times.text(pod.ended) if pod.ended is not None else "",
        "duration": dict(pod.annotations).get(marks.EXPECTED_DURATION, ""),
    }
    return parts.known(facts)


def _siblings(world: World, pod: Pod | None) -> list[Model]:
    """The other pods of its owner."""
    owner = owner_of(pod) if pod is not None else ""
    if pod is None or not owner:
        return []
    others = [each for each in of_namespaces(world, {pod.namespace}) if each.uid != pod.uid and owner_of(each) == owner]
    return [
        parts.known(
            {
                "namespace": each.namespace,
                "name": each.name,
                "gpus": parts.decimal(usage.gpus_of(world, each)),
                "phase": each.phase,
                "node": each.node,
            }
        )
        for each in sorted(others, key=lambda each: each.name)[:MOST_SIBLINGS]
    ]


def _unserved(view: OperatorView, world: World, scope: Scope, pod: Pod) -> list[Model]:
    """Why no visible pool brings a machine for it."""
    found = []
    for ref, resource in world.resources.items():
        if not scope.sees(ref.namespace):
            continue
        decision = view.loop.decisions.get(ref)
        unserved = getattr(decision.status if decision else resource.status, "unserved", ())
        mine = (each for each in unserved if each.pod == pod.key)
        names = {"kind": ref.kind, "namespace": ref.namespace, "name": ref.name}
        found += [names | {"message": each.message, "reason": each.reason} for each in mine]
    return found


def _karpenter(world: World, pod: Pod, *, is_left: bool) -> Model:
    """What Karpenter could do for it, and what it does: once, however many pools leave the pod to it."""
    from headroom.core import demand  # noqa: PLC0415  once a pod is pending

    said = []
    if is_left and (name := demand.served_by_karpenter(world, pod.shape)):
        said.append(f"{demand.served_words(world, name)}.")
    if claim := demand.coming_claim(world, pod.shape):
        by = f" of NodePool {claim.node_pool}" if claim.node_pool else ""
        said.append(f"NodeClaim {claim.name}{by} is on its way, with room for such a pod.")
    return {"karpenter": " ".join(said)} if said else {}


def _history(view: OperatorView, now: int, scope: Scope, key: str) -> list[Noted]:
    """Decisions that name the pod."""

    def names_it(entry: Noted) -> bool:
        text = view.journal.text(entry)
        is_named = key in text and any(word.strip(".").endswith(key) for word in _WORD.findall(text) if key in word)
        return is_named and parts.may_see(entry, scope)

    return view.journal.newest(now - 7 * DAY, MOST_HISTORY, names_it)
