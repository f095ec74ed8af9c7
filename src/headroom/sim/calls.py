"""One request as the simulated API server sees it after reading its path: who asks what of which object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import yaml
from msgspec import Struct

from headroom.adapters.kube.transport import APPLY_PATCH
from headroom.sim.answers import Body, ErrorAnswer, bad_request, invalid, invalid_value
from headroom.sim.catalog import PathTarget, ResourceType

_WHOLE: Final = {"POST": "create", "GET": "list", "DELETE": "deletecollection"}
_NAMED: Final = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class ApiCall(Struct, frozen=True, kw_only=True):
    """A request."""

    user: str
    manager: str
    """Who owns the fields that are written, unless the query says otherwise."""
    verb: str
    target: PathTarget
    query: Mapping[str, str]
    body: bytes = b""
    content_type: str = ""
    sets_stage: bool = False
    """It puts a scenario's objects in place, which keep the identity and the age that they are given."""

    @property
    def field_manager(self) -> str:
        """Who owns the fields that are written."""
        return self.query.get("fieldManager") or self.manager

    @property
    def validation(self) -> str:
        """What becomes of unknown fields: Strict, Warn or Ignore."""
        return self.query.get("fieldValidation") or "Warn"

    @property
    def dry(self) -> bool:
        """Only try it."""
        return bool(self.query.get("dryRun"))


def verb_of(method: str, target: PathTarget, query: Mapping[str, str]) -> str | None:
    """The verb that rights and faults speak of; None where the resource has no such method."""
    if target.subresource in ("eviction", "binding"):
        return "create" if method == "POST" else None
    if not target.name:
        if method == "GET" and query.get("watch") in ("1", "true"):
            return "watch"
        return _WHOLE.get(method)
    return _NAMED.get(method)


def document(call: ApiCall) -> Body:
    """The object in the body, with its kind checked. Raises what the server answers to anything else."""
    type_ = call.target.type
    found = decoded(call.body, f"the object provided is unrecognized (must be of type {type_.kind}): ")
    if not isinstance(found, dict):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {type_.kind}): couldn't get version/kind"
        )
    if type_.custom and not found.get("kind"):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {type_.kind}): Object 'Kind' is missing"
        )
    out = {"kind": type_.kind, "apiVersion": type_.api_version} | found
    check_kind(type_, out)
    metadata: Any = out.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise bad_request("the object provided is unrecognized: metadata is no object")
    _check_place(call.target, metadata)
    return out | {"metadata": metadata}


def check_kind(type_: ResourceType, body: Body) -> None:
    """Refuse an object of another kind or version than the path means."""
    if body["apiVersion"] != type_.api_version:
        raise bad_request(
            f"the API version in the data ({body['apiVersion']}) does not match the expected API version ({type_.api_version})"
        )
    if body["kind"] != type_.kind and not type_.custom:
        raise bad_request(f'{body["kind"]} in version "{type_.version}" cannot be handled as a {type_.kind}')
    if body["kind"] != type_.kind:
        name = (body.get("metadata") or {}).get("name", "")
        raise invalid(
            type_.group, str(body["kind"]), name, [invalid_value("kind", body["kind"], f"must be {type_.kind}")]
        )


def _check_place(target: PathTarget, metadata: Body) -> None:
    name, namespace = metadata.get("name", ""), metadata.get("namespace", "")
    if target.name and name and name != target.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({target.name})")
    if namespace and target.type.namespaced and namespace != target.namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def decoded(body: bytes, where: str) -> Any:
    """The JSON of a body."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as failure:
        raise bad_request(f"{where}couldn't get version/kind; json parse error: {failure}") from None


def patch_document(call: ApiCall, kinds: tuple[str, ...]) -> Any:
    """The body of a patch, if it is of one of these content types."""
    if call.content_type not in kinds:
        raise ErrorAnswer(
            415,
            "UnsupportedMediaType",
            f"the body of the request was in an unknown format - accepted media types include: {', '.join(kinds)}",
        )
    if call.content_type != APPLY_PATCH:
        return decoded(call.body, "error decoding patch: ")
    try:
        return msgspec.json.decode(call.body)
    except msgspec.DecodeError:
        pass
    try:
        return yaml.safe_load(call.body)
    except yaml.YAMLError as failure:
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: {failure}") from None
