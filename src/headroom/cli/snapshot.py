"""`headroom snapshot`: the world as the operator sees it, in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headroom.cli.options import Context, Kubeconfig, OperatorNamespace

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube


def snapshot(
    file: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The output file; stdout by default.")
    ] = None,
    ledger_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The ledger whose past usage to include; HEADROOM_LEDGER_URL by default."),
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    operator_namespace: OperatorNamespace = None,
) -> None:
    """Save all that Headroom knows of a cluster as JSON.

    `headroom replay` can decide on it later, and `headroom simulate` replay it under another policy. It contains no Secrets.

    Example: headroom snapshot -o world.json && headroom replay world.json
    """
    import sys

    from headroom.cli import live, output, preflight, private
    from headroom.model.errors import Misconfigured
    from headroom.model.snapshots import save

    private.prepare(file)
    settings = live.settings_of(kubeconfig, context, operator_namespace, ledger_url)

    async def work(kube: Kube) -> bytes:
        await preflight.may_observe(kube, settings)
        async with live.observed(kube, settings) as port:
            return save(await live.world(port, kube, settings))

    saved = live.with_cluster(settings, work) + b"\n"
    if file is None:
        sys.stdout.buffer.write(saved)
        return
    try:
        private.write(file, saved)
    except OSError as error:
        raise Misconfigured(f"writing {file}: {error.strerror or error}; give another file") from error
    output.say(f"wrote {len(saved):,} bytes to {file}")
