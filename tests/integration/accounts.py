"""Accounts kept beside the operator: pods played through the API, and what they used by their own timestamps.

No node and no kubelet is needed: pods are bound when they are made, and their status is written as a kubelet writes it. Nothing of
Headroom is used to find the truth.
"""

import contextlib
import http.client
import itertools
import json
import math
import os
import ssl
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headroom.api import generate
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from headroom.web.link import METRICS_SECONDS
from tests.control_plane import ControlPlane, find_assets, lacking, wait_until
from tests.processes import Guard, Process, free_ports

Document = dict[str, Any]
OWN_NAMESPACE = "headroom-system"
GPU = "nvidia.com/gpu"
HOUR = 3_600_000
ENDED = ("Succeeded", "Failed")
BUDGETS = "apis/headroom.dev/v1alpha1"
_PATCHES = {"merge": "application/merge-patch+json", "strategic": "application/strategic-merge-patch+json"}


class Api:
    """One connection to an API server, with all rights."""

    def __init__(self, plane: ControlPlane) -> None:
        context = ssl.create_default_context(cafile=plane.ca_file)
        address = urllib.parse.urlsplit(plane.url).netloc
        self._connection = http.client.HTTPSConnection(address, context=context, timeout=60)
        self._token = plane.admin_token

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None, patch: str = "") -> Document:
        """The server's answer; it must be a yes."""
        kind = _PATCHES.get(patch, "application/json")
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        sent = (method, f"/{path}", json.dumps(body) if body is not None else None, headers)
        try:
            self._connection.request(*sent)
            answer = self._connection.getresponse()
        except (
            http.client.RemoteDisconnected,
            BrokenPipeError,
        ):  # it was idle for so long that the server has closed it
            self._connection.close()
            self._connection.request(*sent)
            answer = self._connection.getresponse()
        found: Document = json.loads(answer.read())
        assert answer.status < 300, f"{method} {path}: {found['message']}"
        return found

    def items(self, path: str) -> list[Document]:
        """All objects of a collection."""
        found: list[Document] = self.send("GET", path)["items"]
        return found

    def close(self) -> None:
        self._connection.close()


@contextlib.contextmanager
def prepared_plane() -> Iterator[ControlPlane]:
    """An API server with our kinds, our policies and the operator's namespace."""
    assets = find_assets()
    if why := lacking(assets, ()):
        pytest.skip(why)
    with ControlPlane(assets, components=()) as plane:
        plane.apply(*(crd(kind) for kind in DEFINITIONS.values()))
        plane.kubectl("create", "namespace", OWN_NAMESPACE)
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=300s")
        plane.kubectl("apply", "-f", str(generate.ROOT / "deploy" / "policies.yaml"))
        yield plane


# --- the operator -----------------------------------------------------------------------------------------------------------------


