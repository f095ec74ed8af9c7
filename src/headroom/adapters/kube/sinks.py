"""Where the watches put what they hear: each sink keeps the facts of one kind, and tells the plans what is new.

A watch never replaces a fact by an older one, so that our own writes, which are taken from the server's answer at once, are not
undone by a watch that is still behind. A list does: it is never older than a write that was answered before it, and after the
cluster's restore from a backup all its versions are lower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeVar

from msgspec import structs

from headroom.adapters.kube.admission import Policy
from headroom.adapters.kube.changes import Subscriptions
from headroom.adapters.kube.listwatch import Identity
from headroom.adapters.kube.operator_kinds import RawBudgetIndex
from headroom.api.budget_index import INDEX_NAME
from headroom.api.kinds import AnyResource
from headroom.model.changes import Topic
from headroom.model.decisions import Ref
from headroom.model.facts import EvictionRefusal, Node, Pod
from headroom.model.ports import PodObserver
from headroom.model.resource_table import ResourceTable
from headroom.model.tables import NodeTable, PodTable, may_need_machine
from headroom.model.world import FACTS, ref_of


class Versioned(Protocol):
    """Anything that was read from an object in some version."""

    @property
    def uid(self) -> str: ...
    @property
    def resource_version(self) -> str: ...


def is_older(found: Versioned, known: Versioned) -> bool:
    """Whether `found` is the same object as `known` in an earlier version; False where versions cannot be compared."""
    new, old = found.resource_version, known.resource_version
    return found.uid == known.uid and new.isdecimal() and old.isdecimal() and int(new) < int(old)


Named = TypeVar("Named", bound=Any)


class PodSink:
    """Keeps the table of pods, and lets no `observer` miss what happens to one, however short it lives."""

    def __init__(
        self,
        table: PodTable,
        changes: Subscriptions,
        observer: PodObserver | None = None,
        now: Callable[[], int] | None = None,
    ) -> None:
        self._table, self._changes, self._observer, self._now = table, changes, observer, now
        self._held: dict[str, str] = {}

    def key(self, fact: Pod) -> str:
        """The uid: a pod of the same name is another pod."""
        return fact.uid

    def keys(self) -> Iterable[str]:
        """All uids."""
        return self._table.uids()

    def identity(self, key: str) -> Identity | None:
        """Which pod it is."""
        pod = self._table.get(key)
        return None if pod is None else Identity(pod.namespace, pod.name, pod.uid)

    def put(self, fact: Pod, *, listed: bool = False) -> None:
        """Take in a pod; plans hear of it if more than its version is new."""
        before = self._table.get(fact.uid)
        if before is not None and not listed and is_older(fact, before):
            return
        if fact.nominated_node and self._now is not None:
            structs.force_setattr(fact, "nominated_since", self._nominated_since(before, fact, self._now()))
        unbound = fact.uid in self._table.unbound
        if self._table.put(fact):
            unbound = unbound or fact.uid in self._table.unbound
            asking = unbound and (may_need_machine(fact) or (before is not None and may_need_machine(before)))
            known = [each for each in (before, fact) if each is not None and each.node]
            nodes = {node for each in known for node in (each.node, self._table.others_are_on(each)) if node}
            if fact.finalizers:
                self._held[fact.key] = fact.uid
            elif before is not None and before.finalizers:
                self._let_go(before)
            self._changes.pod(fact.uid, unbound=unbound, nodes=nodes, asking=asking)
            if self._observer is not None:
                self._observer.pod(fact)

    def _nominated_since(self, before: Pod | None, fact: Pod, now: int) -> int:
        """The object does not say since when, so it is since we first saw it."""
        known = before.nominated_since if before and before.nominated_node == fact.nominated_node else None
        return now if known is None else known

    def again(self, uid: str) -> None:
        """Something that belongs to a pod has changed: whoever looks at pods looks at this one again."""
        pod = self._table.get(uid)
        if pod is not None:
            self._changes.pod(uid, unbound=False, nodes=())
            if self._observer is not None:
                self._observer.pod(pod)

    def note_refusal(self, uid: str, refusal: EvictionRefusal | None) -> None:
        """An eviction was refused; None: the pod was deleted in its place."""
        self._table.note_refusal(uid, refusal, self._now() if self._now else 0)
        self._changes.fact(Topic.REFUSALS, uid)

    def with_finalizer(self, key: str) -> Pod | None:
        """The pod of that name, if it has a finalizer of ours."""
        uid = self._held.get(key)
        return None if uid is None else self._table.get(uid)

    def remove(self, key: str, last: Pod | None, seen_until: int) -> None:
        """The pod is gone."""
        before = self._table.get(key)
        if before is not None:
            unbound, asking = key in self._table.unbound, may_need_machine(before)
            self._table.remove(key)
            if self._now is not None:
                self._table.note_departure(last or before, self._now(), is_final=last is not None)
            if before.finalizers:
                self._let_go(before)
            nodes = [node for node in (before.node, self._table.others_are_on(before)) if node]
            self._changes.pod(key, unbound=unbound, nodes=nodes, asking=asking)
        known = last or before
        if known is not None and self._observer is not None:
            self._observer.gone(known, seen_until)

    def _let_go(self, pod: Pod) -> None:
        # Another pod may have the name by now.
        if self._held.get(pod.key) == pod.uid:
            del self._held[pod.key]

    def listed(self) -> None:
        """All pods are known."""
        self._changes.listed("pods", "unbound")


class NodeSink:
    """Keeps the table of nodes."""

    def __init__(self, table: NodeTable, changes: Subscriptions, now: Callable[[], int]) -> None:
        self._table, self._changes, self._now = table, changes, now

    def key(self, fact: Node) -> str:
        """The name: plans and pods know nodes by it."""
        return fact.name

    def keys(self) -> Iterable[str]:
        """All names."""
        return self._table.names()

    def identity(self, key: str) -> Identity | None:
        """Which node it is."""
        node = self._table.get(key)
        return None if node is None else Identity("", node.name, node.uid)

    def put(self, fact: Node, *, listed: bool = False) -> None:
        """Take in a node; plans hear of it if more than its version is new."""
        before = self._table.get(fact.name)
        if (before is None or listed or not is_older(fact, before)) and self._table.put(fact):
            self._changes.node(fact.name)

    def remove(self, key: str, _last: Node | None, seen_until: int) -> None:
        """The node is gone."""
        if self._table.lose(key, seen_until, self._now()):
            self._changes.node(key)

    def listed(self) -> None:
        """All nodes are known."""
        self._changes.listed("nodes")


class ResourceSink:
    """Keeps the resources of one kind, in a mapping that all kinds share."""

    def __init__(self, kind: str, resources: ResourceTable, changes: Subscriptions) -> None:
        self._kind, self._resources, self._changes = kind, resources, changes
        self._refs: dict[str, Ref] = {}

    def key(self, fact: AnyResource) -> str:
        """The uid: a resource of the same name is another resource."""
        return fact.uid

    def keys(self) -> Iterable[str]:
        """All uids."""
        return self._refs.keys()

    def identity(self, key: str) -> Identity | None:
        """Which resource it is."""
        ref = self._refs.get(key)
        return None if ref is None else Identity(ref.namespace, ref.name, key)

    def put(self, fact: AnyResource, *, listed: bool = False) -> None:
        """Take in a resource; plans hear of it if more than its version is new."""
        ref = ref_of(fact)
        before = self._resources.get(ref)
        if before is not None:
            if not listed and is_older(fact, before):
                return
            self._refs.pop(before.uid, None)
            if fact.spec == before.spec:
                structs.force_setattr(fact, "spec", before.spec)  # so whoever has looked at a large one knows it again
        self._refs[fact.uid] = ref
        self._resources.put(ref, fact)
        if before is None or structs.replace(fact, resource_version=before.resource_version) != before:
            self._changes.resource(ref)

    def confirm(self, fact: AnyResource) -> None:
        """Take in the answer to a write of ours, unless the resource is gone by now: an answer cannot bring it back."""
        if fact.uid in self._refs:
            self.put(fact)

    def remove(self, key: str, _last: AnyResource | None, _seen_until: int) -> None:
        """The resource is gone."""
        ref = self._refs.pop(key, None)
        if ref is not None:
            self._resources.remove(ref)
            self._changes.resource(ref)

    def listed(self) -> None:
        """All resources of the kind are known."""
        self._changes.listed(self._kind)


Changed = Callable[[str, Named | None, Named | None], None]
"""Told of a fact by its key, as it was and as it is."""


def tell_of(changes: Subscriptions, topic: Topic, key: str, _before: object, _after: object) -> None:
    """Tell the plans of one fact by its name."""
    changes.fact(topic, key)


class FactSink(Generic[Named]):
    """Keeps the facts of a kind by name, and tells of each that came, went or says something new."""

    def __init__(
        self,
        name: Callable[[Named], str],
        changed: Changed[Named],
        keeps: Callable[[Named], bool] = lambda _: True,
        facts: dict[str, Named] | None = None,
    ) -> None:
        """`changed` is given the key, what was known before and what is known now; what `keeps` is false for counts as absent.

        Several sinks may keep their `facts` in one mapping, where their names differ.
        """
        self._name: Callable[[Named], str] = name
        self._changed: Changed[Named] = changed
        self._keeps: Callable[[Named], bool] = keeps
        self._facts: dict[str, Named] = {} if facts is None else facts
        self._keys: set[str] = set()
        self.facts: Mapping[str, Named] = MappingProxyType(self._facts)

    def key(self, fact: Named) -> str:
        """The name."""
        return self._name(fact)

    def keys(self) -> Iterable[str]:
        """All names."""
        return self._keys

    def identity(self, key: str) -> Identity | None:
        """Which object it is."""
        fact = self._facts.get(key)
        return None if fact is None else Identity(getattr(fact, "namespace", ""), fact.name, fact.uid)

    def put(self, fact: Named, *, listed: bool = False) -> None:
        """Take in a fact; it is reported if more than its version is new."""
        key = self._name(fact)
        before = self._facts.get(key)
        if before is not None and not listed and is_older(fact, before):
            return
        if not self._keeps(fact):
            self._forget(key)
            return
        self._facts[key] = fact
        self._keys.add(key)
        if before is None or structs.replace(fact, resource_version=before.resource_version) != before:
            self._changed(key, before, fact)

    def remove(self, key: str, _last: Named | None, _seen_until: int) -> None:
        """The object is gone."""
        self._forget(key)

    def _forget(self, key: str) -> None:
        before = self._facts.pop(key, None)
        self._keys.discard(key)
        if before is not None:
            self._changed(key, before, None)

    def listed(self) -> None:
        """All of them are known; each that is new was reported."""


def indexes(changes: Subscriptions) -> FactSink[RawBudgetIndex]:
    """Keeps the one BudgetIndex that counts."""
    return FactSink(
        lambda fact: fact.name, partial(tell_of, changes, Topic.INDEX), lambda fact: fact.name == INDEX_NAME
    )


def facts(
    changes: Subscriptions, field: str, every: dict[str, dict[str, Any]], keeps: Callable[[Any], bool] = lambda _: True
) -> FactSink[Any]:
    """Keeps facts of one field of the World among `every` that is known; several sinks may keep theirs in one field."""
    declared = FACTS[field]
    told = partial(tell_of, changes, declared.topic)
    return FactSink(attrgetter(declared.key), told, keeps, facts=every.setdefault(field, {}))


def policies(changes: Subscriptions) -> FactSink[Policy]:
    """Keeps the admission policies or bindings of one kind."""
    return FactSink(lambda fact: fact.name, partial(tell_of, changes, Topic.POLICIES))
