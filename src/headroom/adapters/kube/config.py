"""Where the API server is and who we are to it: from a kubeconfig file, or from the pod that we run in.

Every mistake is a `Misconfigured` that names the file, the field and what to do. Secrets never show in a repr.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
import yaml

from headroom.adapters.kube.tls import tls_context
from headroom.model.errors import Misconfigured

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_GROUP: Final = "client.authentication.k8s.io"
EXEC_VERSIONS: Final = (f"{EXEC_GROUP}/v1", f"{EXEC_GROUP}/v1beta1")


@dataclass(frozen=True)
class Pem:
    """A certificate or key: as it stands in the kubeconfig, or in a file that is read when it is needed."""

    label: str
    """Where it comes from, for messages."""
    data: bytes = field(default=b"", repr=False)
    file: Path | None = None

    def read(self) -> bytes:
        """Its text. Raises `Misconfigured` if the file cannot be read."""
        return self.data if self.file is None else _bytes_of(self.file, self.label)


@dataclass(frozen=True)
class ExecPlugin:
    """A program that prints credentials."""

    label: str
    api_version: str
    command: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    install_hint: str = ""
    provide_cluster_info: bool = False


@dataclass(frozen=True, kw_only=True)
class ClientConfig:
    """All that a client needs to reach one API server as one user."""

    source: str
    """Where this comes from, for messages."""
    server: str
    """The address without a slash at its end; it may have a path."""
    namespace: str = ""
    """The namespace of the context, or of the pod that we run in."""
    authority: Pem | None = None
    verify: bool = True
    server_name: str = ""
    """The name in the server's certificate, if it is not the one in the address."""
    certificate: Pem | None = None
    key: Pem | None = None
    token: str = field(default="", repr=False)
    token_file: Path | None = None
    plugin: ExecPlugin | None = None
    kubeconfigs: tuple[Path, ...] = ()
    """The files that this comes from."""
    context: str = ""
    """The context in them that was asked for; empty for their current one."""
    current: str = ""
    """The context in them that counts."""


def load(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClientConfig:
    """From the given file, else $KUBECONFIG, else the pod we run in, else ~/.kube/config."""
    environ = os.environ if environ is None else environ
    home = Path(environ.get("HOME", "~")).expanduser() / ".kube" / "config"
    if kubeconfig:
        config = _from_files([Path(kubeconfig).expanduser()], context)
    elif environ.get("KUBECONFIG", "").strip(os.pathsep):
        config = _from_files(
            [Path(name).expanduser() for name in environ["KUBECONFIG"].split(os.pathsep) if name], context
        )
    elif environ.get("KUBERNETES_SERVICE_HOST") and not context and not _prefers(home, service_account):
        config = _in_cluster(environ, service_account)
    elif home.exists():
        config = _from_files([home], context)
    else:
        raise Misconfigured(
            f"looking for an API server: no kubeconfig at {home}, and this is not a pod; "
            "give --kubeconfig or set KUBECONFIG"
        )
    tls_context(config)  # so that a bad certificate is said now, not at the first request
    return config


def reread(config: ClientConfig) -> ClientConfig:
    """What the kubeconfig files of `config` say now. Raises `Misconfigured` if they cannot be read, or name another server."""
    found = _from_files(config.kubeconfigs, config.context or None)
    if (found.server, found.server_name, found.verify) != (config.server, config.server_name, config.verify):
        raise Misconfigured(
            f"reading {config.source} again: it now names another server, {found.server}; restart to use it"
        )
    return found


# --- the pod that we run in -----------------------------------------------------------------------------------------------


def _prefers(home: Path, service_account: Path) -> bool:
    # A shell in a pod without a service account, for example a developer's workspace.
    return home.exists() and not (service_account / "token").exists()


def _in_cluster(environ: Mapping[str, str], folder: Path) -> ClientConfig:
    token, authority = folder / "token", folder / "ca.crt"
    if not token.exists():
        raise Misconfigured(
            f"looking for an API server: this pod has no {token}; set automountServiceAccountToken: true in its spec"
        )
    host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT") or "443"
    names = folder / "namespace"
    return ClientConfig(
        source="the pod's service account",
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=_bytes_of(names, str(names)).decode("utf-8", "replace").strip() if names.exists() else "",
        authority=Pem(str(authority), file=authority),
        token_file=token,
    )


# --- kubeconfig files -----------------------------------------------------------------------------------------------------


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class _Variable(msgspec.Struct):
    name: str
    value: str


class _Exec(msgspec.Struct, rename="camel"):
    command: str
    api_version: str | None = None
    args: list[str] | None = None
    env: list[_Variable] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None


class _User(msgspec.Struct, rename="kebab"):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    impersonate: str | None = msgspec.field(name="as", default=None)
    auth_provider: Any = None
    exec: _Exec | None = None


class _Context(msgspec.Struct):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class _NamedCluster(msgspec.Struct):
    name: str
    cluster: _Cluster | None = None


class _NamedUser(msgspec.Struct):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct):
    name: str
    context: _Context | None = None


