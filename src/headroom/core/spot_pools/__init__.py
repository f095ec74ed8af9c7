"""Spot pools: how many machines to buy and which to give back, never one too many and never another owner's."""

from headroom.core.spot_pools.explaining import explained
from headroom.core.spot_pools.gathering import owns_node
from headroom.core.spot_pools.places import KIND
from headroom.core.spot_pools.rooms import ANY, own_taint
from headroom.core.spot_pools.supply import SOURCE

__all__ = ["ANY", "KIND", "SOURCE", "explained", "own_taint", "owns_node"]
