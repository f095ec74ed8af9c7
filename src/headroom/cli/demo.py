"""`headroom demo`: the production operator on a simulated cluster, with the dashboard. Nothing else is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def demo(
    speed: Annotated[float, typer.Option(min=0.1, max=600, help="Simulated seconds for each real one.")] = 60.0,
    seed: Annotated[int, typer.Option(help="The seed of random events.")] = 1,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="The dashboard's port; the next free one if taken.")
    ] = 8080,
    scenario: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run this scenario instead of the built-in fleet.")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--for", min=0, metavar="SECONDS", help="End after so long.")] = None,
    snapshot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a snapshot when it ends, like `headroom snapshot`.")
    ] = None,
) -> None:
    """Run Headroom on an embedded simulated cluster.

    The operator and the dashboard are those of `headroom run`; only the API server and the fleet are simulated. It prints the
    dashboard's address, a line for each event, and the state of the fleet now and then, and runs until Ctrl-C. With --scenario
    it ends with the scenario and prints how many expectations held; the exit code is 1 if one failed. With --snapshot other
    commands can use the fleet afterwards: `status`, `forecast`, `explain` and `simulate` with --from FILE, and `replay FILE`.

    Example: headroom demo --speed 120

    Example: headroom demo --for 60 --snapshot world.json && headroom status --from world.json
    """
    from headroom.cli import demonstration
    from headroom.sim.pacing import run_paced

    wishes = demonstration.DemoOptions(speed, seed, port, scenario, seconds, snapshot)
    raise typer.Exit(run_paced(lambda: demonstration.show(wishes)))
