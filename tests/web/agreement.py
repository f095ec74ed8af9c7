"""What must agree between bodies of one moment: pages, metrics, and what the commands print."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from headroom.model import times
from headroom.model.ports import SETTLE_MS

Body = dict[str, Any]
Bodies = Mapping[str, Any]
"""By address, as the dashboard serves them: `overview`, `budgets/lab/a`; the text of the metrics under `metrics`."""
_SAMPLE: Final = re.compile(r"(\w+?)(?:_total)?(?:\{(.*)\})? (\S+)")
_OF_BUDGETS: Final = {
    "consumed_gpu_hours": "consumedGpuHours",
    "remaining_gpu_hours": "remainingGpuHours",
    "consumed_usd": "consumedUsd",
    "burn_rate_gpus": "burnRateGpus",
    "tracked_pods": "trackedPods",
    "held_pods": "heldPods",
}
_MOMENTS: Final = {"exhausted_timestamp_seconds": "exhaustedAt", "recovers_timestamp_seconds": "recoversAt"}


def differences(bodies: Bodies) -> list[str]:
    """Everything that two bodies tell differently, as sentences."""
    return [f"{at}: {each}" for at in [bodies["overview"]["at"]] for each in _differences(bodies)]


def _differences(bodies: Bodies) -> Iterator[str]:
    yield from _of_moments(bodies)
    yield from _of_fleet(bodies)
    samples = samples_of(bodies["metrics"])
    for name, row in bodies["overview"]["budgets"].items():
        yield from _of_budget(name, row, bodies, samples)
    for name in bodies.get("power", {}).get("pools", {}):
        yield from _of_pool(name, bodies, samples)


def _of_moments(bodies: Bodies) -> Iterator[str]:
    """One moment for all of them, and usage as settled as it can be at that moment."""
    at = bodies["overview"]["at"]
    yield from (f"{name} is of {body['at']}" for name, body in bodies.items() if name != "metrics" and body["at"] != at)
    told = samples_of(bodies["metrics"])["headroom_view_timestamp_seconds", ""]
    if int(told) * times.SECOND != ms(at):
        yield f"the metrics are of {told}"
    for name, row in bodies["overview"]["budgets"].items():
        if not 0 <= ms(at) + times.SECOND - ms(row["asOf"]) <= SETTLE_MS + times.SECOND:
            yield f"usage of {name} is of {row['asOf']}"


def _of_fleet(bodies: Bodies) -> Iterator[str]:
    overview, nodes = bodies["overview"], bodies["nodes"]
    fleet, rows = overview["fleet"], list(overview["budgets"].values())

    def sum_of(name: str) -> float:
        return sum(float(each[name]) for each in nodes["nodes"].values())

    # What is allocated is one of three: a budget counts it, none does, or no container has started yet.
    burn = sum(float(each["burnRateGpus"]) for each in rows) + float(overview["uncovered"]["burnRateGpus"])
    yield from _unequal(
        "allocated, against burn rates and what starts", float(fleet["held"]), burn + float(fleet["starting"])
    )
    yield from _unequal("allocated, against the nodes", float(fleet["held"]), sum_of("held"))
    yield from _unequal("GPUs, against the nodes", float(fleet["gpus"]), sum_of("gpus"))
    yield from _unequal("pods without a node, against the nodes page", fleet["waiting"], nodes["waitingCount"])
    yield from _unequal("queued pods, against the budgets", fleet["heldPods"], sum(each["heldPods"] for each in rows))
    yield from _unequal("the models, against the nodes page", overview["models"], nodes["models"])


def _of_budget(name: str, row: Body, bodies: Bodies, samples: Mapping[tuple[str, str], float]) -> Iterator[str]:
    if (page := bodies.get(f"budgets/{name}")) is not None:
        told = {field: page["budget"].get(field) for field in row}
        yield from _unequal(f"{name}, against its page", row, told)
        yield from _unequal(f"queued of {name}, on its page", page["budget"]["heldPods"], page["heldPods"])
        row = page["budget"]
    for sample, field in _OF_BUDGETS.items():
        yield from _unequal(
            f"{field} of {name}, against the metrics", _number(row.get(field)), _sample(samples, name, sample)
        )
    for sample, field in _MOMENTS.items():
        moment = ms(row[field]) / times.SECOND if row.get(field) else None
        yield from _unequal(f"{field} of {name}, against the metrics", moment, _sample(samples, name, sample))
        if row.get(field) and ms(row[field]) < ms(row["asOf"]):
            yield f"{field} of {name} is past: {row[field]}"


def _of_pool(name: str, bodies: Bodies, samples: Mapping[tuple[str, str], float]) -> Iterator[str]:
    row = bodies["power"]["pools"][name]
    states = {
        labels: value for (metric, labels), value in samples.items() if metric == "headroom_power_machines" and value
    }
    told = {f'pool="{name}",state="{state}"': count for state, count in row["states"].items()}
    yield from _unequal(f"machines of {name}, against the metrics", told, states)
    saved = samples.get(("headroom_power_energy_saved_kwh", f'pool="{name}"'))
    yield from _unequal(f"what {name} saved, against the metrics", _number(row.get("savedKwh")), saved)
    yield from _unequal(
        f"what is said of {name}", row["message"], bodies["overview"]["others"][f"PowerPool/{name}"]["message"]
    )
    if (page := bodies.get(f"power/{name}")) is not None:
        yield from _unequal(f"{name}, against its page", row, {field: page["pool"].get(field) for field in row})


# --- commands ---------------------------------------------------------------------------------------------------------------


def from_commands(overview: Body, status: Body, forecasts: Mapping[str, Body]) -> list[str]:
    """What `headroom status` and `headroom forecast` tell of the very moment otherwise than the first page."""
    found = [*_unequal("the fleet in status", overview["fleet"], status["fleet"])]
    found += _unequal("uncovered in status", overview["uncovered"], status["uncovered"])
    rows = {f"{each['namespace']}/{each['name']}": each for each in status["budgets"]}
    for name, row in overview["budgets"].items():
        found += _unequal(f"{name} in status", row, {field: rows[name].get(field) for field in row})
        told = forecasts[name]
        for field in ("exhaustedAt", "recoversAt", "asOf"):
            found += _unequal(f"{field} of {name} in forecast", _second(row.get(field)), _second(told.get(field)))
        for field in ("burnRateGpus", "percent"):
            found += _unequal(f"{field} of {name} in forecast", float(row[field]), float(told[field]))
    return [f"{overview['at']}: {each}" for each in found]


def of_fleets(page: Body, status: Body) -> list[str]:
    """What `headroom status` reads of the fleet at the moment of a page, and tells otherwise."""
    return list(_unequal("the fleet in status", page, status))


def of_status(rows: Mapping[str, Body], known: Callable[[str, str], Body | None]) -> list[str]:
    """What the status of a cluster tells otherwise than was decided for the moment that it is of."""
    found = []
    for name, row in rows.items():
        decided = known(name, row["asOf"])
        if decided is None:
            found.append(f"{name} in status is of {row['asOf']}, for which nothing was decided")
        else:
            # Its words are those of the conditions, which say no more than the numbers.
            fields = [field for field in decided if field not in ("message", "reason")]
            found += _unequal(
                f"{name} in status", *({field: each.get(field) for field in fields} for each in (decided, row))
            )
    return found


# --- reading ----------------------------------------------------------------------------------------------------------------


def samples_of(text: str) -> dict[tuple[str, str], float]:
    """Metrics by name and labels."""
    lines = (_SAMPLE.fullmatch(line) for line in text.splitlines() if not line.startswith("#"))
    return {(each[1], each[2] or ""): float(each[3]) for each in lines if each}


def _sample(samples: Mapping[tuple[str, str], float], budget: str, name: str) -> float | None:
    namespace, _, own = budget.partition("/")
    return samples.get((f"headroom_budget_{name}", f'name="{own}",namespace="{namespace}"'))


def _number(text: Any) -> float | None:
    return None if text in (None, "") else float(text)


def ms(text: str) -> int:
    """A moment."""
    found = times.moment(text)
    assert found is not None, text
    return found


def _second(text: str | None) -> int | None:
    return ms(text) // times.SECOND if text else None


def _unequal(what: str, one: Any, other: Any) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for field in sorted(one.keys() | other.keys()):
            yield from _unequal(f"{what}: {field}", one.get(field), other.get(field))
    elif isinstance(one, float) and isinstance(other, float | int):
        if abs(one - other) > 1e-9 * max(1.0, abs(one)):
            yield f"{what}: {one} is not {other}"
    elif one != other:
        yield f"{what}: {one!r} is not {other!r}"
