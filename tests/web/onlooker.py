"""Whoever looks at an operator while it works: at its pages, its metrics, and with commands."""

from __future__ import annotations

from typing import Any

from headroom.adapters.kube.client import Kube
from headroom.api.budgets import GPUWorkloadBudgetStatus
from headroom.cli import capabilities, explain, status
from headroom.cli.forecast import BudgetOutlook
from headroom.cli.worlds import Given
from headroom.core import usage
from headroom.model import times
from headroom.model.decisions import Decision, Ref
from headroom.model.snapshots import load, save
from headroom.runtime.settings import Settings
from headroom.sim.apistore import Change
from headroom.sim.faults import split
from headroom.sim.operators import SimulatedProcess
from headroom.sim.scenario import Simulation
from headroom.web.pages import parts
from headroom.web.scope import EVERYTHING
from headroom.web.source import METRICS, Address, Local
from headroom.web.view import OperatorView, Showing
from tests.web import agreement
from tests.web.agreement import Bodies

PLAIN: tuple[Address, ...] = (("overview",), ("nodes",), ("power",), ("power", "basement"), METRICS)
OF_BUDGETS = [f"{team}/{team}" for team in ("vision", "speech", "search", "robotics", "climate")]
EVERY_EVENT, EVERY_COMMAND = 11, 6
"""Of so many events one is looked at, a moment after it happened; and of so many looks one is by commands too."""


class Onlooker:
    """Looks at an operator while it works, and takes down what does not agree."""

    def __init__(self, simulation: Simulation, process: SimulatedProcess) -> None:
        self.process, self.clock = process, simulation.clock
        self.view = OperatorView(
            port=process.port,
            loop=process.operator.loop,
            gate=process.leader,
            clock=self.clock,
            journal=process.recorder.journal,
        )
        metrics = capabilities.measured(process.around.metrics)
        self.local = Local(Showing(view=self.view, metrics=metrics, pages=capabilities.pages()))
        self.kube = Kube(simulation.server.transport("admin"), self.clock, split(1, "onlooker"))
        self.decided: dict[tuple[Ref, str], Decision] = {}
        self.looks = self.fresh = self.commands = self.lists = self.events = 0
        self.found: list[str] = []
        process.operator.writer.submit = self._heard(process.operator.writer.submit)  # type: ignore[method-assign]  # it listens

    def _heard(self, submit: Any) -> Any:
        def both(decision: Decision, resource: Any, *, effects: bool) -> None:
            if isinstance(decision.status, GPUWorkloadBudgetStatus):
                self.decided[decision.resource, decision.status.as_of] = decision
            submit(decision, resource, effects=effects)

        return both

    def happened(self, change: Change) -> None:
        """What happens to pods is looked at before the loop has decided on it, or just after."""
        if change.type.kind == "Pod":
            self.events += 1
            if self.events % EVERY_EVENT == 0:
                self.clock.call_later(0.02 * (self.events % 20), self.look)

    def bodies(self) -> Bodies:
        """All pages of this moment."""
        addresses = [*PLAIN, *(("budgets", *each.split("/")) for each in OF_BUDGETS)]
        sheets = self.local.made_together(addresses, EVERYTHING)
        found: dict[str, Any] = {}
        for address, sheet in sheets.items():
            assert sheet.body is not None, address
            at = {"at": times.text(sheet.at - sheet.at % times.SECOND)}
            found["/".join(address)] = sheet.body["text"] if address == METRICS else sheet.body | at
        return found

    def look(self) -> None:
        """Compare all pages, and now and then what commands print of the very world."""
        if not self.process.port.complete or not self.process.recorder.state().loaded:
            return
        self.looks += 1
        last = self.process.operator.loop.decisions
        found = self.bodies()
        self.found += agreement.differences(found)
        assert self.process.operator.loop.decisions is last
        self.fresh += any(
            decision.status.as_of != found["overview"]["budgets"][f"{ref.namespace}/{ref.name}"]["asOf"]
            for ref, decision in last.items()
            if isinstance(decision.status, GPUWorkloadBudgetStatus)
        )
        if self.looks % EVERY_COMMAND == 0:
            self.commands += 1
            world = load(save(self.view.world()))
            told = {
                f"{each.namespace}/{each.name}": BudgetOutlook(world, each, None) for each in usage.budgets_of(world)
            }
            forecasts = {name: each.wire(False, None) for name, each in told.items()}
            self.found += agreement.from_commands(found["overview"], status.decided(Given(world, []), ""), forecasts)
            rows = found["overview"]["budgets"]
            for name in OF_BUDGETS:
                anew = explain._explained(world, _named(name), in_files=True)
                self.found += agreement.of_status({name: _explained(anew)}, lambda each, _: rows[each])

    async def list_it(self) -> None:
        """Compare what `headroom status` reads from the cluster with what was decided for the moment that it is of."""
        before = self.bodies()["overview"]["fleet"]
        found, _ = await status.written(self.kube, Settings(), "")
        rows = {f"{each['namespace']}/{each['name']}": each for each in found["budgets"]}
        for name in OF_BUDGETS:
            told = await explain._in_cluster(self.kube, Settings(), _named(name))
            self.found += agreement.of_status({name: _explained(told)}, self.known)
        self.found += agreement.of_status(rows, self.known)
        if before == self.bodies()["overview"]["fleet"]:  # nothing happened while the lists were read
            self.lists += 1
            self.found += agreement.of_fleets(before, found["fleet"])

    def known(self, name: str, as_of: str) -> dict[str, Any] | None:
        """The row of a budget as it was decided for a moment."""
        ref = Ref(usage.KIND, *name.split("/"))
        decision = self.decided.get((ref, as_of))
        resource = self.view.world().resources[ref]
        return None if decision is None else parts.budget_row(resource, decision)


def _explained(told: Any) -> dict[str, Any]:
    """What `headroom explain` says of a budget, as a row."""
    return parts.budget_row(told.resource, told.decision)


def _named(budget: str) -> tuple[str, str, str]:
    namespace, _, name = budget.partition("/")
    return usage.KIND, namespace, name
