"""How the process runs: one typed object from environment and flags, printed at start. What to do is in resources, not here."""

from __future__ import annotations

import difflib
import os
import re
import socket
import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Struct

from headroom.model import times
from headroom.model.errors import Misconfigured

PREFIX = "HEADROOM_"
HIDDEN = "headroom-hidden"
ADDRESSES = ("metrics_address", "health_address")
PAIRS = ("pool_namespaces", "cloud_endpoints", "interruption_queues")
_ADDRESS = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*):([0-9]{1,5})")


class Settings(Struct, frozen=True, kw_only=True):
    """Every knob of the process. The environment variable of `log_level` is HEADROOM_LOG_LEVEL; a flag wins over it."""

    kubeconfig: Annotated[
        str, Meta(description="Path of a kubeconfig; empty: KUBECONFIG, in-cluster, or the home folder.")
    ] = ""
    context: Annotated[str, Meta(description="Context of the kubeconfig; empty: its current one.")] = ""
    namespace: Annotated[str, Meta(description="The operator's own namespace.")] = "headroom-system"
    cluster_id: Annotated[str, Meta(description="Names this cluster on cloud objects; empty: kube-system's uid.")] = ""
    identity: Annotated[
        str, Meta(description="Name of this process in the lease; empty: host name and a random part.")
    ] = ""
    lease_name: Annotated[str, Meta(description="Name of the lease.")] = "headroom"
    elect_leader: Annotated[bool, Meta(description="False only where there is surely one process.")] = True
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
    metrics_plain: Annotated[bool, Meta(description="Serve them over plain HTTP and to everyone.")] = False
    metrics_certificate: Annotated[str, Meta(description="PEM file; empty: a self-signed one is made at start.")] = ""
    metrics_key: Annotated[str, Meta(description="PEM file of the certificate's key.")] = ""
    health_address: Annotated[str, Meta(description="host:port of /healthz and /readyz; empty: none.")] = "0.0.0.0:8081"
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Meta(description="What is logged.")] = "info"
    log_format: Annotated[Literal["", "json", "text"], Meta(description="Empty: text on a terminal, else json.")] = ""
    state_dir: Annotated[
        str, Meta(description="Folder for what must outlive the process: the ledger's file, or the queue before it.")
    ] = "~/.local/state/headroom"
    ledger_url: Annotated[
        str,
        Meta(
            description="Where usage is kept: a path, sqlite:///PATH or postgresql://...; empty: ledger.db in state_dir.",
            extra={HIDDEN: True},
        ),
    ] = ""
    accept_history_loss_before: Annotated[
        str,
        Meta(
            description="A time such as 2026-01-31T00:00:00Z: go on with a ledger without history if the budgets' usage is older."
        ),
    ] = ""
    allow_egress: Annotated[
        str,
        Meta(
            description="Where calls that resources ask for may go, such as https://power-api.example.com,wol://10.0.7.255; empty: nowhere."
        ),
    ] = ""
    allow_insecure_secrets: Annotated[
        bool,
        Meta(
            description="Let a pool say whom to believe even beside a Secret: redfish.insecure and redfish.certificateAuthority."
        ),
    ] = False
    orphan_policy: Annotated[
        Literal["Report", "Terminate"],
        Meta(
            description="What becomes of cloud machines of this cluster that no Spotpool owns, an hour after they are first seen."
        ),
    ] = "Report"
    pool_namespaces: Annotated[
        str,
        Meta(
            description="Whose pods a Spotpool may serve beside its own namespace's, such as team-a/spot=team-b+team-c,lab/spot=*; empty: nobody's."
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
            description="Where clouds are reached if not at their usual addresses, such as tencent=https://cvm.internal,aws-ec2=http://10.0.0.5:5000."
        ),
    ] = ""
    interruption_queues: Annotated[
        str,
        Meta(
            description="SQS queues with EC2's interruption warnings, by region, such as us-east-1=https://sqs.us-east-1.amazonaws.com/1/spot; empty: none."
        ),
    ] = ""
    price_book: Annotated[
        str, Meta(description="File with prices of nodes, beside the ConfigMap headroom-prices; empty: none.")
    ] = ""

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
    found: dict[str, Any] = {name: environment[variable] for name, variable in known.items() if variable in environment}
    found |= {name: value for name, value in flags.items() if value is not None}
    for name, value in found.items():
        if value in ("true", "false"):
            found[name] = value == "true"
    try:
        settings = msgspec.convert(found, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise Misconfigured(f"reading the settings: {_named(str(error), found)}") from None
    _refuse_misspelt(environment, set(known.values()))
    for name in ADDRESSES:
        _check_address(name, getattr(settings, name))
    for name in PAIRS:
        pairs_of(name, getattr(settings, name))
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
