"""`problems`: every wrong field at once, at its path, in words that say what to do; and it never raises."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headroom.api import kinds, schema
from headroom.api.kinds import KINDS, problems
from headroom.api.schema import Problem
from tests.api.cases import MEGABYTE, At, manifest
from tests.api.document_cases import ACCEPTED, NO_DOCUMENTS, REFUSED, SEED_SAMPLES
from tests.api.documents import as_json, put, spec_fields
from tests.api.field_cases import FIELDS, FULL


def read(document: Any) -> Any:
    return json.loads(as_json(document))


def fields_of(found: list[Problem]) -> set[str]:
    return {each.field for each in found}


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_has_cases(kind: str) -> None:
    plain = {path for path, each in spec_fields(kind).items() if not each.properties and not path.endswith("[]")}
    assert plain == set(FIELDS[kind])
    for path, cases in FIELDS[kind].items():
        assert len(cases.valid) >= 1, path
        assert len(cases.invalid) >= 3, path


@pytest.mark.parametrize(("kind", "path"), [(kind, path) for kind, fields in FIELDS.items() for path in fields])
def test_a_wrong_value_is_named_at_its_field(kind: str, path: str) -> None:
    base = FULL[kind]
    for other, value in FIELDS[kind][path].beside.items():
        base = put(base, other, value)
    for value in FIELDS[kind][path].valid:
        assert problems(read(put(base, path, value))) == [], value
    for case in FIELDS[kind][path].invalid:
        value, where = (case.value, case.field) if isinstance(case, At) else (case, path.replace("[]", "[0]"))
        found = problems(read(put(base, path, value)))
        assert any(each.field.startswith(where) for each in found), (value, found)


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    assert problems(read(ACCEPTED[name])) == []


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    assert problems(read(REFUSED[name])) != []


@pytest.mark.parametrize("kind", KINDS)
def test_the_seeds_own_sample_has_no_problems(kind: str) -> None:
    assert problems(SEED_SAMPLES[kind]) == []


@pytest.mark.parametrize("document", NO_DOCUMENTS, ids=repr)
def test_what_is_no_resource_of_ours_is_said_to_be_none(document: Any) -> None:
    (found,) = problems(document)
    assert found.field in ("", "kind")


def test_every_wrong_field_is_named_at_once() -> None:
    document = manifest(
        "Spotpool",
        "Pool 1",
        {
            "region": "",
            "availabilityZone": 2,
            "minimum": 5,
            "maximum": 3,
            "securityGroupIds": ["sg-1", None, "a b"],
            "instanceChargeType": "FREE",
            "credentialsSecretRef": {"key": "x"},
            "secretKey": "plain",
            "zone": "a",
            "paused": "yes",
        },
        labels={"a b": "c"},
    )
    assert fields_of(problems(document)) == {
        "metadata.name",
        "metadata.labels",
        "spec.region",
        "spec.availabilityZone",
        "spec.instanceType",
        "spec.maximum",
        "spec.securityGroupIds[1]",
        "spec.securityGroupIds[2]",
        "spec.instanceChargeType",
        "spec.credentialsSecretRef.name",
        "spec.credentialsSecretRef.key",
        "spec.secretKey",
        "spec.zone",
        "spec.paused",
    }


@pytest.mark.parametrize(
    ("kind", "path", "value", "expected"),
    [
        ("Spotpool", "spec.minimum", "2", Problem("spec.minimum", 'must be a whole number, not "2"', "TypeInvalid")),
        ("Spotpool", "spec.minimum", -1, Problem("spec.minimum", "must be from 0 to 1000, not -1")),
        (
            "LeftoverNodePool",
            "spec.maxZones",
            10**30,
            Problem("spec.maxZones", "must be from 1 to 20, not a number beyond 64 bits"),
        ),
        ("Spotpool", "spec.maximum", 1, Problem("spec.maximum", "must be at least minimum")),
        ("Spotpool", "spec.region", None, Problem("spec.region", "is required", "Required")),
        (
            "Spotpool",
            "spec.imageId",
            ["a"],
            Problem("spec.imageId", "must be text, not a list: write an id without spaces", "TypeInvalid"),
        ),
        ("Spotpool", "spec.imageId", "a b", Problem("spec.imageId", 'must be an id without spaces, not "a b"')),
        (
            "Spotpool",
            "spec.desired",
            "3",
            Problem("spec.desired", 'must be Demand or a whole number, not "3"'),
        ),
        ("Spotpool", "spec.desired", 1001, Problem("spec.desired", "must be from 0 to 1000, not 1001")),
        ("Spotpool", "spec.paused", "no", Problem("spec.paused", 'must be true or false, not "no"', "TypeInvalid")),
        (
            "GPUWorkloadBudget",
            "spec.enforcement.steps[].action",
            "Delete",
            Problem(
                "spec.enforcement.steps[0].action",
                'must be one of AlertOnly, Evict, Hold, Pause, Suspend, not "Delete"',
                "NotSupported",
            ),
        ),
        (
            "GPUWorkloadBudget",
            "spec.enforcement.steps[].at",
            "80",
            Problem(
                "spec.enforcement.steps[0].at", 'must be a whole percentage from 1% to 999%, such as 80%, not "80"'
            ),
        ),
        (
            "GPUWorkloadBudget",
            "spec.enforcement.steps[].at",
            "101%",
            Problem("spec.enforcement.steps", "must be in order, the lowest first"),
        ),
        (
            "GPUWorkloadBudget",
            "spec.enforcement.action",
            "Hold",
            Problem(
                "spec.enforcement.action",
                "cannot be combined with steps: add it as a step at 100%",
            ),
        ),
        (
            "GPUWorkloadBudget",
            "spec.enforcement.steps[].action",
            "Evict",
            Problem("spec.enforcement.steps", "must have no action but AlertOnly and Hold when homeCluster is given"),
        ),
        (
            "GPUWorkloadBudget",
            "spec.enforcement.releaseHorizon",
            "1d",
            Problem("spec.enforcement.releaseHorizon", 'must be a length of time such as 90s, 30m or 1h30m, not "1d"'),
        ),
        (
            "GPUWorkloadBudget",
            "spec.enforcement.recoverWithin",
            "0s",
            Problem("spec.enforcement.recoverWithin", "must be more than no time"),
        ),
        (
            "GPUWorkloadBudget",
            "spec.quota.hours",
            3,
            Problem(
                "spec.quota.hours",
                "is not a field here; did you mean gpuHours? The fields are gpuHours, usd, windowHours",
                "Unknown",
            ),
        ),
        (
            "GPUWorkloadBudget",
            "spec.quota.gpuHours",
            MEGABYTE,
            Problem("spec.quota.gpuHours", f"must have at most 64 characters, not {len(MEGABYTE)}", "TooLong"),
        ),
        (
            "Bandwidth",
            "spec.requests[].podUid",
            "",
            Problem("spec.requests[0].podUid", "must not be empty"),
        ),
    ],
)
def test_the_message_names_the_fix(kind: str, path: str, value: Any, expected: Problem) -> None:
    assert problems(put(FULL[kind], path, value)) == [expected]


def test_messages_are_short_and_every_pattern_says_what_it_wants() -> None:
    for kind, fields in FIELDS.items():
        for path, cases in fields.items():
            plain = [case.value if isinstance(case, At) else case for case in cases.invalid]
            for value in plain:
                for found in problems(read(put(FULL[kind], path, value))):
                    assert len(found.message) < 400, found
                    assert "must be like ^" not in found.message, found


def test_a_status_with_newer_fields_is_no_problem_once_stored() -> None:
    newer = FULL["GPUWorkloadBudget"] | {"status": {"forecasts": {}}}
    assert fields_of(problems(newer)) == {"status.forecasts"}
    assert problems(put(newer, "metadata.uid", "5b1f")) == []


def test_keys_that_are_no_text_are_named() -> None:
    found = problems(put(FULL["GPUWorkloadBudget"], "spec.selector.matchLabels", {1: "a"}))
    assert found == [Problem("spec.selector.matchLabels.1", "must have text as its key: put the key in quotes")]
    assert fields_of(problems({**FULL["PowerPool"], 7: 1})) == {"7"}


def test_a_whole_number_written_with_a_point_reads_as_one() -> None:
    document = put(FULL["GPUWorkloadBudget"], "spec.quota.windowHours", 24.0)
    assert problems(document) == []
    assert kinds.spec_of("GPUWorkloadBudget", document["spec"]) == kinds.spec_of(
        "GPUWorkloadBudget", FULL["GPUWorkloadBudget"]["spec"]
    )


def test_numbers_that_a_rule_compares_are_written_without_a_point() -> None:
    found = problems(put(FULL["PowerPool"], "spec.policy.minOn", 1.0))
    assert fields_of(found) == {"spec.policy.minOn", "spec"}


def test_no_two_places_of_a_sample_share_an_object() -> None:
    for document in FULL.values():
        found = [id(each) for each in _containers(document)]
        assert len(found) == len(set(found))


def _containers(value: Any) -> list[Any]:
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return [value] * isinstance(value, (dict, list)) + [deep for each in inner for deep in _containers(each)]


def test_half_a_surrogate_pair_does_not_reach_a_path() -> None:
    for each in problems(put(FULL["Spotpool"], "spec.\ud800", "\ud800")):
        each.field.encode()
        each.message.encode()


def test_large_documents_are_judged_whole() -> None:
    wide = put(FULL["Bandwidth"], "spec.requests", [{"podUid": f"u{i}", "x": i} for i in range(20_000)])
    deep: Any = 1
    for _ in range(900):
        deep = [deep]
    assert len(problems(wide)) == 20_001
    assert problems(put(FULL["Bandwidth"], "spec.node", deep)) != []
    assert problems(put(FULL["Spotpool"], "spec.region", MEGABYTE)) != []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_no_json_raises(document: Any) -> None:
    assert problems(document) != []


@given(st.sampled_from(list(KINDS)), JSON, JSON, JSON)
def test_no_json_inside_a_document_raises(kind: str, metadata: Any, spec: Any, status: Any) -> None:
    document = FULL[kind] | {"metadata": metadata, "spec": spec, "status": status}
    assert problems(document) != []
    kinds.status_of(kind, status)


@given(st.data())
def test_no_json_in_place_of_a_field_raises_and_what_is_accepted_can_be_read(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(list(KINDS)))
    path = data.draw(st.sampled_from(list(spec_fields(kind))))
    document = put(FULL[kind], path, data.draw(JSON))
    if not problems(document):
        read_once = kinds.spec_of(kind, document["spec"])
        filled = schema.defaulted(kinds.spec_schema(kind), document["spec"])
        assert kinds.spec_of(kind, filled) == read_once
        assert problems(document | {"spec": filled}) == []


def test_a_password_in_an_address_is_not_shown() -> None:
    found = problems(put(FULL["PowerPool"], "spec.machines[].scaleUpEndpoint", "http://ada:secret@power-api/start"))
    assert [each.field for each in found] == ["spec.machines[0].scaleUpEndpoint"]
    assert "secret" not in found[0].message
    assert "://(not shown)@power-api/start" in found[0].message
