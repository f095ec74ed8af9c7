"""A budget at its limit, the hostile tenant that it stops, and two tenants beside it: what each of them ran, and who lost a pod."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.integration.accounts import GPU, HOUR, Document, Operator, now
from tests.integration.enforced import (
    RUNS_ON,
    Cluster,
    Team,
    enforced_cluster,
    enforcing_operator,
    fill_ledger,
    is_gated,
    is_running,
    template,
    used,
    wait_for,
)
from tests.integration.hostile import DEVICES, GANG, NEIGHBOUR, SPACE, THEIRS, Tenant
from tests.integration.hostile_claims import HeldDevices, by_claim, devices, wants
from tests.integration.hostile_script import GPUS, PODS_RUNNING, prepare, rounds
from tests.processes import PATIENCE_SECONDS

LADDER = [
    {"at": "100%", "action": "Hold"},
    {"at": "110%", "action": "Suspend"},
    {"at": "120%", "action": "Evict"},
]
BEFORE, QUOTA = 100, "70"
"""GPU-hours that were used before, and the quota from some moment on: nothing leaves the window, so nothing is ever released."""
RELEASED = 2
"""GPUs of the Job that somebody with the right to do so releases."""
PATIENCE = PATIENCE_SECONDS
"""Seconds to wait for the cluster: an hour of this may share its machine."""
OTHERS = {"team": "b", GANG: THEIRS}
LONG = dict.fromkeys(RUNS_ON, "24h")
"""Annotations of the others' pods: one that ends by itself within the hour would look like one that was lost."""


