"""Usage: what pods had allocated and for how long, derived from what is seen of them, and added up over windows.

`keeping` turns what is seen of pods into rows, `coverage` says which rows a budget counts, `reckoning` adds them up.
"""

from headroom.core.usage.coverage import (
    KIND,
    BudgetScope,
    arrange,
    asked_rate,
    budgets_of,
    counted_names,
    counts,
    gpu_names,
    is_read,
    label_keys,
    namespaces_of,
    pods_matching,
    rate_of,
    scope_of,
)
from headroom.core.usage.curves import Ahead, Drawing, Drawn, UsageCurve, drawing, held
from headroom.core.usage.devices import (
    MICRO,
    DeviceView,
    PodDevices,
    asked_by,
    asked_by_part,
    requested_amounts,
    sharers_of,
    view_of,
)
from headroom.core.usage.finalizers import removals
from headroom.core.usage.forecasts import UsageForecast, UsageRun
from headroom.core.usage.hearing import heard_of
from headroom.core.usage.holds import holds_over
from headroom.core.usage.keeping import Keeper, PricingContext, around, repriced, row_of, table_of
from headroom.core.usage.names import CLASSES, DRIVERS
from headroom.core.usage.observing import NAMESPACE_NAME, Look, amounts_of
from headroom.core.usage.prices import INSTANCE_TYPE, plain_amounts, type_of
from headroom.core.usage.reckoning import (
    DOLLAR,
    GPU_HOUR,
    BudgetUsage,
    Outlook,
    QuotaLimits,
    Reckoning,
    Running,
    quota_of,
    turns_of,
)
from headroom.core.usage.shares import Shares, UsageShare, of_budget, of_namespace, of_pod, saved_now
from headroom.core.usage.summary import gpus_in, gpus_of, gpus_on, reckonings, uncovered

__all__ = [
    "CLASSES",
    "DOLLAR",
    "DRIVERS",
    "GPU_HOUR",
    "INSTANCE_TYPE",
    "KIND",
    "MICRO",
    "NAMESPACE_NAME",
    "Ahead",
    "BudgetScope",
    "BudgetUsage",
    "DeviceView",
    "Drawing",
    "Drawn",
    "Keeper",
    "Look",
    "Outlook",
    "PodDevices",
    "PricingContext",
    "QuotaLimits",
    "Reckoning",
    "Running",
    "Shares",
    "UsageCurve",
    "UsageForecast",
    "UsageRun",
    "UsageShare",
    "amounts_of",
    "around",
    "arrange",
    "asked_by",
    "asked_by_part",
    "asked_rate",
    "budgets_of",
    "counted_names",
    "counts",
    "drawing",
    "gpu_names",
    "gpus_in",
    "gpus_of",
    "gpus_on",
    "heard_of",
    "held",
    "holds_over",
    "is_read",
    "label_keys",
    "namespaces_of",
    "of_budget",
    "of_namespace",
    "of_pod",
    "plain_amounts",
    "pods_matching",
    "quota_of",
    "rate_of",
    "reckonings",
    "removals",
    "repriced",
    "requested_amounts",
    "row_of",
    "saved_now",
    "scope_of",
    "sharers_of",
    "table_of",
    "turns_of",
    "type_of",
    "uncovered",
    "view_of",
]
