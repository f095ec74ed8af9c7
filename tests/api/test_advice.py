"""What is allowed and hardly meant: named, and nothing else is."""

from typing import Any

import pytest

from headroom.api.advice import between, of_budget
from headroom.api.advice import of_pool as advice_on
from headroom.api.kinds import AnyResource
from tests.builders import a_resource
from tests.core.stage import a_budget


def said(*steps: str, **more: Any) -> list[str]:
    return [f"{each.field} {each.message}" for each in of_budget(a_budget(enforce=list(steps), **{"grace": 60} | more))]


@pytest.mark.parametrize(
    "steps",
    [
        ("80% AlertOnly", "100% Hold", "120% Evict"),
        ("80% AlertOnly", "90% AlertOnly", "100% AlertOnly"),
        ("100% Hold",),
        ("90% Suspend", "100% Evict"),
        ("80% Pause", "100% Suspend"),
    ],
)
def test_a_sound_ladder_needs_no_advice(steps: tuple[str, ...]) -> None:
    assert said(*steps) == []


def test_pods_that_are_evicted_and_not_held_start_again() -> None:
    [only] = said("80% AlertOnly", "100% Evict")
    assert only.startswith("spec.enforcement.steps[1] Evict has no Hold step below it")
    [above] = said("100% Evict", "120% Hold")
    assert above.startswith("spec.enforcement.steps[0] Evict has no Hold step below it")
    [alone] = of_budget(a_budget(enforce="Evict", grace=60))
    assert alone.field == "spec.enforcement.action"


def test_stopping_without_grace() -> None:
    [found] = said("90% Hold", "100% Evict", grace=0)
    assert found.startswith("spec.enforcement.gracePeriodSeconds is 0, so pods are stopped the moment")
    assert said("100% Hold", grace=0) == []


def test_a_warning_that_comes_too_late() -> None:
    [found] = said("90% Hold", "100% Evict", "120% AlertOnly")
    assert found == ("spec.enforcement.steps[2] AlertOnly above a step that stops pods warns too late; put it below")


def test_the_same_step_twice() -> None:
    [found] = said("90% Hold", "100% Hold")
    assert found.startswith("spec.enforcement.steps[1] Hold is already active at a lower step")


def test_a_namespace_selector_counts_in_one_place_only() -> None:
    selector: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"org": "x"}}}
    [found] = of_budget(a_budget(enforce="AlertOnly", **selector))
    assert found.field == "spec.namespaceSelector"


# --- power pools --------------------------------------------------------------------------------------------------------------

WEBHOOK = {"name": "w1", "gpuCount": 4, "scaleUpEndpoint": "https://a/up", "scaleDownEndpoint": "https://a/down"}
PLAIN = WEBHOOK | {"scaleDownEndpoint": "http://a/down"}
BMC = {"name": "w2", "gpuCount": 8, "redfish": {"address": "https://bmc", "credentialsSecretRef": {"name": "bmc"}}}
TOKEN = {"tokenSecretRef": {"name": "power"}}
SECRET = {"headers": [{"name": "X-Team", "value": "a"}, {"name": "X-Key", "secretKeyRef": {"name": "power"}}]}


def bmc(**more: Any) -> dict[str, Any]:
    return BMC | {"redfish": BMC["redfish"] | more}  # type: ignore[operator]  # a mapping


def of_pool(*machines: dict[str, Any], **spec: Any) -> list[str]:
    resource = a_resource("PowerPool", machines=list(machines) or [WEBHOOK, BMC], **spec)
    assert resource.problems == ()
    return [f"{each.field} {each.message}" for each in advice_on(resource)]


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"webhook": TOKEN | SECRET},
        {"policy": {"minOn": 1, "protectedMachines": ["w1"]}},
        {"policy": {"prefer": "FewestWatts"}, "template": {"idleWatts": 100}},
        {"policy": {"idleSeconds": 60, "bootTimeoutSeconds": 300}},
        {"policy": {"keepOn": [{"begin": "08:00", "end": "18:00"}]}},
        {"policy": {"keepOn": [{"begin": "08:00", "end": "18:00", "minOn": 2}]}},
        {"template": {"idleWatts": 100, "busyWatts": 100}},
        {"webhook": {"body": '{"machine": "${machine}", "${pool}": ["${action}"]}'}},
        {"webhook": {"body": "wake=${machine}", "headers": [{"name": "content-type", "value": "text/plain"}]}},
        {"webhook": {"body": "?", "headers": [{"name": "Content-Type", "secretKeyRef": {"name": "type"}}]}},
    ],
)
def test_a_sound_pool_needs_no_advice(spec: dict[str, Any]) -> None:
    assert of_pool(**spec) == []


