"""What viewers in a hurry take of the operator's loop, on which pages are made: at most a tenth, however many they are.

    make bench NAME=pages    (about a minute)

The operator's end of the link makes pages of 300 budgets and 3,000 pods; the other end, in a process of its own, asks as fast as it is
answered: 50 tenants at once, half of them as programs do, each with a scope of its own, so that no page is made for two of them. What counts is the time until the
operator's loop is free again: for making a page, and for encoding and sending it.
"""

import asyncio
import socket
import sys
import time

from msgspec import structs

from bench import results
from bench.results import ROOT, Row
from headroom.cli import capabilities
from headroom.model.times import HOUR
from headroom.web.editions import Editions
from headroom.web.link import Beat, Begin, LinkAnswer, LinkQuestion, LinkServer, Remote
from headroom.web.live import Streams
from headroom.web.scope import Scope
from headroom.web.source import Address, Local, Sheet
from headroom.web.view import OperatorView, Showing
from headroom.web.wire import Link
from tests.builders import a_used_world
from tests.core.stage import a_budget, running
from tests.web.showing import Made

BUDGETS, PODS, TENANTS = 300, 3_000, 50
SECONDS, GOAL = 20.0, 10.0
ADDRESSES: tuple[Address, ...] = (("overview",), ("nodes",), ("power",))


class Counted(Local):
    """The operator, which counts the pages that it made, and the time until its loop was free again."""

    count, took, busy = 0, 0.0, 0.0

    def __init__(self, showing: Showing) -> None:
        super().__init__(showing)
        self.warm = asyncio.Event()
        """Every kind of page was made."""

    def _sheet(self, address: Address, scope: Scope, view: OperatorView) -> Sheet:
        began = time.perf_counter()
        sheet = super()._sheet(address, scope, view)
        self.count, self.took = self.count + 1, self.took + sheet.took
        asyncio.get_running_loop().call_soon(self._is_free, began)
        if self.count >= TENANTS:
            self.warm.set()
        return sheet

    def _is_free(self, began: float) -> None:
        self.busy += time.perf_counter() - began


def a_fleet() -> Made:
    """Every team with its budget and ten pods that run."""
    budgets = [structs.replace(a_budget(f"budget-{number}"), namespace=f"team-{number}") for number in range(BUDGETS)]
    pods = [running(f"p-{number}", HOUR, namespace=f"team-{number % BUDGETS}") for number in range(PODS)]
    return Made(a_used_world(*budgets, pods=pods))


async def hurry(end: socket.socket) -> None:
    """Ask for pages without a pause, each tenant for its own."""
    link: Link[Begin | Beat | LinkAnswer] = await Link.over(end, Begin | Beat | LinkAnswer)
    remote = Remote(link, capabilities.pages())
    streams = Streams(remote)
    editions = Editions(remote, streams.turns)

    async def tenant(number: int) -> None:
        count = 0
        while True:
            count += 1
            # A scope that nobody has had before, so that nothing is shown twice.
            names = frozenset({*(f"team-{each}" for each in range(BUDGETS)), f"{number}-{count}"})
            address, scope = ADDRESSES[count % len(ADDRESSES)], Scope(namespaces=names, nodes=True)
            if number % 2:
                await streams.made(address, scope, str(number))
            else:
                await editions.page(address, scope, str(number))

    tasks = [asyncio.create_task(tenant(number)) for number in range(TENANTS)]
    await remote.run()
    for task in tasks:
        task.cancel()


async def measured() -> list[Row]:
    """The operator, while all of them ask."""
    local = Counted(a_fleet().showing())
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "bench.pages", str(theirs.fileno())]
    asking = await asyncio.create_subprocess_exec(*command, cwd=ROOT, pass_fds=[theirs.fileno()])
    theirs.close()
    link: Link[LinkQuestion] = await Link.over(ours, LinkQuestion)
    serving = asyncio.create_task(LinkServer(local, lambda error: print(error, file=sys.stderr)).serve(link))
    await local.warm.wait()
    began, count, took, busy = time.perf_counter(), local.count, local.took, local.busy
    await asyncio.sleep(SECONDS)  # what is measured
    seconds = time.perf_counter() - began
    count, took, busy = local.count - count, local.took - took, local.busy - busy
    link.close()
    await serving
    asking.kill()
    await asking.wait()
    figure = f"time of the operator's loop that {TENANTS} viewers in a hurry take"
    return [
        Row(figure=figure, value=round(100 * busy / seconds, 1), unit="%", goal=GOAL),
        Row(figure="of it, making pages", value=round(100 * took / seconds, 1), unit="%"),
        Row(figure="pages that were made", value=round(count / seconds, 1), unit="a second"),
        Row(figure="one page", value=round(took / max(count, 1) * 1000, 1), unit="ms"),
    ]


def main(arguments: list[str]) -> int:
    """Measure, and write the results; with a descriptor, be those who ask."""
    if arguments:
        asyncio.run(hurry(socket.socket(fileno=int(arguments[0]))))
        return 0
    return 1 if results.write("pages", asyncio.run(measured())) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
