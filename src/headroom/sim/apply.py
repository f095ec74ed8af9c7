"""Server-side apply: which manager owns which fields, kept as sets of leaf paths, and how an apply merges into an object.

A path is written in the form of managedFields: `f:name` for a field, `k:{"name":"x"}` for an item of a keyed list, `v:x` for a
member of a set. Lists without a key are leaves as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Final

from msgspec import Struct

from headroom.api.kinds import KINDS, spec_schema, status_schema
from headroom.api.schema import Schema
from headroom.sim.answers import Body, ErrorAnswer
from headroom.sim.catalog import ResourceType

Path = tuple[str, ...]
ListKeys = Mapping[Path, str]
"""Field names down to a list, and the field that tells its items apart; an empty one for sets of plain values."""


class FieldManager(Struct, frozen=True, order=True):
    """Who wrote fields, and how."""

    manager: str
    operation: str
    subresource: str = ""


class ManagedFields(Struct, frozen=True):
    """What an owner wrote, and when last."""

    paths: frozenset[Path]
    at: str


Owners = Mapping[FieldManager, ManagedFields]

_COMMON: Final[dict[Path, str]] = {
    ("metadata", "ownerReferences"): "uid",
    ("metadata", "finalizers"): "",
    ("status", "conditions"): "type",
}
_POD_SPEC: Final[dict[Path, str]] = {
    ("containers",): "name",
    ("containers", "env"): "name",
    ("containers", "volumeMounts"): "mountPath",
    ("initContainers",): "name",
    ("volumes",): "name",
    ("schedulingGates",): "name",
    ("imagePullSecrets",): "name",
}
_TEMPLATED: Final = ("Job", "Deployment", "ReplicaSet", "StatefulSet", "DaemonSet")
_SERVERS_OWN: Final = frozenset(
    (
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "managedFields",
        "generateName",
    )
)


@cache
def list_keys(type_: ResourceType) -> ListKeys:
    """The keyed lists of a type."""
    found = dict(_COMMON)
    if type_.kind == "Pod":
        found |= {("spec", *path): key for path, key in _POD_SPEC.items()}
    elif type_.kind in _TEMPLATED:
        found |= {("spec", "template", "spec", *path): key for path, key in _POD_SPEC.items()}
    elif type_.custom:
        del found["status", "conditions"]
        if type_.kind in KINDS:
            found |= _schema_keys(("spec",), spec_schema(type_.kind))
            found |= _schema_keys(("status",), status_schema(type_.kind))
    return found


def _schema_keys(path: Path, schema: Schema) -> dict[Path, str]:
    found: dict[Path, str] = {}
    if schema.map_key and schema.items:
        found[path] = schema.map_key
        found |= _schema_keys(path, schema.items)
    for name, each in schema.properties.items():
        found |= _schema_keys((*path, name), each)
    return found


def leaves(body: Body, keys: ListKeys) -> dict[Path, Any]:
    """Every leaf of an object that somebody can own, with its value."""
    found: dict[Path, Any] = {}
    for name, value in body.items():
        if name == "metadata":
            for each, inner in value.items():
                if each not in _SERVERS_OWN:
                    found.update(_leaves(inner, ("f:metadata", f"f:{each}"), ("metadata", each), keys))
        elif name not in ("apiVersion", "kind"):
            found.update(_leaves(value, (f"f:{name}",), (name,), keys))
    return found


def _leaves(value: Any, path: Path, names: Path, keys: ListKeys) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for name, each in value.items():
            yield from _leaves(each, (*path, f"f:{name}"), (*names, name), keys)
    elif isinstance(value, list) and names in keys:
        for item in value:
            yield from _leaves(item, (*path, _item(item, keys[names])), names, keys)
    else:
        yield path, value


def _item(item: Any, key: str) -> str:
    if not key:
        return f"v:{json.dumps(item)}"
    return "k:" + json.dumps({key: item.get(key) if isinstance(item, dict) else None}, separators=(",", ":"))


def after_update(
    owners: Owners, before: dict[Path, Any], after: dict[Path, Any], owner: FieldManager, at: str
) -> Owners:
    """Owners after a plain write: who changes a field owns it alone."""
    absent = object()
    changed = frozenset(path for path, value in after.items() if before.get(path, absent) != value)
    touched = changed | (before.keys() - after.keys())
    if not touched:
        return owners
    out: dict[FieldManager, ManagedFields] = {}
    for each, owned in owners.items():
        rest = owned.paths - touched
        if rest:
            out[each] = ManagedFields(rest, owned.at)
    if changed:
        mine = out[owner].paths if owner in out else frozenset()
        out[owner] = ManagedFields(mine | changed, at)
    return out


def conflicts(
    owners: Owners, before: dict[Path, Any], applied: dict[Path, Any], owner: FieldManager
) -> dict[FieldManager, list[Path]]:
    """Fields that an apply would change although others own them."""
    found: dict[FieldManager, list[Path]] = {}
    for path, value in sorted(applied.items()):
        # An empty map asks for nothing, so it is at odds with nobody.
        if value == {} or (path in before and before[path] == value):
            continue
        for each, owned in owners.items():
            if each != owner and path in owned.paths:
                found.setdefault(each, []).append(path)
    return found


def refuse(found: dict[FieldManager, list[Path]], api_version: str) -> ErrorAnswer:
    """The server's answer to an apply with conflicts."""
    causes, lines = [], []
    for owner, paths in sorted(found.items()):
        whom = f'"{owner.manager}"'
        if owner.operation == "Update":
            whom += f" using {api_version}"
        if owner.subresource:
            whom += f' with subresource "{owner.subresource}"'
        shown = [_shown(path) for path in paths]
        causes += [
            {"reason": "FieldManagerConflict", "message": f"conflict with {whom}", "field": each} for each in shown
        ]
        if len(shown) == 1:
            lines.append(f"conflict with {whom}: {shown[0]}")
        else:
            lines.append(f"conflicts with {whom}:\n- " + "\n- ".join(shown))
    count = f"{len(causes)} conflict" + ("s" if len(causes) > 1 else "")
    return ErrorAnswer(409, "Conflict", f"Apply failed with {count}: " + "\n".join(lines), {"causes": causes})


