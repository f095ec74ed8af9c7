"""Everything Headroom can do to the world. If it is not here, it cannot happen.

Each action is one flat object on the wire, `{"type": "EvictPod", "pod": "lab/train-0", ...}`. A pod is written
`namespace/name`, any other object `Kind/namespace/name` or `Kind/name`. Every standing effect has its undo beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Any, ClassVar, Final, Literal

from msgspec import Struct, field

from headroom.api.bandwidth import BandwidthSpec
from headroom.api.bandwidth_config import BandwidthConfigSpec
from headroom.api.budget_hold import BudgetHoldSpec
from headroom.api.budget_index import IndexEntry
from headroom.model.sentences import Sentence

MOST_GRACE_SECONDS: Final = 3600  # nobody who is evicted takes longer to end, whatever the pod asks for


class Urgency(IntEnum):
    """What is written first when not everything can be."""

    ENFORCEMENT = 0
    JUDGEMENT = 1
    FACTS = 2
    NUMBERS = 3


class Action(Struct, frozen=True, kw_only=True, tag=True, tag_field="type", rename="camel"):
    """One effect as data, with all that it takes to carry it out. Its traits are attributes of its class."""

    moving: ClassVar[frozenset[str]] = frozenset()
    """Fields that change by themselves: they are left out wherever actions are compared."""
    target: ClassVar[str] = ""
    """The field that names what it is done to."""
    wording: ClassVar[Sentence | None] = None
    """How people are told; None for what they need not be told."""
    urgency: ClassVar[Urgency] = Urgency.ENFORCEMENT
    timeout_seconds: ClassVar[float] = 4.0
    """Less than the leader's margin: an effect that began under our lease ends under it."""
    at_once: ClassVar[int] = 1
    """How many of one decision are carried out side by side: more than one where they come in no order and none rests on another."""
    once: ClassVar[bool] = False
    """It stands in one decision only, is carried out although the next one does not ask for it, and two that differ in anything are two."""
    repeat_seconds: ClassVar[float | None] = None
    """How long what was done is not done again; None for as long as usual."""


SIDE_BY_SIDE: Final = 8  # of what there may be hundreds for one resource


class OnPod(Action, frozen=True, kw_only=True):
    """An effect on exactly this pod, never on another one of the same name."""

    target = "pod"
    pod: str
    uid: str


class OnBudget(Action, frozen=True, kw_only=True):
    """An effect for one budget, `namespace/name`."""

    target = "budget"
    budget: str


class OnNode(Action, frozen=True, kw_only=True, omit_defaults=True):
    """An effect on one node: on exactly the one with that uid, if one is given."""

    target = "node"
    node: str
    uid: str = ""


class OnOwner(Action, frozen=True, kw_only=True):
    """An effect on the owner of pods, for example kind Job, object `lab/train`."""

    target = "object"
    kind: str
    object: str
    uid: str = ""
    """Exactly this one, never another of the same name. Empty for a JobSet: its pods name their Job only."""


class ApplyBudgetHold(OnBudget, frozen=True, kw_only=True):
    """Let the API server gate new pods of the budget. Undo: DeleteBudgetHold."""

    moving = frozenset({"because"})
    wording = Sentence(80, "HoldBegins", "New pods are queued from now on", names_targets=False)
    repeat_seconds = 2.0  # it is in view a moment later: where it is not, somebody took it away
    spec: BudgetHoldSpec
    """Whose new pods wait."""
    because: str = ""
    """Why, as it is written onto them. The hours in it move."""


class DeleteBudgetHold(OnBudget, frozen=True, kw_only=True):
    """Stop gating new pods of the budget."""

    wording = Sentence(90, "HoldEnds", "New pods start as always", names_targets=False)


class ApplyBudgetIndex(OnBudget, frozen=True, kw_only=True):
    """Tell the API server's policies which budgets exist. `budget` is the first of them that they do not know as it is."""

    budgets: tuple[IndexEntry, ...]
    """All that the index says from now on."""


class ReleasePod(OnPod, frozen=True, kw_only=True):
    """Lift our gate. No undo: a gate can only be set at creation."""

    wording = Sentence(40, "Releasing", "Releases")


class PausePod(OnPod, frozen=True, kw_only=True):
    """Annotate the pod as paused. Undo: ResumePod."""

    wording = Sentence(60, "Pausing", "Marks as paused")
    at_once = SIDE_BY_SIDE


