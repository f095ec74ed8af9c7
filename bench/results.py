"""Prints what a benchmark measured and keeps it in bench/results/NAME.json, with where and on what it was measured."""

import compileall
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
FOLDER = Path(__file__).parent / "results"
PACKAGES = ("headroom", "aiohttp", "asyncpg", "msgspec", "numpy")


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One figure. The goal is the most (`max`) or the least (`min`) that the value may be."""

    figure: str
    value: float
    unit: str
    goal: float | None = None
    sense: Literal["max", "min"] = "max"
    peer: str | None = None
    peer_value: float | None = None

    @property
    def is_missed(self) -> bool:
        if self.goal is None:
            return False
        return self.value > self.goal if self.sense == "max" else self.value < self.goal


def write(
    name: str, rows: Sequence[Row | dict[str, Any]], folder: Path = FOLDER, also: Mapping[str, str] | None = None
) -> list[Row]:
    """Prints the rows, writes them to NAME.json, and returns those that miss their goal. `also` are further versions."""
    checked = [row if isinstance(row, Row) else msgspec.convert(row, Row) for row in rows]
    document = {
        "name": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _COMMIT,
        "versions": _versions() | dict(also or {}),
        "machine": _machine(),
        "rows": msgspec.to_builtins(checked),
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n")
    Console().print(_table(name, checked))
    return [row for row in checked if row.is_missed]


def compile_modules() -> None:
    """Have our modules compiled, as an installed package has them; else every process may begin with that, where caches are not written."""
    compileall.compile_dir(ROOT / "src" / "headroom", quiet=1)


def keep_table(name: str, columns: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """A table of a benchmark's own, for pages that quote it."""
    ruler = "|" + "---|" * len(columns)
    head, *body = (f"| {' | '.join(cells)} |" for cells in (columns, *lines))
    (FOLDER / f"{name}.md").write_text("\n".join([head, ruler, *body]) + "\n")


def _table(name: str, rows: Sequence[Row]) -> Table:
    table = Table(title=name)
    for heading in ("figure", "value", "goal", "", "peer"):
        table.add_column(heading, justify="right" if heading in {"value", "goal"} else "left")
    for row in rows:
        goal = "" if row.goal is None else f"{'at most' if row.sense == 'max' else 'at least'} {row.goal:,g}"
        verdict = "" if row.goal is None else "[red]missed[/red]" if row.is_missed else "[green]met[/green]"
        peer = row.peer or ""
        if row.peer_value is not None:
            peer += f" {row.peer_value:,g} {row.unit}"
        table.add_row(row.figure, f"{row.value:,g} {row.unit}", goal, verdict, peer)
    return table


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    assets = _output(str(ROOT / "tools" / "control-plane"), "--where")
    server = _output(f"{assets}/kube-apiserver", "--version") if assets else None
    versions["kube"] = server.removeprefix("Kubernetes ") if server else None
    return versions


def _machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        lines = information.read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), model)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cores": os.cpu_count(), "model": model, "memoryGiB": round(memory / 2**30, 1)}


def _output(*command: str) -> str | None:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None


_COMMIT = _output("git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12")
"""What is measured: as the tree was at the start, which may change while a benchmark runs for an hour."""
