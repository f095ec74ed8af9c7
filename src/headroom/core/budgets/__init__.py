"""Rolling-window GPU budgets: what a team has used, when that is over quota, and what happens then.

`plan` decides. `counting` says what was used and `ladder` which steps are active; `enforcing` is one round over all budgets that act,
in which `pausing`, `holding`, `releasing` and `stopping` say what each step asks for. `telling` and `explaining` put it into words,
`prospects` says what comes, and `requests` releases what somebody asks for.
"""

from headroom.core.budgets.explaining import Explained, explained, names
from headroom.core.budgets.holding import hold_of
from headroom.core.budgets.index import index_of
from headroom.core.budgets.ladder import exit_share
from headroom.core.budgets.plan import PLAN, chores, decide
from headroom.core.budgets.prospects import Course, More, Prospect, drawing, prospect
from headroom.core.budgets.requests import PLAN as REQUESTS
from headroom.core.budgets.units import of_namespaces, owner_of, unit_of
from headroom.core.budgets.wording import amount

__all__ = [
    "PLAN",
    "REQUESTS",
    "Course",
    "Explained",
    "More",
    "Prospect",
    "amount",
    "chores",
    "decide",
    "drawing",
    "exit_share",
    "explained",
    "hold_of",
    "index_of",
    "names",
    "of_namespaces",
    "owner_of",
    "prospect",
    "unit_of",
]
