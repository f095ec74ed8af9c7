"""What is allowed and still hardly meant: said by `headroom check`, refused by nobody."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Final

from headroom.api.budgets import DEFAULT_RESOURCE, GPUWorkloadBudgetSpec
from headroom.api.enforcement import HARMLESS, EnforcementStep, percent
from headroom.api.kinds import AnyResource
from headroom.api.power import MachineSpec, PowerPoolSpec, sleep_switch
from headroom.api.resources import OPERATORS_NAMESPACE
from headroom.api.schema import Problem
from headroom.api.switches import Webhook

STOPPING: Final = ("Suspend", "Evict")
PLACES: Final = ("machine", "pool", "action")
"""What is put into the body of a call."""
_PLACE: Final = re.compile(r"\$\{([^{}]*)\}")
_KEY: Final = re.compile(
    r"[?&]((?:[^=&]*[-_])?(?:token|key|apikey|secret|password|passwd|auth|signature|sig))=", re.IGNORECASE
)
MANY: Final = 20
BOOT_SHARE: Final = 5
"""Idle for less than this part of what a boot may take, a machine wakes again soon after it sleeps."""


def of_budget(budget: AnyResource, given: Collection[str] = ()) -> list[Problem]:
    """Everything that is dubious about a valid budget, in the order of its fields; `given` are those its spec gives itself."""
    return [*_namespaces(budget), *_resources(budget.spec, given), *_ladder(budget.spec)]


def of_pool(pool: AnyResource) -> list[Problem]:
    """The same of a power pool."""
    spec: PowerPoolSpec = pool.spec
    return [*_keys(spec), *_machines(spec), *_watts(spec), *_secrets(spec), *_body(pool.name, spec), *_policy(spec)]


def _namespaces(budget: AnyResource) -> Iterator[Problem]:
    if budget.spec.namespace_selector is not None and budget.namespace != OPERATORS_NAMESPACE:
        yield Problem(
            "spec.namespaceSelector",
            f"has an effect only in the operator's namespace, {OPERATORS_NAMESPACE} unless configured otherwise",
        )


def _resources(spec: GPUWorkloadBudgetSpec, given: Collection[str]) -> Iterator[Problem]:
    named = spec.gpu_resource_name
    # One that looks like the default may be it.
    if spec.gpu_resources and ("gpuResourceName" in given or named != DEFAULT_RESOURCE):
        counts = any(fnmatchcase(named, each.name) for each in spec.gpu_resources)
        what = f"{named} is counted by gpuResources" if counts else f"{named} is not counted; add it there"
        yield Problem("spec.gpuResourceName", f"is ignored: gpuResources replaces it, so {what}, or remove this field")


def _ladder(spec: GPUWorkloadBudgetSpec) -> Iterator[Problem]:
    enforcement, steps = spec.enforcement, spec.enforcement.ladder
    for number, step in enumerate(steps):
        where = f"spec.enforcement.steps[{number}]" if enforcement.steps else "spec.enforcement.action"
        yield from (Problem(where, said) for said in _step(steps, step))
    if enforcement.grace_period_seconds == 0 and any(step.action in STOPPING for step in steps):
        yield Problem(
            "spec.enforcement.gracePeriodSeconds",
            "is 0, so pods are stopped the moment their step is active; 60 tolerates a short peak",
        )


def _step(steps: tuple[EnforcementStep, ...], step: EnforcementStep) -> Iterator[str]:
    below = [each for each in steps if percent(each.at) < percent(step.at)]
    if step.action == "Evict" and not any(each.action in ("Hold", "Suspend") for each in below):
        yield (
            "Evict has no Hold step below it, so evicted pods are recreated and start at once; "
            "add a step with action Hold below it"
        )
    if step.action == HARMLESS and any(each.action in STOPPING for each in below):
        yield "AlertOnly above a step that stops pods warns too late; put it below"
    if step.action != HARMLESS and any(each.action == step.action for each in below):
        yield f"{step.action} is already active at a lower step, so this step has no effect; remove one of them"


# --- power pools --------------------------------------------------------------------------------------------------------------


def between(resource: AnyResource, others: Iterable[AnyResource]) -> Iterator[Problem]:
    """What is dubious about a power pool beside others: machines that two of them name, and switches that would switch off others too."""
    if not isinstance(resource.spec, PowerPoolSpec):
        return
    pools = [each for each in others if isinstance(each.spec, PowerPoolSpec)]
    names = {it.name: each.name for each in reversed(pools) if each.name != resource.name for it in each.spec.machines}
    switches = Counter(sleep_switch(each.spec, it) for each in pools for it in each.spec.machines)
    for number, machine in enumerate(resource.spec.machines):
        where = f"spec.machines[{number}]"
        if machine.name in names:
            yield Problem(
                f"{where}.name", f"is also a machine of PowerPool/{names[machine.name]}; only one pool may switch it"
            )
        switch = sleep_switch(resource.spec, machine)
        if switch and switches[switch] > 1:
            yield Problem(
                f"{where}.redfish" if machine.redfish else f"{where}.scaleDownEndpoint",
                "also switches off another machine, so neither ever sleeps; "
                + ("give system" if machine.redfish else "give each its own, or name it in webhook.body as ${machine}"),
            )


def _keys(spec: PowerPoolSpec) -> Iterator[Problem]:
    """Secrets in addresses, which every reader of the pool sees."""
    for number, machine in enumerate(spec.machines):
        for name, address in (
            ("scaleUpEndpoint", machine.scale_up_endpoint),
            ("scaleDownEndpoint", machine.scale_down_endpoint),
            ("statusEndpoint", machine.status_endpoint),
        ):
            key = _KEY.search(address or "")
            if key is not None:
                yield Problem(
                    f"spec.machines[{number}].{name}",
                    f"contains {key[1]}, which everybody who may read the pool can see; use webhook.tokenSecretRef or headers",
                )


def _machines(spec: PowerPoolSpec) -> Iterator[Problem]:
    for number, machine in enumerate(spec.machines):
        where, redfish = f"spec.machines[{number}]", machine.redfish
        if redfish is not None and redfish.insecure:
            yield Problem(
                f"{where}.redfish.insecure",
                "is true, so whoever stands between is shown the BMC's password, and beside a Secret the operator refuses that "
                "unless it is told otherwise; put ca.crt into the Secret instead"
                if redfish.credentials_secret_ref
                else "is true, so whoever stands between may say anything; give certificateAuthority instead",
            )
        if redfish is not None and redfish.credentials_secret_ref and redfish.address.startswith("http://"):
            yield Problem(f"{where}.redfish.address", "is http, so the BMC's password is sent unencrypted; use https")
        if spec.policy.prefer == "FewestWatts" and _drawn(spec, machine) == (None, None):
            yield Problem(where, "has no watts, which prefer: FewestWatts compares; set idleWatts or busyWatts")


def _watts(spec: PowerPoolSpec) -> Iterator[Problem]:
    """Machines that draw less while they work."""
    told = "spec.template.busyWatts"
    if _is_upside_down(spec.template.idle_watts, spec.template.busy_watts):
        yield Problem(told, _upside_down(spec.template.idle_watts, spec.template.busy_watts))
    for number, machine in enumerate(spec.machines):
        has_own = machine.idle_watts is not None or machine.busy_watts is not None
        idle, busy = _drawn(spec, machine)
        if has_own and _is_upside_down(idle, busy):
            field = "idleWatts" if machine.busy_watts is None else "busyWatts"
            yield Problem(f"spec.machines[{number}].{field}", _upside_down(idle, busy))


def _drawn(spec: PowerPoolSpec, machine: MachineSpec) -> tuple[int | None, int | None]:
    """Watts of a machine, idle and busy, by its own word or the template's."""
    idle = spec.template.idle_watts if machine.idle_watts is None else machine.idle_watts
    return idle, spec.template.busy_watts if machine.busy_watts is None else machine.busy_watts


