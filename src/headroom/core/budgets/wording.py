"""Words about budgets: what is used, who counts it, how long and how much something is."""

from __future__ import annotations

from collections.abc import Iterator

from headroom.api.quantities import NANO, InvalidQuantity, nano
from headroom.core.budgets.accounts import BudgetAccount
from headroom.core.budgets.numbers import beside, decimal, dollars, short
from headroom.core.usage import DOLLAR, GPU_HOUR
from headroom.model import times


def used(account: BudgetAccount) -> str:
    """What is used of a budget, by its status."""
    if not account.status.consumed_gpu_hours:
        return "no usage is counted yet"
    parts = [f"{_beside(used, quota, unit)} of {quota} {unit}" for used, quota, unit in amounts(account)]
    return f"{' and '.join(parts)} in the last {account.spec.quota.window_hours}h"


def amounts(account: BudgetAccount) -> Iterator[tuple[int, str, str]]:
    """Of each quota: billionths that are used, all of it as text, and what it is."""
    status, quota = account.status, account.quota
    if quota.gpu_ms is not None:
        yield nano_of(status.consumed_gpu_hours), decimal(quota.gpu_ms, GPU_HOUR), "GPU-hours"
    if quota.usd_ms is not None:
        yield nano_of(status.consumed_usd), decimal(quota.usd_ms, DOLLAR), "dollars"


def amount(text: str, unit: str) -> str:
    """An exact amount of a status, rounded for people."""
    return _spoken(nano_of(text), unit)


def _spoken(amount: int, unit: str) -> str:
    return dollars(amount, NANO) if unit == "dollars" else short(amount, NANO)


def _beside(amount: int, quota: str, unit: str) -> str:
    return beside(amount, nano_of(quota), NANO, dollars if unit == "dollars" else short)


def nano_of(text: str) -> int:
    """Billionths; 0 for what is no amount."""
    amount = nano(text)
    return 0 if isinstance(amount, InvalidQuantity) else amount


def share(account: BudgetAccount) -> int:
    """Billionths of the quota that are used, by the status: of the one that is used most."""
    return max((amount * NANO // max(1, nano_of(quota)) for amount, quota, _ in amounts(account)), default=0)


def spoken(length: int) -> str:
    """A length of time as people write it: 1h 30m."""
    minutes, seconds = divmod(-(-length // times.SECOND), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s"))
    return " ".join(f"{amount}{unit}" for amount, unit in parts if amount) or "0s"


def counted_by(accounts: list[BudgetAccount]) -> str:
    """Who counts it."""
    if not accounts:
        return "no budget counts it"
    *others, last = accounts
    if not others:
        return f"budget {last.key} counts it: {used(last)}"
    return f"budgets {', '.join(each.key for each in others)} and {last.key} count it"


def gpus(amount: str) -> str:
    """So many GPUs: `1 GPU`, `2 GPUs`."""
    return f"{amount} GPU" + ("" if amount == "1" else "s")
