"""Spotpool: between minimum and maximum GPU machines kept alive in a cloud."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, field

from headroom.api.budgets import positive_amount
from headroom.api.power import GpuResourceName, NodeTaint
from headroom.api.resources import (
    AGE_COLUMN,
    IMMUTABLE,
    READY_COLUMN,
    ApiType,
    Column,
    Kind,
    Labels,
    Spec,
    object_name,
)
from headroom.api.schema import Rule, extra, quantity
from headroom.api.spot_pools_status import SpotpoolStatus
from headroom.api.switches import Endpoint, SecretKey, ValueName, Webhook

MOST_POOL_MACHINES: Final = 1000
FINALIZER: Final = "headroom.dev/spotpool"
DEMAND: Final = "Demand"

Name = Annotated[
    str,
    Meta(
        min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][-A-Za-z0-9_.]*$", extra=extra(hint="an id without spaces")
    ),
]
Region = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=63,
        pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$",
        extra=extra(hint="a region such as us-east-1: lower-case letters, digits and '-'"),
    ),
]
"""It becomes a part of host names, so nothing else may stand in it."""
Amount = Annotated[str | int, quantity("An amount of the resource.")]
Seconds = Annotated[int, Meta(ge=0, le=86400)]


def _no_plain_key(field: str) -> Rule:
    return Rule(
        cel=f"!has(self.{field}) || self.{field} == ''",
        message="keys do not belong in a resource: `headroom convert` moves them into a Secret (credentialsSecretRef)",
        field=field,
        holds=lambda it: not it.get(field),
    )


class SecretReference(ApiType, frozen=True, kw_only=True):
    """A Secret of the same namespace with the keys secretId and secretKey."""

    name: Annotated[str, object_name("The Secret's name.", hint="the name of a Secret")]


class UserDataReference(ApiType, frozen=True, kw_only=True):
    """One value of a Secret of the same namespace."""

    name: Annotated[str, object_name("The Secret's name.", hint="the name of a Secret")]
    key: ValueName = "userData"


class NodeTemplate(ApiType, frozen=True, kw_only=True):
    """What the node of a machine will be like: what pending pods are placed on, and what the node joins with."""

    gpu_count: Annotated[Annotated[int, Meta(ge=1, le=1024)] | None, Meta(description="GPUs in each machine.")] = None
    gpu_resource_name: Annotated[GpuResourceName, Meta(description="The resource by which pods ask for its GPUs.")] = (
        "nvidia.com/gpu"
    )
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


class SystemDisk(ApiType, frozen=True, kw_only=True):
    """The disk that a machine boots from."""

    type: Annotated[Name, Meta(description="The cloud's type of disk.")] = "CLOUD_BSSD"
    size_gib: Annotated[int, Meta(ge=1, le=65536, description="Its size in GiB.")] = field(default=100, name="sizeGiB")


class PoolGateway(ApiType, frozen=True, kw_only=True):
    """A gateway (Kong) that sends requests to the machines of the pool."""

    admin_url: Annotated[Endpoint, Meta(description="The address of its admin API.")]
    upstream: Annotated[Name, Meta(description="The upstream whose targets are the pool's running machines.")]
    port: Annotated[int, Meta(ge=1, le=65535, description="The port on which the machines serve.")] = 8080
    path: Annotated[
        str,
        Meta(
            max_length=512,
            pattern=r"^/[!-~]*$",
            description="The path on the machines.",
            extra=extra(hint="a path such as /api/chat"),
        ),
    ] = "/"
    route: Annotated[
        str,
        Meta(
            max_length=512,
            pattern=r"^(/[!-~]*)?$",
            description="The path that the gateway serves; if empty, its service and route do not change.",
            extra=extra(hint="a path such as /ollama-chat"),
        ),
    ] = ""
    token_secret_ref: Annotated[
        SecretKey | None,
        Meta(
            description="A token for the admin API; its Secret, of the same namespace, must name this pool and the host."
        ),
    ] = None


def _one_of(single: str, several: str) -> Rule:
    return Rule(
        cel=f"has(self.{single}) != (has(self.{several}) && self.{several}.size() > 0)",
        message=f"give exactly one of {single} and {several}",
        field=single,
        holds=lambda it: (single in it) != bool(it.get(several)),
    )


def _demand_is_served(it: dict[str, Any]) -> bool:
    return it.get("desired") != DEMAND or ("gpuCount" in it.get("template", {}) and it["join"])


class SpotpoolSpec(Spec, frozen=True, kw_only=True):
    """How many machines of which type, and where."""

    provider: Annotated[
        Literal["tencent", "aws", "webhook"],
        Meta(
            description="The cloud: Tencent Cloud, AWS, or a webhook at endpoint.",
            extra=extra(IMMUTABLE),
        ),
    ] = "tencent"
    region: Annotated[Region, Meta(description="The cloud's region.", extra=extra(IMMUTABLE))]
    """Neither may change, nor `endpoint`: nobody would look for the machines where they are, and a token says nothing elsewhere."""
    availability_zone: Annotated[Name | None, Meta(description="The zone inside the region.")] = None
    zones: Annotated[
        tuple[Name, ...], Meta(max_length=16, description="Zones to launch in, instead of availabilityZone.")
    ] = ()
    instance_type: Annotated[Name | None, Meta(description="The machine type, for example GN7.2XLARGE32.")] = None
    instance_types: Annotated[
        tuple[Name, ...], Meta(max_length=16, description="Machine types to launch, instead of instanceType.")
    ] = ()
    allocation: Annotated[
        Literal["Ordered", "LowestPrice"],
        Meta(
            description="Which type and zone is tried first. Ordered: as they are listed, each type in all zones before the next. "
            "LowestPrice: the cheapest offer."
        ),
    ] = "Ordered"
    minimum: Annotated[int, Meta(ge=0, le=MOST_POOL_MACHINES, description="The fewest machines that the pool has.")] = 0
    maximum: Annotated[int, Meta(ge=0, le=MOST_POOL_MACHINES, description="The most machines that the pool has.")]
    desired: Annotated[
        Annotated[int, Meta(ge=0, le=MOST_POOL_MACHINES)]
        | Annotated[str, Meta(max_length=6, pattern=r"^Demand$")]
        | None,
        Meta(
            description="How many machines are kept between minimum and maximum: a number, or Demand for what pending pods need. Not "
            "given: machines are launched only below minimum and ended only above maximum.",
            extra=extra(hint="Demand or a whole number", of="int-or-string"),
        ),
    ] = None
    max_surge: Annotated[
        int,
        Meta(ge=0, le=100, description="Machines beyond maximum while one that is reclaimed or drained is replaced."),
    ] = 1
    max_price_per_hour: Annotated[
        str | int | None,
        positive_amount("Dollars an hour that a machine may cost; one without a known price is not bought.", 1_000_000),
    ] = None
    max_purchases_per_hour: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        Meta(description="Machines bought in an hour at most; if absent, twice the maximum, but at least 10."),
    ] = None
    order: Annotated[
        int, Meta(ge=-1000, le=1000, description="Pools provide machines in this order, then by name.")
    ] = 100
    join: Annotated[bool, Meta(description="False: the machines do not join this cluster.")] = True
    join_timeout_seconds: Annotated[
        int, Meta(ge=60, le=86400, description="A machine whose node is not ready by then is ended.")
    ] = 900
    idle_seconds: Annotated[
        Seconds, Meta(description="With desired: Demand, idle time before a machine above minimum is ended.")
    ] = 600
    drain_seconds: Annotated[
        Seconds, Meta(description="How long pods have to leave a machine before it is ended anyway.")
    ] = 300
    deletion_policy: Annotated[
        Literal["Terminate", "Retain"],
        Meta(description="What happens to the machines when the Spotpool is deleted: they are ended, or kept."),
    ] = "Terminate"
    template: Annotated[NodeTemplate, Meta(description="What the node of a machine will be like.")] = NodeTemplate()
    subnet_id: Annotated[Name | None, Meta(description="The subnet; DEFAULT for the region's own.")] = None
    subnet_ids: Annotated[
        dict[str, Name], Meta(max_length=16, description="The subnet of each zone, for zones other than subnetId's.")
    ] = {}
    vpc_id: Annotated[Name | None, Meta(description="The private network; DEFAULT for the region's own.")] = None
    security_group_ids: Annotated[tuple[Name, ...], Meta(max_length=16, description="Security groups.")] = ()
    image_id: Annotated[Name | None, Meta(description="The machine image.")] = None
    instance_charge_type: Annotated[
        Literal["SPOTPAID", "POSTPAID_BY_HOUR", "PREPAID", "CDHPAID", "CDCPAID"],
        Meta(description="How the machines are paid for: SPOTPAID, or POSTPAID_BY_HOUR for on-demand."),
    ] = "SPOTPAID"
    system_disk: Annotated[SystemDisk, Meta(description="The disk that a machine boots from.")] = SystemDisk()
    public_ip: Annotated[bool, Meta(description="True: the machines get public addresses.")] = False
    key_ids: Annotated[tuple[Name, ...], Meta(max_length=16, description="The cloud's SSH keys for the machines.")] = ()
    user_data_secret_ref: Annotated[
        UserDataReference | None,
        Meta(description="Where the user data of the machines is, in the pool's namespace."),
    ] = None
    credentials_secret_ref: Annotated[
        SecretReference | None, Meta(description="The Secret with the cloud's keys, in the pool's namespace.")
    ] = None
    secret_id: Annotated[str, Meta(max_length=256, description="Refused: use credentialsSecretRef.")] = ""
    secret_key: Annotated[str, Meta(max_length=256, description="Refused: use credentialsSecretRef.")] = ""
    endpoint: Annotated[
        Endpoint | None,
        Meta(description="The address that launches and ends machines, for provider webhook.", extra=extra(IMMUTABLE)),
    ] = None
    webhook: Annotated[
        Webhook,
        Meta(description="How endpoint is called; its Secrets are in the pool's namespace, and body is not used."),
    ] = Webhook()
    gateway: Annotated[PoolGateway | None, Meta(description="A gateway in front of the machines.")] = None
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.minimum <= self.maximum",
            message="must be at least minimum",
            field="maximum",
            numbers=("minimum", "maximum"),
            holds=lambda it: bool(it["minimum"] <= it["maximum"]),
        ),
        _one_of("instanceType", "instanceTypes"),
        Rule(
            cel="!has(self.availabilityZone) || !has(self.zones) || self.zones.size() == 0",
            message="give at most one of availabilityZone and zones",
            field="zones",
            holds=lambda it: "availabilityZone" not in it or not it.get("zones"),
        ),
        Rule(
            cel="self.instanceChargeType in ['SPOTPAID', 'POSTPAID_BY_HOUR']",
            message="must be SPOTPAID or POSTPAID_BY_HOUR: the others are paid in advance or need a host of their own, so ending a "
            "machine does not end its cost",
            field="instanceChargeType",
            holds=lambda it: it["instanceChargeType"] in ("SPOTPAID", "POSTPAID_BY_HOUR"),
        ),
        Rule(
            cel="!has(self.desired) || string(self.desired) != 'Demand' || (has(self.template.gpuCount) && self.join)",
            message="needs template.gpuCount and join for Demand, to know which pods fit on the node",
            field="desired",
            numbers=("template.gpuCount",),
            holds=_demand_is_served,
        ),
        Rule(
            cel="has(self.endpoint) == (self.provider == 'webhook')",
            message="must be set for provider webhook, and only for it",
            field="endpoint",
            holds=lambda it: ("endpoint" in it) == (it["provider"] == "webhook"),
        ),
        _no_plain_key("secretId"),
        _no_plain_key("secretKey"),
    )

    @property
    def types(self) -> tuple[str, ...]:
        """The machine types, the first one first."""
        return self.instance_types or ((self.instance_type,) if self.instance_type else ())

    @property
    def all_zones(self) -> tuple[str, ...]:
        """The zones, the first one first; empty text where the cloud chooses."""
        return self.zones or (self.availability_zone or "",)


class Spotpool:
    """The kind as a whole."""

    kind: ClassVar[Kind] = Kind(
        name="Spotpool",
        plural="spotpools",
        short_names=("sp",),
        namespaced=True,
        spec=SpotpoolSpec,
        status=SpotpoolStatus,
        columns=(
            Column("Type", ".spec.instanceType"),
            Column("Region", ".spec.region"),
            Column("Min", ".spec.minimum", "integer"),
            Column("Max", ".spec.maximum", "integer"),
            Column("Size", ".status.size", "integer"),
            Column("Provider", ".spec.provider", wide=True),
            READY_COLUMN,
            AGE_COLUMN,
        ),
    )
