"""The power pages: all pools with their machines on and off, and one pool with the state and history of each machine."""

from __future__ import annotations

from typing import Final

from headroom.api.kinds import AnyResource
from headroom.api.power import PowerPolicy, PowerPool
from headroom.api.power_status import STATES, PowerPoolStatus
from headroom.core.usage import MICRO
from headroom.model import conditions
from headroom.model.decisions import Decision, Ref
from headroom.model.usage import DAY
from headroom.model.world import World
from headroom.runtime.journal import MOST_REMEMBERED
from headroom.web.pages import machines, parts
from headroom.web.pages.parts import Model
from headroom.web.scope import Scope
from headroom.web.view import OperatorView

MOST_HISTORY: Final = 100
EXAMPLE: Final = """\
apiVersion: headroom.dev/v1alpha1
kind: PowerPool
metadata: {name: basement}
spec:
  machines:
  - name: gpu-worker-1    # the name of its node
    gpuCount: 8
    scaleUpEndpoint: https://power-api.example.com/gpu-worker-1/start
    scaleDownEndpoint: https://power-api.example.com/gpu-worker-1/stop
  policy: {idleSeconds: 900, minOn: 0}
"""
"""A first manifest for viewers without a pool."""


def model(view: OperatorView, scope: Scope) -> Model:
    """The page of all pools, without its frame. Pools are cluster-scoped, so viewing them needs access to everything."""
    if not scope.everything:
        return {"maySee": False, "pools": {}}
    world = view.world()
    found = world.of_kind(PowerPool.kind.name)
    page: Model = {"maySee": True, "pools": {}}
    for ref, resource in found:
        page["pools"][ref.name] = pool_row(world, resource, view.loop.decisions.get(ref))
    return page if found else page | {"example": EXAMPLE}


def pool(view: OperatorView, scope: Scope, name: str) -> Model | None:
    """The page of one pool without its frame; None if it does not exist or the viewer may not see it."""
    world, ref = view.world(), Ref(PowerPool.kind.name, "", name)
    resource = world.resources.get(ref)
    if resource is None or not scope.everything:
        return None
    decision = view.loop.decisions.get(ref)
    status = machines.status_of(resource, decision)
    entries = view.journal.newest(world.now - 7 * DAY, MOST_REMEMBERED, lambda each: each.resource == str(ref))
    rows: Model = {}
    if resource.spec is not None:
        pasts = machines.pasts(entries, status, world.now)
        for machine, found in machines.remembered(resource, status):
            rows[machine.name] = machines.row(world, resource.spec, machine, found, pasts.get(machine.name, []))
    return {
        "pool": pool_row(world, resource, decision) | _details(resource, status),
        "machines": rows,
        "mayListNodes": scope.nodes,
        "unserved": [
            {"pod": each.pod, "pods": each.pods, "reason": each.reason, "message": each.message}
            for each in status.unserved
        ],
        "history": parts.entries(entries[:MOST_HISTORY]),
    }


def pool_row(world: World, resource: AnyResource, decision: Decision | None) -> Model:
    """One pool in a few numbers and words."""
    row: Model = {"name": resource.name}
    if resource.spec is None:
        said = "; ".join(f"{each.field} {each.message}" for each in resource.problems)
        return row | {"state": "Invalid", "tone": "bad", "reason": "InvalidSpec", "message": said}
    status = machines.status_of(resource, decision)
    found = [(machines.gpus(world, each), known) for each, known in machines.remembered(resource, status)]
    states = [known.state for _, known in found]
    there = [gpus for gpus, known in found if gpus.is_there and known.state == "On"]
    state, tone = _state(resource, status)
    return row | parts.known(
        {
            "state": state,
            "tone": tone,
            "machines": len(found),
            "states": {each: states.count(each) for each in STATES if each in states},
            "gpus": parts.decimal(sum(each.gpu_count for each in resource.spec.machines) * MICRO),
            "gpusOn": parts.decimal(sum(each.all for each in there)),
            "gpusFree": parts.decimal(sum(max(each.all - each.held, 0) for each in there)),
            "usedKwh": status.energy.used_kwh if status.energy else "",
            "savedKwh": status.energy.saved_kwh if status.energy else "",
            "unservedPods": sum(each.pods for each in status.unserved),
            "reason": decision.reason if decision else "Waiting",
            "message": decision.message if decision else "No decision has been made yet.",
        }
    )


def _state(resource: AnyResource, status: PowerPoolStatus) -> tuple[str, str]:
    """One word for the state of a pool, and its tone. The words only summarize the status."""
    if resource.spec.paused:
        return "Paused", "idle"
    if status.on is None:
        return "Waiting", "idle"
    if status.failed:
        return "MachinesFailed", "bad"
    for type_ in ("Conflict", "Braked"):
        if conditions.holds(status.conditions, type_):
            return type_, "warn"
    if status.unserved:
        return "Unserved", "warn"
    return ("Changing", "good") if status.changing else ("Steady", "good")


def _details(resource: AnyResource, status: PowerPoolStatus) -> Model:
    found: Model = {
        "conditions": [
            {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
            | {"since": each.last_transition_time}
            for each in status.conditions
        ],
        "problems": [f"{each.field} {each.message}" for each in resource.problems],
        "trials": [
            parts.known({"machine": each.machine, "at": each.at, "inVain": each.in_vain or None})
            for each in status.trials
        ],
        "energyAsOf": status.energy.as_of if status.energy else "",
    }
    if resource.spec is not None:
        found |= {"gpuResourceName": resource.spec.gpu_resource_name, "order": resource.spec.order}
        found["policy"] = _policy(resource.spec.policy, len(resource.spec.machines))
    return parts.known(found)


def _policy(policy: PowerPolicy, machines: int) -> Model:
    from headroom.core.power import warm_percent  # noqa: PLC0415  loaded with the first pool

    return parts.known(
        {
            "idleSeconds": policy.idle_seconds,
            "bootTimeoutSeconds": policy.boot_timeout_seconds,
            "minOn": policy.min_on,
            "minOnSeconds": policy.min_on_seconds,
            "minOffSeconds": policy.min_off_seconds,
            "warmPercent": warm_percent(policy, machines),
            "togglesPerHour": policy.toggles_per_hour,
            "maxConcurrentWakes": policy.max_concurrent_wakes,
            "maxConcurrentSleeps": policy.max_concurrent_sleeps,
            "prefer": policy.prefer,
            "drain": policy.drain,
            "priorityFloor": policy.priority_floor,
            "keepOn": [
                f"{' '.join(each.days) or 'every day'} {each.begin} to {each.end} {each.time_zone}"
                + (f", {each.min_on} on" if each.min_on is not None else "")
                for each in policy.keep_on
            ],
        }
    )
