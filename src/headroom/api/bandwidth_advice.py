"""What is allowed in a Bandwidth and still hardly meant: said by `headroom check`, refused by nobody."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from headroom.api.bandwidth import BandwidthSpec
from headroom.api.kinds import AnyResource
from headroom.api.schema import Problem


def of_bandwidth(resource: AnyResource, given: Collection[str] = ()) -> list[Problem]:
    """Everything that is dubious about a valid Bandwidth; `given` are the fields that its spec gives itself."""
    spec: BandwidthSpec = resource.spec
    return [*_not_counted(spec), *_without_effect(given), *_unsaid(spec)]


def _not_counted(spec: BandwidthSpec) -> Iterator[Problem]:
    for name in ("requests", "reservations"):
        if count := len(getattr(spec, name)):
            listed = "1 entry is" if count == 1 else f"{count} entries are"
            yield Problem(
                f"spec.{name}",
                f"is ignored: its {listed} not counted. Reservations follow from the annotations of the pods on the node",
            )


def _without_effect(given: Collection[str]) -> Iterator[Problem]:
    if "status" in given:
        yield Problem("spec.status", "is kept and not read; how the accounting stands is in status.status")


def _unsaid(spec: BandwidthSpec) -> Iterator[Problem]:
    """A link of which only one direction is said, or an object that says nothing."""
    sizes = {"local": spec.capacity.local, "network": spec.capacity.network}
    if not any(each.ul_mbps or each.dl_mbps for each in sizes.values()):
        yield Problem(
            "spec.capacity",
            "is 0 for every link, which stands for not said: the node's annotations, its machine type or the settings count. "
            "Headroom makes such an object for each node by itself",
        )
        return
    for link, size in sizes.items():
        for way, mbps, other in (("ulMbps", size.ul_mbps, size.dl_mbps), ("dlMbps", size.dl_mbps, size.ul_mbps)):
            if not mbps and other:
                yield Problem(
                    f"spec.capacity.{link}.{way}",
                    f"is 0, which stands for not said and not for a link that is shut: what is known otherwise counts beside {other} Mbps",
                )
