"""Devices as resources that budgets count: what pods hold through claims, and what they ask for before they hold it.

Who writes a thing decides what it proves. Tenants write claims, templates and annotations: those say what is asked for. What a pod
has is what the scheduler wrote: the claim's allocation and reservations, and the pod's status for a claim made for extended resources.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from msgspec import structs

from headroom.api.policies.cel import IMPLICIT
from headroom.core.usage.names import CLASSES, DRIVERS, OTHER, CountedResource, Sharers, text_of
from headroom.core.usage.prices import MIG, PRODUCT
from headroom.model import sight
from headroom.model.device_facts import AllocatedDevice, Claim, ClaimTemplate, DeviceChoice, DeviceRequest
from headroom.model.devices import WHOLE, DeviceTable, profile_part
from headroom.model.facts import Amounts, Node, Pairs, Pod, WorkloadPart
from headroom.model.tables import NodeTable, PodTable
from headroom.model.world import World

ENDED_PHASES: Final = ("Succeeded", "Failed")
MOST_DEVICES: Final = 32
"""More devices than these no claim is ever given."""
MICRO: Final = 1_000_000
"""One device, GPU or dollar, in millionths."""

ToldApart = Mapping[str, frozenset[str]]
"""The labels that budgets look at, each with the values that they name."""


class DeviceView(NamedTuple):
    """What decides which devices pods have."""

    claims: Mapping[str, Claim]
    devices: DeviceTable
    pods: PodTable
    nodes: NodeTable
    told_apart: ToldApart = {}
    is_whole: bool = True
    """Whether all claims, templates, classes and slices are seen; else what pods have may be more than is known."""
    sharing: dict[str, tuple[dict[str, Pairs], Counter[Pairs]]] | None = None
    """Remembers who shares which claim, for as long as no pod changes; else each of many sharers would look at all the others."""


def view_of(world: World, told_apart: ToldApart | None = None) -> DeviceView:
    """What a world says of devices."""
    is_whole = sight.sees(world, *sight.DRA)
    return DeviceView(world.claims, world.devices, world.pods, world.nodes, told_apart or {}, is_whole)


# --- what a device is --------------------------------------------------------------------------------------------------------


def is_there(name: str, table: DeviceTable) -> bool:
    """Whether it is known what a class gives."""
    return name in table.classes or name in CLASSES


def of_class(name: str, table: DeviceTable) -> CountedResource:
    """What the devices of a class count as: GPUs of a well-known resource, or what the class is called."""
    if not is_there(name, table):
        return CountedResource(name=name)  # anybody may name a class that is not there, so none of those is remembered
    key = ("class", name)
    if key not in table.memory:
        table.memory[key] = _of_class(name, table)
    found: CountedResource = table.memory[key]
    return found


def _of_class(name: str, table: DeviceTable) -> CountedResource:
    known = table.classes.get(name)
    extended = known.extended_resource if known else ""
    resource = CLASSES.get(name, "")
    if known is not None and not resource:
        named = sorted({DRIVERS[each] for each in DRIVERS if any(_selects(each, cel) for cel in known.selectors)})
        # A class without selectors may give any device there is.
        there = [] if known.selectors else sorted(DRIVERS[each] for each in table.drivers & DRIVERS.keys())
        resource = next(iter([*(each for each in DRIVERS.values() if each == extended), *named, *there]), "")
    aliases = [each for each in (name, extended) if each and each != (resource or name) and each not in CLASSES]
    return CountedResource(name=resource or name, aliases=tuple(aliases))


def _selects(driver: str, expression: str) -> bool:
    """Whether a selector of a class speaks of a driver, other than to rule it out."""
    quoted = rf"(?P<quote>[\"']){re.escape(driver)}(?P=quote)"
    return any(not re.search(r"!=\s*$", expression[: found.start()]) for found in re.finditer(quoted, expression))


def requested(name: str, table: DeviceTable, node: Node | None = None) -> str:
    """What a resource that containers ask for counts as: one that a device class backs is that class's devices."""
    if name.startswith(MIG):
        product = dict(node.labels).get(PRODUCT, "") if node else ""
        part = profile_part(name.removeprefix(MIG), product)
        return (
            text_of(CountedResource(name=name, part=part))
            if part and part != profile_part(name.removeprefix(MIG))
            else name
        )
    known = table.by_extended_resource.get(name)
    if name.startswith(IMPLICIT):
        return text_of(of_class(name.removeprefix(IMPLICIT), table))
    if known is None or name in DRIVERS.values():
        return name
    return text_of(of_class(known.name, table))


