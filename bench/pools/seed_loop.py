"""The loop of the seed, as a model in the same harness: it lists the first page of the account without a filter, launches what is missing
without a token, ends the first machines of the list, and remembers nothing.

Its machines carry our tags here only so that the checks know whose they are; the loop does not look at them.
"""

from __future__ import annotations

from typing import Final

from bench.pools.playing import Player
from bench.pools.processes import Process, Violation
from bench.pools.scripts import Script
from bench.pools.stage import BY, TYPE, tags_of
from headroom.model import times
from headroom.model.cloud_facts import Instance
from headroom.sim.cloud import RequestedLaunch

PAGE: Final = 20
COUNTED: Final = ("RUNNING", "PENDING", "STARTING")


class SeedPlayer(Player):
    """A run in which operators do what the seed's do."""

    def __init__(self, script: Script) -> None:
        super().__init__(script)
        self.listed: dict[int, list[Instance]] = {}
        self.todo: dict[int, list[tuple[str, int | str]]] = {}

    def look(self, number: int, lag: int, by_id: int, wrong: str) -> None:  # noqa: ARG002  # it never asks by id
        if self._process(number).alive and wrong != "list":
            self.stage.cloud.page_size = PAGE
            self.listed[number] = self.stage.cloud.page({}, 0, lag * times.SECOND)[0]

    def decide(self, number: int) -> None:
        process = self._process(number)
        self.todo[number] = []
        if not process.alive or process.view is None or number not in self.listed:
            return
        counted = [each.name for each in self.listed[number] if each.state in COUNTED]
        spec = process.view.spec
        if len(counted) < spec.minimum:
            self.todo[number] = [("launch", spec.minimum - len(counted))]
        elif len(counted) > spec.maximum:
            self.todo[number] = [("end", each) for each in counted[: len(counted) - spec.maximum]]

    def act(self, number: int, wrong: str) -> None:
        process = self._process(number)
        if not process.alive or not self.todo.get(number):
            return
        if wrong == "CrashBefore":
            process.alive = False
            return
        what, target = self.todo[number].pop(0)
        if wrong not in ("Unreached", "Throttled", "Denied"):
            self._do(process, what, target)
        if wrong == "CrashAfter":
            process.alive = False
        self.checks.stands()

    def work(self, number: int, wrongs: tuple[str, ...]) -> None:
        for wrong in (*wrongs, *[""] * PAGE):
            self.act(number, wrong)

    def _do(self, process: Process, what: str, target: int | str) -> None:
        cloud = self.stage.cloud
        if isinstance(target, str):
            if cloud.machines[target].order.tags.get(BY) == "others":
                raise Violation("S3", f"{target} is ended, which is not the pool's")
            cloud.terminate(target)
            return
        assert process.view is not None, what
        zone = process.view.spec.all_zones[0]
        if cloud.stock.get((TYPE, zone), target) < target or cloud.quota is not None:
            return
        for _ in range(target):
            cloud.add(RequestedLaunch(token="", instance_type=TYPE, zone=zone, tags=tags_of(0, process.view.uid)))

    def told(self, alive: int) -> str | None:  # noqa: ARG002  # its status tells of no slots
        return None
