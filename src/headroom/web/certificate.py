"""How our server speaks TLS: which certificate it shows, a given or a self-signed one, and whose certificates it takes from clients."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec import Struct

from headroom.model.errors import Misconfigured
from headroom.model.ports import Clock

LOOK_SECONDS: Final = 30.0
VALID: Final = timedelta(days=3650)
"""Nobody can verify a self-signed certificate by its dates, and none must run out under a process that nobody restarts."""


class Shown(Struct, frozen=True):
    """What a client's certificate, which was verified, says about its owner."""

    der: bytes
    name: str
    """The common name; to an API server, the user."""
    groups: tuple[str, ...]
    """The organizations; to an API server, the groups."""


class Context(ssl.SSLContext):
    """TLS of a server whose trust in client certificates can be replaced while it serves.

    OpenSSL can add to what a context trusts, but takes nothing away. So each set of authorities has a context of its own, and every
    new connection is handed to the one in force.
    """

    retired = False
    """Whether other authorities are in force by now, so that a certificate which was verified here proves nothing any more."""
    in_force: Context | None = None
    _pem: bytes

    def present(self, pem: bytes) -> None:
        """Show this certificate, with its key beside it, from now on. Raises `ssl.SSLError`, and changes nothing, if it is none."""
        _load(_bare(), pem)
        self._pem = pem
        for each in (self, self.in_force):
            if each is not None:
                _load(each, pem)

    @property
    def shown_pem(self) -> str:
        """The certificate without its key."""
        return x509.load_pem_x509_certificate(self._pem).public_bytes(serialization.Encoding.PEM).decode()

    def trust(self, authorities: str) -> None:
        """From now on take client certificates of these authorities (PEM) only; if there are none, ask for no certificate."""
        made = _bare()
        if authorities:
            try:
                # Comments beside the certificates may be in any language; Python takes ASCII only.
                made.load_verify_locations(cadata=authorities.encode("ascii", "ignore").decode())
            except (ssl.SSLError, ValueError) as problem:
                raise Misconfigured(
                    f"reading the authorities of clients: no PEM certificates in it ({problem})"
                ) from problem
        _load(made, self._pem)
        # A connection begins with this context, and keeps what it asks of clients when it is handed over.
        self.verify_mode = ssl.CERT_OPTIONAL if authorities else ssl.CERT_NONE
        if self.in_force is not None:
            self.in_force.retired = True
        self.in_force = made
        self.sni_callback = _hand_over


def _hand_over(connection: ssl.SSLObject | ssl.SSLSocket, _name: str | None, begun_with: ssl.SSLContext) -> None:
    assert isinstance(begun_with, Context)
    if begun_with.in_force is not None:
        connection.context = begun_with.in_force


def shown(connection: ssl.SSLObject | None) -> Shown | None:
    """The certificate that the client of a connection has shown, if it still holds."""
    if connection is None or not isinstance(connection.context, Context) or connection.context.retired:
        return None
    # Verified in the handshake, which fails otherwise: signed by an authority in force, for clients, within its dates.
    der = connection.getpeercert(binary_form=True)
    if not der:
        return None
    try:
        found = x509.load_der_x509_certificate(der)
        names = [str(each.value) for each in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        groups = [str(each.value) for each in found.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    except ValueError:
        return None  # OpenSSL is content with some that are not well-formed
    # A connection can outlive the certificate.
    if not names or not names[-1] or datetime.now(UTC) > found.not_valid_after_utc:
        return None
    return Shown(der, names[-1], tuple(groups))


def context(certificate: str, key: str, names: tuple[str, ...]) -> Context:
    """TLS with the certificate in a PEM file (its key there too, or in `key`), or with a self-signed one for `names`."""
    tls = _bare()
    if not certificate:
        if key:
            raise Misconfigured(
                "reading the certificate: HEADROOM_METRICS_KEY is set; set HEADROOM_METRICS_CERTIFICATE too"
            )
        tls.present(self_signed((*names, "localhost", socket.gethostname())))
        return tls
    try:
        tls.present(_read(certificate, key))
    except (OSError, ssl.SSLError) as error:
        raise Misconfigured(
            f"reading the certificate {certificate}: {error.strerror or error}; "
            "give a PEM file and its own key (metrics_certificate, metrics_key)"
        ) from error
    return tls


async def follow(tls: Context, certificate: str, key: str, clock: Clock) -> None:
    """Read the given files again whenever they change, so that a renewed certificate needs no restart. Never returns."""
    known = _changed_at(certificate, key)
    while True:
        await clock.sleep(LOOK_SECONDS)
        found = _changed_at(certificate, key)
        if found == known:
            continue
        # The two files change one after the other: a pair that does not fit yet is read again next time.
        with contextlib.suppress(OSError, ssl.SSLError):
            tls.present(_read(certificate, key))
            known = found


def _changed_at(*files: str) -> list[int]:
    return [_time_of(file) for file in files]


def _time_of(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns if file else 0
    except OSError:
        return 0  # it is being replaced


def _read(certificate: str, key: str) -> bytes:
    return b"\n".join(Path(file).read_bytes() for file in (certificate, key) if file)


def _bare() -> Context:
    tls = Context(ssl.PROTOCOL_TLS_SERVER)
    # Without tickets, version 1.3 resumes no session: the authorities in force verify the certificate of every connection.
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    tls.num_tickets = 0
    # An authority need not be a root to be trusted: the API server takes an intermediate one too.
    tls.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return tls


def _load(tls: ssl.SSLContext, pem: bytes) -> None:
    # The ssl module takes certificates from files only. This one is readable by us alone and gone again at once.
    handle, path = tempfile.mkstemp(prefix="headroom-")
    try:
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(pem)
        # An encrypted key must fail, not ask at the terminal.
        tls.load_cert_chain(path, password=b"")
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
