"""A cluster read once, list by list, with no more rights than whoever asks has: what may not be read is named instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from headroom.cli import progress
from headroom.model.errors import Refused

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.cli.kill_switch import KillSwitch
    from headroom.model.world import World
    from headroom.runtime.settings import Settings

_GRANTED: Final = "ask an administrator for that permission, for example with the ClusterRole view"


class Near(NamedTuple):
    """What could be read."""

    world: World
    unread: tuple[str, ...]
    """What could not be, for lack of rights."""
    switch: KillSwitch


async def read(kube: Kube, settings: Settings, namespace: str, pod: str = "") -> Near:
    """The pods of a namespace, or of all if it is empty, and whatever may hold them; of one pod also what is written of its bandwidth.

    Raises if the pods may not be read.
    """
    reading = ListReader(kube, settings, namespace)
    await reading.rates()
    if not await reading.pods():
        where = (
            f"of namespace {namespace}; {_GRANTED}"
            if namespace
            else "of all namespaces; name one, as in pod/lab/train-0"
        )
        raise Refused(f"reading pods: you may not list those {where}")
    await reading.resources("GPUWorkloadBudget", also_elsewhere=True)
    await reading.namespaces()
    await reading.facts("workloads")
    await reading.links(pod)
    return await reading.near()


async def machines(kube: Kube, settings: Settings, namespace: str = "") -> Near:
    """All that decides which machines come, as much of it as we may see; nothing more is read where nothing brings any.

    What brings machines is read of that namespace where we may not see all of it.
    """
    from headroom.core import CAPACITY

    reading = ListReader(kube, settings, "")
    seen = [await reading.resources(kind, also_in=namespace) for kind in CAPACITY.kinds]
    if any(seen) and reading.found_any():
        await reading.pods()
        await reading.nodes()
        await reading.facts("node_pools")
        await reading.facts("node_claims")
        await reading.resources("GPUWorkloadBudget")
        await reading.namespaces()
    return await reading.near()


def is_enough(seen: Near) -> bool:
    """Whether what could be read tells which machines come."""
    from headroom.adapters.kube import paths
    from headroom.core import CAPACITY

    # Without Karpenter's pools or a namespace's labels the answer may be less exact; without these it would be wrong.
    brings = {paths.spoken(paths.collection(kind)) for kind in CAPACITY.kinds}
    return not {"pods", "nodes", *brings} & set(seen.unread)


async def ours(kube: Kube, settings: Settings, kind: str, namespace: str) -> Near:
    """The resources of one of our kinds, as many as we may see. Raises if none may be."""
    reading = ListReader(kube, settings, namespace)
    if not await reading.resources(kind, also_elsewhere=True):
        remedy = _GRANTED if namespace else "name one of your namespaces, as in gwb/lab/team-a"
        raise Refused(f"reading resources of kind {kind}: you may not list them; {remedy}")
    return await reading.near()


async def fleet(kube: Kube, settings: Settings, namespace: str, told: progress.Progress = progress.silent) -> Near:
    """All that a screen for the whole fleet shows, or one namespace's part of it. Raises if nothing of it may be read."""
    from headroom.api.kinds import KINDS

    reading = ListReader(kube, settings, namespace, told)
    kinds = [kind.name for kind in KINDS.values() if kind.namespaced or not namespace]
    if not any([await reading.pods(), *[await reading.resources(kind) for kind in kinds]]):
        remedy = _GRANTED if namespace else "name one of your namespaces, with -n or as in lab/team-a"
        raise Refused(f"reading the cluster: you may list neither pods nor resources of Headroom; {remedy}")
    if not namespace:
        await reading.nodes()
    await reading.namespaces()
    return await reading.near()


