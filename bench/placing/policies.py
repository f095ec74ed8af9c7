"""Our admission policies of bandwidth on the stage: what they add to a new pod depends on the mode, which the operator would write."""

import asyncio

from bench.live.server import MERGE, Document
from bench.placing.stage import PODS, Stage
from headroom.api.bandwidth import EGRESS_MBPS, MARKER
from headroom.api.bandwidth_config import EXTENDER, NATIVE
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from headroom.api.policies import OF_BANDWIDTH, policies
from headroom.api.resources import API_VERSION

OFF = "Off"
CONFIGS = f"/apis/{API_VERSION}/bandwidthconfigs"
LINKS = ("egress", "ingress")
ADDED = {OFF: "", NATIVE: EGRESS_MBPS, EXTENDER: MARKER}
"""By which one sees that a mode has arrived."""
REFUSED = "refused"
PATIENCE = 60.0


async def install(stage: Stage) -> None:
    """The kinds, the policies of bandwidth, and their parameter: `Off`."""
    stage.plane.apply(*(crd(kind) for kind in DEFINITIONS.values()))
    stage.plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    keys = {link: [{"annotation": f"kubernetes.io/{link}-bandwidth", "unit": "bits"}] for link in LINKS}
    config = {"apiVersion": API_VERSION, "kind": "BandwidthConfig", "metadata": {"name": "headroom"}}
    await stage.server.ask("POST", CONFIGS, {**config, "spec": {"mode": OFF, **keys}})
    stage.plane.apply(*(each for each in policies() if each["metadata"]["name"] in OF_BANDWIDTH))
    await set_mode(stage, NATIVE)
    await set_mode(stage, OFF)


async def set_mode(stage: Stage, mode: str) -> None:
    """Have new pods get what this mode needs; returns when they do."""
    await stage.server.ask("PATCH", f"{CONFIGS}/headroom", {"spec": {"mode": mode}}, MERGE)
    async with asyncio.timeout(PATIENCE):
        while await _added(stage) != ADDED[mode]:  # noqa: ASYNC110  nothing tells when the API server's policies know
            await asyncio.sleep(0.1)


async def _added(stage: Stage) -> str:
    """What a new pod gets now, or that it is refused; nothing is created."""
    container = {"name": "main", "image": "example.com/train:1"}
    metadata = {"name": "try", "annotations": {f"kubernetes.io/{link}-bandwidth": "1M" for link in LINKS}}
    pod: Document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
    try:
        made = await stage.server.ask("POST", f"{PODS}?dryRun=All", pod)
    except RuntimeError:  # one of the two policies knows it already, and the other does not
        return REFUSED
    requests = made["spec"]["containers"][0].get("resources", {}).get("requests", {})
    return next((name for name in ADDED.values() if name in requests), "")
