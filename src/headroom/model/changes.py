"""What is new since a plan last looked: named by topic, so that nobody is woken by what it does not read."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec
from msgspec import Struct

from headroom.model.decisions import Ref


class Topic(StrEnum):
    """A part of the world beside the resources themselves."""

    PODS = "pods"
    UNBOUND = "unbound"
    """The set of pods without a node."""
    NODES = "nodes"
    SETTINGS = "settings"
    """The kill switch and the cluster's id. They concern everyone, so everyone is told."""
    SIGHT = "sight"
    """Which kinds are seen."""
    NAMESPACES = "namespaces"
    CLAIMS = "claims"
    DEVICES = "devices"
    DEVICE_CLASSES = "device classes"
    PRICES = "prices"
    USAGE = "usage"
    LEDGER = "ledger"
    INDEX = "index"
    HOLDS = "holds"
    WORKLOADS = "workloads"
    BATCH = "batch"
    """CronJobs, and what templates of pods name."""
    POLICIES = "policies"
    REFUSALS = "refusals"
    RIGHTS = "rights"
    """What the operator may do."""
    MACHINES = "machines"
    KARPENTER = "karpenter"
    INSTANCES = "instances"
    OFFERS = "offers"


URGENT: Final = frozenset({Topic.SETTINGS, Topic.SIGHT})
"""What may end all effects, so nobody waits for it until a plan is due."""


class Changes(Struct, kw_only=True):
    """What is new since a plan last looked. `everything` means: assume nothing."""

    everything: bool = False
    resources: set[Ref] = msgspec.field(default_factory=set)
    """Those that came, went or changed, or on which an earlier plan decided something else."""
    pods: set[str] = msgspec.field(default_factory=set)
    """Uids of pods that came, went or changed."""
    nodes: set[str] = msgspec.field(default_factory=set)
    unbound: bool = False
    """The set of pods without a node changed."""
    asking: bool = False
    """A pod that may need a machine came, went or changed (`PodTable.asking`)."""
    facts: dict[Topic, set[str]] = msgspec.field(default_factory=dict)
    """Which other facts are new, with their names where they have some."""

    def __bool__(self) -> bool:
        news = self.resources or self.pods or self.nodes or self.unbound or self.asking or self.facts
        return bool(self.everything or news)

    @property
    def is_urgent(self) -> bool:
        """Whether it should be looked at before the plan is due: a resource may be all that it has waited for."""
        return bool(self.resources or not URGENT.isdisjoint(self.facts))

    def add(self, other: Changes) -> None:
        """Take in what another set of changes says."""
        self.everything = self.everything or other.everything
        self.unbound = self.unbound or other.unbound
        self.asking = self.asking or other.asking
        self.resources |= other.resources
        self.pods |= other.pods
        self.nodes |= other.nodes
        for topic, names in other.facts.items():
            self.facts.setdefault(topic, set()).update(names)


EVERYTHING: Final = Changes(everything=True)