class Operator:
    """`headroom run` as a user has it. One that was killed and is started again has the same name, folder and flags."""

    program: tuple[str, ...] = ("-m", "headroom")
    """What Python runs; it takes the same words."""
    serves_pages = False
    """Whether it has a dashboard and metrics: another process, which takes as long to start as the operator itself."""

    def __init__(self, plane: ControlPlane, folder: Path, name: str = "operator", **settings: str) -> None:
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        self._guard = Guard(self.folder)
        self._process: Process | None = None
        self._settings = {"kubeconfig": str(plane.kubeconfig()), "identity": name, "metrics_plain": "true"}
        self._settings |= {"state_dir": str(self.folder / "state"), **settings}

    def start(self) -> None:
        """Start it, and wait until it sees the cluster."""
        assert self._process is None, "it runs already"
        self.address, self.health = (f"127.0.0.1:{port}" for port in free_ports(2))
        settings = self._settings | {
            "metrics_address": self.address * self.serves_pages,
            "health_address": self.health,
        }
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
        environment |= {f"HEADROOM_{name.upper()}": value for name, value in settings.items()}
        command = [sys.executable, *self.program, "run"]
        self._process = Process(command, self.folder / "log", self._guard, environment)
        # Health and the dashboard are processes of their own, each of which answers when it is there.
        answering = [f"http://{self.health}/readyz", *([f"http://{self.address}/"] * self.serves_pages)]
        self._process.wait_ready(lambda: all(map(fetched, answering)))

    def kill(self) -> None:
        """End it as a lost machine does."""
        assert self._process is not None
        self._process.kill()
        self._process = None

    def stop(self) -> None:
        """End it in good order, if it runs."""
        if self._process is not None:
            self._process.stop(30)
            self._process = None

    def close(self) -> None:
        """End it however it is, and hold it to its log."""
        self.stop()
        self._guard.close()
        assert '"level": "error"' not in self.log, self.log

    @property
    def log(self) -> str:
        """What it wrote in all its lives."""
        return (self.folder / "log").read_text()

    def metrics(self) -> dict[tuple[str, str], float]:
        """What it tells Prometheus: by name of the metric and, for those of a budget, `namespace/name`."""
        assert self.serves_pages, "it has none"
        time.sleep(METRICS_SECONDS)  # they are measured no more often, and whoever asks more often is turned away
        text = fetched(f"http://{self.address}/metrics")
        assert text, self.log[-2000:]
        return {
            (
                sample.name,
                "/".join(sample.labels[key] for key in ("namespace", "name") if key in sample.labels),
            ): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def metric(self, name: str, budget: str = "") -> float:
        """One of them; of a budget, not a number while it has none."""
        found = self.metrics()
        return found.get((f"headroom_{name}", budget), math.nan) if budget else found[f"headroom_{name}", ""]


class OperatorWithPages(Operator):
    """One that can be looked at."""

    serves_pages = True


def fetched(url: str) -> str:
    """The body; empty unless the answer is a yes."""
    # An operator that is just starting does not answer yet; the caller asks again.
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())
    return ""


# --- pods and budgets ---------------------------------------------------------------------------------------------------------------


