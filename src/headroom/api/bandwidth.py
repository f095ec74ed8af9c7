"""Bandwidth: what a node's network card and virtual switch can carry, and who has asked for it. One object per node."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta

from headroom.api.resources import AGE_COLUMN, GROUP, READY_COLUMN, ApiType, Column, Kind, Pacing, Spec, Status
from headroom.api.schema import Rule, extra

Mbps = Annotated[int, Meta(ge=0, le=10**9)]
State = Literal["None", "Creating", "Created", "Error", "Deleting", "Deleted"]
Text = Annotated[str, Meta(max_length=253)]
EGRESS_MBPS: Final = f"{GROUP}/egress-mbps"
INGRESS_MBPS: Final = f"{GROUP}/ingress-mbps"
LOCAL_EGRESS_MBPS: Final = f"{GROUP}/local-egress-mbps"
LOCAL_INGRESS_MBPS: Final = f"{GROUP}/local-ingress-mbps"
"""Extended resources of nodes where kube-scheduler itself counts bandwidth."""
MARKER: Final = f"{GROUP}/bandwidth"
"""An extended resource of pods of which kube-scheduler asks the extender; it is on no node, and ignored by kube-scheduler."""
TRAFFIC: Final = f"{GROUP}/traffic"
SIBLINGS: Final = "siblings"
"""The value of the annotation `headroom.dev/traffic` of pods that talk only to their siblings on the same node."""
NETWORK_BANDWIDTH: Final = f"{GROUP}/network-bandwidth"
LOCAL_BANDWIDTH: Final = f"{GROUP}/local-bandwidth"
"""Annotations of nodes: what their links carry, `UP/DOWN` or one value for both, such as 25G."""
NODE_UID: Final = f"{GROUP}/node-uid"
"""An annotation of a Bandwidth that Headroom made: for which node."""
MOST_LISTED: Final = 100
NodeName = Annotated[str, Meta(min_length=1, max_length=253)]


class RateQuantities(ApiType, frozen=True, kw_only=True, gc=False):
    """Both directions of one link."""

    ul_mbps: Annotated[Mbps, Meta(description="Out of the pod or node, in Mbit/s.")] = 0
    dl_mbps: Annotated[Mbps, Meta(description="Into the pod or node, in Mbit/s.")] = 0


class LinkQuantities(ApiType, frozen=True, kw_only=True, gc=False):
    """The virtual switch inside the node and the card to the outside."""

    local: Annotated[RateQuantities, Meta(description="The virtual switch inside the node.")] = RateQuantities()
    network: Annotated[RateQuantities, Meta(description="The network card, to and from other nodes.")] = (
        RateQuantities()
    )


class RatesUsed(ApiType, frozen=True, kw_only=True, gc=False):
    """Both directions of one link, summed up over pods that may ask for anything."""

    ul_mbps: Annotated[int, Meta(ge=0, description="Out of the node, in Mbit/s.")] = 0
    dl_mbps: Annotated[int, Meta(ge=0, description="Into the node, in Mbit/s.")] = 0


class LinksUsed(ApiType, frozen=True, kw_only=True, gc=False):
    """What is reserved of the virtual switch and of the card."""

    local: Annotated[RatesUsed, Meta(description="The virtual switch inside the node.")] = RatesUsed()
    network: Annotated[RatesUsed, Meta(description="The network card, to and from other nodes.")] = RatesUsed()


class RatesLeft(ApiType, frozen=True, kw_only=True, gc=False):
    """Both directions of one link, below 0 where more was given than there is."""

    ul_mbps: Annotated[int, Meta(description="Out of the node, in Mbit/s.")] = 0
    dl_mbps: Annotated[int, Meta(description="Into the node, in Mbit/s.")] = 0


class LinksLeft(ApiType, frozen=True, kw_only=True, gc=False):
    """What is left of the virtual switch and of the card."""

    local: Annotated[RatesLeft, Meta(description="The virtual switch inside the node.")] = RatesLeft()
    network: Annotated[RatesLeft, Meta(description="The network card, to and from other nodes.")] = RatesLeft()


class BandwidthRequest(ApiType, frozen=True, kw_only=True):
    """What one pod asked for."""

    pod_uid: Annotated[str, Meta(min_length=1, max_length=128, description="The pod's uid.")]
    pod_name: Annotated[Text, Meta(description="The pod's name.")] = ""
    namespace: Annotated[Text, Meta(description="The pod's namespace.")] = ""
    link_local: Annotated[
        bool, Meta(description="All its siblings are on this node, so the network card is not used.")
    ] = False
    bandwidth: Annotated[RateQuantities, Meta(description="What the pod requested.")] = RateQuantities()


Requests = Annotated[tuple[BandwidthRequest, ...], Meta(max_length=1024, extra=extra(map_key="podUid"))]


class BandwidthSpec(Spec, frozen=True, kw_only=True):
    """The capacity of one node's links."""

    node: Annotated[
        NodeName | None, Meta(description="The node; optional, since the object has the name of its node.")
    ] = None
    capacity: Annotated[LinkQuantities, Meta(description="What the node's links can carry; 0 means the default.")]
    requests: Annotated[Requests, Meta(description="Requests of pods: accepted for compatibility, and ignored.")] = ()
    reservations: Annotated[
        Requests, Meta(description="Another name for requests: accepted for compatibility, and ignored.")
    ] = ()
    status: Annotated[State | None, Meta(description="Accepted for compatibility; without effect.")] = None


