"""The scenario that docs/simulator.md shows is a real one and holds."""

import re
from pathlib import Path

from headroom.sim.operators import production
from headroom.sim.scenario import Scenario, simulate

PAGE = Path(__file__).parents[2] / "docs" / "simulator.md"


def test_the_scenario_in_the_docs_holds(tmp_path: Path) -> None:
    shown = re.search(r"```yaml\n(apiVersion: sim.*?)```", PAGE.read_text(), re.DOTALL)
    assert shown is not None
    file = tmp_path / "scenario.yaml"
    file.write_text(shown[1])
    report = simulate(Scenario.load(file), production)
    assert report.passed, report.failures
