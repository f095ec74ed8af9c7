"""A real Kubernetes control plane on loopback ports, for tests: etcd, API server, controllers, scheduler, KWOK nodes.

    with ControlPlane(find_assets()) as plane:
        plane.add_node("n1", {"nvidia.com/gpu": "8"})
        print(plane.kubectl("get", "nodes"))

Parts of it are left out with `components=()`. Only the user `admin` has rights at first; `grant` gives some to others.
"""

import atexit
import base64
import contextlib
import json
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

from tests.certificates import LIFETIME, Authority, certified, encoded, key_pair
from tests.processes import PATIENCE_SECONDS, Guard, NotReady, Process, free_ports

CORE = ("etcd", "kube-apiserver", "kubectl")
COMPONENTS = ("kube-controller-manager", "kube-scheduler", "kwok")
CLIENT_CERTIFICATE_USER = "admin-cert"
LONGEST_PAUSE = 0.4
"""Looking costs the API server more than it costs us; what has not come for a second is looked for less often."""
# Requests of a controller in a second; by default a few hundred pods take minutes.
CLIENT_RATE = {"qps": 200, "burst": 400}
COLLECTED_LATER = {"GOGC": "400", "GOMEMLIMIT": "1GiB"}
"""A sixth of the processor time of a control plane is spent on garbage, unless it may lie for a while."""

# taint-eviction-controller is left out on purpose: it evicted pods just bound to a new node.
CONTROLLERS = (
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "disruption-controller",
    "job-controller",
    "cronjob-controller",
    "deployment-controller",
    "replicaset-controller",
    "namespace-controller",
    "garbage-collector-controller",
    "resourceclaim-controller",
    "serviceaccount-controller",
    "clusterrole-aggregation-controller",  # without it the roles view, edit and admin are empty
)


class KubectlFailed(Exception):
    """kubectl said no; its words are the message."""


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...] = ()

    @property
    def token(self) -> str:
        return f"token-of-{self.name}"

    @property
    def token_line(self) -> str:
        """Its line in the API server's token file; an empty fourth field would be a group with an empty name."""
        groups = f',"{",".join(self.groups)}"' if self.groups else ""
        return f"{self.token},{self.name},{self.name}{groups}\n"


def find_assets() -> Path | None:
    """The folder with the binaries, or None where they are not built."""
    script = Path(__file__).parent.parent / "tools" / "control-plane"
    where = subprocess.run([script, "--where"], capture_output=True, text=True, check=True).stdout.strip()
    return Path(where) if where else None


def lacking(assets: Path | None, components: Sequence[str] = COMPONENTS) -> str:
    """Why these components cannot be started from that folder; empty if they can."""
    if assets is None:
        return "the control plane is not built (make control-plane)"
    wanted = [*CORE, *components, *(["kwok-stages.yaml"] if "kwok" in components else [])]
    missing = [name for name in wanted if not (assets / name).exists()]
    return f"the control plane's folder lacks {', '.join(missing)} (make control-plane)" if missing else ""


