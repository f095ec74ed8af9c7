"""What an API server answers when it does not do as asked, each answer named by who must act.

Every error is an `ApiError`, and at the same time one of the model's three: `Unavailable` (we try again), `Refused`
(somebody else must change something) or `Misconfigured` (the user must edit something).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from msgspec import Struct

from headroom.adapters.kube.transport import Reply
from headroom.model.errors import HeadroomError, Misconfigured, Refused, Unavailable

Causes = tuple[tuple[str, str], ...]
"""Pairs of field and message, in the server's order."""

_FORBIDDEN: Final = re.compile(r'cannot (\S+) (?:resource "([^"]*)"(?: in API group "([^"]*)")?|path "([^"]*)")')
_LONGEST_TEXT: Final = 1000
_TWO_BUDGETS: Final = "more than one PodDisruptionBudget"


class ApiError(HeadroomError):
    """The server answered, but not with success. Its text is the whole sentence."""

    def __init__(
        self, status: int, reason: str, message: str, causes: Causes = (), retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after = retry_after


class Unauthorized(ApiError, Refused):
    """401: the server does not know us."""


class Forbidden(ApiError, Refused):
    """403: we lack a right, or an admission rule said no."""

    @property
    def verb(self) -> str:
        """The verb that we may not use; empty where the server names none, as in a refusal by an admission rule."""
        found = _FORBIDDEN.search(self.message)
        return found[1] if found else ""

    @property
    def resource(self) -> str:
        """The resource that the verb is missing for, such as `pods/eviction` or `powerpools.headroom.dev`."""
        found = _FORBIDDEN.search(self.message)
        if not found:
            return ""
        return found[4] or (f"{found[2]}.{found[3]}" if found[3] else found[2])


class NotFound(ApiError, Refused):
    """404: no such object, or no such kind."""


class AlreadyExists(ApiError, Refused):
    """409 to a create: the name is taken."""


class Conflict(ApiError, Unavailable):
    """409 to a write: the object is not the one, or not in the version, that the write was meant for; or others own a field.

    Nobody refused anything: one looks again and decides anew.
    """


class Gone(ApiError, Unavailable):
    """410: the server no longer knows that version or page; one begins again with a new list."""


class Invalid(ApiError, Misconfigured):
    """422: the object breaks its schema or a rule; `causes` names the fields."""


class DisruptionBlocked(ApiError, Refused):
    """429 to an eviction: a PodDisruptionBudget does not allow it now."""


class TooManyRequests(ApiError, Unavailable):
    """429: the server has too much to do."""


class Rejected(ApiError, Refused):
    """Any other 4xx: the server does not accept such a request."""


class ServerError(ApiError, Unavailable):
    """5xx, or anything that no API server should say."""


class EvictionImpossible(ApiError, Refused):
    """An eviction that can never succeed, since more than one PodDisruptionBudget selects the pod."""


class _Cause(Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(Struct, rename="camel"):
    causes: list[_Cause] | None = None
    retry_after_seconds: float = 0


class _Status(Struct):
    message: str | None = None
    reason: str | None = None
    details: _Details | None = None


_STATUS: Final = msgspec.json.Decoder(_Status)
_BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def class_for(status: int, reason: str = "") -> type[ApiError]:
    """The class of error for an HTTP status, or for the code in a watch's ERROR event."""
    if reason == "AlreadyExists":
        return AlreadyExists
    if found := _BY_STATUS.get(status):
        return found
    return Rejected if 400 <= status < 500 else ServerError


def from_reply(reply: Reply, doing: str) -> ApiError:
    """The error in a reply that is no success; `doing` begins its sentence."""
    try:
        said = _STATUS.decode(reply.body)
    except msgspec.DecodeError:
        # Not from an API server, but from something before it: its first words are all we have.
        said = _Status(message=" ".join(reply.body.decode("utf-8", "replace").split()))
    details = said.details or _Details()
    found = details.causes or []
    reason = said.reason or ""
    kind = class_for(reply.status, reason)
    if kind is TooManyRequests and any(cause.reason == "DisruptionBudget" for cause in found):
        kind = DisruptionBlocked
    if kind is Invalid and found and all(cause.field == "metadata.uid" for cause in found):
        # A write that names the uid of an object whose name somebody else has by now: some kinds answer 409, pods 422.
        kind = Conflict
    why = (said.message or _phrase(reply.status)).strip()
    if len(why) > _LONGEST_TEXT:
        why = f"{why[: _LONGEST_TEXT // 2]} ... {why[-_LONGEST_TEXT // 2 :]}"
    if kind is DisruptionBlocked:
        # Only the cause names the budget.
        why = " ".join([why, *(cause.message for cause in found)])
    sentence = f"{doing}: {why}"
    causes = tuple((cause.field, cause.message) for cause in found)
    return kind(reply.status, reason, sentence, causes, _retry_after(reply, details))


def says_gone(problem: NotFound, name: str) -> bool:
    """Whether it is the API server itself that says that there is no object of that name, and not anything before it."""
    return problem.reason == "NotFound" and f'"{name}" not found' in problem.message


def eviction_error(error: ApiError) -> ApiError:
    """The error of an eviction: a server error that will never go away is told apart from one that may."""
    if isinstance(error, ServerError) and _TWO_BUDGETS in error.message:
        return EvictionImpossible(error.status, error.reason, error.message, error.causes)
    return error


def _retry_after(reply: Reply, details: _Details) -> float | None:
    if details.retry_after_seconds > 0:
        return details.retry_after_seconds
    header = reply.headers.get("retry-after", "")
    # The header may also be a date; no API server sends one.
    return float(header) if header.isascii() and header.isdigit() else None


def _phrase(status: int) -> str:
    try:
        return f"the server answered {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"the server answered {status}"
