"""How the process runs: one typed object from environment and flags, printed at start. What to do is in resources, not here."""

from __future__ import annotations

import os
import re
import socket
import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Struct

from headroom.api.bandwidth_config import Mode
from headroom.model import times
from headroom.model.errors import Misconfigured

PREFIX = "HEADROOM_"
HIDDEN = "headroom-hidden"
EARLIER = {"HEADROOM_NAMESPACE": "operator_namespace"}
"""Variables by the name they had before; the new name wins."""
ADDRESSES = ("metrics_address", "health_address")
PAIRS = ("pool_namespaces", "cloud_endpoints", "interruption_queues")
_ADDRESS = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*):([0-9]{1,5})")


class Settings(Struct, frozen=True, kw_only=True):
    """Every knob of the process. The environment variable of `log_level` is HEADROOM_LOG_LEVEL; a flag wins over it."""

    kubeconfig: Annotated[
        str, Meta(description="Path of a kubeconfig; empty: KUBECONFIG, in-cluster, or the home folder.")
    ] = ""
    context: Annotated[str, Meta(description="Context of the kubeconfig; empty: its current one.")] = ""
    operator_namespace: Annotated[str, Meta(description="The namespace the operator runs in.")] = "headroom-system"
    cluster_id: Annotated[str, Meta(description="Names this cluster on cloud objects; empty: kube-system's uid.")] = ""
    identity: Annotated[
        str, Meta(description="Name of this process in the lease; empty: host name and a random part.")
    ] = ""
    lease_name: Annotated[str, Meta(description="Name of the lease.")] = "headroom"
    elect_leader: Annotated[bool, Meta(description="False only where exactly one process runs.")] = True
    dry_run: Annotated[bool, Meta(description="Decide and print, write nothing.")] = False
    writes_per_second: Annotated[float, Meta(gt=0, le=1000, description="Writes to the API server, on average.")] = 60.0
    write_burst: Annotated[int, Meta(ge=1, le=10000, description="Writes at once after a quiet time.")] = 100
    evictions_per_minute: Annotated[
        int,
        Meta(
            ge=1, le=10000, description="Gangs or pods suspended or evicted in a minute at most, in the whole cluster."
        ),
    ] = 30
    namespace_evictions_per_minute: Annotated[int, Meta(ge=1, le=10000, description="The same for each namespace.")] = (
        20
    )
    metrics_address: Annotated[str, Meta(description="host:port of metrics and dashboard; empty: none.")] = (
        "0.0.0.0:8443"
    )
    metrics_plain: Annotated[bool, Meta(description="Serve them over plain HTTP to everyone.")] = False
    metrics_certificate: Annotated[
        str, Meta(description="PEM file; empty: a self-signed certificate is created at start.")
    ] = ""
    metrics_key: Annotated[str, Meta(description="PEM file of the certificate's key.")] = ""
    cluster_name: Annotated[
        str, Meta(description="What the dashboard calls this cluster; empty: the kubeconfig's context, or cluster_id.")
    ] = ""
    dashboard_links: Annotated[
        str,
        Meta(
            description="Links to other tools as NAME=URL, separated by spaces, such as Grafana=https://grafana.example.com/d/gpu?var-pod={pod}; {namespace} and {pod} are filled in."
        ),
    ] = ""
    dashboard_user: Annotated[
        str,
        Meta(
            description="Label that groups usage by user; an annotation works too, while the pod exists. Empty: no grouping."
        ),
    ] = ""
    health_address: Annotated[str, Meta(description="host:port of /healthz and /readyz; empty: none.")] = "0.0.0.0:8081"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="What is logged.")] = "info"
    log_format: Annotated[Literal["", "json", "text"], Meta(description="Empty: text on a terminal, else json.")] = ""
    state_dir: Annotated[
        str, Meta(description="Folder for data that outlives the process: the ledger's file, or its queue.")
    ] = "~/.local/state/headroom"
    ledger_url: Annotated[
        str,
        Meta(
            description="The ledger, which keeps usage: a path, sqlite:///PATH or postgresql://...; empty: ledger.db in state_dir.",
            extra={HIDDEN: True},
        ),
    ] = ""
    accept_history_loss_before: Annotated[
        str,
        Meta(
            description="A time such as 2026-01-31T00:00:00Z: accept a ledger without history if the usage of all budgets is older than this."
        ),
    ] = ""
    allow_egress: Annotated[
        str,
        Meta(
            description="Addresses that resources may call, such as https://power-api.example.com,wol://10.0.7.255; empty: nowhere."
        ),
    ] = ""
    allow_insecure_secrets: Annotated[
        bool,
        Meta(description="Allow redfish.insecure and redfish.certificateAuthority in a pool together with a Secret."),
    ] = False
    orphan_policy: Annotated[
        Literal["Report", "Terminate"],
        Meta(
            description="What happens to cloud machines of this cluster that no Spotpool owns, an hour after they are found."
        ),
    ] = "Report"
    pool_namespaces: Annotated[
        str,
        Meta(
            description="Other namespaces whose pods a Spotpool may serve, such as team-a/spot=team-b+team-c,lab/spot=*; empty: none."
        ),
    ] = ""
    ambient_credentials: Annotated[
        str,
        Meta(
            description="Namespaces whose Spotpools may use the process's own cloud credentials, such as lab,team-a; empty: none."
        ),
    ] = ""
    cloud_endpoints: Annotated[
        str,
        Meta(
            description="Addresses of clouds, if not the usual ones, such as tencent=https://cvm.internal,aws-ec2=http://10.0.0.5:5000."
        ),
    ] = ""
    instance_metadata: Annotated[
        bool,
        Meta(description="Allow cloud credentials from the metadata service of the machine it runs on (IMDS)."),
    ] = False
    interruption_queues: Annotated[
        str,
        Meta(
            description="SQS queues with EC2's interruption warnings, by region, such as us-east-1=https://sqs.us-east-1.amazonaws.com/1/spot; empty: none."
        ),
    ] = ""
    price_book: Annotated[
        str, Meta(description="File with prices of nodes, beside the ConfigMap headroom-prices; empty: none.")
    ] = ""

    bandwidth_mode: Annotated[
        Mode, Meta(description="How pods are placed by bandwidth; Off: bandwidth is only accounted.")
    ] = "Off"
    bandwidth_egress_annotations: Annotated[
        str,
        Meta(
            description="Annotations by which pods request egress bandwidth, in bits per second, or with =Mbps; the first one that a pod has counts."
        ),
    ] = "kubernetes.io/egress-bandwidth,ovn.kubernetes.io/egress_rate=Mbps"
    bandwidth_ingress_annotations: Annotated[str, Meta(description="The same for ingress bandwidth.")] = (
        "kubernetes.io/ingress-bandwidth,ovn.kubernetes.io/ingress_rate=Mbps"
    )
    bandwidth_defaults: Annotated[
        str, Meta(description="The default request of pods without annotations, up/down, such as 20M/20M; empty: none.")
    ] = ""
    bandwidth_local: Annotated[str, Meta(description="The default capacity of a node's virtual switch, up/down.")] = (
        "20G/20G"
    )
    bandwidth_network: Annotated[str, Meta(description="The default capacity of a node's network card, up/down.")] = (
        "1G/1G"
    )
    bandwidth_siblings: Annotated[
        bool, Meta(description="Treat all pods as if annotated for traffic with siblings only.")
    ] = False
    bandwidth_device_plugin_labels: Annotated[
        str, Meta(description="Labels, any of which attests that a node has a device plugin; native mode needs one.")
    ] = "nvidia.com/gpu.deploy.device-plugin=true,headroom.dev/device-plugin=true"

    def shown(self) -> dict[str, Any]:
        """The settings as they may be printed: secrets are not."""
        out: dict[str, Any] = msgspec.to_builtins(self)
        for name in secret_fields():
            if out[name]:
                out[name] = "(set, not shown)"
        return out


