"""A pool of one machine in a region of a recorded trace: for how much of the time it has its machine.

The trace says every few minutes whether one spot V100 could be had in each of nine zones. A zone without one refuses launches and takes
the machine back without notice. The decisions are the production plan's, with nothing known but what calls and lists tell.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.pools.playing import ours
from bench.pools.processes import REGION, Planner
from bench.pools.stage import TYPE, Stage
from headroom.core.spot_pools import resting
from headroom.model import times
from headroom.model.actions import LaunchInstance
from headroom.model.decisions import Decision
from headroom.model.world import World

FOLDER: Final = Path("spot-traces") / "availability" / "1-node" / "aws-02-15-2023"
LEAD_MS: Final = 2 * times.MINUTE
"""From the launch until a machine runs."""
LONGER: Final = (5, 10, 20, 30)
RESTS: Final = ((5,), (5, 10), (5, 10, 20), LONGER)
"""Minutes: what was tried."""
ENOUGH: Final = 75
"""Of the way, in percent, in every region of the half on which rests are chosen."""
LOOK_SECONDS: Final = 40
UNDER_WAY_SECONDS: Final = 10


class Zone(NamedTuple):
    """Whether a machine can be had, every so many seconds."""

    name: str
    every: int
    there: Sequence[int]


class Share(NamedTuple):
    """For which part of the time a region had a machine."""

    region: str
    best_zone: float
    """With the best single zone, under the same rules."""
    ours: float
    any_zone: float
    """If a machine were there whenever some zone had one."""
    refused: float
    """Launches refused for each hour without a machine."""

    @property
    def way(self) -> float:
        """How much of the way from the best zone to any zone, in percent."""
        return 100 * (self.ours - self.best_zone) / (self.any_zone - self.best_zone)


def read(folder: Path) -> dict[str, list[Zone]]:
    """The zones of each region."""
    found: dict[str, list[Zone]] = defaultdict(list)
    for file in sorted((folder / FOLDER).glob("*_v100_1.json")):
        text = json.loads(file.read_text())
        name = file.name.split("_")[0]
        found[name[:-1]].append(Zone(name, text["metadata"]["gap_seconds"], text["data"]))
    return found


def part(zones: Mapping[str, list[Zone]], begin: float, end: float) -> dict[str, list[Zone]]:
    """A part of a trace."""
    return {
        region: [
            Zone(it.name, it.every, it.there[int(begin * len(it.there)) : int(end * len(it.there))]) for it in each
        ]
        for region, each in zones.items()
    }


def share(region: str, zones: list[Zone], rests: Sequence[int]) -> Share:
    """What comes of a region, if what is sold out rests for so many minutes, the longer the more often it was."""
    resting.RESTS_MS = tuple(minutes * times.MINUTE for minutes in rests)  # type: ignore[misc]  # in a process of its own
    had, refused = play(zones)
    ticks = list(zip(*(zone.there for zone in zones), strict=True))
    return Share(
        region,
        best_zone=max(play([zone])[0] for zone in zones),
        ours=had,
        any_zone=sum(any(tick) for tick in ticks) / len(ticks),
        refused=refused,
    )


def play(zones: list[Zone], planner: Planner = ours) -> tuple[float, float]:
    """The part of the time with a machine, and launches refused for each hour without."""
    names = [zone.name for zone in zones]
    spec = {"region": REGION, "instanceType": TYPE, "zones": names, "minimum": 1, "maximum": 1, "join": False}
    stage = Stage(spec | {"maxPurchasesPerHour": 1000})
    stage.cloud.boot_ms = LEAD_MS
    run = _Run(stage, planner)
    for there in zip(*(zone.there for zone in zones), strict=True):
        for name, count in zip(names, there, strict=True):
            stage.cloud.stock[TYPE, name] = 10**9 if count else 0
        for machine in stage.ours():
            if not stage.cloud.stock[TYPE, machine.order.zone]:
                stage.cloud.reclaim(machine.id)
        run.until(stage.now + zones[0].every * times.SECOND)
    without = (stage.now - run.began - run.had) / times.HOUR
    return run.had / (stage.now - run.began), run.refused / without if without else 0.0


class _Run:
    def __init__(self, stage: Stage, planner: Planner) -> None:
        self.stage, self.planner, self.process = stage, planner, stage.processes[0]
        self.began, self.had, self.calls = stage.now, 0, 0
        self._due, self._next_turn = stage.now, 0

    @property
    def refused(self) -> int:
        """Launches to which the cloud said no."""
        return self.calls - len(self.stage.cloud.machines)

    def until(self, end: int) -> None:
        """Let time pass, with an operator at work. While the machine runs on, nothing needs to be decided."""
        stage, look = self.stage, LOOK_SECONDS * times.SECOND
        while stage.now < end:
            if self._is_settled():
                self._pass(end)
                self._due = self.began + -(-(stage.now - self.began) // look) * look
            else:
                self._pass(min(end, self._due))
                if stage.now >= self._due:
                    self._decide()

    def _planned(self, world: World) -> Decision | None:
        decision = self.planner(world)
        self._next_turn = (decision.next_turn_ms or 0) if decision is not None else 0
        return decision

    def _is_settled(self) -> bool:
        stage = self.stage
        assert stage.pool is not None
        running = [machine.state(stage.now) for machine in stage.ours()] == ["RUNNING"]
        return running and [slot.state for slot in stage.pool.status.slots] == ["Running"]

    def _pass(self, to: int) -> None:
        now = self.stage.now
        self.had += sum(max(0, to - max(now, machine.made + LEAD_MS)) for machine in self.stage.ours())
        self.stage.pass_time(max(0, to - now))

    def _decide(self) -> None:
        stage, process = self.stage, self.process
        assert stage.pool is not None
        process.view = stage.pool
        process.clouds.look(stage.pool)
        process.clouds.offers.clear()  # this cloud says nothing of its stock
        process.decide(self._planned)
        called = 0
        while process.work:
            called += isinstance(process.work[0], LaunchInstance)
            stage.act(process, "")
        self.calls += called
        slots = stage.pool.status.slots
        # What came of a launch is news, and is decided on within a second. While there is nothing to list, only the clock brings news.
        seconds = 1 if called else UNDER_WAY_SECONDS
        rest = self._next_turn if not slots and not called else 0
        self._due = stage.now + max(rest, seconds * times.SECOND)
