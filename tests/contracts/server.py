"""The real side of the contract tests: a namespace of a kube-apiserver on loopback."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from headroom.adapters.kube.config import ClientConfig, Pem
from headroom.adapters.kube.http import HttpTransport
from headroom.adapters.kube.transport import Transport
from headroom.runtime.clock import RealClock
from tests.contracts.cluster import Cluster
from tests.control_plane import ControlPlane

ISSUER = "https://kubernetes.default.svc"


class ServerCluster(Cluster):
    """A namespace of a control plane that all tests share."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        super().__init__(namespace, RealClock())
        self.plane = plane
        self._transports: dict[str, HttpTransport] = {}

    def transport(self, user: str = "admin") -> Transport:
        if user not in self._transports:
            config = ClientConfig(
                source="the contract tests",
                server=self.plane.url,
                authority=Pem("the test authority", file=self.plane.ca_file),
                token=self.token(user),
            )
            self._transports[user] = HttpTransport(config, self.clock)
        return self._transports[user]

    def token(self, user: str) -> str:
        match user:
            case "expired":
                return expired_token(self.plane.folder / "accounts.key", self.clock.now() // 1000)
            case "unknown":
                return "token-of-a-stranger"
        return self.plane.token(user)

    async def compact(self) -> None:
        self.plane.compact()

    async def close(self) -> None:
        for transport in self._transports.values():
            await transport.close()
        await self.until(self._is_silent, "all connections are closed")

    async def _is_silent(self) -> bool:
        # TLS says good-bye after `close` has returned; a loop that ends before that would complain. Its own pipe stays.
        return len(asyncio.get_running_loop()._selector.get_map()) <= 1  # type: ignore[attr-defined]  # private to asyncio


def expired_token(key_file: Path, now: int) -> str:
    """A service account's token with the server's own signature that ended a minute ago."""
    account = {"name": "default", "uid": "00000000-0000-0000-0000-000000000000"}
    claims = {
        "iss": ISSUER,
        "aud": [ISSUER],
        "sub": "system:serviceaccount:default:default",
        "iat": now - 120,
        "nbf": now - 120,
        "exp": now - 60,
        "kubernetes.io": {"namespace": "default", "serviceaccount": account},
    }
    key = load_pem_private_key(key_file.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    signed = f"{_encoded({'alg': 'ES256', 'typ': 'JWT'})}.{_encoded(claims)}"
    r, s = utils.decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return f"{signed}.{_base64(signature)}"


def _encoded(document: dict[str, object]) -> str:
    return _base64(json.dumps(document).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
