"""PowerPool: GPU machines that are switched on for pending pods and off when idle."""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from headroom.api.resources import AGE_COLUMN, READY_COLUMN, ApiType, Column, Kind, Spec, Status, object_name
from headroom.api.schema import Rule, extra

Endpoint = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2048,
        pattern=(r"^https?://([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?][!-~]*)?$"),
        extra=extra(
            hint="an http or https address without user name or spaces, such as http://power-api/worker-1/start"
        ),
    ),
]


class Machine(ApiType, frozen=True, kw_only=True):
    """One machine and how it is switched."""

    name: Annotated[
        str,
        object_name(
            "The name of the node that the machine becomes.",
            hint="a node name: lower-case letters, digits, '-' and '.'",
        ),
    ]
    gpu_count: Annotated[int, Meta(ge=1, le=1024, description="GPUs in the machine.")]
    scale_up_endpoint: Annotated[Endpoint, Meta(description="Called with POST to switch the machine on.")]
    scale_down_endpoint: Annotated[Endpoint, Meta(description="Called with POST to switch the machine off.")]


class PowerPolicy(ApiType, frozen=True, kw_only=True):
    """When machines may change state."""

    idle_seconds: Annotated[int, Meta(ge=0, le=7 * 86400, description="Idle time before a machine sleeps.")] = 600
    boot_timeout_seconds: Annotated[int, Meta(ge=1, le=86400, description="How long a boot may take.")] = 900
    min_on: Annotated[int, Meta(ge=0, le=10000, description="Machines that always stay on.")] = 0


class PowerPoolSpec(Spec, frozen=True, kw_only=True):
    """The machines of the pool and when they may change state."""

    machines: Annotated[
        tuple[Machine, ...],
        Meta(
            min_length=1,
            max_length=512,
            description="The machines, each with the calls that switch it on and off.",
            extra=extra(map_key="name"),
        ),
    ]
    policy: Annotated[PowerPolicy, Meta(description="When machines may change state.")] = PowerPolicy()
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.policy.minOn <= self.machines.size()",
            message="must be at most the number of machines",
            field="policy.minOn",
            numbers=("policy.minOn",),
            holds=lambda it: bool(it["policy"]["minOn"] <= len(it["machines"])),
        ),
    )


class MachineStatus(ApiType, frozen=True, kw_only=True):
    """What one machine is doing."""

    name: Annotated[str, Meta(description="The machine's name.")]
    state: Annotated[str, Meta(description="What the machine is doing.")] = "Unknown"
    since: Annotated[str, Meta(description="Since when.")] = ""


class PowerPoolStatus(Status, frozen=True, kw_only=True):
    """The machines' states."""

    machines: Annotated[
        tuple[MachineStatus, ...], Meta(description="What each machine is doing.", extra=extra(map_key="name"))
    ] = ()


class PowerPool:
    """The kind as a whole."""

    kind: ClassVar[Kind] = Kind(
        name="PowerPool",
        plural="powerpools",
        short_names=("pp",),
        namespaced=False,
        spec=PowerPoolSpec,
        status=PowerPoolStatus,
        columns=(
            Column("Idle", ".spec.policy.idleSeconds", "integer"),
            Column("MinOn", ".spec.policy.minOn", "integer"),
            READY_COLUMN,
            AGE_COLUMN,
        ),
    )
