"""Power: machines wake for pods that are pending and sleep when they are idle.

`gathering` and `states` say what each machine is doing, `idling` since when it is idle, `schedule` how many must be on and `warmth` how many stay
on beside. `supply` offers the machines to the capacity round; of what it finds, `waking` wakes, `sleeping` lets sleep, and `unserved` says why nothing
is woken. `energy` counts, `telling` and `explaining` put it into words, `deciding` makes the decision.
"""

from headroom.core.power.explaining import explained, holding, served
from headroom.core.power.gathering import owns_node
from headroom.core.power.members import KIND
from headroom.core.power.supply import SOURCE
from headroom.core.power.warmth import warm_percent

__all__ = ["KIND", "SOURCE", "explained", "holding", "owns_node", "served", "warm_percent"]
