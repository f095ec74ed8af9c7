"""`headroom uninstall`: take back what Headroom left in a cluster, so that nothing is stuck when it is gone."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from headroom.cli import kill_switch
from headroom.cli.options import Context, Kubeconfig, Namespace
from headroom.model.errors import Misconfigured, Refused

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.runtime.settings import Settings

TAKE_OVER_SECONDS: Final = 5
LONGEST_WAIT: Final = 60
POLICY_SECONDS: Final = 2
"""How long the API server may go on with a policy that is gone."""
POLICY_GROUP: Final = "admissionregistration.k8s.io"


class Leftover(NamedTuple):
    """One thing to remove."""

    what: str
    path: str
    finalizers_only: bool = False


def uninstall(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Do so even while an operator leads.")] = False,
    crds: Annotated[
        bool, typer.Option("--crds", help="Remove the kinds too, and with them all their resources.")
    ] = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    namespace: Namespace = None,
) -> None:
    """Remove what Headroom left in a cluster.

    These are its policies, its finalizers, its BudgetIndex, its ConfigMap and its Lease; with --crds also its kinds. Remove the operator's Deployment first, or it puts things back; while one leads, this refuses. May be repeated.

    Example: headroom uninstall --crds
    """
    from headroom.cli import live, output

    settings = live.settings_of(kubeconfig, context, namespace)

    async def find(kube: Kube) -> list[Leftover]:
        if not force:
            await refuse_while_led(kube, settings)
        return [each async for each in leftovers(kube, settings, crds=crds)]

    found = live.with_cluster(settings, find)
    if not found:
        output.line("There is nothing to remove.")
        return
    for each in found:
        output.line(f"{'would remove' if not yes else 'removing'} {each.what}")
    _confirm(yes)

    async def work(kube: Kube) -> int:
        for each in found:
            await _remove(kube, each)
        if any(POLICY_GROUP in each.path for each in found):
            await kube.clock.sleep(POLICY_SECONDS)  # until then a new pod may still get our finalizer
        late = [each async for each in _pod_finalizers(kube)]
        for each in late:
            output.line(f"removing {each.what}")
            await _remove(kube, each)
        return len(found) + len(late)

    output.line(f"Removed {live.with_cluster(settings, work)} things.")


def _confirm(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise Misconfigured("asking whether to go on: there is no terminal; give --yes")
    typer.confirm("Remove all of this?", abort=True)


async def refuse_while_led(kube: Kube, settings: Settings) -> None:
    """Raise `Refused` if somebody holds the lease. One that nobody renews for as long as it lasts was left by a dead process."""
    from headroom.adapters.kube.leases import KubeLeases
    from headroom.cli import output

    leases = KubeLeases(kube, settings.namespace, settings.lease_name)
    first = found = await leases.read()
    if first is None or not first.holder:
        return
    # Longer than a standby waits: if one lives, it has taken the lease by then.
    waits = min(first.duration_seconds, LONGEST_WAIT) + TAKE_OVER_SECONDS
    output.say(f"{first.holder} has the lease; looking for up to {waits} s whether it still lives ...")
    for _ in range(waits):
        await kube.clock.sleep(1.0)
        found = await leases.read()
        if found is None or not found.holder:
            return
        if found.version != first.version:
            raise Refused(
                f"uninstalling: {found.holder} holds the lease {settings.namespace}/{settings.lease_name}; "
                "stop the operator first, or give --force"
            )


async def leftovers(kube: Kube, settings: Settings, *, crds: bool) -> AsyncIterator[Leftover]:
    """What there is to remove, in the order in which it is removed."""
    from headroom.adapters.kube import decode, paths
    from headroom.adapters.kube.parse import OURS
    from headroom.api.kinds import KINDS

    async for policy in _present(kube, _policies()):
        yield policy
    async for finalizer in _pod_finalizers(kube):
        yield finalizer
    for kind in KINDS:
        async for each in _listed(kube, paths.collection(kind), decode.resources(kind)):
            if any(name.startswith(OURS) for name in each.finalizers):
                path = paths.resource(kind, each.namespace, each.name)
                named = "/".join(part for part in (kind, each.namespace, each.name) if part)
                yield Leftover(f"our finalizer from {named}", path, finalizers_only=True)
    async for thing in _present(kube, _single(settings, crds=crds)):
        yield thing


def _policies() -> list[Leftover]:
    """They go first, or the API server would give new pods a finalizer that nobody takes away."""
    from headroom.adapters.kube import paths
    from headroom.api.policies import policy_names

    return [
        Leftover(f"{plural}.{POLICY_GROUP} {name}", paths.of(POLICY_GROUP, "v1", plural, name=name))
        for plural, name in policy_names()
    ]


async def _pod_finalizers(kube: Kube) -> AsyncIterator[Leftover]:
    from headroom.adapters.kube import decode, paths

    async for pod in _listed(kube, paths.pods(), decode.pods()):
        if pod.finalizers:
            path = paths.pod(pod.namespace, pod.name)
            yield Leftover(f"our finalizer from pod {pod.key}", path, finalizers_only=True)


def _single(settings: Settings, *, crds: bool) -> list[Leftover]:
    from headroom.adapters.kube import paths
    from headroom.api.budget_index import INDEX_NAME, BudgetIndex
    from headroom.api.kinds import DEFINITIONS
    from headroom.api.resources import GROUP, VERSION

    index = paths.of(GROUP, VERSION, BudgetIndex.kind.plural, name=INDEX_NAME)
    lease = paths.lease(settings.namespace, settings.lease_name)
    single = [
        Leftover(f"{BudgetIndex.kind.name} {INDEX_NAME}", index),
        Leftover(f"Lease {settings.namespace}/{settings.lease_name}", lease),
    ]
    if crds:
        group, plural = "apiextensions.k8s.io", "customresourcedefinitions"
        names = [f"{kind.plural}.{GROUP}" for kind in DEFINITIONS.values()]
        single += [
            Leftover(f"kind {name} and all its resources", paths.of(group, "v1", plural, name=name)) for name in names
        ]
    # The kill switch is in it, so it goes last: until then it holds back an operator that nobody thought of.
    switch = paths.configmap(settings.namespace, kill_switch.NAME)
    single.append(Leftover(f"ConfigMap {settings.namespace}/{kill_switch.NAME}", switch))
    return single


async def _present(kube: Kube, things: list[Leftover]) -> AsyncIterator[Leftover]:
    """Those of them that are there."""
    from headroom.adapters.kube import errors

    for thing in things:
        try:
            await kube.get(thing.path)
        except errors.NotFound:
            continue
        yield thing


async def _listed(kube: Kube, path: str, decoder: Any) -> AsyncIterator[Any]:
    """Every object of a kind; none if the kind is not there."""
    from headroom.adapters.kube import errors

    try:
        async for body in kube.pages(path):
            for fact in decoder.page(body).items:
                yield fact
    except errors.NotFound:
        return


async def _remove(kube: Kube, thing: Leftover) -> None:
    from headroom.adapters.kube import effects, errors

    try:
        if thing.finalizers_only:
            await effects.remove_finalizers(kube, thing.path)
        else:
            await kube.delete(thing.path)
    except errors.NotFound:
        return  # somebody else was quicker
