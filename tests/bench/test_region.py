"""A region's offers fit into 20 MB, also while they are read, and a hundred objects read it no more often than one."""

from __future__ import annotations

from bench.region import lists_read, region_memory


def test_a_region_takes_less_than_its_share() -> None:
    found = region_memory(types=170, zones=6)
    assert found["offers"] == 2040
    assert 0.2 < found["kept"] < found["most"] < 20


def test_a_hundred_objects_read_no_more_than_one() -> None:
    assert lists_read(100) == lists_read(1)
