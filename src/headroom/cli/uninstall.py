"""`headroom uninstall`: take back what Headroom left in a cluster, so that nothing is stuck when it is gone."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from headroom.cli.options import Context, Kubeconfig, OperatorNamespace
from headroom.model.errors import Misconfigured, Refused

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.cli.leftovers import Leftover
    from headroom.runtime.settings import Settings

TAKE_OVER_SECONDS: Final = 5
LONGEST_WAIT: Final = 60
POLICY_SECONDS: Final = 2
"""How long the API server may go on with a policy that is gone."""
MOST_SHOWN: Final = 20
"""Pods that are named one by one."""


def uninstall(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Remove even while an operator leads.")] = False,
    crds: Annotated[bool, typer.Option("--crds", help="Also remove the kinds, with all their resources.")] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    operator_namespace: OperatorNamespace = None,
) -> None:
    """Remove what Headroom left in a cluster.

    It removes policies, holds, Bandwidths, BudgetIndex and BandwidthConfig, the ConfigMap, Leases and the extender's Secret; gates,
    annotations and finalizers on pods; and cordons, taints and bandwidth on nodes. It resumes suspended workloads. With --crds it
    also removes the kinds. It does not end machines of Spotpools: it lists those that keep running, and how to end them. Stop the
    operator first, or it recreates these objects; the command refuses while an operator leads. It can be repeated.

    Example: headroom uninstall --crds
    """
    from headroom.cli import leftovers, leftovers_bandwidth, leftovers_spot, live, output

    settings = live.settings_of(kubeconfig, context, operator_namespace)

    async def find(kube: Kube) -> tuple[list[Leftover], list[str]]:
        if not force:
            await refuse_while_led(kube, settings)
            await refuse_while_led(kube, settings, leftovers_bandwidth.lease_name(), "extender")
        first = [each async for each in leftovers.rules(kube)] + [each async for each in leftovers.marks(kube)]
        rest = [each async for each in leftovers.rest(kube, settings, crds=crds)]
        staying = [*await leftovers_bandwidth.pods_left(kube), *await leftovers_spot.machines_left(kube)]
        return first + rest, staying

    found, staying = live.with_cluster(settings, find)
    if not found:
        for line in ["There is nothing to remove.", *staying]:
            output.line(line)
        return
    for line in [*_shown(found, "removing" if yes else "would remove"), *staying]:
        output.line(line)
    _confirm(yes)
    told = {each.what for each in found}
    removed = live.with_cluster(settings, lambda kube: take_all(kube, settings, told, crds=crds))
    output.line(f"Removed {output.counted(removed, 'thing')}.")


async def take_all(kube: Kube, settings: Settings, told: set[str], *, crds: bool) -> int:
    """Remove everything, in an order in which nothing is held anew; how many things that were. What was not told of is told now."""
    from headroom.cli import leftovers, output

    rules = [each async for each in leftovers.rules(kube)]
    await leftovers.remove_in_order(kube, rules)
    if rules:
        await kube.clock.sleep(POLICY_SECONDS)  # until then a new pod may still get our gate or finalizer
    marks = [each async for each in leftovers.marks(kube)]
    for line in _shown([each for each in marks if each.what not in told], "removing"):
        output.line(line)
    await leftovers.remove_many(kube, marks)
    rest = [each async for each in leftovers.rest(kube, settings, crds=crds)]
    await leftovers.remove_in_order(kube, rest)
    return len(rules) + len(marks) + len(rest)


def _shown(found: Iterable[Leftover], word: str) -> Iterator[str]:
    """A line for each thing, but only so many for pods, of which there may be very many."""
    pods = 0
    for each in found:
        pods += each.undo == "pod"
        if each.undo != "pod" or pods <= MOST_SHOWN:
            yield f"{word} {each.what}"
    if pods > MOST_SHOWN:
        yield f"{word} gates and marks from {pods - MOST_SHOWN} more pods"


def _confirm(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misconfigured("asking for confirmation: there is no terminal; give --yes")
    typer.confirm("Remove all of this?", abort=True)


async def refuse_while_led(kube: Kube, settings: Settings, lease: str = "", whose: str = "operator") -> None:
    """Raise `Refused` if somebody holds a lease, the operator's unless another one is named. One that nobody renews for as long as it lasts was left by a dead process."""
    from headroom.adapters.kube.leases import KubeLeases
    from headroom.cli import output

    lease = lease or settings.lease_name
    leases = KubeLeases(kube, settings.operator_namespace, lease)
    first = found = await leases.read()
    if first is None or not first.holder:
        return
    # Longer than a standby waits: if one lives, it has taken the lease by then.
    waits = min(first.duration_seconds, LONGEST_WAIT) + TAKE_OVER_SECONDS
    output.say(f"{first.holder} has the lease; checking for up to {waits} s whether it is still alive ...")
    for _ in range(waits):
        await kube.clock.sleep(1.0)
        found = await leases.read()
        if found is None or not found.holder:
            return
        if found.version != first.version:
            raise Refused(
                f"uninstalling: {found.holder} holds the lease {settings.operator_namespace}/{lease}; "
                f"stop the {whose} first, or give --force"
            )