def _is_upside_down(idle: int | None, busy: int | None) -> bool:
    return idle is not None and busy is not None and busy < idle


def _upside_down(idle: int | None, busy: int | None) -> str:
    return f"is {busy} W busy and {idle} W idle; are they swapped?"


def _secrets(spec: PowerPoolSpec) -> Iterator[Problem]:
    """Secrets that everybody on the way could read."""
    webhook = spec.webhook
    called = [
        each
        for machine in spec.machines
        for each in (machine.scale_up_endpoint, machine.scale_down_endpoint, machine.status_endpoint)
        if each is not None and each.startswith("http://")
    ]
    says = f"is sent unencrypted, since {called[0]} is http; use https" if called else ""
    if says and webhook.token_secret_ref is not None:
        yield Problem("spec.webhook.tokenSecretRef", says)
    for number, header in enumerate(webhook.headers):
        if says and header.secret_key_ref is not None:
            yield Problem(f"spec.webhook.headers[{number}].secretKeyRef", says)


def _body(pool: str, spec: PowerPoolSpec) -> Iterator[Problem]:
    """A body that its receiver will not understand."""
    template = spec.webhook.body
    posted = [each.name for each in spec.machines if each.scale_up_endpoint or each.scale_down_endpoint]
    unknown = sorted({found for found in _PLACE.findall(template) if found not in PLACES})
    if not posted:
        return
    if unknown:
        known = ", ".join(f"${{{each}}}" for each in PLACES)
        says = f"has {_few([f'${{{each}}}' for each in unknown])}, which is sent as it is; what is put in is {known}"
        yield Problem("spec.webhook.body", says)
    if _is_json(spec.webhook) and not all(_reads(template, pool, name) for name in posted):
        yield Problem(
            "spec.webhook.body",
            "is no JSON once the names are put in, and is sent as application/json; put quotes around texts, as in "
            '{"machine": "${machine}"}, or give a header Content-Type that says what it is',
        )


