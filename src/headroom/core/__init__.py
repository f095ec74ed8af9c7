"""The decisions, pure: one module per capability, in the order in which they are asked.

Budgets come first, so that no capacity is made for pods that are about to be held or evicted.
"""

from headroom.core import bandwidth, budgets, offers, power, spot_pools

PLANS = (budgets.PLAN, budgets.REQUESTS, power.PLAN, spot_pools.PLAN, bandwidth.PLAN, offers.PLAN)