def _shown(path: Path) -> str:
    out = ""
    for part in path:
        if part.startswith("f:"):
            out += f".{part[2:]}"
        elif part.startswith("k:"):
            out += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(part[2:]).items()) + "]"
        else:
            out += f"[{part[2:]}]"
    return out


def after_apply(
    owners: Owners, applied: frozenset[Path], owner: FieldManager, at: str, taken: dict[FieldManager, list[Path]]
) -> Owners:
    """Owners after an apply: the applier owns exactly what it applied; what it took by force is lost to others."""
    out: dict[FieldManager, ManagedFields] = {}
    for each, owned in owners.items():
        rest = owned.paths - frozenset(taken.get(each, ()))
        if each != owner and rest:
            out[each] = ManagedFields(rest, owned.at)
    if applied:
        known = owners.get(owner)
        out[owner] = known if known and known.paths == applied else ManagedFields(applied, at)
    return out


def dropped(owners: Owners, applied: frozenset[Path], owner: FieldManager) -> frozenset[Path]:
    """Fields that this manager applied before, no longer applies, and nobody else owns."""
    mine = owners.get(owner)
    if mine is None:
        return frozenset()
    others = [each.paths for name, each in owners.items() if name != owner]
    return frozenset(path for path in mine.paths - applied if not any(path in paths for paths in others))


def merged(live: Any, applied: Any, names: Path, keys: ListKeys) -> Any:
    """`live` with an applied value merged into it."""
    if isinstance(live, dict) and isinstance(applied, dict):
        out = dict(live)
        for name, value in applied.items():
            out[name] = merged(live.get(name), value, (*names, name), keys)
        return out
    if isinstance(live, list) and isinstance(applied, list) and names in keys:
        items = {_item(item, keys[names]): item for item in live}
        for item in applied:
            key = _item(item, keys[names])
            items[key] = merged(items[key], item, names, keys) if key in items else item
        return list(items.values())
    return applied


def stripped(body: Body, paths: frozenset[Path], keys: ListKeys) -> Body:
    """`body` without the leaves at these paths, and without what is empty then."""
    # The field that names a list item goes last: without it the item could no longer be found.
    for path in sorted(paths, key=lambda each: (_names_item(each), each)):
        body = _without(body, path, (), keys) or {}
    return body


def _names_item(path: Path) -> bool:
    return len(path) > 1 and path[-2].startswith("k:") and path[-1][2:] in json.loads(path[-2][2:])


def _without(value: Any, path: Path, names: Path, keys: ListKeys) -> Any:
    """`value` without the leaf at a path; None where nothing is left of it."""
    if not path:
        return None
    head, rest = path[0], path[1:]
    if isinstance(value, dict) and head.startswith("f:") and head[2:] in value:
        name = head[2:]
        inner = _without(value[name], rest, (*names, name), keys)
        out = {each: inside for each, inside in value.items() if each != name}
        if inner is not None:
            out = {each: inner if each == name else inside for each, inside in value.items()}
        return out or None
    if isinstance(value, list) and names in keys:
        items = [_without(item, rest, names, keys) if _item(item, keys[names]) == head else item for item in value]
        return [item for item in items if item is not None] or None
    return value


def managed_fields(owners: Owners, api_version: str) -> list[Body]:
    """The owners as they stand in metadata.managedFields."""
    out = []
    for owner, owned in sorted(owners.items()):
        tree: Body = {}
        for path in sorted(owned.paths):
            place = tree
            for part in path:
                place = place.setdefault(part, {})
        entry: Body = {
            "manager": owner.manager,
            "operation": owner.operation,
            "apiVersion": api_version,
            "time": owned.at,
        }
        entry |= {"fieldsType": "FieldsV1", "fieldsV1": tree}
        out.append(entry | ({"subresource": owner.subresource} if owner.subresource else {}))
    return out
