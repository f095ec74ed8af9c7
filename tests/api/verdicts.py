"""Asks a real API server what it thinks of a document, and compares with what `problems` says."""

import http.client
import json
import re
import ssl
import urllib.parse
from collections.abc import Iterable
from typing import Any

from headroom.api.kinds import KINDS
from tests.api.cases import API_VERSION
from tests.api.documents import as_json, problems
from tests.control_plane import ControlPlane

_UNKNOWN_FIELD = re.compile(r'(?:unknown|duplicate) field ("(?:[^"\\]|\\.)*")')


class Server:
    """One connection to the API server, as admin unless told otherwise."""

    def __init__(self, plane: ControlPlane, user: str = "admin") -> None:
        address = urllib.parse.urlsplit(plane.url)
        context = ssl.create_default_context(cafile=plane.ca_file)
        self._connection = http.client.HTTPSConnection(address.netloc, context=context, timeout=60)
        self._headers = {"Authorization": f"Bearer {plane.token(user)}", "Content-Type": "application/json"}

    def close(self) -> None:
        self._connection.close()

    def send(self, method: str, path: str, body: str | None = None) -> tuple[int, dict[str, Any]]:
        try:
            answer = self._ask(method, path, body)
        except (http.client.HTTPException, OSError):
            # The server ends a connection that was idle for long; none of these requests is spoilt by being sent twice.
            self._connection.close()
            answer = self._ask(method, path, body)
        text = answer.read().decode()
        # Where the server knows no such address it answers in plain text.
        return answer.status, json.loads(text) if text.startswith("{") else {"message": text}

    def _ask(self, method: str, path: str, body: str | None) -> http.client.HTTPResponse:
        self._connection.request(method, path, body.encode() if body else None, self._headers)
        return self._connection.getresponse()

    def try_to_create(self, document: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
        """Whether the server would accept it, and its answer: the object as it would be stored, or a Status."""
        status, answer = self.send("POST", path_of(document) + "?fieldValidation=Strict&dryRun=All", as_json(document))
        # 400: cannot be read, or unknown fields; 404: no such version or namespace; 422: wrong values.
        assert status in (201, 400, 404, 422), (status, answer)
        return status == 201, answer


def path_of(document: dict[str, Any], *, name: str = "") -> str:
    """Where a client sends it: the address comes from the document's own version, kind and namespace."""
    kind = KINDS[document["kind"]]
    metadata, version = document.get("metadata"), document.get("apiVersion")
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    version = version if version and isinstance(version, str) else API_VERSION
    namespace = namespace if namespace and isinstance(namespace, str) else "default"
    scope = f"/namespaces/{urllib.parse.quote(namespace)}" if kind.namespaced else ""
    return f"/apis/{version}{scope}/{kind.plural}" + (f"/{name}" if name else "")


def named_fields(answer: dict[str, Any]) -> set[str]:
    """The fields that a refusal names, in our spelling.

    The server's spelling differs in two places. A cause without a field has `<nil>` there: it accompanies another cause,
    or says that not all was checked. And owner references are named without their index, except when a field is unknown.
    """
    causes = answer.get("details", {}).get("causes", [])
    found = {cause.get("field", "") for cause in causes} - {"", "<nil>"}
    _, is_strict, complaints = answer["message"].partition("strict decoding error: ")
    if is_strict:
        found |= {json.loads(name) for name in _UNKNOWN_FIELD.findall(complaints)}
    return {re.sub(r"^metadata\.ownerReferences\.", "metadata.ownerReferences[0].", name) for name in found}


def disagreement(server: Server, document: dict[str, Any], *, accepted: bool | None = None) -> str:
    """Where the server and we differ on a document, and where both differ from what was expected; empty if nowhere."""
    ours = problems(document)
    is_accepted, answer = server.try_to_create(document)
    said = f"the server says {answer['message']!r:.300}" if not is_accepted else "the server accepts"
    if is_accepted != (not ours):
        return f"{said}, we say {ours!r:.300}"
    if accepted is not None and is_accepted != accepted:
        return f"expected the opposite: {said}"
    if not is_accepted and (more := named_fields(answer) - {each.field for each in ours}):
        return f"the server names also {sorted(more)}, we say {ours!r:.300}"
    return ""


def disagreements(
    server: Server, cases: Iterable[tuple[str, dict[str, Any]]], *, accepted: bool | None = None
) -> list[str]:
    found = ((label, disagreement(server, document, accepted=accepted)) for label, document in cases)
    return [f"{label:.200}: {text}" for label, text in found if text]
