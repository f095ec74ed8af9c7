"""Cheapest capacity: which GPU offers to put before Karpenter."""

from headroom.core.offers.choosing import rules_of
from headroom.core.offers.explaining import RULES, market_now, reasons, zone_names
from headroom.core.offers.gathering import KIND
from headroom.core.offers.ladder import zone_of
from headroom.core.offers.learning import news_of, records_of, with_zone_ids, with_zone_names
from headroom.core.offers.plan import PLAN
from headroom.core.offers.quotes import ON_DEMAND, SPOT, Market, Quote, key_of, market_of
from headroom.core.offers.ranking import (
    FAILED,
    INTERRUPTIONS,
    ON_DEMAND_FAILED,
    PRIOR_LAUNCHES,
    PRIOR_MACHINE_MS,
    UNKNOWN_SCORE,
    Risk,
    cost_of,
    risk_of,
)
from headroom.core.offers.switching import SwitchRules, Tenure, needed_saving, next_tenure, recheck_at, settled_order
from headroom.core.offers.telling import passed_over
from headroom.core.offers.wording import dollars, money, offer_text, percent, share

__all__ = [
    "FAILED",
    "INTERRUPTIONS",
    "KIND",
    "ON_DEMAND",
    "ON_DEMAND_FAILED",
    "PLAN",
    "PRIOR_LAUNCHES",
    "PRIOR_MACHINE_MS",
    "RULES",
    "SPOT",
    "UNKNOWN_SCORE",
    "Market",
    "Quote",
    "Risk",
    "SwitchRules",
    "Tenure",
    "cost_of",
    "dollars",
    "key_of",
    "market_now",
    "market_of",
    "money",
    "needed_saving",
    "news_of",
    "next_tenure",
    "offer_text",
    "passed_over",
    "percent",
    "reasons",
    "recheck_at",
    "records_of",
    "risk_of",
    "rules_of",
    "settled_order",
    "share",
    "with_zone_ids",
    "with_zone_names",
    "zone_names",
    "zone_of",
]
