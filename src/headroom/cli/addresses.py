"""The addresses in pools, read as the operator's guard reads them: which can never be called, and what must be listed for the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from headroom.adapters.egress import EgressTarget
    from headroom.api.kinds import AnyResource
    from headroom.api.power import MachineSpec
    from headroom.api.schema import Problem
    from headroom.api.switches import WakeOnLan

MOST_LISTED: Final = 20
BROADCAST: Final = "255.255.255.255"
"""Where magic packets go unless another address is given: special, and still meant."""
_THIS_MACHINE: Final = "localhost"
_ITS_NUMBER: Final = "127.0.0.1"


class Called(NamedTuple):
    """One address of a pool."""

    field: str
    target: EgressTarget | None
    """Where it leads; None if the guard refuses it."""
    refused: str = ""
    """Why, as the end of a sentence that begins with the field."""


def called(pool: AnyResource) -> Iterator[Called]:
    """Every address of a valid pool; of other kinds none."""
    from headroom.api.power import PowerPoolSpec
    from headroom.api.spot_pools import SpotpoolSpec
    from headroom.cli import spot_addresses

    if isinstance(pool.spec, SpotpoolSpec):
        for field, address in spot_addresses.called(pool.spec):
            yield _read(field, address)
    if isinstance(pool.spec, PowerPoolSpec):
        for number, machine in enumerate(pool.spec.machines):
            yield from _of_machine(f"spec.machines[{number}]", machine)


def _of_machine(where: str, machine: MachineSpec) -> Iterator[Called]:
    addresses = {
        "scaleUpEndpoint": machine.scale_up_endpoint,
        "scaleDownEndpoint": machine.scale_down_endpoint,
        "statusEndpoint": machine.status_endpoint,
        "redfish.address": machine.redfish.address if machine.redfish else None,
        "wakeOnLan.address": machine.wake_on_lan.address if machine.wake_on_lan else None,
    }
    for name, address in addresses.items():
        if address is not None:
            packets = machine.wake_on_lan if name == "wakeOnLan.address" else None
            yield _read(f"{where}.{name}", address, packets)


def _read(field: str, address: str, packets: WakeOnLan | None = None) -> Called:
    from headroom.adapters.egress import datagram_to, target_of
    from headroom.model.errors import Refused

    try:
        target = datagram_to(packets.address, packets.port) if packets else target_of(address)
    except Refused as problem:
        return Called(field, None, str(problem).removeprefix("its address "))
    return Called(field, target)


def refused(pool: AnyResource) -> list[Problem]:
    """Addresses that can be read in more than one way, or in none: no list allows them."""
    from headroom.api.schema import Problem

    never = "the operator calls no such address, whatever --allow-egress lists"
    return [Problem(each.field, f"{each.refused}; {never}") for each in called(pool) if each.refused]


def dubious(pool: AnyResource) -> list[Problem]:
    """Addresses of numbers that are hardly meant, and that only an entry for that very number allows."""
    from headroom.api.schema import Problem

    judged = [(each.field, _doubt(each.target)) for each in called(pool) if each.target]
    return [Problem(field, says) for field, says in judged if says]


def _doubt(target: EgressTarget) -> str:
    """Why an address is hardly meant; empty for an ordinary one, and for names, which may stand for anything."""
    from headroom.adapters.egress import special

    if target.host == _THIS_MACHINE:
        return f"is the operator's own machine; if that is meant, write {_ITS_NUMBER}, and list that in --allow-egress"
    if target.number is None or target.host == BROADCAST:
        return ""
    # The smallest network says most.
    _, what = max(special(target.number), key=lambda each: each[0].prefixlen, default=(None, ""))
    return f"is {what}; only the entry {target.entry} itself in --allow-egress allows that" if what else ""


def entries(pools: Iterable[AnyResource]) -> list[str]:
    """What an administrator must list so that the operator can do what these pools ask for; nothing dubious, as people copy it."""
    targets = (each.target for pool in pools for each in called(pool) if each.target)
    return sorted({target.entry for target in targets if not _doubt(target)})


def hint(listed: list[str], most: int = MOST_LISTED) -> str:
    """A sentence about what must be listed."""
    more = len(listed) - most
    rest = f" and {more} more (-o json has them all; *.NAME and 10.0.7.0/24 stand for many)" if more > 0 else ""
    return f"the operator calls only addresses that it is allowed to: give it --allow-egress {','.join(listed[:most])}{rest}"


def secret_uses(pools: Iterable[AnyResource]) -> dict[str, list[str]]:
    """What each Secret must say of who uses it, so that the operator sends it where these pools want it; by its name."""
    from headroom.api.offers import LeftoverNodePoolSpec
    from headroom.api.spot_pools import SpotpoolSpec

    found: dict[str, set[str]] = {}
    for pool in pools:
        if isinstance(pool.spec, SpotpoolSpec | LeftoverNodePoolSpec):
            uses = _of_spot_pool(pool) if isinstance(pool.spec, SpotpoolSpec) else _of_offers(pool)
            for secret, use in uses:
                found.setdefault(secret, set()).add(use)
            continue
        for each in called(pool):
            if each.target:
                for secret in _sent_to(pool, each.field):
                    found.setdefault(secret, set()).add(f"{pool.kind}/{pool.name}@{each.target.entry}")
    return {name: sorted(found[name]) for name in sorted(found)}


def _of_offers(pool: AnyResource) -> Iterator[tuple[str, str]]:
    """The Secret of a LeftoverNodePool, which is of the operator's namespace, with what it must say."""
    from headroom.cli import spot_addresses

    ref = pool.spec.credentials_secret_ref
    target = _read("", spot_addresses.cloud_address("aws", pool.spec.region)).target
    if ref is not None and target is not None:
        yield ref.name, f"{pool.kind}/{pool.name}@{target.entry}"


def _of_spot_pool(pool: AnyResource) -> Iterator[tuple[str, str]]:
    """Its Secrets, which are of its own namespace, each with what it must say."""
    from headroom.cli import spot_addresses

    for secret, address in spot_addresses.sent(pool.spec):
        target = _read("", address).target
        if target is not None:
            yield f"{pool.namespace}/{secret}", f"{pool.kind}/{pool.namespace}/{pool.name}@{target.entry}"


def _sent_to(pool: AnyResource, field: str) -> set[str]:
    """The Secrets that are sent to the address in a field of a power pool."""
    machine, _, name = field.removeprefix("spec.machines[").partition("].")
    redfish = pool.spec.machines[int(machine)].redfish
    if name == "redfish.address":
        return {redfish.credentials_secret_ref.name} if redfish and redfish.credentials_secret_ref else set()
    if not name.endswith("Endpoint"):
        return set()
    webhook = pool.spec.webhook
    refs = [webhook.token_secret_ref, *(each.secret_key_ref for each in webhook.headers)]
    return {ref.name for ref in refs if ref}


def secrets_hint(uses: dict[str, list[str]]) -> str:
    """Sentences about what Secrets must say."""
    from headroom.api.marks import USABLE_BY

    said = "; ".join(f"Secret {name}: {USABLE_BY}: {_listed(needed)}" for name, needed in uses.items())
    return f"a Secret is sent only where its own annotation says so. {said}"


def _listed(needed: list[str]) -> str:
    more = len(needed) - MOST_LISTED
    return ",".join(needed[:MOST_LISTED]) + (f" and {more} more (-o json has them all)" if more > 0 else "")
