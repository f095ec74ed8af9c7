"""What people see of cheapest capacity: which offer is first and why, the rungs, what it saves, and what is dubious in a file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from headroom.cli import face_tables, output
from headroom.cli.face import Face

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from headroom.api.kinds import AnyResource
    from headroom.api.offers_status import LeftoverNodePoolStatus, Rung
    from headroom.api.schema import Problem
    from headroom.cli.face import Story
    from headroom.model.decisions import Decision
    from headroom.model.world import World
    from headroom.runtime.metrics import Measure
    from headroom.web.page import Page

_TONES: Final = {"Active": "good", "Resting": "warn"}
CAUSES: Final = {
    "LaunchFailed": "a launch failed",
    "NotRanked": "its offers are no longer among the best",
    "TemplateChanged": "the spec has another template",
    "OverQuota": "the budget is over quota",
    "Superseded": "it is the NodePool of the original leftover controller",
}
"""Why a rung adds no nodes."""


# --- one of them --------------------------------------------------------------------------------------------------------------


def show(pool: AnyResource, status: LeftoverNodePoolStatus) -> None:
    """Print what is first and why, and every rung, as sentences and a table."""
    from headroom.core.offers import reasons

    output.as_fields(_numbers(pool, status))
    output.line()
    for said in reasons(pool.spec, status):
        output.line(f"- {said}", hang=2)
    rungs = [_rung_row(each) for each in status.rungs]
    face_tables.section("Rungs, in the order in which Karpenter tries them", _COLUMNS, rungs, texts=1)


def _numbers(pool: AnyResource, status: LeftoverNodePoolStatus) -> Iterator[tuple[str, str]]:
    from headroom.web.pages.offers import first_rung, first_text

    spec, top = pool.spec, first_rung(status)
    families = ", ".join(spec.families) or "any GPU family"
    yield "Offers", f"{families} in {spec.region}, {spec.capacity_type}; {status.offers or 0} ranked"
    yield "First", first_text(status) or "none"
    if top and top.price_per_hour:
        yield "Price", f"{_dollars(top.price_per_hour)} an hour for the machine"
        cost = f"{_dollars(top.cost_per_gpu_hour)} for each useful GPU-hour"
        yield "Expected cost", f"{cost}: {_risk(top)}"
    if status.last_score is not None:
        at = f", read at {status.last_score_time}" if status.last_score_time else ""
        yield "Placement score", f"{status.last_score} of 10{at}"
    if status.savings is not None:
        since = f" since {status.savings.since}" if status.savings.since else ""
        rate = f"{_dollars(status.savings.usd_per_hour)} an hour now"
        yield "Saved", f"{_dollars(status.savings.usd)} compared to on-demand machines{since}; {rate}"
    recent = len(status.chosen.switches) if status.chosen else 0
    yield "Switches", f"{status.switches or 0} in all, {recent} of at most {spec.max_switches_per_day} in the last day"
    if status.node_class:
        yield "Node class", f"{spec.node_class_kind} {status.node_class}"


_COLUMNS: Final = ("RUNG", "WEIGHT", "STATE", "TYPES", "ZONES", "PAID", "PRICE", "COST/GPU-H", "SCORE", "NODES", "WHY")


def _rung_row(rung: Rung) -> tuple[object, ...]:
    return (
        rung.name,
        "" if rung.weight is None else rung.weight,
        output.Toned(rung.state, _TONES.get(rung.state, "idle")),
        ", ".join(rung.instance_types),
        ", ".join(rung.zones) or "any",
        rung.capacity_type,
        f"{_dollars(rung.price_per_hour)}/h" if rung.price_per_hour else "",
        _dollars(rung.cost_per_gpu_hour) if rung.cost_per_gpu_hour else "",
        "" if rung.score is None else rung.score,
        rung.nodes or 0,
        "; ".join(_remarks(rung)),
    )


def _remarks(rung: Rung) -> Iterator[str]:
    """What is worth knowing of a rung beside its state."""
    if rung.cause:
        yield CAUSES.get(rung.cause, rung.cause)
    if rung.state == "Resting" and rung.until:
        yield f"tried again at {rung.until}"
    if rung.state == "Leaving":
        yield "deleted once it has no nodes"
    if rung.state == "Active" and rung.failed_launches:
        yield _risk(rung)


def _risk(rung: Rung) -> str:
    """`5 interruptions in 1000 hours, 12% of launches fail`."""
    often = output.counted(f"{_number(rung.interruptions_per_hour) * 1000:.4g}", "interruption")
    return f"{often} in 1000 hours, {_number(rung.failed_launches) * 100:.3g}% of launches fail"


def _dollars(text: str) -> str:
    """Two decimals from a dollar on, four below, as the operator says it."""
    amount = _number(text)
    return f"${amount:,.2f}" if abs(amount) >= 1 or not amount else f"${amount:.4f}"


def _number(text: str) -> float:
    from headroom.api.quantities import NANO, InvalidQuantity, nano

    found = nano(text) if text else 0
    return 0.0 if isinstance(found, InvalidQuantity) else found / NANO


# --- in `headroom status` -----------------------------------------------------------------------------------------------------


def _row(world: World, resource: AnyResource, decision: Decision | None) -> dict[str, Any]:
    from headroom.web.pages.offers import pool_row

    return face_tables.as_written(pool_row(world, resource, decision), resource, decision)


def _rows(found: dict[str, Any], everything: bool) -> None:
    """The LeftoverNodePools."""
    columns = ("CHEAPEST CAPACITY", "FIRST", "RUNGS", "NODES", "COST/GPU-H", "SCORE", "SAVED")
    face_tables.overview(found["leftoverNodePools"], columns, _cells, everything)


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    cost, saved = (_dollars(row[name]) if name in row else "" for name in ("costPerGpuHour", "savedUsd"))
    counts = (sum(row.get("rungs", {}).values()), row.get("nodes", 0))
    return (row.get("first", ""), *counts, cost, row.get("score", ""), saved)


# --- elsewhere ----------------------------------------------------------------------------------------------------------------


def _advice(pool: AnyResource, given: Collection[str], others: Iterable[AnyResource]) -> list[Problem]:
    from headroom.api import offer_advice

    return [*offer_advice.of_pool(pool, given), *offer_advice.between(pool, others)]


def _pages() -> tuple[Page, ...]:
    from headroom.web.page import Page
    from headroom.web.pages import offers

    return (
        Page("offers", "offers", lambda: offers.model, link="Offers"),
        Page(
            "offers/{name}",
            "offer_pool",
            lambda: offers.pool,
            kind="LeftoverNodePool",
            noun="pool of cheapest capacity",
        ),
    )


def _metrics(registry: CollectorRegistry) -> Measure:
    from headroom.runtime.offers_metrics import OffersMetrics

    return OffersMetrics(registry)


def _story() -> Story:
    from headroom.cli.story_offers import OffersStory

    return OffersStory()


FACE: Final = Face(
    show=show,
    advice=_advice,
    pages=_pages,
    section="leftoverNodePools",
    row=_row,
    table=_rows,
    metrics=_metrics,
    story=_story,
)
