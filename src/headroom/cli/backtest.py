"""`headroom backtest`: what the decisions of a resource would have come to over a recorded past."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple

import typer

from headroom.cli.grouped_help import GroupedCommand
from headroom.cli.options import Form, Output, Recursive
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.api.offers import LeftoverNodePoolSpec
    from headroom.sim.backtest.history import PriceChanges, TracedMachineType
    from headroom.sim.backtest.report import BacktestResult
    from headroom.sim.backtest.timeline import Catalogue, Timeline

KIND: Final = "LeftoverNodePool"
MOST_STEPS: Final = 2_000_000_000
"""Hindsight is not computed for more: it takes a step for each price change, offer and switch."""
NAME_COLUMN: Final = 19
LEAST_CHART, MOST_CHART = 20, 100

app = typer.Typer(
    name="backtest",
    help="Apply today's decisions to recorded history.\n\n"
    "Example: headroom backtest offers --prices prices.csv.gz --types types.csv -f pool.yaml",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Prices = Annotated[
    Path,
    typer.Option(
        metavar="FILE", help="Spot prices as CSV, plain or gzip: unix_time, instance_type, zone_id, spot_price."
    ),
]
Types = Annotated[Path, typer.Option(metavar="FILE", help="Machine types as CSV: instance_type, accelerator, count.")]
OnDemand = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="On-demand prices as CSV, to fall back to: unix_time, instance_type, region, price."
    ),
]
Manifest = Annotated[
    list[Path],
    typer.Option(
        "--file",
        "-f",
        metavar="FILE",
        help="The LeftoverNodePool: a file, a folder, a pattern in quotes, or - for stdin.",
    ),
]
Regions = Annotated[
    list[str] | None, typer.Option("--region", metavar="REGION", help="Instead of the pool's own; repeatable.")
]
Since = Annotated[str, typer.Option(metavar="TIME", help="Only from this moment on, such as 2025-01-01.")]
Until = Annotated[str, typer.Option(metavar="TIME", help="Only up to this moment.")]


@app.callback()
def backtest() -> None:
    """Hold the group together; its text stands above."""


@app.command(cls=GroupedCommand)
def offers(
    prices: Prices,
    types: Types,
    manifest: Manifest,
    recursive: Recursive = False,
    on_demand: OnDemand = None,
    region: Regions = None,
    since: Since = "",
    until: Until = "",
    form: Output = Form.table,
) -> None:
    """Apply a LeftoverNodePool to a history of spot prices.

    It prints the costs and the number of switches of the pool, of always taking the cheapest offer, of the original leftover
    controller, and of the best possible course with as many switches. Ranking and switching use the operator's own code. A price
    is valid until the next row for the same type and zone; an empty price means that the offer is gone.

    Example: headroom backtest offers --prices prices.csv.gz --types types.csv -f pool.yaml --region us-east-1 --since 2025-01-01
    """
    name, spec = _pool(manifest, recursive=recursive)
    files = _Files(prices, types, on_demand, tuple(dict.fromkeys(region or [spec.region])))
    found = _played(name, spec, files, (_moment("--since", since), _moment("--until", until)))
    _show(found, form)


class _Files(NamedTuple):
    """What is read."""

    prices: Path
    types: Path
    on_demand: Path | None
    regions: tuple[str, ...]


class _Read(NamedTuple):
    """What stood in it."""

    catalogue: Catalogue
    spot: PriceChanges
    on_demand: PriceChanges | None
    notes: list[str]


def _pool(files: list[Path], *, recursive: bool) -> tuple[str, LeftoverNodePoolSpec]:
    """The pool's name and spec; what is wrong with it is printed, and ends the command."""
    from headroom.adapters import documents
    from headroom.cli import manifests, output

    texts = manifests.read_manifests(files, recursive=recursive)
    found = documents.read(texts)
    complaints = manifests.complaints(found, texts)
    for each in complaints:
        output.say(manifests.spoken(each))
    if complaints:
        raise typer.Exit(output.PROBLEMS)
    pools = [each for each in found.resources if each.kind == KIND]
    if len(pools) != 1:
        where = ", ".join(map(str, files))
        raise Misconfigured(f"reading {where}: it must have one {KIND}, and has {len(pools)}; give the one to play")
    return pools[0].name, pools[0].spec


def _moment(option: str, text: str) -> int | None:
    from headroom.model import times

    if not text:
        return None
    found = times.moment(text)
    if found is None:
        raise Misconfigured(f"reading {option}: it must be a time such as 2025-01-01, not {text!r}")
    return found


# --- reading ------------------------------------------------------------------------------------------------------------------


