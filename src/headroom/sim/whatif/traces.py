"""Public traces as cases: openb (Alibaba, GPU shares), Philly's busy machines by the minute, and Philly-like arrivals (gavel).

The format is detected from the content. Errors name file, line and column.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import re
import zlib
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Final, NamedTuple

from headroom.model import times
from headroom.model.errors import Misconfigured
from headroom.model.facts import Node, Pairs, Shape
from headroom.sim.whatif.work import GPU, LONGEST_DAYS, Case, Recorded, RequestedPod, cut, namespace_of, owner_of

MICRO: Final = 1_000_000
MIB: Final = 2**20
MODEL: Final = "nvidia.com/gpu.product"
"""The node label with the GPU model."""
BEGIN: Final = 1_672_531_200_000
"""The start of a trace whose times count from zero."""
GPUS_OF_A_MACHINE: Final = 8
LARGEST_UNPACKED: Final = 2**30
MOST_GPUS: Final = 10_000
MOST_CPU_MILLI: Final = 10**9
MOST_MIB: Final = 2**22
"""4 TiB: twice as much, in millionths of a byte, overflows the counters of free capacity."""
MOST_MACHINES: Final = 100_000
LATEST_S: Final = 10**10
LONGEST_S: Final = LONGEST_DAYS * 86_400
OPENB_PODS: Final = ("name", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time")
OPENB_NODES: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
PHILLY: Final = ("time", "active", "total")
TOO_LONG: Final = f"makes the trace longer than {LONGEST_DAYS:,} days, which is the limit"
_GAVEL_COLUMNS: Final = 7
_NOT_IN_A_NAME: Final = re.compile(r"[^a-z0-9-]+")
_NOT_IN_A_VALUE: Final = re.compile(r"[^A-Za-z0-9_.-]+")

Text = tuple[str, bytes]
"""The name and content of a file."""


class Naming(NamedTuple):
    """The namespace and the team label of a trace's pods; `{qos}` is a column of the trace."""

    namespace: str = "default"
    team_label: str = "team"
    team: str = ""

    def of(self, columns: Mapping[str, str], source: str) -> tuple[str, Pairs]:
        """The namespace and the labels of a pod."""
        try:
            namespace, team = (each.format(**columns) for each in (self.namespace, self.team))
        except (KeyError, IndexError, ValueError, AttributeError):
            has = ", ".join(f"{{{name}}}" for name in columns)
            raise Misconfigured(
                f"naming the pods of {source}: --namespace and --team-label may use these columns: {has}"
            ) from None
        labels = {name: label_value(value) for name, value in columns.items() if name in ("qos", "type")}
        if team:
            labels[self.team_label] = label_value(team)
        return name_of(namespace) or "default", tuple(sorted((key, value) for key, value in labels.items() if value))


def name_of(text: str) -> str:
    """A text as a name in Kubernetes."""
    return _NOT_IN_A_NAME.sub("-", text.lower()).strip("-")[:63].strip("-")


def label_value(text: str) -> str:
    """A text as the value of a label."""
    return _NOT_IN_A_VALUE.sub("-", text).strip("-._")[:63].strip("-._")


def read(
    trace: Text, nodes: Text | None, runtimes: Text | None, naming: Naming, *, seed: int = 0, days: float | None = None
) -> Case:
    """The case of a trace; with `days`, only its last days."""
    source, text = trace[0], unpacked(*trace)
    head = text.partition("\n")[0].rstrip("\r")
    columns = tuple(each.strip() for each in head.split(","))
    machines = [] if nodes is None else _machines(nodes[0], unpacked(*nodes))
    if set(OPENB_PODS) <= set(columns):
        records, title = list(_openb(source, text, naming)), "openb"
    elif columns[:3] == PHILLY:
        records, found = _philly(source, text, naming)
        machines, title = machines or found, "Philly machines"
    elif len(head.split("\t")) >= _GAVEL_COLUMNS:
        if runtimes is None:
            raise Misconfigured(
                f"reading {source}: this trace has arrivals but no run times; "
                "give run times to draw from with --runtimes FILE"
            )
        lengths = _runtimes(runtimes[0], unpacked(*runtimes))
        records, title = list(_gavel(source, text, lengths, naming, seed)), "Philly-like arrivals"
    else:
        raise Misconfigured(
            f"reading {source}: line 1 is not the header of a known trace; openb has {','.join(OPENB_PODS)}, "
            f"Philly's machines {','.join(PHILLY)}, and gavel's traces seven columns with tabs between them"
        )
    if not records:
        raise Misconfigured(f"reading {source}: it has no pods")
    end = max(each.end if each.end is not None else each.work.arrives for each in records)
    case = Case(
        title=f"{title}, {PurePath(source).name}", begin=0, end=max(end, min(each.work.arrives for each in records) + 1)
    )
    case.nodes, case.team_label = machines, naming.team_label if naming.team else ""
    names = {each.work.namespace for each in records}
    case.namespaces = {name: namespace_of(name) for name in sorted(names | {case.own_namespace})}
    if not machines:
        case.notes.append("No machines are given, so capacity is unlimited; give them with --nodes.")
    return cut(case, records, days)


