"""Spotpool: between minimum and maximum GPU machines kept alive in a cloud."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from headroom.api.resources import AGE_COLUMN, READY_COLUMN, ApiType, Column, Kind, Spec, Status, object_name
from headroom.api.schema import Rule, extra

Name = Annotated[
    str,
    Meta(
        min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][-A-Za-z0-9_.]*$", extra=extra(hint="an id without spaces")
    ),
]


def _no_plain_key(field: str) -> Rule:
    return Rule(
        cel=f"!has(self.{field}) || self.{field} == ''",
        message="a key does not belong into a resource: `headroom convert` moves it into a Secret (credentialsSecretRef)",
        field=field,
        holds=lambda it: not it.get(field),
    )


class SecretReference(ApiType, frozen=True, kw_only=True):
    """A Secret of the same namespace with the keys secretId and secretKey."""

    name: Annotated[str, object_name("The Secret's name.", hint="the name of a Secret")]


class SpotpoolSpec(Spec, frozen=True, kw_only=True):
    """How many machines of which type, and where."""

    region: Annotated[Name, Meta(description="The cloud's region.")]
    availability_zone: Annotated[Name | None, Meta(description="The zone inside the region.")] = None
    instance_type: Annotated[Name, Meta(description="The machine type, for example GN7.2XLARGE32.")]
    minimum: Annotated[int, Meta(ge=0, le=1000, description="Machines that always exist.")] = 0
    maximum: Annotated[int, Meta(ge=0, le=1000, description="Machines that never become more.")]
    subnet_id: Annotated[Name | None, Meta(description="The subnet; DEFAULT for the region's own.")] = None
    vpc_id: Annotated[Name | None, Meta(description="The private network; DEFAULT for the region's own.")] = None
    security_group_ids: Annotated[tuple[Name, ...], Meta(max_length=16, description="Security groups.")] = ()
    image_id: Annotated[Name | None, Meta(description="The machine image.")] = None
    instance_charge_type: Annotated[
        Literal["SPOTPAID", "POSTPAID_BY_HOUR", "PREPAID", "CDHPAID", "CDCPAID"],
        Meta(description="How the machines are paid for."),
    ] = "SPOTPAID"
    credentials_secret_ref: Annotated[
        SecretReference | None, Meta(description="The Secret with the cloud's keys, in the pool's namespace.")
    ] = None
    secret_id: Annotated[str, Meta(max_length=256, description="Refused: use credentialsSecretRef.")] = ""
    secret_key: Annotated[str, Meta(max_length=256, description="Refused: use credentialsSecretRef.")] = ""
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="self.minimum <= self.maximum",
            message="must be at least minimum",
            field="maximum",
            numbers=("minimum", "maximum"),
            holds=lambda it: bool(it["minimum"] <= it["maximum"]),
        ),
        _no_plain_key("secretId"),
        _no_plain_key("secretKey"),
    )


class PoolInstance(ApiType, frozen=True, kw_only=True):
    """One machine of the pool."""

    instance_id: Annotated[str, Meta(description="The cloud's id of the machine.")]
    public_ip: Annotated[str, Meta(description="Its public address; empty while it has none.")] = ""


class SpotpoolStatus(Status, frozen=True, kw_only=True):
    """The machines of the pool."""

    size: Annotated[int | None, Meta(description="Machines that exist now.")] = None
    instances: Annotated[
        tuple[PoolInstance, ...], Meta(description="The machines that exist now.", extra=extra(map_key="instanceId"))
    ] = ()


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
            READY_COLUMN,
            AGE_COLUMN,
        ),
    )
