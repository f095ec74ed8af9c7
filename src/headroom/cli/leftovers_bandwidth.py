"""What bandwidth leaves in a cluster: the extender's own objects, and pods whose requests nobody can take from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.model.facts import Pod
    from headroom.runtime.settings import Settings

MOST_NAMED: Final = 20


def of_extender(settings: Settings) -> list[tuple[str, str]]:
    """What the extender made, each with its path: its lease, and the Secret with its certificate."""
    from headroom.adapters.kube import paths

    namespace, lease, secret = settings.operator_namespace, lease_name(), _given("kept_in")
    return [
        (f"Lease {namespace}/{lease}", paths.lease(namespace, lease)),
        (f"Secret {namespace}/{secret}", paths.secret(namespace, secret)),
    ]


def lease_name() -> str:
    """The lease of the extender that answers."""
    return _given("lease_name")


def _given(name: str) -> str:
    import os

    from headroom.runtime.extender_settings import PREFIX, ExtenderSettings

    default: str = getattr(ExtenderSettings(), name)
    return os.environ.get(PREFIX + name.upper(), "") or default


async def pods_left(kube: Kube) -> list[str]:
    """Pending pods that request what no node has once Headroom is gone: a pod's requests can never be changed."""
    from headroom.adapters.kube import decode, paths
    from headroom.api.bandwidth import MARKER
    from headroom.api.bandwidth_config import EXTENDED

    found: list[str] = []
    async for body in kube.pages(paths.pods(), query={"fieldSelector": "spec.nodeName="}):
        found += [each.key for each in decode.pods().page(body).items if _requests(each, {MARKER, *EXTENDED})]
    if not found:
        return []
    found.sort()
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    pods = "1 pending pod requests" if len(found) == 1 else f"{len(found)} pending pods request"
    said = (
        f"not removed: the bandwidth that {pods} of kube-scheduler: {', '.join(found[:MOST_NAMED])}{more}. No node will have it: "
        "delete them, and their controllers make new ones without. In extender mode, take the extender out of kube-scheduler's "
        "configuration first"
    )
    return [said]


def _requests(pod: Pod, names: set[str]) -> bool:
    return any(name in names for name, _ in pod.shape.requests)
