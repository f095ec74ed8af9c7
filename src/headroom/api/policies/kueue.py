"""How a pod under Kueue is known. Kueue decides when such a pod starts, so Headroom does not gate it.

A pod's own words prove nothing, since tenants write pods. Kueue's gate is enough, since nobody lifts the last gate of a pod that a hold
covers before Headroom has released it; the marks that Kueue puts into a Job's template prove it only on pods that the controller of the
Job has made. A pod with the name of a queue gets Kueue's gate from a webhook, and those are asked after policies: it is passed over at
first and judged at the end.
"""

from __future__ import annotations

from typing import Final

from headroom.api.policies import cel

GROUP: Final = "kueue.x-k8s.io"
GATE: Final = f"{GROUP}/admission"
QUEUE: Final = f"{GROUP}/queue-name"
"""The label of a pod that Kueue is asked to take."""
PODSET: Final = f"{GROUP}/podset"
"""The label that Kueue puts into the template of what it starts."""
WORKLOAD: Final = f"{GROUP}/workload"
"""The annotation that it puts there too."""

RUNS_HERE: Final = "has(b.kueue) && b.kueue"
OWNERS: Final = ("batch", "kubeflow.org", "ray.io", "sparkoperator.k8s.io", "workload.codeflare.dev")
"""The groups of what Kueue starts and what then makes the pods itself. All else that it knows makes one of these, or waits behind its gate."""
_GROUP_OF_OWNER: Final = "o.apiVersion.split('/')[0]"
_MADE_BY_ITS_CONTROLLER: Final = (
    "has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && "
    f"{_GROUP_OF_OWNER} in {[*OWNERS]} && authorizer.group({_GROUP_OF_OWNER}).resource(o.kind.lowerAscii() + 's')"
    ".subresource('status').check('update').allowed())"
)
"""Whoever may write the status of such owners in the whole cluster is their controller; in the own namespace an administrator may too."""


def governs(*, or_will: bool = False) -> str:
    """The new pod is under Kueue; `or_will` believes the name of a queue."""
    marked = f"'{PODSET}' in {cel.labels_of()} || {cel.annotated(WORKLOAD)}"
    proofs = [cel.gated(GATE), cel.both(marked, _MADE_BY_ITS_CONTROLLER)]
    if or_will:
        proofs.insert(1, f"'{QUEUE}' in {cel.labels_of()}")
    return cel.both(RUNS_HERE, cel.either(*proofs))