class ResumePod(OnPod, frozen=True, kw_only=True):
    """Remove the pause annotations."""

    wording = Sentence(70, "Resuming", "Unmarks as paused")
    at_once = SIDE_BY_SIDE


class SuspendOwner(OnOwner, frozen=True, kw_only=True):
    """Suspend a Job or the like. Undo: ResumeOwner. It deletes pods, so it is guarded like an eviction."""

    wording = Sentence(30, "Suspending", "Suspends")
    at_once = SIDE_BY_SIDE
    job: str = ""
    """Of a JobSet: the name of the Job by which a pod names it. A label says of which JobSet the Job is, so the Job itself is asked."""
    job_uid: str = ""
    """Of that Job, which is suspended itself if the JobSet does not make it."""


class ResumeOwner(OnOwner, frozen=True, kw_only=True):
    """Resume what we suspended."""

    wording = Sentence(50, "Resuming", "Resumes")
    at_once = SIDE_BY_SIDE


class EvictPod(OnPod, frozen=True, kw_only=True):
    """Evict through policy/v1. No undo: capped, and the target is re-read just before."""

    wording = Sentence(10, "Evicting", "Evicts")
    resource_version: str
    grace_seconds: int


class DeleteReleaseRequest(Action, frozen=True, kw_only=True):
    """Remove a ReleaseRequest, `namespace/name`, that was finished long ago. No undo: it has had its effect."""

    target = "request"
    request: str
    uid: str


class DeletePod(OnPod, frozen=True, kw_only=True):
    """Delete a pod whose eviction was refused for too long; it is tried once more. No undo: capped, and re-read just before."""

    wording = Sentence(20, "Deleting", "Deletes")
    resource_version: str
    grace_seconds: int


class RemoveFinalizer(Action, frozen=True, kw_only=True):
    """Remove our finalizer from an object."""

    target = "object"
    object: str


class AddFinalizer(Action, frozen=True, kw_only=True):
    """Put our finalizer onto an object, so that it cannot vanish before what it owns. Undo: RemoveFinalizer."""

    target = "object"
    object: str


class TouchPod(OnPod, frozen=True, kw_only=True):
    """Annotate a pod so that kube-scheduler looks at it again."""


class OnInstance(Action, frozen=True, kw_only=True):
    """A call to a cloud on behalf of a Spotpool, `namespace/name`. What comes of it, the plan decides."""

    timeout_seconds = 30.0
    """A cloud takes longer than an API server. A call that ends late does no harm: it is safe to repeat by its token or the machine's id."""
    at_once = 16
    repeat_seconds = 10.0
    pool: str


class LaunchInstance(OnInstance, frozen=True, kw_only=True):
    """Buy one machine; the token makes a repeated call buy no second one. Undo: TerminateInstance."""

    target = "pool"
    slot: int
    token: str
    instance_type: str
    zone: str


class TerminateInstance(OnInstance, frozen=True, kw_only=True):
    """Give one machine back."""

    target = "instance"
    instance: str


class OnGateway(Action, frozen=True, kw_only=True):
    """A change to the targets of a Spotpool's gateway, `host:port`."""

    target = "gateway_target"
    timeout_seconds = 12.0
    pool: str
    gateway_target: str = field(name="target")


class AddGatewayTarget(OnGateway, frozen=True, kw_only=True):
    """Let the gateway send requests to a machine. Undo: RemoveGatewayTarget."""


class RemoveGatewayTarget(OnGateway, frozen=True, kw_only=True):
    """Let the gateway send no more requests to a machine."""


class OnMachine(Action, frozen=True, kw_only=True):
    """A command to one machine of a PowerPool. What comes of it, the plan decides."""

    target = "machine"
    timeout_seconds = 12.0
    """A machine's switch is slow. A call that ends late does no harm: whoever leads by then finds its intent in the status."""
    at_once = 64  # hundreds of machines may be woken together, and each call only waits
    once = True
    repeat_seconds = 0.0  # asked for again, it is a new command
    pool: str
    machine: str


class WakeMachine(OnMachine, frozen=True, kw_only=True):
    """Switch a machine on. Undo: SleepMachine."""


class SleepMachine(OnMachine, frozen=True, kw_only=True):
    """Switch a machine off."""


class CordonNode(OnNode, frozen=True, kw_only=True):
    """Let no new pod onto a node. Undo: UncordonNode."""

    at_once = SIDE_BY_SIDE


