"""`headroom resume`: the cluster-wide kill switch, put back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headroom.cli import kill_switch
from headroom.cli.options import Context, Kubeconfig, Namespace

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube


def resume(kubeconfig: Kubeconfig = None, context: Context = None, namespace: Namespace = None) -> None:
    """Let effects happen again after `headroom stop`.

    Holds that it deleted come back by themselves where a budget still asks for one.

    Example: headroom resume
    """
    from headroom.cli import live, output

    settings = live.settings_of(kubeconfig, context, namespace)

    async def work(kube: Kube) -> bool:
        return await kill_switch.put_back(kube, settings.namespace)

    place = f"ConfigMap {settings.namespace}/{kill_switch.NAME}"
    if live.with_cluster(settings, work):
        output.line(
            f"Resumed: the key stop is gone from {place}. Where a budget still holds new pods, its BudgetHold comes back."
        )
    else:
        output.line(f"Nothing was stopped: there is no {place}.")
