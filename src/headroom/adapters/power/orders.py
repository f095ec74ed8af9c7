"""What is asked of one machine, and with what it is asked."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, Literal, Protocol

from msgspec import Struct

from headroom.adapters.egress import Guard
from headroom.adapters.usable_by import Secret, Use, check_usable
from headroom.api.kinds import AnyResource
from headroom.api.power import MachineSpec, PowerPoolSpec
from headroom.api.power_status import MachineStatus, PowerPoolStatus
from headroom.model.errors import Refused

Command = Literal["Wake", "Sleep"]
State = Literal["On", "Off", "PoweringOff", "Unknown"]
VERBS: Final = {"Wake": "wake", "Sleep": "sleep"}


class PowerSecrets(Protocol):
    """Whoever reads Secrets of the operator's own namespace."""

    async def read(self, name: str) -> Secret:
        """The values of a Secret, and who may use it. Raises `Refused` or `Unavailable`."""
        ...


class Means(Struct, frozen=True):
    """With what machines are asked."""

    guard: Guard
    secrets: PowerSecrets
    allow_insecure: bool = False
    """A pool may choose whom to believe even beside a Secret."""


class SwitchTarget(Struct, frozen=True, kw_only=True):
    """A machine, as its pool has it."""

    pool: AnyResource
    spec: PowerPoolSpec
    machine: MachineSpec


def order_of(pool: AnyResource, name: str) -> SwitchTarget:
    """A machine of a pool. Raises `Refused` if the pool does not have it."""
    spec = pool.spec
    if not isinstance(spec, PowerPoolSpec):
        raise Refused(f"PowerPool {pool.name} cannot be read")
    machine = next((each for each in spec.machines if each.name == name), None)
    if machine is None:
        raise Refused(f"PowerPool {pool.name} has no such machine")
    return SwitchTarget(pool=pool, spec=spec, machine=machine)


async def secret_for(means: Means, order: SwitchTarget, name: str, *, url: str, field: str) -> Secret:
    """A Secret that this pool may send to that address. Raises `Refused` if the Secret does not say so."""
    found = await means.secrets.read(name)
    check_usable(found, name, Use(kind=order.pool.kind, name=order.pool.name, url=url, field=field))
    return found


def status_of(pool: AnyResource, machine: str) -> MachineStatus | None:
    """What the pool's status says of a machine."""
    known = pool.status.machines if isinstance(pool.status, PowerPoolStatus) else ()
    return next((each for each in known if each.name == machine), None)


def answered(host: str, status: int) -> Refused:
    """The other side said no. Only its number is told: whatever else it says may be anything."""
    try:
        phrase = f" {HTTPStatus(status).phrase}"
    except ValueError:
        phrase = ""
    redirects = "; redirects are not followed" if 300 <= status < 400 else ""
    return Refused(f"{host} answered {status}{phrase}{redirects}")


def value_in(secret: Mapping[str, str], name: str, key: str) -> str:
    """One value of a Secret, fit for a header. Raises `Refused` without ever showing it."""
    found = secret.get(key)
    if found is None:
        raise Refused(f"Secret {name} has no key {key}")
    plain = found.strip()
    if not plain.isascii() or not plain.isprintable():
        raise Refused(f"key {key} of Secret {name} has characters that no header may have")
    return plain
