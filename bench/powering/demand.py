"""The demands of the power benchmark: recorded ones, or made up of the same form, each with machines that a PowerPool switches.

Philly: each minute says how many of 420 machines of 8 GPUs were in use. Every one in use is one pod that fills it; when the number
falls, the oldest pods end, so that pods live as long as the record allows and no pod is there for a single minute only because the
number trembles. What is above 420 is cut off. Helios: two virtual clusters of 8-GPU machines, each minute with its running GPUs; as few
machines as have so many count as in use, and become pods as in Philly. openb: its pods with GPUs on its machines with GPUs; a share of a GPU counts as a
whole one, since Kubernetes counts nvidia.com/gpu in whole numbers, and so does the seed.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from msgspec import structs

from headroom.api import kinds
from headroom.api.kinds import KINDS, AnyResource
from headroom.api.power import MOST_MACHINES
from headroom.api.resources import API_VERSION
from headroom.model import times
from headroom.model.decisions import Ref
from headroom.model.facts import Machine, Node
from headroom.model.usage import DAY
from headroom.model.world import by_ref
from headroom.sim.hardware import POOL
from headroom.sim.whatif import traces
from headroom.sim.whatif.placing import ANYWHERE, WHOLE, Placer
from headroom.sim.whatif.work import GPU, Case, RequestedPod

BOOT_MS: Final = 3 * times.MINUTE
IDLE_WATTS, BUSY_WATTS = 1500, 6000
"""Of a machine with 8 GPUs, and so much for each of fewer; nominal, nobody measured these fleets."""
MACHINES: Final = 420
"""Of Philly."""
SEED: Final = 7
MINUTES_A_DAY: Final = 1440
MADE_UP_DAYS: Final = 60
MINUTES_HEAD: Final = "time,active,total"
GPUS: Final = 8
"""Of a machine of Helios."""
PHILLY: Final = Path("node-power") / "philly_node_sequence.csv"
HELIOS: Final = {"Helios 6YE": ("helios_earth_vc6YE.csv.gz", 26), "Helios pDC": ("helios_earth_vcpDC.csv.gz", 7)}
"""The files of the clusters, and how many machines one has that is made up."""
OPENB_PODS: Final = Path("openb") / "openb_pod_list_default.csv"
OPENB_NODES: Final = Path("openb") / "openb_node_list_gpu_node.csv"


class Demand(NamedTuple):
    """Work, and the machines for it."""

    name: str
    is_recorded: bool
    case: Case
    pools: Mapping[Ref, AnyResource]

    @property
    def days(self) -> float:
        """How long it is."""
        return (self.case.end - self.case.begin) / DAY


def under(demand: Demand, **policy: Any) -> dict[Ref, AnyResource]:
    """The pools of a demand with another policy."""
    return {
        ref: structs.replace(pool, spec=structs.replace(pool.spec, policy=structs.replace(pool.spec.policy, **policy)))
        for ref, pool in demand.pools.items()
    }


def all_on(case: Case) -> Case:
    """The case with every machine on at its begin."""
    return structs.replace(
        case, machines={name: structs.replace(each, power="On") for name, each in case.machines.items()}
    )


# --- Philly ---------------------------------------------------------------------------------------------------------------------


def philly(first_day: int, days: int | None, folder: Path | None = None) -> Demand:
    """Some days of Philly's machines, all of them if nobody says how many."""
    text = _recorded(folder, PHILLY)
    lines = (text or made_up_minutes(first_day + (days or MADE_UP_DAYS))).splitlines()
    begin = 1 + first_day * MINUTES_A_DAY
    chosen = lines[begin:] if days is None else lines[begin : begin + days * MINUTES_A_DAY]
    cut = [f"{at},{min(int(active), MACHINES)},{MACHINES}" for at, active, _ in (line.split(",") for line in chosen)]
    return _demand("Philly", bool(text), _of_minutes(cut))


def _of_minutes(lines: Sequence[str]) -> Case:
    text = "\n".join([MINUTES_HEAD, *lines])
    return traces.read((PHILLY.name, text.encode()), None, None, traces.Naming())


