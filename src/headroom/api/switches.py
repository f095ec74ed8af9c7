"""How a machine is switched on and off: by calls to addresses, through its BMC (Redfish), or by Wake-on-LAN."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from msgspec import Meta

from headroom.api.resources import ApiType, object_name
from headroom.api.schema import Rule, extra

LONGEST_CALL_SECONDS: Final = 10

Endpoint = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=2048,
        pattern=(r"^https?://([A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?][!-~]*)?$"),
        extra=extra(
            hint="an http or https address without user name or spaces, such as http://power-api/worker-1/start"
        ),
    ),
]


ValueName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=253,
        pattern=r"^[-._a-zA-Z0-9]+$",
        description="Which of its values.",
        extra=extra(hint="a key of a Secret: letters, digits, '-', '_' and '.'"),
    ),
]


class SecretKey(ApiType, frozen=True, kw_only=True):
    """One value of a Secret in the operator's own namespace; for a resource that has a namespace, in that one."""

    name: Annotated[str, object_name("The Secret's name.", hint="the name of a Secret")]
    key: ValueName = "token"


class SecretName(ApiType, frozen=True, kw_only=True):
    """A Secret in the operator's own namespace with the keys username and password."""

    name: Annotated[str, object_name("The Secret's name.", hint="the name of a Secret")]


class Header(ApiType, frozen=True, kw_only=True):
    """One header of a call: a plain value, or one from a Secret."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=128,
            pattern=r"^[A-Za-z0-9][-A-Za-z0-9]*$",
            description="The header's name.",
            extra=extra(hint="the name of a header: letters, digits and '-'"),
        ),
    ]
    value: Annotated[
        str,
        Meta(
            max_length=1024,
            pattern=r"^[ -~]*$",
            description="Its value, if it is not secret.",
            extra=extra(hint="printable characters without line breaks"),
        ),
    ] = ""
    secret_key_ref: Annotated[SecretKey | None, Meta(description="The Secret with its value, if it is secret.")] = None
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(has(self.secretKeyRef) && has(self.value) && self.value != '')",
            message="cannot be combined with secretKeyRef",
            field="value",
            holds=lambda it: not (it.get("secretKeyRef") and it.get("value")),
        ),
        Rule(
            cel="!(self.name.lowerAscii() in ['host', 'content-length', 'transfer-encoding', 'connection', 'idempotency-key'])",
            message="is set by Headroom itself",
            field="name",
            holds=lambda it: (
                it["name"].lower()
                not in ("host", "content-length", "transfer-encoding", "connection", "idempotency-key")
            ),
        ),
    )


class Webhook(ApiType, frozen=True, kw_only=True):
    """What is sent to scaleUpEndpoint, scaleDownEndpoint and statusEndpoint, and which answer means yes."""

    headers: Annotated[
        tuple[Header, ...], Meta(max_length=16, description="Headers of every call.", extra=extra(map_key="name"))
    ] = ()
    token_secret_ref: Annotated[
        SecretKey | None,
        Meta(
            description="A token that is sent as `Authorization: Bearer`, if the Secret's annotation headroom.dev/usable-by names this pool and the host."
        ),
    ] = None
    body: Annotated[
        str,
        Meta(
            max_length=4096,
            description="The body of the POST; ${machine}, ${pool} and ${action} (wake or sleep) are put in as JSON text.",
        ),
    ] = "{}"
    expected_status: Annotated[
        tuple[Annotated[int, Meta(ge=200, le=299)], ...],
        Meta(max_length=16, description="The status codes that mean success; any 2xx if empty."),
    ] = ()
    timeout_seconds: Annotated[int, Meta(ge=1, le=LONGEST_CALL_SECONDS, description="The timeout of a call.")] = 5


class Redfish(ApiType, frozen=True, kw_only=True):
    """The machine's BMC."""

    address: Annotated[Endpoint, Meta(description="The address of the BMC, such as https://bmc-17.example.com.")]
    system: Annotated[
        str,
        Meta(
            max_length=256,
            pattern=r"^[-A-Za-z0-9_.:]*$",
            description="The id of the system behind the BMC; if empty, its only one.",
            extra=extra(hint="the id of a system, such as 1 or System.Embedded.1"),
        ),
    ] = ""
    credentials_secret_ref: Annotated[
        SecretName | None,
        Meta(
            description="The Secret with username and password, and ca.crt for a BMC with a self-signed certificate; its annotation headroom.dev/usable-by must name this pool and BMC. If absent, the BMC is called without credentials."
        ),
    ] = None
    certificate_authority: Annotated[
        str,
        Meta(
            max_length=16384,
            description="PEM of the authority that signed the BMC's certificate; if empty, the system's authorities.",
        ),
    ] = ""
    insecure: Annotated[
        bool,
        Meta(
            description="True: the BMC's certificate is not verified; refused together with a Secret unless --allow-insecure-secrets is set."
        ),
    ] = False
    force: Annotated[bool, Meta(description="True: power is cut at once instead of a graceful shutdown.")] = False


class WakeOnLan(ApiType, frozen=True, kw_only=True):
    """The magic packet that wakes the machine."""

    mac: Annotated[
        str,
        Meta(
            min_length=17,
            max_length=17,
            pattern=r"^([0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}$",
            description="The network card's address.",
            extra=extra(hint="an address such as 0a:1b:2c:3d:4e:5f"),
        ),
    ]
    address: Annotated[
        str,
        Meta(
            min_length=7,
            max_length=15,
            pattern=r"^[0-9]{1,3}(\.[0-9]{1,3}){3}$",
            description="The broadcast address of the machine's network.",
            extra=extra(hint="an IPv4 address such as 10.0.7.255"),
        ),
    ] = "255.255.255.255"
    port: Annotated[int, Meta(ge=1, le=65535, description="The UDP port.")] = 9
