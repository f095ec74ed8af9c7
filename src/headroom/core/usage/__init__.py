"""Usage: what pods held and for how long, derived from what is seen of them, and added up over windows.

`keeping` turns what is seen of pods into rows, `coverage` says which rows a budget counts, `reckoning` adds them up.
"""

from headroom.core.usage.coverage import (
    KIND,
    Scope,
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
from headroom.core.usage.curves import Drawing, Drawn, Line, drawing, held
from headroom.core.usage.devices import (
    MICRO,
    Asked,
    DeviceView,
    asked_by,
    asked_by_part,
    requested_amounts,
    sharers_of,
    view_of,
)
from headroom.core.usage.finalizers import removals
from headroom.core.usage.forecasts import Forecast, Run
from headroom.core.usage.holds import holds_over
from headroom.core.usage.keeping import Around, Keeper, around, row_of, table_of
from headroom.core.usage.names import CLASSES, DRIVERS
from headroom.core.usage.observing import NAMESPACE_NAME, Look, amounts_of
from headroom.core.usage.prices import plain_amounts
from headroom.core.usage.reckoning import (
    DOLLAR,
    GPU_HOUR,
    Ledgered,
    Quota,
    Reckoning,
    Running,
    quota_of,
)
from headroom.core.usage.summary import gpus_in, gpus_of, gpus_on, reckonings, uncovered

__all__ = [
    "CLASSES",
    "DOLLAR",
    "DRIVERS",
    "GPU_HOUR",
    "KIND",
    "MICRO",
    "NAMESPACE_NAME",
    "Around",
    "Asked",
    "DeviceView",
    "Drawing",
    "Drawn",
    "Forecast",
    "Keeper",
    "Ledgered",
    "Line",
    "Look",
    "Quota",
    "Reckoning",
    "Run",
    "Running",
    "Scope",
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
    "held",
    "holds_over",
    "is_read",
    "label_keys",
    "namespaces_of",
    "plain_amounts",
    "pods_matching",
    "quota_of",
    "rate_of",
    "reckonings",
    "removals",
    "requested_amounts",
    "row_of",
    "scope_of",
    "sharers_of",
    "table_of",
    "uncovered",
    "view_of",
]
