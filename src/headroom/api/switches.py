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


class SecretKey(ApiType, frozen=True, kw_only=True):
    """One value of a Secret in the operator's own namespace; for a resource that has a namespace, in that one."""

    name: Annotated[str, object_name("The Secret's name.", hint="the name of a Secret")]
    key: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=253,
            pattern=r"^[-._a-zA-Z0-9]+$",
            description="Which of its values.",
            extra=extra(hint="a key of a Secret: letters, digits, '-', '_' and '.'"),
        ),
    ] = "token"


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
            description="Its value, if it is no secret.",
            extra=extra(hint="printable characters without line breaks"),
        ),
    ] = ""
    secret_key_ref: Annotated[SecretKey | None, Meta(description="Where its value stands, if it is a secret.")] = None
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            cel="!(has(self.secretKeyRef) && has(self.value) && self.value != '')",
            message="must not be given beside secretKeyRef",
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
        Meta(max_length=16, description="Which answers mean that it was accepted; none given: any 2xx."),
    ] = ()
    timeout_seconds: Annotated[int, Meta(ge=1, le=LONGEST_CALL_SECONDS, description="How long an answer may take.")] = 5


class Redfish(ApiType, frozen=True, kw_only=True):
    """The machine's BMC."""

    address: Annotated[Endpoint, Meta(description="Where the BMC answers, such as https://bmc-17.example.com.")]
    system: Annotated[
        str,
        Meta(
            max_length=256,
            pattern=r"^[-A-Za-z0-9_.:]*$",
            description="The id of the system behind the BMC; empty: the only one there is.",
            extra=extra(hint="the id of a system, such as 1 or System.Embedded.1"),
        ),
    ] = ""
    credentials_secret_ref: Annotated[
        SecretName | None,
        Meta(
            description="The Secret with username and password, and ca.crt for a BMC that signs for itself; its annotation headroom.dev/usable-by must name this pool and BMC. Without it the BMC is called without any."
        ),
    ] = None
    certificate_authority: Annotated[
        str, Meta(max_length=16384, description="PEM of who signed the BMC's certificate; empty: the usual ones.")
    ] = ""
    insecure: Annotated[
        bool,
        Meta(
            description="True: the BMC's certificate is not looked at; refused beside a Secret unless --allow-insecure-secrets is set."
        ),
    ] = False
    force: Annotated[bool, Meta(description="True: it is switched off at once, not shut down.")] = False


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
            description="Where the packet is sent: the broadcast address of the machine's network.",
            extra=extra(hint="an IPv4 address such as 10.0.7.255"),
        ),
    ] = "255.255.255.255"
    port: Annotated[int, Meta(ge=1, le=65535, description="The UDP port.")] = 9