def unpacked(source: str, text: bytes) -> str:
    """The text of a file, which may be gzipped."""
    try:
        if text[:2] == b"\x1f\x8b":
            with gzip.open(io.BytesIO(text)) as file:
                text = file.read(LARGEST_UNPACKED + 1)
            if len(text) > LARGEST_UNPACKED:
                raise Misconfigured(f"reading {source}: it is larger than {LARGEST_UNPACKED >> 20} MiB unpacked")
        return text.decode("utf-8-sig")
    except (OSError, EOFError, zlib.error) as error:
        raise Misconfigured(f"reading {source}: it cannot be unpacked: {error}") from None
    except UnicodeDecodeError as error:
        raise Misconfigured(f"reading {source}: it is not UTF-8 text (byte {error.start})") from None


# --- rows -----------------------------------------------------------------------------------------------------------------------


class TraceRow(NamedTuple):
    """One row of a table, with its line."""

    source: str
    number: int
    values: Mapping[str, str]

    def integer(self, column: str, most: int, *, default: int | None = None) -> int:
        """A whole number within bounds."""
        value = self._number(column, most, default)
        if not value.is_integer():
            raise self.wrong(column, f"must be a whole number, not {self._text(column)!r}")
        return int(value)

    def seconds(self, column: str, *, default: int | None = None) -> int:
        """A time or a duration; decimals are dropped."""
        return int(self._number(column, LATEST_S, default))

    def _number(self, column: str, most: int, default: int | None) -> float:
        text = (self.values.get(column) or "").strip()
        if not text and default is not None:
            return float(default)
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        # Written so that NaN does not pass either.
        if not 0 <= value <= most:
            raise self.wrong(column, f"must be a number from 0 to {most:,}, not {self._text(column)!r}")
        return value

    def _text(self, column: str) -> str:
        return (self.values.get(column) or "").strip()[:40]

    def wrong(self, column: str, why: str) -> Misconfigured:
        """An error with its position."""
        return Misconfigured(f"reading {self.source}: line {self.number}, column {column}: {why}")


def _table(source: str, text: str, wanted: tuple[str, ...]) -> Iterator[TraceRow]:
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    missing = [name for name in wanted if name not in (reader.fieldnames or ())]
    if missing:
        raise Misconfigured(f"reading {source}: line 1: these columns are missing: {', '.join(missing)}")
    try:
        for values in reader:
            plain = {key: value or "" for key, value in values.items() if key is not None}
            if any(plain[name] == "" and values[name] is None for name in wanted):
                name = next(name for name in wanted if values[name] is None)
                raise TraceRow(source, reader.line_num, {}).wrong(name, "the line ends before it")
            yield TraceRow(source, reader.line_num, plain)
    except csv.Error as error:
        raise Misconfigured(f"reading {source}: line {reader.line_num}: {error}") from None


# --- openb ----------------------------------------------------------------------------------------------------------------------


def _machines(source: str, text: str) -> list[Node]:
    found = []
    for line in _table(source, text, OPENB_NODES):
        room = {
            "cpu": line.integer("cpu_milli", MOST_CPU_MILLI) * 1000,
            "memory": line.integer("memory_mib", MOST_MIB) * MIB * MICRO,
            GPU: line.integer("gpu", MOST_GPUS, default=0) * MICRO,
        }
        model = label_value(line.values["model"])
        labels: Pairs = ((MODEL, model),) if model else ()
        amounts = tuple(sorted((name, amount) for name, amount in room.items() if amount))
        found.append(Node(name=line.values["sn"], labels=labels, ready=True, allocatable=amounts))
    if not found:
        raise Misconfigured(f"reading {source}: it has no machines")
    return found


def _openb(source: str, text: str, naming: Naming) -> Iterator[Recorded]:
    first, last = LATEST_S, 0
    for line in _table(source, text, OPENB_PODS):
        arrives, end = line.seconds("creation_time"), line.seconds("deletion_time")
        start = line.seconds("scheduled_time", default=arrives)
        if end < start:
            raise line.wrong("deletion_time", f"is {end}, before it was scheduled at {start}")
        first, last = min(first, arrives), max(last, end)
        if last - first > LONGEST_S:
            raise line.wrong("deletion_time" if end == last else "creation_time", TOO_LONG)
        namespace, labels = naming.of(line.values, source)
        name = name_of(line.values["name"]) or f"pod-{line.number}"
        work = RequestedPod(
            name=name,
            namespace=namespace,
            owner=owner_of("Job", namespace, name),
            arrives=BEGIN + arrives * times.SECOND,
            length=(end - start) * times.SECOND,
            labels=labels,
            shape=_openb_shape(line),
        )
        is_scheduled = bool(line.values["scheduled_time"].strip())
        begun, ended = (BEGIN + each * times.SECOND for each in (start, end))
        yield Recorded(work=work, start=begun if is_scheduled else None, end=ended)


