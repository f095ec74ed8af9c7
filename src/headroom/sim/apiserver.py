"""A small Kubernetes API server in memory: the outside world of tests, scenarios and the demo.

It answers the calls of `adapters.kube.transport.Transport` with the status codes, reasons and words of a real server, so that
everything above that seam runs unchanged. A contract suite holds it to a real kube-apiserver.
"""

from __future__ import annotations

import random
import urllib.parse
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headroom.adapters.kube.transport import APPLY_PATCH, JSON, Reply
from headroom.sim import answers, evictions, reads
from headroom.sim.answers import Body, ErrorAnswer, PlainNotFound, not_allowed
from headroom.sim.apistore import ObjectStore
from headroom.sim.calls import ApiCall, decoded, verb_of
from headroom.sim.catalog import NAMESPACE, REVIEWS, Catalog, PathTarget, definitions
from headroom.sim.clock import SimClock
from headroom.sim.connection import SimTransport
from headroom.sim.controllers import Controllers
from headroom.sim.deletion import Deleter, delete_options
from headroom.sim.discovery import discovered
from headroom.sim.faults import Faults
from headroom.sim.policies import Policies
from headroom.sim.rights import (
    Actor,
    Right,
    User,
    Users,
    allowed,
    attributes,
    forbidden,
    is_expired,
    review,
    unauthorized,
)
from headroom.sim.trace import Trace
from headroom.sim.watches import BOOKMARK_SECONDS, Watch
from headroom.sim.writes import ObjectWriter, WriteOutcome

__all__ = ["Actor", "ApiServer"]

NAMESPACES: Final = ("default", "headroom-system", "kube-node-lease", "kube-public", "kube-system")
_CREATED: Final = 201
_SERVERS_OWN: Final = ("resourceVersion", "generation", "managedFields", "selfLink", "deletionTimestamp")
"""What an object that was copied out of a cluster carries, and no other cluster takes."""


