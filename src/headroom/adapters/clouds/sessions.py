"""Which cloud a Spotpool means, at which address and with which keys; what pools have in common is asked for once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from headroom.adapters.clouds import aws, tencent
from headroom.adapters.clouds.accounts import Accounts
from headroom.adapters.clouds.aws import Aws
from headroom.adapters.clouds.aws_sdk import Clients
from headroom.adapters.clouds.credentials import CloudSecrets, Vault, keys_for, user_data_for, value_for
from headroom.adapters.clouds.providers import Keys, LaunchRequest, Provider, QuoteRequest, checked_region
from headroom.adapters.clouds.tencent import Tencent
from headroom.adapters.clouds.threads import Threads
from headroom.adapters.clouds.webhook import WebhookProvider
from headroom.adapters.egress import Guard
from headroom.adapters.usable_by import Secret
from headroom.api.kinds import AnyResource
from headroom.api.quantities import nano
from headroom.api.spot_pools import SpotpoolSpec
from headroom.api.switches import SecretKey
from headroom.model.actions import LaunchInstance
from headroom.model.errors import HeadroomError, Refused

MOST_THREADS: Final = 24
"""Of calls to Tencent Cloud at once for the pools of one namespace; the SDK's calls block."""
_HEADER: Final = re.compile(r"[a-z0-9-]+", re.ASCII)


class Places(Struct, frozen=True, kw_only=True):
    """What an administrator says of clouds: all addresses that no resource may choose."""

    endpoints: Mapping[str, str] = {}
    """Other addresses than the usual ones, of `tencent`, `tencent-sts`, `aws-ec2`, `aws-pricing`, `aws-sqs` and `aws-sts`."""
    queues: Mapping[str, str] = {}
    """URLs of queues with EC2's interruption warnings, by region."""
    ambient: frozenset[str] = frozenset()
    """Namespaces whose pools may use the process's own credentials."""
    instance_metadata: bool = False
    """The process's own credentials may come from the machine that it runs on."""
    tencent_per_dollar: float = 1.0
    """What a dollar is in the money in which Tencent Cloud bills the account."""


class CloudAccount(Struct, frozen=True):
    """What pools must have in common to be listed together."""

    provider: str
    region: str
    url: str
    namespace: str
    secret: str
    webhook: Any = None


def spec_of(pool: AnyResource) -> SpotpoolSpec:
    """The pool's spec. Raises `Refused` if it cannot be read."""
    if not isinstance(pool.spec, SpotpoolSpec):
        raise Refused("the Spotpool's spec cannot be read")
    return pool.spec