def _allocated(device: AllocatedDevice, table: DeviceTable) -> CountedResource:
    """What a device that was allocated counts as: its driver tells it better than the class by which it was asked for."""
    resource = of_class(device.device_class or device.driver, table)
    if (known := DRIVERS.get(device.driver)) and resource.name != known:
        aliases = [each for each in (resource.name, *resource.aliases) if each != known and each not in CLASSES]
        resource = CountedResource(name=known, aliases=tuple(aliases))
    part = table.part(device.driver, device.pool, device.device, device.consumed)
    if part == WHOLE:
        return resource
    there = table.get(device.driver, device.pool, device.device)
    profile = (MIG + there.profile,) if there and there.profile and resource.name == DRIVERS["gpu.nvidia.com"] else ()
    return structs.replace(resource, part=part, aliases=(*resource.aliases, *profile))


# --- what a pod has ----------------------------------------------------------------------------------------------------------


def held_by(pod: Pod, view: DeviceView) -> tuple[dict[str, int], Collection[str]]:
    """The devices that a pod has through claims, and which of its extended resources are among them."""
    found: dict[str, int] = {}
    if not (pod.claims or pod.extended_claim):
        return found, ()
    for claim in _reserved(pod, pod.claims, view):
        _add(found, _of_claim(claim, pod, view))
    special = next(_reserved(pod, [pod.extended_claim], view), None)
    resources = pod.extended.resources if pod.extended is not None else ()
    if special is None or not resources or special.name in pod.claims:
        return found, ()
    _add(found, _of_claim(special, pod, view))
    return found, resources


def are_seen(pod: Pod, view: DeviceView) -> bool:
    """Whether every claim of a pod is seen to be given to it.

    A pod that runs keeps its devices whatever becomes of its claims, and tenants can delete those, finalizers and all.
    """
    names = {name for name in (*pod.claims, pod.extended_claim) if name}
    return view.is_whole and len(names) == len(list(_reserved(pod, names, view)))


def _reserved(pod: Pod, names: Iterable[str], view: DeviceView) -> Iterator[Claim]:
    for name in names:
        claim = view.claims.get(f"{pod.namespace}/{name}")
        if claim is not None and claim.is_allocated and pod.uid in claim.reserved_for:
            yield claim


def _of_claim(claim: Claim, pod: Pod, view: DeviceView) -> Iterator[tuple[str, int]]:
    shared = _shared(claim, pod, view)
    for device in claim.allocated:
        resource = _allocated(device, view.devices)
        if shared is not None:
            resource = structs.replace(resource, sharers=shared.sharers, keys=shared.keys, is_first=shared.is_first)
        yield text_of(resource), MICRO


def holds_under(pod: Pod, view: DeviceView) -> Pairs | None:
    """The labels under which a pod with claims holds something, as far as budgets tell them apart; None if it does not."""
    return _projected(pod.labels, view.told_apart) if pod.has_claims and _holds(pod) else None


def sharers_of(pod: Pod, view: DeviceView) -> list[str]:
    """Uids of the other pods with which a pod shares a claim."""
    found = set[str]()
    for name in (*pod.claims, pod.extended_claim) if pod.has_claims else ():
        claim = view.claims.get(f"{pod.namespace}/{name}") if name else None
        if claim is not None and pod.uid in claim.reserved_for:
            found.update(claim.reserved_for)
    return sorted(found - {pod.uid})


def _shared(claim: Claim, pod: Pod, view: DeviceView) -> CountedResource | None:
    """With whom a pod shares a claim: pods that run. One that is not there, has not started or is over holds nothing."""
    if len(claim.reserved_for) < 2:
        return None
    running, counts = _running(claim, view)
    other = next((uid for uid in running if uid != pod.uid), None)
    if other is None:
        return None
    own, listed = _projected(pod.labels, view.told_apart), running.get(pod.uid)
    if listed != own:
        counts = (counts - Counter([listed] if listed is not None else [])) + Counter([own])
    sharers = sorted(counts.items(), key=lambda each: (each[0] != own, each[0]))
    return CountedResource(
        sharers=tuple(Sharers(count, labels) for labels, count in sharers),
        keys=tuple(sorted(view.told_apart)),
        is_first=pod.uid < other,
    )


def _running(claim: Claim, view: DeviceView) -> tuple[dict[str, Pairs], Counter[Pairs]]:
    """The pods of a claim that run, by uid, each with the labels that matter, and how many have which of these."""
    known = view.sharing.get(claim.key) if view.sharing is not None else None
    if known is None:
        pods = ((uid, view.pods.get(uid)) for uid in sorted(claim.reserved_for))
        running = {uid: _projected(pod.labels, view.told_apart) for uid, pod in pods if pod is not None and _holds(pod)}
        known = running, Counter(running.values())
        if view.sharing is not None:
            view.sharing[claim.key] = known
    return known