class Account:
    """One namespace: its pods as the API last showed them, and its budgets."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.last: dict[str, Document] = {}
        """Every pod there ever was, in its last state."""
        self._numbers = itertools.count(31)
        api.send("POST", "api/v1/namespaces", {"metadata": {"name": namespace}})

    def close(self) -> None:
        """Take everything away, so that no other test counts it."""
        for collection in (self._budget(), f"{BUDGETS}/budgetindexes"):
            self._clear(collection)
        for pod in self.api.items(self._pods):
            path = f"{self._pods}/{pod['metadata']['name']}"
            if pod["metadata"].get("finalizers"):
                self.api.send("PATCH", path, {"metadata": {"finalizers": None}}, "merge")
        self._clear(self._pods)

    def _clear(self, path: str) -> None:
        self.api.send("DELETE", f"{path}?gracePeriodSeconds=0")

    # Pods

    @property
    def _pods(self) -> str:
        return f"api/v1/namespaces/{self.namespace}/pods"

    def make(self, name: str, gpus: int = 1, team: str = "a", **spec: Any) -> Document:
        """A pod that is bound to a node and has not started."""
        limits = {GPU: str(gpus)} if gpus else {}
        main = {"name": "main", "image": "example.com/train:1", "resources": {"limits": limits}} | spec.pop("main", {})
        metadata = {"name": name, "labels": {"team": team, "pod": name}}
        body = {"metadata": metadata, "spec": {"nodeName": "n", "containers": [main]} | spec}
        return self._keep(self.api.send("POST", self._pods, body))

    def start(self, name: str) -> Document:
        """Its container runs from now on."""
        return self._report(name, "Running", {"running": {"startedAt": text(seconds())}})

    def run(self, name: str, gpus: int = 1, team: str = "a", **spec: Any) -> Document:
        """A pod that runs from now on."""
        self.make(name, gpus, team, **spec)
        return self.start(name)

    def finish(self, name: str, phase: str = "Succeeded") -> Document:
        """Its container ends now, after a second at least."""
        began = self.last[name]["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]
        end = max(seconds(), moment(began) + 1000)
        return self._report(name, phase, {"terminated": {"exitCode": 0, "startedAt": began, "finishedAt": text(end)}})

    def fail_without_a_finish(self, name: str) -> Document:
        """The kubelet gave it up, and nobody tells when its container ended."""
        state = self.last[name]["status"]["containerStatuses"][0]["state"]
        known = {"type": "DisruptionTarget", "status": "True", "lastTransitionTime": text(seconds() + 1000)}
        return self._report(name, "Failed", state, reason="Evicted", conditions=[known])

    def _report(self, name: str, phase: str, state: Document, **more: Any) -> Document:
        """What the kubelet writes."""
        container = {"name": "main", "image": "example.com/train:1", "imageID": "", "restartCount": 0}
        status = {"phase": phase, "containerStatuses": [container | {"ready": phase == "Running", "state": state}]}
        patch = {"status": status | more}
        return self._keep(self.api.send("PATCH", f"{self._pods}/{name}/status", patch, "merge"))

    def relabel(self, name: str, team: str) -> None:
        """From now on it belongs to another team."""
        self._keep(self.api.send("PATCH", f"{self._pods}/{name}", {"metadata": {"labels": {"team": team}}}, "merge"))

    def touch(self, name: str) -> None:
        """Something happens to it that means nothing: a watch on which nothing happens says up to when only once a minute."""
        self.api.send("PATCH", f"{self._pods}/{name}", {"metadata": {"annotations": {"touched": str(now())}}}, "merge")

    def delete(self, name: str, grace: int = 0) -> None:
        """Without grace it is gone at once, unless something holds it."""
        self.api.send("DELETE", f"{self._pods}/{name}?gracePeriodSeconds={grace}")

    def evict(self, name: str) -> None:
        """Through the API; the kubelet has yet to end it."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        self.api.send("POST", f"{self._pods}/{name}/eviction", body)

    def there(self) -> set[str]:
        """The pods that the API server still has."""
        return {pod["metadata"]["name"] for pod in self.api.items(self._pods)}

    def finalizers(self) -> list[str]:
        """Those that a pod would be born with."""
        main = {"name": "main", "image": "example.com/train:1", "resources": {"limits": {GPU: "1"}}}
        body = {"metadata": {"name": "born", "labels": {"team": "a"}}, "spec": {"containers": [main]}}
        made = self.api.send("POST", f"{self._pods}?dryRun=All", body)
        return list(made["metadata"].get("finalizers", ()))

    def _keep(self, pod: Document) -> Document:
        self.last[pod["metadata"]["name"]] = pod
        return pod

    def hours(self, at: int, *names: str) -> Fraction:
        """GPU-hours up to a moment, by the pods' own timestamps; of all pods unless some are named."""
        return sum((Fraction(self._gpus(name) * self.held(name, at), HOUR) for name in names or self.last), Fraction(0))

    def latest(self) -> int:
        """A moment by which all that was played has happened: now, or the last end of a pod if that is later."""
        return max(now(), *(_end(pod, 0) for pod in self.last.values()))

    def held(self, name: str, at: int) -> int:
        """For how many milliseconds a pod held what it has, up to a moment."""
        return _held(self.last[name], at)

    def _gpus(self, name: str) -> int:
        return int(self.last[name]["spec"]["containers"][0]["resources"]["limits"][GPU])

    # Budgets

    def budget(self, name: str = "team", labels: Mapping[str, str] | None = None, **spec: Any) -> None:
        """A budget for a team's pods."""
        base = {"selector": {"matchLabels": labels or {"team": "a"}}, "quota": {"gpuHours": "100", "windowHours": 24}}
        document = {"apiVersion": "headroom.dev/v1alpha1", "kind": "GPUWorkloadBudget", "metadata": {"name": name}}
        document["spec"] = base | {"enforcement": {"action": "AlertOnly"}} | spec
        self.api.send("POST", self._budget(), document)

    def change(self, name: str, **spec: Any) -> Document:
        """Another spec."""
        return self.api.send("PATCH", self._budget(name), {"spec": spec}, "merge")

    def drop(self, name: str) -> None:
        """A budget goes."""
        self.api.send("DELETE", self._budget(name))

    def status(self, name: str = "team") -> Document:
        """As it is written now."""
        found: Document = self.api.send("GET", self._budget(name)).get("status", {})
        return found

    def first_status(self, name: str = "team") -> Document:
        """The first one that has numbers."""
        wait_until(lambda: "consumedGpuHours" in self.status(name), f"{name} has a status")
        return self.status(name)

    def settled(self, name: str = "team", since: int | None = None) -> Document:
        """A status that is true for a moment not before `since`, unless given the `latest`.

        Numbers that only move with time are written every half minute. A new generation has a new status at once.
        """
        since, found = self.latest() if since is None else since, {}

        def is_settled() -> bool:
            nonlocal found
            made = self.change(name, enforcement={"gracePeriodSeconds": next(self._numbers)})
            generation = made["metadata"]["generation"]
            wait_until(lambda: self.status(name).get("observedGeneration") == generation, f"{name} is looked at")
            found = self.status(name)
            return moment(found.get("asOf") or "1970-01-01T00:00:00Z") >= since

        wait_until(is_settled, f"the status of {name} is true for {text(since)}")
        return found

    def assert_exact(self, status: Document, *pods: str) -> None:
        """What is certain, what is possible and the truth are one; the truth of all pods unless some are named."""
        truth = self.hours(moment(status["asOf"]), *pods)
        consumed, upper = bounds(status)
        assert consumed == upper
        assert is_close(consumed, truth), f"{float(consumed)} instead of {float(truth)}"

    def events(self, name: str = "team") -> dict[tuple[str, str, int], str]:
        """What was said about a budget: the words, by type, reason and how often."""
        found = self.api.items(f"api/v1/namespaces/{self.namespace}/events?fieldSelector=involvedObject.name={name}")
        said = {(each["type"], each["reason"], each["count"]): str(each["message"]) for each in found}
        assert len(said) == len(found), found
        return said

    def _budget(self, name: str = "") -> str:
        path = f"{BUDGETS}/namespaces/{self.namespace}/gpuworkloadbudgets"
        return f"{path}/{name}" if name else path


