"""`headroom backtest offers`: what it prints for a small history, and what it says of input that is wrong."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.conftest import Headroom

POOL = """apiVersion: headroom.dev/v1alpha1
kind: LeftoverNodePool
metadata: {name: cheap}
spec: {region: us-east-1, families: [g5], nodeClassName: gpu, %s}
"""
TYPES = """instance_type,accelerator,count
g5.xlarge,A10G,1
g5.12xlarge,A10G,4
g5g.xlarge,T4g,1
"""
HEAD = "unix_time,instance_type,zone_id,spot_price\n"
BEGIN = 1_735_689_600
"""The begin of 2025."""
GOLDEN = """\
LeftoverNodePool/cheap: 2 offers in us-east-1, 20 price changes from 2025-01-01 to 2025-01-11.

RULE                        USD PER GPU-HOUR  OVER THE CHEAPEST  SWITCHES  FEWER
this pool                             0.4904             +1.48%         1    95%
best with as many switches            0.4900             +1.40%         1    95%
always the cheapest                   0.4832             +0.00%        19
the original                          0.4832             +0.00%        19     0%

1 switch instead of 19 (95% fewer), for 1.48% more than always the cheapest. That is 0.09% above the best possible with as many switches, all prices known beforehand.

"""


def history(days: int = 10) -> str:
    """One zone costs 50 cents; the other goes up and down beside it by 3%, and is much cheaper for the last half day."""
    rows = [f"{BEGIN},g5.xlarge,use1-az1,0.50"]
    for number in range(2 * days):
        price = 0.30 if number == 2 * days - 1 else (0.515, 0.485)[number % 2]
        rows.append(f"{BEGIN + 43_200 * number},g5.xlarge,use1-az2,{price}")
    rows += [f"{BEGIN},g5g.xlarge,use1-az1,0.01", f"{BEGIN},g5.xlarge,use2-az1,0.02"]
    rows.append(f"{BEGIN + 86_400 * days},p3.2xlarge,use1-az1,0.50")
    return HEAD + "\n".join(rows) + "\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder with a pool, machine types and a history."""
    (tmp_path / "pool.yaml").write_text(POOL % "")
    (tmp_path / "types.csv").write_text(TYPES)
    (tmp_path / "prices.csv").write_text(history())
    return tmp_path


def asked(files: Path, *more: str, **other: str) -> list[str]:
    given = {"prices": "prices.csv", "types": "types.csv", "file": "pool.yaml"} | other
    return ["backtest", "offers", *(w for flag, name in given.items() for w in (f"--{flag}", str(files / name))), *more]


def test_the_pool_stands_beside_other_rules(headroom: Headroom, files: Path) -> None:
    done = headroom(*asked(files))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(GOLDEN), done.out
    chart = done.out.removeprefix(GOLDEN).splitlines()
    assert [line[:19].strip() for line in chart] == ["USD per GPU-hour", "this pool", "always the cheapest", "switches"]


@pytest.mark.parametrize("packed", [False, True])
def test_programs_get_data(headroom: Headroom, files: Path, packed: bool) -> None:
    if packed:
        (files / "prices.csv").write_bytes(gzip.compress(history().encode()))
    done = headroom(*asked(files, "-o", "json"))
    found = json.loads(done.out)
    assert (done.code, found["pool"], found["from"], found["badRows"]) == (0, "cheap", "2025-01-01T00:00:00Z", 0)
    assert [each["rule"] for each in found["rules"]] == ["this pool", "always the cheapest", "the original"]
    assert [each["switches"] for each in found["rules"]] == [1, 19, 19]
    assert found["switches"][0]["to"] == "g5.xlarge/use1-az2/spot"
    assert found["regretPercent"] == pytest.approx(0.085, abs=0.001)


