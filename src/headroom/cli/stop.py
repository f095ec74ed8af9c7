"""`headroom stop`: the cluster-wide kill switch, thrown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headroom.cli import kill_switch
from headroom.cli.options import Context, Kubeconfig, OperatorNamespace

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube


def stop(
    reason: Annotated[str, typer.Option(metavar="TEXT", help="The reason, stored beside the switch.")] = "",
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    operator_namespace: OperatorNamespace = None,
) -> None:
    """Stop all effects in the whole cluster within a tick.

    Observing goes on. It sets the key `stop` of the ConfigMap `headroom`, so it also works while no operator runs. Then it
    deletes every BudgetHold, so that new pods start as always; pods that are queued stay queued. Undo: headroom resume.

    Example: headroom stop --reason "power maintenance in hall 2"
    """
    from headroom.cli import live, output

    settings = live.settings_of(kubeconfig, context, operator_namespace)

    async def work(kube: Kube) -> int:
        await kill_switch.throw(kube, settings.operator_namespace, reason)
        output.line(
            f'Stopped: ConfigMap {settings.operator_namespace}/{kill_switch.NAME} has stop: "true" now; '
            "undo it with `headroom resume`."
        )
        return await kill_switch.drop_holds(kube)

    if holds := live.with_cluster(settings, work):
        output.line(
            f"Deleted {output.counted(holds, 'BudgetHold')}: new pods start as always, since nothing releases pods now. "
            "Queued pods, and requests to release them, stay as they are until `headroom resume`."
        )
