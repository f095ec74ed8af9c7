"""`-n` and `-A` mean what they mean to kubectl, in every command; the operator's namespace has a flag of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headroom.model.errors import Misconfigured
from headroom.runtime import settings
from headroom.runtime.clock import RealClock
from headroom.sim.rights import Right
from tests.cli.conftest import Headroom
from tests.cli.served import Served
from tests.cli.stage import FLEET, NOON, NOON_MS, fleet_behind_a_port
from tests.cli.test_behaviour import commands

OFFLINE = ("-f", FLEET, "--now", NOON)
TENANT = (Right(verbs=("*",), resources=("pods", "gpuworkloadbudgets"), namespaces=("vision",)),)
SCOPED = {"status", "forecast", "explain", "release", "plan", "replay", "top", "bench workload"}
"""Commands about what is in namespaces."""
MAKES = {"simulate"}
"""Makes pods of a trace in a namespace."""


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(RealClock, "now", lambda _: NOON_MS)
    with fleet_behind_a_port(tmp_path) as made:
        yield made


def in_context(fleet: Served, namespace: str, user: str = "admin") -> Path:
    """A kubeconfig whose context has a namespace."""
    file = fleet.kubeconfig(user, TENANT if user != "admin" else None)
    text = file.read_text()
    file.write_text(text.replace("context: {", f"context: {{namespace: {namespace}, "))
    assert namespace in file.read_text()
    return file


def spaces(rows: list[dict[str, Any]]) -> set[str]:
    return {each.get("namespace", "") for each in rows}


def test_no_command_means_anything_else_by_it() -> None:
    for name, command in commands().items():
        flags = {flag: each.name for each in command.params for flag in each.opts}
        assert ("-n" in flags) == (name in SCOPED), name
        assert ("--namespace" in flags) == (name in SCOPED | MAKES), name
        assert "--only" not in flags


@pytest.mark.parametrize("flags", [(), ("-A",), ("-n", "vision", "-A")])
def test_a_fleet_view_shows_all_namespaces_unless_one_is_given(
    headroom: Headroom, fleet: Served, flags: tuple[str, ...]
) -> None:
    to = ("--kubeconfig", in_context(fleet, "vision"))
    found = json.loads(headroom("status", *flags, "-o", "json", *to).out)
    assert spaces(found["budgets"]) == {"lab", "vision"}
    found = json.loads(headroom("forecast", *flags, "-o", "json", *to).out)
    assert spaces(found["budgets"]) == {"lab", "vision"}


def test_one_namespace_is_shown_alone(headroom: Headroom, fleet: Served) -> None:
    to = ("--kubeconfig", fleet.kubeconfig())
    for command in ("status", "forecast"):
        found = json.loads(headroom(command, "--namespace", "vision", "-o", "json", *to).out)
        assert spaces(found["budgets"]) == {"vision"}, command
    for command in ("plan",):
        found = json.loads(headroom(command, "-n", "vision", *OFFLINE, "-o", "json").out)
        assert {each["resource"]["namespace"] for each in found["decisions"]} == {"vision"}


def test_a_world_is_replayed_of_one_namespace(headroom: Headroom, fleet: Served, tmp_path: Path) -> None:
    world = tmp_path / "world.json"
    headroom("snapshot", "-o", world, "--kubeconfig", fleet.kubeconfig())
    found = json.loads(headroom("replay", world, "-n", "lab", "-o", "json").out)
    assert {each["resource"]["namespace"] for each in found["decisions"]} == {"lab"}


def test_what_is_named_without_a_namespace_is_looked_for_in_that_of_the_context(
    headroom: Headroom, fleet: Served
) -> None:
    tenant = ("--kubeconfig", in_context(fleet, "vision", "tenant"))
    assert headroom("explain", "pod/next", *tenant).out.startswith("Pod vision/next ")
    assert headroom("explain", "gwb/team-b", *tenant).out.startswith("GPUWorkloadBudget/vision/team-b\n")
    elsewhere = headroom("explain", "pod/wide", "--kubeconfig", in_context(fleet, "vision"))
    assert (elsewhere.code, elsewhere.err.count("looking for Pod/vision/wide: not found")) == (2, 1)


def test_another_namespace_is_given_with_a_flag(headroom: Headroom, fleet: Served) -> None:
    to = ("--kubeconfig", in_context(fleet, "vision"))
    assert headroom("explain", "pod/wide", "-n", "lab", *to).out.startswith("Pod lab/wide ")
    assert headroom("explain", "pod/wide", "-A", *to).out.startswith("Pod lab/wide ")
    assert headroom("explain", "pp/basement", "-n", "lab", *to).out.startswith("PowerPool/basement\n")
    assert headroom("forecast", "team-a", "-n", "lab", *to).out.startswith("lab/team-a: ")
    both = headroom("explain", "pod/lab/wide", "-n", "vision", *to)
    assert (both.code, "-n vision names another namespace" in both.err) == (2, True)


def test_files_have_no_context(headroom: Headroom) -> None:
    assert headroom("explain", "gwb/team-b", *OFFLINE).out.count("GPUWorkloadBudget/vision/team-b") == 1


def test_a_pod_is_released_in_the_namespace_of_the_context(headroom: Headroom, fleet: Served) -> None:
    said = headroom("release", "pod/next", "--kubeconfig", in_context(fleet, "vision")).out
    assert said.startswith("Asked for pod/vision/next: ")


def test_the_variable_of_the_operators_namespace_keeps_its_earlier_name() -> None:
    earlier = {"HEADROOM_NAMESPACE": "gpu-operator"}
    assert settings.load({}, earlier).operator_namespace == "gpu-operator"
    both = earlier | {"HEADROOM_OPERATOR_NAMESPACE": "headroom"}
    assert settings.load({}, both).operator_namespace == "headroom"
    assert settings.load({"operator_namespace": "mine"}, both).operator_namespace == "mine"
    with pytest.raises(Misconfigured, match="HEADROOM_OPERATOR_NAMESPACE is one"):
        settings.load({}, {"HEADROOM_OPERATOR_NAMESPCE": "x"})
