"""Launches, lists and ends machines of clouds: Tencent Cloud, AWS, and whoever speaks the webhook protocol.

`providers` is what is asked of a cloud, `sessions` knows which one a pool means and with which keys, `polling` lists machines and
prices, `gateway` keeps Kong's targets, and `fleet` is all of it behind the port `Clouds`.
"""

from headroom.adapters.clouds.fleet import CloudFleet
from headroom.adapters.clouds.sessions import Places

__all__ = ["CloudFleet", "Places"]
