"""Counts the tests of each tier and their CPU time, and lets no tier of the whole suite be empty or skipped unnoticed.

A tier is the first folder under tests/; files directly in tests/ are the tier "tidy". `python -m tests.tiers FOLDER` adds up what the
pieces of tools/test have counted.
"""

import json
import os
import resource
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import pytest

REQUIRED = ("core", "scenarios", "browser", "contracts", "integration")
"""Tiers that must not be empty."""
CI = os.environ.get("CI") == "true"
WHOLE_SUITE = os.environ.get("HEADROOM_WHOLE_SUITE") == "1"
TALLY = os.environ.get("HEADROOM_TALLY", "")
"""Where a piece of the suite leaves its count."""
DEEP = os.environ.get("HEADROOM_DEEP") == "1"
"""Every case of the large tables, every seed and the largest fuzz: `make test-deep`. Else a part that has each value of each column."""


def tier_of(nodeid: str) -> str:
    parts = PurePosixPath(nodeid.partition("::")[0]).parts
    return parts[1] if len(parts) > 2 else "tidy"


def cpu_seconds() -> float:
    """What this process used, and those of its children that have ended."""
    every = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in every)


CONTROL_PLANE = "control_" + "plane"
"""The fixture."""


@dataclass
class Tally:
    """What was counted."""

    run: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    cpu: dict[str, float] = field(default_factory=dict)

    def lines(self) -> Iterator[str]:
        """As a table."""
        yield f"{'tier':<14}{'run':>7}{'skipped':>9}{'CPU s':>8}"
        for tier in sorted({*REQUIRED, *self.run, *self.skipped}):
            yield f"{tier:<14}{self.run[tier]:>7}{self.skipped[tier]:>9}{self.cpu.get(tier, 0):>8.0f}"
        yield f"{'all':<14}{self.run.total():>7}{self.skipped.total():>9}{sum(self.cpu.values()):>8.0f}"
        yield from (f"skipped {count}: {reason}" for reason, count in self.reasons.most_common())

    def complaints(self) -> list[str]:
        """What must not be in CI."""
        empty = [f"tier {tier} ran no test" for tier in REQUIRED if not self.run[tier]]
        return empty + [f"tier {tier} skipped {count} tests" for tier, count in sorted(self.skipped.items())]

    def add(self, other: "Tally") -> None:
        """Count what another one counted."""
        self.run += other.run
        self.skipped += other.skipped
        self.reasons += other.reasons
        self.cpu |= {tier: self.cpu.get(tier, 0) + seconds for tier, seconds in other.cpu.items()}


class Tiers:
    """A pytest plugin; it speaks up only when the whole suite was asked for, and leaves that to others when it runs a piece of it."""

    def __init__(self) -> None:
        self._tally = Tally()
        self._current = ""
        self._terminal: pytest.TerminalReporter | None = None

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            if needs_a_cluster(item):
                item.add_marker("cluster")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._terminal = session.config.pluginmanager.get_plugin("terminalreporter")

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped:
            self._skip(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        tier = tier_of(nodeid)
        if WHOLE_SUITE and tier != self._current and self._terminal is not None:
            self._current = tier
            self._terminal.ensure_newline()
            self._terminal.write_line(f"tier {tier} ...")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        began = cpu_seconds()
        try:
            return (yield)
        finally:
            tier, cpu = tier_of(item.nodeid), self._tally.cpu
            cpu[tier] = cpu.get(tier, 0) + cpu_seconds() - began

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped or hasattr(report, "wasxfail"):
            self._skip(report)
        elif report.when == "call" or report.failed:
            self._tally.run[tier_of(report.nodeid)] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if TALLY:
            (Path(TALLY) / f"{os.getpid()}.json").write_text(json.dumps(vars(self._tally)))
        elif WHOLE_SUITE and CI and self._tally.complaints() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not WHOLE_SUITE or TALLY:
            return
        terminalreporter.write_sep("=", "tests per tier")
        for line in self._tally.lines():
            terminalreporter.write_line(line)
        for complaint in self._tally.complaints() if CI else ():
            terminalreporter.write_line(f"FAILED: {complaint}", red=True)

    def _skip(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        self._tally.skipped[tier_of(report.nodeid)] += 1
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "expected to fail"
        self._tally.reasons[reason.removeprefix("Skipped: ")] += 1


def needs_a_cluster(item: pytest.Item) -> bool:
    """Whether it must wait until the control plane is built: all of one tier, and the sides of the contracts that are not simulated."""
    if tier_of(item.nodeid) == "contracts" and isinstance(item, pytest.Function):
        sides = item.callspec.params.values() if hasattr(item, "callspec") else ()
        return "server" in sides or CONTROL_PLANE in item.fixturenames
    return tier_of(item.nodeid) == "integration"


def main(folder: str) -> int:
    """Add up the counts of all pieces."""
    tally = Tally()
    for file in sorted(Path(folder).iterdir()):
        found = json.loads(file.read_text())
        run, skipped, reasons = (Counter(found[what]) for what in ("run", "skipped", "reasons"))
        tally.add(Tally(run, skipped, reasons, found["cpu"]))
    complaints = tally.complaints() if CI else []
    print("\n".join(["tests per tier", *tally.lines(), *(f"FAILED: {each}" for each in complaints)]), flush=True)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
