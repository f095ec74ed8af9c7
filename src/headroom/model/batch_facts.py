"""What is kept of things that announce pods: CronJobs, and what their templates only name."""

from __future__ import annotations

from msgspec import Struct

from headroom.model.facts import Pairs, WorkloadPart


class CronJob(Struct, frozen=True, gc=False, kw_only=True):
    """A CronJob whose pods may ask for GPUs."""

    uid: str
    namespace: str
    name: str
    resource_version: str = ""
    created: int = 0
    schedule: str = ""
    time_zone: str = ""
    """Empty: that of kube-controller-manager, which is taken to be UTC."""
    suspended: bool = False
    """It makes no Jobs, or makes them suspended, or somebody else than Kubernetes makes their pods."""
    deadline: int | None = None
    """Milliseconds after which a run that has not begun is given up."""
    is_alone: bool = False
    """No run begins beside another one: it is left out, or replaces it."""
    ran_at: int | None = None
    """The moment of its schedule at which it last ran, as the cronjob controller says."""
    active: tuple[tuple[str, str], ...] = ()
    """Its Jobs that are not finished, by name and uid, as the cronjob controller says."""
    queue: str = ""
    """Of Kueue, in which its Jobs wait; empty if they do not."""
    part: WorkloadPart = WorkloadPart()
    """What a run makes."""

    @property
    def key(self) -> str:
        """How people name it."""
        return f"CronJob/{self.namespace}/{self.name}"


class PriorityClass(Struct, frozen=True, gc=False, kw_only=True):
    """The priority of pods that name it."""

    name: str
    uid: str = ""
    resource_version: str = ""
    value: int = 0
    is_default: bool = False
    """It is of those that name none."""


class Flavor(Struct, frozen=True, gc=False, kw_only=True):
    """A ResourceFlavor of Kueue: where pods go that get their quota from it."""

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: Pairs = ()
    """Of its nodes; they become the node selector of the pods."""
    tolerations: str = ""
    """That the pods get, as JSON text."""
