"""Pods that never start have no wait: a report does not call the shorter waits of the others a gain."""

from __future__ import annotations

from headroom.sim.whatif.comparing import Comparison
from headroom.sim.whatif.report import report
from tests.sim.test_whatif import a_case, a_work, played


def test_shorter_waits_are_no_better_where_the_others_never_start() -> None:
    sides = [played(a_case(*(a_work(f"job-{n}", gpus=8, hours=2) for n in range(3)), hours=each)) for each in (12, 2)]
    case = a_case(hours=12)
    told = report(Comparison(case=case, changes=[], every=1, before=sides[0], after=sides[1]))
    assert "longest wait" in str(told.sections[0].rows)
    assert "Better" not in [row[0] for row in told.sections[0].rows]
    assert "wait" not in " ".join(told.verdict)
    waits = [row for row in told.sections[0].rows if row[1] == "longest wait for a machine"]
    assert [row[-1] for row in waits] == ["2 more not started"], "no percentage that reads as a gain"


def test_a_team_whose_pods_never_start_has_not_gained_by_it() -> None:
    works = [a_work(f"job-{n}", gpus=8, hours=2, labels=(("team", "ab"[n % 2]),)) for n in range(4)]
    sides = [played(a_case(*works, hours=each, team_label="team")) for each in (12, 2)]
    told = report(
        Comparison(case=a_case(hours=12, team_label="team"), changes=[], every=1, before=sides[0], after=sides[1])
    )
    teams = next(each for each in told.sections if each.title == "By team")
    waits = [row[-1] for row in teams.rows if row[1] == "95th percentile wait for a machine"]
    assert waits, "both teams wait less"
    assert all(each.endswith("more not started") for each in waits)
