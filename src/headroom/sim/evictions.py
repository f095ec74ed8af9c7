"""The subresources of pods that act: eviction, which asks the PodDisruptionBudgets, and binding."""

from __future__ import annotations

from typing import Any

from headroom.sim.answers import Body, ErrorAnswer, bad_request, conflict, success
from headroom.sim.apistore import Record
from headroom.sim.calls import ApiCall, decoded
from headroom.sim.catalog import PDB, POD
from headroom.sim.deletion import Deleter, check_preconditions
from headroom.sim.selecting import labels_of, matches
from headroom.sim.writes import ObjectWriter


def evict(call: ApiCall, writer: ObjectWriter, deleter: Deleter) -> Body:
    """POST to pods/eviction."""
    eviction = decoded(call.body, "")
    if not isinstance(eviction, dict) or eviction.get("kind") != "Eviction":
        kind = eviction.get("kind") if isinstance(eviction, dict) else None
        raise bad_request(f'{kind} in version "v1" cannot be handled as a Eviction')
    if (eviction.get("metadata") or {}).get("name") != call.target.name:
        raise bad_request("name in URL does not match name in Eviction object")
    pod = writer.found(POD, call.target.namespace, call.target.name)
    options = eviction.get("deleteOptions") or {}
    if not _ends_anyway(pod.body):
        _ask_budgets(pod, writer)
    check_preconditions(pod, options)
    if call.dry or options.get("dryRun"):
        return success(201)
    evicted = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    pod = writer.keep(pod, _judged(pod.body, evicted, writer.now()))
    deleter.remove(pod, options)
    return success(201)


def _ends_anyway(pod: Body) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _ask_budgets(pod: Record, writer: ObjectWriter) -> None:
    labels = labels_of(pod.body)
    budgets = [
        each.body for each in writer.store.all(PDB, pod.key[0]) if matches(each.body["spec"].get("selector"), labels)
    ]
    if not budgets:
        return
    if len(budgets) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise ErrorAnswer(500, "", message)
    status = budgets[0].get("status") or {}
    healthy, wanted = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if not is_ready(pod.body):
        policy = budgets[0]["spec"].get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
        if policy == "AlwaysAllow" or (healthy >= wanted > 0):
            return
    if status.get("disruptionsAllowed", 0) <= 0:
        name = budgets[0]["metadata"]["name"]
        why = f"The disruption budget {name} needs {wanted} healthy pods and has {healthy} currently"
        message = "Cannot evict pod as it would violate the pod's disruption budget."
        raise ErrorAnswer(429, "TooManyRequests", message, {"causes": [{"reason": "DisruptionBudget", "message": why}]})


def is_ready(pod: Body) -> bool:
    """Whether the pod says that it is ready."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(each.get("type") == "Ready" and each.get("status") == "True" for each in conditions)


def _judged(pod: Body, condition: Body, now: str) -> Body:
    status = pod.get("status") or {}
    others = [each for each in status.get("conditions") or [] if each.get("type") != condition["type"]]
    full = {"lastProbeTime": None, "lastTransitionTime": now} | condition
    return pod | {"status": status | {"conditions": [*others, full]}}


def bind(call: ApiCall, writer: ObjectWriter) -> Body:
    """POST to pods/binding."""
    binding: Any = decoded(call.body, "")
    target = binding.get("target") if isinstance(binding, dict) else None
    if not isinstance(target, dict) or not target.get("name"):
        raise bad_request('Binding in version "v1" cannot be handled as a Binding: target is required')
    pod = writer.found(POD, call.target.namespace, call.target.name)
    name, spec = call.target.name, pod.body["spec"]
    if spec.get("nodeName"):
        raise conflict("", "pods/binding", name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict("", "pods/binding", name, f"pod {name} has non-empty .spec.schedulingGates")
    if pod.body["metadata"].get("deletionTimestamp"):
        raise conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    uid = (binding.get("metadata") or {}).get("uid")
    if uid and uid != pod.uid:
        why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {pod.uid}"
        raise conflict("", "pods/binding", name, why)
    if not call.dry:
        body = _judged(pod.body, {"type": "PodScheduled", "status": "True"}, writer.now())
        writer.keep(pod, body | {"spec": spec | {"nodeName": target["name"]}})
    return success(201)
