"""A certificate authority for the tests, and the keys and certificates it signs."""

from __future__ import annotations

import base64
import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=2)


class Authority:
    """Writes `ca.crt` into a folder and signs pairs `NAME.crt`, `NAME.key` beside it."""

    def __init__(self, folder: Path, name: str = "headroom-test-ca", of: Authority | None = None) -> None:
        """One that signs itself, or an intermediate one `of` another."""
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name, [])
        above = of or self
        self.file = folder / "ca.crt"
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = _builder(self._name, above._name, self._key.public_key(), above._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        certificate = builder.add_extension(usage, critical=True).sign(above._key, hashes.SHA256())
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, name: str) -> tuple[Path, Path]:
        """Certificate and key files of a server on 127.0.0.1."""
        hosts = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        return self._pair(name, _name(name, []), ExtendedKeyUsageOID.SERVER_AUTH, hosts)

    def client(self, user: str, groups: list[str], lifetime: timedelta = LIFETIME) -> tuple[Path, Path]:
        """Certificate and key files by which the API server knows a user and its groups."""
        return self._pair(user, _name(user, groups), ExtendedKeyUsageOID.CLIENT_AUTH, None, lifetime)

    def _pair(
        self,
        name: str,
        subject: x509.Name,
        usage: x509.ObjectIdentifier,
        hosts: x509.SubjectAlternativeName | None,
        lifetime: timedelta = LIFETIME,
    ) -> tuple[Path, Path]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._name, key.public_key(), self._key.public_key(), lifetime)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if hosts is not None:
            builder = builder.add_extension(hosts, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        certificate_file, key_file = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(key, key_file)
        return certificate_file, key_file


def key_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Public and private key files, for service account tokens."""
    key = ec.generate_private_key(ec.SECP256R1())
    public_file, private_file = folder / f"{name}.pub", folder / f"{name}.key"
    public_file.write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    _write_key(key, private_file)
    return public_file, private_file


def _write_key(key: ec.EllipticCurvePrivateKey, file: Path) -> None:
    file.touch(mode=0o600)
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )


def _name(common: str, groups: list[str]) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    names = [x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else []
    return x509.Name([*organizations, *names])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    lifetime: timedelta = LIFETIME,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    # Key identifiers, because Python 3.13 and later refuse a chain without them.
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def certified(pair: tuple[Path, Path]) -> dict[str, str]:
    """A certificate and its key, as a kubeconfig has a user's."""
    certificate, key = map(encoded, pair)
    return {"client-certificate-data": certificate, "client-key-data": key}


def encoded(file: Path) -> str:
    """As a kubeconfig has a file."""
    return base64.b64encode(file.read_bytes()).decode()
