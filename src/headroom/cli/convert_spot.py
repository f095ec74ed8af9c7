"""A Spotpool of the older system as one of ours: its keys go into a Secret, its gateway into a field, and its habits into settings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from headroom.cli import spot_addresses

Json = Any

PLACE_OF_KEYS: Final = "credentialsSecretRef"
NAMESPACE: Final = "default"
"""Where kubectl puts what names no namespace, unless it is told otherwise."""
_KEYS: Final = {"secretId": "accessKeyId", "secretKey": "secretAccessKey"}
"""The keys of the older system, with what AWS calls them."""
_ALWAYS: Final = {"publicIp": True, "join": False}
"""What it did for every machine: a public address, and no node of any cluster."""
_KONG: Final = {"upstream": "llama2-upstream", "port": 8080, "path": "/api/chat", "route": "/ollama-chat"}
"""What its siblings wrote into every gateway."""
KONG_ADMIN_PORT: Final = 8001
_UNSET: Final[tuple[Json, ...]] = ("", None, [])


def changed(_: Json, spec: dict[str, Json]) -> Iterator[str]:
    """Change a spec so that the pool stays what it was; what a reader must know of it, a sentence each."""
    for key in [key for key, value in spec.items() if value in _UNSET and key not in _KEYS]:
        del spec[key]  # there, as in Go, nothing and empty meant the same
    address = spec.pop("kongGatewayIP", None)
    spec |= {key: value for key, value in _ALWAYS.items() if key not in spec}
    yield (
        "spec.publicIp: true and spec.join: false are what the older system did for every machine; leave them out for "
        "machines that join this cluster"
    )
    yield "its machines had one fixed password; ours have none, so name SSH keys of the cloud in spec.keyIds"
    yield "machines that the older system launched carry no tags of ours: they are neither counted nor ended, so end them yourself"
    if address is not None:
        spec["gateway"] = {"adminUrl": f"http://{address}:{KONG_ADMIN_PORT}"} | _KONG
        yield f"spec.kongGatewayIP is spec.gateway now, with Kong's usual admin port {KONG_ADMIN_PORT}"


def without_plain_keys(pool: dict[str, Json]) -> list[Json]:
    """A pool, after the Secret that its keys moved into if it had any."""
    from headroom.api.marks import USABLE_BY

    spec, metadata = dict(_mapping(pool, "spec")), _mapping(pool, "metadata")
    keys = {key: spec.pop(key) for key in _KEYS if key in spec}
    if not any(keys.values()):
        return [pool | {"spec": spec}] if keys else [pool]
    name = f"{metadata.get('name', 'spotpool')}-credentials"
    place = {"name": name} | {key: metadata[key] for key in ("namespace",) if key in metadata}
    provider = str(spec.get("provider", "tencent"))
    host = spot_addresses.cloud_address(provider, str(spec.get("region", "")))
    if host:
        place["annotations"] = {
            USABLE_BY: f"Spotpool/{metadata.get('namespace', NAMESPACE)}/{metadata.get('name', 'spotpool')}@{host}"
        }
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": place,
        "type": "Opaque",
        "stringData": {_KEYS[key] if provider == "aws" else key: str(value) for key, value in keys.items() if value},
    }
    return [secret, pool | {"spec": {PLACE_OF_KEYS: {"name": name}} | spec}]


def hints(documents: list[Json]) -> Iterator[str]:
    """What else has to be done so that pools may use their Secrets."""
    for each in documents:
        if each.get("kind") == "Spotpool" and PLACE_OF_KEYS in _mapping(each, "spec"):
            namespace = _mapping(each, "metadata").get("namespace")
            where = namespace or NAMESPACE
            secret = _mapping(_mapping(each, "spec"), PLACE_OF_KEYS).get("name")
            if not namespace:
                yield f"Secret {secret}: its annotation names the pool in namespace {NAMESPACE}; change it if you apply the pool elsewhere"
            yield (
                f"the operator may read Secret {where}/{secret} once a Role of that namespace lets it get the Secret by name: "
                f"kubectl create role headroom-secrets -n {where} --verb=get --resource=secrets --resource-name={secret}, "
                "then bind it to the operator's account (docs/spot-pools.md)"
            )


def _mapping(document: Json, key: str) -> dict[str, Json]:
    value = document.get(key) if isinstance(document, dict) else None
    return value if isinstance(value, dict) else {}