def _openb_shape(line: TraceRow) -> Shape:
    cards, share = line.integer("num_gpu", MOST_GPUS), line.integer("gpu_milli", 1000, default=1000)
    asked = {
        GPU: cards * share * 1000,
        "cpu": line.integer("cpu_milli", MOST_CPU_MILLI, default=0) * 1000,
        "memory": line.integer("memory_mib", MOST_MIB, default=0) * MIB * MICRO,
    }
    models = [label_value(each) for each in (line.values.get("gpu_spec") or "").split("|") if each.strip()]
    requests = tuple(sorted((name, amount) for name, amount in asked.items() if amount))
    return Shape(requests=requests, affinity=_one_of(models) if models else "")


def _one_of(models: list[str]) -> str:
    terms = [{"matchExpressions": [{"key": MODEL, "operator": "In", "values": models}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return json.dumps({"nodeAffinity": required})


# --- Philly ---------------------------------------------------------------------------------------------------------------------


def _philly(source: str, text: str, naming: Naming) -> tuple[list[Recorded], list[Node]]:
    """Every busy machine is one pod that takes it whole; the oldest pod ends first."""
    found: list[tuple[int, int | None]] = []
    busy: deque[int] = deque()
    most, first, before = 0, -1, -1
    for line in _table(source, text, PHILLY):
        at = times.moment(line.values["time"].strip())
        if at is None or at <= before:
            raise line.wrong("time", f"must be later than on the line before, not {line.values['time'][:40]!r}")
        first, before = at if first < 0 else first, at
        if at - first > LONGEST_S * times.SECOND:
            raise line.wrong("time", TOO_LONG)
        total = line.integer("total", MOST_MACHINES)
        active, most = line.integer("active", total), max(most, total)
        while len(busy) > active:
            place = busy.popleft()
            found[place] = found[place][0], at
        while len(busy) < active:
            busy.append(len(found))
            found.append((at, None))
    room = ((GPU, GPUS_OF_A_MACHINE * MICRO),)
    machines = [Node(name=f"machine-{number:04d}", ready=True, allocatable=room) for number in range(most)]
    namespace, labels = naming.of({"trace": "philly"}, source)
    records = []
    for number, (start, end) in enumerate(found):
        name = f"busy-{number:06d}"
        length = None if end is None else end - start
        owner = owner_of("Job", namespace, name)
        shape = Shape(requests=room)
        work = RequestedPod(
            name=name, namespace=namespace, owner=owner, arrives=start, length=length, labels=labels, shape=shape
        )
        records.append(Recorded(work=work, start=start, end=before if end is None else end))
    return records, machines


def _gavel(source: str, text: str, lengths: list[int], naming: Naming, seed: int) -> Iterator[Recorded]:
    rng = random.Random(seed)
    for number, row in enumerate(text.splitlines(), start=1):
        if not row.strip():
            continue
        parts = row.split("\t")
        if len(parts) < _GAVEL_COLUMNS:
            raise Misconfigured(f"reading {source}: line {number}, column {len(parts)}: the line ends before column 7")
        line = TraceRow(source, number, {"type": parts[0], "arrival": parts[-2], "gpus": parts[-1]})
        arrives, gpus = BEGIN + line.seconds("arrival") * times.SECOND, line.integer("gpus", MOST_GPUS)
        if arrives - BEGIN > LONGEST_S * times.SECOND:
            raise line.wrong("arrival", TOO_LONG)
        namespace, labels = naming.of(line.values, source)
        name, length = f"job-{number:05d}", rng.choice(lengths) * times.SECOND
        work = RequestedPod(
            name=name,
            namespace=namespace,
            owner=owner_of("Job", namespace, name),
            arrives=arrives,
            length=length,
            labels=labels,
            shape=Shape(requests=((GPU, gpus * MICRO),) if gpus else ()),
        )
        yield Recorded(work=work, start=arrives, end=arrives + length)


def _runtimes(source: str, text: str) -> list[int]:
    head = text.partition("\n")[0].strip()
    lengths = []
    for line in _table(source, text, (head,)):
        found = line.seconds(head)
        if found > LONGEST_S:
            raise line.wrong(head, f"is longer than {LONGEST_DAYS:,} days")
        lengths += [found] if found else []
    if not lengths:
        raise Misconfigured(f"reading {source}: it has no run times above 0 s")
    return lengths
