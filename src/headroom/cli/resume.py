"""`headroom resume`: the cluster-wide kill switch, put back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headroom.cli import kill_switch
from headroom.cli.options import Context, Kubeconfig, OperatorNamespace

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube


def resume(
    kubeconfig: Kubeconfig = None, context: Context = None, operator_namespace: OperatorNamespace = None
) -> None:
    """Resume effects after `headroom stop`.

    The operator recreates the BudgetHolds that budgets still need.

    Example: headroom resume
    """
    from headroom.cli import live, output

    settings = live.settings_of(kubeconfig, context, operator_namespace)

    async def work(kube: Kube) -> bool:
        return await kill_switch.put_back(kube, settings.operator_namespace)

    place = f"ConfigMap {settings.operator_namespace}/{kill_switch.NAME}"
    if live.with_cluster(settings, work):
        output.line(
            f"Resumed: removed the key stop from {place}. The operator recreates the BudgetHolds that budgets still need."
        )
    else:
        output.line(f"Nothing was stopped: there is no {place}.")