class Siege:
    """One tenant against its budget, and what an administrator sees of it."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self.team, self.neighbour = cluster.team(SPACE), cluster.team(NEIGHBOUR)
        self.tenant = Tenant(cluster.plane, seed)
        self.others: dict[str, str] = {}
        """The pods of others, by uid."""
        self.began = self.released = self._last = 0
        self._first: set[str] = set()
        self._first_gpus = 0
        self._bound: set[str] = set()
        self._devices = HeldDevices(cluster.api, SPACE)
        self._past = self._freed = 0.0
        """GPU-milliseconds of the tenant since the hold began, without the Job that was released, and of that Job."""
        self.intruders: set[str] = set()
        """Pods with GPUs that ran under the hold though neither running before nor released."""
        self.peak_released = 0

    def prepare(self) -> None:
        """Everybody runs, and the tenant has laid by what it can."""
        plane = self._cluster.plane
        plane.apply(*devices())
        enforcement = {"gracePeriodSeconds": 0, "steps": LADDER, "order": "WorstOffender"}
        self.team.budget(quota={"gpuHours": "1000", "windowHours": 24}, enforcement=enforcement)
        for space in (self.team, self.neighbour):
            space.budget(
                "others", {"team": "b"}, quota={"gpuHours": "1000", "windowHours": 24}, enforcement=enforcement
            )
            self._settle(space)
        wait_for(lambda: "consumedGpuHours" in self.team.status(), "the budget is counted", PATIENCE)
        prepare(self.tenant)
        wait_for(lambda: len(self._tenants_running()) == PODS_RUNNING, "the tenant's pods run", PATIENCE)
        assert self._gpus(self._tenants_running()) == GPUS
        wait_for(lambda: self.team.status().get("burnRateGpus") == str(GPUS), "all are counted", PATIENCE)
        plane.kubectl("label", "namespace", SPACE, "headroom.dev/require-budget=")

    def _settle(self, space: Team) -> None:
        """The others move in."""
        space.job(THEIRS, 2, template(labels=OTHERS, annotations=LONG))
        for number in range(2):
            space.pod(f"other-{number}", labels=OTHERS)
        path, about = f"apis/{DEVICES}/namespaces/{space.namespace}/resourceclaims", {"metadata": {"name": THEIRS}}
        space.api.send("POST", path, {"apiVersion": DEVICES, "kind": "ResourceClaim", **about, "spec": wants()})
        space.send("Pod", "other-claim", by_claim(resourceClaimName=THEIRS), labels=OTHERS)
        wait_for(lambda: len(space.names(is_running)) == 5, "the others run", PATIENCE)
        self.others |= {pod["metadata"]["uid"]: f"{space.namespace}/{pod['metadata']['name']}" for pod in space.pods()}

    def _tenants_running(self) -> list[Document]:
        """Its pods that run with GPUs."""
        running = [pod for pod in self.team.pods() if pod["status"]["phase"] == "Running"]
        self._devices.look()
        return [pod for pod in running if pod["metadata"]["uid"] not in self.others and self._gpus([pod])]

    def _gpus(self, pods: Sequence[Document]) -> int:
        """GPUs that some pods have: those in their containers' limits, and those of the claims that they hold."""
        return sum(map(_limits, pods)) + self._devices.of({pod["metadata"]["uid"] for pod in pods})

    def hold(self) -> None:
        """The quota falls below what was used; once new pods are queued, the hold has begun."""
        self.team.change("team", quota={"gpuHours": QUOTA})
        probe = template() | {"apiVersion": "v1", "kind": "Pod"}
        probe["metadata"] = probe["metadata"] | {"name": "probe"}
        path = f"{self.team.path('Pod')}?dryRun=All"
        wait_for(lambda: is_gated(self.team.api.send("POST", path, probe)), "new pods are queued", PATIENCE)
        running = self._tenants_running()
        self._first, self._first_gpus = {pod["metadata"]["uid"] for pod in running}, self._gpus(running)
        self._bound = self.team.audit.bound(SPACE)
        self.began = self._last = now()

    def release(self) -> None:
        """Somebody with the right to it releases one Job, as it is now."""
        made = template(annotations=RUNS_ON)
        # With as much to complete as it has pods, no parallelism would make more of them.
        self.team.job("freed", RELEASED, made, completions=100, backoffLimit=100)
        wait_for(lambda: len(self.team.names(is_gated, "freed-")) == RELEASED, "its pods are queued", PATIENCE)
        self.released = now()
        config = self._cluster.plane.kubeconfig("releaser")
        command = [sys.executable, "-m", "headroom", "release", f"job/{SPACE}/freed", "--kubeconfig", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        wait_for(lambda: len(self.team.names(is_running, "freed-")) == RELEASED, "they run", PATIENCE)

    def evict(self) -> None:
        """The tenant's pod that calls itself one of the others' gang goes, while no disruption budget keeps it."""
        chosen = f"labelSelector=team%3Da,{GANG.replace('/', '%2F')}%3D{THEIRS}"
        path = f"{self.team.path('Pod')}?{chosen}"
        wait_for(lambda: not any(map(is_running, self.team.api.items(path))), "it is evicted", PATIENCE)

    def look(self) -> None:
        """What runs now has run since the last look."""
        at, running = now(), self._tenants_running()
        freed = [pod for pod in running if pod["metadata"]["name"].startswith("freed-")]
        rest = [pod for pod in running if pod not in freed]
        self._past += self._gpus(rest) * (at - self._last)
        self._freed += self._gpus(freed) * (at - max(self._last, self.released))
        self._last = at
        self.peak_released = max(self.peak_released, self._gpus(freed))
        self.intruders |= {pod["metadata"]["name"] for pod in rest if pod["metadata"]["uid"] not in self._first}

    def play(self, seconds: float) -> None:
        """The whole script, every move at least twice, and again until that time has passed."""
        # In the second round it spares some of what it has, and begins with what the first one left.
        rounds(self.tenant, self.look, lambda: self.tenant.rounds > 1 and now() - self.began >= seconds * 1000)
        self.look()
        bound = self.team.audit.bound(SPACE) - self._bound
        self.intruders |= {name for name in bound if not name.startswith(("freed-", "plain-"))}

    @property
    def past_quota(self) -> float:
        """GPU-hours since the hold began, without what was released."""
        return self._past / HOUR

    @property
    def running(self) -> float:
        """GPU-hours of what ran when the hold began, had all of it gone on."""
        return self._first_gpus * (self._last - self.began) / HOUR

    @property
    def used_released(self) -> float:
        """GPU-hours of the Job that was released."""
        return self._freed / HOUR

    @property
    def judged(self) -> float:
        """GPU-hours of what was judged at its release, had all of it run ever since."""
        return RELEASED * (self._last - self.released) / HOUR

    @property
    def evictions(self) -> int:
        """How many were granted, whoever asked for them."""
        return len(self.team.evicted())

    def lost(self) -> set[str]:
        """The pods of others that are gone, or on their way out."""
        found = [pod for space in (self.team, self.neighbour) for pod in space.pods() if is_running(pod)]
        there = {pod["metadata"]["uid"] for pod in found}
        return {name for uid, name in self.others.items() if uid not in there}


def _limits(pod: Document) -> int:
    """As the scheduler counts: what all containers ask for together, or one that only begins if that is more."""
    spec = pod["spec"]
    first = [each for each in spec.get("initContainers", ()) if each.get("restartPolicy") != "Always"]
    stay = [each for each in spec.get("initContainers", ()) if each not in first]
    return max(sum(map(_limit, [*spec["containers"], *stay])), *map(_limit, first), 0)


def _limit(container: Document) -> int:
    return int(container.get("resources", {}).get("limits", {}).get(GPU, 0))


@contextlib.contextmanager
def besieged(folder: Path, seed: int = 1) -> Iterator[Siege]:
    """A cluster and its operator, in which a budget has just begun to hold."""
    (folder / "audit").mkdir()
    with enforced_cluster(folder / "audit") as cluster:
        operator: Operator = enforcing_operator(cluster.plane, folder)
        fill_ledger(operator, [used(cluster.plane, SPACE, BEFORE, now() - 2 * HOUR, now() - HOUR)])
        operator.start()
        try:
            siege = Siege(cluster, seed)
            with contextlib.closing(siege.tenant):
                siege.prepare()
                siege.hold()
                siege.release()
                siege.evict()
                yield siege
        finally:
            operator.close()
