"""`headroom top` on a terminal of its own: a fleet behind a port, and files; and what it says where there is no terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headroom.sim.rights import Right
from tests.cli.conftest import Headroom
from tests.cli.served import Served
from tests.cli.stage import FLEET, NOON, fleet_behind_a_port
from tests.cli.terminals import on_a_terminal

EVENT = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"name": "one.1", "namespace": "vision"},
    "involvedObject": {"kind": "Pod", "namespace": "vision", "name": "old-7"},
    "source": {"component": "headroom"},
    "reportingComponent": "headroom",
    "type": "Warning",
    "reason": "BudgetEvicted",
    "message": "Evicted by vision/team-b.\x1b[31m",
    "lastTimestamp": "2026-11-15T11:58:00Z",
}
THEIRS = EVENT | {
    "metadata": {"name": "two.1", "namespace": "vision"},
    "source": {"component": "kubelet"},
    "reportingComponent": "kubelet",
    "reason": "BackOff",
}
TENANT = (Right(verbs=("*",), resources=("pods", "gpuworkloadbudgets"), namespaces=("vision",)),)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Served]:
    with fleet_behind_a_port(tmp_path) as made:
        made.put(EVENT, THEIRS)
        yield made


def test_a_live_cluster_is_shown_and_read_again(fleet: Served) -> None:
    with on_a_terminal("top", "--every", "0.5", "--kubeconfig", fleet.kubeconfig()) as terminal:
        first = terminal.until(lambda screen: "r reads now" in screen)
        assert "\x1b[?1049h" in first, "the whole terminal"
        for each in ("vision/team-b", "lab/team-a", "Pod/vision/next", "basement", "BudgetEvicted", "leads"):
            assert each in first
        assert "BackOff" not in first
        assert "team-b.\x1b[31m" not in first
        fleet.put(EVENT | {"metadata": {"name": "n.1", "namespace": "vision"}, "reason": "Later"})
        terminal.until(lambda screen: "Later: " in screen)
        terminal.press("q")
        assert terminal.ended() == 0
        assert "\x1b[?1049l" in terminal.screen


def test_one_namespace_takes_no_more_rights_than_its_team_has(fleet: Served) -> None:
    tenant = fleet.kubeconfig("tenant", TENANT)
    with on_a_terminal("top", "-n", "vision", "--kubeconfig", tenant) as terminal:
        shown = terminal.until(lambda screen: "r reads now" in screen)
        assert "vision/team-b" in shown
        assert "lab/team-a" not in shown
        terminal.press("q")
        assert terminal.ended() == 0


def test_a_cluster_that_is_gone_leaves_what_was_seen(fleet: Served) -> None:
    with on_a_terminal("top", "--every", "0.5", "--kubeconfig", fleet.kubeconfig()) as terminal:
        terminal.until(lambda screen: "r reads now" in screen)
        fleet.stop()
        shown = terminal.until(lambda screen: "Not newer: " in screen)
        assert "vision/team-b" in shown.rpartition("Not newer")[0]
        terminal.press("q")
        assert terminal.ended() == 0


@pytest.mark.parametrize("columns", [80, 200])
def test_files_are_shown_with_what_is_due(columns: int) -> None:
    with on_a_terminal("top", "-f", FLEET, "--now", NOON, columns=columns) as terminal:
        shown = terminal.until(lambda screen: "r reads now" in screen)
        for each in ("vision/team-b", "hold new pods of", "wake gpu-02"):
            assert each in shown
        terminal.press("x")
        terminal.press("q")
        assert terminal.ended() == 0


def test_a_terminal_without_block_characters_gets_plain_ones() -> None:
    with on_a_terminal(
        "top", "-f", FLEET, "--now", NOON, LC_ALL="C", PYTHONUTF8="0", PYTHONIOENCODING="ascii"
    ) as terminal:
        shown = terminal.until(lambda screen: "r reads now" in screen)
        assert shown.isascii()
        assert "\\u" not in shown
        terminal.press("q")
        assert terminal.ended() == 0


def test_no_terminal_is_one_sentence(headroom: Headroom) -> None:
    done = headroom("top")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "headroom: showing a live view: input and output must be a terminal; use `headroom status`"
    )
