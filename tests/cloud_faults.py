"""What goes wrong in the clouds of the tests, in words that all of them understand."""

from __future__ import annotations

from typing import Literal, NamedTuple

Call = Literal["list", "describe", "launch", "terminate", "offers", "identity"]
MarketCall = Literal["types", "scores", "products"]
"""What only a region's market is asked."""
How = Literal[
    "cut",  # it is done, and the answer is lost
    "drop",  # nothing is done, and no answer comes
    "garbage",  # an answer that is not of the cloud, such as a proxy's
    "throttled",
    "denied",
    "sold out",
    "too dear",
    "quota",
    "refused",
    "hang",  # no answer for a long time
]


class _Fault(NamedTuple):
    call: Call | MarketCall
    how: How
    skip: int


class Faults:
    """What will go wrong, each once and in order."""

    def __init__(self) -> None:
        self._coming: list[_Fault] = []
        self._always: dict[Call | MarketCall, How] = {}

    def next(self, call: Call | MarketCall, how: How, *, skip: int = 0, times: int = 1) -> None:
        """The next such call, after as many as are skipped, goes wrong."""
        self._coming += [_Fault(call, how, skip)] + [_Fault(call, how, 0)] * (times - 1)

    def always(self, call: Call | MarketCall, how: How | None) -> None:
        """Every such call goes wrong until it is said otherwise."""
        if how is None:
            self._always.pop(call, None)
        else:
            self._always[call] = how

    def take(self, call: Call | MarketCall) -> How | None:
        """What goes wrong with this call."""
        if call in self._always:
            return self._always[call]
        for number, each in enumerate(self._coming):
            if each.call == call:
                if each.skip:
                    self._coming[number] = each._replace(skip=each.skip - 1)
                    return None
                del self._coming[number]
                return each.how
        return None


class CloudMachine:
    """A machine as a cloud has it."""

    def __init__(self, name: str, *, token: str = "", zone: str = "", kind: str = "", tags: dict[str, str]) -> None:
        self.name, self.token, self.zone, self.kind, self.tags = name, token, zone, kind, tags
        self.state, self.created_ms, self.user_data, self.public = "PENDING", 0, "", False
        self.reclaim_at = ""
