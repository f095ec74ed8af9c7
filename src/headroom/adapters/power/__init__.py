"""Switches machines on and off, and learns whether they are on: by calls to addresses, through BMCs (Redfish), by Wake-on-LAN.

Every call goes through the egress guard. What is secret is read from the operator's own namespace at the moment of the call, and
never stands in a message.
"""

from headroom.adapters.power.orders import status_of
from headroom.adapters.power.switching import Power

__all__ = ["Power", "status_of"]
