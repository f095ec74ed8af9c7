"""Create, replace, patch and apply, with the checks and side effects of the real API server."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from headroom.adapters.kube.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from headroom.model import times
from headroom.model.ports import Clock
from headroom.sim import admission, apply, builtin, naming, patches, resizing
from headroom.sim.answers import (
    Body,
    Cause,
    ErrorAnswer,
    about,
    bad_request,
    conflict,
    exists,
    invalid,
    invalid_value,
    not_found,
    required,
)
from headroom.sim.apistore import ObjectStore, Record
from headroom.sim.apply import FieldManager, ManagedFields, Owners
from headroom.sim.calls import ApiCall, check_kind, document, patch_document
from headroom.sim.catalog import NAMESPACE, POD, ResourceType
from headroom.sim.policies import Policies

Hook = Callable[[ResourceType, str, Body], Body]
"""An admission step of a test or scenario: gets type, verb and object, gives the object back or raises an ApiError."""

_PATCHES: Final = (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
_OWN_PATCHES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
"""Those that the server's own kinds take."""
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_FIXED: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "generateName",
)
_UNSET: Final = ("", "0", None)


class WriteOutcome(Struct, frozen=True):
    """What a write came to."""

    status: int
    record: Record
    warnings: list[str] = []


class ObjectWriter:
    """Everything that makes or changes objects."""

    def __init__(self, store: ObjectStore, clock: Clock, rng: random.Random, policies: Policies) -> None:
        self.store = store
        self._policies = policies
        self._clock = clock
        self._rng = rng
        self.hooks: list[Hook] = []

    def now(self) -> str:
        """The current second, as metadata has it."""
        now = self._clock.now()
        return times.text(now - now % times.SECOND)

    def found(self, type_: ResourceType, namespace: str, name: str) -> Record:
        """The object. Raises the server's 404 where there is none."""
        record = self.store.get(type_, namespace, name)
        if record is None:
            raise not_found(type_.group, type_.plural, name)
        return record

    # --- creation ---------------------------------------------------------------------------------------------------------

    def create(self, call: ApiCall) -> WriteOutcome:
        """POST to a collection."""
        owner = FieldManager(call.field_manager, "Update")
        return self.make(call, document(call), lambda body: self._first_owners(call.target.type, body, owner))

    def make(self, call: ApiCall, body: Body, owners: Callable[[Body], Owners]) -> WriteOutcome:
        """Keep a new object."""
        type_, namespace = call.target.type, call.target.namespace
        if why := naming.not_text(body):
            raise bad_request(f'{type_.kind} in version "{type_.version}" cannot be handled as a {type_.kind}: {why}')
        if type_.namespaced:
            self._check_namespace(namespace, type_, body["metadata"].get("name", ""))
        body = self._named(body, call, namespace)
        name = body["metadata"]["name"]
        body, warnings = admission.pruned(type_, body, call.validation)
        body = builtin.created(type_, self._policies.mutated(call, body), self.now())
        for hook in self.hooks:
            body = hook(type_, "create", body)
        wrong = builtin.name_causes(name) + _causes(type_, body, {})
        if wrong:
            raise invalid(type_.group, type_.kind, name, wrong)
        self._policies.check_created(call, body)
        if self.store.get(type_, namespace, name):
            raise exists(type_.group, type_.plural, name)
        body = builtin.tidied(type_, admission.defaulted(type_, body))
        if call.dry:
            return WriteOutcome(201, Record(type_, body, {}), warnings)
        return WriteOutcome(201, self.store.put(type_, body, owners(body)), warnings)

    def _first_owners(self, type_: ResourceType, body: Body, owner: FieldManager) -> Owners:
        if not type_.owned:
            return {}
        paths = frozenset(apply.leaves(body, apply.list_keys(type_)))
        return {owner: ManagedFields(paths, self.now())} if paths else {}

    def _check_namespace(self, namespace: str, type_: ResourceType, name: str) -> None:
        record = self.store.get(NAMESPACE, "", namespace)
        if record is None:
            raise not_found("", "namespaces", namespace)
        if record.body["metadata"].get("deletionTimestamp"):
            cause = {"reason": "NamespaceTerminating", "message": f"namespace {namespace} is being terminated"}
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            details = about(type_.group, type_.plural, name) | {"causes": [cause | {"field": "metadata.namespace"}]}
            raise ErrorAnswer(403, "Forbidden", f'{type_.plural} "{name}" is forbidden: {why}', details)

    def _named(self, body: Body, call: ApiCall, namespace: str) -> Body:
        given = body["metadata"]
        if given.get("resourceVersion") not in _UNSET:
            raise ErrorAnswer(500, "", "resourceVersion should not be set on objects to be created")
        name = given.get("name") or call.target.name
        if not name and given.get("generateName"):
            name = given["generateName"][:58] + "".join(self._rng.choice(_LETTERS) for _ in range(5))
        if not name:
            wrong = [required("metadata.name", "Required value: name or generateName is required")]
            raise invalid(call.target.type.group, call.target.type.kind, "", wrong)
        metadata: Body = {"name": name}
        if given.get("generateName"):
            metadata["generateName"] = given["generateName"]
        if namespace:
            metadata["namespace"] = namespace
        metadata["uid"] = str(uuid.UUID(int=self._rng.getrandbits(128), version=4))
        if call.target.type.generation:
            metadata["generation"] = 1
        metadata["creationTimestamp"] = self.now()
        if call.sets_stage:
            metadata |= {part: given[part] for part in ("uid", "creationTimestamp") if given.get(part)}
        for part in ("labels", "annotations", "ownerReferences", "finalizers"):
            if given.get(part):
                metadata[part] = given[part]
        return {"kind": body["kind"], "apiVersion": body["apiVersion"], "metadata": metadata} | {
            part: value for part, value in body.items() if part not in ("kind", "apiVersion", "metadata")
        }

    # --- change -----------------------------------------------------------------------------------------------------------

    def update(self, call: ApiCall) -> WriteOutcome:
        """PUT of an object or its status."""
        type_, wanted = call.target.type, document(call)
        record = self.store.get(type_, call.target.namespace, call.target.name)
        if record is None:
            if type_.upsert and not call.target.subresource:
                return self._upsert(call, wanted)
            raise not_found(type_.group, type_.plural, call.target.name)
        given = wanted["metadata"]
        if given.get("uid") and given["uid"] != record.uid:
            why = f"Precondition failed: UID in precondition: {given['uid']}, UID in object meta: {record.uid}"
            raise conflict(type_.group, type_.plural, call.target.name, why)
        if given.get("resourceVersion") in _UNSET and not type_.unconditional:
            wrong = [invalid_value("metadata.resourceVersion", 0, "must be specified for an update")]
            raise invalid(type_.group, type_.plural, call.target.name, wrong)
        return self.change(call, record, wanted)

    def _upsert(self, call: ApiCall, wanted: Body) -> WriteOutcome:
        """PUT where nothing is. A version does no harm, as on the real server, but a uid can only be of something gone."""
        given = wanted["metadata"]
        if uid := given.get("uid"):
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: "
            raise conflict(call.target.type.group, call.target.type.plural, call.target.name, why)
        metadata = {name: value for name, value in given.items() if name != "resourceVersion"}
        return self.make(call, wanted | {"metadata": metadata}, lambda _: {})

    def patch(self, call: ApiCall) -> WriteOutcome:
        """PATCH of an object or its status, in any of the forms."""
        patch = patch_document(call, _PATCHES if call.target.type.custom else _OWN_PATCHES)
        if call.content_type == APPLY_PATCH:
            return self.apply(call, patch)
        record = self.found(call.target.type, call.target.namespace, call.target.name)
        if call.content_type == MERGE_PATCH:
            wanted = patches.merged(record.body, patch)
        elif call.content_type == STRATEGIC_PATCH:
            wanted = patches.strategic(record.body, patch)
        else:
            wanted = patches.json_patched(record.body, patch)
        if not isinstance(wanted, dict) or not isinstance(wanted.get("metadata"), dict):
            raise bad_request("error decoding patch: the result is no object")
        if why := naming.not_text(wanted):
            raise invalid("", "", "", [invalid_value("patch", wanted, why)])
        if wanted["metadata"].get("namespace", "") != call.target.namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if wanted["metadata"].get("name") != call.target.name:
            given = wanted["metadata"].get("name", "")
            raise bad_request(
                f"the name of the object ({given}) does not match the name on the URL ({call.target.name})"
            )
        return self.change(call, record, wanted)

    def apply(self, call: ApiCall, config: Any) -> WriteOutcome:
        """Server-side apply."""
        type_, target = call.target.type, call.target
        manager = call.query.get("fieldManager")
        if not manager:
            wrong = [required("fieldManager", "Required value: is required for apply patch")]
            raise invalid("meta.k8s.io", "PatchOptions", "", wrong)
        config = _checked_config(config, call)
        if why := naming.not_text(config):
            raise ErrorAnswer(500, "", f"failed to create typed patch object: {why}")
        record = self.store.get(type_, target.namespace, target.name)
        owner = FieldManager(manager, "Apply", target.subresource)
        keys = apply.list_keys(type_)
        applied = apply.leaves(_part(config, type_, target.subresource), keys)
        if record is None:
            if target.subresource:
                raise not_found(type_.group, type_.plural, target.name)
            if config["metadata"].get("uid"):
                uid = config["metadata"]["uid"]
                why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                raise conflict(type_.group, type_.plural, target.name, why)
            return self.make(
                call, config, lambda _: {owner: ManagedFields(frozenset(applied), self.now())} if applied else {}
            )
        before = apply.leaves(record.body, keys)
        taken = apply.conflicts(record.owners, before, applied, owner)
        if taken and call.query.get("force") != "true":
            raise apply.refuse(taken, type_.api_version)
        paths = frozenset(applied)
        body = apply.stripped(record.body, apply.dropped(record.owners, paths, owner), keys)
        wanted = apply.merged(body, config, (), keys)
        return self.change(call, record, wanted, apply.after_apply(record.owners, paths, owner, self.now(), taken))

    def change(self, call: ApiCall, record: Record, wanted: Body, owners: Owners | None = None) -> WriteOutcome:
        """Bring an object to what is wanted, as far as this endpoint may; nothing happens if that is what it is."""
        type_, name = record.type, record.body["metadata"]["name"]
        version = wanted["metadata"].get("resourceVersion")
        if version not in _UNSET and version != record.body["metadata"]["resourceVersion"]:
            raise conflict(type_.group, type_.plural, name)
        wanted, warnings = admission.pruned(type_, wanted, call.validation)
        body = _after(record, wanted, call.target.subresource)
        for hook in self.hooks:
            body = hook(type_, "update", body)
        self._check(record, body, wanted, call.target.subresource)
        self._policies.check_updated(call, record.body, body)
        body = builtin.tidied(type_, admission.defaulted(type_, body))
        same = owners is None or _paths(owners) == _paths(record.owners)
        if call.dry or (same and body == record.body):
            return WriteOutcome(200, record if body == record.body else Record(type_, body, record.owners), warnings)
        body = _next_generation(record, body)
        if owners is None:
            owners = self._owners_after(call, record, body)
        return WriteOutcome(200, self.keep(record, body, owners), warnings)

    def keep(self, record: Record, body: Body, owners: Owners | None = None) -> Record:
        """Store a changed object, or let it go if it only waited for its last finalizer."""
        owners = record.owners if owners is None else owners
        metadata = body["metadata"]
        # A pod waits for its kubelet too, unless no time was left to it.
        waits = record.type is POD and metadata.get("deletionGracePeriodSeconds", 0) > 0
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers") and not waits:
            return self.store.remove(Record(record.type, body, owners))
        return self.store.put(record.type, body, owners)

    def _owners_after(self, call: ApiCall, record: Record, body: Body) -> Owners:
        type_ = record.type
        if not type_.owned:
            return {}
        keys = apply.list_keys(type_)
        owner = FieldManager(call.field_manager, "Update", call.target.subresource)
        return apply.after_update(
            record.owners, apply.leaves(record.body, keys), apply.leaves(body, keys), owner, self.now()
        )

    def _check(self, record: Record, body: Body, wanted: Body, subresource: str) -> None:
        type_ = record.type
        wrong = []
        uid = wanted["metadata"].get("uid")
        # The status of a custom resource takes nothing from metadata, so a wrong uid there goes unnoticed.
        if uid and uid != record.uid and not (type_.custom and subresource):
            wrong.append(invalid_value("metadata.uid", uid, "field is immutable"))
        wrong += [] if subresource == "resize" else builtin.update_causes(type_, record.body, body)
        wrong += _causes(type_, body, record.body["metadata"]) + admission.changed(type_, record.body, body)
        if wrong:
            raise invalid(type_.group, type_.kind, body["metadata"]["name"], wrong)


