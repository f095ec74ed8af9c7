"""What the simulated API server does to Kubernetes' own kinds: defaults, limits, and which fields may change later."""

from __future__ import annotations

import re
from typing import Any, Final

from headroom.api.quantities import NANO, InvalidQuantity, nano
from headroom.sim.answers import Body, Cause, bad_request, forbidden_field, invalid_value, required
from headroom.sim.catalog import ResourceType

NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_WORDS: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_QUANTITY: Final = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_POD_FIXED: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
NOT_READY: Final = "node.kubernetes.io/not-ready"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_MAY_CHANGE: Final = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds", "schedulingGates")
_METADATA_PARTS: Final = ("labels", "annotations", "ownerReferences", "finalizers")
_SPEC_PARTS: Final = ("schedulingGates", "tolerations", "nodeSelector", "initContainers", "taints", "unschedulable")
_TEMPLATED: Final = ("Job", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")


def name_causes(name: str) -> list[Cause]:
    """What is wrong with an object's name."""
    if not name:
        return [required("metadata.name", "Required value: name or generateName is required")]
    if len(name) > 253:
        return [invalid_value("metadata.name", name, "must be no more than 253 bytes")]
    return [] if NAME.fullmatch(name) else [invalid_value("metadata.name", name, _NAME_WORDS)]


# --- creation -------------------------------------------------------------------------------------------------------------


def created(type_: ResourceType, body: Body, now: str) -> Body:
    """A new object with what the server fills in or takes away."""
    if type_.group and type_.custom:
        return {name: value for name, value in body.items() if name != "status" or not type_.status}
    make = _CREATED.get(type_.kind)
    return make(body, now) if make else body


def tidied(type_: ResourceType, body: Body) -> Body:
    """The object without the empty maps and lists that the server does not keep."""
    out = body | {"metadata": _without_empty(body["metadata"], _METADATA_PARTS)}
    if type_.custom:
        return out
    for part in ("data", "binaryData"):
        if part in out and not out[part]:
            del out[part]
    if isinstance(out.get("spec"), dict):
        out["spec"] = _without_empty(out["spec"], _SPEC_PARTS)
    return out


def _without_empty(part: Body, names: tuple[str, ...]) -> Body:
    if all(part[name] for name in names if name in part):
        return part
    return {name: value for name, value in part.items() if value or name not in names}


def _pod(body: Body, now: str) -> Body:
    spec: Body = {"enableServiceLinks": True} | pod_spec(body.get("spec") or {})
    tolerations = list(spec.get("tolerations") or [])
    for key in (NOT_READY, "node.kubernetes.io/unreachable"):
        if not any(
            each.get("key", key) == key and each.get("effect", "NoExecute") == "NoExecute" for each in tolerations
        ):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    spec |= {"tolerations": tolerations, "priority": spec.get("priority", 0)}
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    status: Body = {"phase": "Pending", "qosClass": _qos_class(spec)}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "lastProbeTime": None}
        gated |= {"lastTransitionTime": now, "message": "Scheduling is blocked due to non-empty scheduling gates"}
        status = {"phase": "Pending", "conditions": [gated], "qosClass": status["qosClass"]}
    return body | {"spec": spec, "status": status}


def _qos_class(spec: Body) -> str:
    """By CPU and memory alone; GPUs and other extended resources do not count."""
    asked = [each.get("resources") or {} for each in spec.get("containers") or [] if isinstance(each, dict)]
    requests = [{name: (each.get("requests") or {}).get(name) for name in ("cpu", "memory")} for each in asked]
    limits = [{name: (each.get("limits") or {}).get(name) for name in ("cpu", "memory")} for each in asked]
    if not any(value for each in requests + limits for value in each.values()):
        return "BestEffort"
    return "Guaranteed" if requests == limits and all(all(each.values()) for each in limits) else "Burstable"


def pod_spec(spec: Body) -> Body:
    """A pod's spec with the plain defaults, as pods and templates get them."""
    out: Body = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
    } | spec
    for part in ("containers", "initContainers"):
        if isinstance(out.get(part), list):
            out[part] = [_container(each) for each in out[part]]
    return out


