"""Renders each kind as a CustomResourceDefinition."""

from __future__ import annotations

from msgspec import UNSET

from headroom.api.kinds import spec_schema, status_schema
from headroom.api.resources import API_VERSION, GROUP, VERSION, Column, Definition
from headroom.api.schema import Json, Rule, Schema


def crd(kind: Definition) -> dict[str, Json]:
    """The definition that is applied to a cluster."""
    names: dict[str, Json] = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
        "shortNames": list(kind.short_names),
    }
    if kind.categories:
        names["categories"] = list(kind.categories)
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}", "labels": {"app.kubernetes.io/part-of": "headroom"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": names,
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    **({"subresources": {"status": {}}} if kind.status else {}),
                    "additionalPrinterColumns": [_column(each) for each in kind.columns],
                    "schema": {"openAPIV3Schema": _root(kind)},
                }
            ],
        },
    }


def _root(kind: Definition) -> dict[str, Json]:
    spec = openapi(spec_schema(kind.name))
    metadata: dict[str, Json] = {"type": "object"}  # the API server allows no description here
    if kind.longest_name < 253:
        metadata["properties"] = {"name": {"type": "string", "maxLength": kind.longest_name}}
    out: dict[str, Json] = {
        "type": "object",
        "description": spec["description"],
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": f"Always {API_VERSION}."},
            "kind": {"type": "string", "description": f"Always {kind.name}."},
            "metadata": metadata,
            "spec": spec,
        },
    }
    if kind.status:
        out["properties"]["status"] = openapi(status_schema(kind.name))
    if kind.rules:
        out["x-kubernetes-validations"] = [_validation(rule) for rule in kind.rules]
    return out


def _column(column: Column) -> dict[str, Json]:
    out: dict[str, Json] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.wide:
        out["priority"] = 1
    return out


def openapi(schema: Schema) -> dict[str, Json]:
    """The schema as a structural OpenAPI schema with CEL rules."""
    out: dict[str, Json] = {}
    if schema.description:
        out["description"] = " ".join(schema.description.split())
    if schema.type in ("quantity", "int-or-string"):
        out |= {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]}
    else:
        out["type"] = schema.type
    out |= {key: value for key, value in _limits(schema).items() if value not in (None, "", ())}
    if schema.default is not UNSET:
        out["default"] = schema.default
    out |= _parts(schema)
    if schema.rules:
        out["x-kubernetes-validations"] = [_validation(rule) for rule in schema.rules]
    return out


def _parts(schema: Schema) -> dict[str, Json]:
    out: dict[str, Json] = {}
    if schema.properties:
        out["properties"] = {name: openapi(each) for name, each in schema.properties.items()}
    if schema.required:
        out["required"] = list(schema.required)
    if schema.items:
        out["items"] = openapi(schema.items)
        if schema.map_key:
            out |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [schema.map_key]}
        else:
            out["x-kubernetes-list-type"] = "atomic"
    if schema.values:
        out["additionalProperties"] = openapi(schema.values)
    return out


def _limits(schema: Schema) -> dict[str, Json]:
    lengths = {"array": ("minItems", "maxItems"), "object": ("minProperties", "maxProperties")}
    shortest, longest = lengths.get(schema.type, ("minLength", "maxLength"))
    return {
        "format": schema.format,
        "enum": list(schema.enum) or None,
        "pattern": schema.pattern,
        "minimum": schema.minimum,
        "maximum": schema.maximum,
        shortest: schema.min_length,
        longest: schema.max_length,
    }


def _validation(rule: Rule) -> dict[str, Json]:
    out = {"rule": rule.cel, "message": rule.message}
    if rule.field:
        out["fieldPath"] = f".{rule.field}"
    return out
