"""The certificate of our HTTPS server: the one that is given, or a self-signed one made at start and kept nowhere."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headroom.model.errors import Misconfigured
from headroom.model.ports import Clock

LOOK_SECONDS: Final = 30.0
VALID: Final = timedelta(days=3650)
"""Nobody can verify a self-signed certificate by its dates, and none must run out under a process that nobody restarts."""


def context(certificate: str, key: str, names: tuple[str, ...]) -> ssl.SSLContext:
    """TLS with the certificate in a PEM file (its key there too, or in `key`), or with a self-signed one for `names`."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    if not certificate:
        if key:
            raise Misconfigured(
                "reading the certificate: HEADROOM_METRICS_KEY is set; set HEADROOM_METRICS_CERTIFICATE too"
            )
        _load_self_signed(tls, names)
        return tls
    try:
        # An encrypted key must fail, not ask at the terminal.
        tls.load_cert_chain(certificate, key or None, password=b"")
    except (OSError, ssl.SSLError) as error:
        raise Misconfigured(
            f"reading the certificate {certificate}: {error.strerror or error}; "
            "give a PEM file and its own key (metrics_certificate, metrics_key)"
        ) from error
    return tls


async def follow(tls: ssl.SSLContext, certificate: str, key: str, clock: Clock) -> None:
    """Read the given files again whenever they change, so that a renewed certificate needs no restart. Never returns."""
    known = _changed_at(certificate, key)
    while True:
        await clock.sleep(LOOK_SECONDS)
        found = _changed_at(certificate, key)
        if found == known:
            continue
        # The two files change one after the other: a pair that does not fit yet is read again next time.
        with contextlib.suppress(OSError, ssl.SSLError):
            tls.load_cert_chain(certificate, key or None, password=b"")
            known = found


def _changed_at(*files: str) -> list[int]:
    return [os.stat(file).st_mtime_ns if file and os.path.exists(file) else 0 for file in files]  # noqa: PTH110, PTH116  text paths


def _load_self_signed(tls: ssl.SSLContext, names: tuple[str, ...]) -> None:
    # The ssl module takes certificates from files only. This one is readable by us alone and gone again at once.
    handle, path = tempfile.mkstemp(prefix="headroom-")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(self_signed((*names, "localhost", socket.gethostname())))
        tls.load_cert_chain(path)
    finally:
        os.unlink(path)  # noqa: PTH108  beside mkstemp


def self_signed(names: tuple[str, ...]) -> bytes:
    """A fresh key with its certificate, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headroom")])
    now = datetime.now(UTC)
    distinct = dict.fromkeys(each for each in names if each)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in distinct]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + built.public_bytes(serialization.Encoding.PEM)