def _holds(pod: Pod) -> bool:
    return pod.started is not None and pod.phase not in ENDED_PHASES


def _projected(labels: Pairs, told_apart: ToldApart) -> Pairs:
    """The labels as far as budgets tell them apart, so that nobody can make rows long by labels of their own."""
    return tuple((key, value if value in told_apart[key] else OTHER) for key, value in labels if key in told_apart)


# --- what a pod asks for -----------------------------------------------------------------------------------------------------


class PodDevices(NamedTuple):
    """What a pod will hold."""

    amounts: Amounts = ()
    choices: tuple[tuple[Amounts, ...], ...] = ()
    """Of each of these it gets one alternative."""
    is_known: bool = True
    """Whether all is seen that says what it asks for: without its claims and templates nothing can place it either."""


def asked_by(pod: Pod, view: DeviceView, without: Collection[str] = ()) -> PodDevices:
    """What a pod will hold, or holds: through claims that are not in `without`, each claim as a whole."""
    node = view.nodes.get(pod.node) if pod.node else None
    names = [name for name in pod.claims if f"{pod.namespace}/{name}" not in without]
    return _asked(pod.namespace, _amounts(pod.shape.requests, view.devices, node), (names, pod.claim_templates), view)


def asked_by_part(namespace: str, part: WorkloadPart, view: DeviceView) -> tuple[PodDevices, PodDevices]:
    """What each pod of an owner will hold by itself, and what all of them share."""
    own = _asked(namespace, _amounts(part.requests, view.devices), ((), part.claim_templates), view)
    return own, _asked(namespace, {}, (part.claims, ()), view)


def requested_amounts(requests: Amounts, table: DeviceTable) -> Amounts:
    """What containers ask for, by the names that count."""
    if all(requested(name, table) == name for name, _ in requests):
        return requests
    return tuple(sorted(_amounts(requests, table).items()))


def _amounts(requests: Amounts, table: DeviceTable, node: Node | None = None) -> dict[str, int]:
    found: dict[str, int] = {}
    _add(found, ((requested(name, table, node), amount) for name, amount in requests))
    return found


def _asked(
    namespace: str, found: dict[str, int], named: tuple[Iterable[str], Iterable[str]], view: DeviceView
) -> PodDevices:
    choices: list[tuple[Amounts, ...]] = []
    # Behind any name that is not a well-known GPU's, there may be a device class that is not seen now.
    is_known = view.is_whole or not any("/" in name and name not in DRIVERS.values() for name in found)
    claims = [view.claims.get(f"{namespace}/{name}") for name in named[0]]
    templates = [view.devices.templates.get(f"{namespace}/{name}") for name in named[1]]
    for each in (*claims, *templates):
        is_known = is_known and each is not None and view.is_whole
        if each is None:
            continue
        # A class that is not there gives nothing now, and whatever its author likes once it is.
        is_known = is_known and all(is_there(name, view.devices) for name in _classes_of(each))
        if isinstance(each, Claim) and each.is_allocated:
            _add(found, ((text_of(_allocated(device, view.devices)), MICRO) for device in each.allocated))
        else:
            _ask(found, choices, each.requests, view.devices)
    return PodDevices(tuple(sorted(found.items())), tuple(choices), is_known)


def _classes_of(each: Claim | ClaimTemplate) -> Iterator[str]:
    """The classes that what is not given yet may come from."""
    if not (isinstance(each, Claim) and each.is_allocated):
        yield from (one.device_class for request in each.requests if not request.is_admin for one in request.choices)


def _ask(
    found: dict[str, int],
    choices: list[tuple[Amounts, ...]],
    requests: Iterable[DeviceRequest],
    table: DeviceTable,
) -> None:
    for each in requests:
        if each.is_admin:
            continue
        wanted = [(text_of(of_class(one.device_class, table)), _wanted(one, table)) for one in each.choices]
        if len(wanted) == 1:
            _add(found, wanted)
        elif wanted:
            choices.append(tuple((each,) for each in wanted))


def _wanted(choice: DeviceChoice, table: DeviceTable) -> int:
    """Millionths of devices. Where all of a node are taken, as many as the largest node has, or as a claim can have at most."""
    if not choice.takes_all:
        return choice.count * MICRO
    resource = of_class(choice.device_class, table).name
    drivers = [each for each in table.drivers if DRIVERS.get(each, each) in (resource, choice.device_class)]
    most = 0
    for each in drivers:
        on_nodes = table.on_nodes(each)
        most += max((amount for node, amount in on_nodes.items() if node), default=0) + on_nodes.get("", 0)
    return min(most, MOST_DEVICES * MICRO) or MOST_DEVICES * MICRO


def _add(found: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    for name, amount in more:
        found[name] = found.get(name, 0) + amount
