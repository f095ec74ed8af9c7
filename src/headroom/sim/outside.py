"""What stands beside a simulated cluster: things that an operator calls and that bring nodes, such as machines with switches.

Each is known to the server by its class (`ApiServer.beside`), where an operator's connection finds it. What goes wrong with it are faults
of its calls (`SimTransport.call`), those of every request and its own, which are kinds of `faults.OfOutside`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from headroom.sim.faults import Faults
from headroom.sim.kubelet import PodLifecycle

if TYPE_CHECKING:
    from headroom.sim.apiserver import ApiServer
    from headroom.sim.script import Scenario


class Outside(Protocol):
    """One such thing, the same for all operators of a simulation."""

    def begin(self) -> None:
        """Take stock, once the stage is set."""
        ...

    def stop(self) -> None:
        """Let nothing more come of what was set off."""
        ...


MakesOutside = Callable[["ApiServer", PodLifecycle, Faults, "Scenario"], Outside]
