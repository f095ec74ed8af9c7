"""The CRDs: as they were generated, and of the shape that the API server and kubectl need."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import yaml

from headroom.api import generate, kinds
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS, KINDS, OPERATOR_KINDS
from tests.api.documents import fields

ROOTS = {kind: crd(each)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind, each in DEFINITIONS.items()}


def parts(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema below and including this one."""
    yield path, schema
    for name, each in schema.get("properties", {}).items():
        yield from parts(each, f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield from parts(schema[key], f"{path}[]")


PARTS = [part for kind, root in ROOTS.items() for part in parts(root, kind)]


@pytest.mark.parametrize("path", generate.files(), ids=lambda path: path.name)
def test_the_files_in_deploy_are_what_is_generated(path: Any) -> None:
    assert path.read_text() == generate.files()[path], "run `make generate`"


def test_nothing_else_lies_beside_them() -> None:
    folder = generate.ROOT / "deploy" / "crds"
    assert set(folder.iterdir()) == {path for path in generate.files() if path.parent == folder}


def test_check_says_which_file_differs(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.main(["--check"]) == 1
    assert "differs: deploy/crds/spotpools.headroom.dev.yaml" in capsys.readouterr().out
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_the_definition_as_a_whole(kind: str) -> None:
    definition, ours = crd(KINDS[kind]), KINDS[kind]
    names, (version,) = definition["spec"]["names"], definition["spec"]["versions"]
    assert definition["metadata"]["name"] == f"{ours.plural}.headroom.dev"
    assert names["categories"] == ["headroom", "gpu"]
    assert names["shortNames"] == list(ours.short_names)
    assert version["name"] == "v1alpha1"
    assert version["subresources"] == {"status": {}}
    assert [column["name"] for column in version["additionalPrinterColumns"]][-2:] == ["Ready", "Age"]
    assert yaml.safe_load(yaml.safe_dump(definition)) == definition


@pytest.mark.parametrize("kind", OPERATOR_KINDS)
def test_a_kind_of_the_operator_has_no_status_and_is_in_nobodys_way(kind: str) -> None:
    definition = crd(OPERATOR_KINDS[kind])
    (version,) = definition["spec"]["versions"]
    assert "subresources" not in version
    assert set(ROOTS[kind]["properties"]) == {"apiVersion", "kind", "metadata", "spec"}
    # A tenant's `kubectl get headroom` would be refused for it.
    assert "categories" not in definition["spec"]["names"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_moves_with_the_clock_is_in_the_status(kind: str) -> None:
    status = KINDS[kind].status
    assert status.moving <= set(status.__struct_fields__)
    assert "moving" not in ROOTS[kind]["properties"]["status"]["properties"]


def test_no_name_is_taken_twice() -> None:
    names = [name for kind in DEFINITIONS.values() for name in (kind.plural, kind.name.lower(), *kind.short_names)]
    assert len(names) == len(set(names))


def test_every_property_is_described() -> None:
    bare = [
        path
        for path, part in PARTS
        if not part.get("description") and not path.endswith(("[]", ".metadata", ".metadata.name"))
    ]
    assert bare == []


def test_descriptions_are_sentences() -> None:
    for path, part in PARTS:
        text = part.get("description", "A.")
        assert re.fullmatch(r"[A-Z][^\n]*\.", text), (path, text)


def test_every_rule_has_a_message_and_names_a_field_that_exists() -> None:
    for path, part in PARTS:
        for rule in part.get("x-kubernetes-validations", []):
            assert rule["rule"], path
            assert rule["message"], path
            below = part
            for name in rule.get("fieldPath", "").strip(".").split("."):
                below = below["properties"][name] if name else below


def test_the_schema_is_structural_and_bounded() -> None:
    for path, part in PARTS:
        assert "type" in part or part.get("x-kubernetes-int-or-string"), path
        assert "additionalProperties" not in part or "properties" not in part, path
        assert set(part.get("required", [])) <= set(part.get("properties", {})), path
        if part.get("type") == "array":
            assert part["x-kubernetes-list-type"] in ("map", "atomic"), path
        for key in part.get("x-kubernetes-list-map-keys", []):
            assert key in part["items"]["required"], path
    for kind, root in ROOTS.items():
        # Without bounds the API server cannot tell what a rule costs at most, and refuses it.
        for path, part in parts(root["properties"]["spec"], kind):
            limits = {"array": "maxItems", "integer": "maximum", "string": "maxLength"}
            bound = "maxProperties" if "additionalProperties" in part else limits.get(part.get("type", ""))
            assert bound is None or bound in part or "enum" in part, path


@pytest.mark.parametrize("kind", KINDS)
def test_printer_columns_name_fields_that_exist(kind: str) -> None:
    known = {f".{path}" for path, _ in fields(kinds.spec_schema(kind), "spec")}
    known |= {f".{path}" for path, _ in fields(kinds.status_schema(kind), "status")}
    for column in KINDS[kind].columns:
        # [*] would show the first item only.
        assert "[*]" not in column.path
        assert column.path in known or column.path.startswith((".status.conditions[?", ".metadata.")), column


@pytest.mark.parametrize("kind", KINDS)
def test_defaults_are_those_of_the_types(kind: str) -> None:
    spec = KINDS[kind].spec
    for field in msgspec.structs.fields(spec):
        default = ROOTS[kind]["properties"]["spec"]["properties"][field.encode_name].get("default")
        if isinstance(field.default, (bool, int)) or (isinstance(field.default, str) and field.default):
            assert default == field.default, field.name
        elif not isinstance(field.default, msgspec.Struct) or default != msgspec.to_builtins(field.default):
            assert default in (None, {}), field.name


def test_a_default_that_rules_are_asked_about_is_written_in_full() -> None:
    """The API server refuses the whole definition where a rule fails on a default, whose own defaults are not filled in by then."""
    asked = [(path, part) for path, part in PARTS if {"default", "properties", "x-kubernetes-validations"} <= {*part}]
    assert asked
    for path, part in asked:
        assert {name for name, each in part["properties"].items() if "default" in each} <= {*part["default"]}, path
