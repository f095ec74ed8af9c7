"""The kinds of others from which facts are read. One row gives the watch, the list, the document of `plan -f` and the right to read.

Pods and nodes, whose tables have indexes, our own kinds, ConfigMaps and policies have their own readers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from msgspec import Struct

from headroom.adapters.kube import (
    bandwidth_configs,
    batch,
    decode,
    devices,
    karpenter,
    operator_kinds,
    parse,
    paths,
    raw,
    values,
    workloads,
)
from headroom.api import marks
from headroom.api.bandwidth_config import BandwidthConfig
from headroom.api.budget_hold import BudgetHold
from headroom.api.resources import GROUP, VERSION


class FactSource(Struct, frozen=True, kw_only=True):
    """Where facts come from."""

    field: str
    """Of the World; of its `devices` where it is no field of its own."""
    group: str
    version: str = "v1"
    plural: str
    kind: str
    wire: type[Any] | None = None
    """The part of an object that is read; None: all of it."""
    fact: Callable[[Any], Any]
    namespaced: bool = False
    labels: str = ""
    """Only objects with this label say anything."""
    optional: bool = True
    """A cluster may lack the kind. If it is not Headroom's own either, only what needs it waits while it is not seen."""
    keeps: Callable[[Any], bool] = lambda _fact: True
    """What this is false for says nothing, and is not kept."""
    played: bool = False
    """Every simulated cluster has the kind, although it is not Kubernetes' own."""

    @property
    def api_version(self) -> str:
        """As objects name it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def query(self) -> dict[str, str]:
        """Of a list or watch."""
        return {"labelSelector": self.labels} if self.labels else {}

    def path(self, namespace: str = "", name: str = "") -> str:
        """All of them, those of a namespace, or one."""
        return paths.of(self.group, self.version, self.plural, namespace, name)

    def decoder(self) -> decode.FactDecoder[Any, Any]:
        """Reads lists and watches."""
        if self.wire is None:
            return decode.of_documents(self.fact, self.kind)
        return decode.of(self.wire, self.fact, self.api_version, self.kind)

    def read(self, document: dict[str, Any]) -> Any:
        """The fact in a manifest; None if it says nothing here."""
        if self.labels:
            meta = raw.fitted(document, raw.Object).metadata
            if meta is None or self.labels not in dict(values.pairs(meta.labels)):
                return None
        found = self.fact(document if self.wire is None else raw.fitted(document, self.wire))
        return found if self.keeps(found) else None


def _owner(kind: str, wire: type[Any], fact: Callable[[Any], Any], labels: str, *, optional: bool = True) -> FactSource:
    group, version, plural = paths.OWNERS[kind]
    return FactSource(
        field="workloads",
        group=group,
        version=version,
        plural=plural,
        kind=kind,
        wire=wire,
        fact=fact,
        labels=labels,
        namespaced=True,
        optional=optional,
    )


def _device(
    field: str, kind: str, wire: type[Any], fact: Callable[[Any], Any], *, namespaced: bool = False
) -> FactSource:
    return FactSource(
        field=field,
        group=devices.GROUP,
        plural=devices.KINDS[kind],
        kind=kind,
        wire=wire,
        fact=fact,
        namespaced=namespaced,
    )


SOURCES: Final = (
    FactSource(
        field="namespaces",
        group="",
        plural="namespaces",
        kind="Namespace",
        wire=raw.Object,
        fact=parse.namespace_of,
        optional=False,
    ),
    _device("claims", "ResourceClaim", devices.ClaimWire, devices.claim_of, namespaced=True),
    _device("claim_templates", "ResourceClaimTemplate", devices.TemplateWire, devices.template_of, namespaced=True),
    _device("device_classes", "DeviceClass", devices.ClassWire, devices.class_of),
    _device("device_slices", "ResourceSlice", devices.SliceWire, devices.slice_of),
    FactSource(
        field="holds",
        group=GROUP,
        version=VERSION,
        plural=BudgetHold.kind.plural,
        kind=BudgetHold.kind.name,
        fact=operator_kinds.hold_of,
    ),
    FactSource(
        field="bandwidth_configs",
        group=GROUP,
        version=VERSION,
        plural=BandwidthConfig.kind.plural,
        kind=BandwidthConfig.kind.name,
        fact=bandwidth_configs.config_of,
    ),
    # Those that we have suspended, and every Workload of Kueue: it alone knows which of them wait. Jobs are in every cluster, so
    # their absence proves nothing.
    _owner("Job", raw.Job, workloads.job_of, marks.SUSPENDED, optional=False),
    _owner("JobSet", raw.JobSet, workloads.job_set_of, marks.SUSPENDED),
    _owner("Workload", raw.RawWorkload, workloads.workload_of, ""),
    FactSource(
        field="cron_jobs",
        group="batch",
        plural="cronjobs",
        kind="CronJob",
        wire=batch.CronJobWire,
        fact=batch.cron_job_of,
        keeps=batch.has_gpus,
        namespaced=True,
    ),
    FactSource(
        field="priority_classes",
        group="scheduling.k8s.io",
        plural="priorityclasses",
        kind="PriorityClass",
        wire=batch.PriorityClassWire,
        fact=batch.priority_class_of,
    ),
    FactSource(
        field="flavors",
        group=paths.OWNERS["Workload"][0],
        version=paths.OWNERS["Workload"][1],
        plural="resourceflavors",
        kind="ResourceFlavor",
        wire=batch.FlavorWire,
        fact=batch.flavor_of,
    ),
    FactSource(
        field="node_pools",
        group=karpenter.GROUP,
        plural="nodepools",
        kind="NodePool",
        wire=karpenter.NodePoolWire,
        fact=karpenter.node_pool_of,
        played=True,
    ),
    FactSource(
        field="node_claims",
        group=karpenter.GROUP,
        plural="nodeclaims",
        kind="NodeClaim",
        wire=karpenter.NodeClaimWire,
        fact=karpenter.node_claim_of,
        played=True,
    ),
    FactSource(
        field="node_overlays",
        group=karpenter.GROUP,
        version="v1alpha1",
        plural="nodeoverlays",
        kind="NodeOverlay",
        wire=karpenter.NodeOverlayWire,
        fact=karpenter.node_overlay_of,
        played=True,
    ),
    *(
        FactSource(
            field="node_classes",
            group=group,
            version=version,
            plural=plural,
            kind=kind,
            wire=karpenter.NodeClassWire,
            fact=partial(karpenter.node_class_of, kind),
            played=True,
        )
        for kind, (group, version, plural) in karpenter.NODE_CLASSES.items()
    ),
)
BY_KIND: Final = {(each.api_version, each.kind): each for each in SOURCES}
"""Every source by what its objects say they are."""


def of(kind: str) -> FactSource:
    """The source of a kind."""
    return next(each for each in SOURCES if each.kind == kind)


def of_field(field: str) -> list[FactSource]:
    """The sources of a field of the World."""
    return [each for each in SOURCES if each.field == field]