def _causes(type_: ResourceType, body: Body, before: Body) -> list[Cause]:
    """Whatever is wrong with an object. Our own kinds bring the rules for metadata along; what was judged once stays good."""
    metadata = body["metadata"]
    judged = admission.is_ours(type_) or all(metadata.get(part) == before.get(part) for part in naming.PARTS)
    return (
        ([] if judged else naming.causes(type_, metadata)) + admission.causes(type_, body) + builtin.causes(type_, body)
    )


def _paths(owners: Owners) -> dict[FieldManager, frozenset[apply.Path]]:
    return {owner: owned.paths for owner, owned in owners.items()}


def _checked_config(config: Any, call: ApiCall) -> Body:
    if not isinstance(config, dict) or not config.get("kind") or not config.get("apiVersion"):
        raise bad_request("error decoding YAML: an apply needs apiVersion and kind")
    check_kind(call.target.type, config)
    metadata = config.get("metadata") or {}
    if metadata.get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    if metadata.get("name", call.target.name) != call.target.name:
        given = metadata["name"]
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({call.target.name})")
    pruned, warnings = admission.pruned(call.target.type, config, "Warn")
    if warnings and call.validation == "Strict":
        field = warnings[0].split('\\"')[1]
        raise ErrorAnswer(500, "", f"failed to create typed patch object: .{field}: field not declared in schema")
    return pruned | {"metadata": metadata | {"name": call.target.name}}


