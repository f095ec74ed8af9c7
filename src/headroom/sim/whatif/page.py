"""The comparison as one self-contained HTML file: tables, and charts drawn by an embedded uPlot."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from typing import Any, Final, NamedTuple

from headroom.sim.whatif.comparing import Comparison, machines_slept
from headroom.sim.whatif.report import Section, report

NO_PLOTS: Final = "Charts are missing because uPlot is not installed. The tables have all the numbers."


class Assets(NamedTuple):
    """The installed uPlot; empty without one."""

    script: str = ""
    style: str = ""


_STYLE: Final = """
:root { color-scheme: light dark; --ground: #fff; --ink: #1b1f24; --soft: #5b6470; --rule: #d8dde3; --before: #6b7683; --after: #0b66c3;
  --quota: #b42318; --quota-before: #8a6100; }
@media (prefers-color-scheme: dark) { :root:not(.printing) { --ground: #14171b; --ink: #e8ebee; --soft: #a3acb7; --rule: #343b44; --before: #97a3b0;
  --after: #66b2ff; --quota: #ff8a80; --quota-before: #e3b341; } }
body { margin: 0 auto; padding: 1.5rem; max-width: 72rem; background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; line-height: 1.25; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin-top: 2.5rem; } p, li { max-width: 48rem; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { text-align: left; color: var(--soft); padding-bottom: .3rem; }
th, td { text-align: left; padding: .3rem 1rem .3rem 0; border-bottom: 1px solid var(--rule); white-space: nowrap; }
thead th { color: var(--soft); font-weight: 600; font-size: .85rem; } tbody th { font-weight: 400; }
.number { text-align: right; } .again { color: transparent; }
.verdict p { font-size: 1.15rem; margin: .3rem 0; }
.soft { color: var(--soft); } figure { margin: 1rem 0 2rem; } figcaption { font-weight: 600; } .plot { min-height: 240px; }
.u-legend { font-size: .85rem; } .u-legend th { cursor: pointer; } .u-legend th, .u-legend td { border: 0; }
/* A marker looks like its line. Without a pointer on the chart, the legend only names the lines. */
.u-legend .u-marker { width: 1.8em; height: 0; border-width: 2px 0 0 !important; }
.uplot:not(.pointed) .u-legend .u-value, .uplot:not(.pointed) .u-legend .u-series:first-child { display: none; }
.uplot:not(.pointed) .u-legend th::after { content: none; }
/* On a phone each row is a block: its name, then its cells, each below the head of its column. */
@media (max-width: 44rem) {
  body { padding: 1rem; } .scroll { overflow-x: visible; }
  .scroll table, .scroll tbody { display: block; } .scroll thead { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
  .scroll tr { display: grid; grid-template-columns: repeat(auto-fill, minmax(6rem, 1fr)); gap: .2rem .75rem; padding: .6rem 0; border-bottom: 1px solid var(--rule); }
  .scroll th, .scroll td { padding: 0; border: 0; white-space: normal; overflow-wrap: anywhere; } .scroll tbody th { grid-column: 1 / -1; font-weight: 600; }
  .number { text-align: left; } .again { display: none; }
  .scroll td:not(.number) { grid-column: 1 / -1; } .scroll td[data-head=""]::before { display: none; }
  .scroll td::before { content: attr(data-head); display: block; color: var(--soft); font-size: .8rem; }
}
@media print {
  :root { color-scheme: light; --ground: #fff; --ink: #000; --soft: #444; --rule: #bbb; }
  body { max-width: none; padding: 0; font-size: 10pt; } h2 { break-after: avoid; } figure, tr { break-inside: avoid; } .scroll { overflow: visible; }
}
"""

_SCRIPT: Final = """
(() => {
  const data = JSON.parse(document.getElementById("lines").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const stamp = (seconds) => new Date(seconds * 1000).toISOString();
  const PAPER = 660;  // fits A4 and Letter with the margins of a browser
  let plots = [], printing = false;
  const draw = () => {
    plots.forEach((plot) => plot.destroy());
    plots = data.plots.map((each) => {
      const place = document.getElementById(each.id);
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { stroke: colour("--rule") } };
      const series = each.series.map((line) => ({
        label: line.label, stroke: colour(line.colour), width: line.dash ? 1.5 : 2, dash: line.dash ? [6, 4] : undefined, points: { show: false },
        value: (_, number) => (number === null ? "" : number.toLocaleString("en", { maximumFractionDigits: 1 })),
      }));
      const options = {
        // All charts share one time axis: the same span, the same left margin, and one cursor.
        width: printing ? PAPER : Math.max(280, place.clientWidth), height: printing ? 190 : 260, scales: { x: { range: () => [data.moments[0], data.moments[data.moments.length - 1]] }, y: { range: (_, low, high) => [0, Math.max(high * 1.05, 1)] } },
        legend: { live: true, markers: { dash: (_, number) => (each.series[number - 1].dash ? "dashed" : "solid") } },
        hooks: { setCursor: [(plot) => plot.root.classList.toggle("pointed", plot.cursor.idx !== null && plot.cursor.left >= 0)] },
        cursor: { sync: { key: "time" } },
        series: [{ label: "time (UTC)", value: (_, at) => (at === null ? "" : stamp(at).slice(0, 16).replace("T", " ")) }, ...series],
        axes: [{ ...axis, space: 90, values: (_, at) => at.map((each) => stamp(each).slice(5, each % 86400 ? 16 : 10).replace("T", " ")) }, { ...axis, size: 64 }], tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "UTC"),
      };
      return new uPlot(options, [data.moments, ...each.series.map((line) => line.values)], place);
    });
  };
  draw();
  dark.addEventListener("change", draw);
  let later = 0;
  addEventListener("resize", () => { clearTimeout(later); later = setTimeout(draw, 100); });
  // A canvas keeps its size and colours, so the charts are drawn again for paper: narrow, and in the colours of the light theme.
  const paper = (on) => { printing = on; document.documentElement.classList.toggle("printing", on); draw(); };
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
})();
"""


def page(found: Comparison, assets: Assets) -> str:
    """The whole file."""
    told = report(found)
    scripts = [assets.script, _SCRIPT] if assets.script else []
    hashes = " ".join(f"'sha256-{_digest(each)}'" for each in scripts) or "'none'"
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; base-uri 'none'; form-action 'none'"
    figures, lines = _figures(found)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
        f"<title>{_plain(told.title)}</title>",
        f"<style>{_inside(assets.style)}{_STYLE}</style></head><body><main>",
        f"<h1>{_plain(told.title)}</h1>",
        f'<div class="verdict">{"".join(f"<p>{_plain(each)}</p>" for each in told.verdict)}</div>',
        *(_section(each) for each in told.sections),
        "<h2>Over time</h2>",
        figures if assets.script else f"<p>{NO_PLOTS}</p>",
        _section(told.accuracy) if told.accuracy else "",
        _listed("Changes", told.changes),
        _listed("About this replay", [told.played, *told.notes]),
        "</main>",
    ]
    if assets.script:
        parts.append(f'<script type="application/json" id="lines">{_inside(json.dumps(lines))}</script>')
        parts += [f"<script>{each}</script>" for each in scripts]
    return "\n".join([*parts, "</body></html>", ""])


# --- tables ---------------------------------------------------------------------------------------------------------------------


def _plain(text: str) -> str:
    return html.escape(text.replace(" -> ", " \N{RIGHTWARDS ARROW} "))


def _listed(title: str, lines: list[str]) -> str:
    if not lines:
        return ""
    return f"<h2>{title}</h2><ul>{''.join(f'<li>{_plain(each)}</li>' for each in lines)}</ul>"


def _spoken(head: str) -> str:
    """The head of a column as the page shows it."""
    return head.capitalize().replace("Gpu-", "GPU-")


def _section(section: Section) -> str:
    if not section.rows:
        return f"<h2>{_plain(section.title)}</h2>{_folded(section)}"
    # Explicit roles, since browsers stop treating it as a table where a narrow page lays rows out as blocks.
    heads = [_plain(_spoken(each)) for each in section.columns]
    kinds = ["" if place < section.names else ' class="number"' for place in range(len(heads))]
    head = "".join(
        f'<th scope="col" role="columnheader"{kind}>{each}</th>' for each, kind in zip(heads, kinds, strict=True)
    )
    rows, named = [], ""
    for first, *rest in section.rows:
        named = first or named
        cells = "".join(
            f'<td role="cell" data-head="{name}"{kind}>{_plain(each)}</td>'
            for name, kind, each in zip(heads[1:], kinds[1:], rest, strict=True)
        )
        hidden = "" if first else ' class="again"'
        rows.append(f'<tr role="row"><th scope="row" role="rowheader"{hidden}>{_plain(named)}</th>{cells}</tr>')
    return (
        f'<h2>{section.title}</h2><div class="scroll" tabindex="0" role="region" aria-label="{section.title}">'
        f'<table role="table"><thead role="rowgroup"><tr role="row">{head}</tr></thead>'
        f'<tbody role="rowgroup">{"".join(rows)}</tbody></table></div>{_folded(section)}'
    )


def _folded(section: Section) -> str:
    return f'<p class="soft">{_plain(section.folded)}</p>' if section.folded else ""


# --- plots ----------------------------------------------------------------------------------------------------------------------


def _figures(found: Comparison) -> tuple[str, dict[str, Any]]:
    """The elements of the charts, and the lines to draw in them. Charts that the change leaves alone are only named, save the first."""
    before, after = found.before, found.after
    plots = [
        ("GPUs allocated", _pair(before.lines.gpus_held, after.lines.gpus_held)),
        ("Pods queued or pending", _pair(before.lines.waiting, after.lines.waiting)),
    ]
    if machines_slept(found):
        plots.append(("Machines on", _pair(before.lines.machines_on, after.lines.machines_on)))
    plots += _of_budgets(found)
    places, lines, same = [], [], []
    for number, (title, series) in enumerate(plots):
        if number and not _differs(series):
            same.append(title)
            continue
        name = f"plot-{number}"
        places.append(f'<figure><figcaption>{_plain(title)}</figcaption><div class="plot" id="{name}"></div></figure>')
        lines.append({"id": name, "series": series})
    if same:
        places.append(f'<p class="soft">Unchanged: {_plain("; ".join(same))}.</p>')
    return "\n".join(places), {"moments": before.lines.moments, "plots": lines}


def _differs(series: list[dict[str, Any]]) -> bool:
    """Whether a chart shows a change: two lines that are not the same, or one that stands alone, such as that of a removed budget."""
    first, *others = (each["values"] for each in series if not each["dash"])
    limits = [each for each in series if each["dash"]]
    return not others or others[0] != first or len(limits) > 1


def _of_budgets(found: Comparison) -> list[tuple[str, list[dict[str, Any]]]]:
    """A chart for each quota of each budget: the usage in its window, and the quota."""
    before, after = found.before, found.after
    quotas = [{each.budget: each for each in it.budgets} for it in (before, after)]
    hours = (before.lines.budgets, after.lines.budgets)
    dollars = (before.lines.budgets_usd, after.lines.budgets_usd)
    plots = []
    for key in sorted(quotas[0].keys() | quotas[1].keys()):
        told = [each.get(key) for each in quotas]
        limits = {
            "GPU-hours": (hours, [None if each is None else each.quota_gpu_hours for each in told]),
            "dollars": (dollars, [None if each is None else each.quota_usd for each in told]),
        }
        for unit, (lines, limit) in limits.items():
            series = _pair(lines[0].get(key), lines[1].get(key))
            for label, colour, value in _distinct(limit):
                series.append(_line(label, colour, [value] * len(before.lines.moments), dash=True))
            if series:
                plots.append((f"Budget {key}: {unit} in the window", series))
    return plots


def _pair(before: list[float] | None, after: list[float] | None) -> list[dict[str, Any]]:
    both = (("before", "--before", before), ("after", "--after", after))
    return [_line(label, colour, values) for label, colour, values in both if values is not None]


def _line(label: str, colour: str, values: list[float], *, dash: bool = False) -> dict[str, Any]:
    return {"label": label, "colour": colour, "values": values, "dash": dash}


def _distinct(limits: list[float | None]) -> list[tuple[str, str, float]]:
    """The quotas to draw: one line if both are the same."""
    before, after = limits
    named = [("quota before", "--quota-before", before), ("quota after", "--quota", after)]
    if before == after:
        named = [("quota", "--quota", after)]
    return [(label, colour, limit) for label, colour, limit in named if limit is not None]


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _inside(text: str) -> str:
    """Text inside an element, so that it cannot close the element."""
    return text.replace("</", "<\\/")
