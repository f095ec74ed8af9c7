"""`headroom forecast`: when budgets are over quota or back under it, and whether more would fit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from headroom.cli import output
from headroom.cli.options import (
    AllNamespaces,
    Context,
    FilesInstead,
    Form,
    From,
    Kubeconfig,
    Namespace,
    Now,
    OperatorNamespace,
    Output,
    Recursive,
)
from headroom.model.errors import Misconfigured, Refused

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.api.kinds import AnyResource
    from headroom.cli.nearby import Near
    from headroom.core.budgets import Course, More, Prospect
    from headroom.model.world import World
    from headroom.runtime.settings import Settings

STAYS: Final = "Usage stays over quota while the current pods run"
CHART_ROWS: Final = 12
CHART_CELLS: Final = 30
LARGEST_PLUS: Final = 10**6
_NO_LEDGER: Final = (
    "This counts only pods that still exist, {here} GPU-hours; the operator counts {there} with its ledger. "
    "With HEADROOM_LEDGER_URL set, the ledger is read too."
)


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[NAMESPACE/]NAME|FILE",
        help="One budget, with its curve; manifests, as with --file.",
        show_default=False,
    ),
]

Plus = Annotated[
    str, typer.Option(metavar="GPUSxDURATION", help="Would these GPUs for this long fit too, such as 8x4h?")
]
Hours = Annotated[int | None, typer.Option(min=1, max=24 * 366, metavar="HOURS", help="How far the curve looks ahead.")]


def forecast(
    words: Words = None,
    plus: Plus = "",
    hours: Hours = None,
    files: FilesInstead = None,
    recursive: Recursive = False,
    snapshot: From = None,
    now: Now = "",
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    form: Output = Form.table,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
    operator_namespace: OperatorNamespace = None,
) -> None:
    """Predict when budgets go over quota, or back under it.

    Running pods end at their declared duration (activeDeadlineSeconds or headroom.dev/expected-duration); all others run on.
    Status, dashboard, events and metrics show the same forecast. For one budget it draws the curve, with a second line as if no
    pod ended. --plus asks whether GPUs for some time would fit now, and if not, when. Exit code 1 if the files contain
    mistakes.

    Example: headroom forecast

    Example: headroom forecast lab/team-a --plus 8x4h -f docs/examples/budget-used-up.yaml --now 2026-11-15T12:00:00Z
    """
    from headroom.cli import live, planning, worlds

    more, only = _more(plus), "" if all_namespaces else namespace
    budget, named = _parted(words or [], files or [], only)
    unread: tuple[str, ...] = ()
    if is_given := bool(named or snapshot):
        world, problems = worlds.given(named, snapshot, now, recursive=recursive)
    else:
        settings = live.settings_of(kubeconfig, context, operator_namespace)
        world, unread = _read(settings, budget.rpartition("/")[0] or only)
        problems = planning.problems_of(world)
    told = [BudgetOutlook(world, each, more) for each in _chosen(world, budget, only, in_files=is_given)]
    if form.is_data:
        shown = {"at": _text(world.now), "budgets": [each.wire(bool(budget), hours) for each in told]}
        output.as_data(shown | {"problems": planning.wire(problems), "unread": list(unread)}, form)
    elif budget:
        _show_one(told[0], plus, hours)
    else:
        planning.show_problems(problems)
        _show_all(world, told, plus)
    if unread and not form.is_data:
        output.say(f"not checked for lack of permission: {', '.join(unread)}")
    if problems and is_given:
        raise typer.Exit(output.PROBLEMS)


def _parted(words: list[str], files: list[Path], only: str) -> tuple[str, list[Path]]:
    """The budget that is named, if one is, with its namespace, and all files: a shell makes many words of `-f *.yaml`."""
    named = [word for word in words if not _is_manifest(word)]
    if len(named) > 1:
        raise Misconfigured(
            f"reading the arguments: {' and '.join(named)} are not manifests, and at most one budget can be named"
        )
    budget = f"{only}/{named[0]}" if only and named and "/" not in named[0] else next(iter(named), "")
    return budget, [*files, *(Path(word) for word in words if _is_manifest(word))]


def _is_manifest(word: str) -> bool:
    return word.endswith((".yaml", ".yml", ".json")) and Path(word).is_file()


def _read(settings: Settings, space: str) -> tuple[World, tuple[str, ...]]:
    from headroom.cli import live, nearby, progress

    async def work(kube: Kube) -> Near:
        with progress.shown("reading the cluster", "objects") as told:
            try:
                near = await nearby.fleet(kube, settings, "", told)
            except Refused:
                if not space:
                    raise
                return await nearby.fleet(kube, settings, space, told)
            # Who may not see everything may see their own.
            return await nearby.fleet(kube, settings, space, told) if space and "pods" in near.unread else near

    near = live.with_cluster(settings, work)
    return near.world, near.unread


def _more(text: str) -> More | None:
    """What `8x4h` stands for."""
    from headroom.api.quantities import NANO, InvalidQuantity, nano
    from headroom.core.budgets import More
    from headroom.core.usage import MICRO
    from headroom.model import times

    if not text:
        return None
    gpus, _, length = text.lower().partition("x")
    amount, ms = nano(gpus, largest=LARGEST_PLUS), times.duration(length)
    if isinstance(amount, InvalidQuantity) or amount <= 0 or not ms:
        raise Misconfigured(f"reading --plus: {text!r} must be GPUs and a duration such as 8x4h or 0.5x30m")
    return More(amount * MICRO // NANO, ms)


def _chosen(world: World, asked: str, only: str, *, in_files: bool) -> list[AnyResource]:
    """The budgets that are asked about, all of them if none is named."""
    from headroom.cli.explain import find
    from headroom.core import usage

    if not asked:
        return [each for each in usage.budgets_of(world) if only in ("", each.namespace)]
    space, _, name = asked.rpartition("/")
    found = world.resources[find(world, (usage.KIND, space, name), in_files=in_files)]
    if found.spec is None:
        wrong = "; ".join(f"{each.field} {each.message}" for each in found.problems)
        raise Misconfigured(f"forecasting {found.namespace}/{found.name}: it is invalid: {wrong}; correct it first")
    return [found]


def _text(moment: int | None) -> str:
    """A moment as text; what lies beyond the calendar is never."""
    from headroom.model import times

    return "" if moment is None or moment > times.LAST else times.text(moment - moment % times.SECOND)


class BudgetOutlook:
    """What there is to say of one budget."""

    def __init__(self, world: World, budget: AnyResource, more: More | None) -> None:
        from headroom.core.budgets import prospect

        self.budget, self.more = budget, more
        self.name = f"{budget.namespace}/{budget.name}"
        self.alone: Prospect = prospect(world, budget)
        self.found: Prospect = prospect(world, budget, more) if more else self.alone

    @property
    def quotas(self) -> list[QuotaOutlook]:
        """Each quota that it has: what is used of it, and its course."""
        from headroom.core import usage

        now, both = self.alone.now, self.found
        found = [
            QuotaOutlook("GPU-hours", now.gpu_ms, usage.GPU_HOUR, both.gpus),
            QuotaOutlook("dollars", now.usd_ms, usage.DOLLAR, both.usd),
        ]
        return [each for each in found if each.course.quota is not None]

    @property
    def percent(self) -> float:
        """How much is used, of the quota that is used most; rounded down, for what is below its quota must not read as 100."""
        return max(each.used * 1000 // max(each.course.quota or 1, 1) for each in self.quotas) / 10

    def wire(self, with_curve: bool, hours: int | None) -> dict[str, Any]:
        """The form for programs; what is not known is left out."""
        from headroom.web.pages.parts import decimal, known

        now = self.alone.now
        out: dict[str, Any] = {
            "namespace": self.budget.namespace,
            "name": self.budget.name,
            "asOf": _text(now.as_of),
            "windowHours": self.budget.spec.quota.window_hours,
            "percent": self.percent,
            "burnRateGpus": decimal(now.burn),
            "exhaustedAt": _text(self.alone.exhausted_at),
            "recoversAt": _text(self.alone.recovers_at),
        }
        if (other := now.if_nothing_ends) != (self.alone.exhausted_at, self.alone.recovers_at):
            out["exhaustedAtIfNothingEnds"] = _text(other.exhausted_at)
            out["recoversAtIfNothingEnds"] = _text(other.recovers_at)
        if self.more:
            told = {"fits": self.found.fits, "startsAt": _text(self.found.starts_at)}
            told |= {"gpus": decimal(self.more.rate), "seconds": self.more.length // 1000}
            out["plus"] = known(told | {"exhaustedAt": _text(self.found.exhausted_at)})
        if with_curve:
            out["curves"] = [each.wire(self.ahead(hours)) for each in self.quotas]
        return known(out)

    def ahead(self, hours: int | None) -> int:
        """Up to when to look: a little beyond the next turn, at most one window."""
        from headroom.model.times import HOUR

        now, window = self.found.now, int(self.budget.spec.quota.window_hours) * HOUR
        if hours is not None:
            return now.as_of + hours * HOUR
        turn = self.found.recovers_at if now.exceeded else self.found.exhausted_at
        least = window // 2 if turn is None else min(window, (turn - now.as_of) * 5 // 4)
        return now.as_of + max(HOUR, -(-least // HOUR) * HOUR)


class QuotaOutlook(NamedTuple):
    """One quota of a budget."""

    unit: str
    used: int
    whole: int
    course: Course

    def wire(self, until: int) -> dict[str, Any]:
        """Every moment at which the slope changes, up to `until`."""
        moments, sums = self.course.sums.points(until)
        pairs = dict(zip(moments.tolist(), sums.tolist(), strict=True))
        points = [{"at": _text(at), "used": round(total / self.whole, 6)} for at, total in pairs.items()]
        return {"unit": self.unit, "quota": round((self.course.quota or 0) / self.whole, 6), "points": points}

    def spoken(self) -> str:
        """How much is used, as people say it."""
        limit = (self.course.quota or 0) / self.whole
        return f"{output.hours(self.used / self.whole)} of {limit:g} {self.unit}"


# --- for people -------------------------------------------------------------------------------------------------------------


def _show_all(world: World, told: list[BudgetOutlook], plus: str) -> None:
    from headroom.web.pages.parts import decimal

    if not told:
        output.line("There is no valid budget.")
        return
    output.line(f"As of {_text(world.as_of)}, with running pods ending when they declare:")
    output.line()
    rows = []
    for each in sorted(told, key=lambda one: (-one.percent, one.name)):
        words = _outlook(each.alone, world.as_of) + (f" {_verdict(each, plus)}" if plus else "")
        share = output.bar(each.percent), output.percent(each.percent)
        rows.append((each.name, *share, decimal(each.alone.now.burn), words))
    output.as_table(("BUDGET", "USED", "", "GPUS", "OUTLOOK"), rows)


def _show_one(told: BudgetOutlook, plus: str, hours: int | None) -> None:
    from headroom.web.pages.parts import decimal

    now = told.alone.now
    used = " and ".join(each.spoken() for each in told.quotas)
    window = told.budget.spec.quota.window_hours
    runs = output.counted(decimal(now.burn), "GPU")
    output.line(f"{told.name}: {used} in the last {window}h; {runs} in use now.")
    output.line(_outlook(told.alone, now.as_of))
    if otherwise := _otherwise(told.alone, now.as_of):
        output.line(otherwise)
    if plus:
        output.line(_verdict(told, plus))
    written = told.budget.status.consumed_gpu_hours
    here = now.gpu_ms / told.quotas[0].whole
    if written and float(written) - float(here) > 0.01:
        output.line(_NO_LEDGER.format(here=output.hours(here), there=output.hours(written)))
    for quota in told.quotas:
        output.line()
        output.as_table(("AT", quota.unit.upper(), "%", ""), _chart(quota, told.ahead(hours)), texts=0)


def _outlook(prospect: Prospect, at: int) -> str:
    now, turn = prospect.now, prospect.recovers_at or prospect.exhausted_at
    when = "" if turn is None else f"at {_text(turn)}, in {output.spoken(turn - at)}"
    if now.exceeded:
        return f"Over quota; back under quota {when}." if when else f"Over quota. {STAYS}."
    if when:
        return f"Over quota {when}."
    return "Stays within its quota." if now.burn else "Nothing runs."


def _otherwise(prospect: Prospect, at: int) -> str:
    """What would come if no running pod ended by itself; empty where that changes nothing."""
    other = prospect.now.if_nothing_ends
    if (other.exhausted_at, other.recovers_at) == (prospect.exhausted_at, prospect.recovers_at):
        return ""
    turn = other.recovers_at or other.exhausted_at
    if turn is None:
        return f"If nothing ended: {STAYS[0].lower()}{STAYS[1:]}."
    state = "back under quota" if prospect.now.exceeded else "over quota"
    return f"If nothing ended: {state} at {_text(turn)}, in {output.spoken(turn - at)}."


def _verdict(told: BudgetOutlook, plus: str) -> str:
    """Whether more would fit."""
    gpus, _, length = plus.lower().partition("x")
    subject = f"{output.counted(gpus, 'GPU')} more for {length}"
    found, as_of = told.found, told.found.now.as_of
    if found.fits:
        return f"{subject} would fit now."
    reached = found.exhausted_at
    why = "" if reached is None else f": the budget would be over quota at {_text(reached)}"
    if found.starts_at is None:
        return f"{subject} would not fit{why}. No later start fits while the current pods run."
    later = f"{_text(found.starts_at)}, in {output.spoken(found.starts_at - as_of)}"
    return f"{subject} would not fit now{why}; from {later}, there is room."


def _chart(quota: QuotaOutlook, until: int) -> Iterator[tuple[str, str, str, str]]:
    """The curve as rows, evenly spread over the time ahead."""
    begin, limit = quota.course.sums.as_of, quota.course.quota or 1
    step = max(1, (until - begin) // CHART_ROWS)
    moments = [begin + number * step for number in range(CHART_ROWS)] + [until]
    sums = [quota.course.sums.at(moment) for moment in moments]
    scale = max(limit, *sums)
    for moment, total in zip(moments, sums, strict=True):
        line = output.bar(100 * total / scale, CHART_CELLS)
        mark = min(CHART_CELLS - 1, round(limit * CHART_CELLS / scale))
        drawn = line if scale == limit else f"{line[:mark]}|{line[mark + 1 :]}"
        yield _text(moment), output.hours(total / quota.whole), f"{100 * total // limit:.0f}%", drawn