class ControlPlane:
    def __init__(
        self,
        assets: Path | None = None,
        *,
        components: Sequence[str] = COMPONENTS,
        apiserver_flags: Sequence[str] = (),
        scheduler: Mapping[str, Any] | None = None,
        forwards: Mapping[int, int] | None = None,
        own_accounts: bool = False,
    ) -> None:
        """`scheduler` is kube-scheduler's configuration. `forwards` are ports of every pod, each with the loopback port that a port-forward to it leads to.

        With `own_accounts` each controller has its own service account and rights, as in a real cluster, instead of all rights.
        """
        assets = assets or find_assets()
        if assets is None or (why := lacking(assets, components)):
            raise FileNotFoundError(why if assets else lacking(None))
        self.assets = assets
        self._components = tuple(components)
        self._apiserver_flags = tuple(apiserver_flags)
        self._scheduler = dict(scheduler or {})
        self._forwards = dict(forwards or {})
        self._own_accounts = own_accounts
        self._users = {user.name: user for user in (User("admin", ("system:masters",)), User("tenant", ("tenants",)))}
        self._users |= {name: User(name) for name in ("viewer", "nobody")}
        self._processes: dict[str, Process] = {}
        self._ports: dict[str, int] = {}
        self._guard: Guard | None = None

    # Life

    def start(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headroom-control-plane-"))
        self._guard = Guard(self.folder)
        atexit.register(self.stop)
        self._write_credentials()
        for attempts_left in (2, 1, 0):
            try:
                self._start_all()
            except NotReady as failure:
                self._stop_processes()
                if "address already in use" not in str(failure) or not attempts_left:
                    self.stop()
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                return

    def stop(self) -> None:
        """Ends every process at once: what they would still write goes with the folder. Harmless when repeated."""
        if self._guard is None:
            return
        self._stop_processes()
        self._guard.close()
        self._guard = None
        atexit.unregister(self.stop)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def restart_apiserver(self, *, kill: bool = True) -> None:
        """Ends the API server, abruptly unless told otherwise, and starts it again at the same address."""
        process = self._processes.pop("kube-apiserver")
        process.kill() if kill else process.stop()
        self._start_apiserver()

    def compact(self) -> int:
        """Makes etcd forget all history up to now and returns its revision: a watch that missed any change is expired.

        The API server's own watch cache still remembers: use `--watch-cache=false`, or restart the API server after,
        to have such a watch answered with 410.
        """
        # Compaction keeps the revision it is given, so the last real change must not be that one.
        written = self._etcd("put", {"key": base64.b64encode(b"compacted").decode(), "value": ""})
        revision = int(written["header"]["revision"])
        self._etcd("compaction", {"revision": str(revision), "physical": True})
        return revision

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def log(self, name: str) -> str:
        """All that a component wrote."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    # Access

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._ports['kube-apiserver']}"

    @property
    def ca_file(self) -> Path:
        return self._authority.file

    @property
    def serving_certificate(self) -> tuple[Path, Path]:
        """Certificate and key file for a server on loopback that users of this control plane trust."""
        return self._serving_certificate

    @property
    def client_certificate(self) -> tuple[Path, Path]:
        """Certificate and key file of a user with all rights."""
        return self._client_certificate

    @property
    def admin_token(self) -> str:
        return self.token("admin")

    def token(self, user: str) -> str:
        return self._users[user].token

    def add_token_user(self, name: str, groups: Sequence[str] = ()) -> None:
        if self._guard is not None:
            raise RuntimeError("the API server reads its tokens once: add users before start")
        self._users[name] = User(name, tuple(groups))

    def grant(self, user: str, role: str, namespace: str | None = None) -> None:
        """Binds a user to a cluster role, everywhere or in one namespace."""
        kind = ["rolebinding", "--namespace", namespace] if namespace else ["clusterrolebinding"]
        self.kubectl("create", *kind, f"{user}-{role}", f"--clusterrole={role}", f"--user={user}")

    def kubeconfig(self, user: str = "admin") -> Path:
        """A kubeconfig file for a token user, or for `admin-cert` with a client certificate."""
        if user == CLIENT_CERTIFICATE_USER:
            return self._kubeconfig(user, certified(self.client_certificate))
        return self._kubeconfig(user, {"token": self.token(user)})

    def client_files(self, user: str, groups: Sequence[str] = (), lifetime: timedelta = LIFETIME) -> tuple[Path, Path]:
        """Certificate and key files of a user; asked for again, the same files are written anew."""
        return self._authority.client(user, list(groups), lifetime)

    def certificate_kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig file for a user who is known by a client certificate only."""
        return self._kubeconfig(user, certified(self._authority.client(user, list(groups))))

    def account_kubeconfig(self, name: str, namespace: str) -> Path:
        """A kubeconfig file for a service account, which is made if there is none."""
        self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}})
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration=2h").strip()
        return self._kubeconfig(f"{namespace}-{name}", {"token": token})

    def _kubeconfig(self, user: str, credentials: Mapping[str, str]) -> Path:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "clusters": [
                {"name": "test", "cluster": {"server": self.url, "certificate-authority-data": encoded(self.ca_file)}}
            ],
            "users": [{"name": user, "user": credentials}],
        }
        return self._write(f"{user}.kubeconfig", document)

    def kubectl(self, *args: str, input: str | None = None, user: str = "admin") -> str:  # noqa: A002  as in subprocess
        base = [
            str(self.assets / "kubectl"),
            f"--kubeconfig={self.kubeconfig(user)}",
            f"--cache-dir={self.folder / 'kubectl'}",
        ]
        for _ in range(100):
            done = subprocess.run(
                [*base, *args], input=input, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
            )
            if "conditions accessor error: <nil>" not in done.stderr:
                break
            time.sleep(0.1)  # `kubectl wait` gives up on what is so new that it has no conditions yet
        if done.returncode:
            raise KubectlFailed(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *documents: Mapping[str, Any], user: str = "admin") -> None:
        items = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})
        for is_last in (False, True):  # a busy API server ran out of its own time; applying twice changes nothing
            try:
                self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=items, user=user)
                return
            except KubectlFailed as failure:
                if is_last or "(Timeout)" not in str(failure):
                    raise

    def get(self, path: str, user: str = "admin") -> str:
        """The body of a GET; raises urllib's HTTPError for anything but success."""
        return self._fetch(self.url + path, {"Authorization": f"Bearer {self.token(user)}"})

    def metrics(self) -> str:
        return self.get("/metrics")

    def add_node(
        self, name: str, resources: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None
    ) -> None:
        """A node whose kubelet KWOK plays; it gets Ready within a second or two."""
        capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", **(resources or {})}
        metadata = {
            "name": name,
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {"kubernetes.io/hostname": name, **(labels or {})},
        }
        # Created, not applied: only a create takes the status along.
        node = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        node["status"] = {"capacity": capacity, "allocatable": capacity}
        self.kubectl("create", "-f", "-", input=json.dumps(node))

    # Starting the parts

    def _start_all(self) -> None:
        names = ("etcd", "etcd-peer", "kube-apiserver", *COMPONENTS)
        self._ports = dict(zip(names, free_ports(len(names)), strict=True))
        shutil.rmtree(self.folder / "etcd", ignore_errors=True)
        self._start_etcd()
        self._start_apiserver()
        starters = {
            "kube-controller-manager": self._start_controller_manager,
            "kube-scheduler": self._start_scheduler,
            "kwok": self._start_kwok,
        }
        for name in self._components:
            starters[name]()

    def _start_etcd(self) -> None:
        client, peer = self._etcd_url, f"http://127.0.0.1:{self._ports['etcd-peer']}"
        flags = [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]
        self._launch("etcd", flags, lambda: self._answers(f"{client}/health"))

    def _start_apiserver(self) -> None:
        flags = [
            f"--etcd-servers={self._etcd_url}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--secure-port={self._ports['kube-apiserver']}",
            *self._serving_flags,
            f"--client-ca-file={self.ca_file}",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.folder / 'accounts.pub'}",
            f"--service-account-signing-key-file={self.folder / 'accounts.key'}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",  # no pod here needs an account of its own
            "--allow-privileged=true",
            "--shutdown-watch-termination-grace-period=1s",  # without it, ending takes a minute while a watch is open
            *self._apiserver_flags,
        ]
        paths = ("/readyz", "/api/v1/namespaces/default", "/api/v1/namespaces/kube-system")
        self._launch("kube-apiserver", flags, lambda: all(self._answers(self.url + path) for path in paths))

    def _start_controller_manager(self) -> None:
        flags = [
            f"--kubeconfig={self.kubeconfig(CLIENT_CERTIFICATE_USER)}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._ports['kube-controller-manager']}",
            *self._serving_flags,
            f"--controllers={','.join(CONTROLLERS)}",
            f"--service-account-private-key-file={self.folder / 'accounts.key'}",
            f"--use-service-account-credentials={str(self._own_accounts).lower()}",
            *(f"--kube-api-{what}={number}" for what, number in CLIENT_RATE.items()),
        ]
        self._launch("kube-controller-manager", flags, self._roles_are_filled)

    def _start_scheduler(self) -> None:
        settings = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubeconfig(CLIENT_CERTIFICATE_USER)), **CLIENT_RATE},
            "leaderElection": {"leaderElect": False},
            **self._scheduler,
        }
        port = self._ports["kube-scheduler"]
        flags = [
            f"--config={self._write('scheduler.yaml', settings)}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            *self._serving_flags,
        ]
        self._launch("kube-scheduler", flags, lambda: self._answers(f"https://127.0.0.1:{port}/readyz"))

    def _start_kwok(self) -> None:
        address = f"127.0.0.1:{self._ports['kwok']}"
        flags = [
            f"--kubeconfig={self.kubeconfig(CLIENT_CERTIFICATE_USER)}",
            f"--config={self.assets / 'kwok-stages.yaml'}",
            f"--config={Path(__file__).parent / 'kwok-run-time.yaml'}",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=40",
            "--cidr=10.1.0.0/16",
            "--node-ip=127.0.0.1",
            f"--server-address={address}",
            *(self._forwarding_flags() if self._forwards else ()),
        ]
        self._launch("kwok", flags, lambda: self._answers(f"http://{address}/healthz"))

    def _forwarding_flags(self) -> list[str]:
        """KWOK as the kubelet that the API server asks for port-forwards."""
        local = {port: {"port": to, "address": "127.0.0.1"} for port, to in self._forwards.items()}
        forwards = [{"ports": [port], "target": target} for port, target in local.items()]
        rule = {
            "apiVersion": "kwok.x-k8s.io/v1alpha1",
            "kind": "ClusterPortForward",
            "metadata": {"name": "to-loopback"},
            "spec": {"forwards": forwards},
        }
        config = self._write("port-forward.yaml", rule)
        return [f"--config={config}", f"--node-port={self._ports['kwok']}", *self._serving_flags]

    def _launch(self, name: str, flags: Sequence[str], ready: Callable[[], bool]) -> None:
        assert self._guard is not None
        environment = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin", **COLLECTED_LATER}
        command = [str(self.assets / name), *flags]
        process = Process(command, self.folder / f"{name}.log", self._guard, environment)
        self._processes[name] = process
        process.wait_ready(ready)

    def _stop_processes(self) -> None:
        for name in [*COMPONENTS[::-1], "kube-apiserver", "etcd"]:
            if process := self._processes.pop(name, None):
                process.kill()

    # Small things

    @property
    def _etcd_url(self) -> str:
        return f"http://127.0.0.1:{self._ports['etcd']}"

    @property
    def _serving_flags(self) -> list[str]:
        certificate, key = self._serving_certificate
        return [f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}"]

    def _write_credentials(self) -> None:
        self._authority = Authority(self.folder)
        self._serving_certificate = self._authority.server("server")
        self._client_certificate = self._authority.client(CLIENT_CERTIFICATE_USER, ["system:masters"])
        key_pair(self.folder, "accounts")
        (self.folder / "tokens.csv").write_text("".join(user.token_line for user in self._users.values()))
        context = ssl.create_default_context(cafile=self.ca_file)
        # Never through a proxy: all of it is on this machine.
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )

    def _write(self, name: str, document: Mapping[str, Any]) -> Path:
        file = self.folder / name
        text = json.dumps(document)
        # Not rewritten when the same: a component may be reading it.
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
        return file

    def _roles_are_filled(self) -> bool:
        port = self._ports["kube-controller-manager"]
        path = "/apis/rbac.authorization.k8s.io/v1/clusterroles/"
        return self._answers(f"https://127.0.0.1:{port}/healthz") and all(
            json.loads(self.get(path + role))["rules"] for role in ("view", "edit", "admin")
        )

    def _answers(self, url: str) -> bool:
        headers = {"Authorization": f"Bearer {self.admin_token}"} if url.startswith("https:") else {}
        with contextlib.suppress(OSError):
            self._fetch(url, headers)
            return True
        return False

    def _etcd(self, call: str, body: Mapping[str, Any]) -> Any:
        return json.loads(self._fetch(f"{self._etcd_url}/v3/kv/{call}", {}, json.dumps(body).encode()))

    def _fetch(self, url: str, headers: Mapping[str, str], body: bytes | None = None) -> str:
        request = urllib.request.Request(url, body, dict(headers))
        try:
            with self._opener.open(request, timeout=60) as answer:
                text: bytes = answer.read()
        except urllib.error.HTTPError as refusal:
            refusal.close()
            raise
        return text.decode()


def wait_until(condition: Callable[[], bool], what: str, timeout: float = PATIENCE_SECONDS) -> None:
    """Waits for something that the control plane does in its own time."""
    deadline, pause = time.monotonic() + timeout, 0.1
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so after {timeout:.0f} s: {what}")
        time.sleep(pause)
        pause = min(pause * 1.2, LONGEST_PAUSE)
