"""Other documents beside policies in files: machines, namespaces and prices, applied over those of a case."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import structs

from headroom.adapters import outside
from headroom.adapters.documents import Documents
from headroom.adapters.kube.sources import SOURCES
from headroom.core import usage
from headroom.model.facts import Amounts, Pod
from headroom.model.tables import NodeTable
from headroom.model.usage import PodDetails
from headroom.model.usage_table import UsageTable
from headroom.model.world import World
from headroom.sim.whatif.placing import Placer
from headroom.sim.whatif.recorded import shape_of
from headroom.sim.whatif.work import Case, named, namespace_of

_PRICED: Final = "priced"
_Kind = tuple[Amounts, str]
"""What a pod holds, and the instance type that it ran on."""


def put_over(case: Case, found: Documents) -> Case:
    """A case with the nodes, machines, namespaces and prices of files; the original is not changed."""
    if found.nodes:
        named = {node.name: node for node in (*case.nodes, *found.nodes)}
        case = structs.replace(case, nodes=list(named.values()))
    if found.of("machines"):
        case = structs.replace(case, machines=dict(case.machines) | {each.name: each for each in found.of("machines")})
    if found.of("namespaces"):
        new = {each.name: namespace_of(each.name, each.labels) for each in found.of("namespaces")}
        case = structs.replace(case, namespaces=dict(case.namespaces) | new)
    if found.prices:
        # A new price book applies to everything, also to usage with a recorded price.
        case = _at_new_prices(case, structs.replace(case, prices=tuple(found.prices)))
    return case


def passed_over(found: Documents) -> dict[str, int]:
    """Documents that a replay does not use, by kind: work and things outside the cluster come from the record."""
    counts = {
        "Pod": len(found.pods),
        "suspended owner": len(found.of("workloads")),
        **{kind: len(found.of(name)) for kind, name in outside.FIELDS.items() if kind != "Machine"},
        **{each.kind: len(found.of(each.field)) for each in SOURCES if each.field not in ("namespaces", "workloads")},
        "Usage": len(found.usage),
        "BudgetIndex": int(found.index is not None),
        "stop of the whole cluster": int(found.stopped),
    }
    return {kind: count for kind, count in counts.items() if count}


class _Prices:
    """Prices under a new book for usage that the record priced by the old one."""

    def __init__(self, old: Case, new: Case) -> None:
        self._types = {name for node in old.nodes if (name := usage.type_of(node))}
        kinds = {(work.shape.requests, work.instance_type) for work in old.works}
        kinds |= {(row.amounts, PodDetails.of(row).instance_type) for row in old.history}
        wanted = kinds | {(amounts, each) for amounts, known in kinds if not known for each in self._types}
        self._before, self._after = _prices(old, wanted), _prices(new, wanted)

    def of(self, kind: _Kind, price: int | None) -> int | None:
        """The new price. Where the machine is not known, it is one that costs what was paid; None if there is none."""
        amounts, known = kind
        if not known and price is not None:
            known = next((each for each in sorted(self._types) if self._before[amounts, each] == price), "")
        return self._after[amounts, known] if known else None

    def anywhere(self, amounts: Amounts) -> int | None:
        """The price on the first node that could hold so much."""
        return self._after[amounts, ""]


def _at_new_prices(old: Case, new: Case) -> Case:
    """A case under its new price book, history included. What ran in other clusters is not in this cluster's book and keeps its price."""
    prices, history = _Prices(old, new), []
    for row in old.history:
        price = prices.of((row.amounts, PodDetails.of(row).instance_type), row.price)
        price = prices.anywhere(row.amounts) if price is None and not PodDetails.of(row).instance_type else price
        history.append(structs.replace(row, price=price) if row.cluster == new.cluster else row)
    works = [
        structs.replace(work, price=prices.of((work.shape.requests, work.instance_type), work.price))
        for work in old.works
    ]
    return structs.replace(new, works=works, history=history)


def _prices(case: Case, kinds: Iterable[_Kind]) -> dict[_Kind, int | None]:
    """What the production recorder takes for the price of such pods, on the first node of their type that could hold them."""
    wanted, nodes = dict.fromkeys(kinds), NodeTable()
    for node in case.nodes:
        nodes.put(node)
    world = World(now=case.begin, cluster=case.cluster, nodes=nodes, prices=case.prices, **case.facts)
    around, look = usage.around(world), usage.Look(case.cluster, case.begin, case.begin)
    shapes = {kind: shape_of(named(kind[0]), PodDetails(instance_type=kind[1])) for kind in wanted}
    placer, found = Placer(case.nodes, shapes.values(), case.boundless), dict[_Kind, int | None]()
    for kind, shape in shapes.items():
        place = placer.put(_PRICED, shape)
        placer.forget(_PRICED)
        pod = Pod(uid=_PRICED, namespace="", name=_PRICED, shape=shape, node=place, phase="Running", started=case.begin)
        rows = usage.Keeper(UsageTable(case.cluster)).see(pod, around, look)
        found[kind] = rows[0].price if rows else None
    return found