def condition(status: Document, kind: str) -> tuple[str, str]:
    """Whether it holds, and why."""
    found = next((each for each in status.get("conditions", ()) if each["type"] == kind), {"status": "", "reason": ""})
    return found["status"], found["reason"]


def bounds(status: Document) -> tuple[Fraction, Fraction]:
    """GPU-hours for certain, and at most."""
    return Fraction(status["consumedGpuHours"]), Fraction(status["upperGpuHours"])


def is_close(found: Fraction | str, truth: Fraction) -> bool:
    """Equal to a millionth: a status has twelve decimals."""
    return abs(Fraction(found) - truth) <= truth / 10**6


# --- moments ------------------------------------------------------------------------------------------------------------------------


def now() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def seconds() -> int:
    """The same without its fraction: the API's timestamps have none."""
    return now() // 1000 * 1000


def next_second() -> None:
    """Wait until the API's timestamps can tell what happens now from all that has happened."""
    since = now()
    wait_until(lambda: seconds() > since, "a second has passed")


def moment(written: str) -> int:
    """A timestamp of the API."""
    return round(datetime.fromisoformat(written).timestamp() * 1000)


def text(ms: int) -> str:
    """A timestamp for the API, whose own have whole seconds."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _held(pod: Document, at: int) -> int:
    run = _run(pod)
    start = max(moment(run["startedAt"]), moment(pod["metadata"]["creationTimestamp"])) if run else at
    return max(0, min(_end(pod, at), at) - start)


def _end(pod: Document, otherwise: int) -> int:
    status = pod.get("status", {})
    if status.get("phase") not in ENDED:
        return otherwise
    known = status.get("conditions", [{}])[-1]
    return moment(_run(pod).get("finishedAt") or known["lastTransitionTime"])


def _run(pod: Document) -> Document:
    """The one run of the one container; empty before it started."""
    states = [each["state"] for each in pod.get("status", {}).get("containerStatuses", ())]
    return next((state.get("running") or state["terminated"] for state in states), {})
