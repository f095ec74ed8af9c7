"""What can go wrong outside, named by who must act.

The text of each is one sentence, "doing what: why", so that it can stand in a log, a condition or on a terminal as it is.
"""

from __future__ import annotations


class HeadroomError(Exception):
    """Any failure that we expect and can explain."""


class Unavailable(HeadroomError):
    """The other side did not answer, or is overloaded: we try again."""


class Refused(HeadroomError):
    """The other side answered no: somebody else must change something before it can work."""


class Misconfigured(HeadroomError):
    """The user must edit something; trying again changes nothing until then."""
