"""The ways in which a Kubernetes API server says no, as Status documents with its own codes, reasons and words."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headroom.adapters.kube.transport import Reply

Body = dict[str, Any]
"""A JSON object as the server keeps it. Never changed in place once it is stored."""

_JSON: Final = {"content-type": "application/json"}
MODIFIED: Final = "the object has been modified; please apply your changes to the latest version and try again"


class ErrorAnswer(Exception):
    """An answer that is not success."""

    def __init__(
        self, code: int, reason: str, message: str, details: Body | None = None, *, extra: Body | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details
        self.extra = extra or {}

    def document(self) -> Body:
        """The Status that stands in the body."""
        out: Body = {"kind": "Status", "apiVersion": "v1", "metadata": dict(self.extra), "status": "Failure"}
        out["message"] = self.message
        if self.reason:
            out["reason"] = self.reason
        if self.details is not None:
            out["details"] = self.details
        return out | {"code": self.code}

    def reply(self) -> Reply:
        """The whole answer."""
        headers = dict(_JSON)
        if self.details and "retryAfterSeconds" in self.details:
            headers["retry-after"] = str(self.details["retryAfterSeconds"])
        return Reply(status=self.code, body=msgspec.json.encode(self.document()), headers=headers)


class PlainNotFound(ErrorAnswer):
    """What the server says below a path that nobody serves: text, not a Status."""

    def __init__(self) -> None:
        super().__init__(404, "NotFound", "404 page not found")

    def reply(self) -> Reply:
        """The whole answer."""
        return Reply(status=404, body=b"404 page not found\n", headers={"content-type": "text/plain; charset=utf-8"})


def json(status: int, document: Any, warnings: list[str] | None = None) -> Reply:
    """An answer with a document."""
    headers = dict(_JSON)
    if warnings:
        headers["warning"] = ", ".join(f'299 - "{each}"' for each in warnings)
    return Reply(
        status=status, body=document if isinstance(document, bytes) else msgspec.json.encode(document), headers=headers
    )


def success(code: int = 0, details: Body | None = None) -> Body:
    """A Status that says yes."""
    out: Body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details is not None:
        out["details"] = details
    return out | ({"code": code} if code else {})


def about(group: str, kind: str, name: str = "") -> Body:
    """The details of a Status: which object it speaks of."""
    return {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}


def dotted(kind: str, group: str) -> str:
    """A kind or resource with its group, as messages name it."""
    return f"{kind}.{group}" if group else kind


def not_found(group: str, resource: str, name: str) -> ErrorAnswer:
    """There is no such object."""
    return ErrorAnswer(404, "NotFound", f'{dotted(resource, group)} "{name}" not found', about(group, resource, name))


def exists(group: str, resource: str, name: str) -> ErrorAnswer:
    """There is one already."""
    return ErrorAnswer(
        409, "AlreadyExists", f'{dotted(resource, group)} "{name}" already exists', about(group, resource, name)
    )


def conflict(group: str, resource: str, name: str, why: str = MODIFIED) -> ErrorAnswer:
    """Somebody was faster, or the object is another one."""
    message = f'Operation cannot be fulfilled on {dotted(resource, group)} "{name}": {why}'
    return ErrorAnswer(409, "Conflict", message, about(group, resource, name))


def bad_request(message: str) -> ErrorAnswer:
    """The request cannot be read."""
    return ErrorAnswer(400, "BadRequest", message)


def unserved() -> ErrorAnswer:
    """No such resource in a group that the server itself has."""
    return ErrorAnswer(404, "NotFound", "the server could not find the requested resource", {})


def not_allowed() -> ErrorAnswer:
    """The resource has no such method."""
    return ErrorAnswer(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def expired(message: str, *, extra: Body | None = None) -> ErrorAnswer:
    """The version asked for is no longer kept."""
    return ErrorAnswer(410, "Expired", message, extra=extra)


def too_large(version: int, current: int) -> ErrorAnswer:
    """The version asked for does not exist yet: this server has gone back in time."""
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    message = f"Timeout: Too large resource version: {version}, current: {current}"
    return ErrorAnswer(504, "Timeout", message, {"causes": causes, "retryAfterSeconds": 1})


class Cause(msgspec.Struct, frozen=True):
    """One wrong field."""

    field: str
    reason: str
    message: str


def required(field: str, message: str = "Required value") -> Cause:
    """A field that must be given."""
    return Cause(field, "FieldValueRequired", message)


def invalid_value(field: str, value: Any, why: str) -> Cause:
    """A field with a value that it must not have."""
    shown = msgspec.json.encode(value).decode()
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown}: {why}")


def forbidden_field(field: str, why: str) -> Cause:
    """A field that must not be given or changed."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def invalid(group: str, kind: str, name: str, causes: list[Cause]) -> ErrorAnswer:
    """The object breaks rules."""
    texts = list(dict.fromkeys(f"{each.field}: {each.message}" for each in causes))
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = about(group, kind, name) | {
        "causes": [{"reason": each.reason, "message": each.message, "field": each.field} for each in causes]
    }
    return ErrorAnswer(422, "Invalid", f'{dotted(kind, group)} "{name}" is invalid: {text}', details)
