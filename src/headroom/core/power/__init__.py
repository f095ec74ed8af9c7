"""Power: machines wake for pods that wait and sleep when they are idle.

`gathering` and `states` say what each machine is doing, `idling` since when nobody uses it, `schedule` how many must be on and `warmth` how many stay
on beside. `serving` says who waits and where they go, `waking` what is woken for the rest, `unserved` why nothing is, `sleeping` what goes to sleep.
`energy` counts, `telling` and `explaining` put it into words, `plan` decides.
"""

from headroom.core.power.explaining import Explained, explained, holding, served
from headroom.core.power.members import KIND
from headroom.core.power.plan import PLAN, chores, decide
from headroom.core.power.warmth import warm_percent

__all__ = ["KIND", "PLAN", "Explained", "chores", "decide", "explained", "holding", "served", "warm_percent"]