class ListReader:
    """Lists one after the other, and what came of them."""

    def __init__(
        self, kube: Kube, settings: Settings, namespace: str, told: progress.Progress = progress.silent
    ) -> None:
        from headroom.model.tables import NodeTable, PodTable
        from headroom.runtime.bandwidth_settings import rules_of

        self._kube, self._settings, self._namespace, self._told = kube, settings, namespace, told
        self._pods, self._nodes = PodTable(), NodeTable()
        self._resources: list[Any] = []
        self._facts: dict[str, Any] = {}
        self._unread: list[str] = []
        self._rules = rules_of(settings)
        self._count = 0

    async def pods(self) -> bool:
        """The pods; False if we may not see them."""
        from headroom.adapters.kube import decode, paths

        return await self._take(paths.pods(self._namespace), decode.pods(), self._pods.put)

    async def nodes(self) -> None:
        """The nodes."""
        from headroom.adapters.kube import decode, paths

        await self._take(paths.nodes(), decode.nodes(), self._nodes.put)

    async def facts(self, field: str) -> bool:
        """What the sources of a field of the World have; False if we may not see one of them."""
        from headroom.adapters.kube import sources
        from headroom.model.world import FACTS

        found, key = self._facts.setdefault(field, {}), FACTS[field].key
        seen = [
            await self._take(
                each.path(self._namespace if each.namespaced else ""),
                each.decoder(),
                lambda fact: found.update({getattr(fact, key): fact}),
                each.query,
            )
            for each in sources.of_field(field)
        ]
        return all(seen)

    async def rates(self) -> None:
        """Which annotations ask for bandwidth: what the operator has told the API server's policies, else what our own settings say."""
        from msgspec import json

        from headroom.adapters.kube import bandwidth_configs, errors, values
        from headroom.api.bandwidth_config import CONFIG_NAME
        from headroom.core.bandwidth import rules_with
        from headroom.model.errors import Unavailable

        with suppress(errors.NotFound, errors.Forbidden, Unavailable):
            body = await self._kube.get(bandwidth_configs.path(CONFIG_NAME))
            self._rules = rules_with(self._rules, bandwidth_configs.config_of(json.decode(body)).spec)
        values.keep(key.name for key in self._rules.keys)

    async def links(self, pod: str) -> None:
        """The Bandwidth of the node of a pod that asks for some."""
        from headroom.adapters.kube import decode, paths
        from headroom.api.bandwidth import Bandwidth
        from headroom.core.bandwidth import says_something
        from headroom.model.world import World

        kind, world = Bandwidth.kind.name, World(now=0, bandwidth=self._rules)
        asking = (each for each in self._pods if each.name == pod and each.node and says_something(world, each))
        for node in sorted({each.node for each in asking}):
            query = {"fieldSelector": f"metadata.name={node}"}
            await self._take(paths.collection(kind), decode.resources(kind), self._resources.append, query)

    def found_any(self) -> bool:
        """Whether there are resources among what was read."""
        return bool(self._resources)

    async def resources(self, kind: str, *, also_elsewhere: bool = False, also_in: str = "") -> bool:
        """Resources of ours, `also_elsewhere` those of other namespaces too if we may see them; False if none may be seen."""
        from headroom.adapters.kube import decode, paths
        from headroom.api.kinds import KINDS

        everywhere = also_elsewhere or not self._namespace
        narrower = paths.collection(kind, self._namespace or (also_in if KINDS[kind].namespaced else ""))
        first = paths.collection(kind) if everywhere else narrower
        put = self._resources.append
        if await self._take(first, decode.resources(kind), put):
            return True
        if narrower == first:
            return False
        seen = await self._take(narrower, decode.resources(kind), put, instead=not also_in)
        if not seen and also_in:
            self._unread.pop()  # that all of it may not be seen says more
        return seen

    async def namespaces(self) -> None:
        """The namespaces, or the one that is asked about."""
        from headroom.adapters.kube import errors, parse, paths, raw

        if await self.facts("namespaces") or not self._namespace:
            return
        path = paths.namespace(self._namespace)
        try:
            found = parse.namespace_of(raw.read(await self._kube.get(path), raw.Object))
            self._facts["namespaces"][found.name] = found
        except errors.Forbidden:
            self._unread[-1] = paths.spoken(path)
        except errors.NotFound:
            return

    async def near(self) -> Near:
        """What came of it, with the usage of what is there, and the ledger's where one is given."""
        from msgspec import structs

        from headroom.cli import kill_switch, live
        from headroom.core.usage import table_of
        from headroom.model.world import World, by_ref

        now = self._kube.clock.now()
        switch = await kill_switch.read(self._kube, self._settings.operator_namespace)
        world = World(
            now=now,
            cluster=self._settings.cluster_id or "default",
            own_namespace=self._settings.operator_namespace,
            stopped=switch.stopped,
            resources=by_ref(self._resources),
            pods=self._pods,
            nodes=self._nodes,
            bandwidth=self._rules,
            instances_given=False,
            kueue=any(each.kind == "Workload" for each in self._facts.get("workloads", {}).values()),
            **self._facts,
        )
        rows = await live.rows(self._settings, now) if self._settings.ledger_url else []
        return Near(structs.replace(world, usage=table_of(world, rows)), tuple(self._unread), switch)

    async def _take(
        self,
        path: str,
        decoder: Any,
        put: Callable[[Any], object],
        query: Mapping[str, str] | None = None,
        *,
        instead: bool = False,
    ) -> bool:
        """Read a list; False if we may not, which is noted, `instead` of what was noted last. A kind that is not there is empty."""
        from headroom.adapters.kube import errors, paths

        try:
            async for body in self._kube.pages(path, query=query):
                for each in decoder.page(body).items:
                    put(each)
                    self._count += 1
                self._told(self._count)
        except errors.NotFound:
            return True
        except errors.Forbidden:
            if instead:
                self._unread[-1] = paths.spoken(path)
            else:
                self._unread.append(paths.spoken(path))
            return False
        return True
