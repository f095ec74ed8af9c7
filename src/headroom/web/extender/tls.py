"""The extender's own certificate, which kube-scheduler can verify. A Secret keeps it across restarts.

An authority signs it; kube-scheduler's configuration names only that authority. The certificate itself is short-lived. The first process
that notices renews it after two thirds of its life; all processes read it from the Secret.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from headroom.model.errors import HeadroomError
from headroom.model.ports import Clock
from headroom.runtime.logs import Log
from headroom.web import certificate

VALID: Final = timedelta(days=90)
AUTHORITY_VALID: Final = timedelta(days=3650)
"""Long, because kube-scheduler's configuration names the authority."""
LOOK_SECONDS: Final = 60.0
EARLY: Final = timedelta(hours=1)
"""Valid from before now, since clocks differ."""
Key = ec.EllipticCurvePrivateKey


class Pair(Struct, frozen=True):
    """The content of the Secret, as PEM."""

    authority: str
    authority_key: str
    certificate: str
    key: str

    @property
    def shown(self) -> bytes:
        """The certificate that a server presents, with its key."""
        return (self.key + self.certificate).encode()


class CertificateStore(Protocol):
    """Storage for the pair."""

    async def read(self) -> Pair | None:
        """The pair; None if there is none yet, or it cannot be parsed."""
        ...

    async def write(self, pair: Pair) -> None:
        """Replace the pair that was read last. Raises a `HeadroomError` if another process was faster."""
        ...


def made(names: tuple[str, ...], now: datetime, before: Pair | None = None) -> Pair:
    """A new certificate, signed by the previous authority, or by a new one."""
    if before is None:
        authority_key = ec.generate_private_key(ec.SECP256R1())
        authority = _built("headroom-extender-ca", authority_key, (), now, AUTHORITY_VALID, None)
    else:
        loaded = serialization.load_pem_private_key(before.authority_key.encode(), None)
        assert isinstance(loaded, Key)
        authority_key, authority = loaded, x509.load_pem_x509_certificate(before.authority.encode())
    key = ec.generate_private_key(ec.SECP256R1())
    shown = _built("headroom-extender", key, names, now, VALID, (authority, authority_key))
    return Pair(_pem(authority), _key_pem(authority_key), _pem(shown), _key_pem(key))


def is_due(pair: Pair, names: tuple[str, ...], now: datetime) -> bool:
    """Whether two thirds of its life are over, or it has not begun since a clock was wrong, or it lacks one of the names."""
    found = x509.load_pem_x509_certificate(pair.certificate.encode())
    begin, life = found.not_valid_before_utc, found.not_valid_after_utc - found.not_valid_before_utc
    alternatives = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    has_all = set(names) <= set(alternatives.get_values_for_type(x509.DNSName))
    return not (has_all and begin <= now < begin + life * 2 / 3)


def is_readable(pair: Pair) -> bool:
    """Whether all four parts can be parsed."""
    try:
        serialization.load_pem_private_key(pair.authority_key.encode(), None)
        x509.load_pem_x509_certificate(pair.authority.encode())
        is_due(pair, (), datetime.now(UTC))
        certificate.Context(ssl.PROTOCOL_TLS_SERVER).present(pair.shown)
    except (ValueError, TypeError, ssl.SSLError, x509.ExtensionNotFound):
        return False
    return True


async def kept(store: CertificateStore, names: tuple[str, ...], now: datetime) -> Pair:
    """The pair that all processes present; created or renewed if that is due."""
    found = await store.read()
    if found is not None and not is_readable(found):
        found = None
    if found is not None and not is_due(found, names, now):
        return found
    fresh = made(names, now, found)
    try:
        await store.write(fresh)
    except HeadroomError:
        # Another process was faster, or we may not write: the stored pair counts.
        other = await store.read()
        if other is None or not is_readable(other):
            raise
        return other
    return fresh


async def follow(
    tls: certificate.Context, store: CertificateStore, names: tuple[str, ...], clock: Clock, log: Log
) -> None:
    """Present the pair in the Secret, and follow its changes. Never returns."""
    shown = b""
    while True:
        await clock.sleep(LOOK_SECONDS)
        try:
            found = await kept(store, names, datetime.now(UTC))
            if found.shown != shown:
                tls.present(found.shown)
                shown = found.shown
        except (HeadroomError, ssl.SSLError) as problem:
            log.warning("cannot renew the extender's certificate", why=str(problem))


def _built(
    name: str,
    key: Key,
    names: tuple[str, ...],
    now: datetime,
    valid: timedelta,
    signer: tuple[x509.Certificate, Key] | None,
) -> x509.Certificate:
    """A server's certificate, or without a signer an authority's."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer = signer[0].subject if signer is not None else subject
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLY)
        .not_valid_after(now + valid)
        .add_extension(x509.BasicConstraints(ca=signer is None, path_length=None), critical=True)
    )
    if signer is not None:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(each) for each in dict.fromkeys(names)]), critical=False
        ).add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    return builder.sign(signer[1] if signer is not None else key, hashes.SHA256())


def _pem(found: x509.Certificate) -> str:
    return found.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: Key) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