class _File(msgspec.Struct, rename="kebab"):
    current_context: str | None = None
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


class _Loader(yaml.SafeLoader):
    """Leaves numbers and dates as the text they are: a token of digits is still a token."""


_KEPT_TAGS: Final = {f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "merge")}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag in _KEPT_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}

Entry = TypeVar("Entry")


@dataclass(frozen=True)
class _Place:
    """An entry of a kubeconfig, so that its mistakes can be named and its relative paths be found."""

    file: Path
    entry: str

    def error(self, name: str, why: str) -> Misconfigured:
        return Misconfigured(f"reading kubeconfig {self.file}: {self.entry}: {name} {why}")

    def path(self, value: str) -> Path:
        return (self.file.parent / Path(value).expanduser()).absolute()

    def pem(self, name: str, data: str | None, file: str | None) -> Pem | None:
        label = f"{name} of {self.entry} in kubeconfig {self.file}"
        if data:
            try:
                decoded = base64.b64decode("".join(data.split()), validate=True)
            except (binascii.Error, ValueError) as problem:
                raise self.error(
                    f"{name}-data", f"must be base64 ({problem}); copy it again from its source"
                ) from problem
            return Pem(label.replace(name, f"{name}-data", 1), data=decoded)
        return Pem(label, file=self.path(file)) if file else None


def _from_files(files: Sequence[Path], wanted: str | None) -> ClientConfig:
    read = [(file, _parsed(file)) for file in files if file.exists()]
    if not read:
        raise Misconfigured(f"reading kubeconfig {os.pathsep.join(map(str, files))}: no such file; check the path")
    # As kubectl merges: the first file that names something wins, and nothing is mixed within one entry.
    contexts = {each.name: (each.context, file) for file, one in reversed(read) for each in one.contexts or []}
    clusters = {each.name: (each.cluster, file) for file, one in reversed(read) for each in one.clusters or []}
    users = {each.name: (each.user, file) for file, one in reversed(read) for each in one.users or []}
    name = wanted or next((one.current_context for _, one in read if one.current_context), "")
    context, place = _entry(contexts, name or "", "context", read[0][0], "set current-context or give --context")
    cluster, cluster_place = _entry(clusters, context.cluster or "", "cluster", place.file, f"correct context {name!r}")
    user, user_place = _User(), place
    if context.user:
        user, user_place = _entry(users, context.user, "user", place.file, f"correct context {name!r}")
    combined = _combined(_Chosen(context, cluster, cluster_place, user, user_place))
    return replace(combined, kubeconfigs=tuple(files), context=wanted or "", current=name)


def _parsed(file: Path) -> _File:
    text = _bytes_of(file, f"kubeconfig {file}")
    try:
        # A safe loader, only with fewer types.
        document = yaml.load(text, _Loader)  # noqa: S506  a safe loader that keeps numbers and dates as text
    except (yaml.YAMLError, ValueError) as problem:
        reason = " ".join(str(problem).split())
        raise Misconfigured(
            f"reading kubeconfig {file}: it is not YAML: {reason}; correct it or make a new one"
        ) from problem
    if isinstance(document, dict) and (kind := document.get("kind") or "Config") != "Config":
        raise Misconfigured(f"reading kubeconfig {file}: it is of kind {kind}, not Config; give a kubeconfig")
    try:
        return msgspec.convert(document if document is not None else {}, _File)
    except msgspec.ValidationError as problem:
        why, _, where = str(problem).partition(" - at `$.")
        raise Misconfigured(
            f"reading kubeconfig {file}: {where.rstrip('`') or 'the document'}: {why[0].lower()}{why[1:]}; correct that field"
        ) from problem


