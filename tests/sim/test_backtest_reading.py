"""Histories of prices as files: plain and gzip, in any order of columns and rows, with rows that say nothing, and files that are no history."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from headroom.model.errors import Misconfigured
from headroom.sim.backtest import history
from headroom.sim.backtest.history import PriceChanges, machine_types, zone_prefix
from headroom.sim.backtest.history import prices as read_prices

HEAD = "unix_time,instance_type,zone_id,spot_price\r\n"
GOOD = "100,g5.xlarge,use1-az1,0.5\r\n100,g5.xlarge,use1-az2,\r\n200,g5.xlarge,use1-az1,0.6\r\n"


def everything(kind: str, place: str) -> bool:
    return bool(kind and place)


def read(folder: Path, text: str | bytes, name: str = "prices.csv") -> PriceChanges:
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_prices(file, everything)


def told(found: PriceChanges) -> list[tuple[int, str, int]]:
    """Second, zone and price of each row."""
    rows = zip(found.at.tolist(), found.what.tolist(), found.price.tolist(), strict=True)
    return [(at // 1000, found.keys[what][1], price) for at, what, price in rows]


def test_plain_and_gzip_are_the_same_whatever_the_name_says(tmp_path: Path) -> None:
    plain = told(read(tmp_path, HEAD + GOOD))
    assert plain == [(100, "use1-az1", 500_000), (100, "use1-az2", 0), (200, "use1-az1", 600_000)]
    assert told(read(tmp_path, gzip.compress((HEAD + GOOD).encode()))) == plain
    assert told(read(tmp_path, gzip.compress((HEAD + GOOD).encode()), "prices.csv.gz")) == plain


def test_columns_may_stand_in_any_order_among_others(tmp_path: Path) -> None:
    text = "zone_id,note,spot_price,unix_time,instance_type\nuse1-az1,x,0.5,100,g5.xlarge\n"
    assert told(read(tmp_path, text)) == [(100, "use1-az1", 500_000)]


def test_rows_are_put_in_order_and_the_later_one_of_a_moment_counts_later(tmp_path: Path) -> None:
    rows = "200,g,z1,2\n100,g,z1,1\n200,g,z1,3\n"
    assert told(read(tmp_path, HEAD + rows)) == [(100, "z1", 1_000_000), (200, "z1", 2_000_000), (200, "z1", 3_000_000)]


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("x,g,z,1", "x is no time"),
        (",g,z,1", "nothing is no time"),
        ("-5,g,z,1", "-5 is no time"),
        ("1e300,g,z,1", "1e300 is no time"),
        ("100,g,z,dear", "dear is no price"),
        ("100,g,z,nan", "nan is no price"),
        ("100,g,z,inf", "inf is no price"),
        ("100,g,z,-1", "-1 is no price"),
        ("100,g,z,1e12", "1e12 is no price"),
        ("100,g", "it has 2 columns"),
        ("", "it has 0 columns"),
        ("100," + 200_000 * "g" + ",z,1", "field larger than field limit (131072)"),
    ],
)
def test_a_bad_row_is_passed_over_and_counted(tmp_path: Path, row: str, why: str) -> None:
    found = read(tmp_path, HEAD + "100,g,z,1\n" + row + "\n300,g,z,2\n")
    assert told(found) == [(100, "z", 1_000_000), (300, "z", 2_000_000)]
    assert (found.rows, found.bad) == (3, 1)
    assert found.examples == (f"{tmp_path / 'prices.csv'}:3: {why}",)


def test_of_many_bad_rows_only_a_few_are_told(tmp_path: Path) -> None:
    found = read(tmp_path, HEAD + 50 * "x,g,z,1\n")
    assert (found.bad, len(found.examples)) == (50, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the column unix_time is missing; its first line must name .*, and is: no first line"),
        (b"a,b\n1,2\n", "the column unix_time is missing; .* and is: a, b"),
        (gzip.compress((HEAD + GOOD * 999).encode())[:-40], "it cannot be unpacked"),
        (b"\x1f\x8b" + b"no gzip at all", "it cannot be unpacked"),
    ],
)
def test_a_file_that_is_no_history_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(Misconfigured, match=message):
        read(tmp_path, content)


def test_a_file_that_is_not_there_or_is_a_folder(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="No such file or directory; check the path and its rights"):
        read_prices(tmp_path / "nowhere.csv", everything)
    with pytest.raises(Misconfigured, match="it is a folder; give a file"):
        read_prices(tmp_path, everything)


def test_only_what_is_wanted_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text(HEAD + GOOD)
    found = read_prices(file, lambda _, zone: zone == "use1-az1")
    assert (len(found.at), found.rows) == (2, 3)


def test_types_tell_their_gpus_and_what_they_are(tmp_path: Path) -> None:
    file = tmp_path / "types.csv"
    rows = [
        "g5.xlarge,A10G,1.0",
        "g5g.xlarge,T4g,1",
        "g4ad.xlarge,Radeon Pro V520,1",
        "g6f.large,L4,0.125",
        "p5,H100,0",
        "p6,B200,1e-7",
    ]
    file.write_text("instance_type,accelerator,count\n" + "\n".join(rows) + "\n")
    types, left_out = machine_types(file)
    assert {name: (each.gpus, each.arch, each.vendor) for name, each in types.items()} == {
        "g5.xlarge": (1_000_000, "amd64", "nvidia"),
        "g5g.xlarge": (1_000_000, "arm64", "nvidia"),
        "g4ad.xlarge": (1_000_000, "amd64", "amd"),
        "g6f.large": (125_000, "amd64", "nvidia"),
    }
    assert left_out == [f"{file}:6: p5 has 0 GPUs and is left out", f"{file}:7: p6 has 1e-7 GPUs and is left out"]


def test_columns_of_architecture_and_vendor_count_more_than_names(tmp_path: Path) -> None:
    file = tmp_path / "types.csv"
    file.write_text("instance_type,accelerator,count,vendor,architecture\nx1.large,New,2,amd,arm64\n")
    assert machine_types(file)[0]["x1.large"] == history.TracedMachineType(
        name="x1.large", gpus=2_000_000, arch="arm64", vendor="amd"
    )


def test_a_table_without_any_type_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "types.csv"
    file.write_text("instance_type,accelerator,count\n")
    with pytest.raises(Misconfigured, match="it names no machine type with GPUs"):
        machine_types(file)


@pytest.mark.parametrize(
    ("region", "prefix"),
    [("us-east-1", "use1-"), ("ap-southeast-2", "apse2-"), ("us-gov-west-1", "usgw1-"), ("cn-northwest-1", "cnnw1-")],
)
def test_the_ids_of_zones_tell_their_region(region: str, prefix: str) -> None:
    assert zone_prefix(region) == prefix
