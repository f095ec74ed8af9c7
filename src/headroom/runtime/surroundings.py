"""What every part of the runtime needs around it."""

from __future__ import annotations

import random

from msgspec import Struct, field

from headroom.model.ports import Clock
from headroom.runtime.logs import Log, Silent
from headroom.runtime.metrics import Metrics


class Surroundings(Struct, frozen=True, kw_only=True):
    """Clock, randomness, metrics and log, made once for a process."""

    clock: Clock
    rng: random.Random = field(default_factory=random.Random)
    metrics: Metrics = field(default_factory=Metrics)
    log: Log = field(default_factory=Silent)
