"""What the simulated API server does to our own kinds before it keeps them: unknown fields, defaults, and every rule."""

from __future__ import annotations

from typing import Any, Final

from headroom.api import kinds, schema
from headroom.api.kinds import KINDS
from headroom.api.resources import API_VERSION, IMMUTABLE
from headroom.api.schema import Problem, Schema
from headroom.sim import builtin
from headroom.sim.answers import Body, Cause, bad_request
from headroom.sim.catalog import ResourceType

_TOP: Final = ("apiVersion", "kind", "metadata", "spec", "status")
_UNCHECKED: Final = Cause(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)
_STRUCTURAL: Final = ("FieldValueRequired", "FieldValueTypeInvalid", "FieldValueNotSupported")


def is_ours(type_: ResourceType) -> bool:
    """Whether the kind has a schema of ours."""
    return type_.kind in KINDS and type_.api_version == API_VERSION


def pruned(type_: ResourceType, body: Body, validation: str) -> tuple[Body, list[str]]:
    """The object without fields that its schema does not know, and warnings about them; Strict refuses them instead."""
    if not is_ours(type_):
        return body, []
    unknown: list[str] = [name for name in body if name not in _TOP]
    out = {name: value for name, value in body.items() if name in _TOP}
    for part, its_schema in (("spec", kinds.spec_schema(type_.kind)), ("status", kinds.status_schema(type_.kind))):
        if part in out:
            out[part] = _prune(its_schema, out[part], part, unknown)
    if not unknown or validation == "Ignore":
        return out, []
    named = [f'unknown field "{path}"' for path in unknown]
    if validation == "Strict":
        raise bad_request(
            f'{type_.kind} in version "{type_.version}" cannot be handled as a {type_.kind}: strict decoding error: '
            + ", ".join(named)
        )
    return out, [each.replace('"', '\\"') for each in named]


def _prune(its_schema: Schema, value: Any, path: str, unknown: list[str]) -> Any:
    if isinstance(value, dict) and its_schema.properties:
        out = {}
        for name, each in value.items():
            inner = its_schema.properties.get(name)
            if inner is None:
                unknown.append(f"{path}.{name}")
            else:
                out[name] = _prune(inner, each, f"{path}.{name}", unknown)
        return out
    if isinstance(value, list) and its_schema.items:
        return [_prune(its_schema.items, each, f"{path}[{index}]", unknown) for index, each in enumerate(value)]
    return value


def causes(type_: ResourceType, body: Body) -> list[Cause]:
    """Every reason why the API server would refuse one of our objects."""
    if not is_ours(type_):
        return []
    document = {name: value for name, value in body.items() if name != "status"}
    found = kinds.problems(document)
    if builtin.name_causes(body["metadata"]["name"]):  # judged for every kind alike, and in the server's own words
        found = [each for each in found if each.field != "metadata.name"]
    if body.get("status") is not None:
        found += schema.check(kinds.status_schema(type_.kind), body["status"], "status")
    out = [_cause(each) for each in found]
    return [*out, _UNCHECKED] if any(each.reason in _STRUCTURAL for each in out) else out


def changed(type_: ResourceType, before: Body, body: Body) -> list[Cause]:
    """A spec of ours was changed, or a part of it, that cannot be."""
    if not is_ours(type_):
        return []
    its_schema = kinds.spec_schema(type_.kind)
    old, new = (defaulted(type_, each).get("spec") or {} for each in (before, body))
    parts = [name for name, each in its_schema.properties.items() if IMMUTABLE in each.rules]
    places = [f"spec.{name}" for name in parts if name in old and name in new and old[name] != new[name]]
    if IMMUTABLE in its_schema.rules and old != new:
        places.append("spec")
    return [_cause(Problem(place, IMMUTABLE.message)) for place in places]


def _cause(problem: Problem) -> Cause:
    if problem.fault == "Required":
        return Cause(problem.field, "FieldValueRequired", "Required value")
    fault = "Invalid" if problem.fault == "Unknown" else problem.fault  # those that can be dropped are, before
    says = {"NotSupported": "Unsupported", "Duplicate": "Duplicate"}.get(fault, "Invalid")
    return Cause(problem.field, f"FieldValue{fault}", f"{says} value: {problem.message}")


def defaulted(type_: ResourceType, body: Body) -> Body:
    """One of our objects with the defaults of its schema."""
    if not is_ours(type_):
        return body
    out = dict(body)
    if "spec" in out:
        out["spec"] = schema.defaulted(kinds.spec_schema(type_.kind), out["spec"])
    if out.get("status") is not None:
        out["status"] = schema.defaulted(kinds.status_schema(type_.kind), out["status"])
    return out