def helios(name: str, days: int | None, folder: Path | None = None) -> Demand:
    """A virtual cluster of Helios."""
    file, machines = HELIOS[name]
    path = folder / PHILLY.parent / file if folder else None
    if path is None or not path.is_file():
        lines = [_shrunk(line, machines) for line in made_up_minutes(days or MADE_UP_DAYS).splitlines()[1:]]
        return _demand(name, False, _of_minutes(lines))
    rows = list(csv.DictReader(io.StringIO(gzip.decompress(path.read_bytes()).decode())))
    rows = rows[: days * MINUTES_A_DAY] if days else rows
    machines = max(int(row["total_gpu_num"]) for row in rows) // GPUS
    used = [min(machines, -(-int(row["running_gpu_num"]) // GPUS)) for row in rows]
    lines = [f"{row['time']},{active},{machines}" for row, active in zip(rows, used, strict=True)]
    return _demand(name, True, _of_minutes(lines))


def _shrunk(line: str, machines: int) -> str:
    at, active, _ = line.split(",")
    return f"{at},{int(active) * machines // MACHINES},{machines}"


def made_up_minutes(days: int) -> str:
    """Machines in use that swing with the day and tremble from minute to minute, about as Philly's do."""
    rng, begin = random.Random(SEED), datetime(2017, 10, 3)  # noqa: DTZ001  # the record has no time zone either
    lines, drift = [MINUTES_HEAD], 0.0
    for minute in range(days * MINUTES_A_DAY):
        drift = 0.999 * drift + rng.gauss(0, 1.2)
        daily = 25 * math.sin(2 * math.pi * minute / MINUTES_A_DAY)
        active = round(min(MACHINES, max(0, 313 + daily + drift + rng.gauss(0, 1.2))))
        lines.append(f"{begin + timedelta(minutes=minute)},{active},{MACHINES}")
    return "\n".join(lines)


# --- openb ----------------------------------------------------------------------------------------------------------------------


def openb(days: int | None, folder: Path | None = None) -> Demand:
    """The last days of openb, where most of its pods are."""
    pods, nodes = _recorded(folder, OPENB_PODS), _recorded(folder, OPENB_NODES)
    is_recorded = bool(pods and nodes)
    if not is_recorded:
        pods, nodes = _made_up_pods()
    texts = (OPENB_PODS.name, pods.encode()), (OPENB_NODES.name, nodes.encode())
    case = traces.read(*texts, None, traces.Naming(), days=days)
    case.works = [whole for work in case.works if (whole := _whole(work))]
    case.nodes = [node for node in case.nodes if gpus_of(node)]
    return _demand("openb", is_recorded, case)


def _whole(work: RequestedPod) -> RequestedPod | None:
    """Work with whole GPUs; None if it has none."""
    requests = tuple(
        (name, -(-amount // WHOLE) * WHOLE if name == GPU else amount) for name, amount in work.shape.requests
    )
    if not dict(requests).get(GPU):
        return None
    return structs.replace(work, shape=structs.replace(work.shape, requests=requests))


def _made_up_pods() -> tuple[str, str]:
    """Few long pods and many short ones, as openb has them in its last month."""
    rng, out, month = random.Random(SEED), io.StringIO(), 30 * 86400
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow((*traces.OPENB_PODS, "cpu_milli", "memory_mib", "gpu_spec"))
    for number in range(7000):
        is_long = number < 20
        arrives = 0 if is_long else rng.randrange(month)
        length = month if is_long else min(int(rng.lognormvariate(6.3, 1.6)), month - arrives)
        cards = rng.choices((1, 2, 4, 8), (93, 3, 2, 2))[0]
        rows.writerow((f"pod-{number:04d}", cards, 1000, arrives, arrives + length, arrives, 8000, 16384, ""))
    kinds_of_machine = ((1, 24), (2, 518), (4, 54), (8, 617))
    lines = [
        f"node-{gpus}-{number:04d},96000,786432,{gpus},made-up"
        for gpus, count in kinds_of_machine
        for number in range(count)
    ]
    return out.getvalue(), "\n".join((",".join(traces.OPENB_NODES), *lines))


# --- both -----------------------------------------------------------------------------------------------------------------------


def _recorded(folder: Path | None, file: Path) -> str:
    """What stands in a file of the folder with records; nothing if it is not there."""
    return (folder / file).read_text() if folder and (folder / file).is_file() else ""


def _demand(name: str, is_recorded: bool, case: Case) -> Demand:
    """A demand whose machines are on at its begin only where there is work for them."""
    case.boot_ms = BOOT_MS
    case.nodes.sort(key=lambda node: (gpus_of(node), node.name))
    placer = Placer(case.nodes, {work.shape for work in case.works})
    at_work = {placer.put(work.name, work.shape) for work in case.works if _is_there(work, case)}
    assert ANYWHERE not in at_work, "there is room for all at the begin"
    case.machines = {
        node.name: Machine(name=node.name, power="On" if node.name in at_work else "Off", since=case.begin)
        for node in case.nodes
    }
    return Demand(name, is_recorded, case, by_ref(pools_of(case.nodes)))


def _is_there(work: RequestedPod, case: Case) -> bool:
    return work.began is not None or work.arrives == case.begin


def gpus_of(node: Node) -> int:
    """How many a machine has."""
    return dict(node.allocatable).get(GPU, 0) // WHOLE


def pools_of(nodes: Sequence[Node]) -> Iterator[AnyResource]:
    """As few pools as may be, the smallest machines in the first ones: pools are asked in their order."""
    for first in range(0, len(nodes), MOST_MACHINES):
        machines = [_machine(node) for node in nodes[first : first + MOST_MACHINES]]
        yield pool(f"pool-{first // MOST_MACHINES}", {"machines": machines, "order": first // MOST_MACHINES})


def _machine(node: Node) -> dict[str, Any]:
    gpus, address = gpus_of(node), f"https://power.example.com/{node.name}"
    return {
        "name": node.name,
        "gpuCount": gpus,
        "scaleUpEndpoint": f"{address}/on",
        "scaleDownEndpoint": f"{address}/off",
        "idleWatts": IDLE_WATTS * gpus // 8,
        "busyWatts": BUSY_WATTS * gpus // 8,
    }


def pool(name: str, spec: dict[str, Any]) -> AnyResource:
    """A PowerPool that the API server would accept."""
    document = {"apiVersion": API_VERSION, "kind": POOL, "metadata": {"name": name}, "spec": spec}
    assert not kinds.problems(document), kinds.problems(document)
    return AnyResource(
        kind=POOL,
        namespace="",
        name=name,
        uid=name,
        generation=1,
        spec=kinds.spec_of(POOL, spec),
        status=KINDS[POOL].status(),
    )
