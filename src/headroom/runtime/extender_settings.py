"""How `headroom extender` runs: each field is a flag, and the environment variable HEADROOM_EXTENDER_ with its name."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

PREFIX = "HEADROOM_EXTENDER_"


class ExtenderSettings(Struct, frozen=True, kw_only=True):
    """Every knob of the extender's process that the operator does not have."""

    address: Annotated[str, Meta(description="host:port for kube-scheduler's calls.")] = "0.0.0.0:8444"
    health_address: Annotated[
        str, Meta(description="host:port of /healthz, /readyz and /metrics, in plain HTTP; empty: none.")
    ] = "0.0.0.0:8082"
    candidates: Annotated[
        int,
        Meta(
            ge=1,
            le=10,
            description="Nodes in an answer at most. With one, kube-scheduler's own scores do not count; each further one holds the bandwidth once more.",
        ),
    ] = 1
    hold_seconds: Annotated[int, Meta(ge=5, le=3600, description="How long a bind may take after the answer.")] = 60
    certificate: Annotated[
        str,
        Meta(
            description="PEM file, such as that of a mounted Secret; read again when it changes. Empty: one is created and kept in a Secret."
        ),
    ] = ""
    key: Annotated[str, Meta(description="PEM file of the certificate's key.")] = ""
    client_authority: Annotated[
        str, Meta(description="PEM file: only clients with a certificate of this authority are answered.")
    ] = ""
    client_names: Annotated[
        str,
        Meta(
            description="Common names in such certificates, separated by commas; other clients are refused. For an authority that also signs for others."
        ),
    ] = ""
    kept_in: Annotated[str, Meta(description="Name of the Secret for the created certificate.")] = (
        "headroom-extender-tls"
    )
    service: Annotated[str, Meta(description="Name of the Service by which kube-scheduler finds the extender.")] = (
        "headroom-extender"
    )
    plain: Annotated[bool, Meta(description="Plain HTTP, for an address that nobody else can reach.")] = False
    lease_name: Annotated[str, Meta(description="Name of its lease.")] = "headroom-extender"