def _container(container: Any) -> Any:
    if not isinstance(container, dict):
        return container
    image = str(container.get("image", ""))
    latest = ":" not in image or image.endswith(":latest")
    out = {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always" if latest else "IfNotPresent",
    } | container
    resources = out["resources"]
    if isinstance(resources, dict) and resources.get("limits"):
        out["resources"] = resources | {"requests": resources["limits"] | (resources.get("requests") or {})}
    return out


def _node(body: Body, _: str) -> Body:
    spec = body.get("spec") or {}
    taints = list(spec.get("taints") or [])
    # Nobody has seen the node alive yet, whatever its status says.
    if not any(each.get("key") == NOT_READY for each in taints):
        taints.append({"key": NOT_READY, "effect": "NoSchedule"})
    return body | {"spec": spec | {"taints": taints}, "status": body.get("status") or {}}


def _namespace(body: Body, _: str) -> Body:
    metadata = body["metadata"]
    labels = (metadata.get("labels") or {}) | {"kubernetes.io/metadata.name": metadata["name"]}
    return body | {
        "metadata": metadata | {"labels": labels},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def _job(body: Body, _: str) -> Body:
    metadata = body["metadata"]
    mine = {"batch.kubernetes.io/controller-uid": metadata["uid"], "batch.kubernetes.io/job-name": metadata["name"]}
    mine |= {"controller-uid": metadata["uid"], "job-name": metadata["name"]}
    spec: Body = {"backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False, "manualSelector": False}
    spec |= {"podReplacementPolicy": "TerminatingOrFailed"} | (body.get("spec") or {})
    if "parallelism" not in spec and "completions" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    template = spec.get("template") or {}
    labels = ((template.get("metadata") or {}).get("labels") or {}) | mine
    inner = {
        "metadata": (template.get("metadata") or {}) | {"labels": labels},
        "spec": pod_spec(template.get("spec") or {}),
    }
    spec |= {"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": metadata["uid"]}}, "template": inner}
    if not metadata.get("labels"):
        metadata = metadata | {"labels": labels}
    return body | {"metadata": metadata, "spec": spec, "status": {}}


def _pdb(body: Body, _: str) -> Body:
    return body | {"status": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}}


def _claim(body: Body, _: str) -> Body:
    return body | {"status": {}}  # whoever allocates writes it


def _event(body: Body, _: str) -> Body:
    nothing: Body = {"source": {}, "firstTimestamp": None, "lastTimestamp": None, "eventTime": None}
    return nothing | {"reportingComponent": "", "reportingInstance": ""} | body


def _workload(body: Body, _: str) -> Body:
    spec = body.get("spec") or {}
    template = spec.get("template") or {}
    return body | {"spec": spec | {"template": template | {"spec": pod_spec(template.get("spec") or {})}}, "status": {}}


_CREATED: Final = {
    "Pod": _pod,
    "Node": _node,
    "Namespace": _namespace,
    "Job": _job,
    "PodDisruptionBudget": _pdb,
    "ResourceClaim": _claim,
    "Event": _event,
    "Deployment": _workload,
    "ReplicaSet": _workload,
    "StatefulSet": _workload,
    "DaemonSet": _workload,
}


# --- limits ---------------------------------------------------------------------------------------------------------------


