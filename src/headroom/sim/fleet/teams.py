"""The demo's five teams and those who have no budget: their ladders, and the work that keeps coming from them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct, structs

from headroom.model import times
from headroom.sim.answers import Body
from headroom.sim.fleet.machines import A100, H100, L4, OURS, MachineSort, made
from headroom.sim.fleet.work import START, WorkBatch

WINDOW_HOURS: Final = 24
RHYTHM: Final = (
    *(0.7, 0.7, 0.7, 0.6, 0.6, 0.7, 0.9, 1.1),
    *(1.2, 1.3, 1.3, 1.3, 1.2, 1.2, 1.3, 1.3),
    *(1.3, 1.2, 1.1, 1.0, 0.9, 0.9, 0.8, 0.7),
)
"""How much more or less than on average is asked for at each hour of the day."""
WEEK: Final = (1.0, 1.0, 1.2, 1.0, 1.15, 0.6, 0.6)
"""The same for each day, Monday first: some days ask for more than a budget has, others let it recover."""
_JITTER: Final = (0.75, 1.3)


class Task(Struct, frozen=True):
    """What a team does again and again."""

    name: str
    pods: int
    gpus: int
    minutes: int
    rate: str = ""
    """The bandwidth that each pod asks for, out of it and into it."""


class Team(Struct, frozen=True, kw_only=True):
    """Who asks for GPUs."""

    name: str
    sort: MachineSort
    """The machines it works on."""
    busy: float
    """GPUs that it asks for on average."""
    tasks: tuple[Task, ...]
    quota: Body | None = None
    """None for those who have no budget."""
    steps: tuple[tuple[str, str], ...] = ()
    declares: bool = True


VISION: Final = Team(
    name="vision",
    sort=A100,
    busy=9.2,
    quota={"gpuHours": "240"},
    steps=(("80%", "AlertOnly"), ("100%", "Hold")),
    tasks=(
        Task("coco-eval", 1, 2, 30),
        Task("sam2-finetune", 1, 8, 60),
        Task("depth-distill", 1, 4, 45),
        Task("detr-sweep", 2, 2, 40),
        Task("dataset-dedup", 1, 1, 50),
    ),
)
SPEECH: Final = Team(
    name="speech",
    sort=A100,
    busy=4.0,
    quota={"gpuHours": "120"},
    steps=(("80%", "AlertOnly"), ("95%", "Hold"), ("100%", "Evict")),
    tasks=(
        Task("asr-eval", 1, 1, 30),
        Task("tts-voices", 1, 2, 60),
        Task("diarize-tune", 1, 4, 45),
        Task("whisper-distill", 2, 2, 60),
    ),
)
SEARCH: Final = Team(
    name="search",
    sort=H100,
    busy=22.0,
    quota={"usd": "4800"},
    steps=(("80%", "AlertOnly"), ("100%", "Hold")),
    tasks=(
        Task("reranker-train", 1, 8, 70),
        Task("embedding-refresh", 2, 4, 90, "200G"),
        Task("query-llm-eval", 1, 2, 45),
        Task("index-encode", 4, 1, 60, "100G"),
    ),
)
ROBOTICS: Final = Team(
    name="robotics",
    sort=L4,
    busy=60.0,
    quota={"gpuHours": "1800"},
    steps=(("90%", "AlertOnly"),),
    tasks=(
        Task("sim-rollouts", 6, 1, 45, "6G"),
        Task("grasp-ppo", 4, 1, 80),
        Task("lidar-label", 1, 1, 20),
        Task("policy-eval", 2, 1, 30),
        Task("world-model", 1, 4, 150, "40G"),
    ),
)
CLIMATE: Final = Team(
    name="climate",
    sort=L4,
    busy=30.0,
    quota={"gpuHours": "1600"},
    steps=(("80%", "AlertOnly"), ("100%", "Hold")),
    tasks=(
        Task("ensemble-forecast", 4, 8, 100, "60G"),
        Task("downscaling", 1, 4, 180, "30G"),
        Task("era5-regrid", 2, 2, 60, "15G"),
        Task("storm-tracks", 1, 1, 90),
    ),
)
NOBODY: Final = Team(
    name="playground",
    sort=L4,
    busy=7.0,
    declares=False,
    tasks=(Task("notebook", 1, 1, 150), Task("scratch", 1, 2, 45), Task("demo-app", 1, 1, 300)),
)
TEAMS: Final = (VISION, SPEECH, SEARCH, ROBOTICS, CLIMATE)


def budget(team: Team) -> Body:
    """The budget of a team."""
    spec = {
        "selector": {"matchLabels": {"team": team.name}},
        "quota": (team.quota or {}) | {"windowHours": WINDOW_HOURS},
        "enforcement": {
            "steps": [{"at": at, "action": action} for at, action in team.steps],
            "gracePeriodSeconds": 60,
        },
    }
    return made(OURS, "GPUWorkloadBudget", team.name, spec, team.name)


def flow(team: Team, rng: random.Random, begin: int) -> Iterator[WorkBatch]:
    """All the work that a team asks for from a moment on, more by day than by night, for ever.

    Chance decides what comes next, but not how much there is in all: a large task is followed by a longer pause.
    """
    # Large tasks are rarer, so that each sort of task has about the same part in the hours.
    weights = [1 / (task.pods * task.gpus * task.minutes) ** 0.7 for task in team.tasks]
    at, spare = float(begin), 0.0
    for number in itertools.count(rng.randrange(100, 900)):
        made = work(team, rng.choices(team.tasks, weights)[0], number, 0, rng.uniform(*_JITTER))
        due = rng.random() * made.gpu_hours
        at = _when(team, at, due - spare)
        spare = max(spare, due) - made.gpu_hours
        yield structs.replace(made, at=int(at) // times.SECOND * times.SECOND)


def _when(team: Team, at: float, hours: float) -> float:
    """The moment by which a team may have asked for so many GPU-hours more."""
    while hours > 0:
        busy = team.busy * _rhythm(START + int(at))
        left = times.HOUR - (START + at) % times.HOUR
        step = min(left, hours / busy * times.HOUR)
        at, hours = at + step, hours - busy * step / times.HOUR if step == left else 0.0
    return at


def _rhythm(moment: int) -> float:
    then = datetime.fromtimestamp(moment / times.SECOND, UTC)
    return RHYTHM[then.hour] * WEEK[then.weekday()]


def work(team: Team, task: Task, number: int, at: int, times_as_long: float = 1.0) -> WorkBatch:
    """One task of a team."""
    return WorkBatch(
        at=at - at % times.SECOND,
        team=team.name,
        name=f"{task.name}-{number}",
        lasts=int(task.minutes * times_as_long * 60) * times.SECOND,
        pods=task.pods,
        gpus=task.gpus,
        rate=task.rate,
        sort=team.sort,
        declares=team.declares,
        is_covered=team.quota is not None,
    )
