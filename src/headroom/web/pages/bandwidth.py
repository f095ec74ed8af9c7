"""The bandwidth pages: all nodes by how full their links are, fullest first, and one node with all its reservations.

Bandwidths are cluster-scoped and name pods of all namespaces. A viewer with access to nodes but not to every namespace sees how full the
links are and the names of their own pods. A viewer without access to nodes sees only the reservations of their own pods.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from operator import itemgetter
from typing import Final, NamedTuple

from headroom.api import bandwidth as api
from headroom.api.kinds import AnyResource
from headroom.api.resources import Condition
from headroom.model import conditions
from headroom.model.decisions import Decision, Ref
from headroom.model.usage import DAY
from headroom.model.world import World
from headroom.runtime.journal import MOST_REMEMBERED
from headroom.web.pages import parts
from headroom.web.pages.parts import Model
from headroom.web.scope import Scope
from headroom.web.view import OperatorView

KIND: Final = api.Bandwidth.kind.name
MOST_DETAILED: Final = 100
"""The fullest nodes are sent with their reservations; a fleet may have 100,000 nodes."""
MOST_IN_A_BAR: Final = 8
"""Reservations sent for each of these nodes; the node's own page shows all that its status lists."""
MOST_OWN: Final = 500
MOST_HISTORY: Final = 50
_LINKS: Final = ("network", "local")
_WAYS: Final = (("up", "ul_mbps"), ("down", "dl_mbps"))
_URGENCY: Final = ("bad", "warn", "good", "idle")


class Bandwidths:
    """Makes the page of all nodes; a node's row is computed again only after a new decision about it."""

    def __init__(self) -> None:
        self._known: dict[Ref, Known] = {}

    def model(self, view: OperatorView, scope: Scope) -> Model:
        """The page without its frame; for viewers without access to nodes, the reservations of their own pods."""
        world = view.world()
        known = self._of(view, world)
        if not (scope.everything or scope.nodes):
            return {"maySee": False, "nodes": {}} | _own(known, scope)
        nodes: Model = {}
        for place, each in enumerate(sorted(known, key=lambda each: each.order)):
            detailed = place < MOST_DETAILED and each.status.pods
            nodes[each.name] = each.row | _bars(each.status, scope, MOST_IN_A_BAR) if detailed else each.row
        return {
            "maySee": True,
            "nodes": nodes,
            "mode": world.bandwidth.mode,
            "detailed": min(len(nodes), MOST_DETAILED),
        }

    def _of(self, view: OperatorView, world: World) -> list[Known]:
        decisions, before, after = view.loop.decisions, self._known, {}
        for ref, resource in world.of_kind(KIND):
            decision, known = decisions.get(ref), before.get(ref)
            if known is None or known.resource is not resource or known.decision is not decision:
                known = _known(resource, decision)
            after[ref] = known
        self._known = after
        return list(after.values())


class Known(NamedTuple):
    """The row of one node, with its inputs."""

    name: str
    resource: AnyResource
    decision: Decision | None
    status: api.BandwidthStatus
    row: Model
    order: tuple[int, float, str]
    namespaces: frozenset[str]
    """Namespaces of the pods that the status lists."""


def _known(resource: AnyResource, decision: Decision | None) -> Known:
    status, row = status_of(resource, decision), node_row(resource, decision)
    place, name = order(row), row.pop("name")
    spaces = frozenset(each.namespace for each in status.reservations)
    return Known(name, resource, decision, status, row, place, spaces)


def node(view: OperatorView, scope: Scope, name: str) -> Model | None:
    """The page of one node without its frame; None if it does not exist or the viewer may not see it."""
    world, ref = view.world(), Ref(KIND, "", name)
    resource = world.resources.get(ref)
    if resource is None or not (scope.everything or scope.nodes):
        return None
    decision = view.loop.decisions.get(ref)
    status = status_of(resource, decision)
    row = node_row(resource, decision)
    rows: Model = {}
    for each in status.reservations:
        if scope.sees(each.namespace):
            rows[f"{each.namespace}/{each.pod_name}"] = reservation(each)
    page: Model = {
        "node": row | _facts(resource, status),
        "links": links_of(status),
        "reservations": rows,
        "unlisted": max(status.pods - len(rows), 0),
    }
    if scope.everything:
        entries = view.journal.newest(world.now - 7 * DAY, MOST_REMEMBERED, lambda each: each.resource == str(ref))
        page["history"] = parts.entries(entries[:MOST_HISTORY])
    return page | _bars(status, scope)


def status_of(resource: AnyResource, decision: Decision | None) -> api.BandwidthStatus:
    """The last decided status, else the one in the cluster."""
    status = decision.status if decision is not None else resource.status
    return status if isinstance(status, api.BandwidthStatus) else api.BandwidthStatus()


# --- one node in a few numbers ------------------------------------------------------------------------------------------------


