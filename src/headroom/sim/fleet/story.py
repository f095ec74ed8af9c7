"""What happens in the demo's first five hours whatever the seed: a budget that runs out, and one that goes over.

Both are arranged backwards from the moment at which the budget is over quota: the past is made so long that it fits. Between the start and that
moment nothing of the team begins or ends that the forecast does not know of, so what it says at the start comes true.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from msgspec import structs

from headroom.model import times
from headroom.sim.fleet.teams import SPEECH, VISION, Task, Team, work
from headroom.sim.fleet.work import WorkBatch

HOURS: Final = 5
CALM_FROM: Final = 22
"""From then on both teams go on as all others do."""
_QUEUE: Final = (
    Task("coco-eval", 1, 2, 50),
    Task("depth-distill", 1, 4, 60),
    Task("detr-sweep", 2, 4, 40),
    Task("dataset-dedup", 1, 1, 90),
    Task("sam2-finetune", 1, 8, 40),
)
"""What vision asks for while it has to wait: more than the window frees, so that there is a queue to be seen."""


class Chapter:
    """The work of one team, written down by hand in hours."""

    def __init__(self, team: Team) -> None:
        self.team, self.works = team, list[WorkBatch]()

    def add(self, name: str, at: float, hours: float, pods: int, gpus: int, *, declares: bool = True) -> float:
        """One piece of work; the GPU-hours of it that are used before the start."""
        task = Task(name, pods, gpus, round(hours * 60))
        moment = int(at * 3600) * times.SECOND
        made = work(self.team, task, len(self.works) + 1, moment)
        self.works.append(structs.replace(made, declares=declares))
        return pods * gpus * max(0.0, min(hours, -at))


def _minutes(rng: random.Random, low: int, high: int) -> float:
    """Some whole minutes, in hours."""
    return rng.randrange(low, high) / 60


def runs_out(rng: random.Random) -> Iterator[WorkBatch]:
    """Team vision has used most of its budget, and trains on. At `full` it is over quota; what comes then has to wait."""
    chapter = Chapter(VISION)
    add = chapter.add
    full, leaves = _minutes(rng, 96, 108), 1.5
    gpus, yesterday = 40, 24
    # What must be counted at the start for the quota to be reached at `full`; some of yesterday's leaves the window before that.
    left = _quota(VISION) - gpus * full + yesterday * (full - leaves)
    # Its name, the hour at which it starts, its length in hours, its pods, and the GPUs of each.
    left -= add("vit-large-pretrain", leaves - 24, 4, 3, 8)
    left -= add("vit-large-pretrain", -0.3, 0.3 + full + 0.35, 3, 8)
    left -= add("sam2-finetune", -0.25, 0.25 + full + 0.5, 1, 8)
    left -= add("detr-sweep", -0.4, 0.4 + full + 1.2, 2, 4)
    left -= add("depth-distill", -17, 3, 1, 8)
    left -= add("coco-eval", -13.5, 2, 1, 2)
    # What is left is one long run in the night.
    add("dataset-dedup", -0.5 - left / 4, left / 4, 1, 4)
    at = full + 0.05
    while at < HOURS:
        task = rng.choice(_QUEUE)
        add(task.name, at, task.minutes * rng.uniform(0.8, 1.2) / 60, task.pods, task.gpus)
        at += _minutes(rng, 6, 10)
    yield from chapter.works


def goes_over(rng: random.Random) -> Iterator[WorkBatch]:
    """Team speech runs two trainings that never said when they end. One must go for usage to fall again: the younger one."""
    chapter = Chapter(SPEECH)
    add = chapter.add
    full, second, leaves = _minutes(rng, 168, 180), 0.6, 2.65
    yesterday = 12
    left = _quota(SPEECH) - 8 * full - 8 * (full - second) + yesterday * (full - leaves)
    left -= add("conformer-train", leaves - 24, 4, 1, 8)
    left -= add("tts-voices", leaves - 24, 4, 2, 2)
    left -= add("conformer-train", -1, 1 + full + 0.9, 1, 8, declares=False)
    add("codec-train", second, 4, 1, 8, declares=False)
    left -= add("diarize-tune", -11, 1.5, 1, 4)
    add("whisper-distill", -2 - left / 4, left / 4, 2, 2)
    add("asr-eval", full - 0.15, 0.5, 1, 1)
    add("asr-eval", full + 0.6, 0.4, 1, 1)
    yield from chapter.works


def _quota(team: Team) -> float:
    return float((team.quota or {})["gpuHours"])
