"""The command line: `headroom COMMAND`, and the one place where a failure becomes a sentence and an exit code."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from headroom.cli import (
    bench,
    check,
    completion,
    convert,
    crds,
    dashboard,
    demo,
    explain,
    forecast,
    ledger,
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
    uninstall,
    version,
)
from headroom.model.errors import HeadroomError

HELP = """One operator for a Kubernetes GPU fleet: budgets, spot pools, power, bandwidth and cheapest capacity.

Exit codes: 0 all is well; 1 the input has problems, and they were printed; 2 it could not run, and one sentence says what to do; 130 ended by Ctrl-C.

Example: headroom demo
"""

app = typer.Typer(
    name="headroom",
    help=HELP,
    no_args_is_help=True,
    add_completion=False,
    # Plain help: loading the decorated one takes longer than most commands.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)

COMMANDS = (
    run.run,
    demo.demo,
    dashboard.dashboard,
    status.status,
    forecast.forecast,
    plan.plan,
    check.check,
    convert.convert,
    explain.explain,
    stop.stop,
    resume.resume,
    release.release,
    snapshot.snapshot,
    replay.replay,
    simulate.simulate,
    uninstall.uninstall,
    crds.crds,
    policies.policies,
    completion.completion,
    version.version,
)
for command in COMMANDS:
    app.command()(command)
app.add_typer(ledger.app)
app.add_typer(bench.app, name="bench")


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
        output.say(f"headroom: writing the output: {error.strerror or error}; look at where it goes")
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
        return output.COULD_NOT_RUN
    except SystemExit as end:
        if isinstance(end.__context__, OSError):
            raise end.__context__ from None  # typer has made an exit code of 1 of it
        if end.__context__ is not None and isinstance(end.__context__.__context__, KeyboardInterrupt):
            return output.INTERRUPTED  # at a question, which typer takes for a no
        return end.code if isinstance(end.code, int) else output.OK
    return output.OK
