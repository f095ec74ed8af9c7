"""The world of cheapest capacity: offers whose prices move, a small Karpenter, and the production operator over it all, audited."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from headroom.model.node_pool_specs import template_digest
from headroom.model.pace import Pace
from headroom.sim.apistore import Change
from headroom.sim.clock import run_virtual
from headroom.sim.karpenter import Karpenter
from headroom.sim.operators import SimulatedProcess, production
from headroom.sim.scenario import Report, Scenario, Simulation
from tests.karpenter_stage import CLASS, GPU, REGION, an_offer
from tests.scenarios.ladder import UNHURRIED_BUT_LEASES, bookmarked

Document = dict[str, Any]
LIMIT = 4
QUIET_MS = 60_000
"""So long after the last write of a NodePool the ladder must stand as it should."""
OFFERS = (
    an_offer("g5.xlarge", "us-east-1a", "0.4"),
    an_offer("g6.xlarge", "us-east-1b", "0.5"),
    an_offer("g5.xlarge", "us-east-1a", "1.0", capacityType="on-demand"),
)


def a_pool(name: str = "cheap", **spec: Any) -> Document:
    """One that switches soon, so that a few hours have room for it."""
    given = {"region": REGION, "families": ["g5", "g6"], "nodeClassName": "gpu", "limits": {GPU: str(LIMIT)}}
    given |= {"switchAfter": "5m", "minDwell": "10m", "consolidateAfter": "1m"}
    metadata = {"name": name}
    return {
        "apiVersion": "headroom.dev/v1alpha1",
        "kind": "LeftoverNodePool",
        "metadata": metadata,
        "spec": given | spec,
    }


class OffersAuditor:
    """Sees every change of a NodePool, and looks at the whole once a minute."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation, self._server = simulation, simulation.server
        self.problems: list[str] = []
        self.deleted: list[str] = []
        self._written = 0
        self._unsubscribe = self._server.store.subscribe(self._notice)
        self._look()

    def close(self) -> None:
        self._unsubscribe()
        for ended in self.karpenter.ended:
            if ended.why == "Drifted" or ended.pods:
                self.problems.append(
                    f"node {ended.node} of {ended.pool} was ended: {ended.why}, with {list(ended.pods)}"
                )

    @property
    def karpenter(self) -> Karpenter:
        found: Karpenter = self._server.beside[Karpenter]
        return found

    def _notice(self, change: Change) -> None:
        if change.type.kind != "NodePool":
            return
        before, after = (each.body if each else None for each in (change.before, change.after))
        name = (before or after or {})["metadata"]["name"]
        specs = [(each or {}).get("spec") or {} for each in (before, after)]
        if before and after and specs[0] != specs[1]:
            self._written = self._simulation.clock.now()
            if template_digest(specs[0]) != template_digest(specs[1]):
                self.problems.append(f"the template of {name} was rewritten")
        if after is None:
            self.deleted.append(name)
            if self._claims(name):
                self.problems.append(f"{name} was deleted with nodes")

    def _claims(self, pool: str) -> list[str]:
        every = self._server.objects("NodeClaim")
        return [
            each["metadata"]["name"] for each in every if each["metadata"]["labels"]["karpenter.sh/nodepool"] == pool
        ]

    def _look(self) -> None:
        pools = [
            each for each in self._server.objects("NodePool") if "headroom.dev/leftover" in each["metadata"]["labels"]
        ]
        if self._simulation.clock.now() >= self._written + QUIET_MS:
            weights = [each["spec"]["weight"] for each in pools]
            if len(set(weights)) != len(weights):
                self.problems.append(f"equal weights: {sorted(weights)}")
        gpus = len(self._server.objects("NodeClaim"))
        if gpus > LIMIT:
            self.problems.append(f"{gpus} GPUs, and {LIMIT} are allowed")
        self._simulation.clock.call_later(60, self._look)


class OffersRun:
    """A scenario that was played, and its auditor."""

    def __init__(self, simulation: Simulation, auditor: OffersAuditor, report: Report) -> None:
        self.simulation, self.auditor, self.report = simulation, auditor, report

    def problems(self) -> list[str]:
        """What was wrong in it."""
        return [*self.report.failures, *self.auditor.problems]

    def launched(self) -> list[str]:
        """The types of all machines that were launched, in order."""
        return [machine.kind for _, _, machine in self.auditor.karpenter.launched]

    def status(self, name: str = "cheap") -> Document:
        found: Document = (self.simulation.server.object("LeftoverNodePool", "", name) or {}).get("status") or {}
        return found

    def ready(self, name: str = "cheap") -> tuple[str, str]:
        """Whether it is ready, and the reason."""
        found = next(each for each in self.status(name)["conditions"] if each["type"] == "Ready")
        return found["status"], found["reason"]

    def rungs(self, state: str, name: str = "cheap") -> list[str]:
        """The types of the rungs in a state, in their order."""
        return [each["instanceTypes"][0] for each in self.status(name).get("rungs", []) if each["state"] == state]

    def phases(self) -> dict[str, str]:
        return {
            each["metadata"]["name"]: each["status"]["phase"] for each in self.simulation.server.objects("Pod", "lab")
        }


def play(
    documents: Sequence[Document],
    timeline: Sequence[Document] = (),
    *,
    duration: str,
    make_operator: Callable[..., SimulatedProcess] = production,
    pace: Pace = UNHURRIED_BUT_LEASES,
    **spec: Any,
) -> OffersRun:
    """Play it all beside an auditor."""
    told = {"duration": duration, "seed": 5, "timeline": list(timeline)} | spec
    scenario = {"apiVersion": "sim.headroom.dev/v1", "kind": "Scenario", "spec": told}

    async def run() -> OffersRun:
        make = partial(make_operator, pace=pace)
        simulation = bookmarked(Simulation(Scenario.of([scenario, CLASS, *documents]), make), pace)
        auditor = OffersAuditor(simulation)
        report = await simulation.play()
        auditor.close()
        return OffersRun(simulation, auditor, report)

    return run_virtual(run)