def test_regions_and_time_are_chosen(headroom: Headroom, files: Path) -> None:
    both = json.loads(headroom(*asked(files, "--region", "us-east-1", "--region", "us-east-2", "-o", "json")).out)
    assert (both["regions"], both["offers"]) == (["us-east-1", "us-east-2"], 3)
    assert both["rules"][0]["usdPerGpuHour"] == pytest.approx(0.02)
    part = json.loads(headroom(*asked(files, "--since", "2025-01-03", "--until", "2025-01-05", "-o", "json")).out)
    assert (part["from"], part["to"]) == ("2025-01-03T00:00:00Z", "2025-01-05T00:00:00Z")
    assert part["rules"][0]["hours"] == pytest.approx(48)


def test_on_demand_machines_take_over_where_spot_is_dearer(headroom: Headroom, files: Path) -> None:
    (files / "demand.csv").write_text(f"unix_time,instance_type,region,price\n{BEGIN},g5.xlarge,us-east-1,0.10\n")
    found = json.loads(headroom(*asked(files, "--on-demand", str(files / "demand.csv"), "-o", "json")).out)
    assert found["rules"][0]["usdPerGpuHour"] == pytest.approx(0.10)


def test_a_pool_that_asks_for_scores_is_told_that_there_are_none(headroom: Headroom, files: Path) -> None:
    (files / "pool.yaml").write_text(POOL % "strategy: CheapestAboveScore")
    done = headroom(*asked(files))
    assert done.code == 0
    assert done.err == "A history has no placement scores, so minSpotScore counts as 0.\n"


def test_bad_rows_are_counted_and_named(headroom: Headroom, files: Path) -> None:
    (files / "prices.csv").write_text(history() + "tomorrow,g5.xlarge,use1-az1,0.5\n")
    done = headroom(*asked(files))
    assert done.out.startswith(GOLDEN)
    assert "1 row cannot be understood and counts for nothing" in done.err
    assert "prices.csv:26: tomorrow is no time" in done.err


@pytest.mark.parametrize(
    ("file", "text", "says"),
    [
        ("prices.csv", "a,b\n", "the column unix_time is missing"),
        ("prices.csv", HEAD, "it has no price of g5.12xlarge, g5.xlarge in us-east-1; zone ids such as use1-az1"),
        ("types.csv", "instance_type,accelerator,count\np4d.24xlarge,A100,8\n", "none of its 1 machine types is what"),
        ("pool.yaml", "", "it is empty"),
        (
            "pool.yaml",
            "apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n",
            "it must have one LeftoverNodePool, and has 0",
        ),
        ("pool.yaml", POOL % "" + "---\n" + (POOL % "").replace("cheap", "other"), "and has 2; give the one to play"),
        ("pool.yaml", POOL % "capacityType: on-demand", "give their prices with --on-demand"),
    ],
)
def test_what_cannot_be_played_says_why(headroom: Headroom, files: Path, file: str, text: str, says: str) -> None:
    (files / file).write_text(text)
    done = headroom(*asked(files))
    assert (done.code, done.out) == (2, "")
    assert says in done.err


def test_files_that_are_missing_or_damaged(headroom: Headroom, files: Path) -> None:
    done = headroom(*asked(files, prices="nowhere.csv.gz"))
    assert (done.code, "nowhere.csv.gz: No such file or directory" in done.err) == (2, True)
    (files / "prices.csv.gz").write_bytes(gzip.compress(history().encode())[:-30])
    done = headroom(*asked(files, prices="prices.csv.gz"))
    assert (done.code, "it cannot be unpacked" in done.err) == (2, True)


def test_a_pool_with_a_mistake_is_told_line_by_line(headroom: Headroom, files: Path) -> None:
    (files / "pool.yaml").write_text(POOL % "minGPUs: 0")
    done = headroom(*asked(files))
    assert (done.code, done.out) == (1, "")
    assert "spec.minGPUs" in done.err


@pytest.mark.parametrize(("flag", "value"), [("--since", "lately"), ("--until", "2024-01-01")])
def test_times_must_be_times_of_the_history(headroom: Headroom, files: Path, flag: str, value: str) -> None:
    done = headroom(*asked(files, flag, value))
    assert (done.code, flag in done.err) == (2, True)
