"""`headroom simulate`: replays recorded work under two policies, or runs a scenario on the full simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from headroom.cli import private
from headroom.cli.manifests import files_of, refuse_twice
from headroom.cli.options import Form, Output, Recursive
from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headroom.adapters.documents import Documents
    from headroom.sim.scenario import Report
    from headroom.sim.whatif.comparing import Comparison
    from headroom.sim.whatif.page import Assets
    from headroom.sim.whatif.traces import Naming
    from headroom.sim.whatif.work import Case

UPLOT: Final = "HEADROOM_UPLOT"
"""The folder of uPlot, if it is not where npm installed it."""
NOTHING_CHANGED: Final = (
    "comparing: there is no change to compare with. Give --change FILE with manifests to apply over the recorded policies, such as "
    "a budget with another quota, a PowerPool, Nodes or a price book; or --without gwb/NAMESPACE/NAME to remove a budget"
)
_REMEDIES: Final = {
    True: "set the namespace of the trace's pods with --namespace, and a label that its selector matches with --team-label",
    False: "check its namespace and spec.selector",
}
"""What to do about a budget that matches no pod, for a trace and for a snapshot."""


class _Source(NamedTuple):
    """The input."""

    snapshot: Path | None
    trace: Path | None
    nodes: Path | None
    runtimes: Path | None


Scenario = Annotated[
    Path | None, typer.Argument(metavar="[SCENARIO]", help="A file with a Scenario, to run on the full simulator.")
]
Snapshot = Annotated[
    Path | None,
    typer.Option(
        "--from", metavar="FILE", help="A snapshot of a cluster, from `headroom snapshot` or `headroom demo`."
    ),
]
Trace = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A public trace: openb, Philly's machines, or gavel's arrivals.")
]
Nodes = Annotated[Path | None, typer.Option(metavar="FILE", help="The machines of the trace, as a node list of openb.")]
Runtimes = Annotated[Path | None, typer.Option(metavar="FILE", help="Run times to draw from, for a trace without any.")]
Policy = Annotated[
    list[Path] | None, typer.Option(metavar="FILE", help="Policies before the change, applied over the recorded ones.")
]
Change = Annotated[
    list[Path] | None, typer.Option(metavar="FILE", help="The change: manifests applied over the policies before it.")
]
Without = Annotated[
    list[str] | None,
    typer.Option(metavar="KIND/NAMESPACE/NAME", help="A resource that the change removes; repeatable."),
]
Days = Annotated[float | None, typer.Option(min=0.01, metavar="DAYS", help="Replay only the last DAYS of the record.")]
InNamespace = Annotated[
    str, typer.Option(metavar="NAME", help="The namespace of a trace's pods; {qos} stands for that column.")
]
TeamLabel = Annotated[
    str,
    typer.Option(
        metavar="KEY[=TEXT]", help="The label that names a team; for a trace also its value, such as team={qos}."
    ),
]
Every = Annotated[str, typer.Option(metavar="DURATION", help="Gather arrivals and ends for this long, such as 10s.")]
BootTime = Annotated[
    str,
    typer.Option(metavar="DURATION", help="Boot time of PowerPool machines, such as 5m; 90s by default."),
]
Seed = Annotated[int | None, typer.Option(help="The seed of random choices.")]
Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the report as an HTML page with charts.")]


def simulate(
    scenario: Scenario = None,
    snapshot: Snapshot = None,
    trace: Trace = None,
    nodes: Nodes = None,
    runtimes: Runtimes = None,
    policy: Policy = None,
    change: Change = None,
    recursive: Recursive = False,
    without: Without = None,
    days: Days = None,
    namespace: InNamespace = "default",
    team_label: TeamLabel = "",
    every: Every = "",
    boot_time: BootTime = "",
    seed: Seed = None,
    html: Html = None,
    form: Output = Form.table,
) -> None:
    """Replay recorded work before and after a change.

    No cluster is needed. The operator's own code makes every decision; time jumps from event to event. A snapshot's ledger has the
    recorded work; the format of a trace is detected. A SCENARIO runs on the full simulator instead, and the exit code is 1 if
    one of its expectations failed.

    Example: headroom simulate --from snapshot.json --change policy.yaml --days 7 --html report.html
    """
    source = _Source(snapshot, trace, nodes, runtimes)
    _refuse_other_than_one({"SCENARIO": scenario, "--from": snapshot, "--trace": trace})
    if scenario is not None:
        raise typer.Exit(_play(scenario, seed, form))
    private.prepare(html)
    refuse_twice([each for each in (*source, *(policy or ()), *(change or ())) if each is not None])
    naming = _naming(trace is not None, namespace, team_label)
    case = _case(source, naming, days, seed or 0)
    case.boot_ms = _milliseconds("--boot-time", boot_time) or case.boot_ms
    before, after = (files_of(each or (), recursive=recursive) for each in (policy, change))
    wishes = _Wishes(before, after, without or (), _milliseconds("--every", every), trace is not None)
    found = _compared(case, wishes)
    if html is not None:
        _write(html, found)
    _show(found, form)


def _refuse_other_than_one(inputs: dict[str, Path | None]) -> None:
    if len(given := [name for name, each in inputs.items() if each is not None]) != 1:
        what = f"not {' and '.join(given)}" if given else "with a change"
        raise Misconfigured(
            f"choosing the input: give one of SCENARIO, --from and --trace, {what}; for example "
            "`headroom simulate --from snapshot.json --change policy.yaml`, with a snapshot of `headroom snapshot` or `headroom demo`"
        )


# --- what is played -----------------------------------------------------------------------------------------------------------


def _naming(is_trace: bool, namespace: str, team_label: str) -> Naming:
    from headroom.sim.whatif.traces import Naming

    key, equals, text = team_label.partition("=")
    if is_trace and key and not equals:
        raise Misconfigured(f"naming teams: give the label with its value, such as --team-label {key}={{qos}}")
    if not is_trace and equals:
        raise Misconfigured(
            f"naming teams: pods of a snapshot have labels already; give only the key, --team-label {key}"
        )
    return Naming(namespace, key or "team", text) if is_trace else Naming(team_label=key)


def _case(source: _Source, naming: Naming, days: float | None, seed: int) -> Case:
    from headroom.cli import manifests, worlds
    from headroom.sim.whatif import recorded, traces
    from headroom.sim.whatif.work import LONGEST_DAYS

    if days is not None and not 0.01 <= days <= LONGEST_DAYS:
        raise Misconfigured(f"reading --days: it must be from 0.01 to {LONGEST_DAYS:,}, not {days:g}")
    if source.snapshot is not None:
        for name, path in (("--nodes", source.nodes), ("--runtimes", source.runtimes)):
            if path is not None:
                raise Misconfigured(f"reading {path}: {name} is for traces only; a snapshot includes it")
        world = worlds.saved(source.snapshot)
        return recorded.read(world, f"the record of cluster {world.cluster}", days, naming.team_label)
    wanted = [source.trace, source.nodes, source.runtimes]
    texts = [None if path is None else manifests.read([path])[0] for path in wanted]
    assert texts[0] is not None
    return traces.read(texts[0], texts[1], texts[2], naming, seed=seed, days=days)


def _documents(files: Sequence[Path]) -> Documents:
    """The documents of some policy files; prints mistakes and ends the command if there are any."""
    from headroom.adapters import documents
    from headroom.cli import manifests, output, passing
    from headroom.sim.whatif import beside

    texts = manifests.read_manifests(files)
    found = documents.read(texts)
    passing.say(found.ignored)
    passing.say(beside.passed_over(found), "a replay takes work and everything outside the cluster from the record")
    complaints = manifests.complaints(found, texts)
    for each in complaints:
        output.say(manifests.spoken(each))
    if complaints:
        raise typer.Exit(output.PROBLEMS)
    return found


class _Wishes(NamedTuple):
    """The two sides to compare."""

    policy: Sequence[Path]
    change: Sequence[Path]
    without: Sequence[str]
    every: int | None
    is_trace: bool


def _compared(case: Case, wishes: _Wishes) -> Comparison:
    from headroom.cli import progress
    from headroom.sim.whatif import beside, policy, replay
    from headroom.sim.whatif.comparing import Comparison, unmatched
    from headroom.sim.whatif.outcome import outcome

    if not (wishes.change or wishes.without):
        raise Misconfigured(NOTHING_CHANGED)
    base, change = _documents(wishes.policy), _documents(wishes.change)
    case = beside.put_over(case, base)
    changed_case = beside.put_over(case, change)
    before = policy.changed(case.resources, base.resources, ())
    after = policy.changed(before, change.resources, wishes.without)
    changes, clauses = policy.differences(before, after), policy.clauses(before, after)
    for count, said, clause in _beside(change):
        if count:
            changes.append(said)
            clauses.append(clause)
    if not changes:
        case.notes.append("The change equals the current policies, so both sides are the same.")
    every = replay.pace_of(case) if wishes.every is None else wishes.every
    outcomes = []
    with progress.shown("Playing", "days", round(2 * _days(case))) as told:
        for number, (played, resources) in enumerate(((case, before), (changed_case, after))):
            shown = _Shown(told, _days(case), number)
            log = replay.replay(played, resources, every=every, progress=shown)
            outcomes.append(outcome(played, resources, log))
    found = Comparison(
        case=case,
        changes=changes,
        clauses=clauses,
        every=every,
        before=outcomes[0],
        after=outcomes[1],
        is_record=not wishes.is_trace and not wishes.policy,
    )
    case.notes.extend(unmatched(found, _REMEDIES[wishes.is_trace]))
    return found


def _beside(change: Documents) -> list[tuple[int, str, str]]:
    """Changes beside policies: how many, as a fact and as a clause of the question."""
    from headroom.cli import output

    nodes, machines, spaces = len(change.nodes), len(change.of("machines")), len(change.of("namespaces"))
    return [
        (len(change.prices), "price book replaced", "the new price book applied"),
        (nodes, f"nodes added or replaced: {nodes}", f"{output.counted(nodes, 'node')} were added or replaced"),
        (machines, f"machines with given power: {machines}", f"{output.counted(machines, 'machine')} started as given"),
        (
            spaces,
            f"namespaces added or replaced: {spaces}",
            f"{output.counted(spaces, 'namespace')} had the given labels",
        ),
    ]


class _Shown:
    """Moves a progress bar a hundred times, not at every step."""

    def __init__(self, told: Callable[[int], None], days: float, number: int) -> None:
        self._told, self._days, self._number, self._last = told, days, number, -1

    def __call__(self, share: float) -> None:
        if int(share * 100) != self._last:
            self._last = int(share * 100)
            self._told(round((self._number + share) * self._days))


def _days(case: Case) -> float:
    return (case.end - case.begin) / 86_400_000


def _milliseconds(option: str, text: str) -> int | None:
    from headroom.model import times

    if not text:
        return None
    found = times.duration(text)
    if not found:
        raise Misconfigured(f"reading {option}: it must be a duration such as 10s or 5m, not {text!r}")
    return found


# --- what is shown --------------------------------------------------------------------------------------------------------------


def _show(found: Comparison, form: Form) -> None:
    from headroom.cli import output
    from headroom.sim.whatif.report import report

    if form.is_data:
        output.as_data(found.wire(lines=False), form)
        return
    told = report(found)
    output.line(told.title)
    output.line()
    for each in told.verdict:
        output.line(each)
    for section in (*told.sections, *([told.accuracy] if told.accuracy else ())):
        output.line()
        output.line(section.title)
        if section.rows:
            output.as_table(section.columns, section.rows, texts=0, figures=len(section.columns) - section.names)
        if section.folded:
            output.line(section.folded)
    _listed("Changes", told.changes)
    _listed("About this replay", [told.played, *told.notes])


def _listed(title: str, lines: Sequence[str]) -> None:
    from headroom.cli import output

    if lines:
        output.line()
        output.line(title)
    for each in lines:
        output.line(f"- {each}")


def _write(file: Path, found: Comparison) -> None:
    from headroom.cli import output
    from headroom.sim.whatif.page import NO_PLOTS, page

    assets = _assets()
    try:
        private.write(file, page(found, assets).encode())
    except OSError as error:
        raise Misconfigured(f"writing {file}: {error.strerror or error}; give another file") from error
    output.say(f"wrote {file}" + ("" if assets.script else f". {NO_PLOTS}"))


def _assets() -> Assets:
    """uPlot from the folder in the environment, or where npm installed it for the dashboard."""
    import os

    import headroom
    from headroom.sim.whatif.page import Assets

    installed = Path(headroom.__file__).parent / "web" / "node_modules" / "uplot" / "dist"
    folder = Path(os.environ.get(UPLOT) or installed)
    try:
        script, style = ((folder / name).read_text(encoding="utf-8") for name in ("uPlot.iife.min.js", "uPlot.min.css"))
    except OSError:
        return Assets()
    return Assets(script, style)


# --- a scenario -----------------------------------------------------------------------------------------------------------------


def _play(file: Path, seed: int | None, form: Form) -> int:
    """Run a scenario on the full simulator at full speed; the exit code."""
    from msgspec import structs

    from headroom.cli import output
    from headroom.sim.clock import run_virtual
    from headroom.sim.operators import SimulatedProcess
    from headroom.sim.scenario import Scenario, Simulation

    scenario = Scenario.load(file)
    if seed is not None:
        scenario = structs.replace(scenario, seed=seed)
    played: list[Simulation] = []

    async def play() -> Report:
        played.append(Simulation(scenario, SimulatedProcess))
        return await played[0].play()

    report = run_virtual(play)
    verdict = {
        "scenario": report.name,
        "passed": report.passed,
        "expectations": len(scenario.expect),
        "held": played[0].held,
        "failures": report.failures,
        "faults": len(report.happened),
        "writes": len(report.trace.writes),
    }
    if form.is_data:
        output.as_data(verdict, form)
    else:
        _say_verdict(verdict)
    return output.OK if report.passed else output.PROBLEMS


def _say_verdict(verdict: dict[str, Any]) -> None:
    from headroom.cli import output

    held = f"{verdict['held']} of {output.counted(verdict['expectations'], 'expectation')} held"
    output.line(f"{verdict['scenario']}: {'passed' if verdict['passed'] else 'not as expected'}; {held}.")
    for failure in verdict["failures"]:
        output.line(f"not as expected: {failure}", indent=2)
    faults, writes = output.counted(verdict["faults"], "fault"), output.counted(verdict["writes"], "write request")
    output.line(f"{faults} struck; {writes} in all.")
