"""Everything Headroom can do to the world. If it is not here, it cannot happen.

Each action is one flat object on the wire, `{"type": "EvictPod", "pod": "lab/train-0", ...}`. A pod is written
`namespace/name`, any other object `Kind/namespace/name` or `Kind/name`. Every standing effect has its undo beside it.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

MOST_GRACE_SECONDS: Final = 3600
"""Nobody who is evicted takes longer than that to end, whatever the pod asks for."""


class Action(Struct, frozen=True, kw_only=True, tag=True, tag_field="type", rename="camel"):
    """One effect as data."""


class OnPod(Action, frozen=True, kw_only=True):
    """An effect on exactly this pod, never on another one of the same name."""

    pod: str
    uid: str


class OnBudget(Action, frozen=True, kw_only=True):
    """An effect for one budget, `namespace/name`."""

    budget: str


class OnNode(Action, frozen=True, kw_only=True):
    """An effect on one node."""

    node: str


class OnOwner(Action, frozen=True, kw_only=True):
    """An effect on the owner of pods, for example kind Job, object `lab/train`."""

    kind: str
    object: str
    uid: str = ""
    """Exactly this one, never another of the same name. Empty for a JobSet none of whose pods tells: they name their Job only."""


class ApplyBudgetHold(OnBudget, frozen=True, kw_only=True):
    """Let the API server gate new pods of the budget. Undo: DeleteBudgetHold."""


class DeleteBudgetHold(OnBudget, frozen=True, kw_only=True):
    """Stop gating new pods of the budget."""


class ApplyBudgetIndex(OnBudget, frozen=True, kw_only=True):
    """Tell the API server's policies which budgets exist."""


class ReleasePod(OnPod, frozen=True, kw_only=True):
    """Lift our gate. No undo: a gate can only be set at creation."""


class PausePod(OnPod, frozen=True, kw_only=True):
    """Annotate the pod as paused. Undo: ResumePod."""


class ResumePod(OnPod, frozen=True, kw_only=True):
    """Remove the pause annotations."""


class SuspendOwner(OnOwner, frozen=True, kw_only=True):
    """Suspend a Job or the like. Undo: ResumeOwner. It deletes pods, so it is guarded like an eviction."""


class ResumeOwner(OnOwner, frozen=True, kw_only=True):
    """Resume what we suspended."""


class EvictPod(OnPod, frozen=True, kw_only=True):
    """Evict through policy/v1. No undo: capped, and the target is re-read just before."""

    resource_version: str
    grace_seconds: int


class DeleteReleaseRequest(Action, frozen=True, kw_only=True):
    """Remove a ReleaseRequest, `namespace/name`, that was finished long ago. No undo: it has had its effect."""

    request: str
    uid: str


class DeletePod(OnPod, frozen=True, kw_only=True):
    """Delete a pod whose eviction was refused for too long; it is tried once more. No undo: capped, and re-read just before."""

    resource_version: str
    grace_seconds: int


class RemoveFinalizer(Action, frozen=True, kw_only=True):
    """Remove our finalizer from an object."""

    object: str


class TouchPod(OnPod, frozen=True, kw_only=True):
    """Annotate a pod so that kube-scheduler looks at it again."""


class LaunchInstance(Action, frozen=True, kw_only=True):
    """Buy one machine; the token makes a repeated call buy no second one. Undo: TerminateInstance."""

    pool: str
    slot: int
    token: str
    instance_type: str
    zone: str


class TerminateInstance(Action, frozen=True, kw_only=True):
    """Give one machine back."""

    pool: str
    instance: str


class OnMachine(Action, frozen=True, kw_only=True):
    """An effect on one machine of a PowerPool."""

    pool: str
    machine: str


class WakeMachine(OnMachine, frozen=True, kw_only=True):
    """Switch a machine on. Undo: SleepMachine."""


class SleepMachine(OnMachine, frozen=True, kw_only=True):
    """Switch a machine off."""


class CordonNode(OnNode, frozen=True, kw_only=True):
    """Let no new pod onto a node. Undo: UncordonNode."""


class UncordonNode(OnNode, frozen=True, kw_only=True):
    """Let pods onto a node again that we cordoned."""


class DrainNode(OnNode, frozen=True, kw_only=True):
    """Evict a node's pods, respecting disruption budgets. Undo of the cordon in it: UncordonNode."""


class TaintNode(OnNode, frozen=True, kw_only=True):
    """Set a taint, `key=value:Effect`. Undo: UntaintNode."""

    taint: str


class UntaintNode(OnNode, frozen=True, kw_only=True):
    """Remove a taint of ours."""

    taint: str


class ApplyNodePool(Action, frozen=True, kw_only=True):
    """Write a Karpenter NodePool. Undo: DeleteNodePool."""

    node_pool: str
    spec: dict[str, Any]


class DeleteNodePool(Action, frozen=True, kw_only=True):
    """Delete a NodePool of ours."""

    node_pool: str


class ApplyNodeClass(Action, frozen=True, kw_only=True):
    """Write a node class. Undo: DeleteNodeClass."""

    node_class: str
    spec: dict[str, Any]


class DeleteNodeClass(Action, frozen=True, kw_only=True):
    """Delete a node class of ours."""

    node_class: str


class ApplyBandwidth(OnNode, frozen=True, kw_only=True):
    """Write the Bandwidth object of a node. Undo: DeleteBandwidth."""


class DeleteBandwidth(OnNode, frozen=True, kw_only=True):
    """Delete the Bandwidth object of a node that is gone."""


class SetNodeResources(OnNode, frozen=True, kw_only=True):
    """Publish a node's bandwidth as extended resources."""


class EmitEvent(Action, frozen=True, kw_only=True):
    """Record a Kubernetes event on an object. Nothing to undo."""

    object: str
    event_type: Literal["Normal", "Warning"]
    reason: str
    message: str


AnyAction = (
    ApplyBudgetHold
    | DeleteBudgetHold
    | ApplyBudgetIndex
    | ReleasePod
    | PausePod
    | ResumePod
    | SuspendOwner
    | ResumeOwner
    | EvictPod
    | DeletePod
    | DeleteReleaseRequest
    | RemoveFinalizer
    | TouchPod
    | LaunchInstance
    | TerminateInstance
    | WakeMachine
    | SleepMachine
    | CordonNode
    | UncordonNode
    | DrainNode
    | TaintNode
    | UntaintNode
    | ApplyNodePool
    | DeleteNodePool
    | ApplyNodeClass
    | DeleteNodeClass
    | ApplyBandwidth
    | DeleteBandwidth
    | SetNodeResources
    | EmitEvent
)
