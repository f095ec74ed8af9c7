"""`headroom extender` as a process, and what kube-scheduler must know of it."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from bench.live.server import Document
from bench.placing.stage import Stage
from headroom.api.bandwidth import MARKER
from tests.processes import Process, free_ports


@contextlib.contextmanager
def extender(stage: Stage) -> Iterator[tuple[Process, Document]]:
    """One that has seen the cluster and answers, and its entry in the scheduler's configuration."""
    address = f"127.0.0.1:{free_ports(1)[0]}"
    certificate, key = stage.plane.serving_certificate
    command = [sys.executable, "-m", "headroom", "extender", "--kubeconfig", str(stage.plane.kubeconfig())]
    command += ["--address", address, "--health-address", "", "--certificate", str(certificate), "--key", str(key)]
    process = stage.start("extender", command, lambda: stage.answers(f"https://{address}/readyz"))
    try:
        yield process, asked(f"https://{address}", str(stage.plane.ca_file))
    finally:
        process.stop()


def asked(url: str, authority: str) -> dict[str, Any]:
    """How kube-scheduler asks it, as `headroom extender --scheduler-config` says it."""
    return {
        "urlPrefix": url,
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": 10,
        "enableHTTPS": True,
        "tlsConfig": {"caFile": authority},
        "httpTimeout": "5s",
        "nodeCacheCapable": True,
        "ignorable": False,
        "managedResources": [{"name": MARKER, "ignoredByScheduler": True}],
    }
