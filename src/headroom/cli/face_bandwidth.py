"""What people see of bandwidth: how full the links of nodes are, what is reserved for whom, and which pods are overlooked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from headroom.cli import face_tables, output
from headroom.cli.face import Face
from headroom.cli.face_tables import section

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from headroom.api.bandwidth import BandwidthStatus, Reservation
    from headroom.api.kinds import AnyResource
    from headroom.api.schema import Problem
    from headroom.cli.face import Line
    from headroom.model.decisions import Decision, Ref
    from headroom.model.facts import Pod
    from headroom.model.world import World
    from headroom.runtime.metrics import Measure
    from headroom.web.page import Page

MOST_NODES: Final = 5
"""Of `headroom status`, where a fleet has one for each node: those that need a look, and the fullest."""


# --- one node -----------------------------------------------------------------------------------------------------------------


def show(_resource: AnyResource, status: BandwidthStatus) -> None:
    """Print the links of a node and what is reserved of them."""
    if status.capacity is None or status.used is None:
        return
    from headroom.web.pages.bandwidth import links_of

    says = {"network": ("network card", status.network_from), "local": ("virtual switch", status.local_from)}
    rows = [
        (says[link][0], f"{pair[0]} of {pair[1]}", way, _share(*pair), says[link][1])
        for link, ways in links_of(status).items()
        for way, pair in ways.items()
    ]
    output.as_table(("LINK", "MBPS", "WAY", "FULL", "CAPACITY FROM"), rows, texts=1, indent=2)
    shown = face_tables.cut(status.reservations, lambda each: not (each.edited or each.malformed))
    section("Reserved", ("POD", "WORKLOAD", "UP", "DOWN", "REMARKS"), [_reserved(each) for each in shown], texts=1)
    face_tables.left_out(status.pods - len(shown))
    if status.host_network_pods:
        pods = output.counted(status.host_network_pods, "pod")
        output.line()
        output.line(f"No bandwidth is reserved for {pods} on the host network, which no CNI limits.")


def _reserved(each: Reservation) -> tuple[object, ...]:
    workload = "" if each.deployment_type == "Pod" else f"{each.deployment_type} {each.deployment_name}"
    rates = each.bandwidth.local
    return f"{each.namespace}/{each.pod_name}", workload, rates.ul_mbps, rates.dl_mbps, "; ".join(_remarks(each))


def _remarks(each: Reservation) -> Iterator[str]:
    if each.link_local:
        yield "same node: network card not used"
    elif each.siblings:
        yield "declares siblings only, but they are on other nodes or not bound"
    if each.edited:
        yield "edited after it was bound, without effect"
    if each.malformed:
        yield "unreadable request, so the default counts"


def _share(used: int, size: int) -> object:
    if not size:
        return ""
    return output.Toned(f"{100 * used // size}%", "warn" if used > size else "good")


# --- one pod ------------------------------------------------------------------------------------------------------------------


def _notes(world: World, pod: Pod, statuses: Mapping[Ref, object]) -> Iterable[str]:
    from headroom.core.bandwidth import notes

    return notes(world, pod, statuses)


# --- in `headroom status` -----------------------------------------------------------------------------------------------------


def _row(_world: World, resource: AnyResource, decision: Decision | None) -> dict[str, Any]:
    from headroom.web.pages.bandwidth import node_row

    return node_row(resource, decision)


def _rows(found: dict[str, Any], everything: bool) -> None:
    """How many nodes there are and how full they are; those that need a look, and the fullest."""
    from headroom.web.pages.bandwidth import order

    nodes = sorted(found["bandwidth"], key=order)
    if not nodes:
        return
    reserved = [each for each in nodes if each["pods"] or each["tone"] in ("bad", "warn")]
    output.line()
    output.line(_summary(nodes))
    # Without a terminal all are told too, and a fleet has very many: only those that have anything to say.
    most = len(reserved) if everything else MOST_NODES
    if reserved:
        columns = ("NODE", "FULL", "NETWORK MBPS UP/DOWN", "SWITCH MBPS UP/DOWN", "PODS", "STATE", "WHY")
        output.as_table(columns, [_cells(each) for each in reserved[:most]])
    if len(reserved) > most:
        output.line(f"and {output.counted(len(reserved) - most, 'node')} more; --all lists them")


def _summary(nodes: list[dict[str, Any]]) -> str:
    over = sum(each["state"] == "Overcommitted" for each in nodes)
    pods = sum(each["pods"] for each in nodes)
    said = f"Bandwidth: {output.counted(pods, 'pod')} on {output.counted(len(nodes), 'node')}"
    if over:
        said += f", {over} overcommitted"
    for name in ("edited", "malformed"):
        if count := sum(each.get(name, 0) for each in nodes):
            said += f", {output.counted(count, 'pod')} {'unreadable' if name == 'malformed' else name}"
    if any("native" in each for each in nodes):
        placed = sum(each.get("native", False) for each in nodes)
        said += f"; native placement on {placed} of {output.counted(len(nodes), 'node')}"
    return said


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    links = [_pair(row[link]) if link in row else "" for link in ("network", "local")]
    state = output.Toned(row["state"], row["tone"])
    return row["name"], f"{row['percent']:.0f}%", *links, row["pods"], state, row.get("message", "")


def _pair(ways: dict[str, list[int]]) -> str:
    (up, size_up), (down, size_down) = ways["up"], ways["down"]
    return f"{up}/{down} of {size_up}/{size_down}"


# --- elsewhere ----------------------------------------------------------------------------------------------------------------


def _advice(resource: AnyResource, given: Collection[str], _others: Iterable[AnyResource]) -> list[Problem]:
    from headroom.api import bandwidth_advice

    return bandwidth_advice.of_bandwidth(resource, given)


def _pages() -> tuple[Page, ...]:
    from headroom.web.page import Page
    from headroom.web.pages import bandwidth

    return (
        Page("bandwidth", "bandwidth", lambda: bandwidth.Bandwidths().model, link="Bandwidth"),
        Page("bandwidth/{name}", "links", lambda: bandwidth.node, kind="Bandwidth", noun="node with bandwidth"),
    )


def _metrics(registry: CollectorRegistry) -> Measure:
    from headroom.runtime.bandwidth_metrics import BandwidthMetrics

    return BandwidthMetrics(registry)


class BandwidthStory:
    """Nodes whose links have more reserved than they carry, and that have no more."""

    def __init__(self) -> None:
        self._over: set[str] = set()

    def decided(self, _decision: Decision, _now: int) -> Iterable[Line]:
        """Nothing: what was so before somebody led is no decision of theirs."""
        return ()

    def news(self, ref: Ref, decision: Decision, resource: AnyResource, now: int) -> Iterator[Line]:
        """When a node becomes overcommitted, and when it is no more."""
        from headroom.model import conditions
        from headroom.web.pages.bandwidth import fullness, status_of

        over = conditions.find(decision.status.conditions, "Overcommitted")
        is_over = over is not None and over.status == "True"
        if is_over and ref.name not in self._over:
            self._over.add(ref.name)
            yield (
                now,
                f"bandwidth: {ref.name} is overcommitted, {fullness(status_of(resource, decision)):.0f}% of a link is reserved",
            )
        elif not is_over and ref.name in self._over:
            self._over.discard(ref.name)
            yield now, f"bandwidth: {ref.name} is within its capacity again"


FACE: Final = Face(
    show=show,
    advice=_advice,
    pages=_pages,
    section="bandwidth",
    row=_row,
    table=_rows,
    metrics=_metrics,
    story=BandwidthStory,
    notes=_notes,
)
