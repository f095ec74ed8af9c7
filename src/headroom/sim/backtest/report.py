"""What a back-test came to: each rule's bill and switches side by side, as rows, as lines of a chart, and as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from headroom.model import times
from headroom.sim.backtest.rules import Paid
from headroom.sim.backtest.timeline import Timeline

OURS, CHEAPEST, ORIGINAL, HINDSIGHT = "this pool", "always the cheapest", "the original", "best with as many switches"
COLUMNS: Final = ("RULE", "USD PER GPU-HOUR", "OVER THE CHEAPEST", "SWITCHES", "FEWER")
BLOCKS, PLAIN = "▁▂▃▄▅▆▇█", ".:-=+*%#"


class BacktestResult(Struct, frozen=True, kw_only=True):
    """A history, played."""

    pool: str
    regions: tuple[str, ...]
    timeline: Timeline
    paid: dict[str, Paid]
    """By rule."""
    hindsight: float | None
    """The least dollars per GPU-hour with as many switches as ours, if that was asked for."""
    notes: tuple[str, ...] = ()
    rows: int = 0
    bad_rows: int = 0

    @property
    def ours(self) -> Paid:
        """What the pool itself would have paid."""
        return self.paid[OURS]

    @property
    def regret(self) -> float | None:
        """How much more than in hindsight, in percent."""
        return None if self.hindsight is None else percent(self.ours.mean, self.hindsight)

    def over(self, usd: float) -> float:
        """How much more than always the cheapest, in percent."""
        return percent(usd, self.paid[CHEAPEST].mean)


def percent(value: float, base: float) -> float:
    """How much more than the base; nothing where nothing was paid."""
    return 100 * (value / base - 1) if base else 0.0


def fewer(switches: int, base: int) -> float:
    """How many fewer, in percent."""
    return 100 * (1 - switches / base) if base else 0.0


def table(found: BacktestResult) -> Iterator[tuple[str, str, str, str, str]]:
    """Rows of `COLUMNS`: ours, what nobody can beat, and the others."""
    most = len(found.paid[CHEAPEST].switches)
    for name, paid in found.paid.items():
        count = len(paid.switches)
        less = "" if name == CHEAPEST else f"{fewer(count, most):.0f}%"
        yield name, f"{paid.mean:.4f}", f"{found.over(paid.mean):+.2f}%", f"{count:,}", less
        if name == OURS and found.hindsight is not None:
            yield HINDSIGHT, f"{found.hindsight:.4f}", f"{found.over(found.hindsight):+.2f}%", f"{count:,}", less


def summary(found: BacktestResult) -> str:
    """What was played, in a sentence."""
    begin, end = (times.text(int(at))[:10] for at in (found.timeline.at[0], found.timeline.at[-1]))
    return (
        f"LeftoverNodePool/{found.pool}: {len(found.timeline.keys):,} offers in {', '.join(found.regions)}, "
        f"{found.timeline.moments:,} price changes from {begin} to {end}."
    )


def verdict(found: BacktestResult) -> str:
    """The comparison that matters, in a sentence or two."""
    count, most = len(found.ours.switches), len(found.paid[CHEAPEST].switches)
    over = found.over(found.ours.mean)
    told = (
        f"{count:,} {'switch' if count == 1 else 'switches'} instead of {most:,} ({fewer(count, most):.0f}% fewer), for {abs(over):.2f}% "
        f"{'less' if over < 0 else 'more'} than always the cheapest."
    )
    if found.regret is not None:
        told += (
            f" That is {found.regret:.2f}% above the best possible with as many switches, all prices known beforehand."
        )
    return told


# --- the chart ------------------------------------------------------------------------------------------------------------------


def chart(found: BacktestResult, columns: int, signs: str) -> Iterator[tuple[str, str]]:
    """Lines of signs, each with its name: the price of two rules and the switches of ours, over time."""
    edges = np.linspace(float(found.timeline.at[0]), float(found.timeline.at[-1]), columns + 1)
    lines = {name: _averages(found.timeline, found.paid[name].each, edges) for name in (OURS, CHEAPEST)}
    known = np.concatenate([each[np.isfinite(each)] for each in lines.values()])
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    yield "USD per GPU-hour", f"{low:.4f} ({signs[0]}) to {high:.4f} ({signs[-1]})"
    for name, values in lines.items():
        yield name, "".join(_sign(value, low, high, signs) for value in values)
    counts = np.histogram([each.at for each in found.ours.switches], bins=edges)[0]
    yield "switches", "".join(" " if not count else str(min(int(count), 9)) for count in counts)


def _averages(timeline: Timeline, each: NDArray[np.float64], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean price between two edges; no number where nothing was offered."""
    priced = each > 0
    lengths = np.where(priced, np.diff(timeline.at), 0).astype(float)
    sums = (np.concatenate([[0.0], np.cumsum(part)]) for part in (each * lengths, lengths))
    spent, time = (np.diff(np.interp(edges, timeline.at, part)) for part in sums)
    return np.where(time > 0, spent / np.maximum(time, 1e-9), np.nan)


def _sign(value: float, low: float, high: float, signs: str) -> str:
    if not np.isfinite(value):
        return " "
    share = (value - low) / (high - low) if high > low else 0.0
    return signs[min(len(signs) - 1, int(share * len(signs)))]


# --- for programs ---------------------------------------------------------------------------------------------------------------


def wire(found: BacktestResult) -> dict[str, Any]:
    """All of it as data."""
    return {
        "pool": found.pool,
        "regions": list(found.regions),
        "from": times.text(int(found.timeline.at[0])),
        "to": times.text(int(found.timeline.at[-1])),
        "offers": len(found.timeline.keys),
        "moments": found.timeline.moments,
        "rows": found.rows,
        "badRows": found.bad_rows,
        "rules": [_rule(found, name, paid) for name, paid in found.paid.items()],
        "hindsightUsdPerGpuHour": _rounded(found.hindsight),
        "regretPercent": _rounded(found.regret),
        "switches": [
            {"at": times.text(each.at), "from": each.before, "to": each.after} for each in found.ours.switches
        ],
        "notes": list(found.notes),
    }


def _rule(found: BacktestResult, name: str, paid: Paid) -> dict[str, Any]:
    most = len(found.paid[CHEAPEST].switches)
    return {
        "rule": name,
        "usdPerGpuHour": _rounded(paid.mean),
        "overCheapestPercent": _rounded(found.over(paid.mean)),
        "switches": len(paid.switches),
        "fewerPercent": _rounded(fewer(len(paid.switches), most)),
        "hours": _rounded(paid.hours),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def notes_of(*examples: Sequence[str], bad: int) -> list[str]:
    """What to know about rows that were passed over."""
    told = [each for some in examples for each in some]
    if not bad:
        return told
    words = "row cannot be understood and counts" if bad == 1 else "rows cannot be understood and count"
    return [f"{bad:,} {words} for nothing; the first:", *told]
