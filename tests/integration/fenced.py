"""A control plane with the operator's account as deploy/ makes it, and objects of others that it could harm."""

import contextlib
import http.client
import json
import ssl
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from headroom.api import generate
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from tests.adapters import owners
from tests.control_plane import ControlPlane, find_assets, lacking, wait_until

Document = dict[str, Any]
NAMESPACE, OWN = "team-a", "headroom-system"
ACCOUNT = f"system:serviceaccount:{OWN}:headroom"
FENCE = "Headroom's operator "
"""How every refusal by the policy begins, after the name of the object."""
_TYPES = {"merge": "application/merge-patch+json", "strategic": "application/strategic-merge-patch+json"}


class Caller:
    """One user of the API server."""

    def __init__(self, plane: ControlPlane, token: str) -> None:
        context = ssl.create_default_context(cafile=plane.ca_file)
        address = urllib.parse.urlsplit(plane.url).netloc
        self._connection = http.client.HTTPSConnection(address, context=context, timeout=60)
        self._token = token

    def close(self) -> None:
        self._connection.close()

    def send(self, method: str, path: str, body: Document | None = None, kind: str = "") -> tuple[int, Document]:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": _TYPES.get(kind, "application/json")}
        self._connection.request(method, f"/{path}", json.dumps(body) if body is not None else None, headers)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        return answer.status, json.loads(text) if text.startswith("{") else {"message": text}

    def patch(self, path: str, body: Document, kind: str = "merge", *, dry: bool = True) -> tuple[int, str]:
        """The server's answer to a change: its number, and its words where it is a no."""
        status, answer = self.send("PATCH", path + ("?dryRun=All" if dry else ""), body, kind)
        return status, str(answer["message"]) if status >= 300 else ""

    def may(self, verb: str, resource: str, group: str = "", namespace: str = "", name: str = "") -> bool:
        """What `kubectl auth can-i` says."""
        plural, _, part = resource.partition("/")
        asked = {"verb": verb, "group": group, "resource": plural, "subresource": part}
        spec = {"resourceAttributes": asked | {"namespace": namespace, "name": name}}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
        status, answer = self.send("POST", "apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        assert status == 201, answer
        return bool(answer["status"]["allowed"])

    def rules(self, namespace: str) -> set[str]:
        """What `kubectl auth can-i --list` says: `verb plural.group [name]`."""
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview"}
        path = "apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        status, answer = self.send("POST", path, review | {"spec": {"namespace": namespace}})
        assert status == 201, answer
        assert not answer["status"]["incomplete"]
        return {
            f"{verb} {resource}" + (f".{group}" if group else "") + (f" [{name}]" if name else "")
            for rule in answer["status"]["resourceRules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
            for name in rule.get("resourceNames") or [""]
        }


class Fenced:
    """The cluster: an administrator, and the operator's account."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane, self.admin = plane, Caller(plane, plane.admin_token)
        self._callers = [self.admin]
        self.operator = self.account("headroom", OWN)

    def close(self) -> None:
        for each in self._callers:
            each.close()

    def account(self, name: str, namespace: str) -> Caller:
        token = self.plane.kubectl("create", "token", name, "--namespace", namespace, "--duration=2h").strip()
        self._callers.append(Caller(self.plane, token))
        return self._callers[-1]

    def make(self, path: str, body: Document) -> str:
        """The address of a new object."""
        status, answer = self.admin.send("POST", path, body)
        assert status == 201, answer
        return f"{path}/{answer['metadata']['name']}"


@contextlib.contextmanager
def fenced_cluster() -> Iterator[Fenced]:
    """All of deploy/, and the kinds of others that the operator changes."""
    assets = find_assets()
    if why := lacking(assets, ()):
        pytest.skip(why)  # no control plane is built here; in CI a skip fails
    with ControlPlane(assets, components=()) as plane:
        plane.apply(*(crd(kind) for kind in DEFINITIONS.values()), *owners.definitions())
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        for file in ("rbac.yaml", "policies.yaml"):
            plane.kubectl("apply", "-f", str(generate.ROOT / "deploy" / file))
        plane.kubectl("create", "namespace", NAMESPACE)
        made = Fenced(plane)
        path = made.make(f"api/v1/namespaces/{NAMESPACE}/pods", pod("first"))
        label = {"metadata": {"labels": {"team": "b"}}}
        wait_until(lambda: FENCE in made.operator.patch(path, label)[1], "the policy is at work")
        yield made
        made.close()


# --- objects of others ------------------------------------------------------------------------------------------------------------


def pod(name: str, *, gated: bool = True) -> Document:
    """A tenant's pod, with everything of ours on it, and the same of others."""
    container = {"name": "main", "image": "example.com/train:1", "resources": {"requests": {"cpu": "1"}}}
    spec: Document = {"containers": [container], "initContainers": [container | {"name": "init"}]}
    if gated:
        spec["schedulingGates"] = [{"name": "example.com/gate"}, {"name": "headroom.dev/budget"}]
    else:
        spec["nodeName"] = "n1"
    held = {"headroom.dev/held-by": "team-a/b", "headroom.dev/paused-at": "2026-01-01T00:00:00Z", "theirs": "1"}
    metadata = {"name": name, "labels": {"team": "a"}, "annotations": held}
    return {"metadata": metadata | {"finalizers": ["example.com/keep", "headroom.dev/usage"]}, "spec": spec}


def node(name: str, **annotations: str) -> Document:
    taints = [{"key": "example.com/ours", "value": "a", "effect": "NoSchedule"}]
    taints.append({"key": "headroom.dev/leftover", "value": "x", "effect": "NoSchedule"})
    metadata = {"name": name, "labels": {"zone": "a"}, "annotations": {"theirs": "1"} | annotations}
    return {"metadata": metadata, "spec": {"taints": taints, "unschedulable": True}}


_CONTAINERS = {key: pod("")["spec"][key] for key in ("containers", "initContainers")}
TEMPLATE: Document = {"metadata": {"labels": {"a": "b"}}, "spec": _CONTAINERS | {"restartPolicy": "Never"}}
OWNERS: dict[str, tuple[str, str, Document]] = {
    "jobs": ("apis/batch/v1", "Job", {"template": TEMPLATE, "completions": 2, "completionMode": "Indexed"}),
    "jobsets": ("apis/jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": [], "network": {"a": "b"}}),
    "workloads": ("apis/kueue.x-k8s.io/v1beta1", "Workload", {"queueName": "q", "podSets": []}),
}


def owner(plural: str, name: str, *, stopped: bool = False, **annotations: str) -> tuple[str, Document]:
    """Where one is made, and what it is."""
    root, kind, spec = OWNERS[plural]
    switch: Document = {"active": not stopped} if plural == "workloads" else {"suspend": stopped}
    metadata = {"name": name, "labels": {"team": "a"}, "annotations": {"theirs": "1"} | annotations}
    body = {"apiVersion": root.removeprefix("apis/"), "kind": kind, "metadata": metadata, "spec": spec | switch}
    return f"{root}/namespaces/{NAMESPACE}/{plural}", body


def event(name: str, component: str) -> Document:
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"team": "a"}, "annotations": {"theirs": "1"}},
        "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": "first"},
        "reason": "Told",
        "message": "a fact",
        "type": "Normal",
        "source": {"component": component},
        "reportingComponent": component,
        "count": 1,
    }
