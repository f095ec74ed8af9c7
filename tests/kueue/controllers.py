"""The real Kueue and JobSet controllers on a control plane of the tests, each with its own account, roles, webhooks and definitions.

Their manifests come with their modules and are rendered by kubectl; only what a cluster of real nodes would add is played here: the
Deployments, whose programs run on this machine, and the kubelet that mounts Kueue's certificate. Kueue makes and injects that one
itself, and the API server finds its webhooks by a Service that is a name for the loopback. JobSet's are called by URL.
"""

import base64
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.control_plane import ControlPlane, wait_until
from tests.processes import Guard, Process, free_ports

Document = dict[str, Any]
KUEUE, JOBSET = "kueue", "jobset"
KUEUE_ACCOUNT = "system:serviceaccount:kueue-system:kueue-controller-manager"
JOBSET_ACCOUNT = "system:serviceaccount:jobset-system:jobset-controller-manager"
_PLAYED = ("Deployment", "APIService")
_FRAMEWORKS = ["batch/job", "jobset.x-k8s.io/jobset", "pod", "deployment"]


def built() -> Path:
    """The folder with both programs; whoever runs these tests has built them."""
    script = Path(__file__).parents[2] / "tools" / "kueue" / "build"
    where = subprocess.run([script, "--where"], capture_output=True, text=True, check=True).stdout.strip()
    if not where:
        pytest.fail("Kueue is not built: run these tests by make test-kueue")
    return Path(where)


class Controllers:
    """Both of them, from start to end."""

    def __init__(self, plane: ControlPlane, folder: Path, **settings: Any) -> None:
        """`settings` are of Kueue's Configuration."""
        self._plane, self._assets = plane, built()
        self._guard = Guard(folder)
        self._folders = {name: folder / name for name in (KUEUE, JOBSET)}
        for each in self._folders.values():
            (each / "certificates").mkdir(parents=True)
        self._ports = dict(zip(("kueue", "kueue-health", "jobset", "jobset-health"), free_ports(4), strict=True))
        self._processes: dict[str, Process] = {}
        self._settings = settings

    def start(self) -> None:
        """Install both, start them, and wait until their webhooks answer."""
        # Webhooks last: until their servers run, they refuse what they are asked about.
        hooks = [*self._install(KUEUE), *self._install(JOBSET)]
        self._plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        self._start_jobset()
        self._plane.apply(*hooks)
        self._start_kueue()

    def stop(self) -> None:
        for name in [*self._processes]:
            self._processes.pop(name).stop()
        self._guard.close()

    def restart_kueue(self, **settings: Any) -> None:
        """Kill Kueue and start it again with other settings."""
        self._processes.pop(KUEUE).kill()
        self._settings = settings
        self._start_kueue()

    def log(self, name: str) -> str:
        """All that one of them wrote."""
        return (self._folders[name] / "log").read_text(errors="replace")

    # --- manifests --------------------------------------------------------------------------------------------------------

    def _install(self, name: str) -> list[Document]:
        """Apply all but the webhooks, which are returned."""
        rendered = self._plane.kubectl("kustomize", str(self._assets / f"{name}-config" / "default"))
        documents = [each for each in yaml.safe_load_all(rendered) if each and each["kind"] not in _PLAYED]
        for each in documents:
            self._lead_to_loopback(name, each)
        hooks = [each for each in documents if each["kind"].endswith("WebhookConfiguration")]
        self._plane.apply(*(each for each in documents if each not in hooks))
        return hooks

    def _lead_to_loopback(self, name: str, document: Document) -> None:
        port, spec = self._ports[name], document.get("spec", {})
        if document["kind"] == "Service" and name == KUEUE:
            document["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        clients = [each["clientConfig"] for each in document.get("webhooks", ())]
        clients += [spec["conversion"]["webhook"]["clientConfig"]] if "conversion" in spec else []
        for each in clients:
            if name == KUEUE:
                each["service"]["port"] = port
            else:
                each["url"] = f"https://127.0.0.1:{port}{each.pop('service')['path']}"
                each["caBundle"] = base64.b64encode(self._plane.ca_file.read_bytes()).decode()

    # --- programs ---------------------------------------------------------------------------------------------------------

    def _start_jobset(self) -> None:
        self._mount(JOBSET, *(each.read_bytes() for each in self._plane.serving_certificate))
        metrics = {"bindAddress": "0", "certDir": str(self._certificates(JOBSET))}
        settings = {"internalCertManagement": {"enable": False}, "metrics": metrics}
        self._launch(JOBSET, "config.jobset.x-k8s.io/v1alpha1", settings, "readyz")

    def _start_kueue(self) -> None:
        settings = {
            "metrics": {"bindAddress": "0"},
            "namespace": "kueue-system",
            "integrations": {"frameworks": _FRAMEWORKS},
            "internalCertManagement": {"enable": True},
            "featureGates": {"VisibilityOnDemand": False},  # a server of its own that nobody asks here
            **self._settings,
        }
        self._launch(KUEUE, "config.kueue.x-k8s.io/v1beta2", settings, "readyz", waits=False)
        wait_until(self._has_certificate, "Kueue has made its certificate", 60)
        self._await(KUEUE, "readyz")

    def _has_certificate(self) -> bool:
        """Play the kubelet that mounts Kueue's Secret."""
        path = "/api/v1/namespaces/kueue-system/secrets/kueue-webhook-server-cert"
        data = json.loads(self._plane.get(path)).get("data") or {}
        if "tls.crt" in data:
            self._mount(KUEUE, *(base64.b64decode(data[key]) for key in ("tls.crt", "tls.key")))
        return "tls.crt" in data

    def _mount(self, name: str, certificate: bytes, key: bytes) -> None:
        # The key first: they are looked for by the certificate.
        (self._certificates(name) / "tls.key").write_bytes(key)
        (self._certificates(name) / "tls.crt").write_bytes(certificate)

    def _certificates(self, name: str) -> Path:
        return self._folders[name] / "certificates"

    def _launch(self, name: str, version: str, more: Mapping[str, Any], probe: str, *, waits: bool = True) -> None:
        folder = self._folders[name]
        health = f"127.0.0.1:{self._ports[f'{name}-health']}"
        webhook = {"host": "127.0.0.1", "port": self._ports[name], "certDir": str(self._certificates(name))}
        document = {
            "apiVersion": version,
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": health},
            "webhook": webhook,
            "leaderElection": {"leaderElect": False},
        }
        (folder / "config.json").write_text(json.dumps(document | dict(more)))
        config = self._plane.account_kubeconfig(f"{name}-controller-manager", f"{name}-system")
        environment = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "KUBECONFIG": str(config), "TMPDIR": str(folder)}
        command = [str(self._assets / name), f"--config={folder / 'config.json'}", "--zap-log-level=3"]
        self._processes[name] = Process(command, folder / "log", self._guard, environment)
        if waits:
            self._await(name, probe)

    def _await(self, name: str, probe: str) -> None:
        url = f"http://127.0.0.1:{self._ports[f'{name}-health']}/{probe}"
        self._processes[name].wait_ready(lambda: _answers(url), timeout=90)


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        opener.open(url, timeout=5).close()
    except (OSError, urllib.error.HTTPError):
        return False
    return True
