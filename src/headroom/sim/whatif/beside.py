"""What stands beside policies in files: machines, namespaces and prices, put over those of a case."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import structs

from headroom.adapters import outside
from headroom.adapters.documents import Documents
from headroom.adapters.kube.sources import SOURCES
from headroom.core import usage
from headroom.model.facts import Pod, Shape
from headroom.model.tables import NodeTable
from headroom.model.usage import Row
from headroom.model.usage_table import UsageTable
from headroom.model.world import World
from headroom.sim.whatif.placing import Placer
from headroom.sim.whatif.work import GPU, Case, namespace_of

_PRICED: Final = "priced"


def put_over(case: Case, found: Documents) -> Case:
    """A case with the nodes, machines, namespaces and prices that stand in files; the case itself stays as it is."""
    if found.nodes:
        named = {node.name: node for node in (*case.nodes, *found.nodes)}
        case = structs.replace(case, nodes=list(named.values()))
    if found.of("machines"):
        case = structs.replace(case, machines=dict(case.machines) | {each.name: each for each in found.of("machines")})
    if found.of("namespaces"):
        new = {each.name: namespace_of(each.name, each.labels) for each in found.of("namespaces")}
        case = structs.replace(case, namespaces=dict(case.namespaces) | new)
    if found.prices:
        # What a new price book says counts for all, also for what had a price in the record.
        works = [structs.replace(work, price=None) for work in case.works]
        case = structs.replace(case, prices=tuple(found.prices), works=works)
        case = structs.replace(case, history=list(_repriced(case)))
    return case


def passed_over(found: Documents) -> dict[str, int]:
    """What a replay makes no use of, by kind: work comes from the record, and nothing outside the cluster is played."""
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


def _repriced(case: Case) -> Iterator[Row]:
    """History at the prices of the case. A row does not say where its pod ran: the first node that could hold it is taken.

    What ran in other clusters is not in this cluster's book and keeps its price.
    """
    shapes = {row.amounts: _shape(row) for row in case.history}
    prices = dict(zip(shapes, _prices(case, shapes.values()), strict=True))
    for row in case.history:
        yield structs.replace(row, price=prices[row.amounts]) if row.cluster == case.cluster else row


def _shape(row: Row) -> Shape:
    """What a row holds as a wish; GPUs of no particular kind are taken for the usual ones."""
    return Shape(requests=tuple(sorted((name or GPU, amount) for name, amount in usage.plain_amounts(row.amounts))))


def _prices(case: Case, shapes: Iterable[Shape]) -> Iterator[int | None]:
    """What the production recorder takes for the price of each shape, on the first node that could hold it."""
    wanted, nodes = list(shapes), NodeTable()
    for node in case.nodes:
        nodes.put(node)
    world = World(now=case.begin, cluster=case.cluster, nodes=nodes, prices=case.prices, **case.facts)
    around, look = usage.around(world), usage.Look(case.cluster, case.begin, case.begin)
    placer = Placer(case.nodes, wanted, case.boundless)
    for shape in wanted:
        place = placer.put(_PRICED, shape)
        placer.forget(_PRICED)
        pod = Pod(uid=_PRICED, namespace="", name=_PRICED, shape=shape, node=place, phase="Running", started=case.begin)
        rows = usage.Keeper(UsageTable(case.cluster)).see(pod, around, look)
        yield rows[0].price if rows else None