def _is_json(webhook: Webhook) -> bool:
    """Whether the body is said to be JSON, as it is unless a header says otherwise."""
    types = [each for each in webhook.headers if each.name.lower() == "content-type"]
    return all("json" in each.value.lower() and each.secret_key_ref is None for each in types)


def _reads(template: str, pool: str, machine: str) -> bool:
    words = {"machine": machine, "pool": pool, "action": "wake"}
    try:
        json.loads(_PLACE.sub(lambda found: words.get(found[1], found[0]), template))
    except (ValueError, RecursionError):
        return False
    return True


def _policy(spec: PowerPoolSpec) -> Iterator[Problem]:
    policy, names = spec.policy, {each.name for each in spec.machines}
    if policy.idle_seconds * BOOT_SHARE < policy.boot_timeout_seconds:
        yield Problem(
            "spec.policy.idleSeconds",
            f"is {policy.idle_seconds}, less than a fifth of bootTimeoutSeconds, so machines wake again soon after they "
            "sleep; 600 suits most",
        )
    if policy.min_on == len(names):
        yield Problem("spec.policy.minOn", "is the number of machines, so none of them ever sleeps")
    unknown = sorted(set(policy.protected_machines) - names)
    if unknown:
        yield Problem("spec.policy.protectedMachines", f"names machines that the pool does not have: {_few(unknown)}")
    elif names <= set(policy.protected_machines):
        yield Problem("spec.policy.protectedMachines", "has every machine, so none of them ever sleeps")
    for number, window in enumerate(policy.keep_on):
        if window.min_on is None and len(names) >= MANY and policy.max_concurrent_wakes is None:
            yield Problem(
                f"spec.policy.keepOn[{number}]",
                f"wakes all {len(names)} machines at once when it begins; set minOn, or maxConcurrentWakes if that is intended",
            )
        if window.min_on is not None and window.min_on > len(names):
            yield Problem(
                f"spec.policy.keepOn[{number}].minOn",
                f"is {window.min_on} and the pool has {len(names)}, so all of them stay on then; remove it if that is intended",
            )
        if window.begin == window.end and not window.days and window.min_on is None:
            yield Problem(
                f"spec.policy.keepOn[{number}]", "is every day from begin to begin, so no machine ever sleeps"
            )


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
