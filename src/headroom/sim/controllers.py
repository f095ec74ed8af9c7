"""The controllers that the API server's promises rest on: garbage collection, disruption budgets, namespaces, definitions.

They run at once after each request, not in a process of their own, so that a scenario never waits for them.
"""

from __future__ import annotations

import math
from typing import Any

from headroom.sim import builtin
from headroom.sim.answers import Body
from headroom.sim.apistore import Change, Key, ObjectStore, Record
from headroom.sim.catalog import DEFINITION, NAMESPACE, PDB, POD, Catalog, ResourceType, defined
from headroom.sim.deletion import FOREGROUND, Deleter
from headroom.sim.evictions import is_ready
from headroom.sim.selecting import labels_of, matches
from headroom.sim.writes import ObjectWriter


class Controllers:
    """Keeps everything that follows from a change in step with it."""

    def __init__(self, store: ObjectStore, catalog: Catalog, writer: ObjectWriter, deleter: Deleter) -> None:
        self._store, self._catalog, self._writer, self._deleter = store, catalog, writer, deleter
        self._dependents: dict[str, dict[tuple[str, str, Key], ResourceType]] = {}
        """Uid of an owner to the objects that name it."""
        self._gone: list[Record] = []
        self._adopted: list[Record] = []
        """New objects that name an owner."""
        self._stirred: dict[str, None] = {}
        """Namespaces whose disruption budgets may have changed, in order."""
        self._ending: dict[str, None] = {}
        """Namespaces that are being deleted."""
        self._waiting: dict[str, Record] = {}
        """Objects that are deleted only after all they own."""
        self._unsettled = False
        store.subscribe(self._notice)

    def _notice(self, change: Change) -> None:
        record: Any = change.after or change.before
        self._unsettled = True
        self._index(change)
        if change.type is DEFINITION:
            self._define(change)
        if change.type in (POD, PDB):
            self._stirred[record.key[0]] = None
        if change.type is NAMESPACE and change.after and record.body["metadata"].get("deletionTimestamp"):
            self._ending[record.key[1]] = None
        if change.after and FOREGROUND in (record.body["metadata"].get("finalizers") or []):
            self._waiting[record.uid] = record
        if change.after is None:
            self._gone.append(record)
        elif change.before is None and record.body["metadata"].get("ownerReferences"):
            self._adopted.append(record)

    def _index(self, change: Change) -> None:
        for record, add in ((change.before, False), (change.after, True)):
            if record is None:
                continue
            place = (record.type.group, record.type.plural, record.key)
            for reference in record.body["metadata"].get("ownerReferences") or []:
                members = self._dependents.setdefault(str(reference.get("uid")), {})
                if add:
                    members[place] = record.type
                else:
                    members.pop(place, None)

    def _define(self, change: Change) -> None:
        for each in defined(change.before.body) if change.before else []:
            self._catalog.remove(each)
        if change.after:
            for each in defined(change.after.body):
                self._catalog.add(each)

    def settle(self, *, orphans: bool = True) -> None:
        """Do all that follows, and what follows from that. New objects whose owners do not exist go only with `orphans`."""
        while self._unsettled:
            self._unsettled = False
            gone, self._gone = self._gone, []
            for record in gone:
                self._collect(record)
            adopted, self._adopted = self._adopted, []
            for record in adopted if orphans else []:
                self._collect_lost(record)
            self._finish_foreground()
            self._end_namespaces()
            stirred, self._stirred = self._stirred, {}
            for namespace in stirred:
                for budget in self._store.all(PDB, namespace):
                    self._count(budget)

    # --- garbage ----------------------------------------------------------------------------------------------------------

    def owned_by(self, uid: str) -> list[Record]:
        """Every object that names this one as an owner, in a fixed order."""
        places = self._dependents.get(uid, {})
        found = [self._store.get(type_, *place[2]) for place, type_ in sorted(places.items(), key=lambda each: each[0])]
        return [each for each in found if each is not None]

    def orphan(self, uid: str) -> None:
        """Let the dependents of an object live on without it."""
        for record in self.owned_by(uid):
            metadata = record.body["metadata"]
            rest = [each for each in metadata["ownerReferences"] if each.get("uid") != uid]
            self._writer.keep(
                record, builtin.tidied(record.type, record.body | {"metadata": metadata | {"ownerReferences": rest}})
            )

    def _collect(self, gone: Record) -> None:
        if gone.type is DEFINITION:
            for type_ in defined(gone.body):
                for each in self._store.all(type_):
                    self._deleter.remove(each, {})
        for record in self.owned_by(gone.uid):
            if not self._has_owner(record, gone.uid) and "deletionTimestamp" not in record.body["metadata"]:
                self._deleter.remove(record, {})
        self._dependents.pop(gone.uid, None)

    def _collect_lost(self, made: Record) -> None:
        """An object whose owners were gone before it came is garbage too."""
        record = self._store.get(made.type, *made.key)
        if record is not None and record.uid == made.uid and not self._has_owner(record, ""):
            self._deleter.remove(record, {})

    def _has_owner(self, record: Record, gone: str) -> bool:
        references = record.body["metadata"].get("ownerReferences") or []
        return any(each.get("uid") != gone and self._is_alive(each, record.key[0]) for each in references)

    def _is_alive(self, reference: Body, namespace: str) -> bool:
        type_ = self._catalog.find(str(reference.get("apiVersion")), str(reference.get("kind")))
        if type_ is None:
            return True  # what cannot be looked up is never taken as gone
        record = self._store.get(type_, namespace if type_.namespaced else "", str(reference.get("name")))
        return record is not None and record.uid == reference.get("uid")

    def _finish_foreground(self) -> None:
        for uid, record in list(self._waiting.items()):
            owner = self._store.get(record.type, *record.key)
            if owner is None or owner.uid != uid:
                del self._waiting[uid]
                continue
            dependents = self.owned_by(uid)
            for each in dependents:
                if "deletionTimestamp" not in each.body["metadata"]:
                    self._deleter.remove(each, {})
            if not dependents:
                metadata = owner.body["metadata"]
                rest = [each for each in metadata.get("finalizers") or [] if each != FOREGROUND]
                self._writer.keep(owner, owner.body | {"metadata": metadata | {"finalizers": rest}})
                del self._waiting[uid]

    # --- namespaces and budgets -------------------------------------------------------------------------------------------

    def _end_namespaces(self) -> None:
        for name in list(self._ending):
            left = [each for type_ in self._catalog if type_.namespaced for each in self._store.all(type_, name)]
            for each in left:
                if "deletionTimestamp" not in each.body["metadata"]:
                    self._deleter.remove(each, {})
            namespace = self._store.get(NAMESPACE, "", name)
            if not left and namespace:
                self._store.remove(namespace)
            if not left:
                del self._ending[name]

    def _count(self, budget: Record) -> None:
        spec = budget.body.get("spec") or {}
        if spec.get("selector") is None or ("minAvailable" not in spec and "maxUnavailable" not in spec):
            return
        pods = [
            each.body for each in self._store.all(POD, budget.key[0]) if matches(spec["selector"], labels_of(each.body))
        ]
        healthy = sum(1 for each in pods if is_ready(each) and "deletionTimestamp" not in each["metadata"])
        if "minAvailable" in spec:
            desired = _share(spec["minAvailable"], len(pods))
        else:
            desired = max(0, len(pods) - _share(spec["maxUnavailable"], len(pods)))
        allowed = max(0, healthy - desired) if pods else 0
        metadata, before = budget.body["metadata"], budget.body.get("status") or {}
        status: Body = {
            "conditions": [self._verdict(before, allowed, metadata["generation"])],
            "currentHealthy": healthy,
            "desiredHealthy": desired,
            "disruptionsAllowed": allowed,
            "expectedPods": len(pods),
            "observedGeneration": metadata["generation"],
        }
        if status != before:
            self._writer.keep(budget, budget.body | {"status": status})

    def _verdict(self, before: Body, allowed: int, generation: int) -> Body:
        verdict = "True" if allowed else "False"
        old: Body = next(iter(before.get("conditions") or []), {})
        since = old.get("lastTransitionTime") if old.get("status") == verdict else self._writer.now()
        return {
            "type": "DisruptionAllowed",
            "status": verdict,
            "reason": "SufficientPods" if allowed else "InsufficientPods",
            "message": "",
            "lastTransitionTime": since,
            "observedGeneration": generation,
        }


def _share(amount: Any, total: int) -> int:
    """A number of pods, or a percentage of them rounded up."""
    if isinstance(amount, str) and amount.endswith("%"):
        return math.ceil(int(amount[:-1]) * total / 100)
    return int(amount)
