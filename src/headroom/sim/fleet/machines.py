"""The demo's forty machines, what they cost, the pool of those that sleep while nobody needs them, and one resource of each other kind."""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from headroom.api.bandwidth import LOCAL_BANDWIDTH, NETWORK_BANDWIDTH
from headroom.sim.answers import Body
from headroom.sim.catalog import SIM_GROUP

OURS: Final = "headroom.dev/v1alpha1"
FACTS: Final = f"{SIM_GROUP}/v1"
GPUS_OF_A_MACHINE: Final = 8
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
PRODUCT: Final = "nvidia.com/gpu.product"
_ZONES: Final = ("us-east-1a", "us-east-1b", "us-east-1c")


class MachineSort(Struct, frozen=True):
    """One sort of machine."""

    name: str
    """What the names of the machines begin with."""
    instance_type: str
    count: int
    price: str
    """Dollars an hour for the whole machine, as the demo's price book has it."""
    product: str = ""
    """What its GPUs are."""


H100: Final = MachineSort("h100", "p5.48xlarge", 8, "55.04", "NVIDIA-H100-80GB-HBM3")
A100: Final = MachineSort("a100", "p4d.24xlarge", 12, "21.96", "NVIDIA-A100-SXM4-40GB")
L4: Final = MachineSort("l4", "g6.48xlarge", 20, "13.35", "NVIDIA-L4")
SORTS: Final = (A100, H100, L4)
BOOT_SECONDS: Final = 120.0
_OLD_CARD: Final = "l4-01"
"""Its network card carries less than those of its like."""
_IN_THE_BASEMENT: Final = 8
_ASLEEP: Final = 4
"""So many of the last L4 machines belong to a PowerPool, and so many of those sleep when the demo begins."""


def named(object_: Body, **more: dict[str, str] | str) -> Body:
    """The object with labels, annotations or a uid."""
    return object_ | {"metadata": object_["metadata"] | more}


def made(version: str, kind: str, name: str, spec: Body, namespace: str = "") -> Body:
    """An object."""
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def names(sort: MachineSort) -> list[str]:
    """The names of all machines of a sort."""
    return [f"{sort.name}-{number:02d}" for number in range(1, sort.count + 1)]


def basement() -> list[str]:
    """The machines of the PowerPool."""
    return names(L4)[-_IN_THE_BASEMENT:]


def asleep() -> list[str]:
    """Those of them that are off at the start."""
    return names(L4)[-_ASLEEP:]


def documents(start: str) -> list[Body]:
    """All machines, the price book, and one PowerPool and Bandwidth, with what they look at."""
    nodes = [_node(sort, name, number) for sort in SORTS for number, name in enumerate(names(sort))]
    return [*nodes, _price_book(), *_other_kinds(), *_facts(start)]


def _node(sort: MachineSort, name: str, number: int) -> Body:
    room = {"cpu": "192", "memory": "1536Gi", "pods": "110", "nvidia.com/gpu": str(GPUS_OF_A_MACHINE)}
    labels = {"kubernetes.io/hostname": name, INSTANCE_TYPE: sort.instance_type}
    labels |= {PRODUCT: sort.product} if sort.product else {}
    labels |= {"topology.kubernetes.io/zone": _ZONES[number % len(_ZONES)]}
    # What a virtual switch carries no machine type tells.
    notes = {LOCAL_BANDWIDTH: "800G"} | ({NETWORK_BANDWIDTH: "25G"} if name == _OLD_CARD else {})
    node = named(made("v1", "Node", name, {"providerID": f"sim:///{name}"}), labels=labels, annotations=notes)
    return node | {"status": {"capacity": room, "allocatable": room}}


def _price_book() -> Body:
    lines = [f'- {{instanceType: {sort.instance_type}, pricePerHour: "{sort.price}"}}\n' for sort in SORTS]
    metadata = {"name": "headroom-prices", "namespace": "headroom-system"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"prices.yaml": "".join(lines)}}


def _other_kinds() -> list[Body]:
    links = {"network": {"ulMbps": 800_000, "dlMbps": 800_000}, "local": {"ulMbps": 800_000, "dlMbps": 800_000}}
    return [_basement(), made(OURS, "Bandwidth", names(H100)[0], {"capacity": links})]


def _basement() -> Body:
    """Machines that sleep soon, so that somebody who watches for minutes sees it."""
    machines = [
        {"name": name, "gpuCount": GPUS_OF_A_MACHINE}
        | {
            f"{word}Endpoint": f"http://power-api/{name}/{path}"
            for word, path in (("scaleUp", "start"), ("scaleDown", "stop"), ("status", "power"))
        }
        for name in basement()
    ]
    template = {"labels": {INSTANCE_TYPE: L4.instance_type}, "idleWatts": 450, "busyWatts": 1200}
    # A day of the story has room for each machine to sleep: none stays warm for those to come.
    policy = {"idleSeconds": 300, "bootTimeoutSeconds": 600, "warmPercent": 0}
    return made(OURS, "PowerPool", "basement", {"machines": machines, "template": template, "policy": policy})


def _facts(start: str) -> list[Body]:
    """What the outside says of machines that can be switched, and of those that can be bought."""
    facts = [
        made(FACTS, "Machine", name, {"power": "Off" if name in asleep() else "On", "since": start})
        for name in basement()
    ]
    for type_, gpus, prices in (
        ("g5.12xlarge", 4, ("2.3814", "2.0412")),
        ("g6.12xlarge", 4, ("1.8860", "2.1620")),
    ):
        for zone, price in zip(_ZONES[:2], prices, strict=True):
            spec = {"provider": "aws", "region": "us-east-1", "zone": zone, "instanceType": type_, "arch": "amd64"}
            spec |= {"vendor": "nvidia", "gpus": str(gpus), "capacityType": "spot", "pricePerHour": price, "at": start}
            facts.append(made(FACTS, "Offer", f"{type_}-{zone}", spec))
    return facts
