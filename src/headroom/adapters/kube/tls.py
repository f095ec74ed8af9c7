"""How a client speaks TLS with the server of a `ClientConfig`."""

from __future__ import annotations

import ssl
import tempfile
from typing import TYPE_CHECKING

from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.adapters.kube.config import ClientConfig


def tls_context(config: ClientConfig, certificate: bytes = b"", key: bytes = b"") -> ssl.SSLContext | None:
    """How to speak TLS with the server, None for plain HTTP; a certificate given here goes before the configured one."""
    if not config.server.startswith("https:"):
        return None
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not config.verify:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    elif config.authority is None:
        tls.load_default_certs()
    else:
        pem = config.authority.read()
        try:
            tls.load_verify_locations(cadata=pem.decode("ascii"))
        except (ssl.SSLError, ValueError) as problem:
            raise Misconfigured(f"reading {config.authority.label}: no PEM certificates in it ({problem})") from problem
    if certificate:
        _present(tls, certificate, key, "the certificate that the exec plugin printed")
    elif config.certificate and config.key:
        _present(tls, config.certificate.read(), config.key.read(), f"{config.certificate.label} and its key")
    return tls


def _present(tls: ssl.SSLContext, certificate: bytes, key: bytes, label: str) -> None:
    # The ssl module takes client certificates from files only; this one is gone again at once.
    with tempfile.NamedTemporaryFile(prefix="headroom-") as file:
        file.write(certificate.rstrip() + b"\n" + key)
        file.flush()
        try:
            # An encrypted key must fail, not ask at the terminal.
            tls.load_cert_chain(file.name, password=b"")
        except (ssl.SSLError, OSError) as problem:
            raise Misconfigured(
                f"reading {label}: they are not a PEM certificate with its key ({problem})"
            ) from problem
