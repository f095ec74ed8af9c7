"""Small histories of prices for the tests of back-tests: hours on a line, offers by name, dollars."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headroom.model.times import HOUR
from headroom.sim.backtest.timeline import NOBODY, Timeline

MICRO = 1_000_000


def a_timeline(*rows: Sequence[float | None], hours: Sequence[float] = (), gpus: Sequence[int] = ()) -> Timeline:
    """One row for each moment, one price per GPU-hour for each offer: a, b, c and so on; None is not offered."""
    width = len(rows[0])
    each = gpus or [1] * width
    ranks = [[0 if price is None else round(price * MICRO) for price in row] for row in rows]
    moments = [0.0, *np.cumsum(hours or [1.0] * len(rows)).tolist()]
    return Timeline(
        keys=tuple("abcdefgh"[:width]),
        gpus=np.array([count * MICRO for count in each], dtype=np.int64),
        at=np.array([round(at * HOUR) for at in moments], dtype=np.int64),
        ranks=np.array(ranks, dtype=np.int64),
        prices=np.array(ranks, dtype=np.int64) * np.array(each, dtype=np.int64),
        fallback=np.full(len(rows), NOBODY, dtype=np.int64),
    )
