"""Runs of spot pools that once failed, as the search of `make bench NAME=spotpools` shortened them."""

from __future__ import annotations

from typing import Any, Final

from bench.pools.scripts import Event, Script

POOL: Final[dict[str, Any]] = {"region": "sim-1", "instanceType": "GN7", "zones": ["a", "b"], "join": False}


def pool(minimum: int, maximum: int, **more: Any) -> dict[str, Any]:
    """The spec of a pool."""
    return POOL | {"minimum": minimum, "maximum": maximum} | more


BOUGHT: Final[tuple[Event, ...]] = (
    ("look", 0, 600, 600, ""),
    ("decide", 0),
    ("act", 0, ""),
    ("act", 0, ""),
    ("act", 0, ""),
)
"""The status, the finalizer, a machine."""

FINDINGS: Final = {
    "a machine that stopped, and runs again in a list that lags, is taken for that of the next intent": Script(
        spec=pool(1, 2),
        events=[
            *BOUGHT,
            ("wait", 900),
            ("halt", 0),
            ("wait", 900),
            ("see", 0),
            ("look", 0, 20, 1198, ""),
            ("decide", 0),
            ("act", 0, ""),
            ("act", 0, "Lost"),
            ("wait", 10),
            ("look", 0, 1192, 578, ""),
            ("decide", 0),
            ("act", 0, ""),
            ("look", 0, 643, 619, ""),
            ("decide", 0),
            ("act", 0, ""),
        ],
    ),
    "a machine is not found, whose intent is old and whose launch is new": Script(
        spec=pool(1, 1, maxSurge=0),
        skews=(0, 0),
        events=[
            ("look", 1, 1697, 1001, ""),
            ("decide", 1),
            ("act", 1, ""),
            ("wait", 2200),
            ("act", 1, ""),
            ("act", 1, ""),
            ("see", 1),
            ("decide", 1),
            ("act", 1, ""),
            ("see", 0),
            ("look", 0, 155, 806, ""),
            ("decide", 0),
            ("act", 0, ""),
            ("wait", 310),
            ("decide", 0),
            ("act", 0, ""),
        ],
    ),
    "a machine was not found, and then the cloud did not answer for half an hour": Script(
        spec=pool(1, 4),
        events=[
            *BOUGHT,
            ("see", 0),
            ("decide", 0),
            ("act", 0, "Throttled"),
            ("look", 0, 508, 1299, ""),
            ("decide", 0),
            ("act", 0, ""),
            ("wait", 2200),
            ("decide", 0),
            ("act", 0, "Throttled"),
        ],
    ),
    "a launch finds stock after another with its token was refused": Script(
        spec=pool(1, 1, maxSurge=0),
        events=[
            ("look", 0, 0, 0, ""),
            ("decide", 0),
            ("act", 0, ""),
            ("act", 0, ""),
            ("act", 0, "Late20"),
            ("stock", "a", 0),
            ("see", 0),
            ("decide", 0),
            ("work", 0, ()),
            ("decide", 0),
            ("work", 0, ()),
            ("stock", "a", None),
            ("wait", 30),
        ],
    ),
    "machines that failed before anybody saw them are not counted as bought": Script(
        spec=pool(4, 4, maxPurchasesPerHour=5),
        events=[
            ("sabotage", True),
            ("look", 0, 881, 135, ""),
            ("decide", 0),
            ("act", 0, ""),
            ("decide", 0),
            ("act", 0, "Denied"),
            ("act", 0, ""),
            ("act", 0, ""),
            ("act", 0, "CrashBefore"),
            ("start", 0),
            ("look", 0, 218, 824, ""),
            ("decide", 0),
            ("act", 0, "Unreached"),
            ("act", 0, ""),
            ("act", 0, ""),
            ("act", 0, ""),
            ("edit", {"minimum": 2, "maximum": 2}),
            ("see", 0),
            ("decide", 0),
            ("act", 0, ""),
        ],
    ),
    "a machine that no list shows is ended under the pods of its node": Script(
        spec=pool(2, 2, join=True),
        joins=True,
        events=[
            ("pending", 1),
            *BOUGHT,
            ("wait", 900),
            ("delete",),
            ("see", 0),
            ("look", 0, 1792, 1359, ""),
            ("decide", 0),
            ("act", 0, ""),
        ],
    ),
    "a node that was ready while nobody looked is ended under its pods": Script(
        spec=pool(3, 3, join=True),
        joins=True,
        events=[
            *BOUGHT,
            ("pending", 2),
            ("wait", 900),
            ("join", 5, False),
            ("see", 0),
            ("decide", 0),
            ("act", 0, ""),
            ("wait", 900),
            ("look", 0, 172, 870, ""),
            ("decide", 0),
            ("act", 0, ""),
        ],
    ),
}
