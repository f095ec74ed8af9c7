"""Numbers that change by steps, and their sums over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Steps:
    """A number that changes by steps, and its sum over time."""

    def __init__(self, begins: Sequence[float], ends: Sequence[float], sizes: Sequence[float]) -> None:
        at = np.concatenate([np.asarray(begins, np.float64), np.asarray(ends, np.float64)])
        by = np.concatenate([np.asarray(sizes, np.float64), -np.asarray(sizes, np.float64)])
        # Ends first, so that what makes room for another in the same moment is not counted beside it.
        order = np.lexsort((by > 0, at))
        self.at: Floats = at[order]
        self.values: Floats = np.cumsum(by[order])
        self.sums: Floats = np.concatenate([[0.0], np.cumsum(self.values[:-1] * np.diff(self.at))]) if len(at) else at

    def peak(self, begin: float, end: float) -> float:
        """The largest value in a time."""
        within = self.values[(self.at >= begin) & (self.at < end)]
        before = self.values[self.at < begin]
        return max([0.0, *(float(each) for each in (*before[-1:], *within))])

    def upto(self, moments: Floats) -> Floats:
        """The sum over time up to each moment."""
        if not len(self.at):
            return np.zeros(len(moments))
        # Beyond the last step everything has ended, so the sum stays.
        found: Floats = np.interp(moments, self.at, self.sums, left=0.0)
        return found