class ApiServer:
    """The server. `transport` gives clients a way to it."""

    def __init__(self, clock: SimClock, rng: random.Random) -> None:
        self.clock, self.rng = clock, rng
        self.catalog = Catalog()
        self.store = ObjectStore(clock)
        self.users = Users()
        self.trace = Trace()
        self.writer = ObjectWriter(self.store, clock, rng, Policies(self.store, self.users))
        self._deleter = Deleter(self.writer, clock)
        self.bookmark_seconds = BOOKMARK_SECONDS
        """How often a watch without news is told so."""
        self.beside: dict[type, Any] = {}
        """What stands beside the cluster and can be called, by its class."""
        self._controllers = Controllers(self.store, self.catalog, self.writer, self._deleter)
        self._system = Actor(name="system", user=self.users["admin"])
        self._stage = Actor(name="stage", user=self.users["admin"], sets_stage=True)
        self._prepare()

    def _prepare(self) -> None:
        for name in NAMESPACES:
            self.do("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        for each in definitions():
            self.do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", each)

    # --- for clients ------------------------------------------------------------------------------------------------------

    def transport(
        self,
        user: str = "admin",
        *,
        actor: str = "",
        rights: tuple[Right, ...] | None = None,
        faults: Faults | None = None,
        latency_ms: int = 0,
    ) -> SimTransport:
        """A new client. A user that is not known yet is made, with these rights (None: all).

        `actor` names the client in the trace, in faults and in managedFields; two clients may share one user.
        """
        known = self.users.get(user) or self.users.add(User(name=user, rights=rights))
        return SimTransport(self, Actor(name=actor or user, user=known, latency_ms=latency_ms), faults)

    def handle(
        self,
        actor: Actor,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes = b"",
        content_type: str = JSON,
    ) -> Reply:
        """Answer one request, at once and as a whole."""
        try:
            reply = self._answer(actor, method, path, query, body, content_type)
        except ErrorAnswer as failure:
            reply = failure.reply()
        if method != "GET":
            self.trace.add(self.clock.now(), actor.name, (method, _with_query(path, query), body), reply.status)
            self._controllers.settle(orphans=not actor.sets_stage)
        return reply

    def verb(self, method: str, path: str, query: Mapping[str, str]) -> str:
        """The verb of a request, for rights and faults; the method itself where there is none."""
        try:
            return verb_of(method, self.catalog.target(path), query) or method.lower()
        except ErrorAnswer:
            return method.lower()

    def watch(self, actor: Actor, path: str, query: Mapping[str, str]) -> Watch:
        """Open a watch. Raises ApiError where the server does not answer 200."""
        target = self.catalog.target(path)
        self._authorize(actor, "watch", target)
        return Watch(self.store, target, query, self.clock, self.bookmark_seconds)

    def compact(self) -> None:
        """Forget all history: every older version is expired from now on."""
        self.store.compact()

    # --- for the simulated cluster and for tests --------------------------------------------------------------------------

    def do(self, method: str, path: str, document: Any = None, *, actor: Actor | None = None) -> Body:
        """A request with a document, as the system itself or another actor. Raises ApiError if it is refused."""
        content = "application/merge-patch+json" if method == "PATCH" else JSON
        body = b"" if document is None else msgspec.json.encode(document)
        reply = self.handle(actor or self._system, method, path, {}, body, content)
        found: Body = msgspec.json.decode(reply.body) if reply.body else {}
        if reply.status >= 400:
            raise ErrorAnswer(reply.status, found.get("reason", ""), found.get("message", ""), found.get("details"))
        return found

    def objects(self, kind: str, namespace: str = "") -> list[Body]:
        """Every object of a kind, by namespace and name. Not to be changed."""
        type_ = self.catalog.of_kind(kind)
        return [each.body for each in self.store.all(type_, namespace)] if type_ else []

    def object(self, kind: str, namespace: str, name: str) -> Body | None:
        """One object; None where there is none."""
        type_ = self.catalog.of_kind(kind)
        record = self.store.get(type_, namespace if type_.namespaced else "", name) if type_ else None
        return record.body if record else None

    def put(self, document: Body) -> None:
        """Make the cluster hold this object, whether it was there or not: how scenarios set the stage.

        Its status is taken too, and so are its uid and age if it is new.
        """
        type_ = self.catalog.find(str(document.get("apiVersion")), str(document.get("kind")))
        if type_ is None:
            raise PlainNotFound
        metadata = document.get("metadata") or {}
        namespace = str(metadata.get("namespace") or "default") if type_.namespaced else ""
        if namespace and self.store.get(NAMESPACE, "", namespace) is None:
            self.do("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}}, actor=self._stage)
        name = str(metadata.get("name", ""))
        metadata = {key: value for key, value in metadata.items() if key not in _SERVERS_OWN}
        given = {key: value for key, value in metadata.items() if key not in ("uid", "creationTimestamp")}
        plain = {key: value for key, value in document.items() if key != "status"} | {"metadata": given}
        if self.store.get(type_, namespace, name) is None:
            self.do("POST", type_.url(namespace), plain | {"metadata": metadata}, actor=self._stage)
        else:
            self._apply(type_.url(namespace, name), plain)
        if document.get("status") and type_.status:
            self.do("PATCH", type_.url(namespace, name, "status"), {"status": document["status"]}, actor=self._stage)

    def _apply(self, path: str, document: Body) -> None:
        query = {"fieldManager": self._stage.name, "force": "true"}
        reply = self.handle(self._stage, "PATCH", path, query, msgspec.json.encode(document), APPLY_PATCH)
        if reply.status >= 400:
            found = msgspec.json.decode(reply.body)
            raise ErrorAnswer(reply.status, found.get("reason", ""), found.get("message", ""), found.get("details"))

    # --- inside -----------------------------------------------------------------------------------------------------------

    def _authorize(self, actor: Actor, verb: str, target: PathTarget) -> None:
        if self.users.get(actor.user.name) is not actor.user or is_expired(actor.user, self.clock.now()):
            raise unauthorized()
        wanted = attributes(verb, target)
        if not allowed(actor.user, wanted):
            raise forbidden(actor.user.name, wanted)

    def _answer(
        self, actor: Actor, method: str, path: str, query: Mapping[str, str], body: bytes, content_type: str
    ) -> Reply:
        if self.users.get(actor.user.name) is not actor.user or is_expired(actor.user, self.clock.now()):
            raise unauthorized()
        if method == "GET":
            found = discovered(self.catalog, path)
            if found is not None:
                return found
        target = self.catalog.target(path)
        verb = verb_of(method, target, query)
        if verb is None:
            raise not_allowed()
        self._authorize(actor, verb, target)
        call = ApiCall(
            user=actor.user.name,
            manager=actor.name,
            verb=verb,
            target=target,
            query=query,
            body=body,
            content_type=content_type.split(";", maxsplit=1)[0],
            sets_stage=actor.sets_stage,
        )
        return self._serve(call)

    def _serve(self, call: ApiCall) -> Reply:
        target = call.target
        match call.verb:
            case "get":
                return answers.json(200, reads.get(self.store, target, call.query).raw())
            case "list":
                return answers.json(200, reads.listed(self.store, target, call.query))
            case "create":
                return self._create(call)
            case "update":
                return _written(self.writer.update(call))
            case "patch":
                return _written(self.writer.patch(call))
            case "delete":
                self._orphan(call)
                return answers.json(200, self._deleter.delete(call))
            case "deletecollection":
                return answers.json(200, self._deleter.delete_all(call))
        raise not_allowed()

    def _create(self, call: ApiCall) -> Reply:
        target = call.target
        if target.subresource == "eviction":
            return answers.json(_CREATED, evictions.evict(call, self.writer, self._deleter))
        if target.subresource == "binding":
            return answers.json(_CREATED, evictions.bind(call, self.writer))
        if target.type.plural in REVIEWS:
            asked = decoded(call.body, "")
            if not isinstance(asked, dict):
                raise not_allowed()
            return answers.json(_CREATED, review(call, self.users, asked, self.clock.now()))
        if target.type.namespaced and not target.namespace:
            raise not_allowed()
        return _written(self.writer.create(call))

    def _orphan(self, call: ApiCall) -> None:
        if delete_options(call).get("propagationPolicy") == "Orphan":
            record = self.writer.found(call.target.type, call.target.namespace, call.target.name)
            self._controllers.orphan(record.uid)


def _written(outcome: WriteOutcome) -> Reply:
    return answers.json(outcome.status, outcome.record.raw(), outcome.warnings)


def _with_query(path: str, query: Mapping[str, str]) -> str:
    return path + ("?" + urllib.parse.urlencode(sorted(query.items())) if query else "")
