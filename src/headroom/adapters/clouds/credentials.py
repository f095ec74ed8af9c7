"""With which keys a Spotpool's cloud is called: those of a Secret of its own namespace that names the pool, read for each call.

Whoever may write a Spotpool could else use every Secret of the namespace, or have it sent to a host of their choice. The process's
own credentials are for pools of those namespaces only that an administrator lists.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct

from headroom.adapters.clouds.providers import LONGEST_USER_DATA, BadCredentials, Keys
from headroom.adapters.usable_by import Secret, Use, check_usable
from headroom.api.kinds import AnyResource
from headroom.api.spot_pools import SpotpoolSpec
from headroom.api.switches import SecretKey
from headroom.model.errors import Refused

KEYS: Final = {
    "tencent": (("secretId", "secretKey"), ("token",)),
    "aws": (("accessKeyId", "secretAccessKey"), ("sessionToken",)),
    "webhook": (("token",), ()),
}
"""What the Secret of a provider must have, and what it may have."""
AMBIENT: Final = "--ambient-credentials (HEADROOM_AMBIENT_CREDENTIALS)"


class CloudSecrets(Protocol):
    """Whoever reads Secrets of a namespace that the operator has the right for."""

    async def read(self, name: str, namespace: str = "") -> Secret:
        """The values of a Secret, and who may use it. Raises `Refused` or `Unavailable`."""
        ...


class Vault(Struct, frozen=True):
    """Where Secrets are, and which namespaces may do without them."""

    secrets: CloudSecrets
    ambient: frozenset[str] = frozenset()


async def keys_for(vault: Vault, pool: AnyResource, spec: SpotpoolSpec, url: str) -> Keys:
    """The keys with which the pool's cloud is called at that address. Raises `BadCredentials`, `Refused` or `Unavailable`."""
    ref = spec.credentials_secret_ref
    if ref is not None:
        found = await _usable(vault, pool, ref.name, url, "spec.credentialsSecretRef")
        needed, more = KEYS[spec.provider]
        values = {key: plain_value(found, ref.name, key) for key in needed}
        return Keys(values | {key: plain_value(found, ref.name, key) for key in more if key in found})
    if spec.provider == "webhook":
        return Keys({})  # its headers, and the token among them, are in spec.webhook
    if pool.namespace in vault.ambient:
        return Keys({}, ambient=True)
    raise BadCredentials(
        "spec.credentialsSecretRef is missing; only namespaces that an administrator lists in "
        f"{AMBIENT} use the operator's own credentials"
    )


async def user_data_for(vault: Vault, pool: AnyResource, spec: SpotpoolSpec, url: str) -> Keys:
    """The user data of the pool's machines, as the value `userData`; nothing if it has none. Raises as `keys_for` does."""
    ref = spec.user_data_secret_ref
    if ref is None:
        return Keys({})
    found = await _usable(vault, pool, ref.name, url, "spec.userDataSecretRef")
    if ref.key not in found:
        raise Refused(f"Secret {ref.name} has no key {ref.key}")
    if len(found[ref.key].encode()) > LONGEST_USER_DATA:
        raise Refused(f"key {ref.key} of Secret {ref.name} is longer than {LONGEST_USER_DATA // 1024} KiB")
    return Keys({"userData": found[ref.key]})


async def value_for(vault: Vault, pool: AnyResource, ref: SecretKey, url: str, field: str) -> str:
    """One value of a Secret that the pool may send to that address, fit for a header."""
    return plain_value(await _usable(vault, pool, ref.name, url, field), ref.name, ref.key)


async def _usable(vault: Vault, pool: AnyResource, name: str, url: str, field: str) -> Secret:
    found = await vault.secrets.read(name, pool.namespace)
    try:
        check_usable(found, name, Use(kind=pool.kind, namespace=pool.namespace, name=pool.name, url=url, field=field))
    except Refused as problem:
        raise BadCredentials(str(problem)) from None
    return found


def plain_value(secret: Secret, name: str, key: str) -> str:
    """A value without the line break that often ends it. Raises `BadCredentials` without ever showing it."""
    found = secret.get(key)
    if found is None:
        raise BadCredentials(f"Secret {name} has no key {key}")
    plain = found.strip()
    if not plain or not plain.isascii() or not plain.isprintable():
        raise BadCredentials(f"key {key} of Secret {name} is empty, or has characters that no key may have")
    return plain