class Sessions:
    """Makes providers, each for a few calls, with keys that are read for these calls."""

    def __init__(self, guard: Guard, secrets: CloudSecrets, places: Places) -> None:
        self._guard, self._secrets, self._places = guard, secrets, places
        self.clients = Clients(instance_metadata=places.instance_metadata)
        self._threads: dict[str, Threads] = {}
        self._accounts = Accounts()

    def url(self, spec: SpotpoolSpec) -> str:
        """Where the pool's cloud answers."""
        checked_region(spec.region)
        if spec.provider == "webhook":
            return spec.endpoint or ""
        if spec.provider == "aws":
            return self._places.endpoints.get("aws-ec2") or aws.usual_url(spec.region)
        return self._places.endpoints.get("tencent") or tencent.URL

    def account(self, pool: AnyResource) -> CloudAccount:
        """Whom to list the pool's machines with. Raises `Refused`."""
        spec = spec_of(pool)
        secret = spec.credentials_secret_ref.name if spec.credentials_secret_ref else ""
        more = spec.webhook if spec.provider == "webhook" else None
        return CloudAccount(spec.provider, spec.region, self.url(spec), pool.namespace, secret, more)

    def remembering(self) -> SecretReader:
        """Reads each Secret once, for as long as one look at an account takes."""
        return SecretReader(self._secrets)

    async def provider(self, pool: AnyResource, secrets: CloudSecrets | None = None) -> Provider:
        """Whoever speaks to the pool's cloud. Raises `Refused` or `Unavailable` if it may not be spoken to, or not with these keys."""
        spec, vault = spec_of(pool), Vault(secrets or self._secrets, self._places.ambient)
        url = self.url(spec)
        keys = await keys_for(vault, pool, spec, url)
        if spec.provider == "webhook":
            headers = await _headers(vault, pool, spec, keys, url)
            return WebhookProvider(spec.region, url, headers, self._guard, seconds=spec.webhook.timeout_seconds)
        if spec.provider == "aws":
            queue = self._places.queues.get(spec.region, "")
            names = {f"aws-{name}": name for name in ("ec2", "sqs", "sts")}
            return Aws(spec.region, keys, self.clients, urls=self._given(names), queue=queue)
        threads = self._threads.setdefault(pool.namespace, Threads(MOST_THREADS))
        urls, money = self._given({"tencent": "cvm", "tencent-sts": "sts"}), self._places.tencent_per_dollar
        return Tencent(spec.region, keys, threads, urls=urls, per_dollar=money, accounts=self._accounts)

    def _given(self, names: Mapping[str, str]) -> dict[str, str]:
        """The addresses that an administrator gives for services, by their name."""
        return {name: url for key, name in names.items() if (url := self._places.endpoints.get(key))}

    async def request(self, pool: AnyResource, action: LaunchInstance, cluster: str) -> LaunchRequest:
        """The machine that an action asks for. Raises as `provider` does."""
        spec = spec_of(pool)
        if action.instance_type not in spec.types or action.zone not in spec.all_zones:
            raise Refused("the Spotpool no longer launches that type in that zone")
        vault = Vault(self._secrets, self._places.ambient)
        price = None if spec.max_price_per_hour is None else nano(spec.max_price_per_hour)
        return LaunchRequest(
            token=action.token,
            cluster=cluster,
            owner=pool.uid,
            slot=action.slot,
            name=f"headroom-{pool.namespace}-{pool.name}",
            instance_type=action.instance_type,
            zone=action.zone,
            image=spec.image_id or "",
            vpc=spec.vpc_id or "",
            subnet=spec.subnet_ids.get(action.zone) or spec.subnet_id or "",
            security_groups=spec.security_group_ids,
            spot=spec.instance_charge_type == "SPOTPAID",
            max_price=price // 1000 if isinstance(price, int) else None,
            disk_type=spec.system_disk.type,
            disk_gib=spec.system_disk.size_gib,
            public_ip=spec.public_ip,
            key_ids=spec.key_ids,
            user_data=await user_data_for(vault, pool, spec, self.url(spec)),
        )

    async def value(self, pool: AnyResource, ref: SecretKey, url: str, field: str) -> str:
        """One value of a Secret of the pool's namespace that the pool may send to that address."""
        return await value_for(Vault(self._secrets), pool, ref, url, field)

    async def close(self) -> None:
        """Close connections."""
        await self.clients.close()


class SecretReader:
    """Secrets that are read once each, and forgotten with this."""

    def __init__(self, secrets: CloudSecrets) -> None:
        self._secrets = secrets
        self._known: dict[tuple[str, str], Secret | HeadroomError] = {}

    async def read(self, name: str, namespace: str = "") -> Secret:
        """As whoever reads them does."""
        place = namespace, name
        if place not in self._known:
            try:
                self._known[place] = await self._secrets.read(name, namespace)
            except HeadroomError as problem:
                self._known[place] = problem
        found = self._known[place]
        if isinstance(found, HeadroomError):
            raise found
        return found


def question_of(spec: SpotpoolSpec, now: int) -> QuoteRequest:
    """Of which machines a pool must know the price."""
    spot = spec.instance_charge_type == "SPOTPAID"
    return QuoteRequest(types=spec.types, zones=tuple(filter(None, spec.all_zones)), spot=spot, now=now)


async def _headers(vault: Vault, pool: AnyResource, spec: SpotpoolSpec, keys: Keys, url: str) -> Keys:
    """The headers of every call to a webhook."""
    found: dict[str, str] = {}
    for number, each in enumerate(spec.webhook.headers):
        ref, field = each.secret_key_ref, f"spec.webhook.headers[{number}].secretKeyRef"
        found[each.name.lower()] = await value_for(vault, pool, ref, url, field) if ref else each.value
    if any(not _HEADER.fullmatch(name) for name in found):
        raise Refused("spec.webhook.headers has a name that no header may have")
    ref = spec.webhook.token_secret_ref
    token = await value_for(vault, pool, ref, url, "spec.webhook.tokenSecretRef") if ref else keys.get("token")
    return Keys(found | ({"authorization": f"Bearer {token}"} if token else {}))