def _entry(
    found: Mapping[str, tuple[Entry | None, Path]], name: str, what: str, file: Path, remedy: str
) -> tuple[Entry, _Place]:
    entry, where = found.get(name, (None, file))
    if entry is None:
        names = ", ".join(sorted(found)) or "none"
        asked = f"there is no {what} {name!r}" if name else f"no {what} is chosen"
        raise Misconfigured(f"reading kubeconfig {where}: {asked} (there are: {names}); {remedy}")
    return entry, _Place(where, f"{what} {name!r}")


@dataclass(frozen=True)
class _Chosen:
    context: _Context
    cluster: _Cluster
    cluster_place: _Place
    user: _User
    user_place: _Place


def _combined(chosen: _Chosen) -> ClientConfig:
    cluster, at, user, user_at = chosen.cluster, chosen.cluster_place, chosen.user, chosen.user_place
    server = (cluster.server or "").rstrip("/")
    if urlsplit(server).scheme not in ("http", "https") or not urlsplit(server).netloc:
        raise at.error("server", f"must be an address such as https://10.0.0.1:6443, not {server!r}; correct it")
    if cluster.proxy_url:
        raise at.error("proxy-url", "is not supported; remove it and make the server reachable without a proxy")
    authority = at.pem("certificate-authority", cluster.certificate_authority_data, cluster.certificate_authority)
    if authority and cluster.insecure_skip_tls_verify:
        raise at.error("insecure-skip-tls-verify", "contradicts certificate-authority; remove one of the two")
    _refuse_unsupported(user, user_at)
    certificate = user_at.pem("client-certificate", user.client_certificate_data, user.client_certificate)
    key = user_at.pem("client-key", user.client_key_data, user.client_key)
    if bool(certificate) != bool(key):
        raise user_at.error("client-certificate and client-key", "go together; add the missing one")
    return ClientConfig(
        source=f"kubeconfig {at.file}",
        server=server,
        namespace=chosen.context.namespace or "",
        authority=authority,
        verify=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name or "",
        certificate=certificate,
        key=key,
        token=user.token or "",
        token_file=user_at.path(user.token_file) if user.token_file else None,
        plugin=_plugin(user.exec, user_at) if user.exec else None,
    )


def _refuse_unsupported(user: _User, place: _Place) -> None:
    if user.username or user.password:
        raise place.error("username and password", "are not supported; use a token, a client certificate or exec")
    if user.auth_provider is not None:
        raise place.error("auth-provider", "is gone from Kubernetes; use exec with your cloud's plugin")
    if user.impersonate:
        # Ignoring it would act with more rights than were meant.
        raise place.error("as", "is not supported; use credentials of that user")


def _plugin(plugin: _Exec, place: _Place) -> ExecPlugin:
    if plugin.api_version not in EXEC_VERSIONS:
        raise place.error(
            "exec.apiVersion", f"must be {' or '.join(EXEC_VERSIONS)}, not {plugin.api_version!r}; correct it"
        )
    if not plugin.command:
        raise place.error("exec.command", "is missing; name the program to run")
    command = plugin.command
    return ExecPlugin(
        label=f"exec plugin {command} of {place.entry} in kubeconfig {place.file}",
        api_version=plugin.api_version,
        # A bare name is looked up in PATH; anything with a slash is a path.
        command=str(place.path(command)) if os.sep in command else command,
        args=tuple(plugin.args or ()),
        env=tuple((each.name, each.value) for each in plugin.env or ()),
        install_hint=" ".join((plugin.install_hint or "").split()),
        provide_cluster_info=bool(plugin.provide_cluster_info),
    )


def _bytes_of(file: Path, label: str) -> bytes:
    try:
        return file.read_bytes()
    except OSError as problem:
        raise Misconfigured(
            f"reading {label}: {file}: {problem.strerror or problem}; check the path and its rights"
        ) from problem
