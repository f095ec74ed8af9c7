"""What every part of the runtime needs around it."""

from __future__ import annotations

import random

from msgspec import Struct, field

from headroom.model.pace import Pace
from headroom.model.ports import Clock
from headroom.runtime.logs import Log, Silent
from headroom.runtime.metrics import Metrics


class Runtime(Struct, frozen=True, kw_only=True):
    """Clock, randomness, pace, metrics and log, made once for a process."""

    clock: Clock
    rng: random.Random = field(default_factory=random.Random)
    pace: Pace = Pace()
    metrics: Metrics = field(default_factory=Metrics)
    log: Log = field(default_factory=Silent)