class Reservation(ApiType, frozen=True, kw_only=True, gc=False):
    """What one pod holds."""

    pod_uid: Annotated[str, Meta(description="The pod's uid.")]
    pod_name: Annotated[str, Meta(description="The pod's name.")] = ""
    namespace: Annotated[str, Meta(description="The pod's namespace.")] = ""
    ip: Annotated[str, Meta(description="Empty; kept for compatibility.")] = ""
    deployment_type: Annotated[str, Meta(description="The kind of the workload that the pod belongs to.")] = ""
    deployment_name: Annotated[str, Meta(description="The name of that workload.")] = ""
    deployment_uid: Annotated[str, Meta(description="The uid of that workload; empty for a Deployment.")] = ""
    bandwidth: Annotated[LinkQuantities, Meta(description="What is reserved for the pod on each link.")] = (
        LinkQuantities()
    )
    link_local: Annotated[
        bool,
        Meta(
            description="The network card is not used: all its siblings are on this node, or it requests only the virtual switch."
        ),
    ] = False
    siblings: Annotated[
        bool, Meta(description="It was bound as a pod with traffic between siblings on its node only.")
    ] = False
    up_bits: Annotated[
        int,
        Meta(description="Bits per second out of the pod, as requested when it was bound; later edits have no effect."),
    ] = 0
    down_bits: Annotated[int, Meta(description="The same into the pod.")] = 0
    edited: Annotated[bool, Meta(description="Its request was edited after it was bound, without effect.")] = False
    malformed: Annotated[bool, Meta(description="A part of its request is unreadable and counts as the default.")] = (
        False
    )


class BandwidthStatus(Status, frozen=True, kw_only=True):
    """What is used and what is left."""

    status: Annotated[State, Meta(description="State of the accounting for this node.")] = "None"
    error_reason: Annotated[str, Meta(description="Why the state is Error.")] = ""
    capacity: Annotated[LinkQuantities | None, Meta(description="What the links can carry, defaults included.")] = None
    used: Annotated[LinksUsed | None, Meta(description="What is reserved for all pods of the node.")] = None
    remaining: Annotated[
        LinksLeft | None, Meta(description="Capacity less what is reserved; below 0 where the node is overcommitted.")
    ] = None
    reservations: Annotated[
        tuple[Reservation, ...],
        Meta(
            description="What is reserved for each pod: the 100 that were edited or have the most.",
            max_length=MOST_LISTED,
            extra=extra(map_key="podUid"),
        ),
    ] = ()
    pods: Annotated[int, Meta(description="How many pods have a reservation, listed or not.")] = 0
    host_network_pods: Annotated[
        int, Meta(description="Pods on the host network that request bandwidth: nothing is reserved for them.")
    ] = 0
    edited_pods: Annotated[int, Meta(description="Pods that were edited after they were bound, without effect.")] = 0
    malformed_pods: Annotated[int, Meta(description="Pods with an unreadable request; it counts as the default.")] = 0
    network_from: Annotated[
        str,
        Meta(
            description="Where the capacity of the network card comes from: Object, Annotation, Offer, InstanceType or Settings."
        ),
    ] = ""
    local_from: Annotated[str, Meta(description="Where the capacity of the virtual switch comes from.")] = ""
    node_uid: Annotated[str, Meta(description="The uid of the node.")] = ""
    read_by: Annotated[str, Meta(description="A digest of the settings by which the reservations were read.")] = ""
    updated_at: Annotated[str, Meta(description="When these numbers last changed.")] = ""


NAME_IS_NODE: Final = Rule(
    cel="!has(self.spec.node) || self.spec.node == self.metadata.name",
    message="must be the object's name: each node has one Bandwidth of the same name",
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
        pacing=Pacing(each_seconds=30.0, per_second=50.0),
        columns=(
            Column("UL", ".status.capacity.network.ulMbps", "integer"),
            Column("DL", ".status.capacity.network.dlMbps", "integer"),
            Column("uUL", ".status.used.network.ulMbps", "integer"),
            Column("uDL", ".status.used.network.dlMbps", "integer"),
            Column("LUL", ".status.capacity.local.ulMbps", "integer", wide=True),
            Column("LDL", ".status.capacity.local.dlMbps", "integer", wide=True),
            Column("uLUL", ".status.used.local.ulMbps", "integer", wide=True),
            Column("uLDL", ".status.used.local.dlMbps", "integer", wide=True),
            Column("Pods", ".status.pods", "integer"),
            Column("State", ".status.status"),
            Column("Overcommitted", ".status.conditions[?(@.type=='Overcommitted')].status"),
            READY_COLUMN,
            AGE_COLUMN,
        ),
    )