def _part(config: Body, type_: ResourceType, subresource: str) -> Body:
    if subresource == "status":
        return {name: value for name, value in config.items() if name == "status"}
    return {name: value for name, value in config.items() if name != "status" or not type_.status}


def _after(record: Record, wanted: Body, subresource: str) -> Body:
    before, type_ = record.body, record.type
    if subresource == "resize":
        return resizing.resized(before, wanted)
    if subresource == "status":
        body = {name: value for name, value in before.items() if name != "status"}
        if wanted.get("status") is not None:
            body["status"] = wanted["status"]
        if type_.custom:
            return body
        return body | {"metadata": _metadata(before["metadata"], wanted["metadata"])}
    body = {name: value for name, value in wanted.items() if name != "status" or not type_.status}
    if type_.status and "status" in before:
        body["status"] = before["status"]
    return body | {"metadata": _metadata(before["metadata"], wanted["metadata"])}


def _metadata(before: Body, wanted: Body) -> Body:
    out: Body = {name: before[name] for name in ("name", "namespace", "resourceVersion", *_FIXED) if name in before}
    for part in ("labels", "annotations", "ownerReferences", "finalizers"):
        if wanted.get(part):
            out[part] = wanted[part]
    return out


def _next_generation(record: Record, body: Body) -> Body:
    if not record.type.generation:
        return body
    parts = {*record.body, *body} - {"metadata", "status"}
    if all(record.body.get(part) == body.get(part) for part in parts):
        return body
    generation = record.body["metadata"].get("generation", 0) + 1
    return body | {"metadata": body["metadata"] | {"generation": generation}}
