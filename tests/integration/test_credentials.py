"""Credentials that end while we use them, against a real API server: a certificate and a token are renewed in their files."""

import asyncio
import base64
import json
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.config import ClientConfig, Pem
from headroom.adapters.kube.http import HttpTransport
from headroom.adapters.kube.leases import KubeLeases
from headroom.model.ports import Leases
from headroom.runtime.clock import RealClock
from headroom.runtime.leader_thread import LeaderThread
from tests.control_plane import ControlPlane
from tests.processes import PATIENCE_SECONDS


class HurriedClock(RealClock):
    """Renews the lease several times a second."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.1))


class Connected:
    """A client and a candidate for a lease, each with a connection of its own, and a watch that was there from the beginning."""

    def __init__(self, plane: ControlPlane, config: ClientConfig) -> None:
        self.config, self.kube = config, _kube(config)
        self.namespace = f"creds-{uuid4().hex[:8]}"
        plane.kubectl("create", "namespace", self.namespace)
        self.failures: list[BaseException] = []
        self.leader = LeaderThread(self._connect, HurriedClock(), "me", self.failures.append)
        self.seen: list[str] = []

    def _connect(self) -> tuple[Leases, Callable[[], Awaitable[None]]]:
        kube = _kube(self.config)
        return KubeLeases(kube, self.namespace, "lease"), kube.close

    async def watch(self) -> None:
        query = {"allowWatchBookmarks": "true", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
        path = paths.configmaps(self.namespace)
        async with aclosing(self.kube.watch(path, query=query, idle=PATIENCE_SECONDS)) as lines:
            async for line in lines:
                self.seen.append(json.loads(line)["object"]["metadata"].get("name", ""))

    async def write(self, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        await self.kube.create(paths.configmaps(self.namespace), body)

    async def renewed_at(self) -> str:
        lease = json.loads(await self.kube.get(paths.lease(self.namespace, "lease")))
        found: str = lease["spec"]["renewTime"]
        return found


def _kube(config: ClientConfig) -> Kube:
    return Kube(HttpTransport(config, RealClock()), RealClock(), random.Random(1))


@asynccontextmanager
async def connected(plane: ControlPlane, config: ClientConfig) -> AsyncIterator[Connected]:
    made = Connected(plane, config)
    watching = asyncio.create_task(made.watch())
    made.leader.start()
    try:
        await until(made.leader.may_act)
        yield made
        assert not watching.done()
        assert made.failures == []
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await made.leader.stop()
        await made.kube.close()


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not happened():  # noqa: ASYNC110  nobody here could set an event
            await asyncio.sleep(0.05)


async def until_refused(old: ClientConfig) -> None:
    """Who shows only what was there at the beginning is refused from now on."""
    kube = _kube(old)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await kube.get(paths.namespaces())
            except errors.Unauthorized:
                break
            await asyncio.sleep(0.1)
    await kube.close()


async def goes_on(us: Connected) -> None:
    """Writes, the lease and the watch go on as if nothing had been."""
    assert us.leader.may_act()
    await us.write("after")
    before = await us.renewed_at()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await us.renewed_at() == before:  # noqa: ASYNC110  nobody here could set an event
            await asyncio.sleep(0.05)
    await until(lambda: "after" in us.seen)
    assert us.leader.problem == ""


async def test_a_client_certificate_is_renewed_in_its_files(control_plane: ControlPlane, tmp_path: Path) -> None:
    user, groups = f"renewed-{uuid4().hex[:8]}", ["system:masters"]
    certificate, key = control_plane.client_files(user, groups, timedelta(seconds=5))

    def config(certificate: Path, key: Path) -> ClientConfig:
        return ClientConfig(
            source="a test",
            server=control_plane.url,
            authority=Pem("authority", file=control_plane.ca_file),
            certificate=Pem("certificate", file=certificate),
            key=Pem("key", file=key),
        )

    old = [tmp_path / each.name for each in (certificate, key)]
    for copy, file in zip(old, (certificate, key), strict=True):
        copy.write_bytes(file.read_bytes())
    async with connected(control_plane, config(certificate, key)) as us:
        await us.write("before")
        control_plane.client_files(user, groups)
        await until_refused(config(*old))
        await goes_on(us)


async def test_the_token_of_a_service_account_is_renewed_in_its_file(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    account = {"name": f"renewed-{uuid4().hex[:8]}", "namespace": "default"}
    control_plane.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account})
    control_plane.kubectl(
        *("create", "clusterrolebinding", account["name"], "--clusterrole=cluster-admin"),
        f"--serviceaccount=default:{account['name']}",
    )

    def token() -> str:
        return control_plane.kubectl("create", "token", account["name"], "--duration=10m").strip()

    file = tmp_path / "token"
    # The server gives tokens for ten minutes and more, and takes one for a minute after its end.
    short = shortened(token(), control_plane.folder / "accounts.key", timedelta(seconds=-55))
    file.write_text(short)
    authority = Pem("authority", file=control_plane.ca_file)

    def config(**more: Any) -> ClientConfig:
        return ClientConfig(source="a test", server=control_plane.url, authority=authority, **more)

    async with connected(control_plane, config(token_file=file)) as us:
        await us.write("before")
        renewed = tmp_path / "renewed"
        renewed.write_text(token())
        renewed.rename(file)
        await until_refused(config(token=short))
        await goes_on(us)


def shortened(token: str, key_file: Path, lasts: timedelta) -> str:
    """The same token, signed by the same key, with another end."""
    head, body, _ = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    claims |= {"exp": int(time.time() + lasts.total_seconds()), "iat": int(time.time()) - 3600, "nbf": 0}
    signed = f"{head}.{_base64(json.dumps(claims).encode())}"
    key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    parts = decode_dss_signature(key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    return f"{signed}.{_base64(b''.join(part.to_bytes(32, 'big') for part in parts))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