def _read(spec: LeftoverNodePoolSpec, files: _Files) -> _Read:
    from headroom.cli import progress
    from headroom.sim.backtest import history
    from headroom.sim.backtest.report import notes_of
    from headroom.sim.backtest.timeline import catalogue

    known, left_out = history.machine_types(files.types)
    fitting = catalogue(known, spec, files.regions)
    _require_types(fitting, known, files)
    with progress.shown("Reading prices", "bytes", _size(files.prices)) as told:
        spot = history.prices(files.prices, fitting.has, told)
    demand = history.on_demand_prices(files.on_demand, fitting.sells) if files.on_demand else None
    bad = spot.bad + (demand.bad if demand else 0)
    notes = notes_of(left_out, bad=0) + notes_of(spot.examples, demand.examples if demand else (), bad=bad)
    if not len(spot.at) and spec.capacity_type == "spot":
        raise Misconfigured(
            f"reading {files.prices}: it has no price of {', '.join(list(fitting.types)[:5])} in {', '.join(files.regions)}; "
            "zone ids such as use1-az1 tell the region; give others with --region"
        )
    if spec.capacity_type != "spot" and (demand is None or not len(demand.at)):
        raise Misconfigured(
            "reading on-demand prices: the pool asks for on-demand machines; give their prices with --on-demand"
        )
    return _Read(fitting, spot, demand, notes)


def _require_types(found: Catalogue, known: dict[str, TracedMachineType], files: _Files) -> None:
    if not found.types:
        why = ", ".join(f"{reason} {count}" for reason, count in found.passed_over.items())
        raise Misconfigured(
            f"reading {files.types}: none of its {len(known)} machine types is what the pool asks for ({why}); "
            "look at families, architecture, gpuVendor and minGPUs"
        )


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size or None
    except OSError:
        return None  # reading it will say why


# --- playing ------------------------------------------------------------------------------------------------------------------


def _played(
    name: str, spec: LeftoverNodePoolSpec, files: _Files, span: tuple[int | None, int | None]
) -> BacktestResult:
    from msgspec import structs

    from headroom.cli import progress
    from headroom.sim.backtest.timeline import timeline

    asks_for_scores = spec.strategy == "CheapestAboveScore" and spec.min_spot_score > 0
    if asks_for_scores:
        spec = structs.replace(spec, min_spot_score=0)
    read = _read(spec, files)
    if asks_for_scores:
        read.notes.append("A history has no placement scores, so minSpotScore counts as 0.")
    moments = len(set(read.spot.at.tolist())) or None
    with progress.shown("Ranking offers", "price changes", moments) as told:
        line = timeline(spec, read.catalogue, read.spot, read.on_demand, told)
    line = _cut(line, span)
    return _compared(name, spec, files, (read, line))


def _cut(line: Timeline, span: tuple[int | None, int | None]) -> Timeline:
    from headroom.model import times

    first, last = int(line.at[0]), int(line.at[-1])
    begin, end = (given if given is not None else bound for given, bound in zip(span, (first, last), strict=True))
    begin, end = max(begin, first), min(end, last)
    if begin >= end:
        raise Misconfigured(
            f"playing prices: they reach from {times.text(first)} to {times.text(last)}; --since and --until leave nothing of it"
        )
    return line.part(begin, end)


def _compared(name: str, spec: LeftoverNodePoolSpec, files: _Files, given: tuple[_Read, Timeline]) -> BacktestResult:
    from headroom.cli import progress
    from headroom.core.offers import rules_of
    from headroom.sim.backtest import report, rules
    from headroom.sim.backtest.hindsight import least_paid

    read, line = given
    with progress.shown("Playing", "price changes", line.moments) as told:
        ours = rules.play(line, rules.Production(line, rules_of(spec)), told)
    paid = {
        report.OURS: ours,
        report.CHEAPEST: rules.play(line, rules.AlwaysCheapest(line)),
        report.ORIGINAL: rules.play(line, rules.Original(line)),
    }
    count = len(ours.switches)
    is_short = line.moments * len(line.keys) * (count + 1) <= MOST_STEPS
    least = float(least_paid(line, count)[-1]) / ours.hours if ours.hours and is_short else None
    if not is_short:
        read.notes.append("The best possible is not computed: there are too many offers and switches for that.")
    return report.BacktestResult(
        pool=name,
        regions=files.regions,
        timeline=line,
        paid=paid,
        hindsight=least,
        notes=tuple(read.notes),
        rows=read.spot.rows,
        bad_rows=read.spot.bad + (read.on_demand.bad if read.on_demand else 0),
    )


# --- showing ------------------------------------------------------------------------------------------------------------------


def _show(found: BacktestResult, form: Form) -> None:
    from headroom.cli import output
    from headroom.sim.backtest import report

    if form.is_data:
        output.as_data(report.wire(found), form)
        return
    output.line(report.summary(found))
    output.line()
    output.as_table(report.COLUMNS, report.table(found), texts=0)
    output.line()
    output.line(report.verdict(found))
    output.line()
    room = min(max(output.width() - NAME_COLUMN - 2, LEAST_CHART), MOST_CHART)
    for name, signs in report.chart(found, room, report.BLOCKS if output.shows_blocks() else report.PLAIN):
        print(f"{name:<{NAME_COLUMN}}  {signs}".rstrip())
    for note in found.notes:
        output.say(note)
