"""Words about budgets: what is used, who counts it, how long and how much something is."""

from __future__ import annotations

from collections.abc import Iterator

from headroom.api.quantities import NANO, Invalid, nano
from headroom.core.budgets.accounts import Account
from headroom.core.budgets.numbers import decimal, short
from headroom.core.usage import DOLLAR, GPU_HOUR
from headroom.model import times


def used(account: Account) -> str:
    """What is used of a budget, by its status."""
    if not account.status.consumed_gpu_hours:
        return "nothing is counted yet"
    parts = [f"{short(amount, NANO)} of {quota} {unit}" for amount, quota, unit in amounts(account)]
    return f"{' and '.join(parts)} used in the last {account.spec.quota.window_hours} h"


def amounts(account: Account) -> Iterator[tuple[int, str, str]]:
    """Of each quota: billionths that are used, all of it as text, and what it is."""
    status, quota = account.status, account.quota
    if quota.gpu_ms is not None:
        yield nano_of(status.consumed_gpu_hours), decimal(quota.gpu_ms, GPU_HOUR), "GPU-hours"
    if quota.usd_ms is not None:
        yield nano_of(status.consumed_usd), decimal(quota.usd_ms, DOLLAR), "dollars"


def nano_of(text: str) -> int:
    """Billionths; 0 for what is no amount."""
    amount = nano(text)
    return 0 if isinstance(amount, Invalid) else amount


def share(account: Account) -> int:
    """Billionths of the quota that are used, by the status: of the one that is used most."""
    return max((amount * NANO // max(1, nano_of(quota)) for amount, quota, _ in amounts(account)), default=0)


def spoken(length: int) -> str:
    """A length of time as people write it: 1h30m."""
    minutes, seconds = divmod(-(-length // times.SECOND), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{amount}{unit}" for amount, unit in parts if amount) or "0s"


def counted_by(accounts: list[Account]) -> str:
    """Who counts it."""
    if not accounts:
        return "no budget counts it"
    *others, last = accounts
    if not others:
        return f"it is counted by budget {last.key}: {used(last)}"
    return f"it is counted by budgets {', '.join(each.key for each in others)} and {last.key}"


def gpus(amount: str) -> str:
    """So many GPUs: `1 GPU`, `2 GPUs`."""
    return f"{amount} GPU" + ("" if amount == "1" else "s")
