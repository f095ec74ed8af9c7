"""The cluster-wide stop as it stands in the cluster: a key in the ConfigMap `headroom` of the operator's namespace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube

NAME: Final = "headroom"
SETTLE_SECONDS: Final = 1.0
"""How long an operator may take to hear of the switch."""
_KEYS: Final = ("stop", "stop-reason", "stopped-at")


class KillSwitch(NamedTuple):
    """The switch as it stands."""

    seen: bool = True
    """Whether we may know at all."""
    stopped: bool = False
    reason: str = ""
    since: str = ""


async def read(kube: Kube, namespace: str) -> KillSwitch:
    """How it stands, as far as we may know."""
    from headroom.adapters.kube import errors, parse, paths, raw
    from headroom.adapters.kube.config_maps import is_stopped

    try:
        body = await kube.get(paths.configmap(namespace, NAME))
    except errors.NotFound:
        return KillSwitch()
    except errors.Forbidden:
        return KillSwitch(seen=False)
    data = parse.settings_of(raw.fitted(raw.plain(body), raw.ConfigMap)).data
    reason, since = (data.get(key, "") for key in _KEYS[1:])
    return KillSwitch(stopped=True, reason=reason, since=since) if is_stopped(data) else KillSwitch()


async def throw(kube: Kube, namespace: str, reason: str) -> None:
    """Stop all effects."""
    from headroom.adapters.kube import errors, paths
    from headroom.model import times

    data = {"stop": "true", "stop-reason": reason, "stopped-at": times.text(kube.clock.now())}
    try:
        await kube.merge_patch(paths.configmap(namespace, NAME), {"data": data})
    except errors.NotFound:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": namespace},
            "data": data,
        }
        try:
            await kube.create(paths.configmaps(namespace), body)
        except errors.NotFound as error:
            raise Misconfigured(
                f"creating the ConfigMap {namespace}/{NAME}: there is no namespace {namespace}; "
                "give the operator's with --operator-namespace"
            ) from error


async def drop_holds(kube: Kube) -> int:
    """Delete every BudgetHold, since nobody releases pods while all is stopped; how many there were."""
    found = await _delete_holds(kube)
    if found:
        # An operator that had begun to write one did not know of the switch yet.
        await kube.clock.sleep(SETTLE_SECONDS)
        found |= await _delete_holds(kube)
    return len(found)


async def _delete_holds(kube: Kube) -> set[str]:
    from headroom.adapters.kube import budget_holds, decode, errors, paths

    pages, names = decode.holds(), set[str]()
    try:
        async for body in kube.pages(paths.budget_hold()):
            names |= {hold.name for hold in pages.page(body).items}
    except errors.NotFound:
        return names  # the kind is not there
    for name in sorted(names):
        await budget_holds.delete(kube, name)
    return names


async def put_back(kube: Kube, namespace: str) -> bool:
    """Let effects happen again; False if there is no ConfigMap at all."""
    from headroom.adapters.kube import errors, paths

    try:
        await kube.merge_patch(paths.configmap(namespace, NAME), {"data": dict.fromkeys(_KEYS)})
    except errors.NotFound:
        return False
    return True
