"""The cloud machines of Spotpools: `headroom uninstall` ends none of them, so it says which go on, and how to end them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.api.kinds import AnyResource

KIND: Final = "Spotpool"
MOST_NAMED: Final = 20


async def machines_left(kube: Kube) -> list[str]:
    """Every pool whose machines go on, in a sentence each."""
    from headroom.adapters.kube import decode, errors, paths

    found: list[AnyResource] = []
    try:
        async for body in kube.pages(paths.collection(KIND)):
            found += decode.resources(KIND).page(body).items
    except errors.NotFound:
        return []  # the kind is not there, so no pool is
    said = [line for pool in found for line in _said(pool)]
    return [*said, *_how(found)] if said else []


def _said(pool: AnyResource) -> Iterator[str]:
    from headroom.cli import output

    known = [each.instance_id for each in pool.status.slots if each.instance_id]
    unsure = sum(not each.instance_id for each in pool.status.slots)
    launches = f"{unsure} launches" if unsure > 1 else "1 launch"
    name = f"{KIND}/{pool.namespace}/{pool.name}"
    if known:
        more = f" and {len(known) - MOST_NAMED} more" if len(known) > MOST_NAMED else ""
        may = f"; {launches} may have brought more" if unsure else ""
        yield f"not ended: {output.counted(len(known), 'machine')} of {name}: {', '.join(known[:MOST_NAMED])}{more}{may}"
    elif unsure:
        yield f"not ended: what {launches} of {name} may have brought"


def _how(pools: list[AnyResource]) -> Iterator[str]:
    from headroom.api.marks import CLUSTER_TAG

    names = [f"-n {each.namespace} {each.name}" for each in pools if each.status.slots]
    yield (
        "machines keep running, and keep costing. Let the operator end them: run it again, then "
        f"`kubectl delete spotpool {names[0]}`{' and the others' if len(names) > 1 else ''}, and uninstall afterwards. "
        f"Or end them in the cloud, where they carry the tag {CLUSTER_TAG}"
    )
