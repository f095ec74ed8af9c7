"""What `headroom plan` prints for people: effects with signs, reasons beneath, one summary line, and its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from headroom.cli import plan_text
from headroom.model.actions import BY_NAME
from tests.cli.conftest import Headroom
from tests.cli.stage import FLEET, NOON, ROOT
from tests.cli.test_plan import BUDGET, NOW, WRONG

USED_UP = (ROOT / "docs/examples/budget-used-up.yaml", "--now", NOON)
MANY = "---\n".join(BUDGET.replace("team-a", f"team-{number:02d}") for number in range(30)).encode()


def test_every_action_but_events_has_words() -> None:
    assert set(plan_text.EFFECTS) == set(BY_NAME) - {"EmitEvent"}
    assert {each.sign for each in plan_text.EFFECTS.values()} == {"+", "~", "-"}


def test_each_effect_has_its_sign_and_the_reason_beneath(headroom: Headroom) -> None:
    lines = headroom("plan", *USED_UP).out.splitlines()
    at = lines.index("GPUWorkloadBudget/lab/team-a: QuotaReached")
    assert lines[at + 1 : at + 3] == ["  + hold new pods of lab/team-a", "  - evict lab/old-0 (graceSeconds 30)"]
    assert lines[at + 3].startswith("    Over quota: 48.0 of 47.5 GPU-hours")
    assert lines[-1] == "Plan: 1 hold, 1 eviction."


def test_a_fleet_is_summed_up_in_one_line(headroom: Headroom) -> None:
    said = headroom("plan", FLEET, "--now", NOON).out
    assert said.endswith("\nPlan: 1 hold, 1 wake, 1 finalizer, 2 launches.\n")
    assert "\n  + wake gpu-02" in said


def test_nothing_due_is_said(headroom: Headroom) -> None:
    assert headroom("plan", "-", "--now", NOW, stdin=BUDGET.encode()).out.endswith("\nPlan: nothing is due.\n")


def test_a_terminal_shows_signs_in_colour_and_not_everything(
    headroom: Headroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert headroom("plan", "-", stdin=MANY).out.count("GPUWorkloadBudget/") == 30, "a pipe has room"
    monkeypatch.setenv("FORCE_COLOR", "1")
    said = headroom("plan", *USED_UP).out
    assert "  \x1b[32m+ hold new pods of lab/team-a\x1b[0m\n  \x1b[31m- evict lab/old-0" in said
    said = headroom("plan", "-", stdin=MANY).out
    assert said.count("GPUWorkloadBudget/") == 20
    assert "\nand 10 resources more with nothing due; -o json has them all\n" in said


@pytest.mark.parametrize(
    ("words", "stdin", "code"),
    [
        (("-", "--now", NOW), BUDGET, 0),
        (USED_UP, "", 2),
        (("-",), WRONG, 1),
        (("none.yaml",), "", 1),
        (("-", "--now", "yesterday"), BUDGET, 1),
        (("-", "--no-such-flag"), BUDGET, 1),
        ((), "", 1),
    ],
)
def test_the_exit_code_says_whether_something_is_due(
    headroom: Headroom, words: tuple[object, ...], stdin: str, code: int
) -> None:
    assert headroom("plan", "--exit-code", *words, stdin=stdin.encode()).code == code


def test_without_the_flag_what_is_due_is_no_failure(headroom: Headroom, tmp_path: Path) -> None:
    assert headroom("plan", *USED_UP).code == 0
    assert headroom("plan", tmp_path / "none.yaml").code == 2