@pytest.mark.parametrize(
    ("machines", "spec", "field", "says"),
    [
        (
            [],
            {"policy": {"idleSeconds": 59, "bootTimeoutSeconds": 300}},
            "spec.policy.idleSeconds",
            "is 59, less than a fifth",
        ),
        ([], {"policy": {"minOn": 2}}, "spec.policy.minOn", "none of them ever sleeps"),
        ([], {"policy": {"protectedMachines": ["w1", "w2"]}}, "spec.policy.protectedMachines", "has every machine"),
        ([], {"policy": {"protectedMachines": ["w9"]}}, "spec.policy.protectedMachines", "does not have: w9"),
        ([WEBHOOK], {"policy": {"prefer": "FewestWatts"}}, "spec.machines[0]", "has no watts"),
        ([PLAIN], {"webhook": TOKEN}, "spec.webhook.tokenSecretRef", "unencrypted, since http://a/down is http"),
        ([PLAIN], {"webhook": SECRET}, "spec.webhook.headers[1].secretKeyRef", "unencrypted"),
        ([WEBHOOK, bmc(insecure=True)], {}, "spec.machines[1].redfish.insecure", "ca.crt into the Secret instead"),
        ([bmc(address="http://bmc")], {}, "spec.machines[0].redfish.address", "password is sent unencrypted"),
        ([], {"policy": {"keepOn": [{"begin": "08:00", "end": "08:00"}]}}, "spec.policy.keepOn[0]", "ever sleeps"),
        (
            [],
            {"policy": {"keepOn": [{"begin": "08:00", "end": "18:00", "minOn": 3}]}},
            "spec.policy.keepOn[0].minOn",
            "is 3 and the pool has 2",
        ),
        ([], {"template": {"idleWatts": 300, "busyWatts": 200}}, "spec.template.busyWatts", "200 W busy"),
        ([BMC | {"idleWatts": 300, "busyWatts": 200}], {}, "spec.machines[0].busyWatts", "300 W idle"),
        ([BMC | {"idleWatts": 300}], {"template": {"busyWatts": 200}}, "spec.machines[0].idleWatts", "300 W idle"),
        ([], {"webhook": {"body": '{"machine": ${machine}}'}}, "spec.webhook.body", "is no JSON once the names"),
        ([], {"webhook": {"body": "wake"}}, "spec.webhook.body", "sent as application/json"),
        (
            [],
            {"webhook": {"body": "x", "headers": [{"name": "Content-Type", "value": "application/cloudevents+JSON"}]}},
            "spec.webhook.body",
            "is no JSON",
        ),
        (
            [WEBHOOK | {"scaleUpEndpoint": "https://a/up?x=1&api_token=s3cr3t"}],
            {},
            "spec.machines[0].scaleUpEndpoint",
            "contains api_token",
        ),
        (
            [WEBHOOK | {"name": f"w{n}", "scaleDownEndpoint": f"https://a/{n}"} for n in range(20)],
            {"policy": {"keepOn": [{"begin": "08:00", "end": "18:00"}]}},
            "spec.policy.keepOn[0]",
            "wakes all 20 machines at once",
        ),
        ([], {"webhook": {"body": '{"a": "${name}"}'}}, "spec.webhook.body", "has ${name}, which is sent as it is"),
    ],
)
def test_a_dubious_pool_is_told(machines: list[dict[str, Any]], spec: dict[str, Any], field: str, says: str) -> None:
    [found] = of_pool(*machines, **spec)
    assert found.startswith(f"{field} ")
    assert says in found


def beside(*pools: AnyResource) -> list[str]:
    return [f"{pool.name} {each.field} {each.message}" for pool in pools for each in between(pool, pools)]


def pool_of(name: str, *machines: dict[str, Any], **spec: Any) -> AnyResource:
    return a_resource("PowerPool", name, machines=list(machines), **spec)


def test_a_switch_of_two_machines_is_told() -> None:
    other = WEBHOOK | {"name": "w3", "scaleUpEndpoint": "https://a/up3"}
    found = beside(pool_of("one", WEBHOOK, BMC, other), pool_of("two", bmc() | {"name": "w4"}))
    assert [each.split(" also switches")[0] for each in found] == [
        "one spec.machines[0].scaleDownEndpoint",
        "one spec.machines[1].redfish",
        "one spec.machines[2].scaleDownEndpoint",
        "two spec.machines[0].redfish",
    ]
    assert "give system" in found[1]
    assert beside(pool_of("one", WEBHOOK, other, webhook={"body": '{"it": "${machine}"}'})) == []
    assert beside(pool_of("one", bmc(system="1"), bmc(system="2") | {"name": "w4"})) == []


def test_a_machine_of_two_pools_is_told() -> None:
    found = beside(
        pool_of("one", WEBHOOK), pool_of("two", WEBHOOK | {"scaleDownEndpoint": "https://b/down"}), a_budget()
    )
    assert found == [
        "one spec.machines[0].name is also a machine of PowerPool/two; only one pool may switch it",
        "two spec.machines[0].name is also a machine of PowerPool/one; only one pool may switch it",
    ]


def test_a_body_that_is_never_sent_needs_no_advice() -> None:
    assert of_pool(BMC, webhook={"body": "${nobody}"}) == []


def test_a_name_that_is_a_number_needs_no_quotes_and_others_do() -> None:
    body = {"body": '{"machine": ${machine}}'}
    assert of_pool(WEBHOOK | {"name": "17"}, webhook=body) == []
    assert len(of_pool(WEBHOOK | {"name": "17"}, WEBHOOK | {"name": "w1"}, webhook=body)) == 1
