"""PowerPool: GPU machines that are switched on for pending pods and off when idle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Final, Literal

from msgspec import Meta

from headroom.api.power_status import PowerPoolStatus
from headroom.api.resources import (
    AGE_COLUMN,
    LONGEST_QUALIFIED_NAME,
    QUALIFIED_NAME,
    READY_COLUMN,
    ApiType,
    Column,
    Kind,
    LabelKey,
    Labels,
    LabelValue,
    Spec,
    object_name,
)
from headroom.api.schema import Rule, extra, quantity
from headroom.api.switches import Endpoint, Redfish, WakeOnLan, Webhook

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

MOST_MACHINES: Final = 512
DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_TIME: Final = r"^([01][0-9]|2[0-3]):[0-5][0-9]$"


def zone_of(name: str) -> ZoneInfo | None:
    """The time zone of that name; None if there is none."""
    from zoneinfo import ZoneInfo  # noqa: PLC0415  it brings much along, and only schedules need it

    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):  # what is not there, and what is no name at all
        return None


KNOWN_ZONE: Final = Rule(
    cel="timestamp('2026-01-01T00:00:00Z').getHours(self) >= 0",
    message="must be a known time zone, such as Europe/Berlin",
    holds=lambda name: zone_of(name) is not None,
)

MachineName = Annotated[
    str,
    object_name(
        "The name of the node that the machine becomes.", hint="a node name: lower-case letters, digits, '-' and '.'"
    ),
]
Watts = Annotated[int, Meta(ge=0, le=100_000)]
SchedulerName = Annotated[
    str, object_name("Its name, as pods request it.", hint="a name: lower-case letters, digits, '-' and '.'")
]
DeviceClassName = Annotated[
    str,
    object_name(
        "Its name, as claims request it.",
        hint="a device class such as gpu.nvidia.com: lower-case letters, digits, '-' and '.'",
    ),
]
Percent = Annotated[int, Meta(ge=0, le=100)]
Some = Annotated[int, Meta(ge=1, le=MOST_MACHINES)]
Amount = Annotated[str | int, quantity("An amount of the resource.")]


GpuResourceName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_QUALIFIED_NAME,
        pattern=QUALIFIED_NAME,
        extra=extra(hint="a resource name such as nvidia.com/gpu"),
    ),
]


class NodeTaint(ApiType, frozen=True, kw_only=True):
    """A taint that the node will have."""

    key: Annotated[LabelKey, Meta(description="The taint's key.")]
    value: Annotated[LabelValue, Meta(description="Its value.")] = ""
    effect: Annotated[Literal["NoSchedule", "PreferNoSchedule", "NoExecute"], Meta(description="What it does.")]


class Hardware(ApiType, frozen=True, kw_only=True):
    """What the node will be like. A node that is still known to the cluster speaks for itself."""

    resources: Annotated[
        dict[str, Amount],
        Meta(
            max_length=16,
            description="What the node will offer pods beside GPUs. CPU, memory, ephemeral storage and pods are unlimited "
            "unless given; every other resource is absent unless given.",
        ),
    ] = {}
    labels: Annotated[Labels, Meta(description="Labels that the node will have.")] = {}
    taints: Annotated[tuple[NodeTaint, ...], Meta(max_length=16, description="Taints that the node will have.")] = ()
    idle_watts: Annotated[
        Watts | None, Meta(description="The watts that the machine draws while it is on and idle.")
    ] = None
    busy_watts: Annotated[
        Watts | None, Meta(description="The watts that the machine draws while pods use its GPUs.")
    ] = None


class MachineSpec(Hardware, frozen=True, kw_only=True):
    """One machine and how it is switched."""

    name: MachineName
    gpu_count: Annotated[int, Meta(ge=1, le=1024, description="GPUs in the machine.")]
    scale_up_endpoint: Annotated[Endpoint | None, Meta(description="Called with POST to switch the machine on.")] = None
    scale_down_endpoint: Annotated[Endpoint | None, Meta(description="Called with POST to switch the machine off.")] = (
        None
    )
    status_endpoint: Annotated[
        Endpoint | None, Meta(description="Answers a GET with whether the machine is on or off.")
    ] = None
    redfish: Annotated[Redfish | None, Meta(description="The machine's BMC, which switches it on and off.")] = None
    wake_on_lan: Annotated[
        WakeOnLan | None, Meta(description="Wakes the machine; scaleDownEndpoint puts it to sleep.")
    ] = None
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="(has(self.scaleUpEndpoint) ? 1 : 0) + (has(self.redfish) ? 1 : 0) + (has(self.wakeOnLan) ? 1 : 0) == 1",
            message="must have exactly one way to wake it: scaleUpEndpoint, redfish or wakeOnLan",
            holds=lambda it: sum(key in it for key in ("scaleUpEndpoint", "redfish", "wakeOnLan")) == 1,
        ),
        Rule(
            cel="has(self.scaleDownEndpoint) != has(self.redfish)",
            message="must have exactly one way to put it to sleep: scaleDownEndpoint or redfish",
            holds=lambda it: ("scaleDownEndpoint" in it) != ("redfish" in it),
        ),
        Rule(
            cel="!(has(self.scaleUpEndpoint) && has(self.scaleDownEndpoint) && self.scaleUpEndpoint == self.scaleDownEndpoint)",
            message="must differ from scaleUpEndpoint",
            field="scaleDownEndpoint",
            holds=lambda it: "scaleUpEndpoint" not in it or it["scaleUpEndpoint"] != it.get("scaleDownEndpoint"),
        ),
    )


class KeepOn(ApiType, frozen=True, kw_only=True):
    """A time of the week in which machines are kept on, such as office hours."""

    days: Annotated[
        tuple[Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], ...],
        Meta(max_length=7, description="The days on which it begins; every day if empty."),
    ] = ()
    begin: Annotated[
        str,
        Meta(
            max_length=5,
            pattern=_TIME,
            description="When it begins.",
            extra=extra(hint="a time of the day in quotes, such as '08:00'"),
        ),
    ]
    end: Annotated[
        str,
        Meta(
            max_length=5,
            pattern=_TIME,
            description="When it ends; one before begin is on the next day.",
            extra=extra(hint="a time of the day in quotes, such as '18:30'"),
        ),
    ]
    time_zone: Annotated[
        str,
        Meta(
            max_length=64,
            pattern=r"^[A-Za-z][-A-Za-z0-9_+/]*$",
            description="The time zone of begin and end.",
            extra=extra(KNOWN_ZONE, hint="a time zone such as Europe/Berlin"),
        ),
    ] = "UTC"
    min_on: Annotated[Some | None, Meta(description="Machines that stay on; all of them if absent.")] = None


class PowerPolicy(ApiType, frozen=True, kw_only=True):
    """When machines may change state."""

    idle_seconds: Annotated[int, Meta(ge=0, le=7 * 86400, description="Idle time before a machine sleeps.")] = 600
    boot_timeout_seconds: Annotated[
        int, Meta(ge=1, le=86400, description="How long a boot, and a shutdown, may take.")
    ] = 900
    min_on: Annotated[int, Meta(ge=0, le=10000, description="Machines that always stay on.")] = 0
    min_on_seconds: Annotated[
        int, Meta(ge=0, le=7 * 86400, description="How long a machine stays on at least after it wakes.")
    ] = 0
    min_off_seconds: Annotated[
        int, Meta(ge=0, le=7 * 86400, description="How long a machine stays off at least after it goes to sleep.")
    ] = 60
    toggles_per_hour: Annotated[
        int, Meta(ge=1, le=120, description="How often one machine is switched in an hour at most.")
    ] = 6
    max_concurrent_wakes: Annotated[
        Some | None, Meta(description="Machines that boot at a time; any number if absent.")
    ] = None
    max_concurrent_sleeps: Annotated[
        Some | None,
        Meta(description="Machines that go to sleep at a time; a fifth, but at least 1, if absent."),
    ] = None
    protected_machines: Annotated[
        tuple[MachineName, ...], Meta(max_length=MOST_MACHINES, description="Machines that never sleep.")
    ] = ()
    keep_on: Annotated[
        tuple[KeepOn, ...], Meta(max_length=16, description="Times of the week in which machines are kept on.")
    ] = ()
    warm_percent: Annotated[
        Percent | None,
        Meta(
            description="Warm spares: of the machines beyond the peak of the last four idleSeconds, how many stay on, in percent, "
            "and at least one where five are left. If absent, 5 in pools of 5 or more machines, else 0. With 0, machines sleep as soon as "
            "idleSeconds allows."
        ),
    ] = None
    prefer: Annotated[
        Literal["FewestGPUs", "FewestWatts"], Meta(description="What to minimize when machines wake.")
    ] = "FewestGPUs"
    drain: Annotated[
        Literal["Never", "NonGpuPods"],
        Meta(
            description=(
                "Never: any pod except those of DaemonSets keeps a machine on. NonGpuPods: pods without GPUs that a "
                "controller would recreate are evicted, as their PodDisruptionBudgets allow."
            )
        ),
    ] = "Never"
    priority_floor: Annotated[
        int, Meta(ge=-(2**31), le=2**31 - 1, description="Pods of a lower priority wake no machine.")
    ] = -10
    schedulers: Annotated[
        tuple[SchedulerName, ...],
        Meta(
            max_length=16,
            description="Other schedulers that place pods in this cluster, by the name that pods have in schedulerName; needed only "
            "where none of their pods is left to tell.",
        ),
    ] = ()
    share_with_karpenter: Annotated[
        bool, Meta(description="True: machines wake also for pods that a Karpenter NodePool could serve.")
    ] = False
    wake_for_exhausted_budgets: Annotated[
        bool, Meta(description="True: machines wake also for pods whose budget is over quota.")
    ] = False


class PowerPoolSpec(Spec, frozen=True, kw_only=True):
    """The machines of the pool, how they are switched, and when they may change state."""

    machines: Annotated[
        tuple[MachineSpec, ...],
        Meta(
            min_length=1,
            max_length=MOST_MACHINES,
            description="The machines, each with the endpoints that switch it on and off.",
            extra=extra(map_key="name"),
        ),
    ]
    template: Annotated[
        Hardware, Meta(description="Settings that all machines share; a machine's own settings win.")
    ] = Hardware()
    webhook: Annotated[Webhook, Meta(description="How the endpoints are called.")] = Webhook()
    policy: Annotated[PowerPolicy, Meta(description="When machines may change state.")] = PowerPolicy()
    gpu_resource_name: Annotated[
        GpuResourceName, Meta(description="The resource by which pods ask for the GPUs of these machines.")
    ] = "nvidia.com/gpu"
    device_classes: Annotated[
        tuple[DeviceClassName, ...],
        Meta(
            max_length=16,
            description="Device classes by which pods claim the GPUs of these machines (DRA). Without one, no machine wakes for claims.",
        ),
    ] = ()
    order: Annotated[
        int, Meta(ge=-1000, le=1000, description="Pools provide machines in this order, then by name.")
    ] = 0
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.policy.minOn <= self.machines.size()",
            message="must be at most the number of machines",
            field="policy.minOn",
            numbers=("policy.minOn",),
            holds=lambda it: bool(it["policy"]["minOn"] <= len(it["machines"])),
        ),
    )


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
            Column("On", ".status.on", "integer"),
            Column("Off", ".status.off", "integer"),
            Column("Changing", ".status.changing", "integer"),
            Column("Failed", ".status.failed", "integer"),
            Column("Idle", ".spec.policy.idleSeconds", "integer", wide=True),
            Column("MinOn", ".spec.policy.minOn", "integer", wide=True),
            READY_COLUMN,
            AGE_COLUMN,
        ),
    )


def sleep_switch(spec: PowerPoolSpec, machine: MachineSpec) -> str:
    """What is called to send a machine to sleep, as one text; empty where the call itself names the machine."""
    if machine.scale_down_endpoint:
        return "" if "${machine}" in spec.webhook.body else machine.scale_down_endpoint.rstrip("/")
    redfish = machine.redfish
    return f"{redfish.address.rstrip('/')} {redfish.system}".strip() if redfish is not None else ""