def causes(type_: ResourceType, body: Body) -> list[Cause]:
    """Every limit that an object of a built-in kind breaks; only those that our own work can meet."""
    if type_.custom:
        return []
    match type_.kind:
        case "Pod":
            return pod_causes(body.get("spec") or {}, "spec")
        case "Node":
            return _taint_causes((body.get("spec") or {}).get("taints") or [])
        case "Lease":
            seconds = (body.get("spec") or {}).get("leaseDurationSeconds")
            if seconds is not None and seconds <= 0:
                return [invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")]
        case "Event":
            about = (body.get("involvedObject") or {}).get("namespace", "")
            if about and about != body["metadata"].get("namespace"):
                return [invalid_value("involvedObject.namespace", about, "does not match event.namespace")]
    if type_.kind in _TEMPLATED:
        template = (body.get("spec") or {}).get("template") or {}
        return pod_causes(template.get("spec") or {}, "spec.template.spec")
    return []


def pod_causes(spec: Body, path: str) -> list[Cause]:
    """What is wrong with a pod's spec."""
    if not spec.get("containers"):
        return [required(f"{path}.containers")]
    found: list[Cause] = []
    for index, container in enumerate(spec["containers"]):
        here = f"{path}.containers[{index}]"
        found += [required(f"{here}.{name}") for name in ("name", "image") if not container.get(name)]
        found += _resource_causes(container.get("resources") or {}, f"{here}.resources")
    if spec.get("nodeName") and spec.get("schedulingGates"):
        found.append(forbidden_field(f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return found


def _taint_causes(taints: list[Body]) -> list[Cause]:
    found, seen = [], set()
    for index, each in enumerate(taints):
        if (pair := (each.get("key"), each.get("effect"))) in seen:
            why = f"Duplicate value: {pair[0]}: taints must be unique by key and effect pair"
            found.append(Cause(f"metadata.taints[{index}]", "FieldValueDuplicate", why))
        seen.add(pair)
    return found


def _resource_causes(resources: Body, path: str) -> list[Cause]:
    found: list[Cause] = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for part, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            found += _amount_causes(name, amount, f"{path}.{part}[{name}]")
    for name in requests:
        if "/" in name and name not in limits:
            found.append(
                required(f"{path}.limits", "Required value: Limit must be set for non overcommitable resources")
            )
        elif "/" in name and requests[name] != limits[name]:
            found.append(
                invalid_value(f"{path}.requests", requests[name], f"must be equal to {name} limit of {limits[name]}")
            )
    return found


def _amount_causes(name: str, amount: Any, path: str) -> list[Cause]:
    if not _QUANTITY.fullmatch(str(amount)):
        raise bad_request(
            'Pod in version "v1" cannot be handled as a Pod: quantities must match the regular expression '
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
    value = nano(amount)
    if isinstance(value, InvalidQuantity):  # beyond any use, but the real server keeps 1e309 too
        return []
    if value < 0:
        return [invalid_value(path, amount, "must be greater than or equal to 0")]
    return [invalid_value(path, amount, "must be an integer")] if "/" in name and value % NANO else []


# --- later changes --------------------------------------------------------------------------------------------------------


def update_causes(type_: ResourceType, before: Body, after: Body) -> list[Cause]:
    """Changes that the server does not allow."""
    found: list[Cause] = []
    if before["metadata"].get("deletionTimestamp"):
        known = before["metadata"].get("finalizers") or []
        new = [each for each in after["metadata"].get("finalizers") or [] if each not in known]
        if new:
            listed = ", ".join(f'"{each}"' for each in new)
            why = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
            found.append(forbidden_field("metadata.finalizers", why))
    if type_.kind == "Pod":
        found += _pod_update_causes(before.get("spec") or {}, after.get("spec") or {})
    return found


def _pod_update_causes(before: Body, after: Body) -> list[Cause]:
    if before == after:
        return []
    gates = [each["name"] for each in before.get("schedulingGates") or []]
    for index, each in enumerate(after.get("schedulingGates") or []):
        if each["name"] not in gates:
            why = f"only deletion is allowed, but found new scheduling gate '{each['name']}'"
            return [forbidden_field(f"spec.schedulingGates[{index}].name", why)]
    if any(each not in (after.get("tolerations") or []) for each in before.get("tolerations") or []):
        return [
            forbidden_field("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
        ]
    # A gated pod may still be steered.
    free = (*_MAY_CHANGE, "nodeSelector", "affinity") if gates else _MAY_CHANGE
    if _fixed(before, free) != _fixed(after, free):
        return [forbidden_field("spec", _POD_FIXED)]
    return []


def _fixed(spec: Body, free: tuple[str, ...]) -> Body:
    out = {name: value for name, value in spec.items() if name not in free}
    for part in ("containers", "initContainers"):
        if part in out:
            out[part] = [each | {"image": ""} for each in out[part]]
    return out
