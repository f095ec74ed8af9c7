"""Merge patch (RFC 7386), JSON patch (RFC 6902) and some of the strategic merge patch, on documents that are never changed in place."""

from __future__ import annotations

from typing import Any, Final

from headroom.sim.answers import ErrorAnswer, bad_request

_DELETE: Final = "$deleteFromPrimitiveList"


def merged(target: Any, patch: Any) -> Any:
    """`target` with a merge patch applied."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            out.pop(name, None)
        else:
            out[name] = merged(out.get(name), value)
    return out


def strategic(target: Any, patch: Any) -> Any:
    """`target` with a strategic merge patch applied. Of lists it knows finalizers only, which are added to and taken from."""
    if not isinstance(patch, dict):
        return patch
    out = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        directive, _, about = name.partition("/")
        if directive == _DELETE:
            out[about] = [each for each in out.get(about) or [] if each not in value]
        elif name == "finalizers" and isinstance(value, list):
            there = out.get(name) or []
            out[name] = [*there, *(each for each in value if each not in there)]
        elif name.startswith("$") or isinstance(value, list):
            raise bad_request(f"the simulated server does not know {name} in a strategic merge patch")
        elif value is None:
            out.pop(name, None)
        else:
            out[name] = strategic(out.get(name), value)
    return out


def json_patched(target: Any, operations: Any) -> Any:
    """`target` with a JSON patch applied. A failed test or a path that is not there is refused as the server does."""
    if not isinstance(operations, list) or not all(isinstance(each, dict) for each in operations):
        raise bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"
        )
    for each in operations:
        target = _apply(target, each)
    return target


def _rejected() -> ErrorAnswer:
    return ErrorAnswer(422, "Invalid", "the server rejected our request due to an error in our request", {})


def _apply(target: Any, operation: dict[str, Any]) -> Any:
    path = _pointer(operation.get("path"))
    match operation.get("op"):
        case "add":
            return _write(target, path, operation.get("value"), insert=True)
        case "replace":
            _read(target, path)
            return _write(target, path, operation.get("value"), insert=False)
        case "remove":
            _read(target, path)
            return _without(target, path)
        case "test":
            if _read(target, path) != operation.get("value"):
                raise _rejected()
            return target
        case "copy":
            return _write(target, path, _read(target, _pointer(operation.get("from"))), insert=True)
        case "move":
            source = _pointer(operation.get("from"))
            value = _read(target, source)
            return _write(_without(target, source), path, value, insert=True)
    raise _rejected()


def _pointer(path: Any) -> list[str]:
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise _rejected()
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]


def _read(target: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(target, dict) and part in target:
            target = target[part]
        elif isinstance(target, list):
            target = target[_index(part, len(target) - 1)]
        else:
            raise _rejected()
    return target


def _index(part: str, largest: int) -> int:
    if part.isascii() and part.isdigit() and int(part) <= largest:
        return int(part)
    raise _rejected()


def _write(target: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(target, dict):
        if rest and head not in target:
            raise _rejected()
        return target | {head: _write(target.get(head), rest, value, insert=insert)}
    if not isinstance(target, list):
        raise _rejected()
    if not rest and insert:
        at = len(target) if head == "-" else _index(head, len(target))
        return [*target[:at], value, *target[at:]]
    at = _index(head, len(target) - 1)
    return [*target[:at], _write(target[at], rest, value, insert=insert), *target[at + 1 :]]


def _without(target: Any, path: list[str]) -> Any:
    if not path:
        return None
    head, rest = path[0], path[1:]
    if isinstance(target, dict):
        if rest:
            return target | {head: _without(target[head], rest)}
        return {name: value for name, value in target.items() if name != head}
    at = _index(head, len(target) - 1)
    if rest:
        return [*target[:at], _without(target[at], rest), *target[at + 1 :]]
    return [*target[:at], *target[at + 1 :]]
