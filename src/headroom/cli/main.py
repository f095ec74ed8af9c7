"""The command line: `headroom COMMAND`, and the one place where a failure becomes a sentence and an exit code."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from headroom.cli import (
    backtest,
    bench,
    check,
    completion,
    convert,
    crds,
    dashboard,
    demo,
    explain,
    extender,
    forecast,
    ledger,
    offers,
    output,
    plan,
    policies,
    release,
    replay,
    resume,
    run,
    simulate,
    snapshot,
    status,
    stop,
    top,
    uninstall,
    version,
)
from headroom.cli.grouped_help import GroupedCommand, GroupedCommands
from headroom.model.errors import HeadroomError

HELP = """One operator for a Kubernetes GPU fleet: budgets, spot pools, power, bandwidth and cheapest capacity.

Exit codes: 0 success; 1 the input has problems, which were printed; 2 the command could not run, and one sentence says what to do; 130 ended by Ctrl-C. With `plan --exit-code`: 0 nothing is due, 1 a failure, 2 something is due.

Example: headroom demo

Example: headroom status

Example: headroom explain pod/lab/train-0
"""

app = typer.Typer(
    name="headroom",
    cls=GroupedCommands,
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    # Plain help: loading the decorated one takes longer than most commands.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

LOOK, TRY, STEP_IN = "See how the fleet is", "Try a policy before it counts", "Step in"
INSTALL, RUN, OTHER = "Install and move in", "Run the operator", "Other"
COMMANDS = (
    (LOOK, (status.status, top.top, dashboard.dashboard, explain.explain, forecast.forecast, offers.offers)),
    (TRY, (check.check, plan.plan, simulate.simulate, backtest.app, demo.demo)),
    (STEP_IN, (release.release, stop.stop, resume.resume)),
    (INSTALL, (crds.crds, policies.policies, convert.convert, uninstall.uninstall)),
    (RUN, (run.run, extender.extender, ledger.app, snapshot.snapshot, replay.replay)),
    (OTHER, (bench.app, completion.completion, version.version)),
)
"""What people want to do, and what does it."""
for _group, _commands in COMMANDS:
    for _command in _commands:
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, cls=GroupedCommands, rich_help_panel=_group)
        else:
            app.command(cls=GroupedCommand, rich_help_panel=_group)(_command)


def _print_version(wanted: bool) -> None:
    if wanted:
        version.version()
        raise typer.Exit


@app.callback()
def root(
    show: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Hold the options of the program itself; `HELP` is its text."""
    del show


def main() -> None:
    """Run one command and exit."""
    if sys.stdout is None:  # closed by whoever called us
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115  for as long as we live
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that the terminal's alphabet lacks is no reason to fail.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = _code()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has enough of it, as in `headroom crds | head`.
        _write_no_more()
        code = output.OK
    except OSError as error:
        _write_no_more()
        output.say(f"headroom: writing the output: {error.strerror or error}; check its destination")
        code = output.COULD_NOT_RUN
    except KeyboardInterrupt:
        code = output.INTERRUPTED
    sys.exit(code)


def _write_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def program_name() -> str:
    """How the user has called us: kubectl finds its plugins under such names."""
    return "kubectl headroom" if Path(sys.argv[0]).name.startswith("kubectl-headroom") else "headroom"


def _code() -> int:
    if (words := completion.asked()) is not None:
        completion.answer(words)
        return output.OK
    try:
        app(prog_name=program_name())
    except HeadroomError as error:
        output.say(f"headroom: {error}")
        return _failure()
    except SystemExit as end:
        if isinstance(end.__context__, OSError):
            raise end.__context__ from None  # typer has made an exit code of 1 of it
        if end.__context__ is not None and isinstance(end.__context__.__context__, KeyboardInterrupt):
            return output.INTERRUPTED  # at a question, which typer takes for a no
        if isinstance(end.__context__, TyperException):
            return _failure()
        return end.code if isinstance(end.code, int) else output.OK
    return output.OK


def _failure() -> int:
    """The exit code of a command that could not run; `plan --exit-code` has another meaning for 2, as terraform's plan has."""
    return output.PROBLEMS if "--exit-code" in sys.argv else output.COULD_NOT_RUN
