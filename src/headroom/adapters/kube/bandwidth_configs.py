"""Reads and writes the one BandwidthConfig, from which the API server's own policies know our settings."""

from __future__ import annotations

from typing import Any

import msgspec

from headroom.adapters.kube import errors, paths, raw
from headroom.adapters.kube.changing import TRIES
from headroom.adapters.kube.client import Kube
from headroom.api.bandwidth_config import CONFIG_NAME, BandwidthConfig, BandwidthConfigSpec
from headroom.api.resources import API_VERSION, GROUP, VERSION
from headroom.model.bandwidth_facts import KnownBandwidthConfig


def path(name: str = "") -> str:
    """All of them, or one."""
    return paths.of(GROUP, VERSION, BandwidthConfig.kind.plural, name=name)


def config_of(document: dict[str, Any]) -> KnownBandwidthConfig:
    """A BandwidthConfig. One that nobody can read has no content, and is written anew."""
    meta = raw.fitted(document, raw.Object).metadata or raw.RawObjectMeta()
    name = meta.name or ""
    try:
        spec = msgspec.convert(document.get("spec"), BandwidthConfigSpec)
    except (msgspec.ValidationError, ValueError):  # the latter for text that is none
        spec = None
    return KnownBandwidthConfig(
        name=name, uid=meta.uid or name, resource_version=meta.resource_version or "", spec=spec
    )


async def apply(kube: Kube, wanted: BandwidthConfigSpec) -> None:
    """Make them say this; nothing is written if they do already."""
    for left in reversed(range(TRIES)):
        found = await _read(kube)
        if found is not None and found.spec == wanted:
            return
        try:
            if found is None:
                await kube.create(path(), _document({"name": CONFIG_NAME}, wanted))
            else:
                metadata = {"name": CONFIG_NAME, "uid": found.uid, "resourceVersion": found.resource_version}
                await kube.replace(path(CONFIG_NAME), _document(metadata, wanted))
        except (errors.Conflict, errors.AlreadyExists, errors.NotFound):
            if not left:
                raise
        else:
            return


async def _read(kube: Kube) -> KnownBandwidthConfig | None:
    """The settings as they are now."""
    try:
        body = await kube.get(path(CONFIG_NAME))
    except errors.NotFound as problem:
        if not errors.says_gone(problem, CONFIG_NAME):
            raise
        return None
    return config_of(msgspec.json.decode(body))


def _document(metadata: dict[str, str], spec: BandwidthConfigSpec) -> dict[str, Any]:
    kind = BandwidthConfig.kind.name
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": msgspec.to_builtins(spec)}
