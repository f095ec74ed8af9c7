"""Bandwidth: what a node's network card and virtual switch can carry, and who has asked for it. One object per node."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from headroom.api.resources import AGE_COLUMN, READY_COLUMN, ApiType, Column, Kind, Spec, Status
from headroom.api.schema import Rule, extra

Mbps = Annotated[int, Meta(ge=0, le=10**9)]
State = Literal["None", "Creating", "Created", "Error", "Deleting", "Deleted"]
Text = Annotated[str, Meta(max_length=253)]
NodeName = Annotated[str, Meta(min_length=1, max_length=253)]


class Rates(ApiType, frozen=True, kw_only=True):
    """Both directions of one link."""

    ul_mbps: Annotated[Mbps, Meta(description="Out of the pod or node, in Mbit/s.")] = 0
    dl_mbps: Annotated[Mbps, Meta(description="Into the pod or node, in Mbit/s.")] = 0


class Links(ApiType, frozen=True, kw_only=True):
    """The virtual switch inside the node and the card to the outside."""

    local: Annotated[Rates, Meta(description="The virtual switch inside the node.")] = Rates()
    network: Annotated[Rates, Meta(description="The network card, to and from other nodes.")] = Rates()


class RatesLeft(ApiType, frozen=True, kw_only=True):
    """Both directions of one link, below 0 where more was given than there is."""

    ul_mbps: Annotated[int, Meta(description="Out of the node, in Mbit/s.")] = 0
    dl_mbps: Annotated[int, Meta(description="Into the node, in Mbit/s.")] = 0


class LinksLeft(ApiType, frozen=True, kw_only=True):
    """What is left of the virtual switch and of the card."""

    local: Annotated[RatesLeft, Meta(description="The virtual switch inside the node.")] = RatesLeft()
    network: Annotated[RatesLeft, Meta(description="The network card, to and from other nodes.")] = RatesLeft()


class BandwidthRequest(ApiType, frozen=True, kw_only=True):
    """What one pod asked for."""

    pod_uid: Annotated[str, Meta(min_length=1, max_length=128, description="The pod's uid.")]
    pod_name: Annotated[Text, Meta(description="The pod's name.")] = ""
    namespace: Annotated[Text, Meta(description="The pod's namespace.")] = ""
    link_local: Annotated[bool, Meta(description="All its siblings are on this node, so the card is not used.")] = False
    bandwidth: Annotated[Rates, Meta(description="What the pod asked for.")] = Rates()


Requests = Annotated[tuple[BandwidthRequest, ...], Meta(max_length=1024, extra=extra(map_key="podUid"))]


class BandwidthSpec(Spec, frozen=True, kw_only=True):
    """The capacity of one node's links."""

    node: Annotated[
        NodeName | None, Meta(description="The node; the object's own name says the same and is enough.")
    ] = None
    capacity: Annotated[Links, Meta(description="What the node's links can carry; 0 stands for the default.")]
    requests: Annotated[Requests, Meta(description="Requests of pods, kept for manifests that have them.")] = ()
    reservations: Annotated[Requests, Meta(description="Another name for requests.")] = ()
    status: Annotated[State | None, Meta(description="Kept for manifests that have it; without effect.")] = None


class Reservation(ApiType, frozen=True, kw_only=True):
    """What one pod holds."""

    pod_uid: Annotated[str, Meta(description="The pod's uid.")]
    pod_name: Annotated[str, Meta(description="The pod's name.")] = ""
    namespace: Annotated[str, Meta(description="The pod's namespace.")] = ""
    ip: Annotated[str, Meta(description="The pod's address.")] = ""
    deployment_type: Annotated[str, Meta(description="The kind of the workload that the pod belongs to.")] = ""
    deployment_name: Annotated[str, Meta(description="The name of that workload.")] = ""
    deployment_uid: Annotated[str, Meta(description="The uid of that workload.")] = ""
    bandwidth: Annotated[Links, Meta(description="What the pod holds of each link.")] = Links()


class BandwidthStatus(Status, frozen=True, kw_only=True):
    """What is used and what is left."""

    status: Annotated[State, Meta(description="State of the accounting for this node.")] = "None"
    error_reason: Annotated[str, Meta(description="Why the state is Error.")] = ""
    capacity: Annotated[Links | None, Meta(description="What the links can carry, defaults included.")] = None
    used: Annotated[Links | None, Meta(description="What the pods of the node hold together.")] = None
    remaining: Annotated[
        LinksLeft | None, Meta(description="Capacity less what is used; below 0 where too much was given.")
    ] = None
    reservations: Annotated[
        tuple[Reservation, ...], Meta(description="What each pod holds.", extra=extra(map_key="podUid"))
    ] = ()
    updated_at: Annotated[str, Meta(description="When these numbers were last right.")] = ""


NAME_IS_NODE: Final = Rule(
    cel="!has(self.spec.node) || self.spec.node == self.metadata.name",
    message="must be the same as the object's name: there is one Bandwidth per node, named like it",
    field="spec.node",
    holds=lambda it: "node" not in it["spec"] or it["spec"]["node"] == it["metadata"].get("name"),
)


class Bandwidth:
    """The kind as a whole."""

    kind: ClassVar[Kind] = Kind(
        name="Bandwidth",
        plural="bandwidths",
        short_names=("bw",),
        namespaced=False,
        spec=BandwidthSpec,
        status=BandwidthStatus,
        rules=(NAME_IS_NODE,),
        columns=(
            Column("UL", ".spec.capacity.network.ulMbps", "integer"),
            Column("DL", ".spec.capacity.network.dlMbps", "integer"),
            Column("uUL", ".status.used.network.ulMbps", "integer"),
            Column("uDL", ".status.used.network.dlMbps", "integer"),
            Column("LUL", ".spec.capacity.local.ulMbps", "integer", wide=True),
            Column("LDL", ".spec.capacity.local.dlMbps", "integer", wide=True),
            Column("uLUL", ".status.used.local.ulMbps", "integer", wide=True),
            Column("uLDL", ".status.used.local.dlMbps", "integer", wide=True),
            Column("State", ".status.status"),
            READY_COLUMN,
            AGE_COLUMN,
        ),
    )
