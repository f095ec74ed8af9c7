"""Machines that are switched by calls to addresses: scaleUpEndpoint, scaleDownEndpoint and statusEndpoint."""

from __future__ import annotations

import json
import re
from typing import Final

from headroom.adapters.egress import Request, target_of
from headroom.adapters.power.orders import VERBS, Command, Means, State, SwitchTarget, answered, secret_for, value_in
from headroom.adapters.power.words import power_in
from headroom.api.switches import SecretKey
from headroom.model.errors import Refused

_PLACE: Final = re.compile(r"\$\{(machine|pool|action)\}")


async def switch(means: Means, order: SwitchTarget, command: Command, at: str) -> None:
    """Call the endpoint for a command; returns once it was accepted. `at` is when that was decided: the same call has the same key."""
    machine, webhook = order.machine, order.spec.webhook
    url = machine.scale_up_endpoint if command == "Wake" else machine.scale_down_endpoint
    if url is None:
        raise Refused(f"there is no {'scaleUpEndpoint' if command == 'Wake' else 'scaleDownEndpoint'}")
    words = {"machine": machine.name, "pool": order.pool.name, "action": VERBS[command]}
    headers = {
        "content-type": "application/json",
        **await _headers(means, order, url),
        "idempotency-key": f"{order.pool.uid}/{machine.name}/{VERBS[command]}/{at}",
    }
    request = Request(url=url, method="POST", headers=headers, body=filled(webhook.body, words).encode())
    answer = await means.guard.call(request, webhook.timeout_seconds)
    if not _is_accepted(answer.status, webhook.expected_status):
        raise answered(target_of(url).host, answer.status)


async def power(means: Means, order: SwitchTarget) -> State:
    """What the status endpoint says."""
    webhook, url = order.spec.webhook, order.machine.status_endpoint or ""
    request = Request(url=url, headers=await _headers(means, order, url))
    answer = await means.guard.call(request, webhook.timeout_seconds)
    if not _is_accepted(answer.status):
        raise answered(target_of(url).host, answer.status)
    return power_in(answer.body) if answer.whole else "Unknown"


def filled(template: str, words: dict[str, str]) -> str:
    """The template with each place filled by its word, escaped as inside a JSON text. What is put in is not looked at again."""
    return _PLACE.sub(lambda place: json.dumps(words[place[1]])[1:-1], template)


def _is_accepted(status: int, expected: tuple[int, ...] = ()) -> bool:
    return status in expected if expected else 200 <= status < 300


async def _headers(means: Means, order: SwitchTarget, url: str) -> dict[str, str]:
    """The headers of a call to that address; a Secret is in them only if it names this pool and that host."""
    webhook = order.spec.webhook
    fields = {
        each.secret_key_ref.name: f"spec.webhook.headers[{number}].secretKeyRef"
        for number, each in enumerate(webhook.headers)
        if each.secret_key_ref
    }
    if webhook.token_secret_ref:
        fields[webhook.token_secret_ref.name] = "spec.webhook.tokenSecretRef"
    known = {name: await secret_for(means, order, name, url=url, field=fields[name]) for name in sorted(fields)}

    def value(ref: SecretKey) -> str:
        return value_in(known[ref.name], ref.name, ref.key)

    found = {
        each.name.lower(): value(each.secret_key_ref) if each.secret_key_ref else each.value for each in webhook.headers
    }
    if webhook.token_secret_ref:
        found["authorization"] = f"Bearer {value(webhook.token_secret_ref)}"
    return found
