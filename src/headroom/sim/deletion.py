"""DELETE as the API server does it: preconditions, grace, finalizers, and what becomes of the objects that were owned."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from headroom.model import times
from headroom.model.ports import Clock
from headroom.sim.answers import Body, about, bad_request, conflict, success
from headroom.sim.apistore import Record
from headroom.sim.calls import ApiCall
from headroom.sim.catalog import NAMESPACE, POD
from headroom.sim.reads import matching
from headroom.sim.writes import ObjectWriter

FOREGROUND: Final = "foregroundDeletion"


class Deleter:
    """Everything that takes objects away."""

    def __init__(self, writer: ObjectWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    def delete(self, call: ApiCall) -> Body | bytes:
        """DELETE of one object."""
        target = call.target
        record = self._writer.found(target.type, target.namespace, target.name)
        options = delete_options(call)
        check_preconditions(record, options)
        if call.dry or options.get("dryRun"):
            return record.document()
        gone, left = self.remove(record, options)
        if gone and not target.type.returns_deleted:
            return success(details=about(target.type.group, target.type.plural, target.name) | {"uid": record.uid})
        return left.document()

    def delete_all(self, call: ApiCall) -> Body:
        """DELETE of a collection."""
        type_, options = call.target.type, delete_options(call)
        match = matching(type_, call.query)
        records = [
            each for each in self._writer.store.all(type_, call.target.namespace) if match is None or match(each.body)
        ]
        items = [self.remove(each, options)[1].document() for each in records]
        return {"kind": f"{type_.kind}List", "apiVersion": type_.api_version, "metadata": {}, "items": items}

    def remove(self, record: Record, options: Body) -> tuple[bool, Record]:
        """Let an object go, now or later; says whether it is gone, and shows what is left or was last."""
        metadata = record.body["metadata"]
        grace = _grace(record, options.get("gracePeriodSeconds"))
        finalizers = list(metadata.get("finalizers") or [])
        if options.get("propagationPolicy") == "Foreground" and FOREGROUND not in finalizers:
            finalizers.append(FOREGROUND)
        waits = record.type is NAMESPACE or bool(finalizers)
        before = metadata.get("deletionGracePeriodSeconds")
        if before is not None and grace >= before and (waits or before > 0):
            return False, record  # it is on its way already, and not slower than asked now
        when = self._clock.now() + grace * times.SECOND
        changed: Body = {
            "deletionTimestamp": times.text(when - when % times.SECOND),
            "deletionGracePeriodSeconds": grace,
        }
        if "generation" in metadata and before is None:
            changed["generation"] = metadata["generation"] + 1
        if finalizers:
            changed["finalizers"] = finalizers
        body = record.body | {"metadata": metadata | changed}
        if record.type is NAMESPACE:
            body["status"] = {"phase": "Terminating"}
        if grace == 0 and not waits:
            if record.type is POD:
                # Even what goes at once is first seen to be going.
                body = self._writer.store.put(record.type, body, record.owners).body
            return True, self._writer.store.remove(Record(record.type, body, record.owners))
        return False, self._writer.store.put(record.type, body, record.owners)


def _grace(record: Record, asked: Any) -> int:
    if record.type is not POD:
        return 0
    spec, status = record.body.get("spec") or {}, record.body.get("status") or {}
    # Without a kubelet that has anything to stop there is nothing to wait for.
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    grace = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return 1 if grace < 0 else int(grace)


def delete_options(call: ApiCall) -> Body:
    """The options of a DELETE, from its body and its query."""
    options: Any = {}
    if call.body:
        try:
            options = msgspec.json.decode(call.body)
        except msgspec.DecodeError as failure:
            raise bad_request(f"couldn't get version/kind; json parse error: {failure}") from None
    if not isinstance(options, dict):
        raise bad_request("the object provided is unrecognized (must be of type DeleteOptions)")
    if "gracePeriodSeconds" in call.query:
        options = options | {"gracePeriodSeconds": int(call.query["gracePeriodSeconds"])}
    if "propagationPolicy" in call.query:
        options = options | {"propagationPolicy": call.query["propagationPolicy"]}
    return dict(options)


def check_preconditions(record: Record, options: Body) -> None:
    """Refuse to delete another object than the one that was meant."""
    wanted = options.get("preconditions") or {}
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    name, kind, group = record.body["metadata"]["name"], record.type.kind, record.type.group
    if uid and uid != record.uid:
        why = f"the UID in the precondition ({uid}) does not match the UID in record ({record.uid})."
        raise conflict(group, kind, name, f"{why} The object might have been deleted and then recreated")
    if version and version != str(record.version):
        why = f"the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({record.version})."
        raise conflict(group, kind, name, f"{why} The object might have been modified")
