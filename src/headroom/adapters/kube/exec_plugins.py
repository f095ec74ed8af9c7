"""Programs that print credentials, as kubeconfig files name them."""

from __future__ import annotations

import asyncio
import base64
import os
from typing import Any, Final

import msgspec

from headroom.adapters.kube.config import ClientConfig, ExecPlugin
from headroom.model.errors import Misconfigured, Unavailable

PLUGIN_SECONDS: Final = 60.0

Pair = tuple[bytes, bytes]
"""A certificate and its key."""


class Issued(msgspec.Struct, rename="camel"):
    """What a plugin printed."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""

    @property
    def pair(self) -> Pair:
        """Its certificate, if it has one."""
        return self.client_certificate_data.encode(), self.client_key_data.encode()


class _ExecCredential(msgspec.Struct, rename="camel"):
    api_version: str = ""
    status: Issued | None = None


async def run(plugin: ExecPlugin, config: ClientConfig) -> Issued:
    """Run a plugin, and read what it prints."""
    doing = f"running {plugin.label}"
    environment = {**os.environ, **dict(plugin.env), "KUBERNETES_EXEC_INFO": _exec_info(plugin, config)}
    pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            plugin.command, *plugin.args, stdin=nothing, stdout=pipe, stderr=pipe, env=environment
        )
    except OSError as problem:
        remedy = plugin.install_hint or "install it or correct exec.command"
        raise Misconfigured(f"{doing}: {problem.strerror}; {remedy}") from problem
    try:
        async with asyncio.timeout(PLUGIN_SECONDS):
            printed, complaints = await process.communicate()
    except TimeoutError as problem:
        raise Unavailable(f"{doing}: it did not end within {PLUGIN_SECONDS:g}s") from problem
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        last = complaints.decode("utf-8", "replace").strip().rpartition("\n")[2][:300]
        raise Unavailable(f"{doing}: it exited with {process.returncode}: {last or 'no output'}")
    return _issued(printed, plugin)


def _issued(printed: bytes, plugin: ExecPlugin) -> Issued:
    # What it printed never goes into a message: it holds the token.
    try:
        credential = msgspec.json.decode(printed, type=_ExecCredential)
    except msgspec.DecodeError as problem:
        raise Misconfigured(f"running {plugin.label}: it printed no ExecCredential; update the plugin") from problem
    issued = credential.status
    if credential.api_version != plugin.api_version:
        raise Misconfigured(
            f"running {plugin.label}: it speaks {credential.api_version!r}; set exec.apiVersion to that, or update the plugin"
        )
    if issued is None or not (issued.token or (issued.client_certificate_data and issued.client_key_data)):
        raise Misconfigured(
            f"running {plugin.label}: it printed neither a token nor a certificate with its key; log in again"
        )
    return issued


def _exec_info(plugin: ExecPlugin, config: ClientConfig) -> str:
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        cluster: dict[str, Any] = {"server": config.server, "insecure-skip-tls-verify": not config.verify}
        if config.server_name:
            cluster["tls-server-name"] = config.server_name
        if config.authority:
            cluster["certificate-authority-data"] = base64.b64encode(config.authority.read()).decode()
        spec["cluster"] = cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    return msgspec.json.encode(info).decode()
