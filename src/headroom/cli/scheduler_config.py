"""A KubeSchedulerConfiguration with which kube-scheduler asks the extender."""

from __future__ import annotations

import base64
from typing import Any, Final

from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.extender_secret import KeptSecret
from headroom.api.bandwidth import MARKER
from headroom.cli import live, output
from headroom.cli.extender_process import SecretStore
from headroom.cli.options import Form
from headroom.model.errors import HeadroomError
from headroom.runtime.extender_settings import ExtenderSettings
from headroom.runtime.settings import Settings

TIMEOUT_SECONDS: Final = 5
WEIGHT: Final = 10
"""Above what kube-scheduler's own scores differ by; it counts only where an answer has several candidates."""
PERCENTAGE: Final = 100
"""kube-scheduler's own sample leaves out half of 500 nodes, and nine tenths of 5,000; siblings stand on some of them."""


def show(settings: Settings, flags: ExtenderSettings, profile: str, url: str) -> None:
    """Print it, with the authority that signs the extender's certificate if the cluster has it."""
    authority = "" if flags.plain or flags.certificate else _authority(settings, flags)
    output.as_data(configuration(settings, flags, profile, url, authority), Form.yaml)


def _authority(settings: Settings, flags: ExtenderSettings) -> str:
    async def found(kube: Kube) -> str:
        pair = await SecretStore(KeptSecret(kube, settings.operator_namespace, flags.kept_in)).read()
        return pair.authority if pair is not None else ""

    problem = f"Secret {settings.operator_namespace}/{flags.kept_in} does not exist; start the extender first"
    try:
        if authority := live.with_cluster(settings, found):
            return authority
    except HeadroomError as error:
        problem = str(error)
    output.say(f"tlsConfig has no caData: {problem}.")
    return ""


def configuration(
    settings: Settings, flags: ExtenderSettings, profile: str, url: str, authority: str
) -> dict[str, Any]:
    """As kube-scheduler reads it with --config."""
    host = f"{flags.service}.{settings.operator_namespace}.svc"
    scheme, port = "http" if flags.plain else "https", flags.address.rpartition(":")[2]
    asked: dict[str, Any] = {
        "urlPrefix": url or f"{scheme}://{host}:{port}",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "weight": WEIGHT,
        "enableHTTPS": not flags.plain,
        "httpTimeout": f"{TIMEOUT_SECONDS}s",
        "nodeCacheCapable": True,
        "ignorable": False,
        "managedResources": [{"name": MARKER, "ignoredByScheduler": True}],
    }
    if not flags.plain:
        trusted = {"caData": base64.b64encode(authority.encode()).decode()} if authority else {}
        asked["tlsConfig"] = {"serverName": host, **trusted}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": profile, "percentageOfNodesToScore": PERCENTAGE}],
        "extenders": [asked],
    }