def node_row(resource: AnyResource, decision: Decision | None) -> Model:
    """One node in a few numbers and words. Each link is a pair in each direction: reserved and capacity, in Mbps."""
    status = status_of(resource, decision)
    ready = conditions.find(status.conditions, "Ready")
    state, tone = _state(resource, ready, status)
    row: Model = {"name": resource.name, "state": state, "tone": tone, "pods": status.pods}
    row |= links_of(status)
    row["percent"] = fullness(status)
    if tone in ("bad", "warn"):
        row["message"] = _message(resource, status, state, ready)
    for name, count in (("edited", status.edited_pods), ("malformed", status.malformed_pods)):
        row |= {name: count} if count else {}
    if (native := conditions.find(status.conditions, "NativePlacement")) is not None:
        row["native"] = native.status == "True"
    return row


def order(row: Model) -> tuple[int, float, str]:
    """Sort key: nodes with problems first, then the fullest."""
    return min(_URGENCY.index(row["tone"]), _URGENCY.index("good")), -row["percent"], row.get("name", "")


def links_of(status: api.BandwidthStatus) -> Model:
    """Reserved bandwidth and capacity of each link in each direction."""
    if status.capacity is None or status.used is None:
        return {}
    found: Model = {}
    for link in _LINKS:
        used, size = getattr(status.used, link), getattr(status.capacity, link)
        found[link] = {way: [getattr(used, field), getattr(size, field)] for way, field in _WAYS}
    return found


def fullness(status: api.BandwidthStatus) -> float:
    """The share of the fullest link in its fuller direction, in percent; rounded down, so that only a full link reads as 100."""
    pairs = (pair for link in links_of(status).values() for pair in link.values())
    return max((1000 * used // size / 10 for used, size in pairs if size), default=0.0)


def is_overcommitted(status: api.BandwidthStatus) -> bool:
    """Whether a link has more reserved than it carries."""
    return conditions.holds(status.conditions, "Overcommitted")


def _state(resource: AnyResource, ready: Condition | None, status: api.BandwidthStatus) -> tuple[str, str]:
    """One word for the state of a node, and its tone. The words only summarize the status."""
    if resource.problems:
        return "Invalid", "bad"
    if resource.spec is not None and resource.spec.paused:
        return "Paused", "idle"
    if ready is None:
        return "Waiting", "idle"
    if is_overcommitted(status):
        return "Overcommitted", "warn"
    if ready.status != "True":
        return ready.reason, "warn"
    return ("Reserved", "good") if status.pods else ("Free", "idle")


def _message(resource: AnyResource, status: api.BandwidthStatus, state: str, ready: Condition | None) -> str:
    if state == "Invalid":
        return "; ".join(f"{each.field} {each.message}" for each in resource.problems)
    over = conditions.find(status.conditions, "Overcommitted")
    found = over if state == "Overcommitted" and over is not None else ready
    return found.message if found is not None else ""


def _facts(resource: AnyResource, status: api.BandwidthStatus) -> Model:
    ready = conditions.find(status.conditions, "Ready")
    return parts.known(
        {
            "said": ready.message if ready is not None else "",
            "networkFrom": status.network_from,
            "localFrom": status.local_from,
            "hostNetworkPods": status.host_network_pods or None,
            "problems": [f"{each.field} {each.message}" for each in resource.problems] or None,
            "updatedAt": status.updated_at,
        }
    )


# --- reservations -------------------------------------------------------------------------------------------------------------


def reservation(found: api.Reservation) -> Model:
    """One pod's reservation in Mbps, up and down; a link-local pod reserves nothing of the network card."""
    rates = found.bandwidth.local
    row: Model = {"up": rates.ul_mbps, "down": rates.dl_mbps}
    if found.deployment_type and found.deployment_type != "Pod":
        row["owner"] = f"{found.deployment_type} {found.deployment_name}"
    for name, holds in (("linkLocal", found.link_local), ("edited", found.edited), ("malformed", found.malformed)):
        row |= {name: True} if holds else {}
    return row


def _bars(status: api.BandwidthStatus, scope: Scope, most: int = api.MOST_LISTED) -> Model:
    """The largest reservations that the viewer may see by name; the rest of a bar belongs to other namespaces."""
    mine = sorted((each for each in status.reservations if scope.sees(each.namespace)), key=_largest)
    bar = [{"pod": f"{each.namespace}/{each.pod_name}"} | reservation(each) for each in mine[:most]]
    return {"bar": bar} if bar else {}


def _largest(found: api.Reservation) -> tuple[int, str, str]:
    holds = found.bandwidth.local
    return -holds.ul_mbps - holds.dl_mbps, found.namespace, found.pod_name


def _own(known: Iterable[Known], scope: Scope) -> Model:
    """The reservations of some namespaces on all nodes. A fleet may have 100,000 of them; only the rows shown are kept."""
    mine = [(node.name, reserved) for node in known if (reserved := _mine(node, scope))]
    every = ((each.namespace, each.pod_name, name, each) for name, reserved in mine for each in reserved)
    first = heapq.nsmallest(MOST_OWN, every, key=itemgetter(0, 1, 2))
    own = {f"{namespace}/{pod}": {"node": name} | reservation(each) for namespace, pod, name, each in first}
    return {"own": own, "ownCount": sum(len(reserved) for _, reserved in mine)}


def _mine(node: Known, scope: Scope) -> list[api.Reservation]:
    seen = {each for each in node.namespaces if scope.sees(each)}
    return [each for each in node.status.reservations if each.namespace in seen] if seen else []
