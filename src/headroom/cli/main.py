"""The command line: `headroom COMMAND`, and the one place where a failure becomes a sentence and an exit code."""

from __future__ import annotations

import os
import sys

import typer

from headroom.cli import (
    check,
    convert,
    crds,
    demo,
    explain,
    output,
    plan,
    replay,
    resume,
    run,
    snapshot,
    stop,
    uninstall,
    version,
)
from headroom.model.errors import HeadroomError

HELP = """One operator for a Kubernetes GPU fleet: budgets, spot pools, power, bandwidth and cheapest capacity.

Exit codes: 0 all is well; 1 the input has problems, and they were printed; 2 it could not run, and one sentence says what to do.

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
    plan.plan,
    check.check,
    convert.convert,
    explain.explain,
    stop.stop,
    resume.resume,
    snapshot.snapshot,
    replay.replay,
    uninstall.uninstall,
    crds.crds,
    version.version,
)
for command in COMMANDS:
    app.command()(command)


def main() -> None:
    """Run one command and exit."""
    try:
        app()
    except HeadroomError as error:
        output.say(f"headroom: {error}")
        sys.exit(output.COULD_NOT_RUN)
    except BrokenPipeError:
        # Whoever read our output has enough of it, as in `headroom crds | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(output.OK)
