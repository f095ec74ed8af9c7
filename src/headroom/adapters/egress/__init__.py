"""The egress guard: every call to an address that stands in a resource goes through here, and only where an administrator allows it.

`entries` is the administrator's list, `targets` reads an address strictly, `networks` knows the numbers that are never called by
accident, and `guard` looks a name up once, checks every number it has, and connects to exactly those.
"""

from headroom.adapters.egress.entries import SETTING, EgressEntry, entries
from headroom.adapters.egress.guard import LARGEST_ANSWER, Guard, HttpResponse, NoAnswer, NotSent, Request
from headroom.adapters.egress.networks import special
from headroom.adapters.egress.targets import EgressTarget, datagram_to, target_of

__all__ = [
    "LARGEST_ANSWER",
    "SETTING",
    "EgressEntry",
    "EgressTarget",
    "Guard",
    "HttpResponse",
    "NoAnswer",
    "NotSent",
    "Request",
    "datagram_to",
    "entries",
    "special",
    "target_of",
]
