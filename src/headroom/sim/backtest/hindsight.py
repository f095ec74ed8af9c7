"""The least that anybody could have paid with so many switches, who had known all prices beforehand."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headroom.model.times import HOUR
from headroom.sim.backtest.timeline import Timeline


def least_paid(timeline: Timeline, switches: int) -> NDArray[np.float64]:
    """Dollars for one GPU with at most 0, 1, 2 and so on switches: exact, by dynamic programming over moments, offers and switches.

    Whoever has no more switches when the offer that it is on disappears cannot go on: that costs infinitely much. While nothing at all
    is offered, nobody pays and nobody moves.
    """
    paid = timeline.usd()
    hours = np.diff(timeline.at) / HOUR
    found = np.full((switches + 1, len(timeline.keys)), np.inf)
    found[0] = 0.0
    for row, length in zip(paid, hours, strict=True):
        offered = np.isfinite(row)
        if not offered.any():
            continue
        moved = found.min(axis=1)[:-1, None]
        found[1:] = np.minimum(found[1:], moved)
        found[:, ~offered] = np.inf
        found[:, offered] += row[offered] * length
    return np.minimum.accumulate(found.min(axis=1))