class UncordonNode(OnNode, frozen=True, kw_only=True):
    """Let pods onto a node again that we cordoned."""

    at_once = SIDE_BY_SIDE
    by: str = ""
    """Which resource cordoned it, if not the one that is decided on."""


class DrainNode(OnNode, frozen=True, kw_only=True):
    """Evict a node's pods, respecting disruption budgets. Undo of the cordon in it: UncordonNode."""


class TaintNode(OnNode, frozen=True, kw_only=True):
    """Set a taint, `key=value:Effect`. Undo: UntaintNode."""

    taint: str


class UntaintNode(OnNode, frozen=True, kw_only=True):
    """Remove a taint of ours."""

    taint: str


class OnNodePool(Action, frozen=True, kw_only=True, omit_defaults=True):
    """An effect on a Karpenter NodePool: exactly the one with this uid, or, without one, none that exists."""

    target = "node_pool"
    at_once = SIDE_BY_SIDE
    node_pool: str
    uid: str = ""


class ApplyNodePool(OnNodePool, frozen=True, kw_only=True, omit_defaults=True):
    """Write a NodePool, or `only` some parts of it; over a spec of another digest than `over` it is another write. Undo: DeleteNodePool."""

    spec: dict[str, Any]
    only: tuple[str, ...] = ()
    over: str = ""


class DeleteNodePool(OnNodePool, frozen=True, kw_only=True, omit_defaults=True):
    """Delete a NodePool of ours. With nodes: although it has some, which Karpenter drains."""

    with_nodes: bool = False


class ApplyNodeClass(Action, frozen=True, kw_only=True):
    """Make a node class. It is never changed afterwards. Undo: DeleteNodeClass."""

    target = "node_class"
    kind: str
    node_class: str
    spec: dict[str, Any]


class DeleteNodeClass(Action, frozen=True, kw_only=True):
    """Delete a node class of ours that no NodePool names any more."""

    target = "node_class"
    kind: str
    node_class: str
    uid: str


class ApplyBandwidth(OnNode, frozen=True, kw_only=True):
    """Make the Bandwidth object of a node with that uid; one that exists stays as it is. Undo: DeleteBandwidth."""

    urgency = Urgency.NUMBERS
    spec: BandwidthSpec


class DeleteBandwidth(OnNode, frozen=True, kw_only=True):
    """Delete the Bandwidth object of a node that is gone."""

    urgency = Urgency.NUMBERS


class SetNodeResources(OnNode, frozen=True, kw_only=True):
    """Publish a node's bandwidth as extended resources, or with none, withdraw them."""

    repeat_seconds = 10.0  # a kubelet that restarts has set them to nothing, and running pods need them
    resources: dict[str, str]


class ApplyBandwidthConfig(Action, frozen=True, kw_only=True):
    """Tell the API server's policies our settings of bandwidth."""

    spec: BandwidthConfigSpec


class OnNodeOverlay(Action, frozen=True, kw_only=True):
    """An effect on a NodeOverlay of Karpenter."""

    target = "node_overlay"
    at_once = SIDE_BY_SIDE
    node_overlay: str


class ApplyNodeOverlay(OnNodeOverlay, frozen=True, kw_only=True):
    """Tell Karpenter of the bandwidth of machine types. Undo: DeleteNodeOverlay."""

    spec: dict[str, Any]


class DeleteNodeOverlay(OnNodeOverlay, frozen=True, kw_only=True):
    """Delete a NodeOverlay of ours."""

    uid: str


class EmitEvent(Action, frozen=True, kw_only=True, omit_defaults=True):
    """Record a Kubernetes event on an object. Nothing to undo."""

    moving = frozenset({"message", "since"})
    urgency = Urgency.JUDGEMENT
    once = True
    object: str
    event_type: Literal["Normal", "Warning"]
    reason: str
    message: str
    machine: str = ""  # of a pool, if it is about one
    since: str = ""
    """When `Ready` turned, where it tells of that: asked for again it is the same event, after the next turn another one."""


def _all(parent: type[Action]) -> Iterator[type[Action]]:
    for each in parent.__subclasses__():
        # Those that others are made of are no actions themselves.
        yield from _all(each) if each.__subclasses__() else (each,)


BY_NAME: Final[Mapping[str, type[Action]]] = {each.__name__: each for each in _all(Action)}
"""Every action by the name that it has on the wire."""
