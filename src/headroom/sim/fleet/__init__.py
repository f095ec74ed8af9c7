"""The demo's fleet: forty machines, five teams whose work comes and goes, and what happened on the day before."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Final

from headroom.api.policies import policies
from headroom.model import times
from headroom.sim.answers import Body
from headroom.sim.faults import split
from headroom.sim.fleet import caches, machines, renderings, scorings, story, teams, work
from headroom.sim.fleet.machines import FACTS, made
from headroom.sim.fleet.work import START, WorkBatch

__all__ = ["START", "arrivals", "fleet"]

_BEFORE: Final = -30 * times.HOUR
"""Whoever runs at the start, or counts in the window, began after that."""


def fleet(seed: int, hours: int = story.HOURS) -> list[Body]:
    """The documents of the demo's scenario, with what is asked for in its first hours; the same seed always gives the same."""
    before = list(itertools.takewhile(lambda each: each.at <= 0, _works(seed)))
    stage = work.InitialPlacement(seed, machines.SORTS, machines.asleep())
    end = max(1, hours) * times.HOUR
    timeline = [
        {"at": f"{at // times.SECOND}s", "apply": job}
        for at, job in itertools.takewhile(lambda each: each[0] < hours * times.HOUR, arrivals(seed))
    ]
    scenario = {"start": times.text(START), "duration": f"{end // times.HOUR}h", "seed": seed, "timeline": timeline}
    scenario["bootSeconds"] = machines.BOOT_SECONDS
    return [
        *machines.documents(times.text(START)),
        *caches.documents(times.text(START)),
        renderings.pool(),
        *scorings.documents(times.text(START)),
        *policies(),
        *map(teams.budget, teams.TEAMS),
        *work.used(each for each in before if -teams.WINDOW_HOURS * times.HOUR < each.at + each.lasts <= 0),
        *(document for each in before if each.at + each.lasts > 0 for document in stage.running(each)),
        made(FACTS, "Scenario", "demo", scenario),
    ]


def arrivals(seed: int) -> Iterator[tuple[int, Body]]:
    """Every Job that somebody asks for after the start, in order and without end: milliseconds after the start, and the Job."""
    jobs = ((each.at, work.job(each)) for each in _works(seed) if each.at > 0)
    return heapq.merge(jobs, renderings.arrivals(seed), scorings.arrivals(seed), key=lambda each: each[0])


def _works(seed: int) -> Iterator[WorkBatch]:
    told = [*story.runs_out(split(seed, "vision's story")), *story.goes_over(split(seed, "speech's story"))]
    # A team that is over quota in the morning has most of its budget back on the next one, and asks for little until then.
    later = {team.name: story.CALM_FROM * times.HOUR for team in (teams.VISION, teams.SPEECH)}
    flows = [
        teams.flow(team, split(seed, team.name), later.get(team.name, _BEFORE)) for team in (*teams.TEAMS, teams.NOBODY)
    ]
    return heapq.merge(sorted(told, key=_order), *flows, key=_order)


def _order(each: WorkBatch) -> tuple[int, str, str]:
    return each.at, each.team, each.name
