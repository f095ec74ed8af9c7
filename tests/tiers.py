"""Counts the tests of each tier and their CPU time, and lets no tier of the whole suite be empty or skipped unnoticed.

A tier is the first folder under tests/; files directly in tests/ are the tier "tidy".
"""

import os
import resource
from collections import Counter
from collections.abc import Generator
from pathlib import PurePosixPath

import pytest

REQUIRED = tuple(os.environ.get("HEADROOM_TIERS", "core scenarios browser contracts integration").split())
"""Tiers that must not be empty; a lane of tools/test names its own."""
CI = os.environ.get("CI") == "true"
WHOLE_SUITE = os.environ.get("HEADROOM_WHOLE_SUITE") == "1"
DEEP = os.environ.get("HEADROOM_DEEP") == "1"
"""Every case of the large tables, every seed and the largest fuzz: `make test-deep`. Else a part that has each value of each column."""


def tier_of(nodeid: str) -> str:
    parts = PurePosixPath(nodeid.partition("::")[0]).parts
    return parts[1] if len(parts) > 2 else "tidy"


def cpu_seconds() -> float:
    """What this process used, and those of its children that have ended."""
    every = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in every)


class Tiers:
    """A pytest plugin; it speaks up only when the whole suite was asked for."""

    def __init__(self) -> None:
        self._run: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._cpu: dict[str, float] = {}
        self._current = ""
        self._terminal: pytest.TerminalReporter | None = None

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
            tier = tier_of(item.nodeid)
            self._cpu[tier] = self._cpu.get(tier, 0) + cpu_seconds() - began

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped or hasattr(report, "wasxfail"):
            self._skip(report)
        elif report.when == "call" or report.failed:
            self._run[tier_of(report.nodeid)] += 1

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if WHOLE_SUITE and CI and self._complaints() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not WHOLE_SUITE:
            return
        terminalreporter.write_sep("=", "tests per tier")
        terminalreporter.write_line(f"{'tier':<14}{'run':>7}{'skipped':>9}{'CPU s':>8}")
        for tier in sorted({*REQUIRED, *self._run, *self._skipped}):
            counted = f"{tier:<14}{self._run[tier]:>7}{self._skipped[tier]:>9}"
            terminalreporter.write_line(f"{counted}{self._cpu.get(tier, 0):>8.0f}")
        for reason, count in self._reasons.most_common():
            terminalreporter.write_line(f"skipped {count}: {reason}")
        if CI:
            for complaint in self._complaints():
                terminalreporter.write_line(f"FAILED: {complaint}", red=True)

    def _skip(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        self._skipped[tier_of(report.nodeid)] += 1
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else "expected to fail"
        self._reasons[reason.removeprefix("Skipped: ")] += 1

    def _complaints(self) -> list[str]:
        empty = [f"tier {tier} ran no test" for tier in REQUIRED if not self._run[tier]]
        return empty + [f"tier {tier} skipped {count} tests" for tier, count in sorted(self._skipped.items())]