def secret_fields() -> list[str]:
    """The fields that are never printed."""
    info = msgspec.inspect.type_info(Settings)
    assert isinstance(info, msgspec.inspect.StructType)
    return [
        field.name
        for field in info.fields
        if isinstance(field.type, msgspec.inspect.Metadata) and (field.type.extra or {}).get(HIDDEN)
    ]


def load(flags: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Settings:
    """Settings from flags (those that are not None), else the environment, else the defaults."""
    known = {name: PREFIX + name.upper() for name in Settings.__struct_fields__}
    refuse_password(flags.get("ledger_url"), "--ledger-url", "set HEADROOM_LEDGER_URL instead")
    found: dict[str, Any] = {name: environment[old] for old, name in EARLIER.items() if old in environment}
    found |= {name: environment[variable] for name, variable in known.items() if variable in environment}
    found |= {name: value for name, value in flags.items() if value is not None}
    for name, value in found.items():
        if value in ("true", "false"):
            found[name] = value == "true"
    try:
        settings = msgspec.convert(found, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise Misconfigured(f"reading the settings: {_named(str(error), found)}") from None
    _refuse_misspelt(environment, {*known.values(), *EARLIER})
    for name in ADDRESSES:
        _check_address(name, getattr(settings, name))
    for name in PAIRS:
        pairs_of(name, getattr(settings, name))
    from headroom.runtime.bandwidth_settings import rules_of  # noqa: PLC0415 - it takes the plans, and --help must be quick

    rules_of(settings)
    from headroom.runtime.dashboard_settings import presentation_of  # noqa: PLC0415 - it takes the kinds, and --help must be quick

    presentation_of(settings)
    accepted = settings.accept_history_loss_before
    if accepted and times.moment(accepted) is None:
        raise Misconfigured(
            f"reading the settings: {_spoken('accept_history_loss_before')} must be a time such as 2026-01-31T00:00:00Z, "
            f"not {accepted!r}"
        )
    if settings.identity:
        return settings
    return msgspec.structs.replace(settings, identity=f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}")


def refuse_password(url: str | None, flag: str, instead: str) -> None:
    """Everybody on a machine can read the arguments of every process on it; nothing of the URL is repeated here either."""
    if url and _has_password(url):
        raise Misconfigured(
            f"reading the flags: {flag} has a password in it, and every user of this machine can read the arguments of a "
            f"process; {instead}, or leave the password out and keep it in a file (PGPASSFILE)"
        )


def _has_password(url: str) -> bool:
    if url.startswith("sqlite:"):
        return False
    place, _, query = url.partition("?")
    # The last @ ends the user and the password: some write them with signs that stand for themselves.
    user, at, _ = place.partition("://")[2].rpartition("@")
    named = (pair.partition("=") for pair in re.split("[&;]", query))
    keys = {unquote(name).strip().lower() for name, _, value in named if value}
    return bool(at and user.partition(":")[2]) or bool(keys & {"password", "sslpassword"})


def _refuse_misspelt(environment: Mapping[str, str], known: set[str]) -> None:
    """A setting with a slip in its name would be silently ignored. Other variables are not ours: Kubernetes itself sets some."""
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known:
            import difflib  # noqa: PLC0415  only for a slip

            meant = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
            if meant:
                raise Misconfigured(f"reading the settings: {name}: no such setting; {meant[0]} is one")


def _check_address(name: str, address: str) -> None:
    found = _ADDRESS.fullmatch(address)
    if address and (found is None or int(found[1]) >= 65536):
        raise Misconfigured(
            f"reading the settings: {_spoken(name)} must be host:port such as 0.0.0.0:8443, not {address!r}"
        )


def pairs_of(name: str, text: str) -> dict[str, str]:
    """A setting of the form key=value,key=value."""
    found: dict[str, str] = {}
    for each in filter(None, (part.strip() for part in text.split(","))):
        key, equals, value = (part.strip() for part in each.partition("="))
        if not (key and equals and value) or key in found:
            raise Misconfigured(
                f"reading the settings: {_spoken(name)} must be a list such as key=value,key=value with each key once, not {text!r}"
            )
        found[key] = value
    return found


def pool_namespaces(settings: Settings) -> dict[str, tuple[str, ...]]:
    """By Spotpool, namespace/name: the namespaces beside its own whose pods it may serve; `*` for all."""
    listed = pairs_of("pool_namespaces", settings.pool_namespaces)
    return {pool: tuple(part.strip() for part in value.split("+") if part.strip()) for pool, value in listed.items()}


def _spoken(name: str) -> str:
    """A setting as people know it: the flag and the variable."""
    return f"--{name.replace('_', '-')} ({PREFIX}{name.upper()})"


def _named(message: str, given: Mapping[str, Any]) -> str:
    """What is wrong, in our words: msgspec ends its messages in the path `$.log_level`."""
    text, _, path = message.partition(" - at `$.")
    name = path.rstrip("`")
    info = msgspec.inspect.type_info(Settings)
    assert isinstance(info, msgspec.inspect.StructType)
    for field in info.fields:
        if field.name == name:
            # The limits are named only where a number was given that is beyond them.
            limits = not text.endswith(("got `str`", "got `bool`"))
            return f"{_spoken(name)} must be {_wanted(field.type, limits=limits)}, not {given[name]!r}"
    return text


def _wanted(type_: msgspec.inspect.Type, *, limits: bool) -> str:
    if isinstance(type_, msgspec.inspect.Metadata):
        type_ = type_.type
    if isinstance(type_, msgspec.inspect.LiteralType):
        return "one of " + ", ".join(str(value) or "(empty)" for value in type_.values)
    if isinstance(type_, msgspec.inspect.BoolType):
        return "true or false"
    if isinstance(type_, (msgspec.inspect.IntType, msgspec.inspect.FloatType)):
        noun = "a whole number" if isinstance(type_, msgspec.inspect.IntType) else "a number"
        ends = (("greater than", type_.gt), ("at least", type_.ge), ("at most", type_.le))
        said = " and ".join(f"{words} {limit:g}" for words, limit in ends if limit is not None)
        return f"{noun} {said}" if said and limits else noun
    return "text"
